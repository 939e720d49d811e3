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

type item struct {
	SKU string
	N   int
}

var (
	addItem  = perdure.NewUpdate[item, int]("add-item")
	contents = perdure.NewQuery[string, int]("contents")
	checkout = perdure.NewSignal[perdure.Void]("checkout")
	progress = perdure.NewState[string]("progress")
)

// cart adds up items until it is checked out. A step books each item, and booked counts these
// steps.
func cart(booked *atomic.Int64) *perdure.Workflow[string, int] {
	return perdure.NewWorkflow("cart", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
		total := map[string]int{}
		sum := 0
		contents.Handle(ctx, func(sku string) (int, error) {
			if sku == "" {
				return 0, errors.New("which?")
			}
			return total[sku], nil
		})

		addItem.Handle(ctx, func(ctx perdure.WorkflowCtx, it item) (int, error) {
			if _, err := perdure.Do(ctx, "book", func(context.Context) (int, error) { return int(booked.Add(1)), nil }); err != nil {
				return 0, err
			}
			total[it.SKU] += it.N
			sum += it.N
			return sum, nil
		}, func(it item) error {
			if it.N <= 0 {
				return fmt.Errorf("%d of %s: n must be positive", it.N, it.SKU)
			}
			return nil
		})

		_, err := checkout.Receive(ctx)
		return sum, err
	})
}

// checkOut ends a cart and checks its content.
func checkOut(t *testing.T, c perdure.Client, exec perdure.Execution[int], want int) {
	t.Helper()
	if err := checkout.Send(c, exec, perdure.Void{}); err != nil {
		t.Fatal(err)
	}
	sum, err := exec.Result(c)
	equal(t, "the cart", sum, err, want)
}

func updates(t *testing.T, s *site) {
	var booked atomic.Int64
	carts := cart(&booked)
	app := s.open(carts)
	c := caller(t, app)
	exec := mustStart(t, c, carts, "eve", perdure.RawKey("eve"))
	got, err := addItem.Call(c, exec, item{"a", 2})
	equal(t, "the first update", got, err, 2)
	_, err = addItem.Call(c, exec, item{"a", -1})
	if refused := (*perdure.RemoteError)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "n must be positive") {
		t.Errorf("a refused update: %v", err)
	}

	for range 3 {
		got, err = addItem.Call(c, exec, item{"b", 5}, perdure.RequestID("once"))
		equal(t, "an update under one request id", got, err, 7)
	}

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := addItem.Call(c, exec, item{"c", 1}); err != nil {
				t.Error(err)
			}
		})
	}

	wg.Wait()
	checkOut(t, c, exec, 27)
	if n := booked.Load(); n != 22 {
		t.Errorf("%d items were booked, want 22", n)
	}
	_, err = addItem.Call(c, exec, item{"d", 1})
	wantError(t, "an update after the end", err, perdure.ErrConflict, "cart", "eve")
	_, err = addItem.Call(c, carts.Execution(perdure.RawKey("nobody")), item{"d", 1})
	wantError(t, "an update of a missing execution", err, perdure.ErrNotFound, "nobody")
	got, err = addItem.Call(c, exec, item{"b", 5}, perdure.RequestID("once"))
	equal(t, "the same request after the end", got, err, 7)
}

