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

// A worker may lose a run while bodies of its steps run, and get the same run again a moment later.
// There are two ways to lose a run:
//
//   - A server that restarts loses its sessions with workers (Worker.Lose). Until the server hands
//     out the run again, the run is called lost. The worker lets the bodies of a lost run continue,
//     and keeps the outcomes that the server has not confirmed.
//   - The engine takes the run back (Worker.Evict), for example because its node has lost its
//     lease. The worker tells the bodies to end, except for an inline body, but they may ignore
//     that. A body that was told to end may fail because of that, so the worker keeps only
//     successes.
//
// When the run is activated here again, the worker replays its code. For a step whose attempt the
// worker has kept, it does not run the body again. The step waits for the running body, or takes
// the kept outcome. If a body that was told to end has failed, the step runs the body again. So two
// executions of the body of one attempt never run in this worker at the same time.

// keepFor is how long the worker keeps the attempts of a lost run. If the run is not activated here
// within that time, another worker has it, or it is over. Then the worker tells the bodies to end.
// It also keeps the success of a body that was told to end for that long.
const keepFor = time.Minute

// maxKept and maxKeptBytes bound the successes of bodies that were told to end. If there are more,
// the worker forgets the rest, and runs their bodies again if their runs come back.
const (
	maxKept      = 10_000
	maxKeptBytes = 64 << 20
)

// attemptKey identifies an attempt of a step.
type attemptKey struct {
	run    model.RunID
	step   string
	number int // counts from 1
}

// keptAttempt is an attempt of a run that the worker has lost. Its body still runs, or the worker
// has its outcome.
type keptAttempt struct {
	key    attemptKey
	body   *StepContext  // nil when the body had ended before the run was lost
	done   chan struct{} // closed when the body has ended
	expiry *time.Timer

	outcome model.Command // set before done is closed
	// Guarded by the mutex of keptAttempts.
	told  bool // the worker has told the body to end, so a failure of the body means nothing
	ended bool
	bytes int // of the outcome, if it counts for the bounds of keptAttempts
}

// wait returns the outcome of the body. If ctx ends first, wait ends the context of the body, and
// still waits for the body to return. ok is false if the outcome means nothing: the worker had told
// the body to end, and the body has failed.
func (s *keptAttempts) wait(ctx context.Context, k *keptAttempt) (outcome model.Command, ok bool) {
	select {
	case <-k.done:
	case <-ctx.Done():
		k.end(context.Cause(ctx))
		<-k.done
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return k.outcome, k.isValid()
}

func (k *keptAttempt) end(cause error) {
	if k.body != nil {
		k.body.end(cause)
	}
}

// isValid reports whether the outcome says something about the step. The caller holds the lock.
func (k *keptAttempt) isValid() bool {
	return !k.told || k.outcome.Event.Kind == model.EventStepCompleted
}

// keptAttempts are the attempts of runs that the worker has lost. The zero value has none.
type keptAttempts struct {
	count atomic.Int64 // read without the lock, because every step reads it

	mu     sync.Mutex
	all    map[attemptKey]*keptAttempt
	closed bool
	// successes counts kept successes of bodies that were told to end, and bytes adds up their
	// sizes.
	successes, bytes int
}

// add keeps an attempt. told says that the worker has told its body to end. If there is an older
// attempt with the same key, add replaces it: both get the same outcome. After close, add
// interrupts the body instead: no activation will take it.
func (s *keptAttempts) add(key attemptKey, body *StepContext, told bool) *keptAttempt {
	k := &keptAttempt{key: key, body: body, done: make(chan struct{}), told: told}
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
		s.remove(key)
	}
	s.all[key] = k
	s.count.Store(int64(len(s.all)))
	k.expiry = time.AfterFunc(keepFor, func() { s.expire(k) })

	return k
}

// finish sets the outcome of an attempt. It drops an outcome that means nothing. The success of a
// body that was told to end may come late, so the worker keeps it from now on for keepFor.
func (s *keptAttempts) finish(k *keptAttempt, outcome model.Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.outcome, k.ended = outcome, true
	close(k.done)
	switch {
	case s.all[k.key] != k: // an activation has taken the attempt, or the worker is closed
	case !k.isValid() || k.told && !s.hasRoom(&outcome):
		k.expiry.Stop()
		s.remove(k.key)
	case k.told:
		k.bytes = sizeOf(&outcome)
		s.successes++
		s.bytes += k.bytes
		k.expiry.Reset(keepFor)
	}
}

