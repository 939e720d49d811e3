package txtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

var one = transfer{"t1", 0, 1, 100}

// A step fails permanently while the user's database cannot be reached, so the failure cannot be
// stored. Until the failure is stored, the step has neither failed nor completed, and its execution
// reports that. The function does not run again.
func TestDatabaseAway(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		var away atomic.Bool
		var ran atomic.Int64
		f := newFaults()

		app := open(t, "memory:", pay, b.bind(settle, f, func(ctx context.Context, s session, in transfer) (string, error) {
			ran.Add(1)
			if _, err := move(ctx, s, in); err != nil {
				return "", err
			}
			away.Store(true)
			return "", perdure.Permanent(errors.New("the account is frozen"))
		}))

		f.mu.Lock()
		f.plan = func(int, string) action {
			if away.Load() {
				return cutBefore
			}
			return pass
		}

		f.mu.Unlock()
		exec, err := pay.Start(caller(t, app), one)
		check(t, err)

		eventually(t, "its outcome is pending", func() bool {
			info, err := app.Executions().Describe(t.Context(), exec)
			return err == nil && strings.Contains(info.Reason, "outcome is pending") && strings.Contains(info.Reason, "the account is frozen")
		})

		away.Store(false)
		_, err = exec.Result(caller(t, app))
		checkError(t, err, nil, "the account is frozen")
		b.check(nil)
		if n := ran.Load(); n != 1 {
			t.Errorf("the function ran %d times", n)
		}
	})
}

// If a cancel request arrives while the transaction commits, the step succeeds.
func TestCancelWhileCommitting(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		f := newFaults()
		app := open(t, "memory:", pay, b.bind(settle, f, move))
		f.at(7, pauseAfter)
		exec, err := pay.Start(caller(t, app), one)
		check(t, err)
		<-f.paused
		check(t, exec.Cancel(caller(t, app), "enough"))
		close(f.resume)
		if got, err := exec.Result(caller(t, app)); err != nil || got != "done t1" {
			t.Errorf("%q, %v", got, err)
		}
		b.check([]transfer{one})
	})
}

// A workflow returns while steps are open, or a step loses a race. The engine decides the outcome
// of these steps before the execution ends, so that the steps change nothing after the end of the
// execution.
func TestGivenUpSteps(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		leave := perdure.NewWorkflow("leave", func(ctx perdure.WorkflowCtx, in transfer) (string, error) {
			f := settle.Go(ctx, in)
			switch in.ID {
			case "returned":
				return "left", ctx.Sleep(20 * time.Millisecond)
			case "cancelled":
				check(t, ctx.Sleep(20*time.Millisecond))
				f.Cancel(ctx)
			case "late":
				scope := ctx.WithTimeout(20 * time.Millisecond)
				_, err := settle.Run(scope, in)
				if !errors.Is(err, perdure.ErrTimeout) {
					return "", fmt.Errorf("it says %w", err)
				}
				f.Cancel(ctx)
			}

			if _, err := f.Get(ctx); !errors.Is(err, perdure.ErrCanceled) {
				return "", fmt.Errorf("its future says %w", err)
			}
			return "left", nil
		})

		var running atomic.Int64
		app := open(t, "memory:", leave, b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
			running.Add(1)
			defer running.Add(-1)
			if b.kind != "sqlite" { // in SQLite a writer blocks all others
				if _, err := move(ctx, s, in); err != nil {
					return "", err
				}
			}
			<-ctx.Done()
			return "", ctx.Err()
		}))

		outcomes := 0
		for _, id := range []string{"returned", "cancelled", "late"} {
			if id == "late" && b.kind == "sqlite" {
				continue // needs two transactions at the same time
			}
			got, err := leave.Run(caller(t, app), transfer{id, 0, 1, 100}, perdure.RawKey(id))
			if err != nil || got != "left" {
				t.Fatalf("%s: %q, %v", id, got, err)
			}

			if n := running.Load(); n != 0 {
				t.Errorf("%s: %d functions still run", id, n)
			}
			if outcomes++; id == "late" {
				outcomes++
			}
			if n := b.int(`select count(*) from perdure_outcomes where outcome is not null`); n != outcomes {
				t.Errorf("%s: %d outcomes, want %d", id, n, outcomes)
			}
		}

		b.check(nil)
	})
}

// A function that ignores the end of its attempt continues in the same process. The step fails, and
// later changes of the function are lost.
func TestAttemptTimeout(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		if b.kind == "pgx" {
			// The end of a context does not end these transactions, so the engine waits for the
			// function.
			return
		}
		limited := perdure.NewWorkflow("limited", func(ctx perdure.WorkflowCtx, in transfer) (string, error) {
			return settle.Run(ctx, in, perdure.AttemptTimeout(30*time.Millisecond), perdure.Constant(1, time.Millisecond))
		})
		begun, wake, woken := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)

		app := open(t, "memory:", limited, b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
			begun <- struct{}{}
			<-wake
			_, err := move(context.WithoutCancel(ctx), s, in)
			woken <- err
			return "done", nil
		}))
		for n := 0; ; n++ { // on a busy machine the attempt may time out before the function starts
			in := one
			in.ID = fmt.Sprint(n)
			_, err := limited.Run(caller(t, app), in, perdure.RawKey(in.ID))
			checkError(t, err, perdure.ErrTimeout, "took more than")
			if len(begun) > 0 {
				break
			}
		}

		close(wake)
		if err := <-woken; err == nil {
			t.Error("the zombie could act in its transaction")
		}
		b.check(nil)
	})
}

