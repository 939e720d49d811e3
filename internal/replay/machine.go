package replay

import (
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// machine is one execution of the code of a run, from its first line. If something that it took for
// granted does not happen, it is thrown away and another machine begins. Only the goroutine that
// holds the baton may use it, except for atomic fields.
type machine struct {
	w *Worker
	r *run

	// error of a durable call on a goroutine of users that could not return it
	astray atomic.Pointer[error]
	active atomic.Pointer[Coroutine] // executes user code; nil while no coroutine does
	since  atomic.Int64              // tick of the last resume, for the watchdog
	// goroutines that have ended on request; made for the first one
	gone chan *Coroutine

	root       *Coroutine
	coroutines list[*Coroutine] // in order of creation
	alive      int
	ready      []*Coroutine
	readyBuf   []*Coroutine // the array behind ready
	// waits for the commit of the commands that the code ran ahead of; no other coroutine may run
	settling  *Coroutine
	rootScope *Scope
	panics    []*Future // of coroutines that panicked
	cleanup   []cleanup

	fed     int          // events that have been fed
	seen    atomic.Int64 // the same, for other goroutines
	now     atomic.Int64 // journal time
	sub     int64        // orders resolutions at one position
	live    bool         // the end of the history was reached
	examine bool         // a mismatch is examined: keep source positions

	// For Checks.Twice.
	twin   *twin // what the machine before this one had asked for
	again  bool  // it is thrown away so that another one can be compared with it
	proven int   // at this many events plus 1, the code was found to ask for the same twice

	asks        map[string]*ask
	buf         []byte
	unconfirmed []*ask // asked for before the end of the history
	// reported by an earlier machine of this activation, certain to come
	inflight map[string]struct{}
	early    map[string][]int // events that the code has not asked for yet, by identity
	// today's identity of early events whose input is encoded differently today
	renamed map[string]string
	alias   map[string]*ask       // the reverse, for asks that were found in this way
	strays  map[kindName][]string // early identities that could not be renamed yet
	// records of children without a key, once the code asked for one before the end of the history
	kids        map[string]*model.Event
	foreseen    map[string]struct{} // names of children whose records have got today's identities
	normalizers map[kindName]Normalize

	signals     map[string]*signalQueue
	inbox       *Inbox // of event-driven code
	promises    map[string]*promise
	updates     map[string]*updateQueue
	handling    []*handling // updates whose handlers have begun and not answered, in order
	begun       []int64     // positions of updates whose handlers were cut off
	queries     map[string]QueryHandler
	states      map[string]model.Payload
	interrupts  []func(Ctx, string) error // to run when the execution is cancelled
	interrupted []*Future                 // futures of interrupts that have begun
	children    map[model.Address]*ask
	sections    []*section // sections that are open
	dirtyScopes []*Scope
	canceled    *model.Failure // the cancel request, once fed

	weighed int // events that are counted in bytes
	bytes   int // of the history; see weight
	// length of the history from which on the run should continue as new; 0 while unknown
	suggested int64

	toStart  []*ask         // steps whose body must run
	missing  int            // steps without code here
	versions map[string]int // chosen, by change
	// labels are the labels of the execution after what the code has asked for so far. strayLabels
	// are recorded and not asked for yet.
	labels      []model.Label
	strayLabels map[string]bool
	// a mark is among the commands: nothing that depends on it may be reported before
	marks bool
	// landed says that the event of outcome has been fed: the engine is done with it
	landed   bool
	commands []model.Command
	// outcome is the only command of the last turn, if that is the outcome of a step. The next turn
	// uses its memory once it has landed.
	outcome  *[1]model.Command
	unsealed []unsealed
	authors  []*ask // of the commands that are recorded
	aheadN   int    // commands of the unreported turn that the code ran ahead of
	ahead    []*ask // asks that the code ran ahead of and whose events were not fed yet, in order
	aheadBuf []*ask // the array behind ahead
	// outstanding counts events that were reported and have not been fed.
	outstanding atomic.Int64
	// skipped counts attempts that were due and did not begin here, because the worker is leaving.
	skipped    atomic.Int64
	untold     bool // code has run since the waits were last reported
	unsure     bool // an attempt waits, and its gate does not say yet for what
	tell       bool // report the waits, however short they may be
	unanswered bool // there was news since the last report

	doom   *model.Reason // the code does not fit the history, or cannot run
	misfit int64         // position of the event that the doom is about; 0 if it is about none
	broken bool          // the code ran ahead of a command that was not applied
	closed bool          // the end of the run was reported
}

// newMachine returns a machine whose root coroutine is ready to run.
func newMachine(r *run) *machine {
	parts := new(struct { // everything that a machine needs, in one allocation
		machine machine
		scope   Scope
		root    Coroutine
		ready   [1]*Coroutine
		start   [1]*ask
		buf     [48]byte
	})

	m := &parts.machine
	m.w, m.r, m.asks = r.w, r, make(map[string]*ask, 8)
	m.now.Store(int64(r.start.Awake()))
	m.examine = r.w.cfg.Checks != nil
	m.labels = r.start.Labels
	m.rootScope, m.root, m.readyBuf = &parts.scope, &parts.root, parts.ready[:0]
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
		m.ready = m.readyBuf
	}
	m.ready = append(m.ready, c)
}

// position returns where the code stands: the last event that it was fed or took for granted.
func (m *machine) position() int64 { return int64(m.fed + len(m.ahead)) }

// clock returns the journal time, or an estimate if the code has run ahead of it.
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

// The holder of the baton calls turnOver when it has nothing to execute. The holder is a coroutine
// that parks (self), a coroutine that is over, or a guest from outside, which may not block. It
// reports true when self may continue. Otherwise the baton has been passed on or laid down, and the
// caller must no longer touch the machine.
func (m *machine) turnOver(self *Coroutine, guest bool) bool {
	m.active.Store(nil)
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
// the baton is gone.
func (m *machine) advance(guest bool) bool {
	r := m.r
	switch {
	case !r.collect():
		if m.alive == 0 {
			r.unload() // there is no goroutine to wait for
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
			// Facts first: the engine must have them before the code forgets them.
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
		if len(m.ahead) == 0 && r.hasQueries() {
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

// flush reports the turn. A guest must not block, so it hands the baton to the root coroutine for
// that.
func (m *machine) flush(guest bool) bool {
	if guest {
		m.root.signal <- wakeDrive
		return false
	}
	if !m.seal() {
		return true // it is blocked
	}
	return m.report(nil)
}

// report sends the turn. It reports false, without the baton, when the engine no longer accepts
// reports of this run.
func (m *machine) report(end *model.Close) bool {
	t := model.Turn{
		Run: m.r.start.Run, Generation: m.r.generation, Seen: int64(m.fed),
		Commands: m.commands, Ahead: m.aheadN, Close: end, Running: m.r.running.Load() > 0 || m.root.inline != nil,
	}

	if end == nil && m.settling == nil {
		m.unsure = false
		t.Waits = m.currentWaits()
		m.untold, m.tell = false, false
		m.r.remember(t.Waits, m.unsure)
	}

	m.outcome, m.landed = nil, false
	// With an owner that may restart, the run keeps its commands until they are confirmed.
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
