package engine

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// endless is a store whose runs have three pages.
type endless struct{ store.Store }

// LoadRun returns the first page.
//
//arch:parameters given by store.Store
func (endless) LoadRun(context.Context, model.ShardID, model.Address, model.RunID, int, int) (store.Run, error) {
	return store.Run{Execution: &store.Execution{}, Events: []model.Event{{Seq: 1}}, More: true}, nil
}

// LoadEvents returns the further pages.
//
//arch:parameters given by store.Store
func (endless) LoadEvents(_ context.Context, _ store.RunKey, after int64, _, _ int) ([]model.Event, error) {
	if after == 3 {
		return nil, nil
	}
	return []model.Event{{Seq: after + 1}}, nil
}

// Readers wait until the lane has taken what was read: for a further page if another read has
// several, and for any page if there are many results.
func TestOneLargeReadAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := newPages()
		done := make(chan *pageRead, openReads+1)
		for range openReads + 1 {
			go func() {
				r := p.open(ctx)
				if r == nil {
					return
				}
				if got := read(ctx, endless{}, lane.Load{Kind: lane.LoadRun}, 0, r.grow); got.Err == nil && len(got.Events) == 3 {
					done <- r
				}
			}()
		}

		synctest.Wait()
		if len(done) != 1 || len(p.results) != openReads {
			t.Fatalf("%d reads of several pages have ended, %d are open", len(done), len(p.results))
		}

		for range openReads {
			(<-done).close()
			synctest.Wait()
			if len(done) != 1 {
				t.Fatalf("%d reads of several pages have ended", len(done))
			}
		}

		(<-done).close()
		first, second := p.open(ctx), p.open(ctx)
		if !first.grow() || len(p.results) != 2 || len(p.large) != 1 {
			t.Fatal("what was read is still counted")
		}
		ended := make(chan bool)
		go func() { ended <- second.grow() }()
		synctest.Wait()
		cancel()
		if <-ended {
			t.Error("it has grown although another one is large")
		}
	})
}
