// Package api is the interface between the engine and everything that uses it. It says, as Go
// values, what a client may ask and what a worker may do. Callers in the same process use it
// directly; gRPC, REST and the console translate their requests into calls of this interface.
//
// All methods are safe for concurrent use. Errors of the engine have a fault kind, and an error of
// the code of users is a *model.Failure. When a call of Client returns nil, everything that the
// call has changed is durable. The reports of workers do not wait for a commit.
package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Backend is the engine as the SDK, gRPC, REST and the console see it.
type Backend interface {
	Client
	Mailer
	// Search finds every value in the engine's store that contains a text. It searches all tenants,
	// in one snapshot of the store. Only a program that has the store open can search it.
	Search(ctx context.Context, text string, found func(value []byte) error) error
	// Join adds a worker that runs workflows. The engine gives it work until the worker leaves the
	// session or the backend closes.
	Join(ctx context.Context, w Worker, offer Offer) (Session, error)
	// JoinTasks adds a worker that executes tasks, until it leaves the session or the backend
	// closes.
	JoinTasks(ctx context.Context, w TaskWorker, offer model.TaskOffer) (TaskSession, error)
	// JoinEntities adds a worker that has the code of entities and services. The engine gives it
	// calls until the worker leaves the session or the backend closes.
	JoinEntities(ctx context.Context, w EntityWorker, offer model.EntityOffer) (EntitySession, error)
}

// Client has the calls of ordinary code and of operators.
type Client interface {
	// Start starts an execution, or attaches to the execution of the key. It returns Conflict if
	// that execution has another input.
	Start(ctx context.Context, r StartRequest) (StartReply, error)
	// StartMany starts many executions in one call: thousands of starts cost little more than one.
	// The replies have the order of the requests. If the engine refuses the whole call, it has
	// processed no request. If the connection to a server is lost, some executions may have
	// started.
	StartMany(ctx context.Context, rs []StartRequest) ([]StartedReply, error)
	// Run calls Start, and then waits for the run that Start returns and the runs that continue it,
	// as FollowRuns does.
	Run(ctx context.Context, r StartRequest) (Result, error)
	// Signal delivers a named message to the current run of the target, exactly once per request
	// id. It returns NotFound if there is no such execution, and Conflict if the execution is
	// closed.
	Signal(ctx context.Context, r SignalRequest) error
	// Settle resolves or rejects a promise. The first call wins; a later one returns Conflict.
	Settle(ctx context.Context, r SettleRequest) error
	// Cancel asks an execution to end. It does nothing if an earlier call has already asked for
	// that, and returns Conflict if the execution is closed.
	Cancel(ctx context.Context, r CancelRequest) error
	// Terminate ends an execution immediately: its code does not run again. It returns Conflict if
	// the execution is closed.
	Terminate(ctx context.Context, r CancelRequest) error
	// Pause stops an execution until Resume. The engine keeps signals and outcomes that arrive in
	// between. Pause of a paused execution and Resume of a running one do nothing.
	Pause(ctx context.Context, r CancelRequest) error
	// Resume undoes Pause.
	Resume(ctx context.Context, r CancelRequest) error
	// Signals lists the signals that the code of an execution has not received, or shows, skips or
	// drops one of them. It returns Conflict for a signal that the code may be about to receive.
	Signals(ctx context.Context, r SignalsRequest) (model.Calls, error)
	// Update asks the code of an execution to change something and waits for the answer. Two calls
	// with the same request id are one update. An error of the code is a *model.Failure.
	Update(ctx context.Context, r UpdateRequest) (model.Payload, error)
	// Query asks the code of an execution, open or closed, for information. Query changes nothing.
	// An error of the code is a *model.Failure.
	Query(ctx context.Context, r QueryRequest) (model.Payload, error)
	// State reads a value that the code of an execution has set; ok is false if there is no value.
	State(ctx context.Context, t Target, name string) (p model.Payload, ok bool, err error)
	// Await waits until an execution ends. If the target names a run, Await waits for that run,
	// otherwise for the last run of the execution.
	Await(ctx context.Context, t Target) (Result, error)
	// Describe returns the state of an execution. It does not wait.
	Describe(ctx context.Context, t Target) (Description, error)
	// History returns a page of the events of a run. The start of the run is the first event, and
	// its end is the last one.
	History(ctx context.Context, r HistoryRequest) (HistoryPage, error)
	// List returns executions, newest first.
	List(ctx context.Context, r ListRequest) (ListPage, error)
	// Count counts executions.
	Count(ctx context.Context, r ListRequest) (int64, error)
	// Explain says, as a graph, why an execution makes no progress and what it waits for.
	Explain(ctx context.Context, r ExplainRequest) (Explanation, error)
	// Series returns what happened in a tenant in the last hour, as numbers per interval.
	Series(ctx context.Context, r SeriesRequest) (Series, error)
	// Tally counts executions and stops at a bound. It can group the executions by their
	// properties.
	Tally(ctx context.Context, r TallyRequest) (Tally, error)
	// Stranded returns open executions that cannot continue without help. Either they are blocked,
	// or no live process has what they need: their code, the version that they are pinned to, or a
	// worker for their queue. A page may be empty although more pages follow.
	Stranded(ctx context.Context, tenant, cursor string) (ListPage, error)
	// Missing says why no live process would run an execution with the type of this address. If t
	// is set, Missing says why no live process would execute that task. It returns nil if a process
	// would do so.
	Missing(ctx context.Context, a model.Address, t *model.TaskSpec) (*model.Reason, error)
	Histories
	Batches
	Entities
	DeadTasks
	TaskData
	Queues
	Flow
	Views
	ReplayReports
	Feed
}

