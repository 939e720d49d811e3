package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// viewColumns selects the cluster as one row: arrays of members, ordered by id, and arrays of
// owners, ordered by shard.
const viewColumns = `
select {now}, (select last from {schema}.settings_counter where id = 1), m.*, o.* from (
  select array_agg(node order by node), array_agg(epoch order by node), array_agg(expires order by node), array_agg(draining order by node),
    array_agg(host order by node), array_agg(boot order by node), array_agg(namespace order by node), array_agg(pid order by node),
    array_agg(pid_start order by node), array_agg(version order by node), array_agg(serves order by node),
    array_agg(link_address order by node), array_agg(link_key order by node),
    array_agg(weight order by node), array_agg(drained order by node), array_agg(groups order by node),
    array_agg(home order by node), array_agg(ttl order by node)
  from {schema}.nodes
) m cross join (
  select array_agg(shard order by shard), array_agg(node order by shard), array_agg(epoch order by shard) from {schema}.shards
) o`

// viewRow is the result of viewColumns.
type viewRow struct {
	now             model.Time
	settings        int64
	nodes           []pgtype.UUID
	epochs, expires []int64
	draining        []bool
	host, boot, ns  []string
	pid             []int32
	pidStart        []int64
	version, serves []string
	address, key    []string
	weight          []int32
	drained         []bool
	groups          []string
	homes           []pgtype.UUID
	ttls            []int64 // in microseconds
	shards          []int16
	owners          []pgtype.UUID
	ownerEpochs     []int64
}

func (v *viewRow) targets() []any {
	return []any{
		&v.now, &v.settings, &v.nodes, &v.epochs, &v.expires, &v.draining, &v.host, &v.boot, &v.ns, &v.pid, &v.pidStart, &v.version, &v.serves, &v.address, &v.key,
		&v.weight, &v.drained, &v.groups, &v.homes, &v.ttls,
		&v.shards, &v.owners, &v.ownerEpochs,
	}
}

// view converts the row to a store.View. groups are the shard groups of the store.
func (v *viewRow) view(groups []model.Group) store.View {
	out := store.View{Now: v.now, Settings: v.settings, Groups: groups, Owners: make([]store.ShardOwner, len(v.shards))}
	for i := range v.nodes {
		out.Members = append(out.Members, store.Member{
			NodeInfo: store.NodeInfo{
				ID: v.nodes[i].Bytes, Host: v.host[i], BootID: v.boot[i], Namespace: v.ns[i],
				PID: int(v.pid[i]), PIDStart: v.pidStart[i], Version: v.version[i], LinkAddress: v.address[i], LinkKey: v.key[i],
				Weight: int(v.weight[i]), Drained: v.drained[i], Groups: splitNames(v.groups[i]), Home: v.homes[i].Bytes,
			},
			Epoch: v.epochs[i], Expires: model.Time(v.expires[i]), TTL: time.Duration(v.ttls[i]) * time.Microsecond, Draining: v.draining[i], Serves: store.DecodeServed(v.serves[i]),
		})
	}
	for i, shard := range v.shards {
		out.Owners[i] = store.ShardOwner{Shard: model.ShardID(shard), Node: v.owners[i].Bytes, Epoch: v.ownerEpochs[i]}
	}
	return out
}

// splitNames returns the names in a text. It returns no names for an empty text.
func splitNames(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// Members returns the nodes and the owners of the shards.
func (s *Store) Members(ctx context.Context) (view store.View, err error) {
	var v viewRow
	err = s.read(ctx, "members", func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, s.sql(viewColumns)).Scan(v.targets()...)
	})
	if err != nil {
		return store.View{}, err
	}
	return v.view(s.info.Groups), nil
}

// Inspect describes the connection to the database server.
func (s *Store) Inspect(ctx context.Context) (found store.Inspection, err error) {
	const query = `select current_user::text, coalesce((select rolsuper from pg_catalog.pg_roles where rolname = current_user), false),
  pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid()`
	err = s.read(ctx, "inspect", func(ctx context.Context, c *pgx.Conn) error {
		var backend int64
		if err := c.QueryRow(ctx, query).Scan(&found.Role, &found.Superuser, &found.Standby, &backend); err != nil {
			return err
		}
		if backend != int64(c.PgConn().PID()) {
			found.Pooler = "session"
		}
		return nil
	})
	if !s.cfg.prepare {
		found.Pooler = "transaction"
	}
	return found, err
}

// senders selects the shards that have messages for shard t.shard. The query jumps from one sender
// to the next. So it needs one look-up per sender, even if there are many messages. Queries on
// messages use it as a lateral subquery.
const senders = `(
  with recursive s as (
    (select m.from_shard from {schema}.messages m where m.to_shard = t.shard order by m.from_shard limit 1)
    union all
    select n.from_shard from s cross join lateral (
      select m.from_shard from {schema}.messages m where m.to_shard = t.shard and m.from_shard > s.from_shard order by m.from_shard limit 1) n
  )
  select from_shard from s
)`

// cursor selects the cursor of the pair (t.shard, p.from_shard), or 0 if there is none.
const cursor = `lateral (
  select coalesce((select c.position from {schema}.cursors c where c.to_shard = t.shard and c.from_shard = p.from_shard), 0) as position) c`

// mailWaits is true if mail waits for one of the shards in $5: a request that may be served now, or
// a message that the shard has not consumed.
const mailWaits = `(
  exists (
    select from unnest($5::smallint[]) t (shard)
    cross join lateral (select from {schema}.inbox i where i.shard = t.shard and i.not_before <= {now} and i.not_before < ` + never + ` order by i.id limit 1) i)
  or exists (
    select from unnest($5::smallint[]) t (shard) cross join lateral ` + senders + ` p cross join ` + cursor + `
    cross join lateral (
      select from {schema}.messages m where m.to_shard = t.shard and m.from_shard = p.from_shard and m.seq = c.position + 1 limit 1) m))`

// shardArgs returns the shards as a parameter of a query, without numbers that no shard can have.
func shardArgs(shards []model.ShardID) []int16 {
	out := make([]int16, 0, len(shards))
	for _, s := range shards {
		if s < model.MaxShards {
			out = append(out, int16(s))
		}
	}
	return out
}
