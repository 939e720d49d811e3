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

// A limit of 3 on three nodes, of which the first has no worker: its tasks are executed by those of the others, which lend them. One of these is cut off in the middle, or the first one is and
// comes back. Never more than 3 tasks are executed at a time; all end, and then all permits are free.
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
	c := &counter{now: map[string]*member{}, by: map[*member]int{}}
	do := func(m *member, claim model.Claim) *model.TaskReport {
		key := string(claim.Input.Data)
		if m.cut.Load() {
			return nil
		}
		c.begin(m, key)
		time.Sleep(long)
		if m.cut.Load() {
			return nil
		}
		c.end(m, key)
		return &model.TaskReport{Output: claim.Input}
	}
	a := r.join(0, nil)
	nodes := []*member{a, r.join(5, do), r.join(5, do)}
	ctx := t.Context()
	if err := a.Flow().SetLimit(ctx, model.DefaultTenant, rule.Limit{Name: "three", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 3}}, true); err != nil {
		t.Fatal(err)
	}
	const tasks = 200
	results := make(chan error, tasks)
	for i := range tasks {
		m := submit(fmt.Sprint(i), model.TaskSpec{Limits: []string{"three"}})
		if _, err := a.Send(ctx, m); err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				res, err := nodes[2].Await(ctx, m.To, model.RunID{})
				if err != nil {
					continue
				}
				if res.Outcome.Status != model.Completed {
					err = fmt.Errorf("task %d ended as %s: %w", i, res.Outcome.Status, res.Outcome.Failure)
				}
				results <- err
				return
			}
		}()
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
	time.Sleep(7 * time.Second) // nobody can know yet that it is gone
	c.mu.Lock()
	c.lost = 0
	c.mu.Unlock()
	for range tasks {
		select {
		case err := <-results:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Hour):
			t.Fatalf("tasks do not get through: %v", c.by)
		}
	}
	if c.most != 3 {
		t.Errorf("%d tasks at a time, and the limit is 3", c.most)
	}
	time.Sleep(30 * time.Second)
	if s, err := nodes[2].Flow().State(ctx, model.DefaultTenant); err != nil || !s.Known {
		t.Errorf("%+v, %v", s, err)
	} else {
		for _, u := range s.Uses {
			if u.Held != 0 || u.Waiting != 0 {
				t.Errorf("permits do not come back: %+v", u)
			}
		}
	}
	dead.cut.Store(false)
	r.close()
}

// The same, and nobody dies: runs move while their tasks are executed, to nodes that borrow, lend, or do both, and nodes that have made claims end. Every task is executed once.
func TestLimitOfLentWorkersWhileRunsMove(t *testing.T) {
	t.Parallel()
	for _, long := range []time.Duration{2 * time.Second, 9 * time.Second, 14 * time.Second} {
		t.Run("lenders come "+long.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				limitWhileRunsMove(t, long, func(r *ring, join func() *member) {
					for range 4 { // each executes what the first one has claimed, and then gets the runs
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

// leisurely is a store that takes its time to tell what there is in shards.
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
	c := &counter{now: map[string]*member{}, by: map[*member]int{}}
	do := func(m *member, claim model.Claim) *model.TaskReport {
		key := string(claim.Input.Data)
		c.begin(m, key)
		time.Sleep(long)
		c.end(m, key)
		return &model.TaskReport{Output: claim.Input}
	}
	a, ctx := r.join(0, nil), t.Context()
	if err := a.Flow().SetLimit(ctx, model.DefaultTenant, rule.Limit{Name: "three", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 3}}, true); err != nil {
		t.Fatal(err)
	}
	const tasks = 60
	for i := range tasks {
		if _, err := a.Send(ctx, submit(fmt.Sprint(i), model.TaskSpec{Limits: []string{"three"}})); err != nil {
			t.Fatal(err)
		}
	}
	happens(r, func() *member { return r.join(5, do) })
	for i := range tasks {
		for {
			res, err := a.Await(ctx, submit(fmt.Sprint(i), model.TaskSpec{}).To, model.RunID{})
			if err == nil && res.Outcome.Status != model.Completed {
				t.Errorf("task %d: %+v", i, res.Outcome)
			}
			if err == nil {
				break
			}
		}
	}
	if c.most != 3 {
		t.Errorf("%d tasks at a time, and the limit is 3", c.most)
	}
	if len(c.begins) != tasks {
		t.Errorf("%d attempts of %d tasks", len(c.begins), tasks)
	}
	time.Sleep(30 * time.Second)
	if s, err := a.Flow().State(ctx, model.DefaultTenant); err != nil || !s.Known || len(s.Uses) > 0 {
		t.Errorf("permits do not come back: %+v, %v", s, err)
	}
	r.close()
}

// A node gets the runs whose tasks its worker executes for their former owner, which has made the claims: these count without a gap, and once.
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
	serve := func(m *member) { // who serves a workflow gets runs, also those of tasks
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
	time.Sleep(30 * time.Second)
	if s, err := a.Flow().State(ctx, model.DefaultTenant); err != nil || !s.Known || len(s.Uses) > 0 {
		t.Errorf("permits do not come back: %+v, %v", s, err)
	}
	r.close()
}
