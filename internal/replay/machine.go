package replay

import (
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// machine is one execution of the code of a run, from its first line. The code may run ahead of
// events that it expects. If another event comes instead, the worker throws the machine away and
// starts a new one. Only the goroutine that holds the baton may use a machine, except for atomic
// fields.
type machine struct {
	w *Worker
	r *run

	// the error of a durable call on a goroutine of user code, if that call has no error result
	astray atomic.Pointer[error]
	active atomic.Pointer[Coroutine] // the coroutine that executes user code, or nil
	since  atomic.Int64              // tick of the last resume, for the watchdog
	// receives coroutines whose goroutines have ended on request; created when first needed
	gone chan *Coroutine

	root       *Coroutine
	coroutines list[*Coroutine] // in order of creation
	alive      int
	ready      []*Coroutine
	readyRoom  [1]*Coroutine // room for the first of them
	// the coroutine that waits for the commit of what the code ran ahead of; no other coroutine may
	// run
	settling  *Coroutine
	rootScope *Scope
	panics    []*Future // futures of coroutines that panicked
	hooks     *hooks    // nil while the code has none

	fed  int          // events that have been fed
	seen atomic.Int64 // a copy of fed, for other goroutines
	now  atomic.Int64 // time of the last event that was fed
	sub  int64        // orders futures that are resolved at the same position

	// The flags stand together to save memory.
	live    bool // the end of the history was reached
	examine bool // a mismatch is examined: keep source positions
	// for Checks.Twice: the worker throws this machine away, to compare the next machine with it
	again bool
	// the commands include a version mark: nothing that depends on the mark may be reported before
	// the mark
	marks bool
	// landed says that the event of outcome has been fed, so the engine no longer uses the memory
	// of outcome
	landed     bool
	untold     bool // code has run since the waits were last reported
	unsure     bool // an attempt waits at the gate, which does not know the reason yet
	tell       bool // report the waits, even if they may be short
	unanswered bool // events have arrived since the last report
	broken     bool // the code ran ahead of a command that was not applied
	closed     bool // the end of the run was reported

	// For Checks.Twice.
	twin   *twin // what the machine before this one had asked for
	proven int   // 1 + the number of events after which both executions asked for the same things

	asks        asks
	buf         []byte
	unconfirmed []*ask // asks of the code before the end of the history
	// identities whose events an earlier machine of this activation has reported; these events will
	// arrive
	inflight map[string]struct{}
	early    map[string][]int // events that the code has not asked for yet, by identity
	// today's identity of early events whose input is encoded differently today
	renamed map[string]string
	alias   map[string]*ask       // asks that were found with renamed, by their recorded identity
	strays  map[kindName][]string // early identities that could not be renamed yet
	// the records of children without a key; the machine fills the map when the code first asks for
	// such a child during replay
	kids        map[string]*model.Event
	foreseen    map[string]struct{} // names of children whose records are in renamed
	normalizers map[kindName]Normalize

	signals     map[string]*signalQueue
	inbox       *Inbox // the inbox of event-driven code
	promises    map[string]*promise
	updates     map[string]*updateQueue
	served      *servedUpdates // nil before a handler of an update begins
	queries     map[string]QueryHandler
	states      map[string]model.Payload
	children    map[model.Address]*ask
	sections    []*section // sections that are open
	dirtyScopes []*Scope
	canceled    *model.Failure // the cancel request, once it has been fed

	weighed int // events that are counted in bytes
	bytes   int // bytes of these events; see weight
	// once the history has this length, the run should continue as new; 0 while unknown
	suggested int64

	toStart  []*ask         // steps whose body must run
	missing  int            // steps without code here
	versions map[string]int // chosen versions, by change
	// labels are the labels of the execution after the changes that the code has asked for so far.
	// strayLabels are labels in the history that the code has not asked for yet.
	labels      []model.Label
	strayLabels map[string]bool
	commands    []model.Command
	// outcome is the only command of the last turn, if that command is the outcome of a step. When
	// its event has been fed (see landed), the next turn reuses the memory.
	outcome  *[1]model.Command
	unsealed []unsealed
	authors  []*ask // the asks behind the commands that are recorded
	aheadN   int    // commands of the unreported turn that the code ran ahead of
	ahead    []*ask // asks that the code ran ahead of and whose events were not fed yet, in order
	aheadBuf []*ask // the array behind ahead
	// outstanding counts events that were reported and have not been fed.
	outstanding atomic.Int64
	// skipped counts attempts that were due, but did not begin because the worker is leaving.
	skipped atomic.Int64

	doom   *model.Reason // the code does not fit the history, or cannot run
	misfit int64         // position of the event that doom is about; 0 if it is about no event
}

// newMachine returns a machine whose root coroutine is ready to run.
func newMachine(r *run) *machine {
	parts := new(struct { // everything that a machine needs, in one allocation
		machine machine
		scope   Scope
		root    Coroutine
		start   [1]*ask
		buf     [48]byte
	})

	m := &parts.machine
	m.w, m.r = r.w, r
	m.now.Store(int64(r.start.Awake()))
	m.examine = r.w.cfg.Checks != nil
	m.labels = r.start.Labels
	m.rootScope, m.root = &parts.scope, &parts.root
	m.toStart, m.buf = parts.start[:0], parts.buf[:0]
	m.rootScope.m = m
	m.root.m, m.root.scope, m.root.signal = m, m.rootScope, make(chan wake, 1)
	m.coroutines.push(&m.root.link, m.root)
	m.alive = 1
	m.makeReady(m.root)
	m.carryStates()

	return m
}

// makeReady puts a coroutine at the end of the ready line.
func (m *machine) makeReady(c *Coroutine) {
	if len(m.ready) == 0 {
		m.ready = m.readyRoom[:0]
	}
	m.ready = append(m.ready, c)
}

// position returns the position of the last event that the code was fed or has run ahead of.
func (m *machine) position() int64 { return int64(m.fed + len(m.ahead)) }

// clock returns the time of the last event, or an estimate if the code has run ahead.
func (m *machine) clock() model.Time {
	now := model.Time(m.now.Load())
	if len(m.ahead) > 0 {
		now = max(now, m.r.clock())
	}
	return now
}

// drop takes a finished coroutine out of the machine.
func (m *machine) drop(c *Coroutine) {
	c.link.remove()
	m.alive--
}

// turnOver finds the next work for the baton. The holder of the baton calls turnOver when the
// holder has nothing to execute. The holder is a coroutine that parks (self), a coroutine that is
// over, or a guest. A guest is a goroutine that brings events from outside; it may not block.
// turnOver reports true when self may continue. Otherwise turnOver has passed the baton on or given
// it up, and the caller must no longer touch the machine.
func (m *machine) turnOver(self *Coroutine, guest bool) bool {
	m.active.Store(nil)
	m.w.stir()
	for {
		if c := m.next(); c != nil {
			m.since.Store(m.w.tick.Load())
			m.active.Store(c)
			m.untold = true
			if c == self {
				return true
			}
			c.resume()
			return false
		}
		if !m.advance(guest) {
			return false
		}
	}
}

// next returns the coroutine whose turn it is.
func (m *machine) next() *Coroutine {
	if m.doom != nil || m.broken {
		return nil
	}

	if c := m.settling; c != nil {
		if len(m.ahead) > 0 {
			return nil
		}
		m.settling = nil
		return c
	}

	for len(m.ready) > 0 {
		c := m.ready[0]
		m.ready[0] = nil
		m.ready = m.ready[1:]
		if !c.dying.Load() {
			return c
		}
	}

	return nil
}

// advance does the next thing that is due while every coroutine is parked. It reports false when
// the caller no longer has the baton.
func (m *machine) advance(guest bool) bool {
	r := m.r
	switch {
	case !r.collect():
		if m.alive == 0 {
			r.unload() // no goroutine has to be ended
		} else {
			r.retire(r.unload)
		}
		return false
	case m.broken:
		r.retire(r.restart)
		return false
	case m.doom != nil:
		r.retire(r.block)
		return false
	case m.fed < len(r.events):
		if m.aheadN > 0 {
			// Report outcomes first: the engine must have them before the machine is thrown away.
			return m.flush(guest)
		}
		if !m.closed || len(m.ahead) > 0 {
			m.feed()
			m.reachEnd()
			return true
		}
	case m.closed:
	case m.settling != nil:
		if len(m.commands) > 0 {
			return m.flush(guest)
		}
	case !m.live:
		m.reachEnd()
		if !m.live && m.doom == nil {
			m.mismatchAtEnd()
		}
		return true
	case m.doubtful():
		return m.prove()
	case m.marks && len(m.ahead) == 0:
		return m.flush(guest)
	case m.startSteps():
		return true
	default:
		m.syncTimers()
		if len(m.commands) > 0 || m.untold && (m.tell || m.worthTelling()) || m.unanswered && (m.tell || m.atRest()) {
			return m.flush(guest)
		}
		if m.isCommitted() && r.hasQueries() {
			r.retire(r.answerQueries)
			return false
		}
	}

	return !r.layDown()
}

// reachEnd makes the machine live once the whole history is fed and nothing in it is left over.
func (m *machine) reachEnd() {
	if !m.live && m.doom == nil && m.fed == len(m.r.events) {
		m.goLive()
	}
}

// flush reports the turn. If the caller is a guest, which must not block, flush hands the baton to
// the root coroutine, which reports the turn.
func (m *machine) flush(guest bool) bool {
	if guest {
		m.root.signal <- wakeDrive
		return false
	}
	if !m.seal() {
		return true // the run is blocked
	}
	return m.report(nil)
}

// report sends the turn. If the engine refuses the turn, report returns false. In that case it has
// also given up the baton, unless the turn ends the run.
func (m *machine) report(end *model.Close) bool {
	t := model.Turn{
		Run: m.r.start.Run, Generation: m.r.generation, Seen: int64(m.fed),
		Commands: m.commands, Ahead: m.aheadN, Close: end, Running: m.r.hasUnreported() || m.root.inline != nil,
	}

	if end == nil && m.settling == nil {
		m.unsure = false
		t.Waits = m.currentWaits()
		m.untold, m.tell = false, false
		m.r.remember(t.Waits, m.unsure)
	}

	m.outcome, m.landed = nil, false
	// If the owner may restart, the run keeps its commands until the owner confirms them, so their
	// memory cannot be reused.
	if c := m.commands; len(c) == 1 && c[0].Kind == model.CommandRecord && isOutcome(&c[0]) && !m.w.cfg.OwnerRestarts {
		m.outcome = (*[1]model.Command)(c)
	}
	m.commands, m.aheadN, m.marks, m.unanswered = nil, 0, false, false
	for _, a := range m.authors {
		a.expect.Add(1)
	}
	m.outstanding.Add(int64(len(m.authors)))
	m.authors = m.authors[:0]

	if m.w.cfg.OwnerRestarts {
		m.r.mu.Lock()
		m.r.noteSent(t.Commands)
		m.r.mu.Unlock()
	}
	if err := m.w.report(t); err != nil {
		m.r.logRefused(err)
		if end == nil {
			m.r.retire(m.r.unload)
		}
		return false
	}

	return true
}

// clockFrom estimates the owner's clock.
func clockFrom(owner model.Time, at time.Time) model.Time { return owner.Add(time.Since(at)) }
