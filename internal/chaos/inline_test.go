package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

// envInline makes the process run activities whose bodies never end. The activities have no queue.
const envInline = "PERDURE_CHAOS_INLINE"

// inlineRuns is how many executions of each kind compete.
const inlineRuns = 16

var (
	limitedFlow = perdure.DeclareWorkflow[int, int]("limited-flow")
	guardedFlow = perdure.DeclareWorkflow[int, int]("guarded-flow")
)

// inlineDefinitions returns two workflows. Each calls an activity without a queue: one under a
// limit and one behind a breaker.
func inlineDefinitions(limited, guarded func(ctx context.Context, n int) error) perdure.Group {
	under := perdure.NewActivity("limited", func(ctx context.Context, n int) (int, error) { return n, limited(ctx, n) }, perdure.Limit("two"))
	behind := perdure.NewActivity("guarded", func(ctx context.Context, n int) (int, error) { return n, guarded(ctx, n) }, perdure.Breaker("bank"))
	return perdure.Group{
		under, behind,
		limitedFlow.Bind(func(ctx perdure.WorkflowCtx, n int) (int, error) { return under.Run(ctx, n) }),
		guardedFlow.Bind(func(ctx perdure.WorkflowCtx, n int) (int, error) { return behind.Run(ctx, n) }),
	}
}

// heldForever returns the code of the process that gets killed.
func heldForever() perdure.Group {
	holds := func(what string) func(context.Context, int) error {
		var mu sync.Mutex
		n := 0
		return func(context.Context, int) error {
			mu.Lock()
			n++
			fmt.Println("holds", what, n)
			mu.Unlock()
			select {}
		}
	}
	return inlineDefinitions(holds("permit"), holds("probe"))
}

// inside counts the bodies that run at the same time.
type inside struct {
	mu             sync.Mutex
	now, most, all int
	two            chan struct{} // closed when two run
}

func newInside() *inside { return &inside{two: make(chan struct{})} }

func (c *inside) enter() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.all = c.now+1, c.all+1
	c.most = max(c.most, c.now)
	if c.now == 2 && c.most == 2 && c.all == 2 {
		close(c.two)
	}
}

func (c *inside) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now--
}

func (c *inside) counts() (most, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most, c.all
}

// The test kills a process whose attempts hold both permits of a limit and the only probe of a
// half-open breaker. The next owner gets every permit back exactly once: two attempts run under the
// limit at a time, and one attempt runs behind the breaker until the breaker closes. All executions
// end.
func TestKilledProcessReturnsInlinePermits(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"sqlite": "file:" + filepath.Join(t.TempDir(), "inline.db"), "postgres": pgtest.URL(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			returnInlinePermits(t, url)
		})
	}
}

func returnInlinePermits(t *testing.T, url string) {
	t.Helper()
	cfg := embedded.Config{AllowUnsafe: true}

	// The executions wait for a process that has their code. On PostgreSQL the process without the
	// code stays, so that it shares limits and breakers with the next process.
	alone := strings.HasPrefix(url, "file:")
	app, err := cfg.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		app.Limits().Set(t.Context(), perdure.LimitRule{Name: "two", Concurrency: 2}),
		app.Breakers().SetRule(t.Context(), perdure.BreakerRule{Name: "bank", Reset: time.Millisecond, Lease: 5 * time.Second}),
		app.Breakers().Trip(t.Context(), "bank", "half-open soon"),
	)
	var all []perdure.Execution[int]
	for i := range 2 * inlineRuns {
		flow := []*perdure.Workflow[int, int]{limitedFlow, guardedFlow}[i%2]
		x, failed := flow.Start(app.With(t.Context()), i, perdure.RawKey(fmt.Sprint(i)))
		err, all = errors.Join(err, failed), append(all, x)
	}
	if alone {
		err = errors.Join(err, app.Close())
	}
	if err != nil {
		t.Fatal(err)
	}

	// The first process takes all permits and the only probe. Then the test kills it.
	victim := spawn(t, url, duty{newLedger(t), 0, 2 * time.Second}, envInline+"=1")
	for _, line := range []string{"holds permit 1", "holds permit 2", "holds probe 1"} {
		victim.awaitLine(line, 3*time.Minute)
	}
	limited, guarded := newInside(), newInside()
	next := inlineDefinitions(func(ctx context.Context, _ int) error {
		limited.enter()
		defer limited.leave()
		select {
		case <-limited.two:
			time.Sleep(5 * time.Millisecond) // gives a third body time to start, if there is one
		case <-ctx.Done():
		}
		return ctx.Err()
	}, func(context.Context, int) error {
		guarded.enter()
		defer guarded.leave()
		if _, n := guarded.counts(); n <= 2 { // the probes that close the breaker
			time.Sleep(5 * time.Millisecond)
			if most, _ := guarded.counts(); most > 1 {
				t.Errorf("%d probes run at a time", most)
			}
		}
		return nil
	})
	if !alone {
		first := app
		app = openInline(t, url, next)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, n := limited.counts(); n > 0 {
		t.Errorf("%d attempts run although the first process holds both permits", n)
	}
	victim.kill()
	died := time.Now()
	if alone { // only one process can have a file open
		app = openInline(t, url, next)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := app.With(ctx)
	for i, x := range all {
		if got, err := x.Result(c); got != i || err != nil {
			t.Fatalf("execution %d: %d, %v", i, got, err)
		}
	}
	t.Logf("everything has ended %s after the death", time.Since(died).Round(time.Millisecond))
	if most, n := limited.counts(); most != 2 || n != inlineRuns {
		t.Errorf("%d attempts ran under the limit, %d at a time; want %d, 2 at a time", n, most, inlineRuns)
	}
	if _, n := guarded.counts(); n != inlineRuns {
		t.Errorf("%d attempts ran behind the breaker, want %d", n, inlineRuns)
	}
	awaitFree(t, app)
}

// openInline opens an app with the code of the executions.
func openInline(t *testing.T, url string, defs perdure.Group) *perdure.App {
	t.Helper()
	app, err := embedded.Config{AllowUnsafe: true}.Open(t.Context(), url, defs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return app
}

// awaitFree waits until all permits are free and the breaker is closed.
func awaitFree(t *testing.T, app *perdure.App) {
	t.Helper()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(healing); ; <-tick.C {
		limits, err := app.Limits().List(t.Context())
		breakers, failed := app.Breakers().List(t.Context())
		if err = errors.Join(err, failed); err != nil {
			t.Fatal(err)
		}

		held := 0
		for _, l := range limits {
			for _, u := range l.Uses {
				held += u.Held + u.Waiting
			}
		}
		if held == 0 && len(breakers) == 1 && breakers[0].State == "closed" && breakers[0].Probes == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("permits are held, or the breaker is not closed: %+v, %+v", limits, breakers)
		}
	}
}
