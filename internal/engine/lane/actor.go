package lane

import (
	"container/list"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// actor is an entity or a service that the lane has in memory.
type actor struct {
	entity  *core.Entity // nil before it has been read
	durable model.Entity // its committed row, which views run on
	jobs    []*job       // hand-overs that workers have
	kept    []*core.Item // calls that exist only in memory, while the lane reads the rest again
	counted int          // bytes of the calls that exist only in memory, as the budget has them
	rest    *list.Element
	bytes   int // bytes that the actor takes while it rests
	// items that cannot be read, until the lane moves them out of the mailbox
	damaged []model.MailboxItem
	until   model.Time // when the actor leaves memory, unless a call comes first
	// The results of the first search for suspects, because the lane may read the entity again and
	// again. examined says that the lane has searched. The last owner left the calls up to the
	// position left. Of the later calls, which this lane has stored, only those with the note of an
	// earlier owner are suspects. lone is how many calls without a note the lane has chosen to run
	// alone.
	examined bool
	left     int64
	lone     int
}

// job is a hand-over of calls to a worker. The calls have no effect until the lane commits the
// result. A lost job runs again, except for calls that run at most once.
type job struct {
	gen     uint64
	worker  WorkerID
	seat    seat // the slot of the worker, until the worker reports or loses the calls
	entry   *entry
	items   []*core.Item
	version int64 // of the row that the calls run on
	result  *model.Operated
	// bytes of the result as the worker sent it, before the lane removes parts that are not allowed
	size  int
	since model.Time // when a worker got the calls
	until model.Time // when the worker reported
}

func (j *job) isView() bool { return j.items[0].View }

// answerOf returns the answer for the caller of an item.
func (j *job) answerOf(i int, it *core.Item) Answer {
	res := &j.result.Results[i]
	a := model.Answer{Output: res.Output, Failure: res.Failure.Bounded()}
	return Answer{Token: it.Tag, Answer: a, Err: core.RefusalOf(a)}
}

// isEntity reports whether the address is an entity or a service, and so has no run.
func (e *entry) isEntity() bool { return e.actor != nil }

// mustStay reports whether the entity must not leave memory.
func (a *actor) mustStay() bool {
	return a.rest != nil || len(a.jobs) > 0 || len(a.kept) > 0 || a.entity != nil && !a.entity.Idle()
}

// commit applies a committed change to the row that views run on.
func (a *actor) commit(c *core.EntityChange) {
	a.durable = c.Entity
	if c.Gone {
		a.durable = model.Entity{Address: c.Entity.Address}
	}
}

// isStored reports whether all waiting calls of the entity are in the store.
func (a *actor) isStored() bool {
	if a.rest != nil || len(a.jobs) > 0 || len(a.kept) > 0 {
		return false
	}
	for _, it := range a.entity.Mail() {
		// A brief call runs at most once. A lane that reads a brief call from the store must assume
		// that the call has run already.
		if it.Seq == 0 || it.HasBegun() || it.Message.Brief {
			return false
		}
	}
	return true
}
