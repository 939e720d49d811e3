package replay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// errShutdown is the cause with which bodies are interrupted when the worker closes.
var errShutdown = errors.New("the worker shuts down")

// slots bounds how many bodies run at the same time. A body without a slot waits in line. The
// worker keeps a few idle goroutines for the next bodies, because their stacks have grown to the
// size that bodies need.
type slots struct {
	mu     sync.Mutex
	max    int
	used   int
	line   []job
	idle   []chan job // goroutines that wait for a body
	closed bool
}

// maxIdle bounds the idle goroutines that the worker keeps.
const maxIdle = 64

// job is one attempt of a step on its own goroutine.
type job struct {
	m *machine
	a *ask
}

// try takes a slot if one is free.
func (s *slots) try() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.max {
		return false
	}
	s.used++
	return true
}

// enter takes a slot for the job, or puts it in line. It reports true when the job needs a
// goroutine.
func (s *slots) enter(j job) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used >= s.max {
		s.line = append(s.line, j)
		return false
	}
	s.used++
	if last := len(s.idle) - 1; last >= 0 {
		s.idle[last] <- j
		s.idle = s.idle[:last]
		return false
	}
	return true
}

// leave gives a slot to the next job in line, or frees it.
func (s *slots) leave() (job, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leaveLocked()
}

func (s *slots) leaveLocked() (job, bool) {
	if len(s.line) == 0 {
		s.used--
		return job{}, false
	}
	j := s.line[0]
	s.line[0] = job{}
	s.line = s.line[1:]
	return j, true
}

// next is leave for a goroutine that the worker may keep. If no job is in line, it waits for one.
// It reports false when the goroutine must end.
func (s *slots) next(mine chan job) (job, bool) {
	s.mu.Lock()
	j, ok := s.leaveLocked()
	keep := !ok && !s.closed && len(s.idle) < maxIdle
	if keep {
		s.idle = append(s.idle, mine)
	}
	s.mu.Unlock()
	if keep {
		j, ok = <-mine
	}
	return j, ok
}

// close ends the idle goroutines.
func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.idle {
		close(c)
	}
	s.idle = nil
}

// freeSlot gives back the slot of an inline body.
func (w *Worker) freeSlot() {
	if j, ok := w.slots.leave(); ok {
		w.goroutines.Add(1)
		go w.work(j)
	}
}

// launch runs the body of a step on its own goroutine.
func (r *run) launch(m *machine, a *ask) {
	r.mu.Lock()
	a.launched = true
	r.mu.Unlock()
	r.running.Add(1)
	r.bodies.Add(1)
	if a.step.Pass != nil {
		if g := r.w.gate(); g != nil {
			r.w.pass(job{m, a}, g)
			return
		}
	}
	r.w.enter(job{m, a})
}

// enter runs a job, or lets it wait for a slot.
func (w *Worker) enter(j job) {
	if w.slots.enter(j) {
		w.goroutines.Add(1)
		go w.work(j)
	}
}

// work runs a body, and then the bodies that waited for the slot.
func (w *Worker) work(j job) {
	defer w.goroutines.Done()
	returned := false
	defer func() {
		if !returned { // the body called runtime.Goexit
			j.m.r.reportOutcome(j, model.Payload{}, ExitFailure("step "+j.a.name))
			w.freeSlot()
		}
	}()
	mine := make(chan job, 1)
	for ok := true; ok; j, ok = w.slots.next(mine) {
		j.run()
	}
	returned = true
}

// run makes one attempt.
func (j job) run() {
	r, a := j.m.r, j.a
	r.mu.Lock()
	p := a.passage.Swap(nil)
	// The attempt must not begin: the code gave up on it, the worker drains, or the run is gone.
	if a.dropped || r.w.draining.Load() || p != nil && (r.evicted || r.m != j.m) {
		j.skipLocked(p)
		return
	}

	ctx := r.bodyContext(a)
	a.body = ctx
	// Take the kept attempt while the lock is held. If the run is lost after that, the worker keeps
	// this attempt in its place.
	kept := r.w.kept.take(attemptKey{r.start.Run, a.id, a.attempt + 1})
	r.retell = r.retell || p != nil
	r.mu.Unlock()
	if p != nil {
		defer p.leaveOnExit()
	}
	defer ctx.end(nil)
	if kept != nil && j.adopt(ctx, p, kept) {
		return
	}

	out, err := r.w.attempt(ctx, a)
	if p != nil {
		p.leave(true, err)
	}
	r.reportOutcome(j, out, err)
}

// skipLocked ends an attempt that does not begin. p is not nil if the attempt has passed limits or
// a breaker. The caller holds the lock of the run, and skipLocked unlocks it.
func (j job) skipLocked(p *passage) {
	r, a := j.m.r, j.a
	if p != nil {
		defer p.leave(false, nil)
	}
	if !a.dropped {
		// The run is not idle, because the next worker that holds it must run the step.
		j.m.skipped.Add(1)
		r.running.Add(-1)
	}
	a.launched = false
	r.bodies.Add(-1)
	r.giveBackLocked()
}

