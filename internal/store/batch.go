package store

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Batch is everything that one lane makes durable at once. There is at most one write per row of a
// table: the lane coalesces.
//
// Adapters write in the order of the fields, check every guarded write, and refuse the batch as a
// whole.
type Batch struct {
	// Lane and Number: the fence must stand at Number-1 under the lane's epoch, and stands at
	// Number afterwards.
	Lane   LaneRef
	Number int64
	// At is the owner's clock when the batch was sealed, for rows that record when they were
	// written.
	At model.Time
	// Bytes is roughly how many bytes the rows have, and Patience is how often the time limit of
	// the commit is doubled because earlier attempts ran out of time. See Within.
	Bytes, Patience int

	// Deletes removes closed runs (guarded: none of them may be open; those that do not exist are
	// passed over). Their rows go at once, their events, the data and log lines of their tasks with
	// the next sweeps. Dead letters stay.
	Deletes []RunKey
	// Removes takes runs away whatever state they are in, without a look at their bodies (those
	// that do not exist are passed over). Their rows and timers go at once, the rest as that of
	// deleted runs.
	Removes []RunKey
	// EntityRemoves takes the rows of entities away with everything that waits for them, without a
	// look at their bodies (those that do not exist are passed over).
	EntityRemoves []EntityKey
	// Starts inserts runs. A start whose address has a current run already is not inserted when
	// IfAbsent is set, and is reported in Committed.Existing; otherwise that refuses the batch.
	Starts []StartRow
	// Closes ends open runs (guarded: the run must be open).
	Closes []CloseRow
	// Marks changes what is stored about open runs outside of their history: parked, blocked
	// (guarded: the run must be open).
	Marks []MarkRow
	// Labels change what runs can be found by (guarded where one is set: the run must exist). The
	// labels that a run is started with are not here: they are part of its start, and are stored
	// with it.
	Labels []LabelRow
	// Events are appended (a position that is taken refuses the batch).
	Events []EventRow
	// Dead inserts dead letters, in the commit of the failure that they are about (a task that has
	// one refuses the batch).
	Dead []DeadRow
	// DeadMarks changes how often dead letters were requeued from Prev to Next, and their bodies
	// (guarded, so that of two people who requeue one only the first succeeds; what a dead letter
	// is found by must stay as it is).
	DeadMarks []DeadMark
	// DeadDeletes removes dead letters (guarded: each must exist).
	DeadDeletes []DeadKey
	// TaskData sets or removes the last values that tasks have reported.
	TaskData []TaskDatum
	// Logs are appended. Positions are unique in the batch.
	Logs []LogRow
	// StopTimers are deleted (guarded: each must exist), then Timers are inserted (a timer that
	// exists refuses the batch), then StopAll deletes every timer of a run (however many there
	// are).
	StopTimers []TimerKey
	Timers     []Timer
	StopAll    []RunKey
	// Taken removes items of mailboxes (guarded: each must exist), then Mailbox inserts items (a
	// taken position refuses the batch).
	Taken   []MailboxKey
	Mailbox []MailboxRow
	// Entities insert, change or remove rows of entities (guarded by their versions; a row that
	// exists refuses an insert).
	Entities []EntityRow
	// Messages are inserted (a taken position refuses the batch).
	Messages []MessageRow
	// Cursors advance from Prev to Next (guarded; a first advance, Prev 0, inserts).
	Cursors []CursorRow
	// Inbox rows are deleted (guarded: each must exist).
	Inbox []InboxKey
	// Deferred puts requests and messages off that cannot be served now: inserts inbox rows, or
	// moves the NotBefore of existing ones.
	Deferred []InboxRow
	// Requests remembers answers by request id (a remembered id refuses the batch). The refusal of
	// an inbox row (model.RefusedIDs) is the exception: the one that is there stays, because the
	// same row may be put again after it was refused.
	Requests []Reply
	// Forgets removes remembered answers whose callers have them and cannot ask again. One that is
	// not there is removed already. It may name shards of other owners.
	Forgets []RequestKey
	// Tokens raise the marks of shards (guarded: each must exist; a mark that is higher stays).
	Tokens []TokenMark
	// Free gives shards back; the node must own them (guarded).
	Free []model.ShardID
}

