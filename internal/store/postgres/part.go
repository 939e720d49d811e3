package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var _ store.Part = (*Store)(nil)

// DrawEpoch takes the next epoch of the cluster.
func (s *Store) DrawEpoch(ctx context.Context) (epoch int64, err error) {
	err = s.work(ctx, "draw an epoch", true, func(ctx context.Context, c *pgx.Conn) error {
		epoch, err = s.drawEpoch(ctx, c)
		return err
	})
	return epoch, err
}

// RegisterAt adds a node with its fences, at an epoch of the home, which is the first database of
// the cluster. A commit in flight under an older epoch either ends before the registration or
// fails.
func (s *Store) RegisterAt(ctx context.Context, r store.PartRegistration) error {
	const (
		insert = `
insert into {schema}.nodes (node, epoch, expires, draining, host, boot, namespace, pid, pid_start, version, groups, home, ttl)
select $1::uuid, $2::bigint, {now} + $3, false, $4::text, $5::text, $6::text, $7::integer, $8::bigint, $9::text, $10::text, $11::uuid, $3
from {schema}.meta where id = 1 and groups = $12
on conflict (node) do update set epoch = excluded.epoch, expires = excluded.expires, ttl = excluded.ttl where nodes.epoch < excluded.epoch
returning true`
		present      = `select epoch from {schema}.nodes where node = $1`
		raise        = `update {schema}.meta set epoch = greatest(epoch, $1) where id = 1`
		deleteFences = `delete from {schema}.fences where node = $1`
		insertFences = `insert into {schema}.fences (node, lane, epoch, batch) select $1, lane, $2, 0 from generate_series(0, $3::integer - 1) lane`
	)

	const op = "register in a part"
	if r.Lanes < 1 || r.Node.Sole {
		return refusal(op, fmt.Errorf("a node needs at least one lane, has %d, and must not be registered as the sole node", r.Lanes))
	}
	n := &r.Node
	return s.work(ctx, op, true, func(ctx context.Context, c *pgx.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			var added bool
			err := tx.QueryRow(ctx, s.sql(insert), nodeArg(n.ID), r.Epoch, r.TTL.Microseconds(), n.Host, n.BootID, n.Namespace, n.PID, n.PIDStart, n.Version,
				strings.Join(n.Groups, ","), nodeArg(n.Home), model.FormatGroups(s.info.Groups)).Scan(&added)
			if errors.Is(err, pgx.ErrNoRows) {
				var has int64
				err = tx.QueryRow(ctx, s.sql(present), nodeArg(n.ID)).Scan(&has)
				switch {
				case errors.Is(err, pgx.ErrNoRows):
					return refusal(op, errGroupsChanged)
				case err == nil && has > r.Epoch:
					return fencedError(op)
				}
				return err // registered with this epoch
			}
			if err != nil {
				return err
			}

			var batch pgx.Batch
			batch.Queue(s.sql(raise), r.Epoch)
			batch.Queue(s.sql(deleteFences), nodeArg(n.ID))
			batch.Queue(s.sql(insertFences), nodeArg(n.ID), r.Epoch, r.Lanes)
			return tx.SendBatch(ctx, &batch).Close()
		})
	})
}

// RefenceAt moves the fence of a lane to an epoch of the home. If the answer is lost, it tries
// again: the fence may already have the epoch.
func (s *Store) RefenceAt(ctx context.Context, l store.LaneRef, epoch int64) (landed int64, err error) {
	const refence = `update {schema}.fences set epoch = $4 where node = $1 and lane = $2 and epoch = any ($3) returning batch`
	const op, tries = "refence", 3
	for try := 0; ; try++ {
		err = s.work(ctx, op, true, func(ctx context.Context, c *pgx.Conn) error {
			err := c.QueryRow(ctx, s.sql(refence), nodeArg(l.Node), clampLane(l.Lane), []int64{l.Epoch, epoch}, epoch).Scan(&landed)
			if errors.Is(err, pgx.ErrNoRows) {
				return fencedError(op)
			}
			return err
		})
		if err == nil || store.ClassOf(err) != store.Unknown || try == tries || ctx.Err() != nil {
			return landed, patient(err)
		}
	}
}

// LoadChannels returns the channels that have messages and lead to one of the shards. A channel is
// a pair of shards: a sender and a receiver.
func (s *Store) LoadChannels(ctx context.Context, shards []model.ShardID) (out []store.Channel, err error) {
	const load = `select t.shard, p.from_shard from unnest($1::smallint[]) t (shard) cross join lateral ` + senders + ` p`
	all := sortedShards(shards, 0)
	if len(all) == 0 {
		return nil, nil
	}
	err = s.read(ctx, "load channels", func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, s.sql(load), all)
		if err != nil {
			return err
		}
		out = nil
		var one store.Channel
		_, err = pgx.ForEachRow(rows, []any{&one.To, &one.From}, func() error {
			out = append(out, one)
			return nil
		})
		return err
	})
	return out, err
}

// LoadCursors returns the cursors of channels.
func (s *Store) LoadCursors(ctx context.Context, pairs []store.Channel) (out []store.ChannelCursor, err error) {
	const load = `
select u.to_shard, u.from_shard, c.position from unnest($1::smallint[], $2::smallint[]) u (to_shard, from_shard)
cross join lateral (select q.position from {schema}.cursors q where q.to_shard = u.to_shard and q.from_shard = u.from_shard limit 1) c`
	if len(pairs) == 0 {
		return nil, nil
	}
	var to, from []int16
	for _, p := range pairs {
		if p.To < model.MaxShards && p.From < model.MaxShards {
			to, from = append(to, int16(p.To)), append(from, int16(p.From))
		}
	}

	err = s.read(ctx, "load cursors", func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, s.sql(load), to, from)
		if err != nil {
			return err
		}
		out = nil
		var one store.ChannelCursor
		_, err = pgx.ForEachRow(rows, []any{&one.To, &one.From, &one.Position}, func() error {
			out = append(out, one)
			return nil
		})
		return err
	})
	return out, err
}

// AdvanceCursors raises copies of cursors whose receivers are shards in another database.
func (s *Store) AdvanceCursors(ctx context.Context, cursors []store.ChannelCursor) error {
	const advance = `
insert into {schema}.cursors (to_shard, from_shard, position)
select u.to_shard, u.from_shard, max(u.position) from unnest($1::smallint[], $2::smallint[], $3::bigint[]) u (to_shard, from_shard, position)
group by u.to_shard, u.from_shard order by u.to_shard, u.from_shard
on conflict (to_shard, from_shard) do update set position = excluded.position where cursors.position < excluded.position`
	const op = "advance cursors"
	if len(cursors) == 0 {
		return nil
	}

	to, from, positions := make([]int16, len(cursors)), make([]int16, len(cursors)), make([]int64, len(cursors))
	for i, c := range cursors {
		if c.To >= model.MaxShards || c.From >= model.MaxShards {
			return refusal(op, errors.New("a shard that no store has"))
		}
		to[i], from[i], positions[i] = int16(c.To), int16(c.From), c.Position
	}
	return s.work(ctx, op, true, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, s.sql(advance), to, from, positions)
		return err
	})
}
