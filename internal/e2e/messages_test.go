package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// order is a typed message with several fields.
type order struct {
	Number int
	Items  []string
	At     time.Time
}

// Typed values arrive as sent, each once, in the order of their sender. Senders do not disturb each
// other (reliability I11).
func signalsInOrder(t *testing.T, s *site) {
	const senders, each = 3, 30
	orders := perdure.NewSignal[order]("orders")
	collect := perdure.NewWorkflow("collect", func(ctx perdure.WorkflowCtx, n int) ([]order, error) {
		var got []order
		for range n {
			o, err := orders.Receive(ctx)
			if err != nil {
				return nil, err
			}
			got = append(got, o)
		}
		return got, nil
	})

	app := s.open(collect)
	c := caller(t, app)
	exec := mustStart(t, c, collect, senders*each, perdure.RawKey("k"))
	at := time.Date(2026, 11, 15, 1, 2, 3, 4, time.UTC)

	var wg sync.WaitGroup
	for sender := range senders {
		wg.Go(func() {
			for i := range each {
				if err := orders.Send(c, exec, order{Number: sender*1000 + i, Items: []string{"a", "ü\x00"}, At: at}); err != nil {
					t.Error(err)
				}
			}
		})
	}

	wg.Wait()
	got, err := exec.Result(c)
	if err != nil {
		t.Fatal(err)
	}

	next := [senders]int{}
	for _, o := range got {
		sender, i := o.Number/1000, o.Number%1000
		if i != next[sender] {
			t.Fatalf("signal %d of sender %d came as number %d", i, sender, next[sender])
		}
		next[sender]++
		if !slices.Equal(o.Items, []string{"a", "ü\x00"}) || !o.At.Equal(at) {
			t.Fatalf("signal = %+v", o)
		}
	}

	if err := orders.Send(c, exec, order{}); !errors.Is(err, perdure.ErrConflict) {
		t.Errorf("a signal to an execution that has ended: %v, want a conflict", err)
	}
	wantError(t, "a signal to a missing execution", orders.Send(c, collect.Execution(perdure.RawKey("nobody")), order{}), perdure.ErrNotFound, "collect", "nobody")
}

// entities-workflows §17.13: a signal always wakes its receiver, whether it comes before the wait,
// after the code has looked and found nothing, or after the run has parked.
func signalsWheneverTheyCome(t *testing.T, s *site) {
	ping := perdure.NewSignal[int]("ping")
	looked, sent := make(chan struct{}, 10), make(chan struct{})
	late := perdure.NewWorkflow("late", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		// Case 1: the signal comes before the wait. This sleep gives the first signal time to
		// arrive.
		if err := ctx.Sleep(30 * time.Millisecond); err != nil {
			return "", err
		}
		first, err := ping.Receive(ctx)
		if err != nil {
			return "", err
		}

		// Case 2: the code finds no signal, and the next signal comes while the code runs.
		if v, ok := ping.TryReceive(ctx); ok {
			return "", fmt.Errorf("took %d before it was sent", v)
		}

		_, err = perdure.Do(ctx, "look", func(c context.Context) (int, error) {
			looked <- struct{}{}
			select {
			case <-sent:
				return 0, nil
			case <-c.Done():
				return 0, c.Err()
			}
		})
		if err != nil {
			return "", err
		}

		second, err := ping.Receive(ctx)
		if err != nil {
			return "", err
		}

		// Case 3: the signal comes after the run has parked.
		third, err := ping.Receive(ctx)
		return fmt.Sprint(first, second, third), err
	})

	app := s.open(late)
	c := caller(t, app)
	exec := mustStart(t, c, late, "", perdure.RawKey("k"))
	if err := ping.Send(c, exec, 1); err != nil {
		t.Fatal(err)
	}

	select {
	case <-looked:
	case <-time.After(patience):
		t.Fatal("the code does not look for a signal")
	}

	if err := ping.Send(c, exec, 2); err != nil {
		t.Fatal(err)
	}
	close(sent)
	eventually(t, "it waits for the third", func() bool { return slices.Equal(takenOf(t, app, exec), []string{"ping", "ping"}) })
	reason(t, app, exec, "waits for signal ping")
	if err := ping.Send(c, exec, 3); err != nil {
		t.Fatal(err)
	}

	got, err := exec.Result(c)
	equal(t, "result", got, err, "1 2 3")
}

func takenOf(t *testing.T, app *perdure.App, to perdure.Target) (names []string) {
	t.Helper()
	for e, err := range app.Histories().Events(t.Context(), to) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == "signal_taken" {
			names = append(names, e.Name)
		}
	}
	return names
}

