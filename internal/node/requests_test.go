package node_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/store"
)

// sweeping records the time before which request ids are forgotten.
type sweeping struct {
	store.Store
	before atomic.Int64
}

func (s *sweeping) Sweep(ctx context.Context, r store.SweepRequest) (int, error) {
	s.before.Store(int64(r.RequestsBefore))
	return s.Store.Sweep(ctx, r)
}

// Request ids are remembered for a day or longer. A shorter time is refused, because the relays of
// every process rely on a day.
func TestRetainRequest(t *testing.T) {
	t.Parallel()
	for keep, want := range map[time.Duration]time.Duration{0: 24 * time.Hour, 48 * time.Hour: 48 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var s *sweeping
			n, err := node.Open(t.Context(), node.Config{URL: "memory:", RetainRequest: keep, Wrap: func(inner store.Store) store.Store {
				s = &sweeping{Store: inner}
				return s
			}})
			if err != nil {
				t.Fatal(err)
			}

			for s.before.Load() == 0 {
				time.Sleep(time.Second) // until a sweep; in virtual time
			}
			if age := time.Since(model.Time(s.before.Load()).Std()); age < want || age > want+2*time.Second {
				t.Errorf("RetainRequest %s: request ids are forgotten after %s, want %s", keep, age, want)
			}
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		})
	}

	for _, keep := range []time.Duration{-time.Hour, time.Hour, 24*time.Hour - 1, 10_000 * time.Hour} {
		if n, err := node.Open(t.Context(), node.Config{URL: "memory:", RetainRequest: keep}); !fault.Is(err, fault.Invalid) {
			t.Errorf("RetainRequest %s: %v", keep, err)
			if err == nil {
				_ = n.Close()
			}
		}
	}
}
