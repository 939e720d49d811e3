package txtest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
)

// A run is terminated while the transaction of its step commits. The transfer is committed. A retry
// of the execution finds the committed transfer and does not make it again.
func TestRetryAfterTerminateWhileCommitting(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		f := newFaults()
		app := open(t, "memory:", pay, b.bind(settle, f, move))
		f.at(7, pauseAfter)
		exec, err := pay.Start(caller(t, app), one)
		check(t, err)
		<-f.paused
		check(t, app.Executions().Terminate(t.Context(), exec, "enough"))
		close(f.resume)
		_, err = app.Executions().Retry(t.Context(), exec)
		check(t, err)
		if got, err := exec.Result(caller(t, app)); err != nil || got != "done t1" {
			t.Errorf("%q, %v", got, err)
		}
		b.check([]transfer{one})
	})
}

// A retry repeats the step that failed permanently, in its own transaction. A reset also repeats
// steps that had succeeded.
func TestRetryAndResetActAnew(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		var frozen atomic.Bool
		frozen.Store(true)
		app := open(t, "memory:", pay, b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
			if frozen.Load() {
				return "", perdure.Permanent(errors.New("the account is frozen"))
			}
			return move(ctx, s, in)
		}))

		exec, err := pay.Start(caller(t, app), one)
		check(t, err)
		_, err = exec.Result(caller(t, app))
		checkError(t, err, nil, "the account is frozen")
		_, err = app.Executions().Retry(t.Context(), exec)
		check(t, err)
		_, err = exec.Result(caller(t, app))
		checkError(t, err, nil, "the account is frozen")
		frozen.Store(false)
		_, err = app.Executions().Retry(t.Context(), exec)
		check(t, err)
		if got, err := exec.Result(caller(t, app)); err != nil || got != "done t1" {
			t.Errorf("%q, %v", got, err)
		}
		b.check([]transfer{one})
		_, err = app.Executions().Reset(t.Context(), exec, perdure.BeforeStep("settle"))
		check(t, err)
		if got, err := exec.Result(caller(t, app)); err != nil || got != "done t1" {
			t.Errorf("%q, %v", got, err)
		}
		if n := b.int(`select count(*) from ledger`); n != 2 {
			t.Errorf("%d transfers after a reset, want 2", n)
		}
	})
}

// A retry repeats the history up to the step that failed last. After that point of the history, a
// concurrent step made a transfer. However often the execution is retried, the transfer is not
// repeated, because the step that made it keeps its idempotency key and its outcome.
func TestRetryBeforeATransferThatStands(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		var broken atomic.Bool
		broken.Store(true)
		moved := make(chan struct{})

		other := perdure.NewActivity("other", func(ctx context.Context, _ string) (string, error) {
			if broken.Load() {
				return "", perdure.Permanent(errors.New("it is broken"))
			}
			return "fine", nil
		})

		both := perdure.NewWorkflow("both", func(ctx perdure.WorkflowCtx, in transfer) (string, error) {
			broken, transferred := other.Go(ctx, "x"), settle.Go(ctx, in)
			_, err := broken.Get(ctx)
			got, failed := transferred.Get(ctx)
			return got, errors.Join(err, failed)
		})

		var once sync.Once
		app := open(t, "memory:", both, other, b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
			once.Do(func() { <-moved })
			return move(ctx, s, in)
		}))

		exec, err := both.Start(caller(t, app), one, perdure.RawKey("b"))
		check(t, err)
		eventually(t, "the other one has failed", func() bool { return slices.Contains(kindsOf(t, app, exec), "step_failed other") })
		close(moved)

		for range 3 {
			_, err = exec.Result(caller(t, app))
			checkError(t, err, nil, "it is broken")
			_, err = app.Executions().Retry(t.Context(), exec)
			check(t, err)
		}

		_, err = exec.Result(caller(t, app))
		checkError(t, err, nil, "it is broken")
		broken.Store(false)
		_, err = app.Executions().Retry(t.Context(), exec)
		check(t, err)
		if got, err := exec.Result(caller(t, app)); err != nil || got != "done t1" {
			t.Errorf("%q, %v", got, err)
		}
		b.check([]transfer{one})
	})
}

func kindsOf(t *testing.T, app *perdure.App, x perdure.Target) (kinds []string) {
	for e, err := range app.Histories().Events(t.Context(), x) {
		check(t, err)
		kinds = append(kinds, e.Kind+" "+e.Name)
	}
	return kinds
}
