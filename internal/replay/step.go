package replay

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Step is one call of an activity or of a function with side effects. It must not change after the
// code has asked for it.
type Step struct {
	Name string
	// Key identifies the step if Keyed is set. Otherwise its input, if it has one, and its
	// occurrence identify it.
	Key   string
	Keyed bool
	tried atomic.Bool // context is in use
	// Input is nil for a step without input, such as a function that the code passes.
	Input *StepInput
	// Policy says when a failed attempt is repeated; nil for the zero value of Policy.
	Policy *Policy
	// AttemptTimeout limits one attempt; 0 for no limit.
	AttemptTimeout time.Duration
	// Caller is the program counter of user code (see Ctx.Caller); if it is 0, the worker looks for
	// the place on the stack.
	Caller uintptr
	// Task, if set, lets a queue execute the step. In that case Body is nil, and the engine applies
	// the retry policy. See task.go.
	Task *model.TaskSpec
	// Pass names the limits and the breaker that an attempt of Body must pass; nil for none.
	Pass *model.TaskSpec
	// Body does the work; nil if this process does not have the code of the step. Body may run on
	// any goroutine.
	Body func(context.Context) (model.Payload, error)
	// Kept is the last value that Body has returned, if Body stores it here.
	Kept atomic.Pointer[Kept]
	// Settle stores the failure that ends the step in the database that keeps the outcome of the
	// step. It returns the outcome that is stored there: this failure, or an earlier outcome.
	// Settle is nil for steps whose outcome only the history stores. See settle.go.
	Settle func(ctx context.Context, f *model.Failure) (model.Payload, *model.Failure, error)

	context StepContext // context of the first attempt here; this saves an allocation
}

// StepInput is the input of a step, with all that says how it is compared and stored. Many steps
// have no input, so it is not a part of Step.
type StepInput struct {
	model.Payload
	// Identity, if not nil, identifies the step in place of the bytes of its input.
	Identity []byte
	// Stored is the form in which the history gets the input. The body sets it. If Stored is nil,
	// the history gets the input itself.
	Stored *atomic.Pointer[model.Payload]
	// Normalize returns the bytes that identify a step with a recorded input in today's code; nil
	// when inputs cannot change their encoding.
	Normalize Normalize
	// Seal returns the stored form of the input of a task; nil when the input has that form
	// already.
	Seal Seal
}

// Kept is a value together with its encoding.
type Kept struct {
	Value any
	Data  []byte // the encoding; not empty
}

// attemptGrace is how long a body may exceed its attempt timeout. After that, the worker gives up
// on the attempt and ignores its result.
const attemptGrace = time.Second

// Step runs a step and waits for its outcome. If the scope ends first, the code gives up on the
// step.
func (x Ctx) Step(s *Step) (model.Payload, error) {
	if err := x.enter("of step", s.Name); err != nil {
		return model.Payload{}, err
	}
	if err := x.scope.endError(); err != nil {
		return model.Payload{}, err
	}
	c, m := x.co, x.co.m
	a := m.askStep(x, s)
	f := &a.fut
	if f.done {
		return f.out, f.err
	}

	if a.task != nil {
		return x.awaitTask(a)
	}
	a.cancelable = x.scope.isUnder(m.rootScope)
	c.inStep.Store(&a.name)
	defer c.inStep.Store(nil)

	// If nothing else is going on, the coroutine runs the body itself, which saves two switches of
	// goroutines.
	if m.atLeisure() && !m.wasSent(a) && m.mayInline(x.scope, a) {
		c.runInline(a)
	} else {
		m.schedule(a)
		a.caller = c
	}

	for !f.done {
		c.single[0] = f
		if err := x.await(waitAny, 0, c.single[:]); err != nil {
			if !a.needsOwnOutcome() {
				m.withdraw(a)
				return model.Payload{}, err
			}
			m.hurry(a, err)
			x = x.withoutScope()
		}
		if c.inline == a {
			c.runInline(a)
		}
	}

	if f.err != nil && a.needsOwnOutcome() {
		return f.out, a.stepError()
	}
	return f.out, f.err
}

// StepFuture begins a step.
func (x Ctx) StepFuture(s *Step) *Future {
	if err := x.enter("of step", s.Name); err != nil {
		return failedFuture(err)
	}
	if err := x.scope.endError(); err != nil {
		return failedFuture(err)
	}
	m := x.co.m
	a := m.askStep(x, s)
	if a.fut.done {
		return &a.fut
	}
	m.schedule(a)
	return a.fut.bind(x.scope)
}

// schedule runs the body of a step once every coroutine is parked, unless its outcome is recorded
// or on its way.
func (m *machine) schedule(a *ask) {
	switch {
	case a.task != nil: // askTask asks the engine for it
	case !m.live:
		m.unconfirmed = append(m.unconfirmed, a)
	case m.wasSent(a):
		a.state = stepRunning
	default:
		m.toStart = append(m.toStart, a)
	}
}

