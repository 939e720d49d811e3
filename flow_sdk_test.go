package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// runFlow runs a test with 64 slots in virtual time.
func runFlow(t *testing.T, test func(t *testing.T, c perdure.Client, app *perdure.App), defs ...perdure.Definition) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		app, err := embedded.Config{Tasks: perdure.TaskConfig{Slots: 64}}.Open(t.Context(), "memory:", defs...)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := app.Close(); err != nil {
				t.Error(err)
			}
		}()
		test(t, app.With(t.Context()), app)
	})
}

// meter counts, for each key, how many tasks run at the same time, and remembers the maximum.
type meter struct {
	mu     sync.Mutex
	inside map[string]int
	most   map[string]int
	begun  []time.Time
}

func newMeter() *meter { return &meter{inside: map[string]int{}, most: map[string]int{}} }

func (m *meter) enter(key string) (leave func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inside[key]++
	m.most[key] = max(m.most[key], m.inside[key])
	m.begun = append(m.begun, time.Now())
	return func() {
		m.mu.Lock()
		m.inside[key]--
		m.mu.Unlock()
	}
}

// times returns when the tasks started.
func (m *meter) times() []time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.begun)
}

func (m *meter) peak(key string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.most[key]
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func all[T any](t *testing.T, c perdure.Client, runs []perdure.Execution[T], err error) {
	t.Helper()
	must(t, err)
	for _, x := range runs {
		if _, err := x.Result(c); err != nil {
			t.Fatal(err)
		}
	}
}

func numbers(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// reasonOf waits until all goroutines of the test are blocked, and returns why an execution waits.
func reasonOf(t *testing.T, app *perdure.App, to perdure.Target) string {
	t.Helper()
	synctest.Wait()
	info, err := app.Executions().Describe(t.Context(), to)
	must(t, err)
	return info.Reason
}

// While enough tasks wait, as many tasks run at a time as the limit allows, and never more, no
// matter how many slots there are. The same is true when the limit changes while tasks run.
func TestLimitOfConcurrency(t *testing.T) {
	t.Parallel()
	m := newMeter()
	var flaky atomic.Bool

	mail := perdure.NewActivity("mail", func(ctx context.Context, n int) (int, error) {
		defer m.enter("")()
		time.Sleep(time.Duration(50+n%7) * time.Millisecond)
		if n%10 == 3 && flaky.CompareAndSwap(false, true) {
			return 0, errors.New("again")
		}
		return n, nil
	}, perdure.OnQueue("mail"), perdure.Limit("smtp"), perdure.RetryPolicy{Initial: 10 * time.Millisecond})

	runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "smtp", Concurrency: 3}))
		runs, err := mail.SubmitMany(c, numbers(300))
		all(t, c, runs, err)
		if got := m.peak(""); got != 3 {
			t.Errorf("%d at a time, the limit is 3", got)
		}
		runs, err = mail.SubmitMany(c, numbers(200))
		must(t, err)
		must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "smtp", Concurrency: 10}))
		all(t, c, runs, nil)
		if got := m.peak(""); got != 10 {
			t.Errorf("%d at a time, the limit is 10 now", got)
		}
		limits, err := app.Limits().List(t.Context())
		must(t, err)
		if len(limits) != 1 || limits[0].Name != "smtp" || limits[0].Concurrency != 10 || len(limits[0].Uses) != 0 {
			t.Errorf("limits %+v", limits)
		}
	}, mail)
}

