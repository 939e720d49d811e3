package batch

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Requeue says how dead tasks are requeued.
type Requeue struct {
	// Canary requeues one task first, the canary, and continues only if that task completes.
	Canary bool
	// Rate is how many tasks are requeued per second at most; 0 for no limit.
	Rate float64
	// DryRun changes nothing: it only yields the tasks that would be requeued.
	DryRun bool
}

// The smallest and the largest rate that a ticker supports.
const minRate, maxRate = 1e-6, 1e6

// Check returns an error for a rate out of bounds.
func (r *Requeue) Check() error {
	if r.Rate != 0 && !(r.Rate >= minRate && r.Rate <= maxRate) { // also for NaN
		return fault.New(fault.Invalid, "requeue %g per second: between %g and %g, or 0 for no limit", r.Rate, minRate, maxRate)
	}
	return nil
}

// Requeued is the result for one dead task. A result without a task has the error that ended the
// batch. It is the last result.
type Requeued struct {
	Task  *api.DeadTask
	Reply api.RequeueReply
	Err   error
}

// RequeueAll requeues every dead task that the request selects, latest death first, and yields the
// results. It skips tasks that were requeued before, unless the request selects them. An error for
// one task does not stop the others. When the caller stops iterating, RequeueAll requeues no
// further tasks.
func RequeueAll(ctx context.Context, c api.Client, r api.DeadRequest, how Requeue) iter.Seq[Requeued] {
	if r.Requeued == nil {
		never := false
		r.Requeued = &never
	}

	one := func(ctx context.Context, d *api.DeadTask) Requeued {
		reply, err := c.Requeue(ctx, api.RequeueRequest{ID: d.ID, DryRun: how.DryRun})
		return Requeued{d, reply, err}
	}

	list := func(ctx context.Context, hand func(*api.DeadTask), tell func(Requeued)) error {
		canary := how.Canary && !how.DryRun
		pace := pacer(how)
		defer pace.stop()
		return listDead(ctx, c, r, func(d *api.DeadTask) error {
			if !pace.wait(ctx) {
				return nil
			}
			if !canary {
				hand(d)
				return nil
			}
			res := one(ctx, d)
			tell(res)
			if res.Err != nil {
				return nil // the next dead task becomes the canary
			}
			canary = false
			return outcome(ctx, c, &res)
		})
	}

	return fan(ctx, list, one, func(err error) Requeued { return Requeued{Err: err} })
}

// outcome waits for the end of the canary. It returns an error if the canary did not complete.
func outcome(ctx context.Context, c api.Client, canary *Requeued) error {
	end, err := c.Await(ctx, api.Target{Address: canary.Reply.Address, Run: canary.Reply.Run})
	switch {
	case err != nil:
		return err
	case end.Outcome.Status == model.Completed:
		return nil
	}
	why := end.Outcome.Status.String()
	if f := end.Outcome.Failure; f != nil {
		why += ": " + f.Message
	}
	return fault.New(fault.Conflict, "the canary %s did not complete (%s); nothing else was requeued", canary.Reply.Address, why)
}

// pace spaces requeues out.
type pace struct{ tick *time.Ticker }

// pacer returns the pace for a rate.
func pacer(how Requeue) pace {
	if how.Rate <= 0 || how.DryRun {
		return pace{}
	}
	pause := float64(time.Second) / how.Rate
	if pause >= math.MaxInt64 { // a conversion would overflow and mean full speed
		return pace{time.NewTicker(math.MaxInt64)}
	}
	return pace{time.NewTicker(max(time.Duration(pause), time.Microsecond))}
}

// wait waits for the next tick. It reports false when ctx has ended.
func (p pace) wait(ctx context.Context) bool {
	if p.tick == nil {
		return ctx.Err() == nil
	}
	select {
	case <-p.tick.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p pace) stop() {
	if p.tick != nil {
		p.tick.Stop()
	}
}

// listDead passes every dead task to do, latest death first, until do returns an error.
func listDead(ctx context.Context, c api.Client, r api.DeadRequest, do func(*api.DeadTask) error) error {
	r.Limit = pageSize
	return walk(ctx, r.Cursor, func(cursor string) ([]api.DeadTask, string, error) {
		r.Cursor = cursor
		page, err := c.ListDead(ctx, r)
		return page.Tasks, page.Cursor, err
	}, do)
}

// PurgeAll removes every dead task that the request selects, and yields the results. It does not
// remove a dead task whose requeued task is still open; the result of that task is an error.
func PurgeAll(ctx context.Context, c api.Client, r api.DeadRequest, dry bool) iter.Seq[Requeued] {
	return func(yield func(Requeued) bool) {
		stopped := false
		err := listDead(ctx, c, r, func(d *api.DeadTask) error {
			res := Requeued{Task: d}
			if !dry {
				res.Err = c.PurgeDead(ctx, d.ID)
			}
			if !yield(res) {
				stopped = true
				return context.Canceled
			}
			return nil
		})
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil && !stopped {
			yield(Requeued{Err: err})
		}
	}
}
