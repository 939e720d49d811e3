package e2e_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// headcount counts tasks that run at the same time, and remembers the maximum.
type headcount struct{ now, most atomic.Int64 }

func (c *headcount) enter() (leave func()) {
	now := c.now.Add(1)
	for {
		was := c.most.Load()
		if now <= was || c.most.CompareAndSwap(was, now) {
			return func() { c.now.Add(-1) }
		}
	}
}

// Under load, on every store, the number of tasks that run at a time never exceeds the limit.
func TestLimitUnderLoad(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		var inside headcount
		work := perdure.NewActivity("work", func(_ context.Context, n int) (int, error) {
			defer inside.enter()()
			time.Sleep(time.Millisecond) // so that they overlap
			return n, nil
		}, perdure.OnQueue("work"), perdure.Limit("three"))

		s.cfg.Tasks = perdure.TaskConfig{Slots: 64}
		app := s.open(work)
		if err := app.Limits().Set(t.Context(), perdure.LimitRule{Name: "three", Concurrency: 3}); err != nil {
			t.Fatal(err)
		}
		var ins []int
		for i := range 200 {
			ins = append(ins, i)
		}
		c := caller(t, app)
		runs, err := work.SubmitMany(c, ins)
		if err != nil {
			t.Fatal(err)
		}

		for i, x := range runs {
			got, err := x.Result(c)
			equal(t, "result", got, err, i)
		}

		if got := inside.most.Load(); got != 3 {
			t.Errorf("%d ran at a time, the limit is 3", got)
		}
	})
}

// Rules, paused queues and an open breaker survive a restart.
func TestFlowSurvivesARestart(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		var down atomic.Bool
		down.Store(true)
		var calls atomic.Int64

		call := perdure.NewActivity("call", func(_ context.Context, n int) (int, error) {
			calls.Add(1)
			if down.Load() {
				return 0, errors.New("the other side is away")
			}
			return n, nil
		}, perdure.OnQueue("api"), perdure.Breaker("other"), perdure.Limit("lines"), perdure.RetryPolicy{MaxAttempts: 4, Initial: time.Millisecond})

		app := s.open(call)
		ctx := t.Context()
		for _, err := range []error{
			app.Breakers().SetRule(ctx, perdure.BreakerRule{Name: "other", Failures: 3, Reset: time.Hour}),
			app.Limits().Set(ctx, perdure.LimitRule{Name: "lines", Concurrency: 2, Rate: 1000, Period: time.Second}),
			app.Queues().Pause(ctx, "quiet", "why not"),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}

		x, err := call.Submit(caller(t, app), 7)
		if err != nil {
			t.Fatal(err)
		}
		reason(t, app, x, "circuit breaker other until")
		app = s.reopen(app, call)
		info := reason(t, app, x, "circuit breaker other until")
		if !strings.Contains(info.Reason, "3 failures in 1m0s") {
			t.Errorf("it %s", info.Reason)
		}
		limits, err := app.Limits().List(ctx)
		if err != nil || len(limits) != 1 || limits[0].Concurrency != 2 || limits[0].Rate != 1000 {
			t.Errorf("limits %+v, %v", limits, err)
		}
		breakers, err := app.Breakers().List(ctx)
		if err != nil || len(breakers) != 1 || breakers[0].State != "open" || breakers[0].Rule.Reset != time.Hour {
			t.Errorf("breakers %+v, %v", breakers, err)
		}
		queues, err := app.Queues().List(ctx)
		if err != nil || len(queues) != 3 || !queues[2].Paused || queues[2].Reason != "why not" {
			t.Errorf("queues %+v, %v", queues, err)
		}
		if n := calls.Load(); n != 3 {
			t.Errorf("%d calls while it was open, want the 3 that opened it", n)
		}
		down.Store(false)
		if err := app.Breakers().Reset(ctx, "other"); err != nil {
			t.Fatal(err)
		}

		got, err := x.Result(caller(t, app)) // its fourth attempt is the last
		equal(t, "result", got, err, 7)
	})
}

