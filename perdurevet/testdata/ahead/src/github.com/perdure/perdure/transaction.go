package perdure

import (
	"context"
	"database/sql"
)

// TxSource begins transactions of type T on the user's database.
type TxSource[T any] struct {
	begin func(context.Context) (T, error)
}

// NewTxActivity defines an activity that runs in one transaction together with the record of its
// outcome.
func NewTxActivity[T, I, O any](name string, db TxSource[T], fn func(context.Context, T, I) (O, error), opts ...ActivityOption) *Activity[I, O] {
	return &Activity[I, O]{name}
}

// BindTx joins a declared activity with transactional code.
func BindTx[T, I, O any](a *Activity[I, O], db TxSource[T], fn func(context.Context, T, I) (O, error)) Binding {
	return Binding{a.name}
}

// SQL uses a database/sql pool.
func SQL(db *sql.DB) TxSource[*sql.Tx] { return TxSource[*sql.Tx]{} }

type (
	pgxTag                    interface{ RowsAffected() int64 }
	pgxRow                    interface{ Scan(...any) error }
	pgxTx[G pgxTag, W pgxRow] interface {
		Exec(ctx context.Context, sql string, args ...any) (G, error)
		QueryRow(ctx context.Context, sql string, args ...any) W
		Commit(context.Context) error
		Rollback(context.Context) error
	}
)

// Pgx uses a pgx pool or connection, matched by shape so that this package does not link pgx.
func Pgx[T pgxTx[G, W], G pgxTag, W pgxRow](pool interface {
	Begin(context.Context) (T, error)
},
) TxSource[T] {
	return TxSource[T]{begin: pool.Begin}
}

type txSender struct{ a *App }

func (txSender) sender() {}

// InTx is a Sender inside a database/sql transaction: what is sent takes effect when it commits.
func (a *App) InTx(ctx context.Context, tx *sql.Tx) Sender { return txSender{a} }

// InPgx is a Sender inside a pgx transaction.
func InPgx[G pgxTag](ctx context.Context, a *App, tx interface {
	Exec(ctx context.Context, sql string, args ...any) (G, error)
},
) Sender {
	return txSender{a}
}
