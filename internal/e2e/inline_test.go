package e2e_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/store"
)

// occupancy counts how many bodies run at a time.
type occupancy struct {
	mu        sync.Mutex
	now, most int
	by        map[int]int // how many have ended, by app
}

func (c *occupancy) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	c.most = max(c.most, c.now)
}

func (c *occupancy) leave(app int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[int]int{}
	}
	c.now--
	c.by[app]++
}

func (c *occupancy) counts() (most int, by map[int]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most, map[int]int{0: c.by[0], 1: c.by[1]}
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// free checks that the permits of a limit come back.
func free(t *testing.T, app *perdure.App) {
	t.Helper()
	eventually(t, "all permits are free", func() bool {
		limits, err := app.Limits().List(t.Context())
		if err != nil || len(limits) == 0 {
			return false
		}
		for _, l := range limits {
			for _, u := range l.Uses {
				if u.Held != 0 || u.Waiting != 0 {
					return false
				}
			}
		}
		return true
	})
}

// Attempts of activities without a queue pass limits and breakers on every store. An open breaker
// holds them back after a restart too.
func TestInlineGate(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		var bodies occupancy
		both := make(chan struct{}) // two bodies run at the same time
		var pairs sync.Once
		limited := perdure.NewActivity("limited", func(ctx context.Context, n int) (int, error) {
			bodies.enter()
			defer bodies.leave(0)
			if most, _ := bodies.counts(); most == 2 {
				pairs.Do(func() { close(both) })
			}
			select {
			case <-both:
			case <-ctx.Done():
			}
			return n, nil
		}, perdure.Limit("two"))
		var calls atomic.Int32
		var up atomic.Bool
		call := perdure.NewActivity("call", func(context.Context, int) (int, error) {
			calls.Add(1)
			if !up.Load() {
				return 0, errors.New("down")
			}
			return 1, nil
		}, perdure.Breaker("bank"), perdure.Constant(5, time.Millisecond))
		flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, n int) (int, error) { return limited.Run(ctx, n) })
		bank := perdure.NewWorkflow("bank", func(ctx perdure.WorkflowCtx, n int) (int, error) { return call.Run(ctx, n) })

		app := s.open(limited, call, flow, bank)
		c := caller(t, app)
		must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "two", Concurrency: 2}))
		must(t, app.Breakers().SetRule(t.Context(), perdure.BreakerRule{Name: "bank", Failures: 2, Reset: time.Hour}))
		var all []perdure.Execution[int]
		for i := range 10 {
			all = append(all, mustStart(t, c, flow, i))
		}
		for i, x := range all {
			got, err := x.Result(c)
			equal(t, "result", got, err, i)
		}
		if most, _ := bodies.counts(); most != 2 {
			t.Errorf("%d bodies ran at a time, want 2", most)
		}
		free(t, app)

		kept := mustStart(t, c, bank, 1, perdure.RawKey("kept"))
		reason(t, app, kept, "circuit breaker bank")
		app = s.reopen(app, limited, call, flow, bank)
		c = caller(t, app)
		reason(t, app, kept, "circuit breaker bank")
		if n := calls.Load(); n != 2 {
			t.Errorf("%d calls while the breaker is open, want 2", n)
		}
		up.Store(true)
		must(t, app.Breakers().Reset(t.Context(), "bank"))
		got, err := bank.Execution(perdure.RawKey("kept")).Result(c)
		equal(t, "after the reset", got, err, 1)
	})
}

// All processes of a store share a limit for inline attempts.
func TestInlineLimitOfTwoNodes(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgres")
	var bodies occupancy
	const flows = 24
	open := func(app int) (*perdure.App, *perdure.Workflow[int, int]) {
		limited := perdure.NewActivity("limited", func(_ context.Context, n int) (int, error) {
			bodies.enter()
			// Give a body that must not run enough time to start.
			time.Sleep(time.Millisecond)
			bodies.leave(app)
			return n, nil
		}, perdure.Limit("three"))
		flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, n int) (int, error) { return limited.Run(ctx, n) })
		return s.open(limited, flow), flow
	}

	one, flow := open(0)
	must(t, one.Limits().Set(t.Context(), perdure.LimitRule{Name: "three", Concurrency: 3}))
	two, _ := open(1)
	c := [...]perdure.Client{caller(t, one), caller(t, two)}
	n := 0
	eventually(t, "both processes have made attempts", func() bool {
		var all []perdure.Execution[int]
		for range flows {
			n++
			all = append(all, mustStart(t, c[n%2], flow, n))
		}
		for i, x := range all {
			got, err := x.Result(c[0])
			equal(t, "result", got, err, n-flows+1+i)
		}
		_, by := bodies.counts()
		return by[0] > 0 && by[1] > 0
	})
	if most, by := bodies.counts(); most > 3 {
		t.Errorf("%d bodies ran at a time, want 3 at most; they ended at %v", most, by)
	}
	free(t, one)
}

// cable is the connection of a process to a shared store. Once it is cut, no call passes.
type cable struct {
	store.Store
	cut    *atomic.Bool
	fenced *atomic.Bool // the next renewal says that the node has lost its lease
}

