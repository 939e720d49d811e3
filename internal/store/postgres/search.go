package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/store"
)

var _ store.Searcher = (*Store)(nil)

// Search reads all columns that can hold the text, in all tables of the schema. It finds the tables
// in the catalog, so it does not miss a table that a later version adds. It reads the whole store,
// in one transaction with one snapshot.
func (s *Store) Search(ctx context.Context, text string, found func(value []byte) error) error {
	return s.read(ctx, "search", func(ctx context.Context, c *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `set local statement_timeout = 0`); err != nil {
				return err
			}
			columns, err := s.searchable(ctx, tx)
			if err != nil {
				return err
			}
			for _, at := range columns {
				if err := search(ctx, tx, at, text, found); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

type column struct{ Schema, Table, Name, Type string }

func (s *Store) searchable(ctx context.Context, tx pgx.Tx) ([]column, error) {
	rows, err := tx.Query(ctx, `
select c.table_schema::text, c.table_name::text, c.column_name::text, c.data_type::text
from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
where c.table_schema = $1 and t.table_type = 'BASE TABLE' and c.data_type in ('bytea', 'text', 'json', 'jsonb')
order by 2, 3`, s.cfg.Schema)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[column])
}

func search(ctx context.Context, tx pgx.Tx, at column, text string, found func(value []byte) error) error {
	value := pgx.Identifier{at.Name}.Sanitize()
	if at.Type != "bytea" {
		value = fmt.Sprintf(`convert_to(%s::text, 'UTF8')`, value)
	}
	rows, err := tx.Query(ctx, fmt.Sprintf(`select %[2]s from %[1]s where position($1::bytea in %[2]s) > 0`,
		pgx.Identifier{at.Schema, at.Table}.Sanitize(), value), []byte(text))
	if err != nil {
		return err
	}
	var v []byte
	_, err = pgx.ForEachRow(rows, []any{&v}, func() error { return found(v) })
	return err
}
