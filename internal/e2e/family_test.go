package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// A child is an independent execution whose result or error goes to its parent. Starting a child
// with a key in use attaches to the execution with that key.
func children(t *testing.T, s *site) {
	square := perdure.NewWorkflow("square", func(_ perdure.WorkflowCtx, n int) (int, error) {
		if n < 0 {
			return 0, fmt.Errorf("%d is negative", n)
		}
		return n * n, nil
	})

	parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		a, err := square.Run(ctx, 3)
		if err != nil {
			return "", err
		}
		b, err := square.Run(ctx, 3) // equal calls are two steps, and two children
		if err != nil {
			return "", err
		}

		exec, err := square.Start(ctx, 4, perdure.RawKey("four"))
		if err != nil {
			return "", err
		}
		d, err := exec.Result(ctx)
		if err != nil {
			return "", err
		}

		_, err = square.Run(ctx, -1, perdure.RawKey("minus"))
		var remote *perdure.RemoteError
		if !errors.As(err, &remote) {
			return "", fmt.Errorf("the error of a child is %w", err)
		}
		_, other := square.Run(ctx, 5, perdure.RawKey("four"))
		if !errors.Is(other, perdure.ErrConflict) {
			return "", fmt.Errorf("a child with a used key and another input: %w", other)
		}

		return fmt.Sprintf("%d %d %d %s", a, b, d, remote.Message), nil
	})

	app := s.open(square, parent)
	c := caller(t, app)
	got, err := parent.Run(c, "", perdure.RawKey("p"))
	equal(t, "result", got, err, "9 9 16 -1 is negative")
	if runs := list(t, app, `workflow = "square"`); len(runs) != 4 {
		t.Errorf("children are %v, want four", runs)
	}

	// Any client can wait for a child by its address, even if another workflow started it.
	four, err := square.Execution(perdure.RawKey("four")).Result(c)
	equal(t, "the child seen from outside", four, err, 16)
}

// When a parent closes in any way, the engine cancels its children, except children that were
// started with the abandon policy (reliability D9).
func childPolicies(t *testing.T, s *site) {
	release := perdure.NewSignal[string]("release")
	child := perdure.NewWorkflow("child", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return release.Receive(ctx) })
	parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, how string) (string, error) {
		if _, err := child.Start(ctx, "", perdure.RawKey(how+"-cancel")); err != nil {
			return "", err
		}
		if _, err := child.Start(ctx, "", perdure.RawKey(how+"-abandon"), perdure.AbandonChild); err != nil {
			return "", err
		}
		switch how {
		case "returns":
			return "", nil
		case "fails":
			return "", errors.New("on purpose")
		default:
			return release.Receive(ctx) // until it is cancelled
		}
	})

	app := s.open(child, parent)
	c := caller(t, app)
	var wg sync.WaitGroup
	for _, how := range []string{"returns", "fails", "is cancelled"} {
		wg.Go(func() {
			exec, err := parent.Start(c, how, perdure.RawKey(how))
			if err != nil {
				t.Error(err)
				return
			}

			if how == "is cancelled" {
				eventually(t, "both children run", func() bool { return strings.Count(strings.Join(kindsOf(t, app, exec), " "), "child_started") == 2 })
				if err := exec.Cancel(c, "enough"); err != nil {
					t.Error(err)
				}
			}

			_, _ = exec.Result(c) // the scenario decides how it ends
			eventually(t, "the children begin", func() bool { return len(list(t, app, fmt.Sprintf(`workflow = "child" and key = %q*`, how+"-"))) == 2 })
			_, err = child.Execution(perdure.RawKey(how + "-cancel")).Result(c)
			wantError(t, how+": the child that goes with its parent", err, perdure.ErrCanceled)
			left := child.Execution(perdure.RawKey(how + "-abandon"))
			reason(t, app, left, "waits for signal release")
			if err := release.Send(c, left, "free"); err != nil {
				t.Error(err)
			}
			got, err := left.Result(c)
			equal(t, how+": the child that stays", got, err, "free")
		})
	}

	wg.Wait()
}

