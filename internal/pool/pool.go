package pool

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/episode"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
)

// Config configures a pool. The zero value of an optional field selects its default.
type Config struct {
	Handlers map[string]Handler // by kind of task; required
	// Slots is the number of tasks that run at the same time. Default 100.
	Slots int
	// Prefetch is the number of claims that the pool takes in advance, before it has a slot for
	// them. Default 0.
	Prefetch int
	// HighLoad and LowLoad are marks for the load: the claims that the pool holds, and lost claims
	// whose handlers still run, as a share of Capacity. When the load reaches the high mark, the
	// pool takes no new claims until the load has fallen to the low mark. The default 0 sets no
	// marks.
	HighLoad, LowLoad float64
	// HighMemory and LowMemory are the same for the memory of the process, as a share of
	// GOMEMLIMIT. Default 0.9 and 0.8; if only the high mark is set, the low mark is eight ninths
	// of it. Without a memory limit they have no effect.
	HighMemory, LowMemory float64
	// Seal converts progress and other values that tasks write to their stored form; nil if the
	// values already have that form.
	Seal func(ctx context.Context, kind string, p model.Payload) (model.Payload, error)
	// Logger receives messages for operators. Default: none.
	Logger *slog.Logger
	// Meter counts and Tracer creates spans; both may be nil.
	Meter  *telemetry.Meter
	Tracer *tracing.Tracer
	// Base is the root of the contexts of all tasks. Default context.Background().
	Base context.Context //nolint:containedctx // the field is a root of contexts

	memory  func() float64 // for tests
	collect func()         // for tests
}

// Intervals and time-outs.
const (
	progressEvery = time.Second      // between two beats that carry progress
	memoryEvery   = 2 * time.Second  // between two looks at the memory
	beatTimeout   = 10 * time.Second // for one call
	grace         = time.Second      // for a handler to return once its context has ended
	leaveTimeout  = 5 * time.Second
	backAfter     = 5 * time.Second // before workers may again claim a task without a handler here
)

// Pool executes tasks. It implements api.TaskWorker; the methods of that interface do not block.
type Pool struct {
	cfg Config
	log *slog.Logger

	ctx     context.Context //nolint:containedctx // ends when the pool is closed
	stop    context.CancelFunc
	joined  chan struct{}  // closed by Serve
	helpers sync.WaitGroup // goroutines that run no handler

	mu      sync.Mutex
	session api.TaskSession
	held    map[model.ClaimRef]*Task // all claims that the engine attributes to this pool
	line    []*Task                  // tasks that wait for a slot
	// busy holds the tasks whose handler runs or whose report is being delivered, including
	// handlers of lost claims.
	busy     map[*Task]struct{}
	lost     int // how many of the busy tasks are lost
	handing  int // reports in flight of claims that never started
	told     int // the capacity that the engine last received
	telling  bool
	paused   bool
	draining bool
	closed   bool
	idle     chan struct{} // closed when no task is busy; set once the pool drains

	load, memory gate
	littered     bool            // a task has ended since the last garbage collection for the gate
	looks        *time.Timer     // the next look at the memory; nil if none is scheduled
	beats        *time.Timer     // the next beat; nil until the first
	beatAt       time.Time       // when the next beat is due; zero if none is
	beatenAt     time.Time       // when the last beat was sent
	beating      chan struct{}   // closed when the beat in flight is over; nil while there is none
	unheard      *episode.Source // failing beats
	unsealed     *episode.Source // progress that cannot be sealed
	unwatch      func()          // nil until Serve
}