// When a run continues as new, updates whose handlers have not started go to the next run. The
// engine refuses an update whose handler has started, unless the workflow waits for the handler.
func updatesAtTheEnd(t *testing.T, s *site) {
	next := perdure.NewSignal[string]("next")
	held := perdure.NewSignal[perdure.Void]("held")
	slow := perdure.NewUpdate[int, string]("slow")
	late := perdure.NewUpdate[int, string]("late")
	chain := perdure.DeclareWorkflow[int, int]("chain")

	code := chain.Bind(func(ctx perdure.WorkflowCtx, n int) (int, error) {
		slow.Handle(ctx, func(ctx perdure.WorkflowCtx, i int) (string, error) {
			if _, err := perdure.Do(ctx, "begin", func(context.Context) (int, error) { return i, nil }); err != nil {
				return "", err
			}
			_, err := held.Receive(ctx)
			return fmt.Sprintf("slow %d in run %d", i, n), err
		})

		if n == 2 {
			late.Handle(ctx, func(_ perdure.WorkflowCtx, i int) (string, error) { return fmt.Sprintf("late %d in run %d", i, n), nil })
		}
		how, err := next.Receive(ctx)
		if err != nil {
			return 0, err
		}

		if how == "wait" {
			if err := ctx.WaitUpdates(); err != nil {
				return 0, err
			}
		}

		if n == 2 {
			return n, nil
		}
		return 0, chain.ContinueAsNew(n + 1)
	})

	app := s.open(code)
	c := caller(t, app)
	exec := mustStart(t, c, chain, 1, perdure.RawKey("k"))
	type result struct {
		text string
		err  error
	}

	call := func(u *perdure.Update[int, string], i int) chan result {
		done := make(chan result, 1)
		go func() {
			text, err := u.Call(c, exec, i)
			done <- result{text, err}
		}()
		return done
	}

	send := func(v string) {
		t.Helper()
		if err := next.Send(c, exec, v); err != nil {
			t.Fatal(err)
		}
	}

	begun, waiting := call(slow, 1), call(late, 2)
	eventually(t, "one update has begun, the other has come", func() bool {
		return count(t, app, exec, "update_received") == 2 && count(t, app, exec, "step_completed") == 1
	})
	send("go on")
	if r := <-begun; !errors.Is(r.err, perdure.ErrConflict) || !strings.Contains(r.err.Error(), "slow") {
		t.Errorf("an update whose handler was cut off: %q, %v", r.text, r.err)
	}
	r := <-waiting
	equal(t, "an update that was carried over", r.text, r.err, "late 2 in run 2")
	patient := call(slow, 3)
	eventually(t, "the update has begun", func() bool { return count(t, app, exec, "step_completed") == 1 })
	send("wait")
	eventually(t, "the run waits for the update", func() bool { return count(t, app, exec, "signal_taken") == 1 })
	if err := held.Send(c, exec, perdure.Void{}); err != nil {
		t.Fatal(err)
	}

	r = <-patient
	equal(t, "an update that was waited for", r.text, r.err, "slow 3 in run 2")
	n, err := exec.Result(c)
	equal(t, "the result", n, err, 2)
}

// count returns the number of events of a kind in the history of the current run.
func count(t *testing.T, app *perdure.App, to perdure.Target, kind string) (n int) {
	t.Helper()
	for e, err := range app.Histories().Events(t.Context(), to) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func updatesBetweenWorkflows(t *testing.T, s *site) {
	var booked atomic.Int64
	carts := cart(&booked)
	shopper := perdure.NewWorkflow("shopper", func(ctx perdure.WorkflowCtx, n int) (string, error) {
		to := carts.Execution(perdure.RawKey("joe"))
		sum := 0
		for i := range n {
			var err error
			if sum, err = addItem.Call(ctx, to, item{"x", i + 1}); err != nil {
				return "", err
			}
		}
		_, refused := addItem.Call(ctx, to, item{"x", 0})
		_, missing := addItem.Call(ctx, carts.Execution(perdure.RawKey("nobody")), item{"x", 1})
		if _, err := addItem.Call(ctx, to, item{"x", 1}, perdure.RequestID("r")); !errors.Is(err, perdure.ErrInvalid) {
			return "", fmt.Errorf("a request id: %w", err)
		}
		return fmt.Sprintf("%d; %v; %v", sum, refused != nil && strings.Contains(refused.Error(), "positive"), errors.Is(missing, perdure.ErrNotFound)), nil
	})

	app := s.open(carts, shopper)
	c := caller(t, app)
	exec := mustStart(t, c, carts, "joe", perdure.RawKey("joe"))
	got, err := shopper.Run(c, 3)
	equal(t, "the shopper", got, err, "6; true; true")
	checkOut(t, c, exec, 6)
}

// A workflow learns that its messages have arrived, or why not.
func sendsAreAnswered(t *testing.T, s *site) {
	ping := perdure.NewSignal[int]("ping")
	told := perdure.NewPromise[int]("told")
	target := perdure.NewWorkflow("target", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
		n, err := ping.Receive(ctx)
		if err != nil {
			return 0, err
		}
		m, err := told.Await(ctx)
		return n + m, err
	})

	teller := perdure.NewWorkflow("teller", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		to := target.Execution(perdure.RawKey("t"))
		first := ping.Send(ctx, target.Execution(perdure.RawKey("nobody")), 1)
		second := ping.Send(ctx, to, 1)
		third := told.Resolve(ctx, to, 2)
		if _, err := to.Result(ctx); err != nil {
			return "", err
		}
		last := ping.Send(ctx, to, 3)
		return fmt.Sprint(errors.Is(first, perdure.ErrNotFound), second, third, errors.Is(last, perdure.ErrConflict)), nil
	})

	app := s.open(target, teller)
	c := caller(t, app)
	exec := mustStart(t, c, target, "x", perdure.RawKey("t"))
	got, err := teller.Run(c, "x")
	equal(t, "the result of the teller", got, err, "true <nil> <nil> true")
	n, err := exec.Result(c)
	equal(t, "the target", n, err, 3)
}

