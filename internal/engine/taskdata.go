package engine

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Write stores data that a claim writes next to the history, whichever node owns the run. It
// returns when the data is durable. If the outcome is unknown, the caller may repeat the write,
// because the owner skips data that it has. An error of kind NotOwned means that the claim is over.
// In that case nothing is written.
func (s *TaskSession) Write(ctx context.Context, w *model.TaskWrite) error {
	if !s.hasClaim(w.Ref) {
		return fault.New(fault.NotOwned, "%s: the claim has ended, or another worker has it", w.Ref.TaskRef)
	}
	write := *w
	write.By = s.speaker()
	_, err := s.eng.Send(ctx, &model.Message{Kind: model.MessageWrite, To: w.Ref.Address, ToRun: w.Ref.Run, Write: &write})
	return err
}

// States reads the states of the task of a claim, ordered by name.
func (s *TaskSession) States(ctx context.Context, ref model.ClaimRef) ([]store.TaskDatum, error) {
	if !s.hasClaim(ref) {
		return nil, fault.New(fault.NotOwned, "%s: the claim has ended, or another worker has it", ref.TaskRef)
	}
	return s.eng.cfg.Store.LoadTaskData(ctx, store.RunKey{Shard: s.eng.layout.Shard(ref.Address), Run: ref.Run}, store.StateRange(ref.ID))
}

// watchAgain is how often a listener renews its interest with another node. It is less than half of
// the time for which that node sends hints after a renewal.
const watchAgain = 50 * time.Second

// WatchChanges returns a channel that is closed when a change of the execution has been committed,
// or when the caller should look again for another reason. To wait for a condition, the caller
// first calls WatchChanges and then checks the condition, so that it misses no change. The caller
// must call stop. WatchChanges returns an error if the engine has ended.
func (e *Engine) WatchChanges(ctx context.Context, a model.Address) (changed <-chan struct{}, stop func(), err error) {
	if changed, stop, err = e.listen(ctx, a); err != nil {
		return nil, nil, err
	}
	select {
	case <-e.stopped: // hangUp wakes earlier listeners
		stop()
		return nil, nil, e.gaveUp(ctx, "listen to %s", a)
	default:
		return changed, stop, nil
	}
}

func (e *Engine) listen(ctx context.Context, a model.Address) (changed <-chan struct{}, stop func(), err error) {
	served := e.served.listen() // listen before the look, because the next ring may be far away
	if inc := e.current(); inc != nil {
		if s := inc.lane(inc.shardOf(a)); s != nil {
			c, err := s.watch(ctx, a)
			if err == nil {
				return c.done, func() { s.unwatch(a, c) }, nil
			}
			if !errors.Is(err, lane.ErrNotOwner) {
				return nil, nil, err
			}
		}
	}

	if !e.cfg.Store.Info().Shared { // the only possible node is between two incarnations
		return served, func() {}, nil
	}
	return e.clerk.listen(ctx, a)
}

// hangUp wakes all listeners, because the engine has ended.
func (e *Engine) hangUp() {
	close(e.stopped)
	e.feed.Close()
	e.replies.Close()
	e.served.ring()
	e.clerk.lookAgain()
}

// watch returns a call that the next change of an address finishes.
func (s *laneShell) watch(ctx context.Context, a model.Address) (*call, error) {
	c, registered := newCall(), newCall()
	err := s.inbox.put(ctx, op{token: registered, do: func(l *lane.Lane, _ model.Time) {
		registered.finish(&lane.Answer{Err: l.Watch(a, c)})
	}})
	if err != nil {
		return nil, err
	}
	select {
	case <-registered.done:
		return c, registered.answer.Err
	case <-ctx.Done():
		s.unwatch(a, c)
		return nil, fault.New(fault.KindOf(ctx.Err()), "listen to %s: %w", a, context.Cause(ctx))
	}
}

func (s *laneShell) unwatch(a model.Address, c *call) {
	select {
	case <-c.done: // the lane no longer has the call
	default:
		s.inbox.follow(op{do: func(l *lane.Lane, _ model.Time) { l.Unwatch(a, c) }})
	}
}

// listening holds the calls that wait for changes of an execution that another node owns.
type listening struct {
	calls []*call
	said  time.Time // when this node last told the owner that it listens
}

// listen listens to an execution that another node owns. It informs the owner, which sends a hint
// after each change. Without hints the clerk looks every second.
func (k *clerk) listen(ctx context.Context, a model.Address) (<-chan struct{}, func(), error) {
	c := newCall()
	now := time.Now()
	k.mu.Lock()

	l := k.listens[a]
	if l == nil {
		l = &listening{}
		k.listens[a] = l
	}

	say := now.Sub(l.said) > watchAgain
	if say {
		l.said = now
	}
	l.calls = append(l.calls, c)
	k.mu.Unlock()
	k.lookout.Expect()

	stop := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		l.calls = without(l.calls, c)
		k.forgetListensLater()
	}

	if say {
		if _, err := k.put(ctx, newID(), &model.Message{Kind: model.MessageWatch, To: a, Name: model.WatchChanges}); err != nil {
			stop()
			return nil, nil, err
		}
	}

	return c.done, stop, nil
}

// forgetListensLater drops addresses without listeners after a while. Until then, another listener
// need not inform the owner again. The caller must hold the lock.
func (k *clerk) forgetListensLater() {
	if k.forgetting {
		return
	}
	k.forgetting = true

	time.AfterFunc(watchAgain, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.forgetting = false

		now, left := time.Now(), false
		for a, l := range k.listens {
			switch {
			case len(l.calls) > 0:
			case now.Sub(l.said) >= watchAgain:
				delete(k.listens, a)
			default:
				left = true
			}
		}

		if left {
			k.forgetListensLater()
		}
	})
}

// lookAgain wakes all listeners.
func (k *clerk) lookAgain() {
	k.mu.Lock()
	var calls []*call
	for _, l := range k.listens {
		calls = append(calls, l.calls...)
		l.calls = nil
	}
	k.mu.Unlock()
	for _, c := range calls {
		c.finish(&lane.Answer{})
	}
}