// askStep asks for a step. If the machine has already been fed events for this step, these events
// answer the ask immediately.
func (m *machine) askStep(x Ctx, s *Step) *ask {
	id := identity{kind: askStep, name: s.Name, key: s.Key, keyed: s.Keyed, caller: s.Caller}
	if in := s.Input; in != nil {
		id.input, id.hashed = in.Data, !s.Keyed
		if in.Identity != nil {
			id.input = in.Identity
		}
	}
	a := m.newAsk(x.co.path, &id)
	a.step, a.section = s, x.heldSection()
	a.fut.kind = futureStep
	if id.hashed {
		m.learn(askStep, s.Name, s.Input.Normalize)
	}
	a.task = a.section.withFences(s.Task)
	m.serveEarly(a)
	if s.Task != nil && !a.fut.done {
		m.askTask(a)
	}

	return a
}

// warnLoop warns, once per place, that a step without input and key is repeated. Only the order
// distinguishes the outcomes of such a step. If a later build runs the loop in another order, it
// would silently get the outcomes of other iterations.
func (w *Worker) warnLoop(a *ask) {
	if _, told := w.loops.LoadOrStore(a.position, true); !told {
		a.fut.m.r.reportMistake(false, "step "+a.name+" is repeated without a key"+at(a.position)+
			": only their order distinguishes its outcomes; give each a perdure.StepKey")
		w.cfg.Logger.Warn("step in a loop has no key: give it one, such as StepKey", "step", a.name, "position", a.position)
	}
}

// atLeisure reports whether only the coroutine that asks has work to do. That means: the code has
// reached the end of the history, everything that it has seen is committed, and no event waits.
func (m *machine) atLeisure() bool {
	return !m.unproven() && m.live && m.isCommitted() && len(m.toStart) == 0 && m.fed == len(m.r.events) && !m.r.mail.Load()
}

// mayInline decides whether the only coroutine may run the body itself, and takes a slot for it.
func (m *machine) mayInline(s *Scope, a *ask) bool {
	return m.alive == 1 && a.step.Body != nil && a.step.Pass == nil && a.step.AttemptTimeout == 0 && m.r.bodies.Load() == 0 && !s.hasDeadline() &&
		!m.w.draining.Load() && !m.w.kept.has(attemptKey{m.r.start.Run, a.id, a.attempt + 1}) && m.w.slots.try()
}

// startSteps starts the bodies that are due. It reports false when there is no step to start, or
// when the worker may start none now.
func (m *machine) startSteps() bool {
	for _, id := range m.r.takeRetries() {
		if a := m.find(id); a != nil && a.state == stepBackoff && a.task == nil {
			a.due = 0
			m.toStart = append(m.toStart, a)
		}
	}

	if len(m.toStart) == 0 || !m.isCommitted() || m.w.draining.Load() {
		return false
	}

	due := slices.DeleteFunc(m.toStart, func(a *ask) bool {
		switch {
		case a.fut.done || a.withdrawn || a.state == stepRunning || a.task != nil:
			return true
		case a.step.Body == nil:
			m.missing++ // the step waits for a process that has its code
			return true
		}
		return a.state == stepBackoff && a.due > m.r.clock()
	})

	m.toStart = nil
	// A single step may run on the goroutine of the coroutine that waits for it.
	if len(due) == 1 {
		a := due[0]
		if c := a.caller; c != nil && c.wait.active && m.mayInline(c.under, a) {
			c.inline = a
			c.wake()
			m.toStart = due[:0] // use the same array again
			return true
		}
	}

	for _, a := range due {
		if a.state != stepRunning { // an ask that is listed twice runs once
			a.state = stepRunning
			m.r.launch(m, a)
		}
	}

	return true
}

// runInline runs the body of a step on the goroutine of the only coroutine. When the body has
// returned, the code may continue with the outcome before the outcome is committed. It does so if
// the step needs no further attempt, the mailbox is empty, and every reported event has come back.
// Otherwise the worker reports the outcome, and the coroutine parks until the event of the outcome
// arrives.
func (c *Coroutine) runInline(a *ask) {
	m, r := c.m, c.m.r
	c.inline = a

	// Report what must not wait for the end of the body.
	if m.urgent() {
		if !m.seal() {
			m.w.freeSlot()
			c.inline = nil
			c.park() // blocked
		}
		if !m.report(nil) {
			m.w.freeSlot()
			c.wither()
		}
	}

	a.state = stepRunning
	ctx := r.beginInline(a)
	out, err := m.w.call(ctx, a)
	r.endInline(a)
	m.w.freeSlot()
	c.inline = nil
	cmd := r.conclude(a, out, err)
	m.command(a, cmd)
	if cmd.Kind == model.CommandRetry || r.mail.Load() || m.outstanding.Load() > 0 {
		return
	}

	// Run ahead of the whole turn.
	m.aheadN = len(m.commands)
	m.aheadBuf = append(m.aheadBuf[:0], m.authors...)
	m.ahead = m.aheadBuf
	a.fut.out, a.fut.at = cmd.Event.Output, m.r.clock()
	if cmd.Event.Failure != nil {
		a.fut.err = cmd.Event.Failure
	}
	m.resolve(&a.fut, m.position())
}

