package replay

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// run is a run that the worker holds: its history, its mailbox, and the machine that executes its
// code. The fields above the mutex belong to the goroutine that holds the baton. The baton is the
// right to execute. It is not stored as a value; busy says that a goroutine has it.
type run struct {
	w          *Worker
	start      *model.Start // the start in the activation; never changed
	generation uint64
	code       Code
	limits     model.HistoryLimits
	ownerNow   model.Time // the owner's clock at activation
	activated  time.Time
	m          *machine
	// The history so far. The event at index n has position n+1. The engine shares these events, so
	// they are never changed.
	events []*model.Event
	room   [4]*model.Event // room for the first of them
	// The events up to this position are durable. The worker has a preview of the others; see
	// preview.go.
	durable int64
	// drops maps the position of each signal that an operator dropped to the index of the event
	// before which the signal disappears; see drop.go
	drops map[int64]int

	mail     atomic.Bool  // there is something in the mailbox
	begun    bool         // the code of the run has run before
	bodies   atomic.Int64 // running step bodies, without the inline one
	running  atomic.Int64 // running step bodies whose outcome is wanted
	lastUsed atomic.Int64 // tick, for idleness

	mu       sync.Mutex
	busy     bool
	evicted  bool
	flushing bool
	// vague says that the last turn reported a running body only because a coroutine had the baton.
	// When the coroutine gives up the baton, it reports again.
	vague    bool
	released bool // the worker has asked the engine to take the run back
	retell   bool // report the waits again: a step has passed the gate, or the waits were unsure
	// For runs that come back; see adopt.go.
	lost     bool // the owner has lost the session with this worker
	unloaded bool // this worker no longer has the run

	confirmed int64 // like durable, with what has arrived since
	inbox     []*model.Event
	inboxRoom [1]*model.Event // room for the first of them
	retries   []string
	queries   []model.Query
	cause     string
	inline    *ask // the step whose body runs on the goroutine of its coroutine
	done      []model.Command
	authors   []*ask
	told      []model.Reason // the waits that were last reported
	stuck     int64          // tick of the resume that was reported as stuck, plus 1
	since     int64          // tick when the inline body began, plus 1; 0 when that was reported

	// For runs whose owner may restart; see adopt.go.
	sent []*model.Command // outcomes that were reported and are not confirmed
	// the next activation of the run, which waits for the end of this one
	successor   *run
	predecessor atomic.Pointer[run] // the activation that this one waits for
}

func newRun(w *Worker, a *model.Activation, code Code) *run {
	r := &run{
		w: w, start: a.Start, generation: a.Generation, code: code, begun: a.Begun, limits: a.Limits, ownerNow: a.Now, activated: time.Now(),
		busy: true,
	}
	r.events, r.inbox = pointers(r.room[:0], a.Events), r.inboxRoom[:0]
	r.durable, r.confirmed = int64(len(a.Events)), int64(len(a.Events))
	r.lastUsed.Store(w.tick.Load())
	for _, e := range r.events {
		r.noteDrop(e)
	}
	r.m = newMachine(r)
	return r
}

func pointers(to []*model.Event, events []model.Event) []*model.Event {
	to = slices.Grow(to, len(events))
	for i := range events {
		to = append(to, &events[i])
	}
	return to
}

// clock estimates the owner's clock.
func (r *run) clock() model.Time { return clockFrom(r.ownerNow, r.activated) }

// begin starts the machine. The caller holds the baton, and begin passes it on.
func (r *run) begin() {
	r.m.reachEnd()
	r.m.turnOver(nil, true)
}

// ---- the mailbox

// deliver puts events into the mailbox. If no goroutine holds the baton, the caller takes it and
// feeds the events itself, up to the point where code must run.
func (r *run) deliver(events []model.Event, durable bool) {
	r.mu.Lock()
	if r.evicted {
		r.mu.Unlock()
		return
	}
	r.inbox = pointers(r.inbox, events)
	if durable {
		r.confirmed = events[len(events)-1].Seq
	}
	r.released = false
	for i := range events {
		if events[i].Kind == model.EventCancelRequest {
			r.cancelInlineLocked()
			defer r.forPredecessors((*run).cancelInlineLocked)
		}
	}
	r.wakeLocked()
}

// retry notes that the back-off of a step is over. If the worker has asked the engine to take the
// run back, retry only keeps the note, and uses it if the engine leaves the run here. If the engine
// takes the run back, it hands the step out again. If the attempt had begun here too, it would run
// twice.
func (r *run) retry(id string) {
	r.mu.Lock()
	r.retries = append(r.retries, id)
	if r.released {
		r.mu.Unlock()
		return
	}
	r.wakeLocked()
}

// evict unloads the run as soon as its code parks.
func (r *run) evict(cause string) {
	r.mu.Lock()
	r.evictLocked(cause)
}

// evictLocked is evict with the lock held. It unlocks the run.
func (r *run) evictLocked(cause string) {
	r.evicted, r.cause = true, cause
	r.wakeLocked()
}

// wakeLocked takes the baton if it is free, and uses it. The caller holds the lock, and wakeLocked
// unlocks it.
func (r *run) wakeLocked() {
	r.mail.Store(true)
	r.lastUsed.Store(r.w.tick.Load())
	if r.busy {
		r.mu.Unlock()
		return
	}
	r.busy = true
	r.mu.Unlock()
	r.m.turnOver(nil, true)
}

