package perduretest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

var (
	slowly = perdure.DeclareActivity[int, int]("slowly")
	slow   = perdure.NewWorkflow("slow", func(ctx perdure.WorkflowCtx, n int) (int, error) { return slowly.Run(ctx, n) })
)

// TestRestartInTheMiddleOfAStep kills the process while the body of a step runs. The next process
// immediately runs the body again. The body in the killed process continues, but has no effect.
func TestRestartInTheMiddleOfAStep(t *testing.T) {
	t.Parallel()
	bodies := NewFake(func(ctx context.Context, n int) (int, error) {
		Effect(ctx, "began")
		time.Sleep(time.Hour)
		return n, nil
	})

	Run(t, perdure.Group{slow, slowly.Bind(bodies.Call)}, func(t *testing.T, env *Env) {
		x, err := slow.Start(env.With(), 7)
		if err != nil {
			t.Fatal(err)
		}
		env.Advance(time.Minute)
		if got := env.Reason(x); got != "runs step slowly" {
			t.Errorf("it %s", got)
		}
		before := env.With()
		began := time.Now()
		env.Restart()
		if passed := time.Since(began); passed != 0 {
			t.Errorf("the restart took %s", passed)
		}
		if _, err := x.Result(before); err == nil {
			t.Error("a dead process answers")
		}
		if got, err := x.Result(env.With()); got != 7 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
		if passed := time.Since(began); passed != time.Hour {
			t.Errorf("the second execution of the body ended after %s", passed)
		}
		calls := bodies.Calls()
		if len(calls) != 2 || calls[0].IdempotencyKey != calls[1].IdempotencyKey || env.Effects()["began"] != 2 {
			t.Errorf("calls %+v, effects %v", calls, env.Effects())
		}
	})
}

// TestDeployOfOtherCode deploys code that does not match the history.
func TestDeployOfOtherCode(t *testing.T) {
	t.Parallel()
	flow := perdure.DeclareWorkflow[int, int]("flow")
	named := func(name string) perdure.Definition {
		return flow.Bind(func(ctx perdure.WorkflowCtx, n int) (int, error) {
			n, err := perdure.Do(ctx, name, func(context.Context) (int, error) { return n + 1, nil })
			if err != nil {
				return 0, err
			}
			return n, ctx.Sleep(time.Hour)
		})
	}

	r := &recorder{TB: t}
	bubble(t, func(t *testing.T) {
		Config{Patience: time.Hour * 24}.run(t, r, named("before"), func(t *testing.T, env *Env) {
			x, err := flow.Start(env.With(), 1, perdure.RawKey("f"))
			if err != nil {
				t.Fatal(err)
			}
			env.Settle()
			env.Restart(named("before")) // the same code matches
			env.Settle()
			if r.Failed() {
				t.Errorf("failed early: %s", r)
			}
			env.Restart(named("after"))
			env.Advance(time.Hour) // the timer fires now and loads the run
			if got := env.Reason(x); !strings.Contains(got, "event 1 records step before") || !strings.Contains(got, "it asks for step after") {
				t.Errorf("it %s", got)
			}
			if _, err := x.Result(env.With()); err == nil || !errors.Is(context.Cause(env.Context()), errBlocked) {
				t.Errorf("a blocked execution has a result: %v", err)
			}
		})
	})

	if !r.Failed() || !strings.Contains(r.String(), "flow/f: is blocked by a replay mismatch: event 1 records step before at perduretest/env_test.go:") {
		t.Errorf("reported: %s", r)
	}
}

// TestEndsWithWork ends while two activities run: one waits for its context, and one ignores its
// context.
func TestEndsWithWork(t *testing.T) {
	t.Parallel()
	var ended atomic.Int32
	Run(t, perdure.Group{slow, slowly.Bind(func(ctx context.Context, n int) (int, error) {
		if n == 1 {
			<-ctx.Done()
		} else {
			time.Sleep(24 * time.Hour)
		}
		ended.Add(1)
		return 0, ctx.Err()
	})}, func(t *testing.T, env *Env) {
		for n := range 3 {
			if _, err := slow.Start(env.With(), n); err != nil {
				t.Fatal(err)
			}
		}
		env.Settle()
	})

	if n := ended.Load(); n != 3 {
		t.Errorf("%d of 3 bodies have ended with the test", n)
	}
}

// TestGoroutinesThatAreLeftFail starts a goroutine that never ends.
func TestGoroutinesThatAreLeftFail(t *testing.T) {
	t.Parallel()
	for deadlock, want := range map[string]string{
		"deadlock: main bubble goroutine has exited but blocked goroutines remain": "nothing can end them",
		"deadlock: all goroutines in bubble are blocked":                           "the test itself waits",
	} {
		r := &recorder{TB: t}
		func() {
			defer leftBehind(r)
			panic(deadlock)
		}()
		if !r.Failed() || !strings.Contains(r.String(), want) {
			t.Errorf("reported: %s", r)
		}
	}
}

// TestWrongDefinitionsFail passes definitions that cannot be opened.
func TestWrongDefinitionsFail(t *testing.T) {
	t.Parallel()
	w := newWorld(Config{Patience: time.Hour})
	err := w.open(perdure.Group{slow, perdure.NewWorkflow("slow", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil })})
	if err == nil || !strings.Contains(err.Error(), "two definitions of workflow slow") {
		t.Error(err)
	}
	if err := w.close(); err != nil {
		t.Error(err)
	}
}