func queries(t *testing.T, s *site) {
	var booked atomic.Int64
	carts := cart(&booked)
	app := s.open(carts)
	c := caller(t, app)

	exec := mustStart(t, c, carts, "ann", perdure.RawKey("ann"))
	for i := range 5 {
		if _, err := addItem.Call(c, exec, item{"a", i + 1}); err != nil {
			t.Fatal(err)
		}
		n, err := contents.Ask(c, exec, "a")
		equal(t, "the contents", n, err, (i+1)*(i+2)/2)
	}

	_, err := contents.Ask(c, exec, "")
	if refused := (*perdure.RemoteError)(nil); !errors.As(err, &refused) || err.Error() != "which?" {
		t.Errorf("an error of the handler: %v", err)
	}
	unknown := perdure.NewQuery[string, int]("unknown")
	_, err = unknown.Ask(c, exec, "a")
	wantError(t, "a query without a handler", err, perdure.ErrNotFound, "cart", "unknown", "contents")
	_, err = contents.Ask(c, carts.Execution(perdure.RawKey("nobody")), "a")
	wantError(t, "a query of a missing execution", err, perdure.ErrNotFound, "nobody")
	checkOut(t, c, exec, 15)
	n, err := contents.Ask(c, exec, "a")
	equal(t, "the contents after the end", n, err, 15)
}

func states(t *testing.T, s *site) {
	next := perdure.NewSignal[perdure.Void]("next")
	runs := perdure.NewState[int]("runs")
	worker := perdure.DeclareWorkflow[int, string]("stateful")

	code := worker.Bind(func(ctx perdure.WorkflowCtx, n int) (string, error) {
		had, _ := runs.Get(ctx)
		if err := runs.Set(ctx, had+1); err != nil {
			return "", err
		}

		for _, at := range []string{"begun", "half", "done"} {
			if err := progress.Set(ctx, fmt.Sprintf("%s %d", at, n)); err != nil {
				return "", err
			}
			if _, err := next.Receive(ctx); err != nil {
				return "", err
			}
		}

		if n < 2 {
			return "", worker.ContinueAsNew(n + 1)
		}
		if err := progress.Clear(ctx); err != nil {
			return "", err
		}
		_, left := progress.Get(ctx)

		return fmt.Sprint(had+1, left), nil
	})

	reader := perdure.NewWorkflow("reader", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		v, ok, err := progress.Read(ctx, worker.Execution(perdure.RawKey("k")))
		return fmt.Sprint(v, " ", ok), err
	})

	app := s.open(code, reader)
	c := caller(t, app)
	exec := mustStart(t, c, worker, 1, perdure.RawKey("k"))
	for n := 1; n <= 2; n++ {
		for _, at := range []string{"begun", "half", "done"} {
			want := fmt.Sprintf("%s %d", at, n)
			eventually(t, want, func() bool {
				v, _, err := progress.Read(c, exec)
				if err != nil {
					t.Fatal(err)
				}
				return v == want
			})

			if at == "half" {
				got, err := reader.Run(c, fmt.Sprint("half", n))
				equal(t, "what another workflow reads", got, err, want+" true")
				if had, ok, err := runs.Read(c, exec); err != nil || !ok || had != n {
					t.Errorf("runs = %d, %v, %v; want %d", had, ok, err, n)
				}
			}

			if err := next.Send(c, exec, perdure.Void{}); err != nil {
				t.Fatal(err)
			}
		}
	}

	got, err := exec.Result(c)
	equal(t, "the result", got, err, "2 false")
	if v, ok, err := progress.Read(c, exec); err != nil || ok {
		t.Errorf("after the end progress = %q, %v, %v; want nothing", v, ok, err)
	}
	if v, ok, err := runs.Read(c, exec); err != nil || !ok || v != 2 {
		t.Errorf("after the end runs = %d, %v, %v; want 2", v, ok, err)
	}
	_, _, err = progress.Read(c, worker.Execution(perdure.RawKey("nobody")))
	wantError(t, "the state of a missing execution", err, perdure.ErrNotFound, "nobody")
}