// Cancel ends the wait with ErrCanceled. Clean-up steps run in a detached scope, and the execution
// ends as canceled.
func cancelWithCleanup(t *testing.T, s *site) {
	var mu sync.Mutex
	var done []string
	note := func(ctx perdure.WorkflowCtx, what string) error {
		_, err := perdure.Do(ctx, what, func(context.Context) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			done = append(done, what)
			return 0, nil
		})
		return err
	}

	trip := perdure.NewWorkflow("trip", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		if err := note(ctx, "leave"); err != nil {
			return "", err
		}
		ctx.Defer(func(ctx perdure.WorkflowCtx) error { return note(ctx, "come home") })
		err := ctx.Sleep(time.Hour)
		if !errors.Is(err, perdure.ErrCanceled) {
			return "", fmt.Errorf("the sleep ended with %w", err)
		}

		if _, stepErr := perdure.Do(ctx, "refused", func(context.Context) (int, error) { return 0, nil }); !errors.Is(stepErr, perdure.ErrCanceled) {
			return "", fmt.Errorf("a step after the cancel ended with %w", stepErr)
		}
		d := ctx.Detached()
		if stepErr := note(d, "pay the hotel"); stepErr != nil {
			return "", stepErr
		}

		if sleepErr := d.Sleep(10 * time.Millisecond); sleepErr != nil {
			return "", sleepErr
		}
		return "", err
	})

	app := s.open(trip)
	c := caller(t, app)
	exec := mustStart(t, c, trip, "", perdure.RawKey("k"))
	reason(t, app, exec, "waits for a timer")

	for range 2 { // the second cancel has no effect
		if err := exec.Cancel(c, "it rains"); err != nil {
			t.Fatal(err)
		}
	}

	_, err := exec.Result(c)
	wantError(t, "the result", err, perdure.ErrCanceled)
	outcome, err := exec.Poll(c)
	equal(t, "status", outcome.Status, err, perdure.Canceled)
	wantError(t, "a cancel of what has ended", exec.Cancel(c, "again"), perdure.ErrConflict, "trip")
	if want := []string{"leave", "pay the hotel", "come home"}; !slices.Equal(done, want) {
		t.Errorf("ran %v, want %v", done, want)
	}
}

// Compensations run in reverse order when an execution fails, and not at all when it completes.
func compensations(t *testing.T, s *site) {
	var mu sync.Mutex
	done := map[string][]string{}
	saga := perdure.NewWorkflow("saga", func(ctx perdure.WorkflowCtx, in string) (string, error) {
		for _, what := range []string{"a", "b", "c"} {
			if in == "fails" && what == "c" {
				return "", errors.New("no c today")
			}
			ctx.OnFailure(func(ctx perdure.WorkflowCtx) error {
				if err := ctx.Sleep(time.Millisecond); err != nil {
					return err
				}
				_, err := perdure.Do(ctx, "undo "+what, func(context.Context) (int, error) {
					mu.Lock()
					defer mu.Unlock()
					done[in] = append(done[in], what)
					return 0, nil
				})
				return err
			})
		}

		return "all", nil
	})

	app := s.open(saga)
	c := caller(t, app)
	got, err := saga.Run(c, "completes", perdure.RawKey("completes"))
	equal(t, "result", got, err, "all")
	_, err = saga.Run(c, "fails", perdure.RawKey("fails"))
	if err == nil || !strings.Contains(err.Error(), "no c today") {
		t.Errorf("error %v, want that of the workflow", err)
	}
	if want := []string{"b", "a"}; !slices.Equal(done["fails"], want) || len(done["completes"]) > 0 {
		t.Errorf("undone %v, want %v after the failure and nothing else", done, want)
	}
}

