package main

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
)

// journaled is the input of a step. It knows the name of the step in the journal: the workflow, the
// key and what the step does.
type journaled interface{ journalKey() string }

// newStep defines a transactional activity. One transaction writes its rows, its row in the journal
// and the record of its outcome. So all of them happen exactly once.
func newStep[I journaled, O any](name string, pool *pgxpool.Pool, fn func(ctx context.Context, tx pgx.Tx, in I) (O, error)) *perdure.Activity[I, O] {
	return perdure.NewTxActivity(name, perdure.Pgx(pool), func(ctx context.Context, tx pgx.Tx, in I) (O, error) {
		out, err := fn(ctx, tx, in)
		if err != nil {
			return out, err
		}
		value, err := json.Marshal(out)
		if err == nil {
			_, err = tx.Exec(ctx, `insert into cluster_tests.journal (key, value_size) values ($1, $2) on conflict do nothing`, in.journalKey(), len(value))
		}
		return out, err
	})
}
