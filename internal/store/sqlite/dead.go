package sqlite

import (
	"context"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlDead = `insert into perdure_dead (run, shard, task, requeued, at, tenant, kind, queue, fingerprint, body)
		values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)`
	sqlDeadMark = `update perdure_dead set requeued = ?4, body = ?10 where run = ?1 and shard = ?2 and task = ?3 and requeued = ?11
		and +at = ?5 and +tenant = ?6 and +kind = ?7 and +queue = ?8 and +fingerprint = ?9`
	sqlDeadDelete = `delete from perdure_dead where run = ?1 and shard = ?2 and task = ?3`

	deadColumns   = `d.run, d.shard, d.task, d.requeued, d.at, d.tenant, d.kind, d.queue, d.fingerprint, d.body`
	sqlLoadDead   = `select ` + deadColumns + ` from perdure_dead d where run = ?1 and shard = ?2 and task = ?3`
	sqlDeadBefore = `select ` + deadColumns + ` from perdure_dead d indexed by perdure_dead_age
		where shard = ?1 and at < ?2 and (at, run, task) > (?3, ?4, ?5) order by at, run, task limit ?6`
)

// dead writes dead tasks.
func (t *batchWriter) dead() error {
	for i := range t.b.Dead {
		row := &t.b.Dead[i]
		t.w.dead.setDead(row.DeadKey, row.Requeued, &row.Body, t.bodies.next())
		if err := t.w.dead.run(); err != nil {
			return fmt.Errorf("dead task %q of %s: %w", row.Task, row.Run, err)
		}
	}

	// The number of requeues guards the mark: if two operators requeue the same task, only the
	// first changes the row. The statement also compares the columns by which queries find the row,
	// because they must not change. The + in the statement keeps SQLite from choosing the index of
	// these columns.
	for i := range t.b.DeadMarks {
		row := &t.b.DeadMarks[i]
		q := t.w.deadMark
		q.setDead(row.DeadKey, row.Next, &row.Body, t.bodies.next())
		q.setInt(11, row.Prev)
		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("mark of the dead task %q of %s: %w", row.Task, row.Run, err)
		} else if !ok {
			return refusedError("the dead task %q of %s was not requeued %d times, or is another one", row.Task, row.Run, row.Prev)
		}
	}

	// A purge must find the row. Otherwise two purges of the same task would both succeed.
	for i := range t.b.DeadDeletes {
		key := &t.b.DeadDeletes[i]
		q := t.w.deadDelete
		q.setBlob(1, key.Run[:])
		q.setInt(2, int64(key.Shard))
		q.setText(3, key.Task)
		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("delete of the dead task %q of %s: %w", key.Task, key.Run, err)
		} else if !ok {
			return refusedError("there is no dead task %q of %s", key.Task, key.Run)
		}
	}

	return nil
}

// setDead binds the columns of a dead task, in the order of the insert.
func (q *stmt) setDead(key store.DeadKey, requeued int64, d *model.DeadTask, body []byte) {
	// The columns repeat values of the body, so that queries need not decode it.
	c := store.ColumnsOf(d)
	q.setBlob(1, key.Run[:])
	q.setInt(2, int64(key.Shard))
	q.setText(3, key.Task)
	q.setInt(4, requeued)
	q.setInt(5, int64(c.At))
	q.setText(6, c.Tenant)
	q.setText(7, c.Kind)
	q.setText(8, c.Queue)
	q.setText(9, c.Fingerprint)
	q.setBlob(10, body)
}

// scanDead reads the columns deadColumns of a dead task. If the body cannot be decoded, it returns
// an error and a row with only the values of the columns.
func scanDead(q *stmt) (store.DeadRow, error) {
	run, ok := q.id(0)
	row := store.DeadRow{DeadKey: store.DeadKey{RunKey: store.RunKey{Shard: model.ShardID(q.int(1)), Run: run}, Task: q.text(2)}, Requeued: q.int(3)}
	c := store.DeadColumns{At: model.Time(q.int(4)), Tenant: q.text(5), Kind: q.text(6), Queue: q.text(7), Fingerprint: q.text(8)}
	body, err := unseal(deadSum(make([]byte, 0, 256), row.DeadKey, row.Requeued, c), q.raw(9))
	// An id of another length makes the row unreadable, but its columns can still be listed.
	switch {
	case !ok:
		err = fmt.Errorf("an id is not 16 bytes long")
	case err == nil:
		row.Body, err = model.DecodeDeadTask(body)
	}
	if err != nil {
		err = corrupt(err, "dead, run %s, task %q", row.Run, row.Task)
		row.Unreadable(c, err)
	}
	return row, err
}

// listedDead is scanDead for lists, which also show rows that cannot be read.
func listedDead(q *stmt) (store.DeadRow, error) {
	row, err := scanDead(q)
	if fault.Is(err, fault.Corrupt) {
		err = nil
	}
	return row, err
}

// LoadDead returns a dead task.
func (s *Store) LoadDead(ctx context.Context, key store.DeadKey) (found *store.DeadRow, err error) {
	err = s.read(ctx, "load dead task", func(c *conn) error {
		return c.query(sqlLoadDead, func(q *stmt) error {
			row, err := scanDead(q)
			found = &row
			return err
		}, key.Run[:], int(key.Shard), key.Task)
	})
	if err != nil && !fault.Is(err, fault.Corrupt) {
		return nil, err
	}
	return found, err
}

