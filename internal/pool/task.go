package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Why the context of a task ends, beside replay.ErrCanceled and replay.ErrTimeout.
var (
	// ErrLost tells that nobody wants the outcome from this worker any more: the task timed out,
	// somebody else has it, or its workflow gave up on it or has ended.
	ErrLost = fault.New(fault.Conflict, "the task is not this worker's any more: it timed out, another one has it, or its workflow does not wait for it")
	// ErrShutdown tells that the worker closes; the task goes on elsewhere.
	ErrShutdown = fault.New(fault.Unavailable, "the worker shuts down: the task is given back")
)

// Handler executes tasks of one kind.
type Handler struct {
	// Run does the work. Its context ends when the outcome is not wanted any more, when the attempt
	// takes too long, and when the worker closes.
	Run func(ctx context.Context, t *Task) (model.Payload, error)
	// Owner is what Task.Owner returns.
	Owner any
	// Worth decides whether an error is worth another attempt; nil when every one is.
	Worth func(error) bool
}

// GiveBack is an error by which a handler gives its claim back, without consuming an attempt.
type GiveBack struct {
	After time.Duration // when it may be claimed again
	Err   error         // why, for the log; nil when the task itself asked for it
}

// Error says what was asked for; it is seen where there is no claim to give back.
func (g *GiveBack) Error() string {
	if g.Err != nil {
		return g.Err.Error()
	}
	return fmt.Sprintf("asks to be tried again in %s, which only a queued activity can", g.After)
}

// Unwrap is why.
func (g *GiveBack) Unwrap() error { return g.Err }

// Task is a claim that a pool holds.
type Task struct {
	pool   *Pool
	claim  *model.Claim
	run    Handler
	limit  time.Duration   // of the attempt; 0 for none
	ctx    context.Context //nolint:containedctx // it is the unit of work
	cancel context.CancelCauseFunc
	values taskContext // what the handler gets, with the contexts above inside

	received time.Time
	late     bool // its handler returned because the attempt took too long

	// Guarded by the mutex of the pool.
	state    taskState
	beaten   time.Time      // when the engine last heard of it
	progress *model.Payload // to be told by the next beat
	next     *model.Payload // has not got its stored form yet
	sealing  chan struct{}  // closed when nobody seals it any more; nil while nobody does
	notes    *notes         // what it has written and the engine has not taken; nil until it writes
}

type taskState uint8

const (
	waiting   taskState = iota // for a slot
	running                    // its handler runs
	reporting                  // its handler has returned
	gone                       // it is not ours any more, although its handler may still run
)

// Claim is what was claimed.
func (t *Task) Claim() *model.Claim { return t.claim }

// Owner is whatever the handler of the task belongs to.
func (t *Task) Owner() any { return t.run.Owner }

// taskContext is the context of a handler. It is part of the task, because there is one for each.
type taskContext struct {
	replay.ClaimContext

	task *Task
}

type taskKey struct{}

// Value finds the task, the step that it is, or what the contexts around it hold.
func (c *taskContext) Value(key any) any {
	if _, ok := key.(taskKey); ok {
		return c.task
	}
	return c.ClaimContext.Value(key)
}

// From is the task that a context belongs to, nil outside of tasks.
func From(ctx context.Context) *Task {
	t, _ := ctx.Value(taskKey{}).(*Task)
	return t
}

// Err is why the context of the task has ended; nil while it has not.
func (t *Task) Err() error {
	if t.ctx.Err() == nil {
		return nil
	}
	return context.Cause(t.ctx)
}

// Progress has the next beat tell how far the task has come. Of several within a short time the
// last one is told.
func (t *Task) Progress(v model.Payload) error {
	if err := t.Err(); err != nil {
		return err
	}
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.state != running {
		return ErrLost
	}

	if p.cfg.Seal == nil {
		t.progress = &v
		p.armLocked(p.progressDue())
		return nil
	}

	t.next = &v
	if t.sealing == nil && !p.closed {
		t.sealing = make(chan struct{})
		p.helpers.Go(t.seal)
	}

	return nil
}

