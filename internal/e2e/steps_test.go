package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// entities-workflows §17.3: two sleeps in one body take the sum of their durations.
func twoSleeps(t *testing.T, s *site) {
	nap := perdure.NewWorkflow("nap", func(ctx perdure.WorkflowCtx, d time.Duration) (time.Duration, error) {
		from := ctx.Now()
		if err := ctx.Sleep(d); err != nil {
			return 0, err
		}
		if err := ctx.Sleep(d); err != nil {
			return 0, err
		}
		return ctx.Now().Sub(from), nil
	})

	opens := time.Now()
	app := s.open(nap)
	const d = 150 * time.Millisecond
	from := time.Now()
	slept, err := nap.Run(caller(t, app), d, perdure.RawKey("k"))

	// The clock of a node that has just opened is behind the store's by at most a round trip, and
	// the first renewals correct it. Measured with the clock of the workflow, a sleep is never too
	// short. Measured with another clock, it may be too short by at most that difference. On a slow
	// machine the round trip and the opening take longer.
	roundTrip := 50*time.Millisecond + from.Sub(opens)
	if took := time.Since(from); err != nil || took < 2*d-roundTrip || slept < 2*d {
		t.Errorf("two sleeps of %s took %s, by the workflow's own clock %s, %v", d, took, slept, err)
	}
}

// entities-workflows §17.4: the same activity with the same arguments, called twice, runs twice,
// and is replayed as two steps.
func equalCalls(t *testing.T, s *site) {
	var ran atomic.Int64
	draw := perdure.NewActivity("draw", func(context.Context, string) (int64, error) { return ran.Add(1), nil })
	wake := perdure.NewSignal[int]("wake")

	twice := perdure.NewWorkflow("twice", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		a, err := draw.Run(ctx, "card")
		if err != nil {
			return "", err
		}
		b, err := draw.Run(ctx, "card")
		if err != nil {
			return "", err
		}
		// This wait parks the run, so the rest of the code may run after a replay.
		if _, err := wake.Receive(ctx); err != nil {
			return "", err
		}
		c, err := draw.Run(ctx, "card")
		return fmt.Sprint(a, b, c), err
	})

	app := s.open(twice, draw)
	c := caller(t, app)
	exec := mustStart(t, c, twice, "", perdure.RawKey("k"))
	reason(t, app, exec, "waits for signal wake")
	if err := wake.Send(c, exec, 1); err != nil {
		t.Fatal(err)
	}

	got, err := exec.Result(c)
	equal(t, "result", got, err, "1 2 3")
	if n := ran.Load(); n != 3 {
		t.Errorf("ran %d times, want 3", n)
	}
}

// The policy decides how often a failed attempt is repeated. Permanent errors, the last attempt and
// an attempt that takes too long end the step. The code gets the same error in every replay
// (entities-workflows §17.5).
func attempts(t *testing.T, s *site) {
	var mu sync.Mutex
	ran := map[string]int{}
	try := perdure.NewActivity("try", func(ctx context.Context, what string) (int, error) {
		mu.Lock()
		ran[what]++
		mu.Unlock()

		switch n := perdure.Attempt(ctx); {
		case what == "third" && n == 3:
			return n, nil
		case what == "permanent":
			return 0, perdure.Permanent(errors.New("never"))
		case what == "slow":
			<-ctx.Done()
			return 0, ctx.Err()
		case what == "later" && n == 1:
			return 0, perdure.RetryAfter(errors.New("busy"), 30*time.Millisecond)
		case what == "later":
			return n, nil
		default:
			return 0, fmt.Errorf("attempt %d of %s", n, what)
		}
	}, perdure.Constant(3, time.Millisecond))

	look := perdure.NewSignal[int]("look")
	w := perdure.NewWorkflow("tries", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		texts := make([]string, 5)
		outcome := func(n int, err error) string {
			if err != nil {
				return err.Error()
			}
			return fmt.Sprint(n)
		}
		texts[0] = outcome(try.Run(ctx, "third"))
		texts[1] = outcome(try.Run(ctx, "permanent"))
		texts[2] = outcome(try.Run(ctx, "always"))
		_, err := try.Run(ctx, "slow", perdure.AttemptTimeout(10*time.Millisecond))
		texts[3] = fmt.Sprint(errors.Is(err, perdure.ErrTimeout))
		texts[4] = outcome(try.Run(ctx, "later"))
		_, err = look.Receive(ctx)
		return strings.Join(texts, "; "), err
	})

	app := s.open(w, try)
	c := caller(t, app)
	exec := mustStart(t, c, w, "", perdure.RawKey("k"))
	reason(t, app, exec, "waits for signal look")
	if err := look.Send(c, exec, 1); err != nil {
		t.Fatal(err)
	}

	got, err := exec.Result(c)
	equal(t, "result", got, err, "3; never; attempt 3 of always; true; 2")
	for what, n := range map[string]int{"third": 3, "permanent": 1, "always": 3, "slow": 3, "later": 2} {
		if ran[what] != n {
			t.Errorf("%s was tried %d times, want %d", what, ran[what], n)
		}
	}
}

