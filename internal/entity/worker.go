package entity

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Config configures a worker. A zero optional field means its default.
type Config struct {
	// Types are the entities and services by type, including the prefix.
	Types map[string]Type
	// Slots is how many hand-overs run at the same time. The default is 128.
	Slots int
	// Logger receives warnings for operators. Without it the worker does not log.
	Logger *slog.Logger
	// Outlet sends the items of streams. Without it, no stream can start.
	Outlet Outlet
	// Streams is how many streams run at the same time. The default is DefaultStreams.
	Streams int
	// Base is the root of the contexts of all calls. The default is context.Background().
	Base context.Context //nolint:containedctx // it is a root context
}

// Worker executes calls of entities and services. It implements api.EntityWorker.
type Worker struct {
	cfg     Config
	log     *slog.Logger
	streams *streams

	ctx    context.Context //nolint:containedctx // ends when Close no longer waits for calls
	stop   context.CancelFunc
	joined chan struct{} // closed by Serve

	mu      sync.Mutex
	session api.EntitySession
	line    []*model.Operations // hand-overs that wait for a slot
	busy    int                 // slots that are in use
	// runaway counts the hand-overs that lost their slot and whose code has not returned, see
	// leave.
	runaway  int
	draining bool
	idle     chan struct{} // closed when no slot is in use; nil unless the worker drains
	// running has the hand-overs whose calls run, by generation.
	running map[uint64]*handover
}

// New returns a worker. It accepts calls immediately, and keeps its reports until Serve.
func New(cfg Config) *Worker {
	if cfg.Slots <= 0 {
		cfg.Slots = 128
	}
	if cfg.Streams <= 0 {
		cfg.Streams = DefaultStreams
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Base == nil {
		cfg.Base = context.Background()
	}
	w := &Worker{cfg: cfg, log: cfg.Logger, joined: make(chan struct{}), running: map[uint64]*handover{}}
	w.ctx, w.stop = context.WithCancel(cfg.Base)
	w.streams = newStreams(&cfg)
	return w
}

// Capacity returns how many hand-overs the worker runs at the same time.
func (w *Worker) Capacity() int { return w.cfg.Slots }

// Serve gives the worker the session that receives its reports.
func (w *Worker) Serve(s api.EntitySession) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.session = s
	close(w.joined)
}

// Operate accepts calls of one entity.
func (w *Worker) Operate(o model.Operations) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy == w.cfg.Slots && !w.draining { // a draining worker only gives hand-overs back
		w.line = append(w.line, &o)
		return
	}
	w.start(&o)
}

// start gives a hand-over a slot.
func (w *Worker) start(o *model.Operations) {
	w.busy++
	go w.execute(o)
}

// execute runs the calls of a hand-over and reports them, whatever their code does.
func (w *Worker) execute(o *model.Operations) {
	name := strings.TrimPrefix(strings.TrimPrefix(o.Entity.Type, model.EntityPrefix), model.ServicePrefix)
	code, known := w.cfg.Types[o.Entity.Type]
	r := model.Operated{Entity: o.Entity, Generation: o.Generation, Results: allUnmade(o, replay.ExitFailure("the code that reads and writes the state of "+name))}

	// The deferred functions report even if a handler ends its goroutine.
	var h *handover
	defer func() {
		if h != nil {
			h.time.release()
			if _, left := h.time.runState(); left {
				w.noteReturned(h)
				return
			}
		}
		w.finish(r)
	}()

	if !known {
		r.Results = allUnmade(o, replay.FailureOf(fault.New(fault.NotFound, "there is no code for %s in this build: it has %s", name, listNames(w.cfg.Types))))
		return
	}

	h = &handover{o: o, code: code, name: name, ctx: w.ctx, stop: w.isDraining, streams: w.streams, exists: o.Exists}
	h.time.abandon = func(c *Call, limit time.Duration) { w.leave(h, c, limit) }
	w.note(h)
	defer w.forget(h)
	returned := false
	defer func() {
		// If h.time still has a running call here, its handler has ended the goroutine.
		if running, left := h.time.runState(); !returned && running && !left {
			h.answerInterrupted()
			r = h.report()
		}
	}()

	h.run()
	if _, left := h.time.runState(); left {
		return
	}
	r = h.report()
	returned = true
}