func (c cable) Info() store.Info {
	i := c.Store.Info()
	i.Shared = true
	return i
}

func (c cable) away(op string) error {
	if c.cut.Load() {
		return store.Errorf(store.Away, op, "the cable is cut")
	}
	return nil
}

func (c cable) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	if err := c.away("commit"); err != nil {
		return store.Committed{}, err
	}
	return c.Store.Commit(ctx, b)
}

func (c cable) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	if err := c.away("renew"); err != nil {
		return store.View{}, err
	}
	if c.fenced.CompareAndSwap(true, false) {
		return store.View{}, store.ErrFenced
	}
	return c.Store.Renew(ctx, r)
}

func (c cable) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	if err := c.away("register"); err != nil {
		return store.Registration{}, err
	}
	return c.Store.Register(ctx, n, lanes, ttl)
}

func (c cable) Unregister(ctx context.Context, n model.NodeID, epoch int64) error {
	if err := c.away("unregister"); err != nil {
		return err
	}
	return c.Store.Unregister(ctx, n, epoch)
}

func (c cable) PutSetting(ctx context.Context, s store.Setting, expected int64) (int64, error) {
	if err := c.away("put setting"); err != nil {
		return 0, err
	}
	return c.Store.PutSetting(ctx, s, expected)
}

func (c cable) LoadSettings(ctx context.Context, after int64) (store.SettingChanges, error) {
	if err := c.away("load settings"); err != nil {
		return store.SettingChanges{}, err
	}
	return c.Store.LoadSettings(ctx, after)
}

func (cable) Close() error { return nil }

// A process is cut off from the store while its attempts hold permits and other attempts wait. The
// permits become free, and all executions end, whether the process is dead or returns. Bodies that
// continue for a while after the process has lost its lease keep their permits until they have
// ended. Time is virtual.
func TestInlinePermitsAfterLeaseLoss(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		nodes int
		back  bool // the process returns
	}{{"one node that starts over", 1, true}, {"two nodes, one is gone for good", 2, false}, {"two nodes, one comes back", 2, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { inlineAfterLeaseLoss(t, c.nodes, c.back) })
		})
	}
}

func inlineAfterLeaseLoss(t *testing.T, nodes int, back bool) {
	var shared store.Store
	var cut, fenced [2]atomic.Bool
	var bodies occupancy
	var apps []*perdure.App
	var flow *perdure.Workflow[int, int]
	stubborn := 25 * time.Second // the body runs longer than a lease, and ignores its context
	for i := range nodes {
		n, err := node.Open(t.Context(), node.Config{URL: "memory:", Wrap: func(st store.Store) store.Store {
			if shared == nil {
				shared = st
			}
			return cable{shared, &cut[i], &fenced[i]}
		}})

		must(t, err)
		limited := perdure.NewActivity("limited", func(_ context.Context, n int) (int, error) {
			if cut[i].Load() && !back { // the process is gone
				return 0, errors.New("this error gets lost")
			}
			bodies.enter()
			time.Sleep(stubborn)
			bodies.leave(i)
			return n, nil
		}, perdure.Limit("three"))

		flow = perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, n int) (int, error) { return limited.Run(ctx, n) })
		app, err := attach.Embed(t.Context(), attach.Config{Backend: n.Backend(), Tenant: model.DefaultTenant, OnClosing: n.Stopping, OnClose: n.Close}, limited, flow)
		must(t, err)
		apps = append(apps, app)
	}

	last := apps[nodes-1]
	must(t, last.Limits().Set(t.Context(), perdure.LimitRule{Name: "three", Concurrency: 3}))
	time.Sleep(30 * time.Second) // shards have moved, and both nodes have the limit
	c := last.With(t.Context())
	var all []perdure.Execution[int]
	for i := range 12 {
		all = append(all, mustStart(t, c, flow, i))
	}
	time.Sleep(5 * time.Second) // three run, and nine wait
	switch {
	case nodes == 1: // there is no other node that could fence it
		fenced[0].Store(true)
	case back:
		cut[0].Store(true)
		time.Sleep(15 * time.Second)
		cut[0].Store(false)
	default:
		cut[0].Store(true)
	}
	for i, x := range all {
		for { // the process may have lost its lease
			got, err := x.Result(c)
			if errors.Is(err, perdure.ErrUnavailable) {
				time.Sleep(time.Second)
				continue
			}
			equal(t, "result", got, err, i)
			break
		}
	}
	most, by := bodies.counts()
	t.Logf("%d at a time, ended at %v", most, by)
	// Two nodes cannot see each other's bodies while one of them is cut off, so more than 3 may
	// run.
	if nodes == 1 && (most > 3 || by[0] != len(all)) {
		t.Errorf("%d bodies ran at a time, want 3; %v ended, want %d", most, by, len(all))
	}
	time.Sleep(time.Minute)
	free(t, last)
	for i, app := range apps {
		if err := app.Close(); err != nil && !cut[i].Load() {
			t.Errorf("close: %v", err)
		}
	}
}