// A rate spreads the starts of tasks evenly, no matter in which order they arrive.
func TestLimitOfRate(t *testing.T) {
	t.Parallel()
	m := newMeter()
	call := perdure.NewActivity("call", func(context.Context, int) (int, error) {
		defer m.enter("")()
		time.Sleep(20 * time.Second)
		return 0, nil
	}, perdure.OnQueue("api"))

	runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "api", Queue: "api", Rate: 30, Period: time.Minute, Burst: 5}))
		began := time.Now()
		runs, err := call.SubmitMany(c, numbers(100))
		all(t, c, runs, err)
		perMinute, begun := map[int]int{}, m.times()
		for _, at := range begun {
			perMinute[int(at.Sub(began)/time.Minute)]++
		}
		// The tasks of the burst start together, and then one task starts every two seconds.
		if perMinute[0] != 30+4 || perMinute[1] != 30 || perMinute[2] != 30 {
			t.Errorf("%v began per minute", perMinute)
		}

		for i := 5; i < len(begun); i++ {
			if d := begun[i].Sub(begun[i-1]); d < 2*time.Second-time.Millisecond || d > 2*time.Second+10*time.Millisecond {
				t.Errorf("task %d began %s after the one before", i, d)
			}
		}
	}, call)
}

type order struct{ Customer, Item string }

// A limit per key of the input gives each customer its own limit, in addition to the limit for all.
func TestLimitPerKey(t *testing.T) {
	t.Parallel()
	m := newMeter()
	ship := perdure.NewActivity("ship", func(_ context.Context, o order) (int, error) {
		defer m.enter(o.Customer)()
		defer m.enter("all")()
		time.Sleep(time.Second)
		return 0, nil
	}, perdure.OnQueue("ship"))

	runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "per-customer", Activity: "ship", Key: "input.Customer", Concurrency: 2}))
		must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "all", Queue: "ship", Concurrency: 7}))
		var orders []order
		for i := range 120 {
			orders = append(orders, order{Customer: fmt.Sprint("c", i%6), Item: fmt.Sprint(i)})
		}
		runs, err := ship.SubmitMany(c, orders)
		must(t, err)
		if why := reasonOf(t, app, runs[119]); !strings.Contains(why, "waits for limit ") {
			t.Errorf("the last one %s", why)
		}
		limits, err := app.Limits().List(t.Context())
		must(t, err)
		if len(limits) != 2 || len(limits[0].Uses) != 1 || limits[0].Uses[0].Held != 7 || len(limits[0].Uses[0].Holders) != 7 || len(limits[0].Uses[0].Waiters) != 20 {
			t.Errorf("limits %+v", limits)
		}

		waiting := 0
		for _, l := range limits {
			for _, u := range l.Uses {
				waiting += u.Waiting
			}
		}

		if waiting != len(orders)-7 {
			t.Errorf("%d tasks wait, want all that do not run", waiting)
		}
		all(t, c, runs, nil)

		for i := range 6 {
			if got := m.peak(fmt.Sprint("c", i)); got > 2 || got == 0 {
				t.Errorf("customer %d had %d at a time", i, got)
			}
		}

		if got := m.peak("all"); got != 7 {
			t.Errorf("%d at a time in all", got)
		}
	}, ship)
}

// A task whose limit is not defined waits. The reasons of the task and of its workflow say so.
func TestLimitThatIsMissing(t *testing.T) {
	t.Parallel()
	mail := perdure.NewActivity("mail", func(context.Context, int) (int, error) { return 7, nil }, perdure.OnQueue("mail"), perdure.Limit("smtp/eu"))
	letter := perdure.NewWorkflow("letter", func(ctx perdure.WorkflowCtx, n int) (int, error) { return mail.Run(ctx, n) })

	runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		alone, err := mail.Submit(c, 1)
		must(t, err)
		flow, err := letter.Start(c, 1)
		must(t, err)

		for _, to := range []perdure.Target{alone, flow} {
			if why := reasonOf(t, app, to); why != "waits for limit smtp/eu: no limit of that name is defined" {
				t.Errorf("%v %s", to, why)
			}
		}

		must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "smtp", Concurrency: 1}))
		got, err := alone.Result(c)
		want(t, got, err, 7)
		got, err = flow.Result(c)
		want(t, got, err, 7)
		must(t, app.Limits().Delete(t.Context(), "smtp"))
		alone, err = mail.Submit(c, 2)
		must(t, err)
		if why := reasonOf(t, app, alone); !strings.Contains(why, "no limit of that name") {
			t.Errorf("it %s", why)
		}
		must(t, alone.Cancel(c, "enough"))
	}, mail, letter)
}

