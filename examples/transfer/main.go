// Command transfer moves money between accounts of your own database exactly once, even if it
// crashes.
//
//	go run ./examples/transfer                        engine and accounts in SQLite files
//	go run ./examples/transfer postgres://localhost/db  both in one PostgreSQL database
//
// An order arrives in an ordinary transaction: the row of the order and the start of its workflow
// are in one commit. The workflow moves the money with a transactional activity: the money and the
// record of the step are in one commit. Kill the program at any time and run it again.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"       // the driver pgx
	_ "github.com/ncruces/go-sqlite3/driver" // the driver sqlite3

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// Order is one transfer.
type Order struct {
	ID       string
	From, To string
	Cents    int
}

// Move is only declared here. main binds its code, because main knows the database.
var Move = perdure.DeclareActivity[Order, int]("move")

// Transfers runs one execution per order.
var Transfers = perdure.NewWorkflow("transfer", func(ctx perdure.WorkflowCtx, o Order) (int, error) {
	return Move.Run(ctx, o)
}).KeyedBy(func(o Order) perdure.Key { return perdure.RawKey(o.ID) })

// move writes in the transaction that also records the outcome of the step. The engine ends the
// transaction, so move must not commit or roll it back.
func move(ctx context.Context, tx *sql.Tx, o Order) (left int, err error) {
	err = tx.QueryRowContext(ctx, `update account set cents = cents - $1 where id = $2 returning cents`, o.Cents, o.From).Scan(&left)
	if err != nil {
		return 0, err
	}
	if left < 0 {
		// The error makes the transaction roll back everything above.
		return 0, perdure.Permanent(errors.New(o.From + " does not have enough money"))
	}
	_, err = tx.ExecContext(ctx, `update account set cents = cents + $1 where id = $2`, o.Cents, o.To)
	return left, err
}

// place accepts an order. One transaction writes its row and starts its workflow.
func place(ctx context.Context, app *perdure.App, db *sql.DB, o Order) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `insert into orders (id, cents) values ($1, $2)`, o.ID, o.Cents); err != nil {
		return err
	}
	if _, err := Transfers.Start(app.InTx(ctx, tx), o); err != nil {
		return err
	}
	return tx.Commit()
}

func run(ctx context.Context, engine, driver, accounts string, say func(format string, args ...any)) error {
	db, err := sql.Open(driver, accounts)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, ddl := range []string{
		`create table if not exists account (id text primary key, cents bigint not null)`,
		`create table if not exists orders (id text primary key, cents bigint not null)`,
		`insert into account values ('alice', 10000), ('bob', 0) on conflict do nothing`,
	} {
		if _, err := db.ExecContext(ctx, ddl); err != nil {
			return err
		}
	}
	source := perdure.SQL(db)
	app, err := embedded.Open(ctx, engine, Transfers, perdure.BindTx(Move, source, move), perdure.Outbox(source))
	if err != nil {
		return err
	}
	defer app.Close()

	for _, o := range []Order{{"o-1", "alice", "bob", 2500}, {"o-2", "bob", "alice", 99999}} {
		if err := place(ctx, app, db, o); err != nil {
			// The insert fails if an earlier run of this program has placed the order. In this case
			// the execution of the order exists and continues.
			say("order %s was placed before", o.ID)
		}
		exec := Transfers.Execution(perdure.RawKey(o.ID))
		left, err := result(ctx, app, exec)
		if err != nil {
			say("order %s failed: %v", o.ID, err)
			continue
		}
		say("order %s: %s has %d left", o.ID, o.From, left)
	}
	var total int
	if err := db.QueryRowContext(ctx, `select sum(cents) from account`).Scan(&total); err != nil {
		return err
	}
	say("all accounts together: %d", total)
	return nil
}

// result waits for the result of an execution. The start in a transaction may reach the engine a
// moment after the commit, so result tries again while the engine does not know the execution.
func result(ctx context.Context, app *perdure.App, exec perdure.Execution[int]) (int, error) {
	for ; ; time.Sleep(10 * time.Millisecond) {
		left, err := exec.Result(app.With(ctx))
		if !errors.Is(err, perdure.ErrNotFound) || ctx.Err() != nil {
			return left, err
		}
	}
}

func main() {
	engine, driver, accounts := "file:engine.db", "sqlite3", "file:accounts.db"
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "postgres") {
		engine, driver, accounts = os.Args[1], "pgx", os.Args[1]
	}
	err := run(context.Background(), engine, driver, accounts, func(format string, args ...any) { fmt.Printf(format+"\n", args...) })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