// attempt calls the body with its time-out.
func (w *Worker) attempt(ctx context.Context, a *ask) (model.Payload, error) {
	limit := a.step.AttemptTimeout
	if limit <= 0 {
		return w.call(ctx, a)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, ErrTimeout)
	defer cancel()
	type result struct {
		out model.Payload
		err error
	}

	// The body runs on a goroutine of its own. If the body ignores the end of its context, the
	// worker stops waiting, and the goroutine lives until the body returns.
	results := make(chan result, 1)
	w.goroutines.Go(func() {
		res := result{err: ExitFailure("step " + a.name)}
		defer func() { results <- res }()
		out, err := w.call(ctx, a)
		res = result{out, err}
	})

	late := time.NewTimer(limit + attemptGrace)
	defer late.Stop()
	select {
	case res := <-results:
		if res.err != nil && errors.Is(context.Cause(ctx), ErrTimeout) {
			res.err = &lateError{a.name, limit, res.err}
		}
		return res.out, res.err
	case <-late.C:
		w.cfg.Logger.Warn("step ignores its attempt timeout; the worker abandons the attempt", "step", a.name)
		return model.Payload{}, fmt.Errorf("attempt of step %s took more than %s and still runs: %w", a.name, limit, ErrTimeout)
	}
}

// reportOutcome reports the outcome of a body. Outcomes that are ready at the same time share a
// turn.
func (r *run) reportOutcome(j job, out model.Payload, err error) {
	r.reportCommand(j, r.conclude(j.a, out, err))
}

// reportCommand is reportOutcome for a command that records the outcome.
func (r *run) reportCommand(j job, cmd model.Command) {
	m, a := j.m, j.a
	r.mu.Lock()
	defer r.mu.Unlock()
	a.body, a.launched = nil, false
	if !a.dropped {
		r.running.Add(-1)
	}
	r.lastUsed.Store(r.w.tick.Load())

	if r.evicted || r.m != m || a.dropped || r.w.halted.Load() {
		r.bodies.Add(-1)
		switch {
		case a.kept != nil:
			r.w.kept.finish(a.kept, cmd)
			a.kept = nil
		case r.evicted && r.m == m && !a.dropped:
			// the worker has lost the run: its unload keeps the outcome
			r.done, r.authors = append(r.done, cmd), append(r.authors, a)
		}
		return
	}

	a.expect.Add(1)
	m.outstanding.Add(1)
	r.bodies.Add(-1) // from now on the unconfirmed outcome keeps the run from being idle
	r.done, r.authors = append(r.done, cmd), append(r.authors, a)
	if r.flushing {
		return
	}

	r.flushing = true
	for len(r.done) > 0 {
		t := model.Turn{
			Run: r.start.Run, Generation: r.generation, Seen: m.seen.Load(), Commands: r.takeWanted(m), Waits: r.told,
			// the coroutine that holds the baton may be about to begin another step
			Running: r.running.Load() > 0 || r.busy,
		}
		if len(t.Commands) == 0 {
			continue
		}
		r.vague = r.vague || r.busy && r.running.Load() == 0
		r.noteSent(t.Commands)
		r.mu.Unlock()
		if err := r.w.report(t); err != nil {
			r.logRefused(err)
		}
		r.mu.Lock()
	}

	r.flushing = false
}

// takeWanted takes the outcomes that are ready, except outcomes that the code no longer wants.
func (r *run) takeWanted(m *machine) []model.Command {
	cmds := r.done[:0:len(r.done)]
	for i, a := range r.authors {
		if a.dropped {
			a.expect.Add(-1)
			m.outstanding.Add(-1)
			continue
		}
		cmds = append(cmds, r.done[i])
	}
	r.done, r.authors = nil, r.authors[:0]
	return cmds
}

// beginInline prepares the context of a body that runs on the goroutine of its coroutine.
func (r *run) beginInline(a *ask) context.Context {
	ctx := r.bodyContext(a)
	r.mu.Lock()
	a.body = ctx
	r.inline = a
	r.since = r.w.tick.Load() + 1
	r.mu.Unlock()
	r.w.stir()
	return ctx
}

// endInline ends the context of an inline body.
func (r *run) endInline(a *ask) {
	r.mu.Lock()
	ctx := a.body
	a.body, r.inline = nil, nil
	a.fut.m.since.Store(r.w.tick.Load()) // the code was not stuck while the body ran
	r.mu.Unlock()
	r.w.stir()
	ctx.end(nil)
}

// abandon tells the body of a step that its outcome is no longer wanted.
func (r *run) abandon(a *ask) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.abandonLocked(a, ErrCanceled)
}

func (r *run) abandonLocked(a *ask, cause error) {
	if a.launched && !a.dropped {
		r.running.Add(-1)
	}
	a.dropped = true
	if p := a.passage.Load(); p != nil {
		p.enter() // the attempt notices that it is not wanted, and ends
		r.w.goroutines.Go(func() { p.leave(false, nil) })
	}
	if a.body != nil {
		a.body.end(cause)
	}
}

// cancelBodies tells every running body of the machine that its outcome is no longer needed.
func (r *run) cancelBodies(m *machine, why string) {
	if r.bodies.Load() == 0 {
		return
	}
	cause := fmt.Errorf("%w: %s", ErrCanceled, why)
	r.mu.Lock()
	defer r.mu.Unlock()
	for a := range m.asks.all() {
		if a.kind == askStep && a.state == stepRunning {
			r.abandonLocked(a, cause)
		}
	}
}

// interrupt cancels the inline body because the worker closes. Another worker runs its step again.
func (r *run) interrupt() {
	interrupt := func(r *run) {
		if a := r.inline; a != nil && a.body != nil {
			a.body.end(errShutdown)
		}
	}
	r.mu.Lock()
	interrupt(r)
	r.mu.Unlock()
	r.forPredecessors(interrupt)
}
