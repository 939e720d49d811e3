package sqlite

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlLoadLeaving = `select l.run, e.tenant, e.workflow, e.key
		from perdure_leaving l indexed by perdure_leaving_at cross join perdure_executions e on e.run = l.run and e.shard = l.shard
		where l.shard = ?1 and l.at < ?2 order by l.at, l.run`
	// The case expression is needed because SQLite may evaluate both sides of an "and", in any
	// order.
	sqlWalkOld = `select run, shard, case when state > 1 and max(closed, started) < ?4
		then not exists (select 1 from perdure_leaving l where l.run = e.run and l.shard = e.shard) else 0 end, tenant, workflow, key
		from perdure_executions e where (run, shard) > (?1, ?2) and run < ?3 order by run, shard`
)

// LoadExpired returns closed runs that may be removed. It finds most of them by a walk over the
// table of runs. The table has the runs of all shards in one order, so the walk also reads runs of
// other shards.
func (s *Store) LoadExpired(ctx context.Context, r store.ExpiredRequest) (out store.Expired, err error) {
	const op = "load expired"
	shards, end := distinct(r.Shards), store.OldestID(r.ClosedBefore)
	var skipped store.Skipped

	err = s.read(ctx, op, func(c *conn) error {
		out, skipped = store.Expired{}, store.Skipped{}
		// There is an index of runs with their own removal time. So every call finds these runs,
		// independently of the position of the walk.
		for _, shard := range shards {
			if len(out.Runs) >= r.Limit {
				break
			}
			if err := c.query(sqlLoadLeaving, heads(&out.Runs, shard, r.Limit, &skipped), int(shard), int64(r.Now)); err != nil {
				return err
			}
		}

		if len(shards) == 0 || r.Limit <= 0 {
			return nil
		}

		// Find all other runs by a walk over old ids. Walked counts every run, including runs of
		// other shards, so that one call reads a bounded number of rows.
		err := c.query(sqlWalkOld, func(q *stmt) error {
			run, ok := q.id(0)
			if out.Walked >= r.Limit {
				return errStop
			}
			if !ok {
				skipped.Note(noID("executions, key %q of workflow %q", q.text(5), q.text(4)))
				return nil
			}
			out.Walked, out.Next = out.Walked+1, store.RunKey{Shard: model.ShardID(q.int(1)), Run: run}
			if _, mine := slices.BinarySearch(shards, out.Next.Shard); mine && q.int(2) != 0 {
				out.Runs = append(out.Runs, store.RunHead{RunKey: out.Next, Address: model.Address{Tenant: q.text(3), Type: q.text(4), Key: q.text(5)}})
			}
			return nil
		}, r.After.Run[:], int(r.After.Shard), end[:], int64(r.ClosedBefore))

		// The walk has reached the end: the next round starts from the beginning.
		if out.Walked < r.Limit {
			out.Next = store.RunKey{}
		}
		return err
	})
	if err != nil {
		return store.Expired{}, err
	}

	return out, skipped.Err(op)
}