// seal gives progress its stored form, on a goroutine of its own: that may take its time, and beats
// must not wait for it. It does not end with the context of the task, because what was reported
// before that counts.
func (t *Task) seal() {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()

	for t.next != nil && t.state != gone {
		v := *t.next
		t.next = nil
		p.mu.Unlock()
		ctx, cancel := context.WithTimeout(p.ctx, beatTimeout)
		sealed, err := t.sealed(ctx, v)
		cancel()
		p.mu.Lock()
		if err != nil {
			p.unsealed.Failed(err, "activity", t.claim.Spec.Kind)
			continue
		}
		p.unsealed.OK()
		t.progress = &sealed
		p.armLocked(p.progressDue())
	}

	close(t.sealing)
	t.sealing = nil
}

// sealed is a value in its stored form. That is made by code of users (encryption, stores of
// blobs): a panic in it is an error, as it is where outcomes are sealed.
func (t *Task) sealed(ctx context.Context, v model.Payload) (sealed model.Payload, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = replay.PanicFailure(v)
		}
	}()
	return t.pool.cfg.Seal(ctx, t.claim.Spec.Kind, v)
}

// call runs the handler and turns a panic into an error. Errors are code of users as well: one that
// panics when it is asked what it says (a nil of a type that does not expect it) is asked here for
// the first time, where that harms nobody.
func (t *Task) call() (out model.Payload, err error) {
	ctx, span := t.pool.cfg.Tracer.Task(t.ctx, t.claim)
	returned := false
	if span != nil {
		// the last one: it hears of panics, too
		defer func() { span.End(failureWord(err, returned)) }()
	}

	defer func() {
		if v := recover(); v != nil {
			out, err = model.Payload{}, replay.PanicFailure(v)
		}
	}()

	if t.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.limit-time.Since(t.received), replay.ErrTimeout)
		defer cancel()
	}

	t.values = taskContext{replay.ClaimContext{Context: ctx, Claim: t.claim}, t}
	if out, err = t.run.Run(&t.values, t); err != nil {
		_ = replay.FailureOf(err)
	}
	returned = true
	t.late = err != nil && t.ctx.Err() == nil && errors.Is(context.Cause(ctx), replay.ErrTimeout)

	return out, err
}

// report is how the claim ended.
func (t *Task) report(out model.Payload, err error) model.TaskReport {
	r := model.TaskReport{Ref: t.claim.Ref}
	back, asked := errors.AsType[*GiveBack](err)
	switch {
	case err == nil:
		r.Output = out
	case asked:
		r.Returned, r.After = true, max(back.After, 0)
	case errors.Is(t.Err(), ErrShutdown):
		r.Returned = true
	default:
		r.Failure = replay.FailureOf(err)
		if t.late {
			r.Failure.Kind, r.Failure.Type = model.FailureTimeout, model.TimeoutToClose
			r.Failure.Message = fmt.Sprintf("attempt of activity %s took more than %s: %s", t.claim.Spec.Kind, t.limit, r.Failure.Message)
		}
		r.Failure.Permanent = r.Failure.Permanent || !t.worth(err, r.Failure)
		if d, ok := replay.RetryAfterOf(err); ok {
			r.RetryAfter = max(d, 1) // 0 is what the policy says
		}
	}

	return r
}

// worth asks the policy of the activity, unless whoever scheduled the task gave another one. One
// that panics has no opinion, so that another attempt is made, and people see why in what is
// recorded.
func (t *Task) worth(err error, recorded *model.Failure) (again bool) {
	if t.run.Worth == nil || t.claim.Spec.Retry.Given {
		return true
	}
	defer func() {
		if v := recover(); v != nil {
			again = true
			recorded.Message += fmt.Sprintf(" (the policy panicked: %v)", v)
		}
	}()
	return t.run.Worth(err)
}

// canceledReport is that of a task which was asked to end before its handler had begun.
func (t *Task) canceledReport() model.TaskReport {
	return model.TaskReport{Ref: t.claim.Ref, Failure: &model.Failure{Kind: model.FailureCanceled, Message: "canceled before it began", Permanent: true}}
}

// limitOf is how long an attempt may take, by the owner's clock.
func limitOf(c *model.Claim) time.Duration {
	if c.Deadline != 0 {
		return max(c.Deadline.Std().Sub(c.Claimed.Std()), 1)
	}
	return c.Spec.ToClose
}

var _ api.TaskWorker = (*Pool)(nil)
