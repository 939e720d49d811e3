package queue

import (
	"cmp"

	"github.com/perdure/perdure/internal/model"
)

// Item is a task that waits or is claimed.
type Item struct {
	Ref       model.TaskRef
	Lane      int // the lane that decides about the task
	Spec      *model.TaskSpec
	Attempt   int        // attempts consumed so far
	Scheduled model.Time // when it was created
	Visible   model.Time // when the next attempt may start
	Claimed   model.Time // when the current attempt started; only Hold uses it

	// Input is the input of the task, for gates that look into it. It may be nil. Note belongs to
	// the gate: the gate keeps there what it has worked out about the item.
	Input *model.Payload
	Note  any
}

// spent reports whether no attempt is left. A caller should not add such a task. The board does not
// offer it.
func (it *Item) spent() bool {
	limit := it.Spec.Retry.MaxAttempts
	return limit > 0 && it.Attempt >= limit
}

// taskKey identifies a task. Run ids are unique, so the address is not needed.
type taskKey struct {
	run model.RunID
	id  string
}

func keyOf(ref *model.TaskRef) taskKey { return taskKey{ref.Run, ref.ID} }

type state uint8

const (
	delayed state = iota + 1 // not visible yet
	waiting                  // in a line
	// TakeDue has returned a deadline of this unclaimed task; it is in no line.
	expired
	reserved // proposed by Reserve, before it was committed
	matched  // proposed by Match, while it waited
	held     // claimed
	late     // claimed, and TakeDue has returned a deadline of it
	reported // claimed, and its worker has delivered the outcome
)

// hasPermits reports whether the task has permits.
func (s state) hasPermits() bool { return s >= reserved }

// task is an Item on the board. There may be a million tasks, so a task has only 216 bytes, and no
// pointer that is not needed.
type task struct {
	Item
	site   *site
	line   *line   // while it waits
	worker *worker // the worker whose slot the task has; nil if there is no worker here
	claim  int64
	beat   model.Time // the last heartbeat; or since when the claim has no worker
	due    model.Time // the next deadline, see deadline.go

	at         int32 // place in its line, or among the delayed tasks
	deadlineAt int32
	workerAt   int32 // place in the list of its worker
	state      state
	kind       DueKind // the kind of the deadline in due
}

// before is the order within a line.
func (t *task) before(o *task) bool {
	if t.Visible != o.Visible {
		return t.Visible < o.Visible
	}
	if c := t.Ref.Run.Compare(o.Ref.Run); c != 0 {
		return c < 0
	}
	return t.Ref.ID < o.Ref.ID
}

func compareTasks(a, b *task) int {
	switch {
	case a.before(b):
		return -1
	case b.before(a):
		return 1
	}
	return 0
}

type byVisible struct{}

func (byVisible) before(a, b *task) bool { return a.before(b) }
func (byVisible) place(t *task) *int32   { return &t.at }

type byDue struct{}

func (byDue) before(a, b *task) bool {
	if a.due != b.due {
		return a.due < b.due
	}
	return a.before(b)
}
func (byDue) place(t *task) *int32 { return &t.deadlineAt }

// siteName names a queue of a tenant.
type siteName struct{ tenant, queue string }

func compareSites(a, b siteName) int {
	return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.queue, b.queue))
}

// site is a queue of a tenant. It exists while there are tasks in it, or while it is paused.
type site struct {
	name   siteName
	paused bool
	why    string
	lines  heap[*line, byHead]
	cells  []*cell
	tasks  int // all tasks of the queue

	waiting, delayed, claimed int
}

// lineName has everything that decides which worker may take a task and when the task may start,
// except for the order within the line.
type lineName struct {
	tenant, queue, kind, fair, group string
	priority                         int
}

// line holds tasks that differ only in their order. It exists while it is not empty.
type line struct {
	name   lineName
	site   *site
	group  *group
	tasks  heap[*task, byVisible]
	siteAt int32
	leaves []*leaf // one in each class that covers it
	buf    [1]*leaf
}

type byHead struct{}

func (byHead) before(a, b *line) bool { return a.tasks.top().before(b.tasks.top()) }
func (byHead) place(l *line) *int32   { return &l.siteAt }