// A disabled limit lets all its tasks start: tasks that name it and tasks that it selects. It keeps
// its rule, and stays disabled if a program sets the rule again. When an operator enables the limit
// again, it also counts the tasks that started while it was disabled.
func TestDisabledLimit(t *testing.T) {
	t.Parallel()
	m, gate := newMeter(), make(chan struct{})
	body := func(context.Context, int) (int, error) {
		defer m.enter("")()
		<-gate
		return 1, nil
	}
	mail := perdure.NewActivity("mail", body, perdure.OnQueue("mail"), perdure.Limit("smtp"))
	ship := perdure.NewActivity("ship", body, perdure.OnQueue("ship"))

	runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		gate = make(chan struct{}) // belongs to the bubble
		ctx, limits := t.Context(), app.Limits()
		rules := []perdure.LimitRule{{Name: "ships", Queue: "ship", Concurrency: 1}, {Name: "smtp", Concurrency: 1}}
		for _, r := range rules {
			must(t, limits.Set(ctx, r))
		}
		if err := limits.Disable(ctx, "smpt", "misspelt"); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("an unknown limit: %v", err)
		}
		inside := func(n int) {
			t.Helper()
			if synctest.Wait(); len(m.times()) != n {
				t.Fatalf("%d tasks have started, want %d", len(m.times()), n)
			}
		}

		mails, err := mail.SubmitMany(c, numbers(5))
		must(t, err)
		ships, err := ship.SubmitMany(c, numbers(5))
		must(t, err)
		inside(2)
		for _, r := range rules {
			must(t, limits.Disable(ctx, r.Name, "the quota is larger today"))
		}
		inside(10)

		for _, r := range rules {
			must(t, limits.Set(ctx, r)) // as a program does when it starts
		}
		late, err := mail.Submit(c, 5)
		must(t, err)
		inside(11)
		got, err := limits.List(ctx)
		must(t, err)
		for i, r := range rules {
			if l := got[i]; len(got) != 2 || !l.Disabled || l.Reason != "the quota is larger today" || l.LimitRule != r {
				t.Errorf("disabled: %+v", got)
			}
		}

		for _, r := range rules {
			must(t, limits.Enable(ctx, r.Name))
			must(t, limits.Enable(ctx, r.Name))
		}
		waits, err := mail.Submit(c, 6)
		must(t, err)
		inside(11)
		if why := reasonOf(t, app, waits); !strings.Contains(why, "limit smtp") {
			t.Errorf("it %s", why)
		}
		if got, err = limits.List(ctx); err != nil || got[1].Disabled || got[1].Reason != "" || len(got[1].Uses) != 1 || got[1].Uses[0].Held != 6 {
			t.Errorf("enabled: %+v, %v", got, err)
		}
		close(gate)
		all(t, c, append(append(mails, ships...), late, waits), nil)
	}, mail, ship)
}

// A disabled limit cannot be enabled again if another limit, which was set later, contradicts it.
func TestEnableRefusesContradictions(t *testing.T) {
	t.Parallel()
	ship := perdure.NewActivity("ship", func(context.Context, int) (int, error) { return 1, nil }, perdure.OnQueue("ship"))
	runFlow(t, func(t *testing.T, _ perdure.Client, app *perdure.App) {
		ctx, limits := t.Context(), app.Limits()
		must(t, limits.Set(ctx, perdure.LimitRule{Name: "old", Queue: "ship", Concurrency: 1}))
		must(t, limits.Disable(ctx, "old", ""))
		must(t, limits.Set(ctx, perdure.LimitRule{Name: "new", Queue: "ship", Concurrency: 2}))
		if err := limits.Enable(ctx, "old"); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("enabled: %v", err)
		}
		must(t, limits.Delete(ctx, "new"))
		must(t, limits.Enable(ctx, "old"))
	}, ship)
}

