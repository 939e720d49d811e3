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

// Requeue is how dead tasks are requeued.
type Requeue struct {
	// Canary requeues one first and goes on when its task has completed; when it has not, nothing
	// else is requeued.
	Canary bool
	// Rate is how many are requeued per second, at most; 0 for as fast as it goes.
	Rate float64
	// DryRun changes nothing: it only yields what would be requeued.
	DryRun bool
}

// Rates that a ticker can keep.
const minRate, maxRate = 1e-6, 1e6

// Check says what makes no sense.
func (r *Requeue) Check() error {
	if r.Rate != 0 && !(r.Rate >= minRate && r.Rate <= maxRate) { // also when it is not a number
		return fault.New(fault.Invalid, "requeue %g per second: between %g and %g, or 0 for no limit", r.Rate, minRate, maxRate)
	}
	return nil
}

// Requeued is what became of one dead task. One without a task is the error that ended it all, and
// the last one.
type Requeued struct {
	Task  *api.DeadTask
	Reply api.RequeueReply
	Err   error
}

// RequeueAll requeues every dead task that the request selects, those that died last first, and
// yields what became of each as it is done. Those that were requeued before are not selected,
// unless the request says so. An error of one does not stop the others. When the caller stops
// iterating, nothing new is begun.
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
				return nil // the next one is the canary
			}
			canary = false
			return outcome(ctx, c, &res)
		})
	}

	return fan(ctx, list, one, func(err error) Requeued { return Requeued{Err: err} })
}

// outcome waits for the end of the canary and says why the others had better not follow.
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
	return fault.New(fault.Conflict, "the canary %s ended otherwise than completed (%s); nothing else was requeued", canary.Reply.Address, why)
}

// pace spaces requeues out.
type pace struct{ tick *time.Ticker }

func pacer(how Requeue) pace {
	if how.Rate <= 0 || how.DryRun {
		return pace{}
	}
	pause := float64(time.Second) / how.Rate
	if pause >= math.MaxInt64 { // a conversion would make full speed of it
		return pace{time.NewTicker(math.MaxInt64)}
	}
	return pace{time.NewTicker(max(time.Duration(pause), time.Microsecond))}
}

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

// listDead hands out every dead task, those that died last first, until one is refused.
func listDead(ctx context.Context, c api.Client, r api.DeadRequest, do func(*api.DeadTask) error) error {
	r.Limit = pageSize
	return walk(ctx, r.Cursor, func(cursor string) ([]api.DeadTask, string, error) {
		r.Cursor = cursor
		page, err := c.ListDead(ctx, r)
		return page.Tasks, page.Cursor, err
	}, do)
}

// PurgeAll removes every dead task that the request selects and yields what became of each. Those
// whose requeued task is open are refused and stay.
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
