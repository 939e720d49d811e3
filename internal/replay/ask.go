package replay

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// ask is one request of the code, such as a step or a timer, with its identity and its state.
type ask struct {
	fut  Future
	id   string // as in the history; see also machine.alias
	name string
	// position is file:line of the call. It is known if the call was made at the end of the
	// history, or while a mismatch is examined.
	position string
	repeats  int // how many later asks have the same identity

	step *Step // the step of askStep
	// for askStep, the task, if a queue executes the step; nil when its body runs here. See task.go
	task   *model.TaskSpec
	caller *Coroutine // the coroutine whose call asked for the step and waits for it

	// for askLock, the section that it opens; for askStep and askSend, the section around it
	section *section
	// what it is about; nil for askStep, which has a Step
	*subject
	// the request that goes to the engine at the end of the history, unless the history has a
	// record of it
	pending *model.Command

	// Small fields stand together to save memory, because every step allocates an ask. Eight more
	// bytes would move an ask to the next size class of the allocator, which has 32 bytes more.
	kind       askKind
	state      stepState
	cancelable bool // a cancel request ends the wait of caller
	// the history has its own record (child started, task scheduled, signal taken, sent)
	recorded  bool
	requested bool // of a task: the worker has asked the engine for it
	withdrawn bool // the code gave up on it
	gone      bool // the history has the withdrawal
	confirmed bool
	// Guarded by the mutex of the run:
	launched bool // its body runs on a goroutine of its own, or waits in line
	dropped  bool // the outcome of the running body is no longer wanted

	// expect counts the events that the worker has reported for it and that the engine has not
	// delivered yet.
	expect atomic.Int32

	attempt int // failed attempts so far
	due     model.Time
	failed  *failedAttempt // the last attempt; nil when none has failed

	// passage belongs to an attempt that waits for limits or breakers, until its body begins.
	passage atomic.Pointer[passage]

	// Guarded by the mutex of the run.
	body    *StepContext // context of the running attempt
	hurried error        // why the code gave up on a step that settles; see settle.go
	kept    *keptAttempt // gets the outcome of the body if the owner of the run was lost
}

// subject says what an ask is about. An ask for a step has no subject.
type subject struct {
	deadline *Scope        // of askScope: the scope
	ref      int64         // of askTaken: the position of the signal
	target   model.Address // of askChild, askWatch, askSend: the receiver
	length   time.Duration // of askTimer: the duration in the code
	value    string        // of askState and askLabel: the value, only for Checks
	seal     Seal          // gives the payload its stored form; nil when it needs none
}

// failedAttempt is the last failed attempt of a step.
type failedAttempt struct {
	text  string         // the error
	final *model.Failure // ends the step, but is not settled yet; see settle.go
}

// stepState is how far a step has come in this activation.
type stepState uint8

const (
	stepAsked   stepState = iota
	stepRunning           // its body runs, or the worker has reported its outcome
	stepBackoff           // waits for the next attempt
)

// newAsk creates the ask for a request of the code. If there are equal asks, it numbers them.
func (m *machine) newAsk(path string, id *identity) *ask {
	a := &ask{kind: id.kind, name: id.name}
	if a.kind != askStep {
		a.subject = new(subject)
	}
	a.fut.m, a.fut.ask = m, a
	m.buf = id.append(m.buf[:0], path)

	earlier := m.asks.get(m.buf)
	if earlier != nil {
		earlier.repeats++
		m.buf = appendOccurrence(m.buf, earlier.repeats)
	}

	a.id = string(m.buf)
	m.asks.put(a)
	if m.live || m.examine {
		a.position = m.w.positions.of(id.caller)
		if earlier != nil && a.kind == askStep && !id.hashed && !id.keyed && a.position == earlier.position {
			m.w.warnLoop(a)
		}
	}

	return a
}

// request asks the engine for something. At the end of the history it asks immediately. Before
// that, it waits until the code has got the whole history, and asks only if the history has no
// record of the request.
func (m *machine) request(a *ask, c model.Command) {
	if m.live {
		if !m.wasSent(a) {
			m.command(a, c)
		}
		return
	}
	a.pending = &c
	m.unconfirmed = append(m.unconfirmed, a)
}