// The winner of a race or a select is the future whose outcome is first in the history. The losers
// of a race are withdrawn. The losers of a select stay pending.
func combinators(t *testing.T, s *site) {
	tick := perdure.NewActivity("tick", func(_ context.Context, n int) (int, error) { return n, nil })
	fail := perdure.NewActivity("fail", func(context.Context, int) (int, error) { return 0, perdure.Permanent(errors.New("no")) })
	never := perdure.NewSignal[int]("never")
	word := perdure.NewSignal[string]("word")

	w := perdure.NewWorkflow("combine", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		all, err := perdure.All(ctx, tick.Go(ctx, 1), tick.Go(ctx, 2), tick.Go(ctx, 3))
		if err != nil {
			return "", err
		}
		_, allErr := perdure.All(ctx, tick.Go(ctx, 4), fail.Go(ctx, 5))
		won, err := perdure.Race(ctx, never.Next(ctx), perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) {
			return 7, ctx.Sleep(10 * time.Millisecond)
		}))
		if err != nil {
			return "", err
		}

		two, err := perdure.FirstN(ctx, 2, fail.Go(ctx, 1), tick.Go(ctx, 8), never.Next(ctx), tick.Go(ctx, 8))
		if err != nil {
			return "", err
		}
		next, timer := word.Next(ctx), ctx.Timer(10*time.Millisecond)
		first, err := perdure.Select(ctx, next, timer)
		if err != nil {
			return "", err
		}

		if first != perdure.Waitable(timer) {
			return "", errors.New("the signal won, but the test had not sent it")
		}
		text, err := next.Get(ctx) // the select has not consumed the signal
		return fmt.Sprintf("%v %v %d %v %s", all, allErr, won, two, text), err
	})

	app := s.open(w, tick, fail)
	c := caller(t, app)
	exec := mustStart(t, c, w, "", perdure.RawKey("k"))
	eventually(t, "the select is lost", func() bool { return strings.Count(strings.Join(kindsOf(t, app, exec), " "), "timer_fired") == 2 })
	if err := word.Send(c, exec, "done"); err != nil {
		t.Fatal(err)
	}

	got, err := exec.Result(c)
	equal(t, "result", got, err, "[1 2 3] no 7 [8 8] done")
}

// A run that continues as new is followed by a run with the same key and the unread signals. A
// caller that waits for the execution gets the result of the last run. No signal is lost, no matter
// when it comes (reliability R10).
func continueAsNew(t *testing.T, s *site) {
	type state struct{ Runs, Sum, Seen int }
	const signals = 40
	add := perdure.NewSignal[int]("add")
	loop := perdure.DeclareWorkflow[state, state]("loop")

	code := loop.Bind(func(ctx perdure.WorkflowCtx, in state) (state, error) {
		for range 7 {
			v, err := add.Receive(ctx)
			if err != nil {
				return in, err
			}
			in.Sum, in.Seen = in.Sum+v, in.Seen+1
			if in.Seen == signals {
				return in, nil
			}
		}
		in.Runs++
		return state{}, loop.ContinueAsNew(in)
	})

	app := s.open(code)
	c := caller(t, app)
	exec := mustStart(t, c, loop, state{}, perdure.RawKey("k"))
	first, err := app.Executions().Describe(t.Context(), exec)
	if err != nil {
		t.Fatal(err)
	}

	sum := 0
	for i := range signals {
		sum += i
		if err := add.Send(c, exec, i); err != nil {
			t.Fatal(err)
		}
	}

	got, err := exec.Result(c)
	equal(t, "state", got, err, state{Runs: 5, Sum: sum, Seen: signals})
	last, err := app.Executions().Describe(t.Context(), exec)
	if err != nil || last.Ref.Run == first.Ref.Run || last.Ref.Key != first.Ref.Key || last.Status != perdure.Completed {
		t.Errorf("first run %+v, last run %+v, %v", first, last, err)
	}
	old, err := app.Executions().Describe(t.Context(), first.Ref)
	if err != nil || old.Status != perdure.Continued {
		t.Errorf("the first run = %+v, %v; want it to be continued", old, err)
	}
	if refs := list(t, app, `workflow = "loop"`); len(refs) != 1 {
		t.Errorf("listed %v, want the execution once", refs)
	}
}
