package queue

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// maxPosition bounds how far Explain counts the tasks before a task.
const maxPosition = 1000

// Explain returns why a task does not move, or that it is being executed.
func (b *Board) Explain(ref model.TaskRef) (model.Reason, bool) {
	t := b.tasks[keyOf(&ref)]
	if t == nil {
		return model.Reason{}, false
	}

	switch t.state {
	case delayed:
		if t.Attempt > 0 {
			return model.Reason{Code: model.WaitRetry, Name: t.Spec.Kind, Attempt: t.Attempt + 1, Until: t.Visible}, true
		}
		return model.Reason{Code: model.WaitTimer, Until: t.Visible}, true
	case waiting:
		return b.explainWaiting(t), true
	case held, late, reported:
		return model.Reason{Code: model.WaitStep, Name: t.Spec.Kind}, true
	case expired, reserved, matched:
	}

	return model.Reason{Code: model.WaitTurn}, true // a decision about the task is in flight
}

func (b *Board) explainWaiting(t *task) model.Reason {
	ln := t.line
	switch {
	case t.site.paused:
		return model.Reason{Code: model.WaitPaused, Name: t.site.name.queue, Detail: t.site.why}
	case len(ln.leaves) == 0:
		return model.Reason{Code: model.WaitWorker, Name: t.Spec.Kind, Detail: "queue " + t.site.name.queue + ", activity"}
	case ln.group.closed:
		return ln.group.why
	}
	ahead := fmt.Sprint(ln.tasks.countBefore(t, maxPosition))
	if ahead == fmt.Sprint(maxPosition) {
		ahead += " or more"
	}
	return model.Reason{Code: model.WaitLine, Name: t.site.name.queue, Detail: ahead + " of its key and priority are before it"}
}

// Stats holds the counts of a board.
type Stats struct {
	Queues  []QueueStats  // by tenant and queue
	Workers []WorkerStats // by id
}

// QueueStats holds the counts of a queue of a tenant. Proposed tasks are included in the claimed
// ones.
type QueueStats struct {
	Tenant, Queue             string
	Waiting, Delayed, Claimed int
	Oldest                    model.Time // Visible of the task that waits longest; 0 for none
	// Workers counts the workers that offer the queue, and Slots their slots. Lent workers are not
	// included: the node that they belong to counts them.
	Workers, Slots int
	Paused         bool
}

// WorkerStats holds the counts of a worker.
type WorkerStats struct {
	ID          WorkerID
	Held, Slots int // Held includes proposals
}

// stats counts the tasks of a queue.
func (s *site) stats() QueueStats {
	q := QueueStats{Tenant: s.name.tenant, Queue: s.name.queue, Waiting: s.waiting, Delayed: s.delayed, Claimed: s.claimed, Paused: s.paused}
	if s.lines.len() > 0 {
		q.Oldest = s.lines.top().tasks.top().Visible
	}
	return q
}

// Depths counts the tasks of each queue, in no particular order. It visits only the queues, so it
// leaves the numbers of workers out.
func (b *Board) Depths() (all []QueueStats) {
	for name, s := range b.sites {
		if name.queue != model.InlineQueue {
			all = append(all, s.stats())
		}
	}
	return all
}

// Stats returns the counts of the board. It visits queues, offers and workers, but no tasks.
func (b *Board) Stats() Stats {
	queues := map[siteName]*QueueStats{}
	at := func(name siteName) *QueueStats {
		q := queues[name]
		if q == nil {
			q = &QueueStats{Tenant: name.tenant, Queue: name.queue}
			queues[name] = q
		}
		return q
	}
	for name, s := range b.sites {
		if name.queue != model.InlineQueue {
			*at(name) = s.stats()
		}
	}

	for _, w := range b.workers {
		if w.id == InlineWorker {
			continue
		}
		for _, tenant := range w.class.tenants {
			for _, name := range w.class.queues {
				if q := at(siteName{tenant, name}); !w.lent {
					q.Workers++
					q.Slots += w.slots
				}
			}
		}
	}

	var out Stats
	for _, q := range queues {
		out.Queues = append(out.Queues, *q)
	}
	slices.SortFunc(out.Queues, func(x, y QueueStats) int {
		return compareSites(siteName{x.Tenant, x.Queue}, siteName{y.Tenant, y.Queue})
	})

	for _, w := range b.workers {
		if w.id == InlineWorker {
			continue
		}
		out.Workers = append(out.Workers, WorkerStats{ID: w.id, Held: len(w.tasks), Slots: w.slots})
	}

	slices.SortFunc(out.Workers, func(x, y WorkerStats) int { return cmp.Compare(x.ID, y.ID) })
	return out
}