// New returns a pool. It accepts claims immediately. Its reports wait for Serve.
func New(cfg Config) *Pool {
	if cfg.Slots <= 0 {
		cfg.Slots = 100
	}
	if cfg.HighMemory <= 0 {
		cfg.HighMemory, cfg.LowMemory = 0.9, 0.8
	}
	if cfg.LowMemory <= 0 { // a low mark of 0 is never reached: the gate would stay shut
		cfg.LowMemory = cfg.HighMemory * 8 / 9
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Base == nil {
		cfg.Base = context.Background()
	}

	if cfg.memory == nil {
		if cfg.memory = memory; cfg.memory() == 0 {
			cfg.HighMemory = 0 // there is no limit, so there is nothing to watch
		}
	}

	if cfg.collect == nil {
		cfg.collect = runtime.GC
	}

	p := &Pool{
		cfg: cfg, log: cfg.Logger, joined: make(chan struct{}), held: map[model.ClaimRef]*Task{}, busy: map[*Task]struct{}{}, told: cfg.Slots + cfg.Prefetch,
		load: gate{high: cfg.HighLoad, low: cfg.LowLoad}, memory: gate{high: cfg.HighMemory, low: cfg.LowMemory},
	}

	p.unheard = episode.New(p.log, "heartbeats of tasks fail; they are sent again", "heartbeats of tasks arrive again").Source()
	p.unsealed = episode.New(p.log, "progress of tasks cannot be stored", "progress of tasks can be stored again").Source()
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Capacity returns how many claims the pool may hold: slots and prefetch together.
func (p *Pool) Capacity() int { return p.cfg.Slots + p.cfg.Prefetch }

// Load returns how many slots are in use: by handlers that run, and by reports that are being
// delivered.
func (p *Pool) Load() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.busy)
}

// Serve gives the pool the session to report to. The caller must call it once.
func (p *Pool) Serve(s api.TaskSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session = s
	p.unwatch = p.cfg.Meter.Watch(p.states)
	close(p.joined)
	p.tellLocked()
	p.armAgain()
}

// ---- api.TaskWorker

// Execute accepts claims.
func (p *Pool) Execute(claims []model.Claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Claims that this pool cannot execute go back to the engine immediately, so that another
	// worker gets them. That uses up no attempt.
	var back []model.TaskReport
	for i := range claims {
		c := &claims[i]
		h, known := p.cfg.Handlers[c.Spec.Kind]
		switch {
		case p.closed || p.held[c.Ref] != nil:
			// the pool is closed, or the engine sent the claim twice
		case p.draining:
			back = append(back, model.TaskReport{Ref: c.Ref, Returned: true})
		case !known:
			p.log.Warn("this worker has no code for a task; it gives the task back", "activity", c.Spec.Kind, "queue", c.Spec.Queue)
			back = append(back, model.TaskReport{Ref: c.Ref, Returned: true, After: backAfter})
		default:
			p.admit(&Task{pool: p, claim: c, run: h, limit: limitOf(c)})
		}
	}

	p.handAll(back)
	p.measure()
}

// admit starts a claim or puts it in line for a slot.
func (p *Pool) admit(t *Task) {
	// A task that was cancelled before it started needs no handler.
	if t.claim.Canceled {
		p.handAll([]model.TaskReport{t.canceledReport()})
		return
	}

	t.received = time.Now()
	t.beaten = t.received
	t.ctx, t.cancel = context.WithCancelCause(p.cfg.Base)
	p.held[t.claim.Ref] = t

	// The line keeps the order of claims: a new claim does not overtake one that waits.
	if len(p.line) == 0 && len(p.busy) < p.cfg.Slots {
		p.start(t)
	} else {
		p.line = append(p.line, t)
	}

	p.armLocked(t.beatDue())
}

// startNext gives free slots to the tasks in line.
func (p *Pool) startNext() {
	for len(p.line) > 0 && len(p.busy) < p.cfg.Slots {
		t := p.line[0]
		p.line[0] = nil
		p.line = p.line[1:]
		p.start(t)
	}
}

// start gives a slot to a task.
func (p *Pool) start(t *Task) {
	t.state = running
	p.busy[t] = struct{}{}
	go p.execute(t)
}

// execute runs a handler and delivers its outcome, however the handler ends.
func (p *Pool) execute(t *Task) {
	var (
		out      model.Payload
		err      error
		returned bool
	)
	defer func() { // runs also if the handler ends its goroutine
		if !returned {
			err = replay.ExitFailure("activity " + t.claim.Spec.Kind)
		}
		p.finish(t, out, err)
	}()
	out, err = t.call()
	returned = true
}

