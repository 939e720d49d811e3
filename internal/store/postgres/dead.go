package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// dead adds the statements that insert, change and delete dead tasks. It adds a statement only if
// the batch has rows for it.
func (w *writer) dead() {
	if rows := w.batch.Dead; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int { return rows[i].Compare(rows[j].DeadKey) })
		w.use(stDead)
		w.deadRows(n, func(i int) (store.DeadKey, int64, *model.DeadTask) {
			r := &rows[o[i]]
			return r.DeadKey, r.Requeued, &r.Body
		})
		w.execute()
	}

	if rows := w.batch.DeadMarks; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int { return rows[i].Compare(rows[j].DeadKey) })
		w.use(stDeadMark)
		w.deadRows(n, func(i int) (store.DeadKey, int64, *model.DeadTask) {
			r := &rows[o[i]]
			return r.DeadKey, r.Next, &r.Body
		})
		w.int8s(n, func(i int) int64 { return rows[o[i]].Prev })
		w.execute()
	}

	if rows := w.batch.DeadDeletes; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int { return rows[i].Compare(rows[j]) })
		w.use(stDeadDelete)
		w.shards(n, func(i int) model.ShardID { return rows[o[i]].Shard })
		w.encoder.runs(n, func(i int) model.RunID { return rows[o[i]].Run })
		w.texts(n, func(i int) string { return rows[o[i]].Task })
		w.execute()
	}
}

// deadRows appends the columns of dead tasks.
func (e *encoder) deadRows(n int, row func(i int) (key store.DeadKey, requeued int64, body *model.DeadTask)) {
	key := func(i int) store.DeadKey { k, _, _ := row(i); return k }
	columns := func(i int) store.DeadColumns { _, _, d := row(i); return store.ColumnsOf(d) }
	e.shards(n, func(i int) model.ShardID { return key(i).Shard })
	e.runs(n, func(i int) model.RunID { return key(i).Run })
	e.texts(n, func(i int) string { return key(i).Task })
	e.int8s(n, func(i int) int64 { _, requeued, _ := row(i); return requeued })
	e.int8s(n, func(i int) int64 { return int64(columns(i).At) })
	e.texts(n, func(i int) string { return columns(i).Tenant })
	e.texts(n, func(i int) string { return columns(i).Kind })
	e.texts(n, func(i int) string { return columns(i).Queue })
	e.texts(n, func(i int) string { return columns(i).Fingerprint })
	e.bodies(n, func(dst []byte, i int) []byte { _, _, d := row(i); return model.AppendDeadTask(dst, d) })
}

const deadColumns = `d.shard, d.run, d.task, d.requeued, d.at, d.tenant, d.kind, d.queue, d.fingerprint, d.body`

// scanDead reads rows with the columns deadColumns. If the body of a dead task cannot be decoded,
// or contradicts the other columns, scanDead builds a body from the other columns and the error. It
// then calls bad with the error.
func scanDead(rows pgx.Rows, err error, bad func(err error)) (out []store.DeadRow, _ error) {
	if err != nil {
		return nil, err
	}
	var r store.DeadRow
	var c store.DeadColumns
	var run pgtype.UUID
	var body pgtype.DriverBytes
	targets := []any{&r.Shard, &run, &r.Task, &r.Requeued, &c.At, &c.Tenant, &c.Kind, &c.Queue, &c.Fingerprint, &body}

	_, err = pgx.ForEachRow(rows, targets, func() (err error) {
		r.Run = run.Bytes
		r.Body, err = model.DecodeDeadTask(body)
		if err == nil && store.ColumnsOf(&r.Body) != c {
			err = errors.New("its columns contradict its body")
		}
		if err != nil {
			err = fault.New(fault.Corrupt, "dead task %q of run %s: %w", r.Task, r.Run, err)
			r.Unreadable(c, err)
			bad(err)
		}
		out = append(out, r)
		return nil
	})

	return out, err
}

// LoadDead returns a dead task.
func (s *Store) LoadDead(ctx context.Context, key store.DeadKey) (*store.DeadRow, error) {
	const load = `select ` + deadColumns + ` from {schema}.dead d where d.shard = $1 and d.run = $2 and d.task = $3`
	if key.Shard >= model.MaxShards {
		return nil, nil
	}
	var found []store.DeadRow
	err := s.read(ctx, "load dead task", func(ctx context.Context, c *pgx.Conn) (err error) {
		var unreadable error
		rows, err := c.Query(ctx, s.sql(load), int16(key.Shard), runArg(key.Run), key.Task)
		found, err = scanDead(rows, err, func(err error) { unreadable = err })
		return errors.Join(err, unreadable)
	})
	if len(found) == 0 || err != nil && !fault.Is(err, fault.Corrupt) {
		return nil, err
	}
	return &found[0], err
}

func ignore(error) {}

// deadListing returns the table and the condition of a query. If alike is set, the query reads
// groups. Otherwise it reads or counts rows, and rows are ordered by time. The indexes are partial.
// PostgreSQL uses a partial index only if the condition of the query implies the condition of the
// index.
func deadListing(q *store.DeadQuery, alike bool) *listing {
	l := &listing{from: "{schema}.dead d"}
	l.and("d.tenant = %s", q.Tenant)
	if q.Fingerprint != "" {
		l.and("d.fingerprint = %s", q.Fingerprint)
	} else if alike {
		l.and("d.fingerprint is not null")
	} else {
		l.and("d.at is not null")
	}

	if len(q.Kinds) > 0 {
		l.and("d.kind = any (%s)", q.Kinds)
	}
	if len(q.Queues) > 0 {
		l.and("d.queue = any (%s)", q.Queues)
	}
	if q.From != 0 {
		l.and("d.at >= %s", q.From)
	}
	if q.To != 0 {
		l.and("d.at < %s", q.To)
	}
	if q.Requeued != nil {
		l.and("(d.requeued > 0) = %s", *q.Requeued)
	}

	return l
}