func terminate(t *testing.T, s *site) {
	never := perdure.NewSignal[int]("never")
	var cleaned atomic.Int64
	child := perdure.NewWorkflow("kid", func(ctx perdure.WorkflowCtx, _ string) (int, error) { return never.Receive(ctx) })

	stubborn := perdure.NewWorkflow("stubborn", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
		ctx.Defer(func(ctx perdure.WorkflowCtx) error {
			_, err := perdure.Do(ctx, "clean", func(context.Context) (int64, error) { return cleaned.Add(1), nil })
			return err
		})
		if _, err := child.Start(ctx, "x", perdure.RawKey("kid")); err != nil {
			return 0, err
		}
		for {
			if _, err := never.Receive(ctx.Detached()); err == nil {
				return 0, nil
			}
		}
	})

	app := s.open(stubborn, child)
	c := caller(t, app)
	exec := mustStart(t, c, stubborn, "x", perdure.RawKey("s"))
	reason(t, app, exec, "never")
	reason(t, app, child.Execution(perdure.RawKey("kid")), "never")
	ended := make(chan error, 1)

	go func() {
		_, err := exec.Result(c)
		ended <- err
	}()

	if err := app.Executions().Terminate(t.Context(), exec, "no use"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "no use") {
		t.Errorf("the result of a terminated execution: %v", err)
	}
	info, err := app.Executions().Describe(t.Context(), exec)
	equal(t, "the status", info.Status, err, perdure.Terminated)
	if n := cleaned.Load(); n != 0 {
		t.Error("clean-up ran")
	}
	wantError(t, "a second terminate", app.Executions().Terminate(t.Context(), exec, ""), perdure.ErrConflict, "closed")
	_, err = child.Execution(perdure.RawKey("kid")).Result(c)
	if !errors.Is(err, perdure.ErrCanceled) {
		t.Errorf("its child: %v, want canceled", err)
	}
	if _, err := stubborn.Start(c, "x", perdure.RawKey("s"), perdure.ReuseIfFailed); err != nil {
		t.Errorf("the key of a terminated execution cannot be used again: %v", err)
	}
}

