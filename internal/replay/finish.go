package replay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// cleanup is a function that runs when the run ends, not when the worker unloads it.
type cleanup struct {
	fn          func(Ctx) error
	onlyFailure bool
}

// hooks are the functions that the code has registered to run when the execution is cancelled or
// ends. Most code has none.
type hooks struct {
	cleanup     []cleanup
	interrupts  []func(Ctx, string) error // to run when the execution is cancelled
	interrupted []*Future                 // futures of interrupts that have begun
}

// addedHooks returns the hooks, for a function that is about to be added.
func (m *machine) addedHooks() *hooks {
	if m.hooks == nil {
		m.hooks = new(hooks)
	}
	return m.hooks
}

// Cleanup adds a function that runs when the run ends. The functions run in reverse order of
// addition. They do not run when the worker unloads the run. If onlyFailure is set, the function
// runs only when the run fails or is cancelled.
func (x Ctx) Cleanup(onlyFailure bool, fn func(Ctx) error) {
	x.must("Defer")
	h := x.co.m.addedHooks()
	h.cleanup = append(h.cleanup, cleanup{fn, onlyFailure})
}

// Block stops the run because the code does not fit the history. It does not return.
func (x Ctx) Block(detail string) {
	x.must("Block")
	x.co.m.block(detail)
	x.co.park()
	panic("replay: a blocked run continued") // park ends the goroutine
}

// HasBegun reports whether the code has run before. It has if the engine says so, or if the history
// has something that the code asked for.
func (x Ctx) HasBegun() bool {
	x.must("Begun")
	r := x.co.m.r
	return r.begun || slices.ContainsFunc(r.events, func(e *model.Event) bool { return !isUnsolicited(e) })
}

// BlockType stops the run because the code has already continued with a recorded value, and today's
// Go type cannot hold that value. It does not return.
func (x Ctx) BlockType(detail string) {
	x.must("Block")
	if m := x.co.m; m.doom == nil {
		m.doom = &model.Reason{Code: model.WaitType, Detail: detail}
	}
	x.co.park()
	panic("replay: a blocked run continued") // park ends the goroutine
}

// Fail ends the run with an error, wherever its code is. It does not return. It is for mistakes in
// calls that return no error, so that the code cannot handle them. If the history continues behind
// this point, earlier code did not fail here, and the run is blocked instead.
func (x Ctx) Fail(err error) {
	x.must("Fail")
	if x.co.m.hasEventsAhead() {
		x.Block(err.Error())
	}
	panic(&fatal{err})
}

// FailType is Fail for a signal of the wrong type. The signal is the last one that the coroutine
// has taken. If the history shows that earlier code has taken the signal, FailType blocks the run
// instead.
func (x Ctx) FailType(err error) {
	x.must("Fail")
	m, taken := x.co.m, x.co.taken
	if m.hasEventsAhead() || slices.ContainsFunc(m.r.events, func(e *model.Event) bool { return e.Kind == model.EventSignalTaken && e.Ref == taken }) {
		x.BlockType(err.Error())
	}
	panic(&fatal{err})
}

// hasEventsAhead reports whether the history holds something that the code has not asked for yet.
func (m *machine) hasEventsAhead() bool {
	return len(m.early) > 0 || slices.ContainsFunc(m.r.events[m.fed:], func(e *model.Event) bool { return !isUnsolicited(e) })
}

// fatal is the panic with which Fail ends the run.
type fatal struct{ err error }

// Error returns the text, for user code that recovers the panic.
func (f *fatal) Error() string { return f.err.Error() }

// Unwrap returns the error for errors.Is.
func (f *fatal) Unwrap() error { return f.err }

// panicError returns the error of user code that panicked: a failure with its stack, or the error
// of Fail.
func panicError(v any) error {
	if f, ok := v.(*fatal); ok {
		return f.err
	}
	return PanicFailure(v)
}

// runRoot is the root coroutine: the workflow function, then the clean-up, then the end of the run.
func (m *machine) runRoot() {
	out, err := m.callRoot()
	m.endRun(out, err)
}

func (m *machine) callRoot() (out model.Payload, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = model.Payload{}, panicError(p)
		}
	}()
	return m.w.probeError(m.r.code(Ctx{m.root, m.rootScope}, m.r.start.Input))
}

// endRun ends the run. First the coroutines that handle a cancel request finish. Then the root
// coroutine ends all other coroutines where they are parked.
func (m *machine) endRun(out model.Payload, err error) {
	if trouble := m.afterInterrupts(); trouble != nil && continueOf(err) == nil {
		err = errors.Join(err, trouble)
	}
	m.endOthers()

	if next := continueOf(err); next != nil && next.Workflow != m.r.start.Address.Type {
		m.block(fmt.Sprintf("the code of workflow %s continues workflow %s as new: continue as itself, or start the other one", m.r.start.Address.Type, next.Workflow))
		m.root.park()
	}

	if err == nil {
		err = m.unseenPanic()
	}
	err = m.runCleanup(err)
	m.endOthers() // ends coroutines that the clean-up began
	end := m.closeFor(out, err)
	if m.served != nil {
		end.Begun = m.served.cutOff
	}
	end.Retain = m.w.cfg.Retain[m.r.start.Address.Type]
	if end.Status == model.Failed {
		m.mayRepeat(end, err)
	}
	m.close(end)
}

