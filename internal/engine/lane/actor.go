package lane

import (
	"container/list"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// actor is an entity or a service that the lane has in memory.
type actor struct {
	entity  *core.Entity // nil before it has been read
	durable model.Entity // what is committed of it: views are made on that
	jobs    []*job       // that workers have
	kept    []*core.Item // calls that are only in memory, while the rest is read again
	counted int          // bytes of all that waits, as the lane has counted them
	rest    *list.Element
	bytes   int // that it takes while it rests
	// items that cannot be read, until they are moved out of the mailbox
	damaged []model.MailboxItem
	until   model.Time // when it leaves memory, if there is no call before
}

// job is a hand-over of calls to a worker. None of its effects exist before they are committed. A
// lost job is made again, except for calls that are made at most once.
type job struct {
	gen     uint64
	worker  WorkerID
	entry   *entry
	items   []*core.Item
	version int64 // of the row that they are made on
	result  *model.Operated
	size    int        // of the result as it came: what it may not have done is taken out of it
	since   model.Time // when a worker got it
	until   model.Time // when it had reported
}

func (j *job) views() bool { return j.items[0].View }

// answerOf is what the caller of an item hears.
func (j *job) answerOf(i int, it *core.Item) Answer {
	res := &j.result.Results[i]
	a := model.Answer{Output: res.Output, Failure: res.Failure.Bounded()}
	return Answer{Token: it.Tag, Answer: a, Err: core.RefusalOf(a)}
}

// isEntity reports whether the address is that of an entity or of a service: no run has it.
func (e *entry) isEntity() bool { return e.actor != nil }

// mustStay reports whether the entity must not leave memory.
func (a *actor) mustStay() bool {
	return a.rest != nil || len(a.jobs) > 0 || len(a.kept) > 0 || a.entity != nil && !a.entity.Idle()
}

// commit makes a change of the row what views are made on.
func (a *actor) commit(c *core.EntityChange) {
	a.durable = c.Entity
	if c.Gone {
		a.durable = model.Entity{Address: c.Entity.Address}
	}
}

// isStored reports whether everything that waits for the entity is in the store.
func (a *actor) isStored() bool {
	if a.rest != nil || len(a.jobs) > 0 || len(a.kept) > 0 {
		return false
	}
	for _, it := range a.entity.Mail() {
		// A reader of a brief call must assume that it may have been made.
		if it.Seq == 0 || it.Begun() || it.Message.Brief {
			return false
		}
	}
	return true
}
