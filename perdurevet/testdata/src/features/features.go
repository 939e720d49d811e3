// Package features uses transactions, queries, updates, locks and event-driven workflows.
package features

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type account struct{ Cents int }

var (
	accounts = perdure.NewEntity[account]("account")
	settled  = perdure.DeclareActivity[int, int]("settle")
	contents = perdure.NewQuery[int, int]("contents")
	add      = perdure.NewUpdate[int, int]("add")
	seen     int
	db       *sql.DB
	pgxPool  *pgxpool.Pool
)

// ---- transactions

var wrongPool = perdure.NewTxActivity("pool", perdure.SQL(db), func(ctx context.Context, tx *sql.Tx, n int) (int, error) {
	if _, err := tx.ExecContext(ctx, "update a"); err != nil {
		return 0, err
	}
	_, err := db.ExecContext(ctx, "update b") // want `db is a pool or connection: its changes are not part of the transaction of this activity, and may happen twice; use the transaction that the function receives`
	return n, err
})

var wrongCommit = perdure.NewTxActivity("commit", perdure.SQL(db), func(ctx context.Context, tx *sql.Tx, n int) (int, error) {
	return n, tx.Commit() // want `tx\.Commit ends the transaction before Perdure has stored the outcome of the activity in it; return instead: Perdure commits`
})

func settle(ctx context.Context, tx pgx.Tx, n int) (int, error) {
	_, err := pgxPool.Exec(ctx, "update a") // want `pgxPool is a pool or connection`
	return n, err
}

var bound = perdure.BindTx(settled, perdure.Pgx(pgxPool), settle)

var rightTx = perdure.NewTxActivity("right", perdure.SQL(db), func(ctx context.Context, tx *sql.Tx, n int) (int, error) {
	_, err := tx.ExecContext(ctx, "update a")
	return rand.IntN(n), err
})

// An ordinary activity may use the pool.
var rightPool = perdure.NewActivity("ordinary", func(ctx context.Context, n int) (int, error) {
	_, err := db.ExecContext(ctx, "update a")
	return n, err
})

// ---- queries, updates, locks

func wrongHandlers(ctx perdure.WorkflowCtx, n int) (total int, err error) {
	contents.Handle(ctx, func(int) (int, error) {
		total++ // want `query or validator changes total of its workflow: it is not journaled`
		return total, nil
	})
	add.Handle(ctx, func(inner perdure.WorkflowCtx, n int) (int, error) {
		return n, ctx.Sleep(1) // want `ctx belongs to the function around this one`
	}, func(n int) error {
		return ctx.Sleep(1) // want `durable call ctx\.Sleep inside a query or validator`
	})
	return total, ctx.Lock(perdure.LockSet{accounts.Ref("a")}, func(perdure.WorkflowCtx) error {
		return ctx.Sleep(1) // want `ctx belongs to the function around this one`
	})
}

func wrongVersion(ctx perdure.WorkflowCtx, change string) (int, error) {
	return ctx.Version("change-"+change, 1, 2), nil // want `the name given to perdure\.WorkflowCtx\.Version is computed`
}

func wrongDropped(ctx perdure.WorkflowCtx, to perdure.Ref) (int, error) {
	add.Call(ctx, to, 1) // want `the error of add\.Call is dropped`
	return 0, nil
}

func rightHandlers(ctx perdure.WorkflowCtx, n int) (total int, err error) {
	contents.Handle(ctx, func(int) (int, error) { return total, nil })
	add.Handle(ctx, func(ctx perdure.WorkflowCtx, n int) (int, error) {
		total += n // an update is journaled
		return total, ctx.Sleep(1)
	}, func(n int) error {
		if n < 0 {
			return fmt.Errorf("%d is negative", n)
		}
		return nil
	})
	return total, ctx.Lock(perdure.LockSet{accounts.Ref("a")}, func(ctx perdure.WorkflowCtx) error { return ctx.Sleep(1) })
}

// ---- an app, which is not ahead, but whose package is slow to load from source

func wrongOpen(ctx perdure.WorkflowCtx, n int) (int, error) {
	_ = embedded.MustOpen("memory:") // want `embedded\.MustOpen in workflow code: its calls are not journaled`
	return 0, nil
}

// ---- event-driven workflows

type machine struct {
	perdure.Events
	began time.Time
	n     int
}

func (m *machine) OnStart() perdure.Actions {
	m.began = time.Now() // want `time\.Now in an event-driven workflow: it differs on replay`
	m.n++                // its fields are the state of the execution
	return perdure.Actions{settled.Schedule("settle", m.n)}
}

func (m *machine) OnTimerFired(perdure.TimerFired) perdure.Actions {
	seen++ // want `package variable seen in .*: it changes`
	return nil
}

var events = perdure.NewMachine[int, int]("events", func(n int) *machine {
	return &machine{n: rand.IntN(n)} // want `rand\.IntN in an event-driven workflow`
})

var eventsLater = perdure.DeclareWorkflow[int, int]("events-later")

func bindEvents() perdure.Binding {
	return perdure.BindMachine(eventsLater, func(n int) *machine {
		return &machine{n: rand.IntN(n)} // want `rand\.IntN in an event-driven workflow`
	})
}
