package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Output is what the user of the lane has to do, in this order. Slices are valid until the next
// call of Take.
type Output struct {
	// Commit is a batch to commit; the result goes to FinishCommit.
	Commit *store.Batch
	// Refence asks to move the fence; the result goes to FinishRefence.
	Refence *store.LaneRef
	// Verify has starts of the batch in flight. For each start, the user of the lane must read the
	// current run of the address. The rows go to FinishVerify.
	Verify []store.StartRow
	// Loads are reads to make; each result goes to FinishLoad.
	Loads []Load
	// Calls go to workers, in order.
	Calls []Call
	// Operate hands calls of entities to workers.
	Operate []OperateCall
	// Interrupts tell workers to interrupt calls of entities. The calls may be in Operate, so
	// Interrupts come after Operate.
	Interrupts []InterruptCall
	// TaskCalls go to task workers, in order.
	TaskCalls []TaskCall
	// Answers go to callers.
	Answers []Answer
	// Mail has messages for shards of other lanes. The messages are already in the store, so Mail
	// is only a hint.
	Mail []store.MessageRow
	// Hints tell other nodes that a run that they wait for has closed, or that their request has an
	// answer.
	Hints []Hint
	// Freed are shards that the lane no longer owns.
	Freed []model.ShardID
	// Aside are rows that the lane cannot use. It has moved them out of the way, or skips them.
	Aside []Aside
	// Removed counts the runs that a round of retention has removed.
	Removed int
	// Large are runs whose history is near its limit.
	Large []Large
	// Facts are for metrics and traces, in order. They are empty unless Config.Watched is set. A
	// fact about stored rows comes after the commit of these rows.
	Facts []Fact
	// Changes are the changes of commits, for callers that watch. Changes of one address are in
	// order. See Config.WantsChanges.
	Changes []model.Change
	// Dead is set once the lane has ended, for example because it was fenced: everything in its
	// memory is invalid.
	Dead error
}

// answer adds an answer to a caller, if there is one.
func (o *Output) answer(a Answer) {
	if a.Token != nil {
		o.Answers = append(o.Answers, a)
	}
}

// Answer goes to the caller that handed in the token.
type Answer struct {
	Token any
	// Answer is the answer to a message, Result the answer to an Await.
	Answer model.Answer
	Result *Result
	// Begun says that the start of the caller has begun a run, although Err is set. The Answer
	// names the run, and the caller must ask the current owner for the end of the run.
	Begun bool
	// Committed says that the lane answers after the commit of a batch, so this node still owned
	// the shard at the commit. Otherwise the lane answers from memory.
	Committed bool
	Err       error
}

// Result is how an execution ended.
type Result struct {
	Run     model.RunID
	Outcome model.Outcome
}

// Hint tells a node that a run that it waits for has closed, or that its request has an answer.
type Hint struct {
	Node    model.NodeID
	Address model.Address
	Run     model.RunID
}

// CallKind says which method of a worker to call.
type CallKind uint8

// Kinds of calls.
const (
	CallActivate CallKind = iota + 1
	CallDeliver
	CallRetry
	CallEvict
	CallQuery
	CallRecall
	// CallPreview brings events that are not committed yet, and CallConfirm says later that they
	// are; see preview.go. Only workers whose offer has Previews get these calls.
	CallPreview
	CallConfirm
	// CallTaken answers a turn that recorded no event. It says that the lane has applied the turn,
	// and that the effects of the turn are durable.
	CallTaken
)

// Call is a call to a worker.
type Call struct {
	Kind       CallKind
	Worker     WorkerID
	Run        model.RunID
	Generation uint64
	Activation *model.Activation
	Events     []model.Event
	ID         string        // of the step, for CallRetry
	Reason     string        // for CallEvict
	Moves      bool          // for CallEvict: the run continues under another owner
	Runs       bool          // for CallEvict: the worker may run a step of the run
	Given      model.Time    // for CallEvict with Runs: when the worker got the run
	Address    model.Address // for CallRecall, and for CallEvict with Runs
	Query      *model.Query
	Durable    int64 // for CallConfirm: all events up to this position are durable
}

// TaskCallKind says which method of a task worker to call.
type TaskCallKind uint8

// Kinds of calls to task workers.
const (
	TaskExecute TaskCallKind = iota + 1
	TaskStop
	TaskSettled
)

// TaskCall is a call to a task worker.
type TaskCall struct {
	Kind     TaskCallKind
	Worker   queue.WorkerID
	Ref      model.ClaimRef
	Claim    *model.Claim
	Canceled bool // for TaskStop: the task is cancelled, and the worker may still report
	Err      error
}

// Aside is a row that cannot be read, or that names an address of another shard. The lane has moved
// the row out of the way, or skips it.
type Aside struct {
	// Why names the row and what is wrong with it.
	Why string
	// Newer says that a newer build wrote the row. The lane tries the row again and again, so that
	// it takes effect when a node that can read it owns the shard.
	Newer bool

	id model.RunID // the id of the row in the inbox; zero for a row that the lane skips
}

// Large is a run whose history is near its limit.
type Large struct {
	Address model.Address
	Run     model.RunID
	Bytes   int
}

// ErrNotOwner says that the lane does not serve the shard of an address. The caller must ask the
// owner of the shard.
var ErrNotOwner = fault.New(fault.Unavailable, "this node does not own the shard")

// ErrLater tells a worker that its report is not recorded, because the run is quarantined and the
// lane has no room for further reports. The worker still holds the claim, and must send the report
// again later.
var ErrLater = fault.New(fault.Unavailable, "the run is quarantined, and too many reports wait for it: report again later")

// ErrAskAgain says that the code of a run has not answered a query, because the run is moving from
// one worker to another. The caller asks again.
var ErrAskAgain = fault.New(fault.Unavailable, "the run is being handed over")

// ErrInterrupted says that a call may or may not have run. The call existed only in memory.
var ErrInterrupted = fault.New(fault.Unavailable, core.Interrupted)

func clearCalls(c []Call) []Call { clear(c); return c[:0] }

func clearTaskCalls(c []TaskCall) []TaskCall {
	clear(c)
	return c[:0]
}

func clearOperate(c []OperateCall) []OperateCall {
	clear(c)
	return c[:0]
}

func clearFacts(f []Fact) []Fact { clear(f); return f[:0] }

func clearChanges(c []model.Change) []model.Change {
	clear(c)
	return c[:0]
}

func clearAnswers(a []Answer) []Answer { clear(a); return a[:0] }

// OperateCall hands calls of an entity to a worker.
type OperateCall struct {
	Worker     WorkerID
	Operations model.Operations
}