// After a crash, the replayed code gets the same outcome of a step that the workflow had given up.
func TestReplayOfGivenUpSteps(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b, url := newBank(t, "pgsql"), storeURL(t, kind)
			hold := perdure.NewWorkflow("hold", func(ctx perdure.WorkflowCtx, in transfer) (string, error) {
				_, err := settle.Run(ctx.WithTimeout(10*time.Millisecond), in)
				w, other := word.Receive(ctx)
				return fmt.Sprint(errors.Is(err, perdure.ErrTimeout), w), other
			})

			bound := b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})

			app := open(t, url, hold, bound)
			exec, err := hold.Start(caller(t, app), one)
			check(t, err)

			eventually(t, "it waits", func() bool {
				info, err := app.Executions().Describe(t.Context(), exec)
				return err == nil && strings.Contains(info.Reason, "signal word")
			})

			check(t, app.Close())
			app = open(t, url, hold, bound)
			check(t, word.Send(caller(t, app), exec, "x"))
			if got, err := exec.Result(caller(t, app)); err != nil || got != "truex" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// conflict is an error with the interface of PostgreSQL drivers.
type conflict string

func (c conflict) Error() string    { return "conflict " + string(c) }
func (c conflict) SQLState() string { return string(c) }

// A conflict with a concurrent transaction does not use up an attempt.
func TestConflictsCostNoAttempt(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		once := perdure.NewWorkflow("once", func(ctx perdure.WorkflowCtx, in transfer) (string, error) {
			return settle.Run(ctx, in, perdure.Constant(1, time.Millisecond))
		})
		var tries atomic.Int64

		app := open(t, "memory:", once, b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
			out, err := move(ctx, s, in)
			switch tries.Add(1) {
			case 1:
				err = conflict("40001")
			case 2:
				err = fmt.Errorf("wrapped: %w", conflict("40P01"))
			case 3:
				err = errors.New("sqlite3: database is locked")
			}
			return out, err
		}))
		if got, err := once.Run(caller(t, app), one); err != nil || got != "done t1" {
			t.Errorf("%q, %v", got, err)
		}
		b.check([]transfer{one})
	})
}

// Two processes may open a fresh database at the same time.
func TestOpenedAtOnce(t *testing.T) {
	onBanks(t, func(t *testing.T, b *bank) {
		var wg sync.WaitGroup
		for range 6 {
			bound, outbox := b.bind(settle, newFaults(), move), newOffice(b).outbox()
			wg.Go(func() {
				app, err := embedded.Open(t.Context(), "memory:", pay, bound, outbox)
				if err != nil {
					t.Error(err)
					return
				}
				_ = app.Close()
			})
		}
		wg.Wait()
	})
}

// A role that must not create tables gets an error that names the tables to create. It works once
// these tables exist.
func TestRoleThatMayNotCreateTables(t *testing.T) {
	t.Parallel()
	b := newBank(t, "pgsql")
	b.exec(`create schema locked`)
	b.exec(`do $x$ begin create role perdure_poor; exception when duplicate_object then null; end $x$`)
	b.exec(`grant usage on schema locked to perdure_poor`)
	cfg, err := pgx.ParseConfig(b.url)
	check(t, err)
	cfg.RuntimeParams["role"] = "perdure_poor"

	db := openDB(stdlib.GetConnector(*cfg), newFaults())
	t.Cleanup(func() { _ = db.Close() })
	source := perdure.SQL(db).InSchema("locked")

	// The error contains the statements that a privileged role must run. Run them.
	_, err = embedded.Open(t.Context(), "memory:", perdure.Outbox(source))
	checkError(t, err, nil, `"locked".perdure_outbox is missing`, "create table if not exists")
	_, ddl, _ := strings.Cut(err.Error(), "create table if not exists")
	for statement := range strings.SplitSeq("create table if not exists"+ddl[:strings.LastIndex(ddl, ";")], ";") {
		b.exec(statement)
	}
	b.exec(`grant all on all tables in schema locked to perdure_poor`)

	app, err := embedded.Open(t.Context(), "memory:", collect, perdure.Outbox(source))
	check(t, err)
	t.Cleanup(func() { check(t, app.Close()) })
	tx, err := db.BeginTx(t.Context(), nil)
	check(t, err)
	exec, err := collect.Start(app.InTx(t.Context(), tx), "x", perdure.RawKey("k"))
	check(t, err, tx.Commit())
	eventually(t, "it is started", func() bool { _, err := exec.Poll(caller(t, app)); return err == nil })
}

// A step does not fail if its function is interrupted because the process closes. The step runs
// again in another process, even if its policy allows only one attempt.
func TestShutdownFailsNoStep(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]perdure.CallOption{
		"alone":   {perdure.Constant(1, time.Millisecond)},
		"limited": {perdure.Constant(1, time.Millisecond), perdure.AttemptTimeout(time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, url := newBank(t, "pgsql"), storeURL(t, "sqlite")
			once := perdure.NewWorkflow("once", func(ctx perdure.WorkflowCtx, in transfer) (string, error) { return settle.Run(ctx, in, opts...) })
			begun := make(chan struct{})

			app, err := embedded.Config{DrainTimeout: 10 * time.Millisecond}.Open(t.Context(), url, once,
				b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
					close(begun)
					<-ctx.Done()
					return "", ctx.Err()
				}))

			check(t, err)
			exec, err := once.Start(caller(t, app), one)
			check(t, err)
			<-begun
			_ = app.Close() // Close may report the interrupted step
			app = open(t, url, once, b.bind(settle, newFaults(), move))
			if got, err := exec.Result(caller(t, app)); err != nil || got != "done t1" {
				t.Errorf("%q, %v", got, err)
			}
			b.check([]transfer{one})
		})
	}
}
