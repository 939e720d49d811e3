package singleton

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Causes of the end of the context of the code.
var (
	// ErrStopping says that the app closes.
	ErrStopping = errors.New("the app closes")
	// ErrLost says that the candidate could not renew its lease in time, or that another candidate
	// has taken over.
	ErrLost = fault.New(fault.Conflict, "this process no longer runs the singleton: its lease was not renewed in time, or another process has taken over")
)

// Tenure is the time during which a candidate holds a register. It is safe for concurrent use.
type Tenure struct {
	candidate *Candidate
	epoch     int64
	ctx       *tenureContext

	saving sync.Mutex // saves happen one at a time, in the order of their numbers
	saved  int64

	mu       sync.Mutex
	renewed  time.Time // just before the last granted command was sent
	position model.Payload
}

// Epoch is the fencing token of this tenure. Later tenures have higher tokens.
func (t *Tenure) Epoch() int64 { return t.epoch }

// Position returns the last saved position.
func (t *Tenure) Position() model.Payload {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.position
}

// Save stores a position. It fails with ErrLost if the tenure is over. While the app closes, the
// code can still save. A save also renews the lease.
func (t *Tenure) Save(ctx context.Context, p model.Payload) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	if t.isLost() {
		return ErrLost
	}

	t.saved++
	err := t.apply(ctx, &Command{Verb: VerbSave, Saved: t.saved, Position: Position{Payload: p}})
	if err == nil {
		t.mu.Lock()
		t.position = p
		t.mu.Unlock()
	}
	return err
}

// apply sends a command of this tenure. A granted command renews the lease; a refused one ends the
// tenure.
func (t *Tenure) apply(ctx context.Context, c *Command) error {
	sent := time.Now()
	c.Candidate, c.Epoch = t.candidate.cfg.ID, t.epoch
	a, err := t.candidate.cfg.Register.Apply(ctx, c)
	if err != nil {
		return err
	}
	if !a.Granted {
		t.ctx.end(ErrLost)
		return ErrLost
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	if sent.After(t.renewed) {
		t.renewed = sent
	}
	return nil
}

// isLost reports whether the lease may have ended, or another candidate has taken over.
func (t *Tenure) isLost() bool { return t.left() <= 0 || errors.Is(context.Cause(t.ctx), ErrLost) }

// left returns for how long the code may still run without a renewal. It uses the clock that has
// advanced more, the monotonic clock or the wall clock. On most systems the monotonic clock stops
// while the machine is suspended.
func (t *Tenure) left() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	passed := max(now.Sub(t.renewed), now.Round(0).Sub(t.renewed.Round(0)))
	return t.candidate.cfg.Lease - t.candidate.cfg.Lease/marginShare - passed
}

// tenureContext is the context of the code. Err reads the clock itself. So code that was paused
// learns from its next call of Err that its time is over, even if no timer has fired yet.
type tenureContext struct {
	context.Context
	cancel context.CancelCauseFunc
	tenure *Tenure
}

// Err ends the context if the lease may have ended.
func (c *tenureContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.tenure.left() <= 0 {
		c.end(ErrLost)
	}
	return c.Context.Err()
}

func (c *tenureContext) end(cause error) { c.cancel(cause) }