// Enough failures open the breaker. Until the breaker lets a probe through, no task runs and no
// attempt is used up (E34, E35, E36).
func TestBreaker(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	m := newMeter()
	down.Store(true)

	charge := perdure.NewActivity("charge", func(context.Context, int) (int, error) {
		defer m.enter("")()
		time.Sleep(time.Second)
		if down.Load() {
			return 0, errors.New("the bank is away")
		}
		return 1, nil
	}, perdure.OnQueue("bank"), perdure.Breaker("bank"), perdure.RetryPolicy{MaxAttempts: 3, Initial: time.Millisecond, Max: time.Millisecond})

	runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		must(t, app.Breakers().SetRule(t.Context(), perdure.BreakerRule{Name: "bank", Failures: 4, Reset: time.Minute}))
		first, err := charge.SubmitMany(c, numbers(2))
		must(t, err)
		time.Sleep(3 * time.Second) // two attempts of each task fail
		if len(m.times()) != 4 {
			t.Fatalf("%d attempts have begun, want 4", len(m.times()))
		}

		opened := time.Now()
		more, err := charge.SubmitMany(c, numbers(20))
		must(t, err)

		for _, x := range append(first, more...) {
			if why := reasonOf(t, app, x); !strings.Contains(why, "waits for circuit breaker bank until ") || !strings.Contains(why, "4 failures in 1m0s") {
				t.Fatalf("%v %s", x, why)
			}
		}

		list, err := app.Breakers().List(t.Context())
		must(t, err)
		if len(list) != 1 || list[0].State != "open" || list[0].Name != "bank" || list[0].Rule.Failures != 4 || !list[0].Until.After(opened.Add(50*time.Second)) {
			t.Errorf("breakers %+v", list)
		}
		down.Store(false)
		// Each task of first has one attempt left, because the breaker has used up none.
		all(t, c, append(first, more...), nil)
		begun := m.times()
		if at := begun[4]; at.Sub(opened) < 57*time.Second {
			t.Errorf("the first probe began %s after it had opened", at.Sub(opened))
		}
		if d := begun[5].Sub(begun[4]); d < time.Second {
			t.Errorf("two probes within %s, one at a time was expected", d)
		}
		if d := begun[len(begun)-1].Sub(begun[6]); d != 0 || len(begun) != 4+22 {
			t.Errorf("after two probes the others began within %s; %d attempts in all", d, len(begun))
		}
		list, err = app.Breakers().List(t.Context())
		must(t, err)
		if list[0].State != "closed" {
			t.Errorf("breakers %+v", list)
		}
	}, charge)
}

// A RetryAfter of one task holds back all tasks of its breaker.
func TestBreakerHearsRetryAfter(t *testing.T) {
	t.Parallel()
	m := newMeter()
	call := perdure.NewActivity("call", func(_ context.Context, n int) (int, error) {
		defer m.enter("")()
		if len(m.times()) == 1 {
			return 0, perdure.RetryAfter(errors.New("429"), time.Hour)
		}
		return n, nil
	}, perdure.OnQueue("api"), perdure.Breaker("api"))

	runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		began := time.Now()
		x, err := call.Submit(c, 1)
		must(t, err)
		synctest.Wait()
		y, err := call.Submit(c, 2)
		must(t, err)
		if why := reasonOf(t, app, y); !strings.Contains(why, "circuit breaker api until") || !strings.Contains(why, "asked to be called later") {
			t.Errorf("it %s", why)
		}
		all(t, c, []perdure.Execution[int]{x, y}, nil)
		if d := time.Since(began); d < time.Hour || d > time.Hour+time.Second {
			t.Errorf("it took %s", d)
		}
	}, call)
}