// Rules that one process sets, and breakers that it opens, apply in the other processes.
func TestFlowOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgres")
	var failing atomic.Bool
	failing.Store(true)

	call := perdure.NewActivity("call", func(_ context.Context, n int) (int, error) {
		if failing.Load() {
			return 0, perdure.Permanent(errors.New("away"))
		}
		return n, nil
	}, perdure.OnQueue("api"), perdure.Breaker("other"))

	one := s.open(call)
	two := s.open(call)
	if err := one.Breakers().SetRule(t.Context(), perdure.BreakerRule{Name: "other", Failures: 1, Reset: time.Hour}); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the other process knows the rule", func() bool {
		rules, err := two.Breakers().Rules(t.Context())
		return err == nil && len(rules) == 1
	})

	c := caller(t, one)
	x, err := call.Submit(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Result(c); err == nil {
		t.Fatal("it should fail")
	}

	for _, app := range []*perdure.App{one, two} {
		eventually(t, "the breaker is open", func() bool {
			list, err := app.Breakers().List(t.Context())
			return err == nil && len(list) == 1 && list[0].State == "open"
		})
	}

	failing.Store(false)
	if err := two.Breakers().Reset(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}

	for range 20 { // the task succeeds in any process
		x, err := call.Submit(c, 1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := x.Result(c)
		equal(t, "result", got, err, 1)
	}
}

// A breaker behaves the same on every store: exactly the configured number of failures opens it,
// and no task starts before the reset time. The breaker lets one probe through at a time, and a
// task that waited for the breaker keeps all its attempts (E33–E36).
func TestBreakerOnEveryStore(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		const reset = 300 * time.Millisecond
		var down atomic.Bool
		var inside, begun, together atomic.Int64

		call := perdure.NewActivity("call", func(ctx context.Context, _ int) (int, error) {
			if n := inside.Add(1); begun.Add(1) <= 2 && n > 1 && !down.Load() {
				together.Add(1)
			}
			defer inside.Add(-1)
			if down.Load() {
				return 0, perdure.Permanent(errors.New("the other side is away"))
			}
			// The probe takes a while, so that a second probe would overlap with it.
			time.Sleep(10 * time.Millisecond)
			return perdure.Attempt(ctx), nil
		}, perdure.OnQueue("api"), perdure.Breaker("other"), perdure.RetryPolicy{MaxAttempts: 1})

		app := s.open(call)
		c := caller(t, app)
		if err := app.Breakers().SetRule(t.Context(), perdure.BreakerRule{Name: "other", Failures: 3, Reset: reset, Probes: 1, Successes: 2}); err != nil {
			t.Fatal(err)
		}

		state := func() perdure.BreakerInfo {
			list, err := app.Breakers().List(t.Context())
			if err != nil || len(list) != 1 {
				t.Fatalf("breakers %+v, %v", list, err)
			}
			return list[0]
		}

		down.Store(true)
		for n := 1; n <= 3; n++ {
			x, err := call.Submit(c, n)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := x.Result(c); err == nil {
				t.Fatal("it should fail")
			}
			if got, want := state().State, map[bool]string{true: "open", false: "closed"}[n == 3]; got != want {
				t.Errorf("after %d failures it is %s, want %s", n, got, want)
			}
		}

		opened := state()
		down.Store(false)
		begun.Store(0)
		all, err := call.SubmitMany(c, make([]int, 10))
		if err != nil {
			t.Fatal(err)
		}

		for _, x := range all {
			got, err := x.Result(c)
			equal(t, "the attempt", got, err, 1)
			for e, err := range app.Histories().Events(t.Context(), x) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind == "task_claimed" && e.Time.Before(opened.Since.Add(reset)) {
					t.Errorf("a task begins %s after the breaker opened, want %s at least", e.Time.Sub(opened.Since), reset)
				}
			}
		}

		if n := together.Load(); n != 0 {
			t.Errorf("%d probes ran beside another one", n)
		}
		if got := state().State; got != "closed" {
			t.Errorf("in the end it is %s", got)
		}
	})
}

// All processes of a store share a limit: together they never run more than five tasks at a time,
// and both processes run some tasks. When a process ends, the other process gets its permits.
func TestLimitOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	s := newSite(t, "postgres")
	var inside headcount
	var by [2]atomic.Int64

	open := func(i int) (*perdure.App, *perdure.Activity[int, int]) {
		work := perdure.NewActivity("work", func(_ context.Context, n int) (int, error) {
			defer inside.enter()()
			by[i].Add(1)
			time.Sleep(5 * time.Millisecond) // so that they overlap
			return n, nil
		}, perdure.OnQueue("work"), perdure.Limit("five"))
		s.cfg.Tasks = perdure.TaskConfig{Slots: 20}
		return s.open(work), work
	}

	one, work := open(0)
	if err := one.Limits().Set(t.Context(), perdure.LimitRule{Name: "five", Concurrency: 5}); err != nil {
		t.Fatal(err)
	}
	const batch = 300
	rounds := 0

	round := func() {
		t.Helper()
		rounds++
		ins := make([]int, batch)
		for i := range ins {
			ins[i] = rounds*batch + i
		}
		c := caller(t, one)
		runs, err := work.SubmitMany(c, ins)
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range runs {
			got, err := x.Result(c)
			equal(t, "result", got, err, ins[i])
		}
	}

	round() // the first process alone
	two, _ := open(1)
	eventually(t, "both execute tasks", func() bool {
		round()
		return by[1].Load() > 0
	})

	before := by[0].Load()
	round()
	if by[0].Load() == before {
		t.Error("the first process no longer executes tasks")
	}
	if err := two.Close(); err != nil {
		t.Fatal(err)
	}

	round()
	if got := inside.most.Load(); got != 5 {
		t.Errorf("%d ran at a time, the limit is 5", got)
	}
	if n := by[0].Load() + by[1].Load(); n != int64(rounds*batch) {
		t.Errorf("%d attempts of %d tasks", n, rounds*batch)
	}
}
