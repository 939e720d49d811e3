package engine

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// retainTombstones is how long a deleted setting is remembered, so that every node learns about it.
const retainTombstones = 7 * 24 * time.Hour

// Bounds of one sweep over old dead tasks.
const (
	deadPage  = 200
	deadPages = 5
)

// sweepDead purges dead tasks that are too old, a few pages at a time. Dead tasks whose requeued
// run is open stay. They must not hold up the other dead tasks, so the next sweep continues after
// them. Dead tasks whose requeued run cannot be read, because its database is away, stay as well.
// The sweep then returns the error, after it has purged the others.
func (inc *incarnation) sweepDead(ctx context.Context, mine []model.ShardID, now model.Time) (purged int, err error) {
	keep := inc.eng.cfg.RetainDead
	if keep < 0 {
		return 0, nil
	}

	st := inc.eng.cfg.Store
	away := map[int]bool{} // databases that the rest of the sweep does not ask again
	var failed error       // the first read of a requeued run that failed
	for range deadPages {
		rows, err := st.LoadDeadBefore(ctx, mine, now.Add(-keep), inc.swept, deadPage)
		if err != nil {
			return purged, errors.Join(err, failed)
		}

		var ms []*model.Message
		for i := range rows {
			row := &rows[i]
			if row.Body.Address.Key == "" {
				continue // unreadable rows stay, for operators
			}
			var run *store.Execution

			if q := row.Body.Requeued; !q.IsZero() {
				shard := inc.shardOf(q.Address)
				part := inc.eng.division.partOf(shard)
				if away[part] {
					continue
				}
				if run, err = st.LoadExecution(ctx, shard, q.Address, q.Run); err != nil {
					// A damaged row says nothing about others.
					failed, away[part] = cmp.Or(failed, err), !fault.Is(err, fault.Corrupt)
					continue
				}
			}

			if !Purgeable(row, run, now) {
				continue
			}
			ref := model.TaskRef{Address: row.Body.Address, Run: row.Run, ID: row.Task}
			ms = append(ms, &model.Message{
				Kind: model.MessageRequeue, To: ref.Address, DeadTask: &model.DeadTaskOrder{Do: model.DeadTaskPurge, Ref: ref, Count: row.Requeued, Run: row.Body.Requeued.Run},
			})
		}

		for _, sent := range inc.eng.SendMany(ctx, ms) {
			if sent.Err == nil {
				purged++
			}
		}

		if len(rows) < deadPage {
			inc.swept = store.DeadPlace{}
			break
		}

		inc.swept = rows[len(rows)-1].Place()
	}

	return purged, failed
}

// OnItsWay is how long the run of a requeued dead task may be in flight to its shard. If the run
// does not exist after that time, it was deleted.
const OnItsWay = time.Minute

// Purgeable reports whether a dead task may be removed. If the dead task was requeued, run is the
// run that the requeue has started, or nil if that run does not exist. The dead task stays while
// that run is open, or may still be on its way to its shard.
func Purgeable(row *store.DeadRow, run *store.Execution, now model.Time) bool {
	q := row.Body.Requeued
	return q.IsZero() || run != nil && run.Outcome.Status.Closed() || run == nil && now.Sub(q.At) >= OnItsWay
}

// maxLines bounds how many lines of tasks are visited for one answer.
const maxLines = 10_000

// QueueCounts returns the numbers of tasks of runs that this node owns, by queue. ok is false while
// the node is not sure of its lease.
func (e *Engine) QueueCounts() (counts []peer.QueueCount, ok bool) {
	inc := e.current()
	if inc == nil || !inc.isServing() {
		return nil, false
	}
	return inc.board.counts(), true
}

// AskQueues asks another node for its QueueCounts.
func (e *Engine) AskQueues(ctx context.Context, node model.NodeID) ([]peer.QueueCount, error) {
	return peer.Asker{Mail: e.cfg.Store, Hints: e.cfg.Hints}.AskQueues(ctx, node)
}

// counts returns the numbers of tasks on the board, by queue.
func (b *board) counts() (counts []peer.QueueCount) {
	b.mu.Lock()
	stats, abandoned := b.b.Stats(), b.b.AbandonedWants(maxLines)
	b.mu.Unlock()

	for i := range stats.Queues {
		q := &stats.Queues[i]
		c := peer.QueueCount{Tenant: q.Tenant, Queue: q.Queue, Waiting: q.Waiting, Delayed: q.Delayed, Claimed: q.Claimed, Oldest: q.Oldest, Paused: q.Paused}
		for _, w := range abandoned {
			if w.Tenant == q.Tenant && w.Queue == q.Queue {
				c.Abandoned = append(c.Abandoned, w.Kind)
			}
		}
		counts = append(counts, c)
	}
	return counts
}

// OpenTasks returns the open tasks of an open run, from its history.
func OpenTasks(start model.Start, events []model.Event) ([]*core.Task, error) {
	x, err := core.Recover(start, model.Outcome{Status: model.Running}, events, nil)
	if err != nil {
		return nil, err
	}
	return x.Tasks(), nil
}
