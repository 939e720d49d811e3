package sqlite

import (
	"context"
	"encoding/hex"
	"encoding/json"

	"github.com/ncruces/go-sqlite3"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// rawTables are the tables, in addition to executions, from which the removal of a run deletes
// rows.
var rawTables = [...]string{"starts", "history", "bodies", "timers", "labels", "leaving", "task_data", "task_logs"}

// Statements that find the rows of an address.
const (
	sqlRawRuns = `select * from perdure_executions where shard = ?1 and tenant = ?2 and workflow = ?3 and key = ?4 order by run`
	sqlRawRun  = `select * from perdure_executions where shard = ?1 and tenant = ?2 and workflow = ?3 and key = ?4 and run = ?5`

	sqlRawEntity  = `select * from perdure_entities where shard = ?1 and tenant = ?2 and type = ?3 and key = ?4`
	sqlRawMailbox = `select * from perdure_mailbox where shard = ?1 and tenant = ?2 and type = ?3 and key = ?4 order by seq`
)

// ReadRaw returns rows as they are stored.
func (s *Store) ReadRaw(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID, each func(store.RawRow) error) error {
	return s.read(ctx, "read raw rows", func(c *conn) error {
		args := []any{int(shard), a.Tenant, a.Type, a.Key}
		if a.IsEntity() {
			err := c.queryOnce(sqlRawEntity, func(q *stmt) error { return q.rawRow("entities", model.RunID{}, each) }, args...)
			if err != nil {
				return err
			}
			return c.queryOnce(sqlRawMailbox, func(q *stmt) error { return q.rawRow("mailbox", model.RunID{}, each) }, args...)
		}

		sql := sqlRawRuns
		if !run.IsZero() {
			sql, args = sqlRawRun, append(args, run[:])
		}
		// The rows of all runs come first, as the comment of the interface promises. Then come the
		// other rows of each run.
		var runs []model.RunID

		err := c.queryOnce(sql, func(q *stmt) error {
			id, ok := q.id(0)
			if !ok {
				return nil
			}
			runs = append(runs, id)
			return q.rawRow("executions", id, each)
		}, args...)
		if err != nil {
			return err
		}

		for _, id := range runs {
			for _, table := range rawTables {
				err := c.queryOnce("select * from perdure_"+table+" where run = ?1 and shard = ?2", func(q *stmt) error {
					return q.rawRow(table, id, each)
				}, id[:], int(shard))
				if err != nil {
					return err
				}
			}
		}

		return nil
	})
}

// rawRow calls each with the current row of the statement.
func (q *stmt) rawRow(table string, run model.RunID, each func(store.RawRow) error) error {
	// Copy the row without decoding it. Operators export rows because they are damaged.
	columns := map[string]any{}
	for i := range q.s.ColumnCount() {
		switch q.s.ColumnType(i) {
		case sqlite3.INTEGER:
			columns[q.s.ColumnName(i)] = q.int(i)
		case sqlite3.BLOB:
			columns[q.s.ColumnName(i)] = `\x` + hex.EncodeToString(q.raw(i))
		case sqlite3.NULL:
			columns[q.s.ColumnName(i)] = nil
		default:
			columns[q.s.ColumnName(i)] = q.text(i)
		}
	}

	row, err := json.Marshal(columns)
	if err != nil {
		return err
	}
	return each(store.RawRow{Table: table, Run: run, Row: row})
}