// Operators open, pause and close breakers, and pause queues.
func TestOperateBreakersAndQueues(t *testing.T) {
	t.Parallel()
	call := perdure.NewActivity("call", func(_ context.Context, n int) (int, error) { return n, nil }, perdure.OnQueue("api"))
	runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		ctx := t.Context()
		if err := app.Breakers().Reset(ctx, "activity:call"); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("reset of one that there is not: %v", err)
		}
		for what, err := range map[string]error{
			"trip": app.Breakers().Trip(ctx, "activity:cal", "typo"), "pause": app.Breakers().Pause(ctx, "activity:cal", time.Now().Add(time.Hour), "typo"),
		} {
			if !errors.Is(err, perdure.ErrNotFound) || !strings.Contains(err.Error(), "there is no breaker activity:cal") {
				t.Errorf("%s of a misspelt name: %v", what, err)
			}
		}
		if list, err := app.Breakers().List(ctx); err != nil || len(list) != 0 {
			t.Errorf("after that: %+v, %v", list, err)
		}
		must(t, app.Breakers().SetRule(ctx, perdure.BreakerRule{Name: "activity:call", Reset: time.Hour}))
		if err := app.Breakers().Trip(ctx, "activity:cal", "typo"); err == nil || !strings.Contains(err.Error(), "did you mean activity:call?") {
			t.Errorf("a misspelt name: %v", err)
		}
		must(t, app.Breakers().Trip(ctx, "activity:call", "the provider migrates"))
		x, err := call.Submit(c, 1)
		must(t, err)
		if why := reasonOf(t, app, x); !strings.Contains(why, "activity:call") || !strings.Contains(why, "the provider migrates") {
			t.Errorf("it %s", why)
		}
		must(t, app.Breakers().Reset(ctx, "activity:call"))
		got, err := x.Result(c)
		want(t, got, err, 1)

		began := time.Now()
		must(t, app.Breakers().Pause(ctx, "activity:call", began.Add(10*time.Minute), "lunch"))
		x, err = call.Submit(c, 2)
		must(t, err)
		if why := reasonOf(t, app, x); !strings.Contains(why, "lunch") {
			t.Errorf("it %s", why)
		}
		got, err = x.Result(c)
		want(t, got, err, 2)
		if d := time.Since(began); d < 10*time.Minute-time.Second || d > 10*time.Minute+time.Second {
			t.Errorf("the pause took %s", d)
		}

		must(t, app.Queues().Pause(ctx, "api", "deploy"))
		must(t, app.Queues().Pause(ctx, "api", "deploy"))
		x, err = call.Submit(c, 3)
		must(t, err)
		if why := reasonOf(t, app, x); why != "waits in queue api, which is paused: deploy" {
			t.Errorf("it %s", why)
		}
		queues, err := app.Queues().List(ctx)
		must(t, err)
		if len(queues) != 2 || queues[0].Name != "api" || !queues[0].Paused || queues[0].Waiting != 1 || queues[0].Slots != 64 || queues[1].Name != "default" {
			t.Errorf("queues %+v", queues)
		}
		must(t, app.Queues().Resume(ctx, "api"))
		must(t, app.Queues().Resume(ctx, "api"))
		got, err = x.Result(c)
		want(t, got, err, 3)
	}, call)
}

