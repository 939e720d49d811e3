package main

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type (
	Transfer struct {
		From, To string
		Amount   int
	}
	Balance struct{ Cents int }
)

var Settle = perdure.DeclareActivity[Transfer, Balance]("settle")

func settle(ctx context.Context, tx pgx.Tx, t Transfer) (b Balance, err error) {
	err = tx.QueryRow(ctx, `update account set cents = cents - $2 where id = $1 returning cents`, t.From, t.Amount).Scan(&b.Cents)
	return b, err
}

func audit(ctx context.Context, tx *sql.Tx, t Transfer) (perdure.Void, error) {
	_, err := tx.ExecContext(ctx, `insert into audit values (?)`, t.From)
	return perdure.Void{}, err
}

func main() {
	ctx := context.Background()
	pool, _ := pgxpool.New(ctx, "")
	db, _ := sql.Open("sqlite", "app.db")
	Audit := perdure.NewTxActivity("audit", perdure.SQL(db), audit)
	settlePgx := perdure.BindTx(Settle, perdure.Pgx(pool), settle) // T, tag and row types are inferred from *pgxpool.Pool
	transfer := perdure.NewWorkflow("transfer", func(ctx perdure.WorkflowCtx, t Transfer) (Balance, error) {
		if _, err := Audit.Run(ctx, t); err != nil {
			return Balance{}, err
		}
		return Settle.Run(ctx, t)
	})
	app := embedded.MustOpen("postgres://", transfer, Audit, settlePgx)
	defer app.Close()

	// transactional start: takes effect when the caller's transaction commits
	_ = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `insert into orders values ($1)`, 1); err != nil {
			return err
		}
		_, err := transfer.Start(perdure.InPgx(ctx, app, tx), Transfer{"a", "b", 1}, perdure.RawKey("t-1"))
		return err
	})
	tx, _ := db.BeginTx(ctx, nil)
	_, _ = transfer.Start(app.InTx(ctx, tx), Transfer{"a", "b", 1})
	_ = tx.Commit()
}
