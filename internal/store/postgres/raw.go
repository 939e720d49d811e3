package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// rawTables are the tables beside executions that have rows of a run which a removal takes away.
var rawTables = [...]string{"history", "timers", "labels", "leaving", "runnable", "task_data", "task_logs"}

// ReadRaw hands out every row of the runs of an address.
func (s *Store) ReadRaw(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID, each func(store.RawRow) error) error {
	if shard >= model.MaxShards {
		return nil
	}
	var runs []pgtype.UUID
	err := s.read(ctx, "read raw rows", func(ctx context.Context, c *pgx.Conn) error {
		const named = `select e.run, to_jsonb(e)::text from {schema}.executions e
where e.shard = $1 and e.key = $2 and e.workflow = $3 and e.tenant = $4 and ($5::uuid is null or e.run = $5) order by e.run`
		rows, err := c.Query(ctx, s.sql(named), int16(shard), a.Key, a.Type, a.Tenant, pgtype.UUID{Bytes: run, Valid: !run.IsZero()})
		if err != nil {
			return err
		}
		var id pgtype.UUID
		var text string
		_, err = pgx.ForEachRow(rows, []any{&id, &text}, func() error {
			runs = append(runs, id)
			return each(store.RawRow{Table: "executions", Run: id.Bytes, Row: []byte(text)})
		})
		return err
	})
	for _, id := range runs {
		for _, table := range rawTables {
			if err != nil {
				return err
			}
			err = s.read(ctx, "read raw rows", func(ctx context.Context, c *pgx.Conn) error {
				rows, err := c.Query(ctx, s.sql(`select to_jsonb(t)::text from {schema}.`+table+` t where t.shard = $1 and t.run = $2`), int16(shard), id)
				if err != nil {
					return err
				}
				var text string
				_, err = pgx.ForEachRow(rows, []any{&text}, func() error {
					return each(store.RawRow{Table: table, Run: id.Bytes, Row: []byte(text)})
				})
				return err
			})
		}
	}
	return err
}