// deadListing returns the statement for all pages of a query, either by fingerprint or in the order
// of time.
func deadListing(q *store.DeadQuery) *listing {
	// The statement names its index. Without statistics, SQLite could choose another index and sort
	// all rows.
	l := &listing{from: "perdure_dead d indexed by perdure_dead_listing"}
	l.and("d.tenant = ?", q.Tenant)
	if q.Fingerprint != "" {
		l.from = "perdure_dead d indexed by perdure_dead_alike"
		l.and("d.fingerprint = ?", q.Fingerprint)
	}

	if len(q.Kinds) > 0 {
		anyOf(l, "d.kind", q.Kinds)
	}
	if len(q.Queues) > 0 {
		anyOf(l, "d.queue", q.Queues)
	}
	if q.From != 0 {
		l.and("d.at >= ?", int64(q.From))
	}
	if q.To != 0 {
		l.and("d.at < ?", int64(q.To))
	}

	if q.Requeued != nil {
		if *q.Requeued {
			l.and("d.requeued > 0")
		} else {
			l.and("d.requeued = 0")
		}
	}

	return l
}

// deadPage returns the statement of one page.
func (l *listing) deadPage(q *store.DeadQuery) string {
	// Read one row more than the page has, to find out whether there is another page.
	if q.After != (store.DeadPlace{}) {
		l.and("(d.at, d.run, d.task) < (?, ?, ?)", int64(q.After.At), q.After.Run[:], q.After.Task)
	}
	l.args = append(l.args, q.Limit+1)
	return "select " + deadColumns + " from " + l.from + l.where.String() + deadOrder + " limit ?"
}

const deadOrder = " order by d.at desc, d.run desc, d.task desc"

// ListDead returns dead tasks, the latest failure first.
func (s *Store) ListDead(ctx context.Context, q store.DeadQuery) (page store.DeadPage, err error) {
	l := deadListing(&q)
	sql := l.deadPage(&q)
	err = s.read(ctx, "list dead tasks", func(c *conn) error {
		return c.queryOnce(sql, func(row *stmt) error {
			if len(page.Rows) == q.Limit {
				page.More = true
				return errStop
			}
			r, err := listedDead(row)
			page.Rows = append(page.Rows, r)
			return err
		}, l.args...)
	})
	if err != nil {
		return store.DeadPage{}, err
	}

	return page, nil
}

// CountDead counts dead tasks.
func (s *Store) CountDead(ctx context.Context, q store.DeadQuery) (n int64, err error) {
	l := deadListing(&q)
	err = s.read(ctx, "count dead tasks", func(c *conn) error {
		return c.queryOnce("select count(*) from "+l.from+l.where.String(), func(row *stmt) error {
			n = row.int(0)
			return nil
		}, l.args...)
	})
	return n, err
}

// deadGroups returns the statement of groups. The last argument is the limit.
func (l *listing) deadGroups() string {
	// This index has all columns that the statement needs, unless the query has other conditions.
	from := strings.Replace(l.from, "perdure_dead_listing", "perdure_dead_alike", 1)
	return "select d.kind, d.fingerprint, count(*), min(d.at), max(d.at) from " + from + l.where.String() +
		" group by d.fingerprint, d.kind order by 3 desc, 5 desc, 1, 2 limit ?"
}

// GroupDead returns dead tasks by kind and fingerprint.
func (s *Store) GroupDead(ctx context.Context, q store.DeadQuery, limit int) (out []store.DeadGroup, err error) {
	l := deadListing(&q)
	err = s.read(ctx, "group dead tasks", func(c *conn) error {
		err := c.queryOnce(l.deadGroups(), func(row *stmt) error {
			out = append(out, store.DeadGroup{
				Kind: row.text(0), Fingerprint: row.text(1), Count: row.int(2), First: model.Time(row.int(3)), Last: model.Time(row.int(4)),
			})
			return nil
		}, append(l.args, max(limit, 0))...)
		if err != nil {
			return err
		}

		// A group shows the message of its latest failure. There are few groups, so one more query
		// for each group is cheap.
		for i := range out {
			last := q
			last.Kinds, last.Fingerprint, last.After, last.Limit = []string{out[i].Kind}, out[i].Fingerprint, store.DeadPlace{}, 0
			l := deadListing(&last)
			if last.Fingerprint == "" {
				l.and("d.fingerprint = ''")
			}

			err := c.queryOnce(l.deadPage(&last), func(row *stmt) error {
				r, err := listedDead(row)
				if r.Body.Failure != nil {
					out[i].Message = r.Body.Failure.Message
				}
				return err
			}, l.args...)
			if err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

// LoadDeadBefore returns the dead tasks that failed before the given time, in the given shards.
func (s *Store) LoadDeadBefore(ctx context.Context, shards []model.ShardID, before model.Time, after store.DeadPlace, limit int) (out []store.DeadRow, err error) {
	err = s.read(ctx, "load old dead tasks", func(c *conn) error {
		for _, shard := range distinct(shards) {
			// Pages go through the shards in order, and within a shard by time.
			if shard < after.Shard || len(out) >= limit {
				continue
			}
			var from store.DeadPlace
			if shard == after.Shard {
				from = after
			}
			err := c.query(sqlDeadBefore, func(q *stmt) error {
				row, err := listedDead(q)
				out = append(out, row)
				return err
			}, int(shard), int64(before), int64(from.At), from.Run[:], from.Task, limit-len(out))
			if err != nil {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}
