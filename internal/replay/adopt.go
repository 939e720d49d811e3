package replay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// A server that restarts loses its sessions with workers, and hands the same runs out again a
// moment later. Until the server hands out a run again, the run is called lost. The worker lets the
// bodies of the steps of a lost run continue, and keeps the outcomes that the server has not
// confirmed. When the server activates the run here again, the worker replays its code. For a step
// whose attempt the worker has kept, it does not run the body again. The step waits for the running
// body, or takes the kept outcome.

// keepFor is how long the worker keeps the attempts of a lost run. If the run is not activated here
// within that time, another worker has it, or it is over.
const keepFor = time.Minute

// attemptKey identifies an attempt of a step.
type attemptKey struct {
	run    model.RunID
	step   string
	number int // counts from 1
}

// keptAttempt is an attempt of a lost run. Its body still runs, or the worker has its outcome.
type keptAttempt struct {
	body    *StepContext // nil when the body had ended before the run was lost
	done    chan struct{}
	outcome model.Command // set before done is closed
	expiry  *time.Timer
}

// finish sets the outcome.
func (k *keptAttempt) finish(outcome model.Command) {
	k.outcome = outcome
	close(k.done)
}

// wait returns the outcome. If ctx ends first, wait ends the context of the body, and still waits
// for the body to return.
func (k *keptAttempt) wait(ctx context.Context) model.Command {
	select {
	case <-k.done:
	case <-ctx.Done():
		k.end(context.Cause(ctx))
		<-k.done
	}
	return k.outcome
}

func (k *keptAttempt) end(cause error) {
	if k.body != nil {
		k.body.end(cause)
	}
}

// keptAttempts are the attempts of lost runs. The zero value has none.
type keptAttempts struct {
	count atomic.Int64 // read without the lock, because every step reads it

	mu     sync.Mutex
	all    map[attemptKey]*keptAttempt
	closed bool
}

// add keeps an attempt. If there is an older attempt with the same key, add replaces it: both get
// the same outcome. After close, add interrupts the body instead: no activation will take it.
func (s *keptAttempts) add(key attemptKey, body *StepContext) *keptAttempt {
	k := &keptAttempt{body: body, done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		k.end(errShutdown)
		return k
	}
	if s.all == nil {
		s.all = map[attemptKey]*keptAttempt{}
	}
	if old := s.all[key]; old != nil {
		old.expiry.Stop()
	}
	s.all[key] = k
	s.count.Store(int64(len(s.all)))
	k.expiry = time.AfterFunc(keepFor, func() { s.expire(key, k) })
	return k
}

// has reports whether an attempt is kept for a step.
func (s *keptAttempts) has(key attemptKey) bool {
	if s.count.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[key] != nil
}

// hasOf reports whether an attempt is kept for a step of a run.
func (s *keptAttempts) hasOf(run model.RunID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.all {
		if key.run == run {
			return true
		}
	}
	return false
}

// take returns the attempt for a step and no longer keeps it; nil when there is none.
func (s *keptAttempts) take(key attemptKey) *keptAttempt {
	if s.count.Load() == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.all[key]
	if k != nil {
		k.expiry.Stop()
		s.remove(key)
	}
	return k
}

// expire gives up on an attempt that no activation has taken in time.
func (s *keptAttempts) expire(key attemptKey, k *keptAttempt) {
	s.mu.Lock()
	mine := s.all[key] == k
	if mine {
		s.remove(key)
	}
	s.mu.Unlock()
	if mine {
		k.end(errNotActivated)
	}
}

// remove forgets an attempt. The caller holds the lock.
func (s *keptAttempts) remove(key attemptKey) {
	delete(s.all, key)
	s.count.Store(int64(len(s.all)))
}

// close interrupts the bodies and forgets everything. A lost run may still hand over its attempts
// after that, when its code parks.
func (s *keptAttempts) close() {
	s.mu.Lock()
	all := s.all
	s.all, s.closed = nil, true
	s.count.Store(0)
	s.mu.Unlock()
	for _, k := range all {
		k.expiry.Stop()
		k.end(errShutdown)
	}
}

var errNotActivated = fmt.Errorf("%w: the run was lost with its server and was not activated here again", ErrCanceled)

// Lose takes away a run whose owner has lost the session with this worker. The worker keeps the
// bodies that still run: if the run is activated here again, its steps continue instead of starting
// again.
func (w *Worker) Lose(id model.RunID, generation uint64) {
	if r := w.findRun(id, generation); r != nil {
		r.lose()
	}
}

// Keeps reports whether the worker still has a body or an outcome of a lost run. While the code of
// the run has not parked, the worker may have an inline body.
func (w *Worker) Keeps(run model.RunID) bool {
	w.mu.Lock()
	loaded := w.runs[run] != nil
	w.mu.Unlock()
	return loaded || w.kept.hasOf(run)
}

