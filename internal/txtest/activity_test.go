package txtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
)

var settle = perdure.DeclareActivity[transfer, string]("settle")

var pay = perdure.NewWorkflow("pay", func(ctx perdure.WorkflowCtx, t transfer) (string, error) { return settle.Run(ctx, t) }).
	KeyedBy(func(t transfer) perdure.Key { return perdure.RawKey(t.ID) })

func TestTransfer(t *testing.T) {
	everywhere(t, func(t *testing.T, url string, b *bank) {
		app := open(t, url, pay, b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
			if perdure.Attempt(ctx) != 1 || perdure.IdempotencyKey(ctx) == "" {
				return "", errors.New("the context has no attempt or no idempotency key")
			}
			return move(ctx, s, in)
		}))
		one := transfer{"t1", 0, 1, 100}
		for range 2 { // the second start finds the first execution
			if got, err := pay.Run(caller(t, app), one); err != nil || got != "done t1" {
				t.Fatalf("%q, %v", got, err)
			}
		}
		b.check([]transfer{one})
	})
}

// If an attempt returns an error, panics or breaks its transaction, its changes are rolled back.
// The next attempt starts from the beginning.
func TestFailedAttemptsLeaveNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, url string, b *bank) {
		app := open(t, url, perdure.NewWorkflow("pay", func(ctx perdure.WorkflowCtx, in transfer) (string, error) {
			return settle.Run(ctx, in, perdure.Constant(5, time.Millisecond))
		}), b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
			out, err := move(ctx, s, in)
			switch perdure.Attempt(ctx) {
			case 1:
				return "", errors.New("no")
			case 2:
				panic("no")
			case 3:
				return "", s.exec(ctx, "this is not SQL")
			}
			return out, err
		}))

		one := transfer{"t1", 0, 1, 100}
		if got, err := pay.Run(caller(t, app), one); err != nil || got != "done t1" {
			t.Fatalf("%q, %v", got, err)
		}
		b.check([]transfer{one})
	})
}

// If a step fails permanently, its changes are rolled back, and its failure is stored in the user's
// database.
func TestTerminalFailureIsClaimed(t *testing.T) {
	everywhere(t, func(t *testing.T, url string, b *bank) {
		app := open(t, url, pay, b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
			if _, err := move(ctx, s, in); err != nil {
				return "", err
			}
			return "", perdure.Permanent(errors.New("the account is frozen"))
		}))
		_, err := pay.Run(caller(t, app), transfer{"t1", 0, 1, 100})
		checkError(t, err, nil, "the account is frozen")
		b.check(nil)
		if n := b.int(`select count(*) from perdure_outcomes where outcome is not null`); n != 1 {
			t.Errorf("the database has %d outcomes, want 1: the failure", n)
		}
	})
}

// If the function of an activity commits or rolls back its transaction itself, the activity fails.
// A transfer that the function has committed is made once.
func TestEndedByTheFunction(t *testing.T) {
	everywhere(t, func(t *testing.T, url string, b *bank) {
		app := open(t, url, pay, b.bind(settle, newFaults(), func(ctx context.Context, s session, in transfer) (string, error) {
			out, err := move(ctx, s, in)
			if err != nil {
				return "", err
			}
			if in.ID == "commit" {
				err = s.commit(ctx)
			} else {
				err = s.rollback(ctx)
			}
			return out, err
		}))
		for _, id := range []string{"commit", "rollback"} {
			_, err := pay.Run(caller(t, app), transfer{id, 0, 1, 100})
			checkError(t, err, perdure.ErrInvalid, "committed or rolled back its transaction")
		}

		b.check([]transfer{{"commit", 0, 1, 100}})
	})
}

// BindTx and InPgx accept the pool and the transactions of pgx without adapters.
func TestPgxItself(t *testing.T) {
	t.Parallel()
	b := newBank(t, "pgx")
	o := newOffice(b)

	bound := perdure.BindTx(settle, perdure.Pgx(o.pool), func(ctx context.Context, tx pgx.Tx, in transfer) (out string, err error) {
		var left int
		err = tx.QueryRow(ctx, `update accounts set cents = cents - $2 where id = $1 returning cents`, in.From, in.Cents).Scan(&left)
		if err == nil && left != opening-in.Cents {
			err = errors.New("wrong balance")
		}
		return "left", err
	})

	app := open(t, b.url, pay, bound)
	err := pgx.BeginFunc(t.Context(), o.pool, func(tx pgx.Tx) error {
		_, err := pay.Start(perdure.InPgx(t.Context(), app, tx), transfer{"t1", 0, 1, 100})
		return err
	})

	check(t, err)
	exec := pay.Execution(perdure.RawKey("t1"))
	eventually(t, "the execution is started", func() bool { _, err := exec.Poll(caller(t, app)); return err == nil })
	if got, err := exec.Result(caller(t, app)); err != nil || got != "left" {
		t.Errorf("%q, %v", got, err)
	}
}
