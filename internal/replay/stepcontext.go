package replay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// StepContext is the context of one attempt of a step, and identifies that attempt. Most bodies
// never use their context, so the standard library's context behind it is created only at first
// use.
type StepContext struct {
	start   *model.Start  // start of its run; never changed; nil when claimed is set
	claimed *ClaimContext // the context of a claimed task; nil for a step
	id      string
	attempt int32
	over    bool       // guarded by mu: the context ended before std was created
	section *section   // the section that the step is made in; nil when claimed is set
	w       *Worker    // the worker that runs it; nil when claimed is set
	asOf    model.Time // when the owner last sent the run anything

	mu    sync.Mutex
	std   *standardContext
	cause error
}

// standardContext is the standard library's context behind a StepContext.
type standardContext struct {
	context.Context

	stop context.CancelCauseFunc
}

var _ context.Context = (*StepContext)(nil)

// bodyContext returns the context of the next attempt of a step.
func (r *run) bodyContext(a *ask) *StepContext {
	s := &a.step.context
	if !a.step.tried.CompareAndSwap(false, true) {
		s = new(StepContext)
	}
	s.start, s.id, s.attempt, s.section = r.start, a.id, int32(a.attempt+1), a.section
	s.w, s.asOf = r.w, max(r.ownerNow, model.Time(a.fut.m.now.Load()), a.due)
	return s
}

// base returns the context around this one.
func (s *StepContext) base() context.Context {
	if s.claimed != nil {
		return s.claimed.Context
	}
	return s.w.base
}

// standard returns the context of the standard library behind this one, and creates it if
// necessary.
func (s *StepContext) standard() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.std == nil {
		s.std = new(standardContext)
		s.std.Context, s.std.stop = context.WithCancelCause(s.base())
		if s.over {
			s.std.stop(s.cause)
		}
	}
	return s.std.Context
}

// end ends the context. If it is called again, the first cause stays.
func (s *StepContext) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.std != nil:
		s.std.stop(cause)
	case !s.over:
		s.over, s.cause = true, cause
	}
}

// Deadline returns the deadline of the worker's context.
func (s *StepContext) Deadline() (time.Time, bool) { return s.base().Deadline() }

// Done returns a channel that is closed when the outcome of the attempt is no longer wanted, and
// after its body has returned.
func (s *StepContext) Done() <-chan struct{} { return s.standard().Done() }

// Err returns nil until Done is closed, and then context.Canceled or the error of the worker's
// context.
func (s *StepContext) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.std != nil:
		return s.std.Err()
	case s.over:
		return context.Canceled
	}
	return s.base().Err()
}

type stepContextKey struct{}

// Value returns the step itself, or the values of the contexts around it.
func (s *StepContext) Value(key any) any {
	if _, ok := key.(stepContextKey); ok {
		return s
	}
	return s.standard().Value(key)
}

// StepFrom returns the step that a context belongs to; nil outside of steps.
func StepFrom(ctx context.Context) *StepContext {
	s, _ := ctx.Value(stepContextKey{}).(*StepContext)
	return s
}

// ClaimContext is the context of a claimed task. Like a StepContext, it identifies the step and the
// attempt.
type ClaimContext struct {
	context.Context

	Claim *model.Claim
}

// Value returns the step, or the values of the contexts around it.
func (c *ClaimContext) Value(key any) any {
	if _, ok := key.(stepContextKey); ok {
		return &StepContext{claimed: c, id: cmp.Or(c.Claim.Step, c.Claim.Ref.ID), attempt: int32(c.Claim.Attempt), asOf: c.Claim.Claimed}
	}
	return c.Context.Value(key)
}

// Host returns the host of the worker that runs the step; nil for a task.
func (s *StepContext) Host() any {
	if s.w == nil {
		return nil
	}
	return s.w.cfg.Host
}

// Attempt returns the number of the attempt, from 1.
func (s *StepContext) Attempt() int { return int(s.attempt) }

// IdempotencyKey returns a key that is the same for all attempts of the step.
func (s *StepContext) IdempotencyKey() string { return idempotencyKey(s.identity(), s.id) }

// identity returns the run whose id is part of the idempotency key of the step.
func (s *StepContext) identity() model.RunID {
	switch {
	case s.claimed == nil:
		return s.start.IdentityRun()
	case s.claimed.Claim.Identity.IsZero():
		return s.claimed.Claim.Ref.Run
	}
	return s.claimed.Claim.Identity
}

func idempotencyKey(run model.RunID, id string) string {
	sum := sha256.Sum256([]byte(string(run[:]) + id))
	return hex.EncodeToString(sum[:16])
}

// Run returns the run that the step belongs to, and its address.
func (s *StepContext) Run() (model.RunID, model.Address) {
	if s.claimed != nil {
		return s.claimed.Claim.Ref.Run, s.claimed.Claim.Ref.Address
	}
	return s.start.Run, s.start.Address
}

// Origin returns the run whose id is part of the idempotency keys, and where the past of the run
// comes from. After a retry or an import, the past comes from another run, which may have executed
// the step before.
func (s *StepContext) Origin() (identity model.RunID, from model.Source) {
	if s.claimed != nil {
		return s.identity(), model.Source{}
	}
	return s.start.IdentityRun(), s.start.Source
}

// Earlier returns the runs that may have executed the step before, as far as the start of the run
// names them, latest first.
func (s *StepContext) Earlier() []model.RunID { return s.start.Earlier }

// Fence returns the fencing token of an entity that the section around the step has locked.
func (s *StepContext) Fence(entity model.Address) (int64, bool) {
	if s.claimed == nil {
		return s.section.fence(entity)
	}
	i := slices.IndexFunc(s.claimed.Claim.Spec.Fences, func(f model.Fence) bool { return f.Entity == entity })
	if i < 0 {
		return 0, false
	}
	return s.claimed.Claim.Spec.Fences[i].Epoch, true
}

// ID returns the identity of the step within its run.
func (s *StepContext) ID() string { return s.id }

// AsOf returns the time, by the owner's clock, at which the owner last sent the run something
// before the attempt began. If that is long ago, this process may have been suspended, and the
// owner may have given the run to another worker.
func (s *StepContext) AsOf() model.Time { return s.asOf }
