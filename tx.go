package perdure

import (
	"context"
	"database/sql"
	"reflect"

	"github.com/perdure/perdure/internal/userdb"
)

// TxSource begins transactions of type T on a database of the user. The functions SQL and Pgx
// return a TxSource. The database may be the database of the engine or another database.
type TxSource[T any] struct{ db *userdb.Database }

// SQL returns a TxSource that uses a database/sql pool of PostgreSQL or SQLite. Open finds out
// which of the two databases it is.
func SQL(db *sql.DB) TxSource[*sql.Tx] {
	if db == nil {
		return TxSource[*sql.Tx]{}
	}
	return TxSource[*sql.Tx]{userdb.New(userdb.Source{Pool: db, Begin: func(ctx context.Context) (userdb.Tx, error) {
		tx, err := db.BeginTx(ctx, nil)
		return sqlTx{tx}, err
	}})}
}

// Pgx returns a TxSource that uses a pgx pool or connection. It accepts any type with the methods
// of pgx, so that this package does not link pgx. The compiler infers the type parameters.
func Pgx[T pgxTx[G, W], G pgxTag, W pgxRow](pool interface {
	Begin(context.Context) (T, error)
},
) TxSource[T] {
	if v := reflect.ValueOf(pool); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return TxSource[T]{}
	}
	return TxSource[T]{userdb.New(userdb.Source{Pool: pool, Dialect: userdb.PostgreSQL, Begin: func(ctx context.Context) (userdb.Tx, error) {
		tx, err := pool.Begin(ctx)
		return pgxAdapter[T, G, W]{tx}, err
	}})}
}

// InSchema keeps the tables of Perdure in a schema of this database (in SQLite: an attached
// database). Without InSchema, Perdure uses table names without a schema, and the database decides
// in which schema the tables are.
func (s TxSource[T]) InSchema(name string) TxSource[T] {
	if s.db == nil {
		return s
	}
	return TxSource[T]{s.db.InSchema(name)}
}

type pgxTag interface{ RowsAffected() int64 }

type pgxRow interface{ Scan(dest ...any) error }

type pgxTx[G pgxTag, W pgxRow] interface {
	Exec(ctx context.Context, sql string, args ...any) (G, error)
	QueryRow(ctx context.Context, sql string, args ...any) W
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// sqlTx is a transaction of database/sql.
type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := t.tx.ExecContext(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (t sqlTx) QueryRow(ctx context.Context, query string, args ...any) userdb.Row {
	return t.tx.QueryRowContext(ctx, query, args...)
}

func (t sqlTx) Commit(context.Context) error { return t.tx.Commit() }

func (t sqlTx) Rollback(context.Context) error { return t.tx.Rollback() }

func (t sqlTx) Raw() any { return t.tx }

// pgxAdapter is a transaction of pgx.
type pgxAdapter[T pgxTx[G, W], G pgxTag, W pgxRow] struct{ tx T }

func (t pgxAdapter[T, G, W]) Exec(ctx context.Context, query string, args ...any) (int64, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	if err != nil {
		return 0, err
	}
	return tag.RowsAffected(), nil
}

func (t pgxAdapter[T, G, W]) QueryRow(ctx context.Context, query string, args ...any) userdb.Row {
	return t.tx.QueryRow(ctx, query, args...)
}

func (t pgxAdapter[T, G, W]) Commit(ctx context.Context) error { return t.tx.Commit(ctx) }

func (t pgxAdapter[T, G, W]) Rollback(ctx context.Context) error { return t.tx.Rollback(ctx) }

func (t pgxAdapter[T, G, W]) Raw() any { return t.tx }
