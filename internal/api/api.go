// Package api is the one interface that every door and the SDK speak: what a client may ask and what a worker may do,
// as Go values. In-process callers use it directly; gRPC, REST and the console are thin translations of it.
//
// All methods are safe for concurrent use. Errors carry a fault kind. A call that returns nil has been made durable.
package api

import (
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Backend is the engine as seen from outside.
type Backend interface {
	Client
	// Join adds a worker. Work flows to it until the session is left or the backend closes.
	Join(ctx context.Context, w Worker, offer Offer) (Session, error)
	// JoinTasks adds a worker that executes tasks. They flow to it until the session is left or the backend closes.
	JoinTasks(ctx context.Context, w TaskWorker, offer model.TaskOffer) (TaskSession, error)
	// JoinEntities adds a worker that has the code of entities and services. Calls flow to it until the session is left or the backend closes.
	JoinEntities(ctx context.Context, w EntityWorker, offer model.EntityOffer) (EntitySession, error)
}

// Client is what ordinary code and operators may ask.
type Client interface {
	// Start begins an execution, or attaches to the one that has the key. The same key with another input is a Conflict.
	Start(ctx context.Context, r StartRequest) (StartReply, error)
	// StartMany is Start of many at once: thousands cost little more than one. The replies are in the order of the requests; the error tells that none was looked at.
	StartMany(ctx context.Context, rs []StartRequest) ([]StartedReply, error)
	// Run is Start, and then Await of the execution that has the key.
	Run(ctx context.Context, r StartRequest) (Result, error)
	// Signal delivers a named message to the current run of the target, exactly once per request id. NotFound when there is no such
	// execution, Conflict when it is closed.
	Signal(ctx context.Context, r SignalRequest) error
	// Settle resolves or rejects a promise; the first one wins, later ones are a Conflict.
	Settle(ctx context.Context, r SettleRequest) error
	// Cancel asks an execution to end. It is a no-op when the execution is being cancelled already, and a Conflict when it is closed.
	Cancel(ctx context.Context, r CancelRequest) error
	// Terminate ends an execution whatever its code says: nothing of it runs any more. A Conflict when it is closed.
	Terminate(ctx context.Context, r CancelRequest) error
	// Pause has nobody continue an execution until Resume; what comes in meanwhile is kept. Both are no-ops when it is so already.
	Pause(ctx context.Context, r CancelRequest) error
	// Resume undoes Pause.
	Resume(ctx context.Context, r CancelRequest) error
	// Signals asks for the signals that the code of an execution has not taken, or has one shown, skipped or dropped. A signal that the
	// code may be about to take is a Conflict.
	Signals(ctx context.Context, r SignalsRequest) (model.Calls, error)
	// Update asks the code of an execution to change something and waits for its answer. The same request id is the same update.
	// An error of the code is a *model.Failure.
	Update(ctx context.Context, r UpdateRequest) (model.Payload, error)
	// Query asks the code of an execution, also of one that has ended; it changes nothing. An error of the code is a *model.Failure.
	Query(ctx context.Context, r QueryRequest) (model.Payload, error)
	// State reads what the code of an execution has set; ok is false when there is nothing.
	State(ctx context.Context, t Target, name string) (p model.Payload, ok bool, err error)
	// Await waits for the end of an execution, through all runs of its chain unless the target names a run.
	Await(ctx context.Context, t Target) (Result, error)
	// Describe tells how an execution stands; it does not wait.
	Describe(ctx context.Context, t Target) (Description, error)
	// History returns a page of the events of a run, the virtual first and last one included.
	History(ctx context.Context, r HistoryRequest) (HistoryPage, error)
	// List returns executions, newest first.
	List(ctx context.Context, r ListRequest) (ListPage, error)
	// Count counts executions.
	Count(ctx context.Context, r ListRequest) (int64, error)
	// Stranded returns open executions that go on only when somebody changes something: no live process has their
	// code, the version that they are pinned to, or a worker for their queue, or they are blocked. A page may be
	// empty and not the last.
	Stranded(ctx context.Context, tenant, cursor string) (ListPage, error)
	// Missing is why no live process would run an execution of the type of an address, or the task; nil when one would.
	Missing(ctx context.Context, a model.Address, t *model.TaskSpec) (*model.Reason, error)
	Histories
	Entities
	DeadTasks
	TaskData
	Queues
	Flow
}

// Target names an execution: the current run of the address, or the one run when Run is set.
type Target struct {
	Address model.Address
	Run     model.RunID
}

// StartRequest begins an execution.
type StartRequest struct {
	Address model.Address
	Input   model.Payload
	Reuse   model.ReusePolicy
	// RequestID makes a repeated start with a reuse policy harmless; may be empty.
	RequestID string
	// With are signals delivered in the same commit, whether the execution is new or not.
	With []Message
	// Labels of an execution that is started by this, sorted by name; one that is there keeps its own.
	Labels []model.Label
	// Task makes it the run of a task, whose address is that of model.TaskPrefix and its kind.
	Task *model.TaskSpec
	// Terms say when it begins, when it must have ended and how it is repeated; nil for nothing special.
	Terms *model.Terms
}

// StartedReply is what became of one of many starts.
type StartedReply struct {
	StartReply
	Err error
}

// Message is a named payload.
type Message struct {
	Name  string
	Input model.Payload
}

// StartReply tells which run has the key now.
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

// UpdateRequest asks for a change.
type UpdateRequest struct {
	Target    Target
	Name      string
	Input     model.Payload
	RequestID string
}

// QueryRequest asks for information.
type QueryRequest struct {
	Target Target
	Name   string
	Input  model.Payload
}

// CancelRequest asks an execution to end, or to pause, and says why.
type CancelRequest struct {
	Target    Target
	Reason    string
	RequestID string
}

// SignalsRequest is what an operator asks about the signals that the code of an execution has not taken.
type SignalsRequest struct {
	Target    Target
	Do        string // model.MailboxList and the others
	ID        string // of the signal, unless it is a list
	Reason    string // of a skip or a drop
	RequestID string
}

// Result is how an execution ended.
type Result struct {
	Run     model.RunID
	Outcome model.Outcome
}

// Description is how an execution stands.
type Description struct {
	Shard   model.ShardID
	Start   model.Start
	Outcome model.Outcome
	Current bool
	// Reasons say why an open run does not move, the main one first; empty when it is closed.
	Reasons []model.Reason
	// Chain is what the main reason leads to, one link after the other, down to the cause: the child that a run
	// waits for, the execution that holds its lock. Only Describe follows it.
	Chain []Link
	// Alive says which code the live processes have, when it is code that is missing. Only Describe tells.
	Alive []string
	// Timers are the open timers of the run.
	Timers []Timer
	// Events is the number of events so far.
	Events int64
	// Owner is the node that owns the shard; zero when nobody does.
	Owner model.NodeID
	// Labels are what it can be found by now, sorted by name.
	Labels []model.Label
	// Tasks are the open tasks of the run.
	Tasks []Task
}

// Link is what an execution or an entity waits for that another one waits for.
type Link struct {
	Subject string // workflow/key, or entity/key
	Reason  model.Reason
}

// String is the sentence that people read.
func (l Link) String() string { return l.Subject + " " + l.Reason.String() }

// Timer is an open timer.
type Timer struct {
	ID  string
	Due model.Time
}

// HistoryRequest asks for events above After.
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

// ListRequest selects executions: all conditions must hold, those that are empty always do.
type ListRequest struct {
	Tenant    string
	Workflows []string
	Key       string
	KeyPrefix string
	Statuses  []model.Status
	// Reasons selects those whose main reason, as far as the store knows, is any of these.
	Reasons []model.ReasonCode
	// Half-open intervals; zero bounds are open. A bound of Closed leaves out what is open.
	StartedFrom, StartedTo model.Time
	ClosedFrom, ClosedTo   model.Time
	Labels                 []model.LabelCondition

	AllRuns bool
	// Explain has open executions say why they wait, as Describe does: owners are asked, and histories are read where
	// that does not tell. Else their reasons are what the store knows.
	Explain bool
	Limit   int
	Cursor  string // opaque, of the page before
}

// ListPage is one page of executions.
type ListPage struct {
	Executions []Description // Start.Input and Outcome payloads are left out
	Cursor     string        // empty on the last page
}