// TokenMark bounds the fencing tokens that the owner of a shard may give out. It is raised before
// they are, so that the next owner begins above all of them, whatever its clock says.
type TokenMark struct {
	Shard model.ShardID
	Mark  int64
}

// StartRow inserts a run.
type StartRow struct {
	Shard model.ShardID
	Start model.Start
	// IfAbsent makes the insert conditional on the address having no current run.
	IfAbsent bool
	// Replaces is the run of the same address that stops being current in this batch; it must be
	// current, and its own close, if it is still open, must be in this batch too. Zero when there
	// is none.
	Replaces model.RunID
}

// CloseRow ends a run.
type CloseRow struct {
	RunKey
	Outcome model.Outcome
}

// MarkRow stores what is known about an open run outside of its history.
type MarkRow struct {
	RunKey
	Parked  bool
	Waits   []model.Reason
	Blocked *model.Reason
}

// LabelRow sets a label of a run, or removes it when the value is empty (however often: one that is
// not there is removed already).
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

// InboxKey names a consumed request.
type InboxKey struct {
	Shard model.ShardID
	ID    model.RunID
}

// Committed is the result of a commit.
type Committed struct {
	// Existing lists the starts that were not inserted because their address has a current run,
	// with that run.
	Existing []ExistingStart
}

// ExistingStart is a start that found its address taken, by a run that may be [Unread].
type ExistingStart struct {
	Index     int // in Batch.Starts
	Execution Execution
}

// Empty reports whether the batch writes nothing but its fence.
func (b *Batch) Empty() bool {
	return len(b.Deletes) == 0 && len(b.Removes) == 0 && len(b.EntityRemoves) == 0 && len(b.Starts) == 0 && len(b.Closes) == 0 && len(b.Marks) == 0 && len(b.Labels) == 0 && len(b.Events) == 0 &&
		len(b.Dead) == 0 && len(b.DeadMarks) == 0 && len(b.DeadDeletes) == 0 && len(b.TaskData) == 0 && len(b.Logs) == 0 &&
		len(b.Timers) == 0 && len(b.StopTimers) == 0 && len(b.StopAll) == 0 && len(b.Taken) == 0 && len(b.Mailbox) == 0 && len(b.Entities) == 0 &&
		len(b.Messages) == 0 &&
		len(b.Cursors) == 0 && len(b.Inbox) == 0 && len(b.Deferred) == 0 && len(b.Requests) == 0 && len(b.Forgets) == 0 && len(b.Tokens) == 0 && len(b.Free) == 0
}

// slowestPath is how many bytes per second a commit may count on to move. A path that moves fewer
// needs Patience.
const slowestPath = 256 << 10

// Within is the time limit of the commit where a commit without rows has the limit base: every byte
// adds to it.
func (b *Batch) Within(base time.Duration) time.Duration {
	return (base + time.Duration(b.Bytes)*time.Second/slowestPath) << b.Patience
}

// Rows is the number of rows that the batch writes, without its fence.
func (b *Batch) Rows() int {
	return len(b.Deletes) + len(b.Removes) + len(b.EntityRemoves) + len(b.Starts) + len(b.Closes) + len(b.Marks) + len(b.Labels) + len(b.Events) +
		len(b.Dead) + len(b.DeadMarks) + len(b.DeadDeletes) + len(b.TaskData) + len(b.Logs) + len(b.Timers) + len(b.StopTimers) +
		len(b.StopAll) + len(b.Taken) + len(b.Mailbox) + len(b.Entities) + len(b.Messages) + len(b.Cursors) + len(b.Inbox) + len(b.Deferred) + len(b.Requests) + len(b.Forgets) + len(b.Tokens) + len(b.Free)
}

// Clone is a copy with slices of its own, for whoever keeps a batch longer than a call. What its
// rows point to is shared.
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
	c.Tokens, c.Free = slices.Clone(b.Tokens), slices.Clone(b.Free)
	return &c
}
