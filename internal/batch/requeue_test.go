package batch_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// graves lists n dead tasks in pages and counts how often each is requeued.
type graves struct {
	api.Client
	n   int
	end model.Status // how every requeued task ends
	bad string       // the task that is refused

	mu       sync.Mutex
	requeued map[string]int
}

func (g *graves) ListDead(_ context.Context, r api.DeadRequest) (page api.DeadPage, err error) {
	from := 0
	if r.Cursor != "" {
		if from, err = strconv.Atoi(r.Cursor); err != nil {
			return page, err
		}
	}

	if r.Requeued == nil || *r.Requeued {
		return page, errors.New("those that were requeued before are listed")
	}
	for i := from; i < min(g.n, from+r.Limit); i++ {
		page.Tasks = append(page.Tasks, api.DeadTask{ID: api.DeadID{Task: fmt.Sprint(i)}})
	}
	if from+r.Limit < g.n {
		page.Cursor = strconv.Itoa(from + r.Limit)
	}

	return page, nil
}

func (g *graves) Requeue(_ context.Context, r api.RequeueRequest) (api.RequeueReply, error) {
	if r.ID.Task == g.bad {
		return api.RequeueReply{}, errors.New("refused")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.requeued == nil {
		g.requeued = map[string]int{}
	}
	g.requeued[r.ID.Task]++
	return api.RequeueReply{Address: model.Address{Key: r.ID.Task}}, nil
}

func (g *graves) Await(context.Context, api.Target) (api.Result, error) {
	return api.Result{Outcome: model.Outcome{Status: g.end}}, nil
}

func (g *graves) requeue(ctx context.Context, how batch.Requeue) (done int, failed, last error) {
	for r := range batch.RequeueAll(ctx, g, api.DeadRequest{}, how) {
		switch {
		case r.Task == nil:
			last = r.Err
		case r.Err != nil:
			failed = r.Err
		default:
			done++
		}
	}
	return done, failed, last
}

func TestEveryDeadTaskOnce(t *testing.T) {
	t.Parallel()
	for _, canary := range []bool{false, true} {
		g := &graves{n: 450, end: model.Completed, bad: "0"}
		done, failed, last := g.requeue(t.Context(), batch.Requeue{Canary: canary})
		if done != 449 || failed == nil || last != nil || len(g.requeued) != 449 {
			t.Errorf("canary %v: %d of %d requeued, %v, %v", canary, done, len(g.requeued), failed, last)
		}
		for id, times := range g.requeued {
			if times != 1 {
				t.Errorf("%s: %d times", id, times)
			}
		}
	}
}

// If the canary does not complete, no other task is requeued.
func TestCanaryStopsTheOthers(t *testing.T) {
	t.Parallel()
	g := &graves{n: 450, end: model.Failed, bad: "0"}
	done, _, last := g.requeue(t.Context(), batch.Requeue{Canary: true})
	if done != 1 || !fault.Is(last, fault.Conflict) || g.requeued["1"] != 1 {
		t.Errorf("%d requeued (%v), %v", done, g.requeued, last)
	}
}

// Requeues never exceed the rate, even if the rate is very small. A pause that is too long for a
// Duration becomes a very long pause, not zero.
func TestRequeueRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate float64
		want int
	}{{0, 450}, {1, 60}, {0.1, 6}, {1e-9, 0}, {1e-10, 0}, {1e-300, 0}, {math.SmallestNonzeroFloat64, 0}, {1e12, 450}, {math.Inf(1), 450}} {
		synctest.Test(t, func(t *testing.T) { // a failure ends the whole test
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute+time.Millisecond)
			defer cancel()
			if done, _, _ := (&graves{n: 450}).requeue(ctx, batch.Requeue{Rate: c.rate}); done != c.want {
				t.Errorf("%g per second: %d in a minute, want %d", c.rate, done, c.want)
			}
		})
	}
}
