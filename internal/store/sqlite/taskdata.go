package sqlite

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlTaskDatum = `insert into perdure_task_data (run, shard, task, name, body) values (?1, ?2, ?3, ?4, ?5)
		on conflict (run, shard, task, name) do update set body = excluded.body`
	sqlDropDatum = `delete from perdure_task_data where run = ?1 and shard = ?2 and task = ?3 and name = ?4`
	sqlLog       = `insert into perdure_task_logs (run, shard, at, epoch, batch, n, level, task, body) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)`

	sqlLoadLogs = `select at, epoch, batch, n, level, task, body from perdure_task_logs
		where run = ?1 and shard = ?2 and (at, epoch, batch, n) > (?3, ?4, ?5, ?6) and (?7 = '' or task = ?7) order by at, epoch, batch, n limit ?8`
)

// taskData writes the data of tasks.
func (t *batchWriter) taskData() error {
	for i := range t.b.TaskData {
		row := &t.b.TaskData[i]
		// A value that is removed has no body.
		q := t.w.dropDatum
		if !row.Deleted {
			q = t.w.taskDatum
			q.setBlob(5, t.bodies.next())
		}
		q.setBlob(1, row.Run[:])
		q.setInt(2, int64(row.Shard))
		q.setText(3, row.Task)
		q.setText(4, row.Name)
		if err := q.run(); err != nil {
			return fmt.Errorf("data %q of task %q of %s: %w", row.Name, row.Task, row.Run, err)
		}
	}

	return nil
}

// writeLogs writes log lines of tasks.
func (t *batchWriter) writeLogs() error {
	q := t.w.logLine
	for i := range t.b.Logs {
		row := &t.b.Logs[i]
		q.setBlob(1, row.Run[:])
		q.setInt(2, int64(row.Shard))
		q.setInt(3, int64(row.At))
		// Epoch and batch number distinguish lines that two owners wrote with the same time.
		q.setInt(4, t.b.Lane.Epoch)
		q.setInt(5, t.b.Number)
		q.setInt(6, int64(row.N))
		q.setInt(7, int64(row.Level))
		q.setText(8, row.Task)
		q.setBlob(9, t.bodies.next())
		if err := q.run(); err != nil {
			return fmt.Errorf("log line %d of task %q of %s: %w", row.N, row.Task, row.Run, err)
		}
	}

	return nil
}

// sqlLoadData reads a range of the data of a task, or of all tasks of a run.
func sqlLoadData(key store.RunKey, r *store.DataRange) (sql string, args []any) {
	sql = `select task, name, body from perdure_task_data where run = ?1 and shard = ?2 and name >= ?3`
	limit := -1 // no limit
	if r.Limit > 0 {
		limit = r.Limit
	}
	// The conditions below are optional, so their parameters follow the parameters that every
	// statement has.
	args = []any{key.Run[:], int(key.Shard), r.From, limit}
	if r.Before != "" {
		args = append(args, r.Before)
		sql += ` and name < ?` + strconv.Itoa(len(args))
	}
	if r.Task != "" {
		args = append(args, r.Task)
		sql += ` and task = ?` + strconv.Itoa(len(args))
	}
	return sql + ` order by task, name limit ?4`, args
}

// LoadTaskData returns the data of a task, or of all tasks of a run.
func (s *Store) LoadTaskData(ctx context.Context, key store.RunKey, r store.DataRange) (out []store.TaskDatum, err error) {
	sql, args := sqlLoadData(key, &r)
	err = s.read(ctx, "load data of tasks", func(c *conn) error {
		return c.query(sql, func(q *stmt) error {
			d := store.TaskDatum{RunKey: key, Task: q.text(0), Name: q.text(1)}
			body, err := unseal(datumSum(make([]byte, 0, 128), &d), q.raw(2))
			if err == nil {
				d.Value, err = model.DecodePayload(body)
			}
			if err != nil {
				return corrupt(err, "task_data, run %s, task %q, name %q", key.Run, d.Task, d.Name)
			}
			out = append(out, d)
			return nil
		}, args...)
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

// LoadLogs returns the log lines of a task, or of all tasks of a run.
func (s *Store) LoadLogs(ctx context.Context, key store.RunKey, task string, after store.LogPlace, limit int) (out []store.LogRow, err error) {
	err = s.read(ctx, "load log lines", func(c *conn) error {
		return c.query(sqlLoadLogs, func(q *stmt) error {
			n, level := q.int(3), q.int(4)
			l := store.LogRow{
				RunKey: key, At: model.Time(q.int(0)), Epoch: q.int(1), Batch: q.int(2), N: int32(n), Level: int16(level), Task: q.text(5),
			}
			text, err := unseal(logSum(make([]byte, 0, 128), &l), q.raw(6))
			if err == nil && (n != int64(l.N) || level < math.MinInt16 || level > math.MaxInt16) {
				err = fmt.Errorf("its numbers are out of bounds")
			}
			l.Text = string(text)
			if err != nil { // return the error as the text of the line
				l.Text = corrupt(err, "task_logs, run %s, line %d of batch %d", key.Run, n, l.Batch).Error()
			}
			out = append(out, l)
			return nil
		}, key.Run[:], int(key.Shard), int64(after.At), after.Epoch, after.Batch, int64(after.N), task, max(limit, 0))
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

const (
	// These statements delete rows of a deleted run.
	sqlSweepData = `delete from perdure_task_data where run = ?1 and shard = ?2 and (task, name) in (
		select task, name from perdure_task_data where run = ?1 and shard = ?2 limit ?3)`
	sqlSweepLogs = `delete from perdure_task_logs where run = ?1 and shard = ?2 and (at, epoch, batch, n) in (
		select at, epoch, batch, n from perdure_task_logs where run = ?1 and shard = ?2 order by at, epoch, batch, n limit ?3)`

	sqlOldLogs = `select run, at, epoch, batch, n from perdure_task_logs indexed by perdure_task_logs_age
		where shard = ?1 and at < ?2 order by at limit ?3`
	sqlSweepLog = `delete from perdure_task_logs where run = ?1 and shard = ?2 and at = ?3 and epoch = ?4 and batch = ?5 and n = ?6`
)

// sweepTasks deletes the data and log lines of the tasks of a deleted run.
func sweepTasks(c *conn, run []byte, shard model.ShardID, limit int) (swept int, err error) {
	// The subquery of each statement bounds the number of deleted rows.
	for _, sql := range [...]string{sqlSweepData, sqlSweepLogs} {
		if swept >= limit {
			break
		}
		n, err := c.exec(sql, run, int(shard), limit-swept)
		if err != nil {
			return swept, err
		}
		swept += int(n)
	}
	return swept, nil
}

// sweepLogs deletes old log lines.
func sweepLogs(c *conn, shard model.ShardID, before model.Time, limit int) (int, error) {
	if limit <= 0 || before == 0 {
		return 0, nil
	}
	type key struct {
		run []byte
		at  [4]int64
	}

	var keys []key
	err := c.query(sqlOldLogs, func(q *stmt) error {
		keys = append(keys, key{slices.Clone(q.raw(0)), [4]int64{q.int(1), q.int(2), q.int(3), q.int(4)}})
		return nil
	}, int(shard), int64(before), limit)
	if err != nil {
		return 0, err
	}

	for _, k := range keys {
		if _, err := c.exec(sqlSweepLog, k.run, int(shard), k.at[0], k.at[1], k.at[2], k.at[3]); err != nil {
			return 0, err
		}
	}

	return len(keys), nil
}
