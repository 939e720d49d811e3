package faultstore

// Method is a method of the interface store.Store that can fail.
type Method uint8

// Methods. Any means all methods.
const (
	Any Method = iota
	Register
	Renew
	FenceNode
	Acquire
	SetDrained
	Unregister
	Refence
	Commit
	LoadRunnable
	LoadExpired
	LoadExecution
	LoadEvents
	LoadTimers
	LoadRun
	LoadRuns
	LoadRunTimers
	LoadMessages
	LoadInbox
	PutInbox
	LoadReplies
	LoadAnswers
	List
	Count
	Tally
	LoadEventsOf
	LastEvent
	LoadLabels
	LoadDetails
	LoadDeadLetters
	Tenants
	Members
	Sweep
	LoadDead
	ListDead
	CountDead
	GroupDead
	LoadDeadBefore
	LoadTaskData
	LoadLogs
	PutSetting
	DeleteSetting
	ListSettings
	LoadSettings
	PutPeerMail
	TakePeerMail
	NameWorkers
	WorkerHomes
	PutAudit
	ListAudit
	AddReport
	LoadReport
	ListReports
	LoadEntity
	LoadMailbox
	LoadMailboxes
	ListEntities
)

const methods = int(ListEntities) + 1

var methodNames = [methods]string{
	"any", "register", "renew", "fence node", "acquire", "set drained", "unregister", "refence", "commit", "load runnable", "load expired", "load execution",
	"load events", "load timers", "load run", "load runs", "load timers of a run", "load messages", "load inbox", "put inbox", "load replies", "list", "count", "tally",
	"load events of a kind", "find last event", "load labels", "load details of a run", "load outcomes", "load refused requests", "load tenants", "members", "sweep",
	"load dead task", "list dead tasks", "count dead tasks", "group dead tasks", "load old dead tasks", "load data of tasks", "load log lines",
	"put setting", "delete setting", "list settings", "load settings", "put peer mail", "take peer mail", "name workers", "worker homes", "put audit", "list audit",
	"add report", "load report", "list reports",
	"load entity", "load mailbox", "load mailboxes", "list entities",
}

// String returns the name of the method for people.
func (m Method) String() string {
	if int(m) < methods {
		return methodNames[m]
	}
	return "unknown"
}

// Methods returns all methods of the interface store.Store that can fail.
func Methods() []Method {
	out := make([]Method, 0, methods-1)
	for m := Any + 1; int(m) < methods; m++ {
		out = append(out, m)
	}
	return out
}

// Counts has the number of calls of each method and of the faults that the plan injected into them.
type Counts struct {
	Calls  [methods]int64
	Faults [methods][kinds]int64
}

// Of returns how many faults of the kind the plan injected into calls of the method. Any means all
// methods.
func (c *Counts) Of(m Method, k Kind) int64 {
	if m != Any {
		return c.Faults[m][k]
	}
	n := int64(0)
	for i := range c.Faults {
		n += c.Faults[i][k]
	}
	return n
}

// TotalFaults returns the total number of faults.
func (c *Counts) TotalFaults() int64 {
	n := int64(0)
	for _, k := range Kinds() {
		n += c.Of(Any, k)
	}
	return n
}

// Total returns the total number of calls.
func (c *Counts) Total() int64 {
	n := int64(0)
	for _, calls := range c.Calls {
		n += calls
	}
	return n
}