// urgent reports whether the turn holds anything that should not wait for the end of a body.
func (m *machine) urgent() bool {
	m.syncTimers()
	for i := range m.commands { // by index: a command is large
		if m.commands[i].Kind != model.CommandRecord {
			return true
		}
	}
	return false
}

// wither parks a coroutine that has lost the baton. The coroutine stays parked until the machine
// ends its goroutine.
func (c *Coroutine) wither() {
	for {
		if <-c.signal == wakeExit {
			runtime.Goexit()
		}
	}
}

// recoverExit handles a body that called runtime.Goexit on the goroutine of its coroutine. It
// records that the attempt has failed, and the worker replays the code from its beginning.
func (m *machine) recoverExit(c *Coroutine) {
	a := c.inline
	c.inline = nil
	m.r.endInline(a)
	m.w.freeSlot()
	m.command(a, m.r.conclude(a, model.Payload{}, ExitFailure("step "+a.name)))
	m.ahead = append(m.ahead, m.authors...)

	for a := range m.asks.all() {
		// The worker reported the step before its body began, and the step is not recorded yet. The
		// next machine must not ask for the step again.
		if a.expect.Load() > 0 {
			m.ahead = append(m.ahead, a)
		}
	}

	m.drop(c)
	m.active.Store(nil)
	m.w.goroutines.Go(func() {
		switch {
		case !m.seal():
			m.r.retire(m.r.block)
		case m.report(nil):
			m.r.retire(m.r.restart)
		}
	})
}

// call runs a body and turns a panic into an error.
func (w *Worker) call(ctx context.Context, a *ask) (out model.Payload, err error) {
	if w.cfg.Meter != nil || w.cfg.Tracer != nil {
		var ended func(error)
		ctx, ended = w.observe(ctx, a)
		defer func() { ended(err) }() // deferred first, so it runs last and sees panics too
	}

	if c := w.cfg.Checks; c != nil {
		defer func() { c.reportAttempt(a, out, err) }()
	}

	defer func() {
		if p := recover(); p != nil {
			out = model.Payload{}
			if e, ok := p.(error); ok && errors.As(e, new(*permanent)) {
				err = e // the panic of a misused durable call that returns no error
				return
			}
			err = PanicFailure(p)
		}
	}()

	if err := a.overReason(); err != nil {
		return model.Payload{}, err
	}
	return w.probeError(a.step.Body(ctx))
}

// probeError calls the Error method of an error of user code at a place where the worker still
// recovers panics. The method panics, for example, if the error is a nil pointer and the method
// does not expect that. If the method panicked later, the panic would end the process, and also
// every further process that replays the run.
func (w *Worker) probeError(out model.Payload, err error) (model.Payload, error) {
	if err != nil {
		_ = w.cfg.Failure(err)
	}
	return out, err
}

// storedInput returns the input in its recorded form; empty when the body did not get that far.
func (s *Step) storedInput() model.Payload {
	if s.Input == nil || s.Input.Stored == nil {
		return s.plainInput()
	}
	if p := s.Input.Stored.Load(); p != nil {
		return *p
	}
	return model.Payload{}
}

// plainInput returns the input as the code gave it; empty for a step without input.
func (s *Step) plainInput() model.Payload {
	if s.Input == nil {
		return model.Payload{}
	}
	return s.Input.Payload
}

// outcome returns the command that records the result of an attempt.
func (w *Worker) outcome(a *ask, out model.Payload, err error) model.Command {
	n := a.attempt + 1
	e := model.Event{ID: a.id, Name: a.name, Attempt: n, Input: a.step.storedInput(), Position: a.position}
	if err == nil {
		e.Kind, e.Output = model.EventStepCompleted, out
		return model.Command{Kind: model.CommandRecord, Event: e}
	}

	e.Failure = w.cfg.Failure(err)
	var policy Policy
	if a.step.Policy != nil {
		policy = *a.step.Policy
	}
	if policy.If != nil {
		policy.If = guard(policy.If, e.Failure)
	}
	delay, again := policy.nextAttempt(err, n)
	if !again {
		e.Kind = model.EventStepFailed
		return model.Command{Kind: model.CommandRecord, Event: e}
	}

	e.Kind = model.EventAttemptFailed
	if n > 1 {
		e.Input = model.Payload{} // the event of the first attempt has the input
	}
	return model.Command{Kind: model.CommandRetry, Event: e, Delay: delay}
}
