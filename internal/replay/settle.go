package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// A step that settles also stores its outcome outside the history, in the database that its body
// writes to. The database accepts only one outcome of the step. Before the worker records in the
// history that such a step failed or was given up, the worker must store that failure in the
// database. Otherwise a body that seems dead could still commit its work, and the history would not
// show it. So workflow code cannot withdraw such a step, as it withdraws other steps when their
// scope ends. Instead, the worker hurries the step: it interrupts the body, makes no further
// attempt, and settles the failure. The code waits until the outcome is known. There is one
// exception, see withdrawnElsewhere.

const (
	// settleTimeout limits how long one try to settle a failure takes. The try has to wait if
	// another transaction still holds the row of the step.
	settleTimeout = 10 * time.Second
	// outcomePending is the Event.Ref of a failed attempt, if the failure is to end the step, but
	// the worker could not settle the failure yet.
	outcomePending = 1
)

// needsOwnOutcome reports whether a is a step that settles. The code cannot withdraw such a step.
func (a *ask) needsOwnOutcome() bool { return a.kind == askStep && a.step.Settle != nil }

// hurry makes a step that settles end soon, because the code gave up on the step.
func (m *machine) hurry(a *ask, why error) {
	r := m.r
	r.mu.Lock()
	first := a.hurried == nil
	if first {
		a.hurried = why
	}
	if a.body != nil {
		a.body.end(why)
	}
	r.mu.Unlock()
	if first && a.state != stepRunning {
		m.hasten(a)
	}
}

// hasten ends the back-off of a hurried step, so that the worker settles the step now. During a
// replay, the worker does so later.
func (m *machine) hasten(a *ask) {
	a.due = 0
	if m.live {
		m.toStart = append(m.toStart, a)
	}
}

// hurryReason returns why the code gave up on a step; nil if the code has not given up on it.
func (r *run) hurryReason(a *ask) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return a.hurried
}

// overReason returns why the body of a step must not run again, so that the worker only has to
// settle the failure of the step. It returns nil when the body may run.
func (a *ask) overReason() error {
	if a.step.Settle == nil {
		return nil
	}
	if f := a.lastFailed().final; f != nil {
		return f
	}
	return a.fut.m.r.hurryReason(a)
}

// attemptFailed notes a failed attempt that does not end the step yet. Another attempt follows, or
// another try to settle the failure.
func (m *machine) attemptFailed(a *ask, e *model.Event) {
	a.attempt, a.due, a.state = e.Attempt, e.Due, stepBackoff
	m.untold = true
	if a.failed == nil {
		a.failed = new(failedAttempt)
	}
	a.failed.final = nil
	if e.Failure != nil {
		a.failed.text = e.Failure.Message
	}

	switch {
	case e.Ref == outcomePending && e.Failure != nil:
		a.failed.final = e.Failure
		a.failed.text = "its outcome is pending: the step has failed, but the failure could not be stored in the database of the activity yet; the step failed with: " + a.failed.text
	case a.step.Settle != nil && m.r.hurryReason(a) != nil:
		m.hasten(a)
	}
}

// withdrawnElsewhere ends a hurried step that another process has withdrawn, because that process
// did not have the code to settle the step. It returns false if the code here has not given up on
// the step.
func (m *machine) withdrawnElsewhere(a *ask, e *model.Event) bool {
	if !a.needsOwnOutcome() || m.r.hurryReason(a) == nil {
		return false
	}
	a.withdrawn = true
	a.fut.err, a.fut.at = m.r.hurryReason(a), e.At
	m.resolve(&a.fut, e.Seq)
	return true
}

