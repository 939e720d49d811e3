package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// hesitant is a store whose commits take a moment, so that signals arrive in between.
type hesitant struct{ store.Store }

func (h hesitant) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	time.Sleep(100 * time.Microsecond)
	return h.Store.Commit(ctx, b)
}

// Code runs ahead of its last commit to its end. Once the engine has accepted the end, the run
// leaves the worker, whether or not a signal arrived first. Nothing stays in memory.
func TestEndsThatRanAheadAreUnloaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, endsThatRanAhead)
}

func endsThatRanAhead(t *testing.T) {
	e, stop := open(t, hesitant{memory.New(memory.Options{})})
	defer stop()
	const runs = 300
	var mu sync.Mutex
	ran := map[string]int{}

	w := replay.NewWorker(replay.Config{IdleAfter: time.Hour, Code: map[string]replay.Code{"wf": func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
		a, _ := x.Self()
		for i := range 3 {
			_, err := x.Step(&replay.Step{Name: fmt.Sprint(i), Body: func(context.Context) (model.Payload, error) {
				mu.Lock()
				defer mu.Unlock()
				ran[fmt.Sprint(a.Key, " step ", i)]++
				return model.Payload{Data: []byte("1")}, nil
			}})
			if err != nil {
				return model.Payload{}, err
			}
		}
		return model.Payload{Data: []byte("2")}, nil
	}}})

	w.Serve(e.Join(w, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			m := start(fmt.Sprint(i))
			if _, err := e.Send(ctx, m); err != nil {
				t.Error(err)
				return
			}
			for range i % 4 {
				// The run may have ended, so the send may fail.
				_, _ = e.Send(ctx, &model.Message{Kind: model.MessageSignal, To: m.To, Name: "news"})
			}
			if r, err := e.Await(ctx, m.To, model.RunID{}); err != nil || r.Outcome.Status != model.Completed {
				t.Errorf("%s: %+v, %v", m.To.Key, r, err)
			}
		})
	}

	wg.Wait()
	synctest.Wait()
	if n := w.LoadedRuns(); n > 0 {
		t.Errorf("%d runs that have ended are still loaded", n)
	}

	for step, n := range ran {
		if n != 1 {
			t.Errorf("%s ran %d times", step, n)
		}
	}

	if err := w.Close(ctx); err != nil {
		t.Error(err)
	}
}

var _ engine.Worker = (*replay.Worker)(nil)
