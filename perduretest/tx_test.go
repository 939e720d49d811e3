package perduretest_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	sqlite "github.com/ncruces/go-sqlite3/driver"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// Transactional activities and outboxes work on a SQLite file in virtual time, even after a crash.
// While virtual time passes, they do not poll so often that the test becomes slow.
func TestTransactions(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open("file:" + filepath.Join(t.TempDir(), "bank.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `create table ledger (id text)`); err != nil {
		t.Fatal(err)
	}

	paid := perdure.NewSignal[string]("paid")
	book := perdure.NewTxActivity("book", perdure.SQL(db), func(ctx context.Context, tx *sql.Tx, id string) (string, error) {
		_, err := tx.ExecContext(ctx, `insert into ledger values (?)`, id)
		return id, err
	})

	orders := perdure.NewWorkflow("orders", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		id, err := paid.Receive(ctx)
		if err != nil {
			return "", err
		}
		if err := ctx.Sleep(365 * 24 * time.Hour); err != nil {
			return "", err
		}
		return book.Run(ctx, id)
	})

	perduretest.Run(t, perdure.Group{orders, book, perdure.Outbox(perdure.SQL(db))}, func(t *testing.T, env *perduretest.Env) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		exec, err := orders.Start(env.App().InTx(t.Context(), tx), "in", perdure.RawKey("o"))
		if err == nil {
			err = paid.Send(env.App().InTx(t.Context(), tx), exec, "p-1")
		}
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(time.Second)
		env.Restart()
		if got, err := exec.Result(env.With()); err != nil || got != "p-1" {
			t.Errorf("%q, %v", got, err)
		}
		var n int
		if err := db.QueryRowContext(t.Context(), `select count(*) from ledger`).Scan(&n); err != nil || n != 1 {
			t.Errorf("booked %d times, %v", n, err)
		}
	})
}
