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

// Config is what a pool works with. The zero value of each optional field is its default.
type Config struct {
	Handlers map[string]Handler // by kind
	// Slots is how many tasks run at once. Default 100.
	Slots int
	// Prefetch is how many more are claimed before there is a slot for them. Default none.
	Prefetch int
	// HighLoad and LowLoad are shares of what it may hold: at the high one it takes nothing more,
	// until it has come down to the low one. Default: no marks.
	HighLoad, LowLoad float64
	// HighMemory and LowMemory are the same for the memory of the process, as a share of its limit.
	// Default 0.9 and 0.8, or eight ninths of the high one; without a limit they mean nothing.
	HighMemory, LowMemory float64
	// Seal gives progress and other values that tasks write their stored form; nil when they have
	// it.
	Seal func(ctx context.Context, kind string, p model.Payload) (model.Payload, error)
	// Logger hears what an operator should know. Default: nobody.
	Logger *slog.Logger
	// Meter counts and Tracer makes spans; nil when nobody looks.
	Meter  *telemetry.Meter
	Tracer *tracing.Tracer
	// Base is the root of the contexts of all tasks; context.Background() by default.
	Base context.Context //nolint:containedctx // it is one

	memory  func() float64 // for tests
	collect func()         // the same
}

// How long things take.
const (
	progressEvery = time.Second      // between two beats that are sent because of progress
	memoryEvery   = 2 * time.Second  // between two looks at the memory
	beatTimeout   = 10 * time.Second // of a call that beats
	grace         = time.Second      // for handlers to return once their context has ended
	leaveTimeout  = 5 * time.Second
	backAfter     = 5 * time.Second // before what nobody here can execute is claimed again
)

// Pool executes tasks. It implements api.TaskWorker; none of those methods blocks.
type Pool struct {
	cfg Config
	log *slog.Logger

	ctx     context.Context //nolint:containedctx // ends when the pool is closed
	stop    context.CancelFunc
	joined  chan struct{}  // closed by Serve
	helpers sync.WaitGroup // goroutines that run no handler

	mu      sync.Mutex
	session api.TaskSession
	held    map[model.ClaimRef]*Task // all that the engine thinks we have
	line    []*Task                  // those of them that wait for a slot
	// those whose handler runs or whose outcome is being handed in, and handlers of claims that
	// were lost
	busy     map[*Task]struct{}
	lost     int // how many of the busy ones are lost
	handing  int // reports of claims that never began
	told     int // how many claims we may hold, as the engine knows
	telling  bool
	paused   bool
	draining bool
	closed   bool
	idle     chan struct{} // closed when nothing is busy, once it drains

	load, memory gate
	littered     bool            // a task has ended since the garbage was collected for the gate
	looks        *time.Timer     // at the memory; nil while nobody looks
	beats        *time.Timer     // nil until the first
	beatAt       time.Time       // when they are due; zero when not
	beatenAt     time.Time       // when the last one was sent
	beating      chan struct{}   // closed when the call that beats is over; nil while there is none
	unheard      *episode.Source // beats that fail
	unsealed     *episode.Source // progress that cannot be given its stored form
	unwatch      func()          // nil until Serve
}

// New makes a pool. It can be given claims at once; what it reports waits for Serve.
func New(cfg Config) *Pool {
	if cfg.Slots <= 0 {
		cfg.Slots = 100
	}
	if cfg.HighMemory <= 0 {
		cfg.HighMemory, cfg.LowMemory = 0.9, 0.8
	}
	if cfg.LowMemory <= 0 { // no process comes down to nothing: it would never take a task again
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
			cfg.HighMemory = 0 // there is no limit: nobody needs to look
		}
	}

	if cfg.collect == nil {
		cfg.collect = runtime.GC
	}

	p := &Pool{
		cfg: cfg, log: cfg.Logger, joined: make(chan struct{}), held: map[model.ClaimRef]*Task{}, busy: map[*Task]struct{}{}, told: cfg.Slots + cfg.Prefetch,
		load: gate{high: cfg.HighLoad, low: cfg.LowLoad}, memory: gate{high: cfg.HighMemory, low: cfg.LowMemory},
	}

	p.unheard = episode.New(p.log, "heartbeats of tasks are not heard; they are sent again", "heartbeats of tasks are heard again").Source()
	p.unsealed = episode.New(p.log, "progress of tasks cannot be stored", "progress of tasks can be stored again").Source()
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Capacity is how many claims it may hold.
func (p *Pool) Capacity() int { return p.cfg.Slots + p.cfg.Prefetch }

