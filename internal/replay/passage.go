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

// passage is an attempt that must pass limits and a breaker before its body may run. While it
// waits, the worker treats it as running, like an attempt that waits for a slot. But it takes no
// slot.
type passage struct {
	job     job
	gate    api.Gate
	ref     model.TaskRef
	entered atomic.Bool // the attempt has passed the gate, and waits for a slot or has one
	left    atomic.Bool
}

// gate returns the gate of the session, which lets attempts through their limits and breakers; nil
// if the session has none. The engine may activate a worker before the worker has its session, so
// gate waits for the session.
func (w *Worker) gate() api.Gate {
	g, _ := w.awaitSession().(api.Gate)
	return g
}

// pass lets an attempt wait until the gate lets it through. The caller has the baton.
func (w *Worker) pass(j job, g api.Gate) {
	a, r := j.a, j.m.r
	p := &passage{job: j, gate: g, ref: model.TaskRef{
		// the counter makes the id unique, because every attempt passes the gate separately
		Address: r.start.Address, Run: r.start.Run, ID: fmt.Sprintf("%s%s%d", a.id, model.AttemptMark, w.passed.Add(1)),
	}}
	a.passage.Store(p)
	w.passages.Store(p, nil)
	in := a.step.plainInput()
	g.Pass(p.ref, a.step.Pass, &in, p.enter)
	switch {
	case w.draining.Load() || p.isMoot():
		p.enter() // the attempt notices that it must not run
	case !p.entered.Load():
		j.m.untold = true // the worker has not reported yet why the attempt waits
	}
}

// enter lets the attempt wait for a slot. A second call has no effect.
func (p *passage) enter() {
	w := p.job.m.w
	if !p.entered.CompareAndSwap(false, true) {
		return
	}
	w.passages.Delete(p)
	w.enter(p.job)
}

// isMoot reports whether the attempt is no longer wanted.
func (p *passage) isMoot() bool {
	r := p.job.m.r
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.job.a.dropped || r.evicted || r.m != p.job.m
}

// leaveOnExit ends the passage of a body that ended its goroutine instead of returning.
func (p *passage) leaveOnExit() { p.leave(true, ExitFailure("step "+p.job.a.name)) }

// leave ends the passage: it frees the permits, and reports the outcome to the breaker. A second
// call has no effect.
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
	p.gate.EndPass(p.ref, p.job.a.step.Pass, how, after)
}

// flush ends the wait of attempts that are no longer wanted, or of all attempts if the worker is
// leaving. It looks at every attempt that waits for the gate. Usually there are none.
func (w *Worker) flush() {
	w.passages.Range(func(key, _ any) bool {
		if p := key.(*passage); w.draining.Load() || p.isMoot() {
			p.enter()
		}
		return true
	})
}

// passageReason returns what keeps the attempt of a step waiting; false when nothing does. The gate
// of a remote worker knows the reason only when the server has answered. The caller has the baton.
func (a *ask) passageReason() (model.Reason, bool) {
	if a.step.Pass == nil {
		return model.Reason{}, false
	}
	p := a.passage.Load()
	if p == nil || p.entered.Load() {
		return model.Reason{}, false
	}
	why, known := p.gate.HeldBackBy(p.ref)
	if !known && !p.entered.Load() {
		p.job.m.unsure = true
	}
	return why, known
}