// note makes a hand-over known to Interrupt.
func (w *Worker) note(h *handover) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.running[h.o.Generation] = h
}

func (w *Worker) forget(h *handover) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[h.o.Generation] == h {
		delete(w.running, h.o.Generation)
	}
}

// Interrupt ends the context of a running call, with the cause ErrInterrupted. The call fails when
// its code returns the error of the context. If the code does not return, the call fails a moment
// later. The worker ignores an interruption of a call that does not run.
func (w *Worker) Interrupt(i model.Interruption) {
	w.mu.Lock()
	h := w.running[i.Generation]
	w.mu.Unlock()
	if h != nil && h.o.Entity == i.Entity && h.time.interrupt(i.Call) {
		w.log.Info("an operator interrupts a call", "entity", i.Entity.String())
	}
}

// leave reports a hand-over whose code does not return, so that the engine hands the later calls
// over again. The hand-over gives up its slot, unless there are already as many such hand-overs as
// slots.
func (w *Worker) leave(h *handover, c *Call, limit time.Duration) {
	w.log.Warn("a call ignores the end of its context; the worker abandons it and drops its result", "entity", h.o.Entity.String(), "call", c.Name, "limit", limit)
	w.report(h.leave(c, limit))
	w.mu.Lock()
	defer w.mu.Unlock()
	if !h.gone && w.runaway < w.cfg.Slots {
		w.runaway++
		h.freed = true
		w.free()
	}
}

// noteReturned notes that the code of an abandoned call has returned.
func (w *Worker) noteReturned(h *handover) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.gone = true
	if h.freed {
		w.runaway--
	} else {
		w.free()
	}
}

// isDraining reports whether the worker starts no further calls.
func (w *Worker) isDraining() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.draining
}

// finish sends the report of a hand-over and frees its slot.
func (w *Worker) finish(r model.Operated) {
	w.report(r)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free()
}

// report sends a report. It waits until there is a session.
func (w *Worker) report(r model.Operated) {
	select {
	case <-w.joined:
		if err := w.session.FinishCalls(w.ctx, r); err != nil {
			w.log.Debug("the report of calls is refused", "entity", r.Entity.String(), "error", err)
		}
	case <-w.ctx.Done():
	}
}

// free gives a slot to the next hand-over in line.
func (w *Worker) free() {
	w.busy--
	for len(w.line) > 0 && w.busy < w.cfg.Slots {
		o := w.line[0]
		w.line[0] = nil
		w.line = w.line[1:]
		w.start(o)
	}
	w.rest()
}

// rest wakes Close when no slot is in use.
func (w *Worker) rest() {
	if w.idle != nil && w.busy == 0 {
		close(w.idle)
		w.idle = nil
	}
}

// Close waits until the running calls end, or until ctx ends. It gives back calls that have not
// started, so that another worker runs them, and leaves the session. If ctx ends first, Close
// returns an error and abandons the running calls: the engine runs them again, and their code may
// still run here. Streams end immediately, and their callers get an error.
func (w *Worker) Close(ctx context.Context) error {
	w.mu.Lock()
	w.draining = true
	for _, o := range w.line {
		w.start(o) // start gives the hand-over back, because the worker drains
	}
	w.line = nil
	session := w.session
	w.mu.Unlock()
	w.streams.close()
	var err error
	if session != nil {
		err = session.Leave(ctx)
	}
	defer w.stop()
	w.mu.Lock()
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	idle, left := w.idle, w.busy
	w.rest()
	w.mu.Unlock()

	select {
	case <-idle:
		return errors.Join(err, w.streams.wait(ctx))
	case <-ctx.Done():
		return fault.New(fault.Timeout, "calls of %d entities have not returned; other workers run them again", left)
	}
}