// Target names an execution. A zero Run means the current run of the address.
type Target struct {
	Address model.Address
	Run     model.RunID
}

// StartRequest starts an execution.
type StartRequest struct {
	Address model.Address
	Input   model.Payload
	Reuse   model.ReusePolicy
	// RequestID lets a caller repeat a start with a reuse policy without starting two runs. It may
	// be empty.
	RequestID string
	// The signals in With arrive in the same commit as the start, even if the execution already
	// exists.
	With []Message
	// Labels are the labels of a new execution, sorted by name. An existing execution keeps its own
	// labels.
	Labels []model.Label
	// Task makes this execution the run of a task. The type of its address is model.TaskPrefix
	// followed by the task's kind.
	Task *model.TaskSpec
	// Terms say when the execution starts, when it must end, and how it repeats. Nil means that it
	// starts now, has no deadline and does not repeat.
	Terms *model.Terms
}

// StartedReply is the result of one of many starts.
type StartedReply struct {
	StartReply
	Err error
}

// Message is a named payload.
type Message struct {
	Name  string
	Input model.Payload
}

// StartReply names the run that has the key now.
type StartReply struct {
	Run      model.RunID
	Existing bool
	Status   model.Status
}

// SignalRequest sends a signal.
type SignalRequest struct {
	Target    Target
	Name      string
	Input     model.Payload
	RequestID string
}

// SettleRequest resolves (Failure nil) or rejects a promise.
type SettleRequest struct {
	Target    Target
	Name      string
	Value     model.Payload
	Failure   *model.Failure
	RequestID string
}

// UpdateRequest asks the code of an execution to change something.
type UpdateRequest struct {
	Target    Target
	Name      string
	Input     model.Payload
	RequestID string
}

// QueryRequest asks the code of an execution for information.
type QueryRequest struct {
	Target Target
	Name   string
	Input  model.Payload
}

// CancelRequest asks an execution to end or to pause, with the reason.
type CancelRequest struct {
	Target    Target
	Reason    string
	RequestID string
}

// SignalsRequest lists the signals that the code of an execution has not received, or names one of
// them to show, skip or drop.
type SignalsRequest struct {
	Target    Target
	Do        string // model.MailboxList or another of these constants
	ID        string // of the signal; the name for model.MailboxDropNamed; empty for a list
	Reason    string // for a skip or a drop
	RequestID string
}

// Result is how an execution ended.
type Result struct {
	Run     model.RunID
	Outcome model.Outcome
}

// Description is the state of an execution.
type Description struct {
	Shard   model.ShardID
	Start   model.Start
	Outcome model.Outcome
	Current bool
	// Reasons say why an open run waits, the main reason first. A closed run has none.
	Reasons []model.Reason
	// Chain follows the main reason, link by link, down to the cause: for example to the awaited
	// child, or to the execution that holds the lock. Only Describe fills it.
	Chain []Link
	// Alive says which code the live processes have, if code is missing. Only Describe fills it.
	Alive []string
	// Timers are the open timers of the run. Only Describe fills it.
	Timers []Timer
	// Events is the number of events so far. Only Describe fills it.
	Events int64
	// Owner is the node that owns the shard; zero if no node does. Describe fills it for open runs,
	// and so does List with ListRequest.Explain.
	Owner model.NodeID
	// Labels are the current labels, sorted by name.
	Labels []model.Label
	// Tasks are the open tasks of the run. Only Describe fills it.
	Tasks []Task
	// Version is the version that an open run is pinned to: only processes of this version continue
	// it. It is empty if the run is not pinned. Only List with ListRequest.Versions fills it.
	Version string
}

// Link is one link of a chain of reasons: an execution or an entity and what it waits for.
type Link struct {
	Subject string // workflow/key, or entity/key
	Reason  model.Reason
}

// String returns the link as a sentence for people.
func (l Link) String() string { return l.Subject + " " + l.Reason.String() }

// Timer is an open timer.
type Timer struct {
	ID  string
	Due model.Time
}

// HistoryRequest asks for the events with positions above After.
type HistoryRequest struct {
	Target Target
	After  int64 // -1 for the beginning
	Limit  int   // at most; 0 for the default
}

// HistoryPage is a page of events.
type HistoryPage struct {
	Run    model.RunID
	Events []model.Event
	More   bool
}

// ListRequest selects executions. All conditions must hold; an empty field sets no condition.
type ListRequest struct {
	Tenant    string
	Workflows []string
	Key       string
	KeyPrefix string
	Statuses  []model.Status
	// Reasons selects executions whose main reason, as far as the store knows it, is one of these.
	Reasons []model.ReasonCode
	// StartedFrom, StartedTo, ClosedFrom and ClosedTo bound half-open intervals; a zero bound sets
	// no limit. A bound on the closing time leaves out open executions.
	StartedFrom, StartedTo model.Time
	ClosedFrom, ClosedTo   model.Time
	Labels                 []model.LabelCondition

	AllRuns bool
	// Explain fills the reasons of open executions as Describe does: it asks their owners, and
	// reads histories if that is not enough. Without Explain, the list has only the reasons that
	// the store knows.
	Explain bool
	// Versions fills the versions that open runs are pinned to. The service reads them from the
	// histories, with one read of the store for each open run of the page.
	Versions bool
	Limit    int
	Cursor   string // opaque, from the previous page
}

// ListPage is one page of executions.
type ListPage struct {
	Executions []Description // Start.Input and Outcome payloads are left out
	Cursor     string        // empty on the last page
}
