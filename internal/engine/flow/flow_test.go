package flow_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// guest is a process that executes nothing.
type guest struct{}

func (guest) Now() model.Time                                     { return 0 }
func (guest) Beside(func(context.Context)) bool                   { return false }
func (guest) Await(_ context.Context, ready <-chan struct{}) bool { <-ready; return true }
func (guest) Pause(context.Context, time.Duration) bool           { return false }
func (guest) Hint()                                               {}
func (guest) Participant() *flow.Participant                      { return nil }
func (guest) Retain(map[string]time.Duration)                     {}
func (guest) Announce([]model.Change)                             {}
func (guest) Works() bool                                         { return false }

func newFlow(st store.Store) *flow.Flow {
	return flow.New(flow.Config{Store: st, Log: slog.New(slog.DiscardHandler), Node: guest{}, Timeout: time.Minute})
}

// hasty is a store where two people write at the same moment, so that neither sees the other's
// write.
type hasty struct {
	store.Store
	meet *sync.WaitGroup
}

func (s hasty) PutSetting(ctx context.Context, x store.Setting, expected int64) (int64, error) {
	s.meet.Done()
	s.meet.Wait()
	return s.Store.PutSetting(ctx, x, expected)
}

// Two people set contradicting rules at the same moment. One call succeeds. The other call gets a
// conflict, and its rule is not left in the store.
func TestContradictingRules(t *testing.T) {
	t.Parallel()
	mem, ctx := memory.New(memory.Options{}), t.Context()
	var meet sync.WaitGroup
	meet.Add(2)

	errs := make(chan error, 2)
	for i := range 2 {
		f := newFlow(hasty{mem, &meet})
		go func() {
			errs <- f.SetLimit(ctx, model.DefaultTenant, rule.Limit{Name: fmt.Sprint("rule", i), Queue: "mail", Numbers: limit.Numbers{Concurrency: i + 1}}, true)
		}()
	}

	failed := 0
	for range 2 {
		if err := <-errs; err != nil {
			failed++
			if !fault.Is(err, fault.Conflict) {
				t.Error(err)
			}
		}
	}

	left, err := mem.ListSettings(ctx, model.DefaultTenant, "limit")
	if failed != 1 || err != nil || len(left) != 1 {
		t.Errorf("%d of 2 are refused, and %d rules are left: %v", failed, len(left), err)
	}
}

// A Flow that only reads refuses changes.
func TestReaderIsRefused(t *testing.T) {
	t.Parallel()
	err := flow.Of(memory.New(memory.Options{})).PauseQueue(t.Context(), model.DefaultTenant, "mail", "because")
	if !fault.Is(err, fault.Denied) {
		t.Errorf("%v, want a refusal", err)
	}
}
