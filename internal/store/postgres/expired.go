package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	// loadLeaving reads the runs whose own removal time has passed. It reads the index up to the
	// first run whose time has not passed.
	loadLeaving = `
select t.shard, l.run, e.tenant, e.workflow, e.key
from unnest($1::smallint[]) with ordinality t (shard, nr)
cross join lateral (select q.at, q.run from {schema}.leaving q where q.shard = t.shard and q.at < $2 order by q.at, q.run limit $3) l
cross join lateral (select e.tenant, e.workflow, e.key from {schema}.executions e where e.shard = t.shard and e.run = l.run limit 1) e
order by t.nr, l.at, l.run limit $3`

	// oldShards returns the shards that have a run in the range of the walk. Most calls find none,
	// and need no further statement.
	oldShards = `
select t.shard from unnest($1::smallint[]) with ordinality t (shard, nr)
where (select true from {schema}.executions e
  where e.shard = t.shard and e.run > (case when t.shard = $2 then $3 else '00000000-0000-0000-0000-000000000000' end)::uuid and e.run < $4
  order by e.run limit 1)
order by t.nr`

	// walkOld looks at runs of one shard along the primary key. It returns the runs that may be
	// removed, and always the last run it looked at.
	walkOld = `
select run, nr, expired, tenant, workflow, key
from (
  select r.run, r.tenant, r.workflow, r.key, row_number() over (order by r.run) as nr, count(*) over () as walked,
    case when r.state > 1 and greatest(r.closed, r.started) < $5
      then (select true from {schema}.leaving l where l.shard = $1 and l.run = r.run limit 1) is null else false end as expired
  from (
    select e.run, e.state, e.started, e.closed, e.tenant, e.workflow, e.key
    from {schema}.executions e where e.shard = $1 and e.run > $2 and e.run < $3 order by e.run limit $4) r
) w where expired or nr = walked order by nr`
)

// LoadExpired returns closed runs that may be removed.
func (s *Store) LoadExpired(ctx context.Context, r store.ExpiredRequest) (out store.Expired, err error) {
	own, err := s.heads(ctx, "load expired", sortedShards(r.Shards, 0), r.Limit, func(some []int16, limit int) (string, []any) {
		return loadLeaving, []any{some, r.Now, limit}
	})
	if err != nil || r.Limit <= 0 {
		return store.Expired{Runs: own}, err
	}

	err = s.read(ctx, "load expired", func(ctx context.Context, c *pgx.Conn) error {
		out = store.Expired{Runs: slices.Clip(own)}
		rows, err := c.Query(ctx, s.sql(oldShards), sortedShards(r.Shards, r.After.Shard), int16(min(r.After.Shard, model.MaxShards)), runArg(r.After.Run), runArg(store.OldestID(r.ClosedBefore)))
		if err != nil {
			return err
		}
		shards, err := pgx.CollectRows(rows, pgx.RowTo[int16])
		if err != nil {
			return err
		}

		for _, shard := range shards {
			if err := s.walkOld(ctx, c, model.ShardID(shard), &r, &out); err != nil || out.Walked == r.Limit {
				return err
			}
		}

		out.Next = store.RunKey{}
		return nil
	})

	return out, err
}

// walkOld continues the walk in a shard until the limit.
func (s *Store) walkOld(ctx context.Context, c *pgx.Conn, shard model.ShardID, r *store.ExpiredRequest, out *store.Expired) error {
	var from model.RunID
	if shard == r.After.Shard {
		from = r.After.Run
	}
	before := out.Walked
	rows, err := c.Query(ctx, s.sql(walkOld), int16(shard), runArg(from), runArg(store.OldestID(r.ClosedBefore)), r.Limit-before, r.ClosedBefore)
	if err != nil {
		return err
	}

	var run pgtype.UUID
	var nr int
	var expired bool
	h := store.RunHead{RunKey: store.RunKey{Shard: shard}}

	_, err = pgx.ForEachRow(rows, []any{&run, &nr, &expired, &h.Address.Tenant, &h.Address.Type, &h.Address.Key}, func() error {
		h.Run = run.Bytes
		out.Walked, out.Next = before+nr, h.RunKey
		if expired {
			out.Runs = append(out.Runs, h)
		}
		return nil
	})

	return err
}