// Load is how many handlers run.
func (p *Pool) Load() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.busy)
}

// Serve gives the pool the session to report to.
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

// Execute takes claims.
func (p *Pool) Execute(claims []model.Claim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var back []model.TaskReport
	for i := range claims {
		c := &claims[i]
		h, known := p.cfg.Handlers[c.Spec.Kind]
		switch {
		case p.closed || p.held[c.Ref] != nil: // the session is over, or it was told twice
		case p.draining:
			back = append(back, model.TaskReport{Ref: c.Ref, Returned: true})
		case !known:
			p.log.Warn("there is no code for a task; it is given back", "activity", c.Spec.Kind, "queue", c.Spec.Queue)
			back = append(back, model.TaskReport{Ref: c.Ref, Returned: true, After: backAfter})
		default:
			p.admit(&Task{pool: p, claim: c, run: h, limit: limitOf(c)})
		}
	}

	p.handAll(back)
	p.measure()
}

// admit takes a claim.
func (p *Pool) admit(t *Task) {
	if t.claim.Canceled {
		p.handAll([]model.TaskReport{t.canceledReport()})
		return
	}
	t.received = time.Now()
	t.beaten = t.received
	t.ctx, t.cancel = context.WithCancelCause(p.cfg.Base)
	p.held[t.claim.Ref] = t
	if len(p.line) == 0 && len(p.busy) < p.cfg.Slots {
		p.start(t)
	} else {
		p.line = append(p.line, t)
	}
	p.armLocked(t.beatDue())
}

// startNext gives free slots to those in line.
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

// execute runs a handler to its end, whatever that is.
func (p *Pool) execute(t *Task) {
	var (
		out      model.Payload
		err      error
		returned bool
	)
	defer func() { // also when the handler ends its goroutine
		if !returned {
			err = replay.ExitFailure("activity " + t.claim.Spec.Kind)
		}
		p.finished(t, out, err)
	}()
	out, err = t.call()
	returned = true
}

// finished hands in the outcome of a handler, if anybody wants it, and frees its slot.
func (p *Pool) finished(t *Task, out model.Payload, err error) {
	t.cancel(nil)
	p.mu.Lock()
	defer p.mu.Unlock()

	if t.state == running {
		t.state = reporting
		wrote := t.notes != nil
		p.mu.Unlock()
		if back, ok := errors.AsType[*GiveBack](err); ok && back.Err != nil {
			p.log.Warn("a task is given back", "activity", t.claim.Spec.Kind, "error", model.Cut(back.Err.Error(), model.MaxLogLine))
		}
		r := t.report(out, err)
		if r.Failure != nil || r.Returned {
			p.tellLast(t)
		}
		if wrote {
			p.tellNotes(t)
		}
		p.hand(p.ctx, r)
		p.mu.Lock()
	}

	if _, counts := p.busy[t]; !counts { // it was left alone
		return
	}
	delete(p.busy, t)

	if t.state == gone {
		p.lost--
	} else {
		p.drop(t)
	}

	p.littered = true
	p.startNext()
	p.measure()
	p.rest()
}

// drop takes a claim out of what the engine thinks we have.
func (p *Pool) drop(t *Task) {
	if p.held[t.claim.Ref] == t {
		delete(p.held, t.claim.Ref)
	}
}

// rest tells whoever waits for it that nothing is busy.
func (p *Pool) rest() {
	if p.idle != nil && len(p.busy) == 0 && p.handing == 0 {
		close(p.idle)
		p.idle = nil
	}
}