// finish delivers the outcome of a handler unless the claim is lost, and frees the slot.
func (p *Pool) finish(t *Task, out model.Payload, err error) {
	// Ending the context here also stops helpers that the handler left running.
	t.cancel(nil)
	p.mu.Lock()
	defer p.mu.Unlock()

	// A lost task has the state gone: the engine has taken its claim away and ignores its outcome.
	// For other tasks, the pool reports the outcome without the lock, because the engine may block.
	// It sends progress and notes first, because they belong to the claim, and the report ends the
	// claim.
	if t.state == running {
		t.state = reporting
		wrote := t.notes != nil
		p.mu.Unlock()
		if back, ok := errors.AsType[*GiveBack](err); ok && back.Err != nil {
			p.log.Warn("a task is given back", "activity", t.claim.Spec.Kind, "error", model.Cut(back.Err.Error(), model.MaxLogLine))
		}
		r := t.report(out, err)
		if r.Failure != nil || r.Returned {
			p.sendLastProgress(t)
		}
		if wrote {
			p.flushNotes(t)
		}
		p.hand(p.ctx, r)
		p.mu.Lock()
	}

	// The slot is free only now, after the report. So a pool never runs more handlers than it has
	// slots, even while the engine is slow.
	if _, counts := p.busy[t]; !counts { // Close has abandoned the task
		return
	}
	delete(p.busy, t)

	if t.state == gone {
		p.lost--
		p.tellEnd(t.claim.Ref)
	} else {
		p.drop(t)
	}

	p.littered = true
	p.startNext()
	p.measure()
	p.rest()
}

// tellEnd tells the session that the code of a lost claim has ended. It runs without the lock,
// because the session may call the pool.
func (p *Pool) tellEnd(claim model.ClaimRef) {
	if p.closed {
		return // the session has ended
	}
	p.helpers.Go(func() {
		select {
		case <-p.joined:
			p.session.CodeEnded(claim)
		case <-p.ctx.Done():
		}
	})
}

// drop removes a claim from the claims that the pool holds.
func (p *Pool) drop(t *Task) {
	if p.held[t.claim.Ref] == t {
		delete(p.held, t.claim.Ref)
	}
}

// rest closes the idle channel if no task is busy and no report is in flight.
func (p *Pool) rest() {
	if p.idle != nil && len(p.busy) == 0 && p.handing == 0 {
		close(p.idle)
		p.idle = nil
	}
}

// hand delivers a report. It waits for the session first. It returns whether the session has taken
// the report.
func (p *Pool) hand(ctx context.Context, r model.TaskReport) bool {
	select {
	case <-p.joined:
	case <-ctx.Done():
		return false
	}
	err := p.session.Report(ctx, r)
	if err != nil {
		p.log.Debug("the report of a task is refused", "task", r.Ref.String(), "error", err)
	}
	return err == nil
}