// conclude returns the command that records the result of an attempt. If the step settles and the
// attempt failed for the last time, conclude settles the failure first. An earlier attempt that
// seemed lost may already have stored an outcome. In that case conclude records that outcome.
func (r *run) conclude(a *ask, out model.Payload, err error) model.Command {
	cmd := r.w.outcome(a, out, err)
	if err == nil || a.step.Settle == nil || !r.wantsOutcome(a) {
		return cmd
	}
	f := cmd.Event.Failure
	switch why := r.hurryReason(a); {
	case a.lastFailed().final != nil:
		f = a.lastFailed().final
	case cmd.Kind != model.CommandRetry:
	case why == nil:
		return cmd
	default:
		f = r.w.cfg.Failure(why)
	}
	return r.settle(a, cmd.Event, f)
}

// wantsOutcome reports whether the worker still records the outcome of a body. The worker does not
// record it if the body was interrupted because the run moves to another worker: such an attempt
// has not failed.
func (r *run) wantsOutcome(a *ask) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !a.dropped && (!r.evicted || r.lost) && !r.w.halted.Load()
}

// settle stores a failure as the final outcome of the step. As long as the failure cannot be
// stored, the step has neither failed nor completed.
func (r *run) settle(a *ask, e model.Event, f *model.Failure) model.Command {
	ctx, cancel := context.WithTimeout(r.bodyContext(a), settleTimeout)
	defer cancel()
	out, stands, err := callSettle(ctx, a, f)
	if err != nil {
		r.w.unsettled.Fail(err, "step", a.name)
		e.Kind, e.Failure, e.Ref, e.Input = model.EventAttemptFailed, f, outcomePending, model.Payload{}
		if e.Attempt == 1 {
			e.Input = a.step.storedInput()
		}
		return model.Command{Kind: model.CommandRetry, Event: e, Delay: new(Policy).delay(e.Attempt, 0)}
	}

	r.w.unsettled.OK()
	e.Kind, e.Failure, e.Output, e.Input = model.EventStepCompleted, nil, out, a.step.storedInput()
	if stands != nil {
		e.Kind, e.Failure = model.EventStepFailed, stands
	}

	return model.Command{Kind: model.CommandRecord, Event: e}
}

// callSettle calls the Settle function of a step, and turns a panic into an error.
func callSettle(ctx context.Context, a *ask, f *model.Failure) (out model.Payload, stands *model.Failure, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("settle step %s: %w", a.name, PanicFailure(p))
		}
	}()
	return a.step.Settle(ctx, f)
}

// withoutScope returns a context with a scope that never ends. The code uses it to wait for the
// outcome of a hurried step.
func (x Ctx) withoutScope() Ctx { return Ctx{x.co, &Scope{m: x.co.m}} }

// awaitSettled waits for the outcome of a hurried step and returns its error. If the error only
// repeats why the code gave up, awaitSettled returns that reason, as every other wait does when its
// scope has ended.
func (x Ctx) awaitSettled(f *Future) error {
	x = x.withoutScope()
	for !f.done {
		x.co.single[0] = f
		_ = x.await(waitAny, 0, x.co.single[:]) // always nil, because the scope never ends
	}
	return f.ask.stepError()
}

// stepError returns the error of a step that is over.
func (a *ask) stepError() error {
	var f *model.Failure
	why := a.fut.m.r.hurryReason(a)
	if why != nil && errors.As(a.fut.err, &f) && f.Kind == a.fut.m.w.cfg.Failure(why).Kind {
		return why
	}
	return a.fut.err
}

// settleAll hurries every pending step that settles, and waits for the outcomes. The run must not
// end before the worker knows what these steps did.
func (m *machine) settleAll() {
	var pending []*ask
	for a := range m.asks.all() {
		if a.needsOwnOutcome() && !a.fut.done {
			pending = append(pending, a)
		}
	}

	if len(pending) == 0 {
		return
	}
	slices.SortFunc(pending, func(a, b *ask) int { return strings.Compare(a.id, b.id) })

	fs := make([]*Future, len(pending))
	for i, a := range pending {
		m.hurry(a, ErrCanceled)
		fs[i] = &a.fut
	}

	// The error is always nil, because the scope never ends.
	_ = Ctx{m.root, m.rootScope}.withoutScope().await(waitDone, 0, fs)
}