// A wait ends with ErrTimeout when its scope times out. A later signal is not lost, and on replay
// the scope ends at the same point.
func signalTimeout(t *testing.T, s *site) {
	answer := perdure.NewSignal[string]("answer")
	ask := perdure.NewWorkflow("ask", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		_, err := answer.Receive(ctx.WithTimeout(20 * time.Millisecond))
		if !errors.Is(err, perdure.ErrTimeout) {
			return "", fmt.Errorf("the wait ended with %w", err)
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("the scope around it has ended: %w", ctx.Err())
		}
		first, err := answer.Receive(ctx)
		if err != nil {
			return "", err
		}
		second, err := answer.Receive(ctx.WithTimeout(time.Hour))
		return first + second, err
	})

	app := s.open(ask)
	c := caller(t, app)
	exec := mustStart(t, c, ask, "", perdure.RawKey("k"))
	eventually(t, "the first wait has ended", func() bool { return slices.Contains(kindsOf(t, app, exec), "timer_fired") })

	for _, v := range []string{"a", "b"} {
		if err := answer.Send(c, exec, v); err != nil {
			t.Fatal(err)
		}
	}

	got, err := exec.Result(c)
	equal(t, "result", got, err, "ab")
}

// A start can carry a signal, which the new execution has from the beginning. If the execution is
// already running, it gets the signal like any other.
func signalWithStart(t *testing.T, s *site) {
	item := perdure.NewSignal[string]("item")
	basket := perdure.NewWorkflow("basket", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		first, err := item.Receive(ctx)
		if err != nil {
			return "", err
		}
		second, err := item.Receive(ctx)
		return first + second, err
	})

	app := s.open(basket)
	c := caller(t, app)
	exec := mustStart(t, c, basket, "in", perdure.RawKey("k"), item.With("a"))
	eventually(t, "the first was taken", func() bool { return len(takenOf(t, app, exec)) == 1 })
	reason(t, app, exec, "waits for signal item")
	if _, err := basket.Start(c, "in", perdure.RawKey("k"), item.With("b")); err != nil {
		t.Fatal(err)
	}

	got, err := exec.Result(c)
	equal(t, "result", got, err, "ab")
}

// The first value settles a promise, before or after the code waits for it. Later callers get a
// conflict. If the promise is rejected, the code gets an error with the text of the rejection.
func promises(t *testing.T, s *site) {
	word, other := perdure.NewPromise[string]("word"), perdure.NewPromise[int]("other")
	wait := perdure.NewWorkflow("wait", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		w, err := word.Await(ctx)
		if err != nil {
			return "", err
		}
		again, err := word.Await(ctx)
		if err != nil || again != w {
			return "", fmt.Errorf("a second look gives %q, %w", again, err)
		}
		_, err = other.Await(ctx)
		return fmt.Sprintf("%s, %v", w, err), nil
	})

	app := s.open(wait)
	c := caller(t, app)
	for _, early := range []bool{true, false} {
		exec := mustStart(t, c, wait, "", perdure.RawKey(fmt.Sprint(early)))
		if !early {
			reason(t, app, exec, "waits for promise word")
		}
		if err := word.Resolve(c, exec, "first"); err != nil {
			t.Fatal(err)
		}
		wantError(t, "a second value", word.Resolve(c, exec, "second"), perdure.ErrConflict, "word")
		wantError(t, "a rejection of a settled promise", word.Reject(c, exec, errors.New("no")), perdure.ErrConflict, "word")
		if err := other.Reject(c, exec, errors.New("out of numbers")); err != nil {
			t.Fatal(err)
		}
		got, err := exec.Result(c)
		equal(t, "result", got, err, "first, out of numbers")
	}
}

// A send or start that is repeated with the same id has no effect, also after the execution has
// ended. With another id it is a new request.
func requestIDs(t *testing.T, s *site) {
	add := perdure.NewSignal[int]("add")
	sum := perdure.NewWorkflow("sum", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		total := 0
		for range n {
			v, err := add.Receive(ctx)
			if err != nil {
				return 0, err
			}
			total += v
		}
		return total, nil
	})
	app := s.open(sum)
	c := caller(t, app)
	exec := mustStart(t, c, sum, 2, perdure.RawKey("k"))
	send := func(v int, id string) {
		t.Helper()
		if err := add.Send(c, exec, v, perdure.RequestID(id)); err != nil {
			t.Fatalf("signal with id %s: %v", id, err)
		}
	}
	var wg sync.WaitGroup
	for range 10 { // all at the same time
		wg.Go(func() { send(1, "one") })
	}
	wg.Wait()
	send(1, "one")
	send(2, "two")
	got, err := exec.Result(c)
	equal(t, "sum", got, err, 3)
	send(2, "two") // the engine has accepted this signal before
	wantError(t, "a new signal to a closed execution", add.Send(c, exec, 3, perdure.RequestID("three")), perdure.ErrConflict)

	runs := map[string]bool{}
	for range 3 {
		if _, err := sum.Start(c, 0, perdure.RawKey("again"), perdure.ReuseAlways, perdure.RequestID("start-1")); err != nil {
			t.Fatal(err)
		}
		if _, err := sum.Execution(perdure.RawKey("again")).Result(c); err != nil {
			t.Fatal(err)
		}
		info, err := app.Executions().Describe(t.Context(), sum.Execution(perdure.RawKey("again")))
		if err != nil {
			t.Fatal(err)
		}
		runs[info.Ref.Run] = true
	}
	if len(runs) != 1 {
		t.Errorf("the same start led to runs %v", runs)
	}
}