// command puts a command into the turn. The ask is the author of the command: the machine updates
// the ask when the command is recorded.
func (m *machine) command(a *ask, c model.Command) {
	if m.commands == nil && m.landed {
		m.commands, m.outcome, m.landed = m.outcome[:0], nil, false
	}
	m.commands = append(m.commands, c)
	if seal := a.sealer(); seal != nil && c.Kind != model.CommandWithdraw {
		m.unsealed = append(m.unsealed, unsealed{len(m.commands) - 1, seal})
	}
	if c.Kind != model.CommandStartTimer && c.Kind != model.CommandStopTimer {
		m.authors = append(m.authors, a)
	}
}

// sealer returns the function that gives the payload of the ask its stored form; nil when the
// payload needs none, or when the command has no ask.
func (a *ask) sealer() Seal {
	switch {
	case a == nil:
		return nil
	case a.kind != askStep:
		return a.seal
	case a.step.Input != nil:
		return a.step.Input.Seal
	}
	return nil
}

// lastFailed returns the last failed attempt; the zero value when none has failed.
func (a *ask) lastFailed() failedAttempt {
	if a.failed == nil {
		return failedAttempt{}
	}
	return *a.failed
}

// withdraw gives up on a step, timer, child or watch.
func (m *machine) withdraw(a *ask) {
	if a.withdrawn || a.fut.done {
		return
	}
	a.withdrawn = true
	if a.kind == askStep && a.state == stepRunning {
		m.r.abandon(a)
	}
	m.serveEarly(a)
	switch {
	case !m.live:
		m.unconfirmed = append(m.unconfirmed, a)
	case !a.gone && a.hasBegun():
		m.command(a, withdrawal(a))
	}
}

// withdrawal returns the command that records that the code gave up.
func withdrawal(a *ask) model.Command {
	return model.Command{Kind: model.CommandWithdraw, Event: model.Event{
		Kind: model.EventWithdrawn, ID: a.id, Name: a.name, Position: a.position,
	}}
}

// goLive makes the machine live at the end of the history. It reports false if the history has a
// record that the code has not asked for. Otherwise all requests without a record are new, and
// goLive sends them.
func (m *machine) goLive() bool {
	if len(m.early) > 0 {
		return false
	}
	m.live = true
	m.pin()
	for _, a := range m.unconfirmed {
		m.confirm(a)
	}
	m.unconfirmed, m.early, m.renamed, m.strays, m.kids, m.foreseen = nil, nil, nil, nil, nil, nil
	return true
}

// pin restricts the run to workers of this version, if the workflow asks for that.
func (m *machine) pin() {
	if m.w.cfg.Version == "" || !m.w.cfg.Pinned[m.r.start.Address.Type] ||
		slices.ContainsFunc(m.r.events, func(e *model.Event) bool { return e.Kind == model.EventPinned }) {
		return
	}
	a := m.newAsk("", &identity{kind: askPin})
	m.request(a, model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventPinned, ID: a.id, Name: m.w.cfg.Version}})
}

// confirm asks the engine for something that the history does not have. A second call for the same
// ask has no effect.
func (m *machine) confirm(a *ask) {
	if a.confirmed {
		return
	}
	a.confirmed = true
	sent := m.wasSent(a)
	pending := a.pending
	a.pending = nil

	switch a.kind {
	case askStep:
		switch {
		case a.task != nil:
			m.confirmTask(a, pending, sent)
		case a.withdrawn || a.fut.done:
		case sent:
			a.state = stepRunning // the worker has reported its outcome
		default:
			m.toStart = append(m.toStart, a)
		}
	case askTimer:
		// Do not ask for a timer that the code has given up. Otherwise every replay would start the
		// timer again, and it would fire without effect.
		if !a.fut.done && !a.withdrawn {
			m.command(a, *pending)
		}
	case askChild, askWatch, askSend, askTaken, askMark, askState, askReply, askPin, askLabel, askLock:
		if !a.recorded && !sent {
			m.command(a, *pending)
		}
		if s := a.section; a.kind == askLock && s.ended && !s.freed && !sent {
			m.command(a, s.unlockCommand())
		}
	case askScope:
	}

	if a.withdrawn && !a.gone && a.hasBegun() {
		m.command(a, withdrawal(a))
	}
}

// wasSent reports whether an earlier machine of this activation has already reported the commands
// of the ask.
func (m *machine) wasSent(a *ask) bool {
	_, ok := m.inflight[a.id]
	return ok
}

// hasBegun reports whether the engine may have received the ask. If the engine may have received
// it, a withdrawal of the ask must be recorded in the history.
func (a *ask) hasBegun() bool {
	return a.kind != askStep || a.state != stepAsked || a.attempt > 0 || a.task != nil && (a.recorded || a.requested)
}
