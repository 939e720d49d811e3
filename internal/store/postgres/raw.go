package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// rawTables are the tables, in addition to executions, from which the removal of a run deletes
// rows.
var rawTables = [...]string{"history", "timers", "labels", "leaving", "runnable", "task_data", "task_logs"}

// Statements that find the rows of an address. No index has all runs of an address, so the first
// statement reads all runs of the shard.
const (
	rawRuns = `select e.run, to_jsonb(e)::text from {schema}.executions e
where e.shard = $1 and e.key = $2 and e.workflow = $3 and e.tenant = $4 order by e.run`
	rawRun = `select e.run, to_jsonb(e)::text from {schema}.executions e
where e.shard = $1 and e.key = $2 and e.workflow = $3 and e.tenant = $4 and e.run = $5`

	rawEntity  = `select to_jsonb(e)::text from {schema}.entities e where e.shard = $1 and e.key = $2 and e.type = $3 and e.tenant = $4`
	rawMailbox = `select to_jsonb(m)::text from {schema}.mailbox m where m.shard = $1 and m.key = $2 and m.type = $3 and m.tenant = $4 order by m.seq`
)

// ReadRaw returns rows as they are stored.
func (s *Store) ReadRaw(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID, each func(store.RawRow) error) error {
	if shard >= model.MaxShards {
		return nil
	}
	args := []any{int16(shard), a.Key, a.Type, a.Tenant}

	if a.IsEntity() {
		if err := s.readRaw(ctx, store.RawRow{Table: "entities"}, each, rawEntity, args...); err != nil {
			return err
		}
		return s.readRaw(ctx, store.RawRow{Table: "mailbox"}, each, rawMailbox, args...)
	}

	sql := rawRuns
	if !run.IsZero() {
		sql, args = rawRun, append(args, runArg(run))
	}
	var runs []pgtype.UUID

	var id pgtype.UUID
	var text string
	err := s.eachRaw(ctx, []any{&id, &text}, func() error {
		runs = append(runs, id)
		return each(store.RawRow{Table: "executions", Run: id.Bytes, Row: []byte(text)})
	}, sql, args...)
	for _, id := range runs {
		for _, table := range rawTables {
			if err != nil {
				return err
			}
			err = s.readRaw(ctx, store.RawRow{Table: table, Run: id.Bytes}, each, `select to_jsonb(t)::text from {schema}.`+table+` t where t.shard = $1 and t.run = $2`, int16(shard), id)
		}
	}

	return err
}

// readRaw calls each with the rows that a statement finds. The template names their table and run.
func (s *Store) readRaw(ctx context.Context, template store.RawRow, each func(store.RawRow) error, sql string, args ...any) error {
	var text string
	return s.eachRaw(ctx, []any{&text}, func() error {
		return each(store.RawRow{Table: template.Table, Run: template.Run, Row: []byte(text)})
	}, sql, args...)
}

// eachRaw scans the rows that a statement finds, and calls each for every row. If the connection
// breaks after the first row, eachRaw does not repeat the statement, because each would get rows
// twice.
func (s *Store) eachRaw(ctx context.Context, scans []any, each func() error, sql string, args ...any) error {
	var broken error
	return s.read(ctx, "read raw rows", func(ctx context.Context, c *pgx.Conn) error {
		if broken != nil {
			return broken
		}
		rows, err := c.Query(ctx, s.sql(sql), args...)
		if err != nil {
			return err
		}
		begun := false
		_, err = pgx.ForEachRow(rows, scans, func() error {
			begun = true
			return each()
		})
		if begun {
			broken = err
		}
		return err
	})
}
