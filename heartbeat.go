package perdure

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/payload"
)

// Heartbeat reports the progress of an activity on a queue, and returns an error once the activity
// should end: ErrCanceled when the task was cancelled, ErrTimeout when the attempt took too long,
// ErrConflict when another worker has the task or its workflow no longer waits for it, and
// ErrUnavailable when this process shuts down.
//
// The next attempt gets the last report with LastProgress, and operators see it. Call it as often
// as you like: only the last value of each second leaves the process. In an activity without a
// queue it only returns whether ctx has ended.
func Heartbeat[T any](ctx context.Context, progress T) (err error) {
	defer publish(&err)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t := pool.From(ctx)
	if t == nil {
		return nil
	}

	h, kind := t.Owner().(*host), t.Claim().Spec.Kind
	p, err := encode(h, "progress of activity", kind, progress)
	if err != nil {
		return err
	}
	if err := h.limit("progress of activity", kind, p); err != nil {
		return err
	}
	return t.Progress(p)
}

// LastProgress is the last report of the earlier attempts of the task. ok is false when there is
// none, or none that a T can hold.
func LastProgress[T any](ctx context.Context) (progress T, ok bool) {
	t := pool.From(ctx)
	if t == nil || t.Claim().Progress.Size() == 0 {
		return progress, false
	}
	h := t.Owner().(*host)
	kind := t.Claim().Spec.Kind
	progress, err := decode[T](callReader{h, ctx}, "progress of activity", kind, t.Claim().Progress)
	if err != nil {
		h.logger.Warn("the progress of a task cannot be read; it starts over", "activity", kind, "error", err)
		return *new(T), false
	}
	return progress, true
}

// Snooze is an error that an activity on a queue returns when it cannot go on now. The worker gives
// the task back, and it may begin again after d. That uses up no attempt. In an activity without a
// queue, the step fails. A negative d is 0; more than a hundred years is a mistake, and the task
// fails with it.
func Snooze(d time.Duration) error {
	if d > maxTaskTime {
		return replay.Permanent(fault.New(fault.Invalid, "Snooze of %s, which is more than a hundred years", d))
	}
	return replay.Permanent(&pool.GiveBack{After: max(d, 0)})
}

// openProgress decodes the progress of the last attempt while the task can still be given back. If
// a blob store is away and the activity saw no progress, it would repeat finished work. Damaged or
// missing progress does not come back; LastProgress returns ok false for it.
func (h *host) openProgress(ctx context.Context, c *model.Claim) error {
	if c.Progress.Size() == 0 || c.Progress.Encoding == model.JSON {
		return nil
	}
	p, err := h.open(ctx, brief, "progress of activity", c.Spec.Kind, c.Progress)
	switch {
	case err == nil:
		c.Progress = p
	case errors.Is(err, payload.ErrDamaged), errors.Is(err, payload.ErrNotFound):
		return nil
	}
	return err
}

// handler is the code of the activity as a worker executes it.
func (a *Activity[I, O]) handler(fn func(context.Context, I) (O, error)) func(*host) pool.Handler {
	var worth func(error) bool
	if a.opts.retry != nil {
		worth = a.opts.retry.worth()
	}
	return func(h *host) pool.Handler {
		return pool.Handler{Worth: worth, Owner: h, Run: func(ctx context.Context, t *pool.Task) (model.Payload, error) {
			in, err := decode[I](callReader{h, ctx}, "input of activity", a.name, t.Claim().Input)
			if err == nil {
				err = h.openProgress(ctx, t.Claim())
			}
			switch {
			case fault.Is(err, fault.Blocked) || fault.Is(err, fault.Unavailable):
				return model.Payload{}, &pool.GiveBack{After: unreadableAfter(t.Claim()), Err: err}
			case err != nil:
				return model.Payload{}, Permanent(err) // another attempt would read the same
			}
			out, err := fn(ctx, in)
			if err != nil {
				return model.Payload{}, err
			}
			return result(ctx, h, "output of activity", a.name, out)
		}}
	}
}

// Bounds of unreadableAfter.
const (
	minUnreadable = 10 * time.Second
	maxUnreadable = 10 * time.Minute
)

// unreadableAfter returns how long a task waits when its payloads cannot be read here: a key or a
// store is missing, which another worker may have. The pause grows with the age of the task. Every
// attempt is in the history, and a workflow that waits for a thousand such tasks would otherwise
// fill its history within minutes and fail.
func unreadableAfter(c *model.Claim) time.Duration {
	return min(max(c.Claimed.Sub(c.Scheduled)/2, minUnreadable), maxUnreadable)
}
