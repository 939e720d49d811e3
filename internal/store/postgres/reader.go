package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// where is the condition of a list, with its arguments.
type where struct {
	text strings.Builder
	args []any
}

// and adds a condition; %s stands for the argument.
func (w *where) and(condition string, args ...any) {
	names := make([]any, len(args))
	for i, a := range args {
		w.args = append(w.args, a)
		names[i] = fmt.Sprintf("$%d", len(w.args))
	}
	if w.text.Len() > 0 {
		w.text.WriteString(" and ")
	}
	fmt.Fprintf(&w.text, condition, names...)
}

// matching is the condition of a query without its paging fields. Every query names a tenant.
func matching(q *store.Query) *where {
	w := &where{}
	w.and("e.tenant = %s and e.started is not null", q.Tenant) // the condition of the index
	if q.Workflow != "" {
		w.and("e.workflow = %s", q.Workflow)
	}
	if q.KeyPrefix != "" {
		w.and("starts_with(e.key, %s)", q.KeyPrefix)
	}
	if len(q.Statuses) > 0 {
		var states []int16
		for _, s := range q.Statuses {
			if s == model.Running {
				states = append(states, stateRunnable, stateParked)
			} else if s.Closed() {
				states = append(states, int16(s))
			}
		}
		w.and("e.state = any (%s)", states)
	}
	if q.StartedFrom != 0 {
		w.and("e.started >= %s", q.StartedFrom)
	}
	if q.StartedTo != 0 {
		w.and("e.started < %s", q.StartedTo)
	}
	if !q.AllRuns {
		w.and("e.current")
	}
	return w
}

// List returns executions, newest start first. It walks the index by start time of the tenant; filters are applied on the way.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	w := matching(&q)
	if q.After != (store.PageMark{}) {
		w.and("e.started <= %s", q.After.Started) // for the index, which does not have the run
		w.and("(e.started, e.run) < (%s, %s)", q.After.Started, runArg(q.After.Run))
	}
	limit := max(0, q.Limit)
	sql := `select {execution} from {schema}.executions e where ` + w.text.String() +
		fmt.Sprintf(` order by e.started desc, e.run desc limit $%d`, len(w.args)+1)
	err = s.read(ctx, "list", func(ctx context.Context, c *pgx.Conn) error {
		page = store.Page{}
		rows, err := s.executionsBut(ctx, c, (*executionRow).unreadable, expand(s.cfg.schema, sql), append(w.args, limit+1)...)
		if page.More = len(rows) > limit; page.More {
			rows = rows[:limit]
		}
		page.Executions = rows
		return err
	})
	return page, err
}

// Count counts executions.
func (s *Store) Count(ctx context.Context, q store.Query) (n int64, err error) {
	w := matching(&q)
	sql := `select count(*) from {schema}.executions e where ` + w.text.String()
	err = s.read(ctx, "count", func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, expand(s.cfg.schema, sql), w.args...).Scan(&n)
	})
	return n, err
}

// LoadOutcomes returns the rows of those runs that are closed.
func (s *Store) LoadOutcomes(ctx context.Context, keys []store.RunKey) (out []store.Execution, err error) {
	const load = `
select x.* from unnest($1::smallint[], $2::uuid[]) u (shard, run)
cross join lateral (select {execution} from {schema}.executions e where e.shard = u.shard and e.run = u.run and e.state > 1 limit 1) x`
	if len(keys) == 0 {
		return nil, nil
	}
	var shards []int16
	var runs []pgtype.UUID
	for _, k := range keys {
		if k.Shard < model.MaxShards {
			shards, runs = append(shards, int16(k.Shard)), append(runs, runArg(k.Run))
		}
	}
	err = s.read(ctx, "load outcomes", func(ctx context.Context, c *pgx.Conn) error {
		out, err = s.executionsBut(ctx, c, func(_ *executionRow, e *store.Execution, _ error) { *e = store.Execution{} }, s.sql(load), shards, runs)
		out = slices.DeleteFunc(out, func(e store.Execution) bool { return e.Start.Run.IsZero() }) // cannot be read; the others can
		return err
	})
	return out, err
}

// Sweep deletes message rows behind their cursors, remembered requests that are old and events of deleted runs. Cursors stay: see the schema.
func (s *Store) Sweep(ctx context.Context, r store.SweepRequest) (int, error) {
	// Rows of these tables are never updated, so that the place of one is as good as its key.
	const (
		sweepMessages = `
delete from {schema}.messages where ctid = any (array(
  select m.ctid
  from unnest($1::smallint[]) t (shard) cross join lateral ` + senders + ` p cross join ` + cursor + `
  cross join lateral (
    select q.ctid from {schema}.messages q
    where q.to_shard = t.shard and q.from_shard = p.from_shard and q.seq <= c.position order by q.seq limit $2) m
  limit $2))`
		sweepRequests = `
delete from {schema}.requests where ctid = any (array(
  select q.ctid
  from unnest($1::smallint[]) t (shard)
  cross join lateral (select r.ctid from {schema}.requests r where r.shard = t.shard and r.at < $2 order by r.at limit $3) q
  limit $3))`
		sweepEvents = `
delete from {schema}.history where ctid = any (array(
  select h.ctid
  from unnest($1::smallint[]) t (shard)
  cross join lateral (select g.run from {schema}.garbage g where g.shard = t.shard order by g.run limit $2) g
  cross join lateral (select e.ctid from {schema}.history e where e.shard = t.shard and e.run = g.run order by e.seq limit $2) h
  limit $2))`
		sweepGarbage = `
delete from {schema}.garbage where ctid = any (array(
  select q.ctid
  from unnest($1::smallint[]) t (shard)
  cross join lateral (
    select g.ctid from {schema}.garbage g
    where g.shard = t.shard and not exists (select 1 from {schema}.history e where e.shard = g.shard and e.run = g.run)
    order by g.run limit $2) q
  limit $2))`
	)
	shards := sortedShards(r.Shards, 0)
	if len(shards) == 0 || r.Limit <= 0 {
		return 0, nil
	}
	swept := 0
	err := s.work(ctx, "sweep", true, func(ctx context.Context, c *pgx.Conn) error {
		swept = 0
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, s.sql(sweepMessages), shards, r.Limit)
			if err != nil {
				return err
			}
			swept = int(tag.RowsAffected())
			if r.RequestsBefore != 0 && swept < r.Limit {
				if tag, err = tx.Exec(ctx, s.sql(sweepRequests), shards, r.RequestsBefore, r.Limit-swept); err != nil {
					return err
				}
				swept += int(tag.RowsAffected())
			}
			for _, sql := range [...]string{sweepEvents, sweepGarbage} {
				if swept >= r.Limit {
					return nil
				}
				if tag, err = tx.Exec(ctx, s.sql(sql), shards, r.Limit-swept); err != nil {
					return err
				}
				swept += int(tag.RowsAffected())
			}
			return nil
		})
	})
	if err != nil {
		return 0, err
	}
	return swept, nil
}
