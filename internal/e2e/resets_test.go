package e2e_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// A reset replaces an open run. Callers that wait for the replaced run get the result of the new
// run. Steps after the reset point run again with new idempotency keys, and messages to the run are
// not lost.
func TestReset(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		f := newShopfloor()
		f.broken.Store(true)
		app := s.open(f.order)
		f.begin(t, app, "a")
		waiting := make(chan error, 1)

		go func() {
			p, err := f.at("a").Result(caller(t, app))
			if err == nil && p.Shipment != "shipped" {
				err = errors.New("another result")
			}
			waiting <- err
		}()

		_, err := app.Executions().Reset(t.Context(), f.at("a"))
		wantError(t, "a reset to nowhere", err, perdure.ErrInvalid, "order/a")
		if _, err := app.Executions().Reset(t.Context(), f.at("a"), perdure.BeforeStep("charge")); err != nil {
			t.Fatal(err)
		}
		reason(t, app, f.at("a"), "signal word")
		if f.count("reserve") != 1 || f.count("charge") != 2 || f.key("charge", 0) == f.key("charge", 1) {
			t.Errorf("ran %v, keys %v", f.ran, f.keys)
		}
		f.broken.Store(false)
		if _, err := f.end(t, app, "a"); err != nil {
			t.Fatal(err)
		}

		if err := <-waiting; err != nil {
			t.Errorf("the waiting caller got %v", err)
		}

		// Reset a completed run. The new run has the signal that was sent before.
		if _, err := app.Executions().Reset(t.Context(), f.at("a"), perdure.AfterPosition(1)); err != nil {
			t.Fatal(err)
		}
		if p, err := f.at("a").Result(caller(t, app)); err != nil || p.Word != "go a" || f.count("charge") != 3 {
			t.Errorf("the second reset: %+v, %v, ran %v", p, err, f.ran)
		}
	})
}

// A reset of a run with open children: the new run waits for a child from before the reset point,
// and cancels that child when the run is cancelled. The engine immediately cancels a child from
// after the reset point, and the new run starts another one.
func TestResetWithChildren(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		word := perdure.NewSignal[string]("word")
		child := perdure.NewWorkflow("child", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return word.Receive(ctx) })
		parent := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, _ int) (string, error) {
			kept, err := child.Start(ctx, "kept", perdure.RawKey("kept"))
			if err != nil {
				return "", err
			}
			if _, err := perdure.Do(ctx, "between", func(context.Context) (bool, error) { return true, nil }); err != nil {
				return "", err
			}

			dropped, err := child.Start(ctx, "dropped")
			if err != nil {
				return "", err
			}
			one, err := kept.Result(ctx)
			if err != nil {
				return "", err
			}

			two, err := dropped.Result(ctx)
			return one + two, err
		})

		app := s.open(parent, child)
		c := caller(t, app)
		key, kept := perdure.RawKey("1"), child.Execution(perdure.RawKey("kept"))
		if _, err := parent.Start(c, 1, key); err != nil {
			t.Fatal(err)
		}
		reason(t, app, parent.Execution(key), "child")

		open := func(n int) {
			t.Helper()
			eventually(t, "children are open", func() bool { return len(list(t, app, `workflow = "child" and status = "open"`)) == n })
		}

		open(2)
		first := list(t, app, `workflow = "child" and status = "open"`)
		if _, err := app.Executions().Reset(t.Context(), parent.Execution(key), perdure.BeforeStep("between")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the dropped child is cancelled", func() bool { return len(list(t, app, `workflow = "child" and status = "canceled"`)) == 1 })
		open(2)

		for _, ref := range list(t, app, `workflow = "child" and status = "canceled"`) {
			if ref == "child/kept" {
				t.Error("the kept child was cancelled")
			}
		}

		if again := list(t, app, `workflow = "child" and status = "open"`); strings.Join(sorted(again), " ") == strings.Join(sorted(first), " ") {
			t.Errorf("the same children are open: %v", again)
		}
		if err := parent.Execution(key).Cancel(c, "enough"); err != nil {
			t.Fatal(err)
		}
		if _, err := parent.Execution(key).Result(c); !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("the parent ended with %v", err)
		}
		if _, err := kept.Result(c); !errors.Is(err, perdure.ErrCanceled) {
			t.Errorf("the kept child ended with %v", err)
		}
		open(0)
	})
}