// collect takes events out of the mailbox. It reports false when the run must be unloaded.
func (r *run) collect() bool {
	if !r.mail.Load() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()

	for _, e := range r.inbox {
		if want := int64(len(r.events)) + 1; e.Seq == want {
			r.events = append(r.events, e)
			r.noteDrop(e)
			r.noteConfirmed(e)
		} else if e.Seq > want {
			r.m.doom = &model.Reason{Code: model.WaitCorrupt, Detail: "event " + itoa(int(e.Seq)) + " came where " + itoa(int(want)) + " belongs"}
		}
	}

	r.durable = r.confirmed
	clear(r.inbox)
	r.inbox = r.inbox[:0]
	r.mail.Store(len(r.retries)+len(r.queries) > 0)
	return !r.evicted
}

// takeRetries takes the steps whose back-off is over out of the mailbox.
func (r *run) takeRetries() []string {
	if !r.mail.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := r.retries
	r.retries = nil
	r.mail.Store(len(r.inbox)+len(r.queries) > 0 || r.evicted || r.confirmed != r.durable)
	return ids
}

// layDown gives up the baton, unless there is mail or the waits must be reported again. It reports
// whether it gave up the baton. Retries stay in the mailbox until the code may run steps again.
func (r *run) layDown() bool {
	r.mu.Lock()
	m := r.m
	if len(r.inbox) > 0 || r.evicted || r.durable != r.confirmed ||
		m.live && !m.closed && m.settling == nil && (len(r.retries) > 0 || len(r.queries) > 0 && m.isCommitted()) {
		r.mu.Unlock()
		return false
	}

	if r.vague && !m.closed && m.live {
		r.vague, m.untold, m.tell = false, true, true
		r.mu.Unlock()
		return false
	}

	r.busy = false
	c := r.w.cfg.Checks
	if !r.released && (r.w.draining.Load() && m.quiet() || c != nil && c.Twice && m.idle()) {
		r.releaseLocked()
		return true
	}

	r.mu.Unlock()
	return true
}

// giveBackLocked releases a parked run if its worker is leaving, no body of the run runs, and the
// engine has delivered every event that the worker has reported. Otherwise the worker releases the
// run later, when these conditions hold. giveBackLocked unlocks the run.
func (r *run) giveBackLocked() {
	if !r.w.draining.Load() || r.busy || r.released || r.evicted || len(r.inbox) > 0 || !r.m.quiet() {
		r.mu.Unlock()
		return
	}
	r.releaseLocked()
}

// releaseLocked asks the engine to take the run back. No goroutine holds the baton. releaseLocked
// unlocks the run. If the run is not idle, the worker gives it back without a report of its waits.
func (r *run) releaseLocked() {
	r.released = true
	seen := int64(r.m.fed)
	var waits []model.Reason
	if r.m.idle() {
		waits = r.m.currentWaits()
	} // otherwise the run could continue, but not on this worker
	r.mu.Unlock()
	r.w.session.Load().s.Release(r.start.Run, r.generation, seen, waits)
}

// remember keeps the waits that were last reported. Turns that do not change the waits repeat them.
// If the waits are unsure, the janitor reports them again.
func (r *run) remember(waits []model.Reason, unsure bool) {
	r.mu.Lock()
	r.told, r.retell = waits, r.retell || unsure
	r.mu.Unlock()
}

// ---- ending

// retire passes the baton to a new goroutine that ends or replaces the machine.
func (r *run) retire(end func()) {
	r.w.goroutines.Go(end)
}

// unload ends the activation of the run on this worker.
func (r *run) unload() {
	r.keepAttempts()
	r.m.unload()
	r.forget()
	r.w.flush()

	r.mu.Lock()
	r.unloaded = true
	next := r.successor
	r.mu.Unlock()
	if next == nil {
		return
	}
	next.predecessor.Store(nil)
	next.begin()
}

// restart throws the machine away and replays. The events that the old machine has reported will
// still arrive.
func (r *run) restart() {
	old := r.m
	old.unload()
	m := newMachine(r)
	m.examine = old.examine
	if old.again {
		m.twin = &twin{old.fed, old.asks}
	}
	m.inflight = old.inflight
	if m.inflight == nil {
		m.inflight = map[string]struct{}{}
	}
	for _, a := range old.ahead {
		m.inflight[a.id] = struct{}{}
	}
	r.mu.Lock()
	r.m = m
	r.mu.Unlock()
	r.begin()
}

// block reports that the code does not fit the history, and unloads the run. If the worker noticed
// this during a replay, block first replays the code once more to find source positions, because a
// normal execution does not keep them.
func (r *run) block() {
	m := r.m
	if !m.examine && !m.live && m.doom.Code == model.WaitMismatch {
		m.examine = true
		r.restart()
		return
	}
	r.reportMistake(true, m.doom.String())
	r.cancelBodies(m, "the execution is blocked")
	m.unload()
	t := model.Turn{Run: r.start.Run, Generation: r.generation, Seen: int64(min(m.fed, len(r.events))), Blocked: m.doom}
	if err := r.w.report(t); err != nil {
		r.logRefused(err)
	}
	r.forget()
}

// forget takes the run out of the worker.
func (r *run) forget() {
	r.mu.Lock()
	r.evicted = true
	r.mu.Unlock()
	r.w.forget(r)
}

// logRefused logs that the engine has refused a report.
func (r *run) logRefused(err error) {
	if !errors.Is(err, context.Canceled) {
		r.w.cfg.Logger.Debug("report refused", "run_id", r.start.Run.String(), "error", err)
	}
}