// deadPage returns the statement of one page. The arguments of the statement are l.args and then
// the limit.
func (l *listing) deadPage(q *store.DeadQuery) string {
	if q.After != (store.DeadPlace{}) {
		l.and("(d.at, d.run, d.task) < (%s, %s, %s)", q.After.At, runArg(q.After.Run), q.After.Task)
	}
	return "select " + deadColumns + " from " + l.from + " where " + l.where.String() +
		fmt.Sprintf(" order by d.at desc, d.run desc, d.task desc limit $%d", len(l.args)+1)
}

// ListDead returns dead tasks, the latest failure first.
func (s *Store) ListDead(ctx context.Context, q store.DeadQuery) (page store.DeadPage, err error) {
	l := deadListing(&q, false)
	sql := expand(s.cfg.schema, l.deadPage(&q))
	limit := max(0, q.Limit)
	err = s.read(ctx, "list dead tasks", func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, sql, append(l.args, limit+1)...)
		page.Rows, err = scanDead(rows, err, ignore)
		if page.More = len(page.Rows) > limit; page.More {
			page.Rows = page.Rows[:limit]
		}
		return err
	})
	if err != nil {
		return store.DeadPage{}, err
	}
	return page, nil
}

// CountDead counts dead tasks.
func (s *Store) CountDead(ctx context.Context, q store.DeadQuery) (n int64, err error) {
	l := deadListing(&q, false)
	sql := expand(s.cfg.schema, "select count(*) from "+l.from+" where "+l.where.String())
	err = s.read(ctx, "count dead tasks", func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, sql, l.args...).Scan(&n)
	})
	return n, err
}

// deadGroups returns the statement that reads groups, each with its latest dead task. The arguments
// of the statement are l.args and then the limit.
func (l *listing) deadGroups() string {
	return fmt.Sprintf(`
select g.n, g.first, x.* from (
  select d.kind, d.fingerprint, count(*) as n, min(d.at) as first, max(d.at) as last from {schema}.dead d where %[1]s
  group by d.fingerprint, d.kind order by n desc, last desc, d.kind, d.fingerprint limit $%[2]d) g
cross join lateral (
  select %[3]s from {schema}.dead d where %[1]s and d.fingerprint = g.fingerprint and d.kind = g.kind and d.at = g.last
  order by d.at desc, d.run desc, d.task desc limit 1) x
order by g.n desc, g.last desc, g.kind, g.fingerprint`, l.where.String(), len(l.args)+1, deadColumns)
}

// GroupDead returns groups of dead tasks that have the same kind and fingerprint.
func (s *Store) GroupDead(ctx context.Context, q store.DeadQuery, limit int) (out []store.DeadGroup, err error) {
	l := deadListing(&q, true)
	sql := expand(s.cfg.schema, l.deadGroups())
	err = s.read(ctx, "group dead tasks", func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		rows, err := c.Query(ctx, sql, append(l.args, max(limit, 0))...)
		if err != nil {
			return err
		}
		var g store.DeadGroup
		var body pgtype.DriverBytes

		_, err = pgx.ForEachRow(rows, []any{&g.Count, &g.First, nil, nil, nil, nil, &g.Last, nil, &g.Kind, nil, &g.Fingerprint, &body}, func() error {
			d, err := model.DecodeDeadTask(body)
			switch g.Message = ""; {
			case err != nil:
				g.Message = err.Error() // the group is listed with this error
			case d.Failure != nil:
				g.Message = d.Failure.Message
			}
			out = append(out, g)
			return nil
		})

		return err
	})

	return out, err
}

// loadDeadBefore reads the shards one by one, like the statements in recovery.go. It reads the
// bodies only of the rows that it returns.
const loadDeadBefore = `
select ` + deadColumns + `
from (
  select t.nr, t.shard, k.at, k.run, k.task
  from unnest($1::smallint[]) with ordinality t (shard, nr)
  cross join lateral (
    select q.at, q.run, q.task from {schema}.dead q
    where q.shard = t.shard and q.at < $2 and (t.shard > $3 or (q.at, q.run, q.task) > ($4, $5, $6)) order by q.at, q.run, q.task limit $7) k
  order by t.nr, k.at, k.run, k.task limit $7) k
cross join lateral (
  select x.shard, x.run, x.task, x.requeued, x.at, x.tenant, x.kind, x.queue, x.fingerprint, x.body
  from {schema}.dead x where x.shard = k.shard and x.run = k.run and x.task = k.task limit 1) d
order by k.nr, k.at, k.run, k.task`

// LoadDeadBefore returns the dead tasks that failed before the given time, in the given shards.
func (s *Store) LoadDeadBefore(ctx context.Context, shards []model.ShardID, before model.Time, after store.DeadPlace, limit int) (out []store.DeadRow, err error) {
	// perQuery is the number of shards per statement. A statement reads up to limit keys of every
	// shard, but returns at most limit rows in all. So more shards would only waste more reads.
	const perQuery = 32
	err = s.read(ctx, "load old dead tasks", func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		for some := range slices.Chunk(sortedShards(shards, after.Shard), perQuery) {
			if len(out) >= limit {
				break
			}
			rows, err := c.Query(ctx, s.sql(loadDeadBefore), some, before, int16(min(after.Shard, model.MaxShards)), after.At, runArg(after.Run), after.Task, limit-len(out))
			page, err := scanDead(rows, err, ignore)
			if err != nil {
				return err
			}
			out = append(out, page...)
		}
		return nil
	})

	return out, err
}
