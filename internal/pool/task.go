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

// Causes of the end of a task's context, in addition to replay.ErrCanceled and replay.ErrTimeout.
var (
	// ErrLost means that the engine no longer accepts the outcome from this worker: the task timed
	// out, another worker has it, or its workflow gave up on it or has ended.
	ErrLost = fault.New(fault.Conflict, "the task no longer belongs to this worker: it timed out, another worker has it, or its workflow no longer waits for it")
	// ErrShutdown means that the worker closes and gives the task back. Another worker will execute
	// it.
	ErrShutdown = fault.New(fault.Unavailable, "the worker shuts down: the task is given back")
)

// Handler executes tasks of one kind.
type Handler struct {
	// Run does the work. Its context ends when the claim is lost, when the task is cancelled, when
	// the attempt takes too long, and when the worker closes.
	Run func(ctx context.Context, t *Task) (model.Payload, error)
	// Owner is the value that Task.Owner returns.
	Owner any
	// Worth decides whether an error is worth another attempt; nil if every error is.
	Worth func(error) bool
}

// GiveBack is an error with which a handler gives its claim back without using up an attempt.
type GiveBack struct {
	After time.Duration // the pause before it may be claimed again
	Err   error         // the reason, for the log; nil if the task asked for it
}

// Error describes the request. Users see the text only if there is no claim to give back.
func (g *GiveBack) Error() string {
	if g.Err != nil {
		return g.Err.Error()
	}
	return fmt.Sprintf("asks to be tried again in %s, which only a queued activity can", g.After)
}

// Unwrap returns the reason.
func (g *GiveBack) Unwrap() error { return g.Err }

// Task is a claim that a pool holds.
type Task struct {
	pool   *Pool
	claim  *model.Claim
	run    Handler
	limit  time.Duration   // time limit of the attempt; 0 for no limit
	ctx    context.Context //nolint:containedctx // it is the unit of work
	cancel context.CancelCauseFunc
	values taskContext // the context that the handler gets, which wraps ctx

	received time.Time
	late     bool // the handler returned because the attempt took too long

	// Guarded by the mutex of the pool.
	state    taskState
	beaten   time.Time      // when the engine last received a beat
	progress *model.Payload // for the next beat
	next     *model.Payload // the latest progress that is not sealed yet
	sealing  chan struct{}  // closed when sealing ends; nil while no goroutine seals
	notes    *notes         // writes that the engine has not accepted; nil until the first
}

// taskState says how far a task is.
type taskState uint8

const (
	waiting   taskState = iota // for a slot
	running                    // its handler runs
	reporting                  // its handler has returned
	gone                       // the claim is lost, although the handler may still run
)

// Claim returns the claim of the task.
func (t *Task) Claim() *model.Claim { return t.claim }

// Owner returns the owner that the handler of the task names.
func (t *Task) Owner() any { return t.run.Owner }

// taskContext is the context of a handler. It is embedded in the task to save an allocation.
type taskContext struct {
	replay.ClaimContext

	task *Task
}

type taskKey struct{}

// Value returns the task, its step, or a value of the enclosing contexts.
func (c *taskContext) Value(key any) any {
	if _, ok := key.(taskKey); ok {
		return c.task
	}
	return c.ClaimContext.Value(key)
}

// From returns the task that a context belongs to; nil outside of tasks.
func From(ctx context.Context) *Task {
	t, _ := ctx.Value(taskKey{}).(*Task)
	return t
}

// Err returns why the context of the task has ended; nil while it has not.
func (t *Task) Err() error {
	if t.ctx.Err() == nil {
		return nil
	}
	return context.Cause(t.ctx)
}

// Progress records how far the task has come; the next beat carries it. If a task reports several
// times within a second, only the last value is sent.
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

// seal converts progress to its stored form. It runs on its own goroutine because sealing may be
// slow and beats must not wait for it. It continues after the task's context has ended, because
// progress that the task reported before the end must not be lost.
func (t *Task) seal() {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()

	for t.next != nil && t.state != gone {
		v := *t.next
		t.next = nil
		p.mu.Unlock()
		ctx, cancel := context.WithTimeout(p.ctx, beatTimeout)
		sealed, err := t.sealValue(ctx, v)
		cancel()
		p.mu.Lock()
		if err != nil {
			p.unsealed.Fail(err, "activity", t.claim.Spec.Kind)
			continue
		}
		p.unsealed.OK()
		t.progress = &sealed
		p.armLocked(p.progressDue())
	}

	close(t.sealing)
	t.sealing = nil
}

// sealValue returns a value in its stored form. Sealing is code of users (encryption, blob stores),
// so a panic in it becomes an error, as it does where outcomes are sealed.
func (t *Task) sealValue(ctx context.Context, v model.Payload) (sealed model.Payload, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = replay.PanicFailure(v)
		}
	}()
	return t.pool.cfg.Seal(ctx, t.claim.Spec.Kind, v)
}

// call runs the handler and turns a panic into an error. The Error method of the returned error is
// code of users too, and may panic, for example on a nil pointer. So call already calls the Error
// method here, where it recovers a panic. Otherwise report would be the first to call that method.
func (t *Task) call() (out model.Payload, err error) {
	ctx, span := t.pool.cfg.Tracer.Task(t.ctx, t.claim)
	returned := false
	if span != nil {
		// deferred first, so it runs last and sees panics, too
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

// report builds the report of how the claim ended.
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
			r.RetryAfter = max(d, 1) // 0 means the interval of the policy
		}
	}

	return r
}

// worth asks the retry policy of the activity whether an error is worth another attempt, unless the
// task was scheduled with a policy of its own. If the policy panics, worth returns true, and the
// recorded failure says so.
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

// canceledReport returns the report of a task that was canceled before its handler started.
func (t *Task) canceledReport() model.TaskReport {
	return model.TaskReport{Ref: t.claim.Ref, Failure: &model.Failure{Kind: model.FailureCanceled, Message: "canceled before it started", Permanent: true}}
}

// limitOf returns how long an attempt may take, by the owner's clock.
func limitOf(c *model.Claim) time.Duration {
	if c.Deadline != 0 {
		return max(c.Deadline.Std().Sub(c.Claimed.Std()), 1)
	}
	return c.Spec.ToClose
}

var _ api.TaskWorker = (*Pool)(nil)