// handAll delivers reports of claims whose handlers never started.
func (p *Pool) handAll(reports []model.TaskReport) {
	if len(reports) == 0 || p.closed {
		return
	}
	p.handing++
	p.helpers.Go(func() {
		for i := range reports {
			p.hand(p.ctx, reports[i])
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.handing--
		p.rest()
	})
}

// Stop tells the pool that a claim is lost, or that its task was canceled. The engine ignores the
// report of a lost task. A canceled task may still report.
func (p *Pool) Stop(claim model.ClaimRef, why model.StopReason) {
	p.mu.Lock()
	t := p.held[claim]
	// If code of the claim runs, finish tells the session when it ends.
	if why == model.StopLost && !p.runs(claim) {
		p.tellEnd(claim)
	}
	var cause error
	if t != nil {
		cause = p.stopLocked(t, why)
		p.measure()
	}
	p.mu.Unlock()
	if cause != nil {
		t.cancel(cause)
	}
}

// runs reports whether the handler of a claim runs. The pool may have lost the claim already,
// because a heartbeat has said so.
func (p *Pool) runs(claim model.ClaimRef) bool {
	if t := p.held[claim]; t != nil {
		return t.state == running
	}
	for t := range p.busy {
		if t.claim.Ref == claim && t.state == gone {
			return true
		}
	}
	return false
}

// stopLocked applies a stop. It returns the cause to end the task's context with; nil if the
// context stays. The caller ends the context after it has released the lock.
func (p *Pool) stopLocked(t *Task, why model.StopReason) error {
	was := t.state
	if was == reporting {
		return nil // the handler has returned
	}

	// The handler has not started, so the task leaves the line. A lost claim needs no report.
	if was == waiting {
		p.line = slices.DeleteFunc(p.line, func(o *Task) bool { return o == t })
		p.drop(t)
		t.state = gone
		if why == model.StopCanceled {
			p.handAll([]model.TaskReport{t.canceledReport()})
		}
		return ErrLost
	}

	// A cancelled handler keeps its claim: it may clean up and report an outcome.
	if why == model.StopCanceled {
		return replay.ErrCanceled
	}
	// The engine no longer counts a lost claim, but its handler occupies a slot until it returns.
	// So lost lowers the number of claims that the pool asks for.
	p.drop(t)
	t.state = gone
	p.lost++
	time.AfterFunc(grace, func() { p.warnOverstay(t) })

	return ErrLost
}

// warnOverstay logs a handler that ignores the end of its context. Its slot stays occupied.
func (p *Pool) warnOverstay(t *Task) {
	p.mu.Lock()
	_, runs := p.busy[t]
	p.mu.Unlock()
	if runs {
		p.log.Warn("a task ignores the end of its context; its slot stays occupied", "activity", t.claim.Spec.Kind, "attempt", t.claim.Attempt)
	}
}

// Settle receives the outcome of a report. It logs why the engine ignores a report.
func (p *Pool) Settle(claim model.ClaimRef, err error) {
	if err != nil {
		p.log.Info("the engine ignores the outcome of a task", "task", claim.String(), "error", err)
	}
}

// ---- pressure

// measure updates the levels after a change.
func (p *Pool) measure() {
	p.load.level(float64(len(p.held)+p.lost) / float64(p.Capacity()))
	if p.looks == nil && p.memory.high > 0 && !p.closed && (len(p.held) > 0 || p.memory.shut) {
		p.looks = time.AfterFunc(memoryEvery, p.look)
	}
	p.tellLocked()
}

// look checks the memory. It repeats while the pool holds claims or its gate is shut.
func (p *Pool) look() {
	v := p.cfg.memory()
	if p.mayBeGarbage(v) {
		p.cfg.collect()
		v = p.cfg.memory()
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks = nil
	was := p.memory.shut
	p.memory.level(v)

	switch {
	case p.memory.shut && !was:
		p.log.Warn("the memory of the process is full; the pool takes no further tasks", "share", v)
	case was && !p.memory.shut:
		p.log.Info("the process has memory again; the pool takes tasks", "share", v)
	}

	p.measure()
}

// mayBeGarbage reports whether to collect garbage before the gate uses the level. If garbage shut
// the gate, the pool would take no tasks although there is room. If the gate is shut, only a
// collection can open it again: a process that takes no tasks allocates nothing, so the runtime
// would never collect what the last tasks left behind.
func (p *Pool) mayBeGarbage(v float64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory.shut && (!p.littered || v <= p.memory.low) || !p.memory.shut && v < p.memory.high {
		return false
	}
	p.littered = false
	return true
}

// Pause stops taking tasks until Resume. Running tasks continue.
func (p *Pool) Pause() { p.pause(true) }

// Resume undoes Pause.
func (p *Pool) Resume() { p.pause(false) }

func (p *Pool) pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = on
	p.measure()
}

// want returns how many claims the pool may hold now.
func (p *Pool) want() int {
	// When the number falls, the engine does not take claims back. It only sends no new claims.
	if p.draining || p.paused || p.load.shut || p.memory.shut {
		return 0
	}
	return max(p.Capacity()-p.lost, 0)
}

// tellLocked tells the engine how many claims the pool may hold, if that has changed. It does so on
// another goroutine, because the engine may be calling the pool at this moment.
func (p *Pool) tellLocked() {
	if p.telling || p.closed || p.session == nil || p.want() == p.told {
		return
	}
	p.telling = true

	// Only one goroutine at a time runs this loop. So the numbers reach the engine in order, and
	// the last number is the current one.
	p.helpers.Go(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for p.want() != p.told {
			n := p.want()
			p.told = n
			p.mu.Unlock()
			p.session.Slots(n)
			p.mu.Lock()
		}
		p.telling = false
	})
}