func pauses(t *testing.T, s *site) {
	tick := perdure.NewSignal[int]("tick")
	release := make(chan struct{})
	var steps atomic.Int64

	sum := perdure.NewWorkflow("sum", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		total := 0
		for range n {
			v, err := tick.Receive(ctx)
			if err != nil {
				return 0, err
			}
			if _, err := perdure.Do(ctx, "add", func(context.Context) (int64, error) {
				if v == 100 {
					<-release
				}
				return steps.Add(1), nil
			}, perdure.StepKey(fmt.Sprint(v))); err != nil {
				return 0, err
			}
			total += v
		}

		if err := ctx.Sleep(time.Millisecond); err != nil {
			return 0, err
		}
		return total, nil
	})

	app := s.open(sum)
	c := caller(t, app)
	ctx := t.Context()
	exec := mustStart(t, c, sum, 4, perdure.RawKey("k"))

	send := func(v int) {
		t.Helper()
		if err := tick.Send(c, exec, v); err != nil {
			t.Fatal(err)
		}
	}

	send(1)
	eventually(t, "the first step", func() bool { return steps.Load() == 1 })
	if err := app.Executions().Pause(ctx, exec, "maintenance"); err != nil {
		t.Fatal(err)
	}
	if err := app.Executions().Pause(ctx, exec, "again"); err != nil {
		t.Fatal(err)
	}

	send(2)
	reason(t, app, exec, "paused: maintenance")
	if n := steps.Load(); n != 1 {
		t.Errorf("%d steps ran while it was paused", n)
	}
	if err := app.Executions().Resume(ctx, exec); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the second step", func() bool { return steps.Load() == 2 })
	send(100) // the step runs when the pause starts, so it finishes and does not run again
	reason(t, app, exec, "add")
	if err := app.Executions().Pause(ctx, exec, "while a step runs"); err != nil {
		t.Fatal(err)
	}
	send(4)
	close(release)
	eventually(t, "the step is recorded", func() bool { return count(t, app, exec, "step_completed") == 3 })
	reason(t, app, exec, "while a step runs")
	if err := app.Executions().Resume(ctx, exec); err != nil {
		t.Fatal(err)
	}

	got, err := exec.Result(c)
	equal(t, "the result", got, err, 107)
	if n := steps.Load(); n != 4 {
		t.Errorf("%d steps ran, want 4", n)
	}
	wantError(t, "a pause after the end", app.Executions().Pause(ctx, exec, ""), perdure.ErrConflict, "closed")
}

func interrupts(t *testing.T, s *site) {
	never := perdure.NewSignal[int]("never")
	var heard atomic.Int64
	work := perdure.NewWorkflow("work", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
		ctx.OnInterrupt(func(ctx perdure.WorkflowCtx, reason string) error {
			if err := ctx.Sleep(time.Millisecond); err != nil {
				return err
			}
			_, err := perdure.Do(ctx, "tell "+reason, func(context.Context) (int64, error) { return heard.Add(1), nil })
			return err
		})
		return never.Receive(ctx)
	})

	app := s.open(work)
	c := caller(t, app)
	exec := mustStart(t, c, work, "x", perdure.RawKey("k"))
	reason(t, app, exec, "never")
	if err := exec.Cancel(c, "closing time"); err != nil {
		t.Fatal(err)
	}

	if _, err := exec.Result(c); !errors.Is(err, perdure.ErrCanceled) {
		t.Errorf("the result: %v", err)
	}
	if n := heard.Load(); n != 1 {
		t.Errorf("the interrupt arrived %d times", n)
	}
}

func drains(t *testing.T, s *site) {
	tick, stop := perdure.NewSignal[int]("tick"), perdure.NewSignal[perdure.Void]("stop")
	drain := perdure.NewWorkflow("drain", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		if _, err := stop.Receive(ctx); err != nil {
			return "", err
		}
		return fmt.Sprint(tick.Drain(ctx), tick.Drain(ctx)), nil
	})

	app := s.open(drain)
	c := caller(t, app)
	exec := mustStart(t, c, drain, "x", perdure.RawKey("k"))
	for i := range 4 {
		if err := tick.Send(c, exec, i); err != nil {
			t.Fatal(err)
		}
	}

	if err := stop.Send(c, exec, perdure.Void{}); err != nil {
		t.Fatal(err)
	}
	got, err := exec.Result(c)
	equal(t, "all at once", got, err, "[0 1 2 3] []")
}

// Set and Clear return an error for a state with an invalid name.
func TestNamesOfStates(t *testing.T) {
	t.Parallel()
	s := newSite(t, "memory")
	wf := perdure.NewWorkflow("names", func(ctx perdure.WorkflowCtx, _ perdure.Void) (string, error) {
		for _, name := range []string{"", strings.Repeat("x", 201), "a\nb"} {
			st := perdure.NewState[int](name)
			for _, err := range []error{st.Set(ctx, 1), st.Clear(ctx)} {
				if !errors.Is(err, perdure.ErrInvalid) {
					return name, fmt.Errorf("state %q: %w", name, err)
				}
			}
		}
		return "refused", nil
	})

	app := s.open(wf)
	got, err := wf.Run(caller(t, app), perdure.Void{}, perdure.RawKey("k"))
	equal(t, "result", got, err, "refused")
}