// hasRoom reports whether the worker may keep one more success of a body that was told to end. The
// caller holds the lock.
func (s *keptAttempts) hasRoom(outcome *model.Command) bool {
	return s.successes < maxKept && s.bytes+sizeOf(outcome) <= maxKeptBytes
}

// sizeOf returns roughly how many bytes an outcome takes. It is never zero.
func sizeOf(outcome *model.Command) int { return outcome.Event.Size() }

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

// expire gives up on an attempt that no activation has taken in time. It tells a running body to
// end, and forgets the attempt only when the body has ended, because the run may still come back.
func (s *keptAttempts) expire(k *keptAttempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.all[k.key] != k:
	case k.ended:
		s.remove(k.key)
	default:
		k.told = true
		k.end(errNotActivated)
	}
}

// remove forgets an attempt. The caller holds the lock.
func (s *keptAttempts) remove(key attemptKey) {
	if k := s.all[key]; k.bytes > 0 {
		s.successes--
		s.bytes -= k.bytes
	}
	delete(s.all, key)
	s.count.Store(int64(len(s.all)))
}

// close interrupts the bodies and forgets everything. A lost run may still hand over its attempts
// after that, when its code parks.
func (s *keptAttempts) close() {
	s.mu.Lock()
	all := s.all
	s.all, s.closed, s.successes, s.bytes = nil, true, 0, 0
	s.count.Store(0)
	s.mu.Unlock()
	for _, k := range all {
		k.expiry.Stop()
		k.end(errShutdown)
	}
}

// The causes with which the worker tells bodies of runs that it has lost to end.
var (
	errNotActivated = fmt.Errorf("%w: the run was lost with its server and was not activated here again", ErrCanceled)
	errTakenBack    = fmt.Errorf("%w: the run was unloaded", ErrCanceled)
)

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
// attempts. The new activation must wait if this activation is lost, if it runs a body, or if it
// waits for an earlier activation itself. handOverTo returns false in all other cases, and if this
// activation is already unloaded.
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
	if r.unloaded || !r.lost && r.inline == nil && r.bodies.Load() == 0 && r.predecessor.Load() == nil {
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

// keepAttempts keeps the attempts of a run that the worker has lost. If the engine has taken the
// run back, it may have refused the outcomes that were reported, so keepAttempts keeps only the
// others. The caller has the baton.
func (r *run) keepAttempts() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost {
		for _, c := range r.sent {
			r.keepOutcomeLocked(c)
		}
	}
	for _, commands := range [][]model.Command{r.m.commands, r.done} {
		for i := range commands {
			r.keepOutcomeLocked(&commands[i])
		}
	}

	if r.bodies.Load() == 0 {
		return
	}
	for a := range r.m.asks.all() {
		if a.kind != askStep || a.state != stepRunning || !a.launched || a.dropped {
			continue
		}
		begun := a.body != nil // otherwise the attempt waits for limits or a slot
		if begun {
			a.kept = r.w.kept.add(attemptKey{r.start.Run, a.id, a.attempt + 1}, a.body, !r.lost)
		}
		if !begun || !r.lost {
			r.abandonLocked(a, errTakenBack)
		}
	}
}

// keepOutcomeLocked keeps what a body returned. The caller holds the lock of the run.
func (r *run) keepOutcomeLocked(c *model.Command) {
	if !isOutcome(c) {
		return
	}
	k := r.w.kept.add(attemptKey{r.start.Run, c.Event.ID, c.Event.Attempt}, nil, !r.lost)
	r.w.kept.finish(k, *c)
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

// adopt waits for a kept attempt, and reports its outcome as the outcome of this attempt. p is not
// nil if this attempt has passed limits or a breaker. adopt returns false if the outcome means
// nothing and the body must run again.
func (j job) adopt(ctx *StepContext, p *passage, kept *keptAttempt) bool {
	r, a := j.m.r, j.a
	outcome, ok := r.w.kept.wait(ctx, kept)
	if ok {
		if p != nil {
			var err error
			if f := outcome.Event.Failure; f != nil {
				err = f
			}
			p.leave(true, err)
		}
		r.reportCommand(j, outcome)
		return true
	}

	// The body must not run again if the code has given up on it.
	if ctx.Err() != nil {
		if p != nil {
			p.leave(false, nil)
		}
		r.reportOutcome(j, model.Payload{}, context.Cause(ctx))
		return true
	}

	r.mu.Lock()
	if r.w.draining.Load() && a.kept == nil {
		a.body = nil
		j.skipLocked(p)
		return true
	}
	r.mu.Unlock()

	return false
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
