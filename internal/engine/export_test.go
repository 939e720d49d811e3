package engine

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
)

// SkewClock moves the wall clock of a node that does not run yet.
func (e *Engine) SkewClock(ahead time.Duration) {
	c := e.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keeper = storeclock.New(c.cfg, c.mono(), model.TimeOf(time.Now().Add(ahead)))
	c.publish(new(face))
}

// Owns reports whether the node owns the shard of an address.
func (e *Engine) Owns(a model.Address) bool {
	inc := e.current()
	return inc != nil && inc.lane(inc.shardOf(a)) != nil
}

// WantsChanges reports whether the lanes of the node have to say what they change.
func (e *Engine) WantsChanges() bool { return e.feed.On() }

// ExecuteToEnd does an Execute, and also waits for the end of the run if Execute has not.
func (e *Engine) ExecuteToEnd(ctx context.Context, m *model.Message) (lane.Result, error) {
	r, err := e.Execute(ctx, m)
	if err != nil || r.Outcome.Status.Closed() {
		return r, err
	}
	return e.Await(ctx, m.To, r.Run)
}