// lose unloads the run as soon as its code parks, and keeps its attempts.
func (r *run) lose() {
	r.mu.Lock()
	if r.evicted {
		r.mu.Unlock()
		return
	}
	r.lost = true
	time.AfterFunc(keepFor, r.stopInline)
	r.evictLocked("the server has lost the session of this worker")
}

// stopInline ends the inline body of a lost run that was not activated again in time. An inline
// body runs on the goroutine of the workflow code.
func (r *run) stopInline() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.inline; a != nil && a.body != nil && r.successor == nil {
		a.body.end(errNotActivated)
	}
}

// handOverTo makes a new activation of the run wait until this activation has handed over its
// attempts. The new activation must wait if this activation is lost, or if this activation itself
// waits for an earlier one. handOverTo returns false in all other cases, and if this activation is
// already unloaded.
func (r *run) handOverTo(next *run) bool {
	if !r.precede(next) {
		return false
	}
	if slices.ContainsFunc(next.events, isCancelRequest) {
		next.forPredecessors((*run).cancelInlineLocked)
	}
	return true
}

func (r *run) precede(next *run) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unloaded || !r.lost && r.predecessor.Load() == nil {
		return false
	}
	r.successor = next
	next.predecessor.Store(r)
	return true
}

func isCancelRequest(e *model.Event) bool { return e.Kind == model.EventCancelRequest }

// cancelInlineLocked tells the inline body that a client has asked to cancel the execution.
func (r *run) cancelInlineLocked() {
	if a := r.inline; a != nil && a.cancelable && a.body != nil {
		a.body.end(ErrCanceled)
	}
}

// forPredecessors calls do for each earlier activation that this one waits for. One of them runs
// the inline body.
func (r *run) forPredecessors(do func(*run)) {
	for p := r.predecessor.Load(); p != nil; p = p.predecessor.Load() {
		p.mu.Lock()
		do(p)
		p.mu.Unlock()
	}
}

// keepAttempts keeps the attempts of a lost run. The caller has the baton.
func (r *run) keepAttempts() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.sent {
		r.keepOutcome(c)
	}
	for _, commands := range [][]model.Command{r.m.commands, r.done} {
		for i := range commands {
			r.keepOutcome(&commands[i])
		}
	}

	cause := fmt.Errorf("%w: the run was lost with its server", ErrCanceled)
	for a := range r.m.asks.all() {
		switch {
		case a.kind != askStep || a.state != stepRunning || !a.launched || a.dropped:
		case a.body == nil: // the attempt waits for limits or a slot, and has not begun
			r.abandonLocked(a, cause)
		default:
			a.kept = r.w.kept.add(attemptKey{r.start.Run, a.id, a.attempt + 1}, a.body)
		}
	}
}

// keepOutcome keeps what a body returned.
func (r *run) keepOutcome(c *model.Command) {
	if isOutcome(c) {
		r.w.kept.add(attemptKey{r.start.Run, c.Event.ID, c.Event.Attempt}, nil).finish(*c)
	}
}

// isOutcome reports whether a command records how an attempt of a body ended.
func isOutcome(c *model.Command) bool {
	switch c.Event.Kind {
	case model.EventStepCompleted, model.EventStepFailed, model.EventAttemptFailed:
		return c.Kind == model.CommandRecord || c.Kind == model.CommandRetry
	default:
		return false
	}
}

// adopt reports the outcome of a kept attempt as the outcome of this attempt. p is not nil if this
// attempt has passed limits or a breaker.
func (r *run) adopt(j job, p *passage, outcome model.Command) {
	if p != nil {
		var err error
		if f := outcome.Event.Failure; f != nil {
			err = f
		}
		p.leave(true, err)
	}
	r.reportCommand(j, outcome)
}

// noteSent remembers outcomes that are reported, until the owner confirms them. The caller holds
// the lock of the run.
func (r *run) noteSent(commands []model.Command) {
	if !r.w.cfg.OwnerRestarts {
		return
	}
	for i := range commands {
		if isOutcome(&commands[i]) {
			r.sent = append(r.sent, &commands[i])
		}
	}
}

// noteConfirmed forgets an outcome that is in the history now. The caller holds the lock of the
// run.
func (r *run) noteConfirmed(e *model.Event) {
	if len(r.sent) == 0 {
		return
	}
	i := slices.IndexFunc(r.sent, func(c *model.Command) bool {
		return c.Event.ID == e.ID && c.Event.Attempt == e.Attempt && c.Event.Kind == e.Kind
	})
	if i >= 0 {
		r.sent = slices.Delete(r.sent, i, i+1)
	}
}
