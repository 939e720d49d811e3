package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Three nodes share a limit of 3. The first node has no worker, so workers that the other nodes
// lend execute its tasks. In the middle of the test, the first node or one of the other nodes is
// cut off. At most 3 tasks run at a time. In the end all tasks have ended and all permits are free.
func TestLimitOfLentWorkers(t *testing.T) {
	t.Parallel()
	for name, victim := range map[string]int{"a maker": 0, "a lender": 1} {
		for _, long := range []time.Duration{500 * time.Millisecond, 8 * time.Second} {
			t.Run(fmt.Sprint(name, " ", long), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { limitOfLentWorkers(t, victim, long) })
			})
		}
	}
}

func limitOfLentWorkers(t *testing.T, victim int, long time.Duration) {
	r := newRing(t)
	c := newCounter()
	do := func(m *member, claim model.Claim) *model.TaskReport {
		if m.cut.Load() {
			return nil
		}
		return c.work(m, claim, long)
	}

	a := r.join(0, nil)
	nodes := []*member{a, r.join(5, do), r.join(5, do)}
	r.limitTo3(a)
	const tasks = 200
	sendTasks(t, a.Engine, tasks, "", ofThree)
	results := make(chan error, tasks)
	for i := range tasks {
		go func() { results <- r.await(nodes[2], i) }()
	}
	time.Sleep(5 * time.Second) // while shards move
	dead := nodes[victim]

	if victim == 0 {
		dead.cut.Store(true)
	} else {
		for c.cut(dead) == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}

	c.outlive(t, tasks, time.Hour, results)
	c.atMost3(t)
	r.allFree(nodes[2])
	dead.cut.Store(false)
	r.close()
}

// In this test no node dies. Runs move while their tasks run, to nodes that borrow, lend, or do
// both. Nodes that have made claims stop in an orderly way. Every task is executed once.
func TestLimitOfLentWorkersWhileRunsMove(t *testing.T) {
	t.Parallel()
	for _, long := range []time.Duration{2 * time.Second, 9 * time.Second, 14 * time.Second} {
		t.Run("lenders come "+long.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				limitWhileRunsMove(t, long, func(r *ring, join func() *member) {
					// Each node executes tasks that the first node has claimed, and then gets the
					// runs.
					for range 4 {
						join()
						time.Sleep(20 * time.Second)
					}
				})
			})
		})

		t.Run("makers come and go "+long.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				limitWhileRunsMove(t, long, func(r *ring, join func() *member) {
					join()
					join()
					for range 8 {
						a := r.join(0, nil)
						time.Sleep(13 * time.Second)
						a.stop()
						time.Sleep(3 * time.Second)
					}
				})
			})
		})
	}
}

// leisurely is a store that is slow to list the contents of shards.
type leisurely struct{ store.Store }

func (s leisurely) LoadRunnable(ctx context.Context, shards []model.ShardID, after store.RunKey, limit int) ([]store.RunHead, error) {
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
	}
	return s.Store.LoadRunnable(ctx, shards, after, limit)
}

func limitWhileRunsMove(t *testing.T, long time.Duration, happens func(r *ring, join func() *member)) {
	t.Helper()
	r := newRing(t)
	r.st = leisurely{r.st}
	c := newCounter()
	a := r.join(0, nil)
	r.limitTo3(a)
	const tasks = 60
	sendTasks(t, a.Engine, tasks, "", ofThree)
	happens(r, func() *member { return r.join(5, c.worker(long)) })
	r.awaitAll(a, tasks)
	c.atMost3(t)
	c.onceEach(t, tasks)
	r.allFree(a)
	r.close()
}

// The worker of a node executes tasks of another node, which has made the claims. Then the runs
// move to the node of the worker. At every moment exactly one node counts each claim.
func TestPermitsOfRunsThatMoveToTheLender(t *testing.T) {
	t.Parallel()
	for _, slow := range []bool{false, true} {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { permitsMoveToLender(t, slow) })
		})
	}
}

func permitsMoveToLender(t *testing.T, slow bool) {
	t.Helper()
	r := newRing(t)
	if slow {
		r.st = leisurely{r.st}
	}
	var mu sync.Mutex
	now, begun := map[string]int{}, 0
	a, ctx := r.join(0, nil), t.Context()
	if err := a.Flow().SetLimit(ctx, model.DefaultTenant, rule.Limit{Name: "keyed", Queue: "*", Per: rule.PerKey, Key: "input", Numbers: limit.Numbers{Concurrency: 1}}, true); err != nil {
		t.Fatal(err)
	}

	// Only a node that serves a workflow gets runs, including runs of tasks.
	serve := func(m *member) {
		s := &stepper{steps: 1, ran: map[string]int{}}
		s.session = m.Join(s, model.Offer{Tenant: model.DefaultTenant, Workflows: []string{"wf"}})
	}

	serve(a)
	const keys = 60
	send := func(i int) *model.Message {
		m := submit(fmt.Sprint(i), model.TaskSpec{})
		m.Input.Data = fmt.Appendf(nil, "%q", fmt.Sprint("key ", i%keys))
		return m
	}

	b := r.join(keys+20, func(_ *member, claim model.Claim) *model.TaskReport {
		key := string(claim.Input.Data)
		mu.Lock()
		begun++
		if now[key]++; now[key] > 1 {
			t.Errorf("%d tasks of %s at a time", now[key], key)
		}
		mu.Unlock()
		time.Sleep(25 * time.Second)
		mu.Lock()
		now[key]--
		mu.Unlock()
		return &model.TaskReport{Output: claim.Input}
	})

	settle()
	for i := range 3 * keys {
		if _, err := a.Send(ctx, send(i)); err != nil {
			t.Fatal(err)
		}
	}

	time.Sleep(time.Second)
	serve(b)
	for i := range 3 * keys {
		for {
			if _, err := a.Await(ctx, send(i).To, model.RunID{}); err == nil {
				break
			}
		}
	}

	if begun != 3*keys {
		t.Errorf("%d attempts of %d tasks", begun, 3*keys)
	}
	r.allFree(a)
	r.close()
}
