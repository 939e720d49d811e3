package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// The store's clock is set forward permanently. When the node accepts the new time, a task that is
// due at the new time starts, and does not wait for its whole delay.
// That holds for leases of any length, although a node reads the store's clock when it renews.
func TestClockIsPutForward(t *testing.T) {
	t.Parallel()
	for name, lease := range map[string]time.Duration{"usual lease": 0, "longest lease": cluster.Longest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { putForward(t, lease) })
		})
	}
}

func putForward(t *testing.T, lease time.Duration) {
	t.Helper()
	var ahead atomic.Int64
	st := memory.New(memory.Options{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	e, stop := openWith(t, engine.Config{Store: st, LeaseTTL: lease})
	defer stop()
	h := newHand(e, 1, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })
	if _, err := e.Send(t.Context(), submit("later", model.TaskSpec{Delay: 2 * time.Hour})); err != nil {
		t.Fatal(err)
	}

	ahead.Store(int64(2 * time.Hour))
	began := time.Now()
	h.until(func() bool { return len(h.claims) == 1 })
	if d := time.Since(began); d > 12*time.Minute {
		t.Errorf("it begins %s after the clock was put forward", d)
	}
}

// slowly is a store that several nodes share, and that takes long to register a node.
type slowly struct {
	store.Store
	takes time.Duration
}

func (s slowly) Info() store.Info {
	i := s.Store.Info()
	i.Shared = true
	return i
}

func (s slowly) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	time.Sleep(s.takes)
	return s.Store.Register(ctx, n, lanes, ttl)
}

// A run sleeps, and moves to a node that needed long to register. The timer of the run must not
// fire early because of the clock of that node.
func TestTimerOfANodeThatStartedSlowly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		first, stop := open(t, slowly{st, 0})
		if _, err := first.Send(t.Context(), submit("later", model.TaskSpec{Delay: 10 * time.Second})); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		stop()
		second, stop := open(t, slowly{st, 2 * time.Second})
		defer stop()
		h := newHand(second, 1, func(c model.Claim) *model.TaskReport { return &model.TaskReport{Output: c.Input} })
		h.until(func() bool { return len(h.claims) == 1 })
		if d := time.Since(began); d < 10*time.Second-50*time.Millisecond {
			t.Errorf("it begins after %s", d)
		}
	})
}
