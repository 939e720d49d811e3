package e2e_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
)

// first is a start with a request id, and its result.
type first struct {
	in   int
	id   string
	want int
}

// repeat checks what the start returns when a caller repeats it: Run, Start with Result, Start with
// Poll, and StartMany.
func (f first) repeat(t *testing.T, c perdure.Client, w *perdure.Workflow[int, int]) {
	t.Helper()
	in, id, want := f.in, f.id, f.want
	opts := []perdure.StartOption{perdure.RawKey("k"), perdure.ReuseAlways, perdure.RequestID(id)}
	got, err := w.Run(c, in, opts...)
	equal(t, "a repeated run "+id, got, err, want)

	x := mustStart(t, c, w, in, opts...)
	got, err = x.Result(c)
	equal(t, "the result of a repeated start "+id, got, err, want)
	state, err := x.Poll(c)
	equal(t, "the state of a repeated start "+id, state.Value, err, want)

	many, err := w.KeyedBy(func(int) perdure.Key { return perdure.RawKey("k") }).StartMany(c, []int{in}, opts[1:]...)
	must(t, err)
	must(t, many[0].Err)
	got, err = many[0].Execution.Result(c)
	equal(t, "the result of a repeated start of many "+id, got, err, want)
}

// A start that a caller repeats with its request id has the result of the run that it started,
// through all runs that continue or retry it. It does not have the result of a later start of the
// same key, and does not wait for a later start that is open.
func TestRepeatedStartHasItsOwnResult(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, site *site) {
		var fails atomic.Bool
		stop := perdure.NewSignal[int]("stop")
		var count *perdure.Workflow[int, int]
		count = perdure.NewWorkflow("count", func(ctx perdure.WorkflowCtx, n int) (int, error) {
			switch {
			case n < 0 && fails.Load():
				return 0, perdure.Permanent(errors.New("no luck"))
			case n == 100:
				return stop.Receive(ctx)
			case n%10 == 1 || n%10 == 2:
				return 0, count.ContinueAsNew(n + 1)
			}
			return n, nil
		})

		apps := []*perdure.App{site.open(count)}
		if site.kind == "postgres" { // one process owns the execution, and the other one asks it
			apps = append(apps, site.open(count))
		}
		c, key, always := caller(t, apps[0]), perdure.RawKey("k"), perdure.ReuseAlways

		// A chain of three runs, and a failure that an operator retries.
		got, err := count.Run(c, 1, key, always, perdure.RequestID("chain"))
		equal(t, "the chain", got, err, 3)
		fails.Store(true)
		if _, err := count.Run(c, -1, key, always, perdure.RequestID("retried")); err == nil {
			t.Fatal("the run did not fail")
		}
		fails.Store(false)
		_, err = apps[0].Executions().Retry(t.Context(), perdure.Ref{Workflow: "count", Key: "k"})
		must(t, err)

		check := func() {
			t.Helper()
			for _, app := range apps {
				first{1, "chain", 3}.repeat(t, caller(t, app), count)
				first{-1, "retried", -1}.repeat(t, caller(t, app), count)
			}
		}
		check() // the retry is the current run

		got, err = count.Run(c, 20, key, always, perdure.RequestID("plain"))
		equal(t, "a plain run", got, err, 20)
		check() // the current run belongs to another start, and is closed

		open := mustStart(t, c, count, 100, key, always, perdure.RequestID("open"))
		check()
		first{20, "plain", 20}.repeat(t, c, count)

		// The execution of the key is the open one. A deleted run has no result.
		must(t, stop.Send(c, open, 7))
		got, err = count.Execution(key).Result(c)
		equal(t, "the execution of the key", got, err, 7)
		must(t, apps[0].Executions().Delete(t.Context(), perdure.Ref{Workflow: "count", Key: "k"}))
		got, err = count.Run(c, 30, key, always)
		equal(t, "a run after the delete", got, err, 30)
		for _, app := range apps {
			if _, err := open.Result(caller(t, app)); !errors.Is(err, perdure.ErrNotFound) {
				t.Errorf("the result of a deleted run: %v", err)
			}
			if _, err := open.Poll(caller(t, app)); !errors.Is(err, perdure.ErrNotFound) {
				t.Errorf("the state of a deleted run: %v", err)
			}
		}
	})
}