// Random values and times are the same whenever the code runs again.
func sideEffects(t *testing.T, s *site) {
	var mu sync.Mutex
	seen := map[string]bool{}
	wake := perdure.NewSignal[int]("wake")

	w := perdure.NewWorkflow("dice", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		text := fmt.Sprint(ctx.Now().UnixNano(), ctx.Rand().Int64(), ctx.UUID(), ctx.Self())
		mu.Lock()
		seen[text] = true
		mu.Unlock()
		for range 2 {
			if _, err := wake.Receive(ctx); err != nil {
				return "", err
			}
		}
		return text, nil
	})

	app := s.open(w)
	c := caller(t, app)
	exec := mustStart(t, c, w, "", perdure.RawKey("k"))
	for range 2 {
		reason(t, app, exec, "waits for signal wake")
		if err := wake.Send(c, exec, 1); err != nil {
			t.Fatal(err)
		}
	}

	got, err := exec.Result(c)
	if err != nil || len(seen) != 1 || !seen[got] {
		t.Errorf("result %q, %v; the code saw %v, want the same each time", got, err, seen)
	}
}

// A panic in a step or in the workflow fails the execution. Its error has the text and the stack of
// the panic. Other executions continue (reliability D3, E5).
func panics(t *testing.T, s *site) {
	w := perdure.NewWorkflow("careless", func(ctx perdure.WorkflowCtx, where string) (string, error) {
		if where == "workflow" {
			panic("in the workflow")
		}
		return perdure.Do(ctx, "step", func(context.Context) (string, error) {
			if where == "step" {
				panic("in the step")
			}
			return "fine", nil
		}, perdure.Constant(1, 0))
	})

	app := s.open(w)
	c := caller(t, app)
	for _, where := range []string{"workflow", "step"} {
		_, err := w.Run(c, where, perdure.RawKey(where))
		var remote *perdure.RemoteError
		if !errors.As(err, &remote) || remote.Kind != "panic" || !strings.Contains(remote.Message, "in the "+where) {
			t.Errorf("a panic in the %s: %#v, want an error of kind panic that says so", where, err)
		}
	}

	got, err := w.Run(c, "nowhere", perdure.RawKey("nowhere"))
	equal(t, "another execution", got, err, "fine")
}

// A durable call inside a step is a mistake. It returns an error that explains the mistake, and the
// step fails.
func nestedCalls(t *testing.T, s *site) {
	w := perdure.NewWorkflow("nested", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		_, err := perdure.Do(ctx, "outer", func(context.Context) (string, error) {
			return "", ctx.Sleep(time.Millisecond) //perdure:allow nested the refusal is what is tested
		}, perdure.Constant(1, 0))
		if err == nil {
			return "", errors.New("the sleep inside a step succeeded")
		}
		return err.Error(), nil
	})
	app := s.open(w)
	got, err := w.Run(caller(t, app), "", perdure.RawKey("k"))
	if err != nil || !strings.Contains(got, "outer") {
		t.Errorf("a durable call inside step outer: %q, %v; want an error that names the step", got, err)
	}
}

// An execution whose coroutines all wait for each other reports that it waits for nothing. It can
// still be cancelled.
func waitsForNothing(t *testing.T, s *site) {
	w := perdure.NewWorkflow("stuck", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		var self *perdure.Future[int]
		self = perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) { return self.Get(ctx) })
		_, err := self.Get(ctx)
		return "", err
	})
	app := s.open(w)
	c := caller(t, app)
	exec := mustStart(t, c, w, "", perdure.RawKey("k"))
	reason(t, app, exec, "waits for nothing")
	if err := exec.Cancel(c, "it is stuck"); err != nil {
		t.Fatal(err)
	}
	_, err := exec.Result(c)
	wantError(t, "the result", err, perdure.ErrCanceled)
}
