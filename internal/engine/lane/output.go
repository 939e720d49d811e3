package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Output is what the caller has to do, in this order. Slices are valid until the next call of Take.
type Output struct {
	// Commit is a batch to commit; the result goes to FinishCommit.
	Commit *store.Batch
	// Refence asks to move the fence; the result goes to FinishRefence.
	Refence *store.LaneRef
	// Verify has starts of the batch in flight. The caller must read the current run at the address
	// of each of them. The rows go to FinishVerify.
	Verify []store.StartRow
	// Loads are reads to make; each result goes to FinishLoad.
	Loads []Load
	// Calls go to workers, in order.
	Calls []Call
	// Operate are calls of entities for workers that have their code.
	Operate []OperateCall
	// Interrupts are for workers that have calls of entities. They come after Operate.
	Interrupts []InterruptCall
	// TaskCalls go to task workers, in order.
	TaskCalls []TaskCall
	// Answers go to callers.
	Answers []Answer
	// Mail has messages for shards of other lanes. They are in the store already, so this is only a
	// hint.
	Mail []store.MessageRow
	// Hints tells other nodes that a run that they wait for has closed, or that their request has
	// an answer.
	Hints []Hint
	// Freed are shards that the lane no longer owns.
	Freed []model.ShardID
	// Aside are rows that cannot be read. The lane has moved them out of the way, or skips them.
	Aside []Aside
	// Removed counts the runs that a round of retention has removed.
	Removed int
	// Large are runs whose history is near its limit.
	Large []Large
	// Facts are decisions that have become durable, in order, when the lane is watched.
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
	// Begun says that the execution has started. It comes with an error that tells the caller to
	// ask the next owner for the end.
	Begun bool
	// Committed says that the lane answers after the commit of a batch, so this node owned the
	// shard. Otherwise the answer is from memory.
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
	// CallTaken answers a turn that recorded no event: the lane has applied the turn, and it is
	// durable.
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
	Address    model.Address // for CallRecall
	Query      *model.Query
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
	Canceled bool // of TaskStop: the task is cancelled, and the worker may still report
	Err      error
}

// Aside says that a row cannot be read and was moved out of the way.
type Aside struct {
	// Why names the row and what is wrong with it.
	Why string
	// Newer says that the lane keeps trying the row, until a newer build owns the shard.
	Newer bool

	id model.RunID // of its row in the inbox
}

// Large is a run whose history is near its limit.
type Large struct {
	Address model.Address
	Run     model.RunID
	Bytes   int
}

// ErrNotOwner says that the lane does not serve the shard of an address: ask its owner.
var ErrNotOwner = fault.New(fault.Unavailable, "this node does not own the shard")

// ErrLater tells a worker that its report is not recorded, because the run is quarantined and the
// lane has no room for further reports. The worker still holds the claim, and must send the report
// again later.
var ErrLater = fault.New(fault.Unavailable, "the run is quarantined, and too many reports wait for it: report again later")

// ErrAskAgain says that the code of a run has not answered a query, because the run is moving from
// one worker to another. The caller asks again.
var ErrAskAgain = fault.New(fault.Unavailable, "the run is being handed over")

// ErrInterrupted says that a call that existed only in memory may or may not have run.
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