// A run is blocked because its code does not fit its history. It continues after a reset to a point
// before the mismatch.
func TestResetOfABlockedRun(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		word := perdure.NewSignal[string]("word")
		code := func(second string) *perdure.Workflow[int, string] {
			return perdure.NewWorkflow("changed", func(ctx perdure.WorkflowCtx, _ int) (string, error) {
				for _, name := range []string{"first", second} {
					if _, err := perdure.Do(ctx, name, func(context.Context) (bool, error) { return true, nil }); err != nil {
						return "", err
					}
				}
				said, err := word.Receive(ctx)
				return second + " " + said, err
			})
		}

		before, after := code("old"), code("new")
		app := s.open(before)
		x := mustStart(t, caller(t, app), before, 1, perdure.RawKey("1"))
		reason(t, app, x, "signal word")
		app = s.reopen(app, after)
		if err := word.Send(caller(t, app), x, "kept"); err != nil {
			t.Fatal(err)
		}

		reason(t, app, x, "replay mismatch")
		if _, err := app.Executions().Reset(t.Context(), x, perdure.AfterPosition(1)); err != nil {
			t.Fatal(err)
		}
		got, err := x.Result(caller(t, app))
		equal(t, "the result", got, err, "new kept")
	})
}

// No signal is lost, no matter how many arrive while a run is reset repeatedly.
func TestResetWhileSignalsCome(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		const signals = 40
		number := perdure.NewSignal[int]("number")
		sum := perdure.NewWorkflow("sum", func(ctx perdure.WorkflowCtx, _ int) (int, error) {
			total := 0
			for range signals {
				n, err := number.Receive(ctx)
				if err != nil {
					return 0, err
				}
				total += n
			}
			return total, nil
		})

		app := s.open(sum)
		c := caller(t, app)
		x := mustStart(t, c, sum, 1, perdure.RawKey("1"))
		sent := make(chan error, 1)

		go func() {
			for n := range signals {
				if err := number.Send(c, x, n); err != nil {
					sent <- err
					return
				}
			}
			sent <- nil
		}()

		for range 5 {
			if _, err := app.Executions().Reset(t.Context(), x, perdure.AfterPosition(0)); err != nil && !errors.Is(err, perdure.ErrConflict) {
				t.Fatal(err)
			}
		}

		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		got, err := x.Result(c)
		equal(t, "the sum", got, err, signals*(signals-1)/2)
	})
}

// A reset point can be before a call of an entity or a service, or before a lock. A reset can also
// replace the reply to a call. The new run repeats calls after the reset point, and no call before
// it.
func TestResetBeforeCalls(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"memory"}, func(t *testing.T, s *site) {
		type account struct{ Cents int }
		accounts := perdure.NewEntity[account]("account")
		put := perdure.NewOperation(accounts, "put", func(_ perdure.EntityCtx, a *account, n int) (int, error) {
			a.Cents += n
			return a.Cents, nil
		})
		bells := perdure.NewService("bell")
		ring := perdure.NewRPC(bells, "ring", func(_ perdure.EntityCtx, n int) (int, error) { return n + 1, nil })
		work := perdure.NewWorkflow("work", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
			if _, err := put.Call(ctx, "first", 1); err != nil {
				return 0, err
			}
			rung, err := ring.Call(ctx, "door", 1)
			if err != nil {
				return 0, err
			}
			err = ctx.Lock(perdure.LockSet{accounts.Ref("second")}, func(ctx perdure.WorkflowCtx) error {
				_, err := put.Call(ctx, "second", 1)
				return err
			})
			return rung, err
		})
		app := s.open(work, accounts, bells)
		c := caller(t, app)
		x := mustStart(t, c, work, "", perdure.RawKey("a"))
		if _, err := x.Result(c); err != nil {
			t.Fatal(err)
		}

		for _, step := range []struct {
			before        string
			first, second int
		}{{"ring", 1, 2}, {"bell.ring", 1, 3}, {"lock", 1, 4}, {"account.put", 2, 5}, {"put", 3, 6}} {
			if _, err := app.Executions().Reset(t.Context(), x, perdure.BeforeStep(step.before)); err != nil {
				t.Fatalf("before %s: %v", step.before, err)
			}
			if _, err := x.Result(c); err != nil {
				t.Fatalf("before %s: %v", step.before, err)
			}
			first, _, err1 := accounts.Get(c, "first")
			second, _, err2 := accounts.Get(c, "second")
			if first.Cents != step.first || second.Cents != step.second || err1 != nil || err2 != nil {
				t.Errorf("before %s: the accounts have %d and %d, want %+v (%v, %v)", step.before, first.Cents, second.Cents, step, err1, err2)
			}
		}

		if _, err := app.Executions().Fork(t.Context(), x, perdure.RawKey("b"), perdure.SetResult("ring", 7)); err != nil {
			t.Fatal(err)
		}
		rung, err := work.Execution(perdure.RawKey("b")).Result(c)
		equal(t, "a fork with another reply", rung, err, 7)
		_, err = app.Executions().Reset(t.Context(), x, perdure.BeforeStep("take"))
		wantError(t, "a call that is not there", err, perdure.ErrNotFound, "take", "account.put, bell.ring, lock")
	})
}
