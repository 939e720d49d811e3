package store

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Batch is everything that a lane makes durable in one commit. Each list has at most one write for
// each row, because the lane merges writes to the same row.
//
// Adapters write in the order of the fields; only Deletes, Removes and EntityRemoves may be written
// in any order. A guarded write applies only if the stored rows are in the expected state, which
// its field describes. If one write fails, the adapter refuses the whole batch.
type Batch struct {
	// Lane and Number identify the batch. The fence must be at Number-1 under the epoch of the
	// lane. The commit moves the fence to Number.
	Lane   LaneRef
	Number int64
	// At is the time, by the owner's clock, at which the owner sealed the batch. The answers in
	// Requests have the same time.
	At model.Time
	// Bytes is the approximate size of the rows. Patience is how many times the time limit of the
	// commit is doubled. It grows when commits of the lane time out. See Within.
	Bytes, Patience int

	// Deletes removes closed runs. It is guarded: none of these runs may be open. Runs that do not
	// exist are skipped. The commit deletes the rows of the runs. Later sweeps delete their events,
	// and the data and log lines of their tasks. Dead tasks stay.
	Deletes []RunKey
	// Removes removes runs in any state, without reading their bodies. Runs that do not exist are
	// skipped. The commit deletes the rows and timers of the runs. Later sweeps delete the events
	// and the data of tasks, as for Deletes.
	Removes []RunKey
	// EntityRemoves removes the rows and mailboxes of entities, without reading their bodies.
	// Entities that do not exist are skipped.
	EntityRemoves []EntityKey
	// Starts inserts runs. If a start has IfAbsent and its address has a current run, the store
	// skips the start and reports it in Committed.Existing. If a start has neither IfAbsent nor
	// Replaces and its address has a current run, the store refuses the whole batch.
	Starts []StartRow
	// Closes ends runs. It is guarded: each run must be open.
	Closes []CloseRow
	// Marks changes whether runs are parked or blocked, which is stored outside their history. It
	// is guarded: each run must be open.
	Marks []MarkRow
	// Labels changes the labels by which runs are found. It is guarded if it sets a label: the run
	// must exist. Labels does not contain the labels that a run starts with. They are part of the
	// row in Starts.
	Labels []LabelRow
	// Events are appended to histories. If a position is already taken, the store refuses the
	// batch.
	Events []EventRow
	// Dead inserts dead tasks, in the same commit as the failure that they describe. If a dead task
	// already exists, the store refuses the batch.
	Dead []DeadRow
	// DeadMarks replaces the bodies of dead tasks and changes their count of requeues from Prev to
	// Next. It is guarded by Prev: if two operators requeue the same dead task, only the first
	// succeeds. The columns by which a dead task is found must not change.
	DeadMarks []DeadMark
	// DeadDeletes removes dead tasks. It is guarded: each must exist.
	DeadDeletes []DeadKey
	// TaskData sets or removes the last values that tasks have reported.
	TaskData []TaskDatum
	// Logs are log lines of tasks, which the store appends. Their positions are unique in the
	// batch.
	Logs []LogRow
	// The store first deletes StopTimers (guarded: each must exist). Then it inserts Timers; if a
	// timer already exists, the store refuses the batch. Then it deletes every timer of the runs in
	// StopAll, if there are any.
	StopTimers []TimerKey
	Timers     []Timer
	StopAll    []RunKey
	// The store first removes the items of mailboxes in Taken (guarded: each must exist). Then it
	// inserts the items in Mailbox. If a position is already taken, the store refuses the batch.
	Taken   []MailboxKey
	Mailbox []MailboxRow
	// Entities inserts, changes or removes rows of entities. It is guarded by their versions. An
	// insert is refused if the row already exists.
	Entities []EntityRow
	// Messages are inserted. If a position is already taken, the store refuses the batch.
	Messages []MessageRow
	// Passed are messages that take effect in this same commit, in order, because both the sender
	// and the receiver belong to this lane. The rows of the batch contain the effects of these
	// messages, so stores do not write the messages.
	Passed []PassedMessage
	// Cursors advances cursors from Prev to Next. A cursor says up to which position a shard has
	// consumed the messages of another shard. Each advance is guarded by Prev. The first advance,
	// with Prev 0, inserts the cursor.
	Cursors []CursorRow
	// Inbox deletes requests that the owner has served. It is guarded: each must exist.
	Inbox []InboxKey
	// Deferred postpones requests and messages that cannot be served now. It inserts inbox rows, or
	// changes the NotBefore of existing ones.
	Deferred []InboxRow
	// Requests remembers answers by request id. If an id is already remembered, the store refuses
	// the batch. There is one exception: the refusal of an inbox row (its id begins with
	// model.RefusedIDs). A sender may put the same row again after its refusal. In that case the
	// stored answer stays.
	Requests []Reply
	// Forgets removes remembered answers that their callers have received and cannot ask for again.
	// An answer that is already gone is skipped. Forgets may name shards of other owners.
	Forgets []RequestKey
	// Tokens raises the token marks of shards. It is guarded: each shard must exist. If the stored
	// mark is higher, it stays.
	Tokens []TokenMark
	// Free releases shards. It is guarded: the node must own them.
	Free []model.ShardID
}

// TokenMark is an upper bound for the fencing tokens that the owner of a shard gives out. The owner
// raises the mark before it gives out higher tokens. So the next owner starts above all tokens that
// were given out, even if its clock is behind.
type TokenMark struct {
	Shard model.ShardID
	Mark  int64
}

// StartRow inserts a run.
type StartRow struct {
	Shard model.ShardID
	Start model.Start
	// IfAbsent says that the run is inserted only if the address has no current run.
	IfAbsent bool
	// Replaces is the run of the same address that stops being current in this batch. That run must
	// be current. If it is still open, this batch must close it too. Zero means none.
	Replaces model.RunID
}