// A rule that makes no sense, or that contradicts another rule, is refused and changes nothing.
func TestRulesThatAreRefused(t *testing.T) {
	t.Parallel()
	call := perdure.NewActivity("call", func(_ context.Context, n int) (int, error) { return n, nil }, perdure.OnQueue("api"))
	runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "good", Queue: "api", Concurrency: 2}))
		for name, bad := range map[string]struct {
			rule perdure.LimitRule
			kind error
			says string
		}{
			"no numbers":          {perdure.LimitRule{Name: "bad"}, perdure.ErrInvalid, "neither a concurrency nor a rate"},
			"no name":             {perdure.LimitRule{Concurrency: 1}, perdure.ErrInvalid, "not a name"},
			"a rate for nothing":  {perdure.LimitRule{Name: "bad", Rate: 5}, perdure.ErrInvalid, "period"},
			"negative":            {perdure.LimitRule{Name: "bad", Concurrency: -1}, perdure.ErrInvalid, "concurrency -1"},
			"per whatever":        {perdure.LimitRule{Name: "bad", Queue: "api", Per: "moon", Concurrency: 1}, perdure.ErrInvalid, "moon"},
			"two scopes":          {perdure.LimitRule{Name: "bad", Queue: "api", Per: "queue", Key: "input.x", Concurrency: 1}, perdure.ErrInvalid, "not both"},
			"a bad expression":    {perdure.LimitRule{Name: "bad", Queue: "api", Key: "output.x", Concurrency: 1}, perdure.ErrInvalid, "input"},
			"a queue of nobody":   {perdure.LimitRule{Name: "bad", Queue: "apo", Concurrency: 1}, perdure.ErrNotFound, "there is no queue apo"},
			"a contradiction":     {perdure.LimitRule{Name: "bad", Queue: "api", Concurrency: 3}, perdure.ErrConflict, "contradict"},
			"a star in the midst": {perdure.LimitRule{Name: "bad", Queue: "a*i", Concurrency: 3}, perdure.ErrInvalid, "the last character"},
		} {
			if err := app.Limits().Set(t.Context(), bad.rule); !errors.Is(err, bad.kind) || !strings.Contains(err.Error(), bad.says) {
				t.Errorf("%s: %v, want %v with %q", name, err, bad.kind, bad.says)
			}
		}

		for name, bad := range map[string]perdure.BreakerRule{
			"no name": {Failures: 1}, "a ratio above 1": {Name: "b", Ratio: 1.5}, "negative": {Name: "b", Failures: -1}, "calls for nothing": {Name: "b", Calls: 5},
			"a short window": {Name: "b", Window: time.Microsecond},
		} {
			if err := app.Breakers().SetRule(t.Context(), bad); !errors.Is(err, perdure.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}

		if err := app.Limits().Delete(t.Context(), "bad"); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("delete of nothing: %v", err)
		}
		limits, err := app.Limits().List(t.Context())
		must(t, err)
		rules, err := app.Breakers().Rules(t.Context())
		must(t, err)
		if len(limits) != 1 || limits[0].Name != "good" || len(rules) != 0 {
			t.Errorf("limits %+v, rules %+v", limits, rules)
		}
	}, call)
}

// Two activities share a limit. A task that cannot run now does not reserve a permit of the limit.
func TestLimitIsNotKeptForThePaused(t *testing.T) {
	t.Parallel()
	work := func(_ context.Context, n int) (int, error) {
		time.Sleep(time.Second)
		return n, nil
	}

	both := perdure.NewActivity("both", work, perdure.OnQueue("slow"), perdure.Limit("a", "b"))
	one := perdure.NewActivity("one", work, perdure.OnQueue("fast"), perdure.Limit("a"))
	other := perdure.NewActivity("other", work, perdure.OnQueue("fast"), perdure.Limit("a", "c"))

	runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		for _, name := range []string{"a", "b", "c"} {
			must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: name, Concurrency: 1}))
		}
		holder, err := other.Submit(c, 0)
		must(t, err)
		synctest.Wait()
		waiting, err := both.Submit(c, 1) // first in line
		must(t, err)
		synctest.Wait()
		behind, err := one.SubmitMany(c, numbers(4))
		must(t, err)
		// Cancel removes behind[0] from the queue.
		must(t, behind[0].Cancel(c, "not needed"))
		must(t, app.Queues().Pause(t.Context(), "slow", ""))
		synctest.Wait()
		limits, err := app.Limits().List(t.Context())
		must(t, err)
		if u := limits[0].Uses; len(u) != 1 || u[0].Held != 1 || u[0].Holders[0].Workflow != "task:other" || u[0].Waiting != 3 {
			t.Errorf("uses %+v", u)
		}
		all(t, c, append(behind[1:], holder), nil)
		must(t, app.Queues().Resume(t.Context(), "slow"))
		all(t, c, []perdure.Execution[int]{waiting}, nil)
		limits, err = app.Limits().List(t.Context())
		must(t, err)

		for _, l := range limits {
			if len(l.Uses) != 0 {
				t.Errorf("limit %s is still used: %+v", l.Name, l.Uses)
			}
		}
	}, both, one, other)
}

