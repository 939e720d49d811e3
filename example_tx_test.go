package perdure_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"

	_ "github.com/ncruces/go-sqlite3/driver" // the driver sqlite3

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

func ExampleNewTxActivity() {
	dir, err := os.MkdirTemp("", "perdure")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "shop.db"))
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.Exec(`create table sold (item text)`); err != nil {
		panic(err)
	}

	// One transaction writes the row and the outcome of the step.
	sell := perdure.NewTxActivity("sell", perdure.SQL(db), func(ctx context.Context, tx *sql.Tx, item string) (perdure.Void, error) {
		_, err := tx.ExecContext(ctx, `insert into sold values (?)`, item)
		return perdure.Void{}, err
	})
	orders := perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, item string) (string, error) {
		_, err := sell.Run(ctx, item)
		return "sold " + item, err
	})
	app := embedded.MustOpen("memory:", orders, sell, perdure.Outbox(perdure.SQL(db)))
	defer app.Close()

	// The workflow starts when the transaction commits.
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	exec, err := orders.Start(app.InTx(ctx, tx), "a book", perdure.RawKey("o-1"))
	if err != nil {
		panic(err)
	}
	_, early := exec.Poll(app.With(ctx))
	fmt.Println("before the commit:", early)
	if err := tx.Commit(); err != nil {
		panic(err)
	}
	for {
		if got, err := exec.Result(app.With(ctx)); err == nil {
			fmt.Println("after it:", got)
			break
		}
	}
	// Output:
	// before the commit: execution order/o-1 does not exist
	// after it: sold a book
}
