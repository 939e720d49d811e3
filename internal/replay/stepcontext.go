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

// StepContext is the context of one attempt of a step, and tells which one it is. Most bodies never
// look at it, so what makes it one of the standard library's contexts, which others can be derived
// from at no cost, is made when somebody does.
type StepContext struct {
	start   *model.Start // of its run; never changed; nil when claim is set
	claim   *model.Claim // of a task
	id      string
	attempt int
	section *section        // that it is made in; nil when claim is set
	w       *Worker         // that runs it; nil when claim is set
	asOf    model.Time      // when the owner last told the run anything
	base    context.Context //nolint:containedctx // it is one

	mu    sync.Mutex
	std   context.Context //nolint:containedctx // it is one
	stop  context.CancelCauseFunc
	over  bool // ended before std was made
	cause error
}

var _ context.Context = (*StepContext)(nil)

// bodyContext is the context of the next attempt of a step.
func (r *run) bodyContext(a *ask) *StepContext {
	return &StepContext{
		start: &r.start, id: a.id, attempt: a.attempt + 1, section: a.section, w: r.w, asOf: max(r.ownerNow, model.Time(a.fut.m.now.Load()), a.due), base: r.w.base,
	}
}

// standard is the same context as one of the standard library.
func (s *StepContext) standard() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.std == nil {
		s.std, s.stop = context.WithCancelCause(s.base)
		if s.over {
			s.stop(s.cause)
		}
	}
	return s.std
}

// end ends the context; the first cause counts.
func (s *StepContext) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.std != nil:
		s.stop(cause)
	case !s.over:
		s.over, s.cause = true, cause
	}
}

// Deadline is that of whatever the worker runs under.
func (s *StepContext) Deadline() (time.Time, bool) { return s.base.Deadline() }

// Done is closed when nobody wants the outcome of the attempt any more, and after its body has
// returned.
func (s *StepContext) Done() <-chan struct{} { return s.standard().Done() }

// Err is set once Done is closed.
func (s *StepContext) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.std != nil:
		return s.std.Err()
	case s.over:
		return context.Canceled
	}
	return s.base.Err()
}

type stepContextKey struct{}

// Value finds the step itself, or what the contexts around it hold.
func (s *StepContext) Value(key any) any {
	if _, ok := key.(stepContextKey); ok {
		return s
	}
	return s.standard().Value(key)
}

// StepFrom is the step that a context belongs to, nil outside of steps.
func StepFrom(ctx context.Context) *StepContext {
	s, _ := ctx.Value(stepContextKey{}).(*StepContext)
	return s
}

// ClaimContext is the context of a task that was claimed: it tells which step and which attempt it
// is, as that of a step does.
type ClaimContext struct {
	context.Context

	Claim *model.Claim
}

// Value finds the step, or what the contexts around it hold.
func (c *ClaimContext) Value(key any) any {
	if _, ok := key.(stepContextKey); ok {
		return &StepContext{claim: c.Claim, id: cmp.Or(c.Claim.Step, c.Claim.Ref.ID), attempt: c.Claim.Attempt, asOf: c.Claim.Claimed, base: c.Context}
	}
	return c.Context.Value(key)
}

// Host is what the worker that runs the step was configured with; nil for a task.
func (s *StepContext) Host() any {
	if s.w == nil {
		return nil
	}
	return s.w.cfg.Host
}

// Attempt counts from 1.
func (s *StepContext) Attempt() int { return s.attempt }

// IdempotencyKey is stable over all attempts of the step.
func (s *StepContext) IdempotencyKey() string { return idempotencyKey(s.identity(), s.id) }

// identity is the run in whose name the step is made.
func (s *StepContext) identity() model.RunID {
	switch {
	case s.claim == nil:
		return s.start.IdentityRun()
	case s.claim.Identity.IsZero():
		return s.claim.Ref.Run
	}
	return s.claim.Identity
}

func idempotencyKey(run model.RunID, id string) string {
	sum := sha256.Sum256([]byte(string(run[:]) + id))
	return hex.EncodeToString(sum[:16])
}

// Run is the run that the step belongs to, and its address.
func (s *StepContext) Run() (model.RunID, model.Address) {
	if s.claim != nil {
		return s.claim.Ref.Run, s.claim.Ref.Address
	}
	return s.start.Run, s.start.Address
}

// Again tells in whose name the run makes its steps, and where its past comes from. After a retry
// or an import that is another run, which may have made the step before.
func (s *StepContext) Again() (identity model.RunID, from model.Source) {
	if s.claim != nil {
		return s.identity(), model.Source{}
	}
	return s.start.IdentityRun(), s.start.Source
}

// Earlier are the runs in whose name the run makes its steps, as far as its start tells, the last
// one first.
func (s *StepContext) Earlier() []model.RunID { return s.start.Earlier }

// Fence is the token of an entity that is locked where the step is made.
func (s *StepContext) Fence(entity model.Address) (int64, bool) {
	if s.claim == nil {
		return s.section.fence(entity)
	}
	i := slices.IndexFunc(s.claim.Spec.Fences, func(f model.Fence) bool { return f.Entity == entity })
	if i < 0 {
		return 0, false
	}
	return s.claim.Spec.Fences[i].Epoch, true
}

// ID is the identity of the step within its run.
func (s *StepContext) ID() string { return s.id }

// AsOf is when the owner last told the run anything that let the attempt begin, by the owner's
// clock. An attempt that finds itself long after that was forgotten by everybody: the process stood
// still.
func (s *StepContext) AsOf() model.Time { return s.asOf }
