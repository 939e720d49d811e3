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

// Heartbeat reports the progress of an activity on a queue. It returns an error once the activity
// should end: ErrCanceled if the task was cancelled, ErrTimeout if the attempt took too long,
// ErrConflict if another worker has the task or its workflow no longer waits for it, and
// ErrUnavailable if this process shuts down.
//
// The next attempt gets the last report with LastProgress, and operators see it. Call Heartbeat as
// often as you like: the process sends only the last value of each second. In an activity without a
// queue, Heartbeat only returns the error of ctx.
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

// LastProgress returns the last progress that an earlier attempt of the task reported. ok is false
// if there is no such report, or if it does not fit T.
func LastProgress[T any](ctx context.Context) (progress T, ok bool) {
	t := pool.From(ctx)
	if t == nil || t.Claim().Progress.Size() == 0 {
		return progress, false
	}
	h := t.Owner().(*host)
	kind := t.Claim().Spec.Kind
	progress, err := decode[T](callReader{h, ctx}, "progress of activity", kind, t.Claim().Progress)
	if err != nil {
		h.logger.Warn("the progress of a task cannot be read; the task starts over", "activity", kind, "error", err)
		return *new(T), false
	}
	return progress, true
}

// Snooze returns an error for an activity on a queue that cannot continue now. When the activity
// returns this error, the worker gives the task back, and the task may start again after d. The
// task uses up no attempt. In an activity without a queue, the step fails. A negative d means 0. A
// d of more than a hundred years fails the task with ErrInvalid.
func Snooze(d time.Duration) error {
	if d > maxTaskTime {
		return replay.Permanent(fault.New(fault.Invalid, "Snooze of %s, which is more than a hundred years", d))
	}
	return replay.Permanent(&pool.GiveBack{After: max(d, 0)})
}

// openProgress decodes the progress of the last attempt before the activity starts, because the
// worker can still give the task back at that point. If LastProgress decoded the progress later, an
// activity would repeat finished work whenever a blob store cannot be reached. Damaged or missing
// progress cannot be recovered; LastProgress returns ok false for it.
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

// handler returns the code of the activity in the form that a task worker executes.
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
				return model.Payload{}, Permanent(err) // another attempt would fail in the same way
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

// unreadableAfter returns how long a task waits after this worker could not read its payloads.
// Another worker may have the key or the blob store that this worker lacks. The pause grows with
// the age of the task. Every attempt is an event, so with short pauses a workflow that waits for a
// thousand such tasks would fill its history within minutes and fail.
func unreadableAfter(c *model.Claim) time.Duration {
	return min(max(c.Claimed.Sub(c.Scheduled)/2, minUnreadable), maxUnreadable)
}
