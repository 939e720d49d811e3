package replay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// passage is an attempt that has to pass limits and a breaker before its body may run. It counts as
// running meanwhile, as one that waits for a slot does, but it has none.
type passage struct {
	job     job
	gate    api.Gate
	ref     model.TaskRef
	entered atomic.Bool // it waits for a slot, or has one
	left    atomic.Bool
}

// gate is who lets attempts through; nil when nobody does.
func (w *Worker) gate() api.Gate {
	if b := w.session.Load(); b != nil {
		g, _ := b.s.(api.Gate)
		return g
	}
	return nil
}

// pass has an attempt wait until it is let through. The caller has the baton.
func (w *Worker) pass(j job, g api.Gate) {
	a, r := j.a, j.m.r
	p := &passage{job: j, gate: g, ref: model.TaskRef{
		// every attempt passes on its own
		Address: r.start.Address, Run: r.start.Run, ID: fmt.Sprintf("%s\x1f%d", a.id, w.passed.Add(1)),
	}}
	a.passage.Store(p)
	w.passages.Store(p, nil)
	g.Pass(p.ref, a.step.Pass, &a.step.Input, p.enter)
	switch {
	case w.draining.Load() || p.moot():
		p.enter() // it finds out that it is not to run
	case !p.entered.Load():
		j.m.untold = true // what keeps it back
	}
}

// enter has the attempt wait for a slot, once.
func (p *passage) enter() {
	w := p.job.m.w
	if !p.entered.CompareAndSwap(false, true) {
		return
	}
	w.passages.Delete(p)
	w.enter(p.job)
}

// moot reports whether nobody wants the attempt any more.
func (p *passage) moot() bool {
	r := p.job.m.r
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.job.a.dropped || r.evicted || r.m != p.job.m
}

// exited ends the passage of a body that ended its goroutine instead of returning.
func (p *passage) exited() { p.leave(true, ExitFailure("step "+p.job.a.name)) }

// leave ends the passage, once: the permits are free, and the outcome counts for the breaker.
func (p *passage) leave(begun bool, err error) {
	if !p.left.CompareAndSwap(false, true) {
		return
	}
	how, after := model.PassageNeither, time.Duration(0)
	switch {
	case !begun || errors.Is(err, ErrCanceled) || errors.Is(err, context.Canceled) || errors.Is(err, errShutdown):
	case err == nil:
		how = model.PassageSucceeded
	default:
		how = model.PassageFailed
		after, _ = RetryAfterOf(err)
	}
	p.gate.Passed(p.ref, p.job.a.step.Pass, how, after)
}

// flush has the attempts that wait and are not wanted any more find that out. It takes a look at
// those that wait, and there are none as a rule.
func (w *Worker) flush() {
	w.passages.Range(func(key, _ any) bool {
		if p := key.(*passage); w.draining.Load() || p.moot() {
			p.enter()
		}
		return true
	})
}

// keptBack says what keeps the attempt of a step back; false when nothing does.
func (a *ask) keptBack() (model.Reason, bool) {
	if a.step.Pass == nil {
		return model.Reason{}, false
	}
	p := a.passage.Load()
	if p == nil || p.entered.Load() {
		return model.Reason{}, false
	}
	return p.gate.Keeps(p.ref)
}