// hand hands a report in, once there is somebody to hand it to.
func (p *Pool) hand(ctx context.Context, r model.TaskReport) {
	select {
	case <-p.joined:
	case <-ctx.Done():
		return
	}
	if err := p.session.Report(ctx, r); err != nil {
		p.log.Debug("the report of a task is refused", "task", r.Ref.String(), "error", err)
	}
}

// handAll hands in reports of claims whose handlers never began.
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

// Stop tells a handler that its outcome is not wanted any more, or that it may come to an end.
func (p *Pool) Stop(claim model.ClaimRef, why model.StopReason) {
	p.mu.Lock()
	t := p.held[claim]
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

// stopLocked returns the cause with which the context of the task is to be ended, without the lock;
// nil when it is not.
func (p *Pool) stopLocked(t *Task, why model.StopReason) error {
	was := t.state
	if was == reporting {
		return nil // it has come to an end
	}

	if was == waiting {
		p.line = slices.DeleteFunc(p.line, func(o *Task) bool { return o == t })
		p.drop(t)
		t.state = gone
		if why == model.StopCanceled {
			p.handAll([]model.TaskReport{t.canceledReport()})
		}
		return ErrLost
	}

	if why == model.StopCanceled {
		return replay.ErrCanceled
	}
	p.drop(t)
	t.state = gone
	p.lost++
	time.AfterFunc(grace, func() { p.overstayed(t) })

	return ErrLost
}

// overstayed tells of a handler that goes on although its context has ended. Its slot is not free.
func (p *Pool) overstayed(t *Task) {
	p.mu.Lock()
	_, runs := p.busy[t]
	p.mu.Unlock()
	if runs {
		p.log.Warn("a task ignores that its context has ended; its slot is not free", "activity", t.claim.Spec.Kind, "attempt", t.claim.Attempt)
	}
}

// Settled hears what has become of a report.
func (p *Pool) Settled(claim model.ClaimRef, err error) {
	if err != nil {
		p.log.Info("the outcome of a task came too late", "task", claim.String(), "error", err)
	}
}

// ---- pressure

// measure looks how high things stand after something has changed.
func (p *Pool) measure() {
	p.load.level(float64(len(p.held)+p.lost) / float64(p.Capacity()))
	if p.looks == nil && p.memory.high > 0 && !p.closed && (len(p.held) > 0 || p.memory.shut) {
		p.looks = time.AfterFunc(memoryEvery, p.look)
	}
	p.tellLocked()
}

// look looks at the memory, as long as there is something to do or to wait for.
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
		p.log.Warn("the memory of the process is full; no more tasks are taken", "share", v)
	case was && !p.memory.shut:
		p.log.Info("the memory of the process is free again; tasks are taken", "share", v)
	}

	p.measure()
}

// mayBeGarbage reports whether the garbage should be collected before the gate goes by the level:
// to shut it for what nobody uses would stop a process that has room, and one that takes no tasks
// allocates nothing, so that nothing would have the runtime collect what the last ones have left.
func (p *Pool) mayBeGarbage(v float64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory.shut && (!p.littered || v <= p.memory.low) || !p.memory.shut && v < p.memory.high {
		return false
	}
	p.littered = false
	return true
}

// Pause takes no more tasks until Resume; those that run go on.
func (p *Pool) Pause() { p.pause(true) }

// Resume undoes Pause.
func (p *Pool) Resume() { p.pause(false) }

func (p *Pool) pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = on
	p.measure()
}

// want is how many claims it may hold now.
func (p *Pool) want() int {
	if p.draining || p.paused || p.load.shut || p.memory.shut {
		return 0
	}
	return max(p.Capacity()-p.lost, 0)
}

// tellLocked has the engine told how many claims the pool may hold, if that has changed: by a
// goroutine of its own, because the engine may be calling us.
func (p *Pool) tellLocked() {
	if p.telling || p.closed || p.session == nil || p.want() == p.told {
		return
	}
	p.telling = true

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
