package postgres

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// writeTasks writes the data and log lines of tasks. It sends nothing for a batch without them.
func (w *writer) writeTasks() {
	if len(w.batch.TaskData) > 0 {
		var set, removed []store.TaskDatum
		for _, r := range w.batch.TaskData {
			if r.Deleted {
				removed = append(removed, r)
			} else {
				set = append(set, r)
			}
		}
		w.taskData(stTaskDatum, set)
		w.taskData(stDropDatum, removed)
	}

	if rows := w.batch.Logs; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int {
			return cmp.Or(rows[i].RunKey.Compare(rows[j].RunKey), cmp.Compare(rows[i].At, rows[j].At), cmp.Compare(rows[i].N, rows[j].N))
		})
		w.use(stLog)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
		w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })
		w.int8s(n, func(i int) int64 { return int64(rows[o[i]].At) })
		w.int4s(n, func(i int) int32 { return rows[o[i]].N })
		w.int2s(n, func(i int) int16 { return rows[o[i]].Level })
		w.texts(n, func(i int) string { return rows[o[i]].Task })
		w.bodies(n, func(dst []byte, i int) []byte { return append(dst, rows[o[i]].Text...) })
		w.int8(w.batch.Lane.Epoch)
		w.int8(w.batch.Number)
		w.execute()
	}
}

func (w *writer) taskData(index int, rows []store.TaskDatum) {
	n := len(rows)
	if n == 0 {
		return
	}
	o := w.sortKeys(n, func(i, j int) int {
		return cmp.Or(rows[i].RunKey.Compare(rows[j].RunKey), strings.Compare(rows[i].Task, rows[j].Task), strings.Compare(rows[i].Name, rows[j].Name))
	})
	w.use(index)
	w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
	w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })
	w.texts(n, func(i int) string { return rows[o[i]].Task })
	w.texts(n, func(i int) string { return rows[o[i]].Name })
	if index == stTaskDatum {
		w.bodies(n, func(dst []byte, i int) []byte { return model.AppendPayload(dst, &rows[o[i]].Value) })
	}
	w.execute()
}

// LoadTaskData returns the data of a task, or of all tasks of a run.
func (s *Store) LoadTaskData(ctx context.Context, key store.RunKey, r store.DataRange) (out []store.TaskDatum, err error) {
	const (
		load   = `select task, name, body from {schema}.task_data where shard = $1 and run = $2 and name >= $3`
		before = ` and name < $5`
		sorted = ` order by task, name limit nullif($4::bigint, 0)`
	)

	if key.Shard >= model.MaxShards {
		return nil, nil
	}
	sql, args := load, []any{int16(key.Shard), runArg(key.Run), r.From, max(r.Limit, 0)}
	if r.Before != "" {
		sql, args = sql+before, append(args, r.Before)
	}

	if r.Task != "" {
		args = append(args, r.Task)
		sql += " and task = $" + strconv.Itoa(len(args))
	}

	sql += sorted
	err = s.read(ctx, "load data of tasks", func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		rows, err := c.Query(ctx, s.sql(sql), args...)
		if err != nil {
			return err
		}
		d := store.TaskDatum{RunKey: key}
		var body pgtype.DriverBytes
		_, err = pgx.ForEachRow(rows, []any{&d.Task, &d.Name, &body}, func() (err error) {
			if d.Value, err = model.DecodePayload(body); err != nil {
				return fault.New(fault.Corrupt, "data %q of task %q of run %s: %w", d.Name, d.Task, key.Run, err)
			}
			out = append(out, d)
			return nil
		})
		return err
	})

	return out, err
}

// LoadLogs returns the log lines of a task, or of all tasks of a run.
func (s *Store) LoadLogs(ctx context.Context, key store.RunKey, task string, after store.LogPlace, limit int) (out []store.LogRow, err error) {
	const load = `
select at, epoch, batch, n, level, task, text from {schema}.task_logs
where shard = $1 and run = $2 and (at, epoch, batch, n) > ($3, $4, $5, $6) and ($7::text = '' or task = $7)
order by at, epoch, batch, n limit $8`

	if key.Shard >= model.MaxShards {
		return nil, nil
	}

	err = s.read(ctx, "load log lines", func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		rows, err := c.Query(ctx, s.sql(load), int16(key.Shard), runArg(key.Run), after.At, after.Epoch, after.Batch, after.N, task, max(limit, 0))
		if err != nil {
			return err
		}
		l := store.LogRow{RunKey: key}
		var text pgtype.DriverBytes
		_, err = pgx.ForEachRow(rows, []any{&l.At, &l.Epoch, &l.Batch, &l.N, &l.Level, &l.Task, &text}, func() error {
			l.Text = string(text)
			out = append(out, l)
			return nil
		})
		return err
	})

	return out, err
}