// An operator can trip the breaker of an inline activity before the activity has run. The error for
// a wrong name suggests the right one.
func TestTripTheBreakerOfAnInlineActivity(t *testing.T) {
	t.Parallel()
	charge := perdure.NewActivity("charge", func(_ context.Context, n int) (int, error) { return n, nil }, perdure.Breaker("bank"), perdure.Limit("accounts"))
	order := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, n int) (int, error) { return charge.Run(ctx, n) })
	app, err := embedded.Open(t.Context(), "memory:", order, charge)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()

	if err := app.Breakers().Trip(t.Context(), "bnak", "a typing error"); !errors.Is(err, perdure.ErrNotFound) || !strings.Contains(err.Error(), "did you mean bank?") {
		t.Errorf("tripped a breaker that does not exist: %v", err)
	}
	if err := app.Breakers().Trip(t.Context(), "bank", "the bank is closed"); err != nil {
		t.Errorf("trip the breaker of an inline activity: %v", err)
	}
}

// A task that ends early, while its code still runs, keeps its permit until the code has ended. The
// code may ignore the end of its context for a while. The next attempt of the task, and other
// tasks, wait for the permit until then, and say so.
func TestPermitOfCodeThatStillRuns(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"terminate", "cancel of the workflow", "time-out of the attempt", "reset"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			m := newMeter()
			var release chan struct{}
			timeout := time.Hour
			if end == "time-out of the attempt" {
				timeout = time.Second
			}
			stubborn := perdure.NewActivity("stubborn", func(_ context.Context, n int) (int, error) {
				defer m.enter("")()
				if n == 1 {
					<-release
				}
				return n, nil
			}, perdure.OnQueue("q"), perdure.Limit("one"), perdure.AttemptTimeout(timeout), perdure.RetryPolicy{Initial: time.Millisecond, MaxAttempts: 2})
			flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, n int) (int, error) {
				return stubborn.Run(ctx, n)
			})

			runFlow(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
				release = make(chan struct{})
				must(t, app.Limits().Set(t.Context(), perdure.LimitRule{Name: "one", Concurrency: 1}))
				first, err := flow.Start(c, 1, perdure.RawKey("first"))
				must(t, err)
				synctest.Wait()
				second, err := flow.Start(c, 2, perdure.RawKey("second"))
				must(t, err)
				synctest.Wait()

				switch end {
				case "terminate":
					must(t, app.Executions().Terminate(t.Context(), first, "enough"))
				case "cancel of the workflow":
					must(t, first.Cancel(c, "enough"))
				case "reset":
					_, err := app.Executions().Reset(t.Context(), first, perdure.BeforeStep("stubborn"))
					must(t, err)
				}
				time.Sleep(10 * time.Second)
				if n := len(m.times()); n != 1 {
					t.Errorf("%d bodies have begun while the first one runs", n)
				}
				if why := reasonOf(t, app, second); !strings.Contains(why, "flow/first") || !strings.Contains(why, "(ended, but its code still runs)") {
					t.Errorf("the second one waits because %q", why)
				}

				close(release)
				if _, err := second.Result(c); err != nil {
					t.Fatal(err)
				}
				if m.peak("") != 1 {
					t.Errorf("%d bodies have run at a time", m.peak(""))
				}
			}, stubborn, flow)
		})
	}
}