// mayRepeat adds the retry policy of the workflow to the end of a failed run. If the execution was
// started with a policy of its own, the engine applies that policy instead.
func (m *machine) mayRepeat(end *model.Close, err error) {
	if d, ok := RetryAfterOf(err); ok {
		end.RetryAfter = d
	}
	p, ok := m.w.cfg.Repeat[m.r.start.Address.Type]
	if !ok {
		return
	}
	end.Retry = &p.Stored
	if t := m.r.start.Terms; p.Worth == nil || t != nil && t.Retry != nil {
		return
	}
	end.Final = !guard(p.Worth, end.Failure)(err)
}

// continueOf returns the next run that an error of the code asks for; nil if the error does not ask
// for one.
func continueOf(err error) *Continue {
	if err == nil {
		return nil
	}
	var next *Continue
	errors.As(err, &next)
	return next
}

// unseenPanic returns the panic of a coroutine whose future the code never looked at.
func (m *machine) unseenPanic() error {
	for _, f := range m.panics {
		if !f.observed {
			return f.err
		}
	}
	return nil
}

// runCleanup runs the functions of Cleanup. If one returns an error, a run that would complete or
// continue as new fails. If the run has another error already, runCleanup adds the new error to it.
func (m *machine) runCleanup(err error) error {
	for m.hooks != nil && len(m.hooks.cleanup) > 0 {
		h := m.hooks
		last := h.cleanup[len(h.cleanup)-1]
		h.cleanup = h.cleanup[:len(h.cleanup)-1]
		if last.onlyFailure && (err == nil || continueOf(err) != nil) {
			continue
		}
		if e := m.callCleanup(last.fn); e != nil {
			if err == nil || continueOf(err) != nil {
				err = e
			} else {
				err = fmt.Errorf("%w (clean-up: %w)", err, e)
			}
		}
	}
	return err
}

func (m *machine) callCleanup(fn func(Ctx) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
	}()
	return fn(Ctx{m.root, m.rootScope}.Detached())
}

// closeFor returns how the run ends.
func (m *machine) closeFor(out model.Payload, err error) *model.Close {
	if err == nil {
		return &model.Close{Status: model.Completed, Output: out}
	}
	if next := continueOf(err); next != nil {
		return &model.Close{Status: model.Continued, Input: next.Input}
	}
	f := m.w.cfg.Failure(err)
	if m.canceled != nil && errors.Is(err, ErrCanceled) {
		f.Kind = model.FailureCanceled
		if why := m.canceled.Message; why != "" && err == ErrCanceled { //nolint:errorlint // only the bare error gets the reason
			f.Message = "canceled: " + why
		}
		return &model.Close{Status: model.Canceled, Failure: f}
	}
	return &model.Close{Status: model.Failed, Failure: f}
}

// close reports the end of the run. The root coroutine holds the baton and gives it up here.
func (m *machine) close(end *model.Close) {
	r := m.r
	if !m.live && !m.settleRest() {
		m.root.park() // blocked
	}
	if !m.seal() {
		m.root.park() // blocked
	}
	m.closed = true
	m.drop(m.root)
	m.root.returned = true
	m.active.Store(nil)
	sure := len(m.ahead) == 0
	r.cancelBodies(m, "the execution has ended")

	// A server may restart before it stores the end, so the worker keeps the run until the server
	// evicts it.
	if !m.report(end) || sure && !m.w.cfg.OwnerRestarts {
		r.forget()
		return
	}

	m.turnOver(nil, false) // the run stays until the engine accepts the end
}

// endOthers ends all coroutines except the root, the last one first. If functions of Cleanup must
// still run, it also gives up on every pending step and timer, and ends all sections.
func (m *machine) endOthers() {
	for n := m.coroutines.last; n != nil && n.value != m.root; n = m.coroutines.last {
		m.end(n.value)
		m.drop(n.value)
	}

	m.abandonUpdates()
	m.active.Store(m.root)
	m.ready = nil
	m.settleAll()
	if m.hooks == nil || len(m.hooks.cleanup) == 0 {
		return // the other coroutines end with the run
	}

	var pending []*ask
	for a := range m.asks.all() {
		if (a.kind == askStep || a.kind == askTimer) && !a.fut.done {
			pending = append(pending, a)
		}
	}

	slices.SortFunc(pending, func(a, b *ask) int { return strings.Compare(a.id, b.id) })
	for _, a := range pending {
		m.giveUp(&a.fut, ErrCanceled)
	}
	m.endSections() // the clean-up may need the locked entities
}