// CloseRow ends a run.
type CloseRow struct {
	RunKey
	Outcome model.Outcome
}

// MarkRow changes the part of the state of an open run that is not in its history: whether the run
// is parked, what it waits for, and why it is blocked.
type MarkRow struct {
	RunKey
	Parked  bool
	Waits   []model.Reason
	Blocked *model.Reason
}

// LabelRow sets a label of a run. An empty value removes the label, and has no effect if the run
// does not have the label.
type LabelRow struct {
	RunKey
	Label model.Label
}

// EventRow appends an event.
type EventRow struct {
	RunKey
	Event model.Event
}

// TimerKey names a timer to delete.
type TimerKey struct {
	RunKey
	ID string
}

// CursorRow advances the cursor of a pair of shards.
type CursorRow struct {
	To, From   model.ShardID
	Prev, Next int64
}

// InboxKey names a served request.
type InboxKey struct {
	Shard model.ShardID
	ID    model.RunID
}

// Committed is the result of a commit.
type Committed struct {
	// Existing lists the starts that were not inserted because their address has a current run.
	// Each entry also has that run.
	Existing []ExistingStart
}

// ExistingStart is a start that was not inserted because its address has a current run. Execution
// is that run. If the run cannot be read, Execution is the placeholder that [Unread] returns.
type ExistingStart struct {
	Index     int // index in Batch.Starts
	Execution Execution
}

// Empty reports whether the batch writes only its fence.
func (b *Batch) Empty() bool {
	return len(b.Deletes) == 0 && len(b.Removes) == 0 && len(b.EntityRemoves) == 0 && len(b.Starts) == 0 && len(b.Closes) == 0 && len(b.Marks) == 0 && len(b.Labels) == 0 && len(b.Events) == 0 &&
		len(b.Dead) == 0 && len(b.DeadMarks) == 0 && len(b.DeadDeletes) == 0 && len(b.TaskData) == 0 && len(b.Logs) == 0 &&
		len(b.Timers) == 0 && len(b.StopTimers) == 0 && len(b.StopAll) == 0 && len(b.Taken) == 0 && len(b.Mailbox) == 0 && len(b.Entities) == 0 &&
		len(b.Messages) == 0 &&
		len(b.Cursors) == 0 && len(b.Inbox) == 0 && len(b.Deferred) == 0 && len(b.Requests) == 0 && len(b.Forgets) == 0 && len(b.Tokens) == 0 && len(b.Free) == 0
}

// slowestPath is the lowest throughput in bytes per second that Within assumes. On a slower path,
// the caller raises Patience.
const slowestPath = 256 << 10

// Within returns the time limit of the commit. base is the time limit of a commit without rows, and
// every byte of the batch adds to the limit.
func (b *Batch) Within(base time.Duration) time.Duration {
	return (base + time.Duration(b.Bytes)*time.Second/slowestPath) << b.Patience
}

// Rows returns the number of entries in all lists of the batch, except Passed. Each entry is a
// write. Some writes change several rows: a run in StopAll can have many timers.
func (b *Batch) Rows() int {
	return len(b.Deletes) + len(b.Removes) + len(b.EntityRemoves) + len(b.Starts) + len(b.Closes) + len(b.Marks) + len(b.Labels) + len(b.Events) +
		len(b.Dead) + len(b.DeadMarks) + len(b.DeadDeletes) + len(b.TaskData) + len(b.Logs) + len(b.Timers) + len(b.StopTimers) +
		len(b.StopAll) + len(b.Taken) + len(b.Mailbox) + len(b.Entities) + len(b.Messages) + len(b.Cursors) + len(b.Inbox) + len(b.Deferred) + len(b.Requests) + len(b.Forgets) + len(b.Tokens) + len(b.Free)
}

// PassedMessage is a message that takes effect in the commit that sends it. It has no position
// among the messages between its two shards.
type PassedMessage struct {
	From    model.ShardID
	Message *model.Message
	// Behind is how many of Batch.Messages were sent before this message.
	Behind int
}

// Clone returns a copy with its own slices, for a caller that keeps a batch longer than a call. The
// copy shares the values that the rows point to.
func (b *Batch) Clone() *Batch {
	c := *b
	c.Deletes, c.Starts, c.Closes, c.Marks = slices.Clone(b.Deletes), slices.Clone(b.Starts), slices.Clone(b.Closes), slices.Clone(b.Marks)
	c.Removes, c.EntityRemoves = slices.Clone(b.Removes), slices.Clone(b.EntityRemoves)
	c.Labels, c.Events = slices.Clone(b.Labels), slices.Clone(b.Events)
	c.Dead, c.DeadMarks, c.DeadDeletes = slices.Clone(b.Dead), slices.Clone(b.DeadMarks), slices.Clone(b.DeadDeletes)
	c.TaskData, c.Logs = slices.Clone(b.TaskData), slices.Clone(b.Logs)
	c.StopTimers, c.Timers, c.StopAll = slices.Clone(b.StopTimers), slices.Clone(b.Timers), slices.Clone(b.StopAll)
	c.Taken, c.Mailbox, c.Entities = slices.Clone(b.Taken), slices.Clone(b.Mailbox), slices.Clone(b.Entities)
	c.Messages, c.Cursors, c.Inbox = slices.Clone(b.Messages), slices.Clone(b.Cursors), slices.Clone(b.Inbox)
	c.Deferred, c.Requests, c.Forgets = slices.Clone(b.Deferred), slices.Clone(b.Requests), slices.Clone(b.Forgets)
	c.Tokens, c.Free, c.Passed = slices.Clone(b.Tokens), slices.Clone(b.Free), slices.Clone(b.Passed)
	return &c
}
