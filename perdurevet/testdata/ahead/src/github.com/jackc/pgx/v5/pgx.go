// Package pgx is as much of pgx as the programs use.
package pgx

import "context"

// CommandTag is what a statement did.
type CommandTag struct{}

// RowsAffected counts.
func (CommandTag) RowsAffected() int64 { return 0 }

// Row is one row.
type Row interface{ Scan(...any) error }

// Tx is a transaction.
type Tx interface {
	Exec(ctx context.Context, sql string, args ...any) (CommandTag, error)
	QueryRow(ctx context.Context, sql string, args ...any) Row
	Commit(context.Context) error
	Rollback(context.Context) error
}

// BeginFunc runs fn in a transaction.
func BeginFunc(ctx context.Context, db interface {
	Begin(context.Context) (Tx, error)
}, fn func(Tx) error,
) error {
	return nil
}
