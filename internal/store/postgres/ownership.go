package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Transactions that touch several of these tables lock them in this order: nodes, fences, shards. A
// commit locks its fence and then shards. So these transactions cannot deadlock. Epochs are taken
// from the counter in a separate transaction, so that a transaction that waits for a fence does not
// block the counter. An unused epoch is lost, which is harmless.

// drawEpoch takes the next epoch of the cluster.
func (s *Store) drawEpoch(ctx context.Context, c *pgx.Conn) (epoch int64, err error) {
	const draw = `update {schema}.meta set epoch = epoch + 1 returning epoch`
	err = c.QueryRow(ctx, s.sql(draw)).Scan(&epoch)
	return epoch, err
}

// Register adds a node with a lease and its fences. If the node is already registered, the new
// registration replaces the old one. A commit in flight under the old epoch either ends before the
// new registration or fails.
func (s *Store) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (r store.Registration, err error) {
	const (
		insertNode = `
insert into {schema}.nodes (node, epoch, expires, draining, host, boot, namespace, pid, pid_start, version, link_address, link_key, weight, drained, groups, home, ttl)
select $1::uuid, $2::bigint, {now} + $3, false, $4::text, $5::text, $6::text, $7::integer, $8::bigint, $9::text, $10::text, $11::text, $12::integer, $13::boolean, $14::text, $16::uuid, $3
from {schema}.meta where id = 1 and groups = $15
on conflict (node) do update set epoch = excluded.epoch, expires = excluded.expires, draining = false, host = excluded.host, boot = excluded.boot,
  namespace = excluded.namespace, pid = excluded.pid, pid_start = excluded.pid_start, version = excluded.version,
  link_address = excluded.link_address, link_key = excluded.link_key, weight = excluded.weight, drained = excluded.drained,
  groups = excluded.groups, home = excluded.home, ttl = excluded.ttl
returning {now}`
		deleteFences = `delete from {schema}.fences where node = $1`
		insertFences = `insert into {schema}.fences (node, lane, epoch, batch) select n.node, lane, n.epoch, 0
from {schema}.nodes n cross join generate_series(0, $3::integer - 1) lane where n.node = $1 and n.epoch = $2`
	)

	if lanes < 1 {
		return r, refusal("register", fmt.Errorf("a node needs at least one lane, not %d", lanes))
	}
	if n.Sole {
		return r, refusal("register", errors.New("a shared store has no sole node"))
	}

	err = s.work(ctx, "register", true, func(ctx context.Context, c *pgx.Conn) error {
		if r.Epoch, err = s.drawEpoch(ctx, c); err != nil {
			return err
		}
		var batch pgx.Batch
		batch.Queue(s.sql(insertNode), pgtype.UUID{Bytes: n.ID, Valid: true}, r.Epoch, ttl.Microseconds(),
			n.Host, n.BootID, n.Namespace, n.PID, n.PIDStart, n.Version, n.LinkAddress, n.LinkKey, n.Weight, n.Drained, strings.Join(n.Groups, ","),
			model.FormatGroups(s.info.Groups), nodeArg(n.Home)).
			QueryRow(func(row pgx.Row) error {
				err := row.Scan(&r.Now)
				if errors.Is(err, pgx.ErrNoRows) {
					return refusal("register", errGroupsChanged)
				}
				return err
			})
		batch.Queue(s.sql(deleteFences), nodeArg(n.ID))
		batch.Queue(s.sql(insertFences), nodeArg(n.ID), r.Epoch, lanes)
		return c.SendBatch(ctx, &batch).Close()
	})

	return r, err
}

func nodeArg(id model.NodeID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// Renew extends the lease and returns the view. It is one statement and one round trip on a
// separate connection, so that no slow query can delay it.
func (s *Store) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	const renew = `
with me as (
  update {schema}.nodes set expires = {now} + $3, ttl = $3, draining = $4, serves = $6 where node = $1 and epoch = $2 returning expires
)
select (select expires from me), ` + mailWaits + `, exists (select from {schema}.peer_mail p where p.node = $1), v.* from (` + viewColumns + `) v`

	const op = "renew"
	if err := s.alive(ctx); err != nil {
		return store.View{}, awayError(op, err)
	}
	ctx, done := s.within(ctx)
	defer done()
	s.renewMu.Lock()
	defer s.renewMu.Unlock()

	for try := 0; ; try++ {
		if err := s.connectRenewer(ctx); err != nil {
			return store.View{}, awayError(op, err)
		}
		var expires *model.Time
		var mail, peerMail bool
		var v viewRow
		err := s.renewer.QueryRow(ctx, s.sql(renew), nodeArg(r.Node), r.Epoch, r.TTL.Microseconds(), r.Draining, shardArgs(r.Shards), store.EncodeServed(r.Serves)).
			Scan(append([]any{&expires, &mail, &peerMail}, v.targets()...)...)
		s.renewed = time.Now()
		if err == nil && expires == nil {
			return store.View{}, fencedError(op)
		}

		if err == nil {
			view := v.view(s.info.Groups)
			view.Mail, view.PeerMail = mail, peerMail
			for i := range view.Members { // the statement sees the row as it was before the update
				if view.Members[i].ID == r.Node {
					view.Members[i].Expires, view.Members[i].TTL = *expires, r.TTL
					view.Members[i].Draining, view.Members[i].Serves = r.Draining, r.Serves
				}
			}
			return view, nil
		}

		var pg *pgconn.PgError
		if s.renewer.IsClosed() || errors.As(err, &pg) && breaksConnection(pg.Code) {
			_ = s.dropRenewer()
			if try == 0 && ctx.Err() == nil {
				continue // renewing twice is harmless
			}
		}

		return store.View{}, classify(ctx, op, true, err)
	}
}

// connectRenewer opens the connection for renewals if there is none.
func (s *Store) connectRenewer(ctx context.Context) (err error) {
	if s.renewer != nil && !healthy(s.renewer.PgConn().Conn()) {
		_ = s.dropRenewer()
	}
	if s.renewer == nil {
		s.renewer, err = pgx.ConnectConfig(ctx, s.cfg.connConfig(s.cfg.baseSettings(s.cfg.part(3), s.cfg.part(3))))
		if err != nil {
			return connectError(s.cfg.server, err)
		}
	}
	return nil
}

func (s *Store) dropRenewer() error {
	c := s.renewer
	if s.renewer = nil; c == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return c.Close(ctx)
}

// FenceNode ends a node. It locks the lease and then the fences, so it waits for commits in flight
// on the node. If it cannot lock the row of the node in time, it ends no session: another node may
// be fencing this one, or a person may have changed the row and not committed, and the node itself
// may be alive.
func (s *Store) FenceNode(ctx context.Context, r store.FenceRequest) (ended bool, err error) {
	const (
		waitFor    = `select set_config('lock_timeout', $1, true)`
		lockNode   = `select epoch, expires, expires <= {now} from {schema}.nodes where node = $1 for update`
		deleteNode = `delete from {schema}.nodes where node = $1`
	)

	err = s.work(ctx, "fence node", true, func(ctx context.Context, c *pgx.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, waitFor, strconv.FormatInt(s.cfg.part(1).Milliseconds(), 10)); err != nil {
				return err
			}

			var epoch, expires int64
			var expired bool
			switch err := tx.QueryRow(ctx, s.sql(lockNode), nodeArg(r.Node)).Scan(&epoch, &expires, &expired); {
			case errors.Is(err, pgx.ErrNoRows):
				ended = true // the node is already gone
				return nil
			case err != nil:
				return err
			case !r.Ends(epoch, model.Time(expires), expired):
				ended = false
				return nil
			}

			if err := s.deleteFences(ctx, tx, r.Node); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, s.sql(deleteNode), nodeArg(r.Node))
			ended = true
			return err
		})
	})

	return ended && err == nil, patient(err)
}

// deleteFences deletes the fences of a node that has ended. The transaction has locked the row of
// the node, so the node cannot renew its lease in the meantime.
func (s *Store) deleteFences(ctx context.Context, tx pgx.Tx, node model.NodeID) error {
	const deleteFences = `delete from {schema}.fences where node = $1`
	try := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.sql(deleteFences), nodeArg(node))
		return err
	}

	err := pgx.BeginFunc(ctx, tx, try) // with a savepoint, so the transaction survives a time-out
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != codeLockNotAvailable {
		return err
	}
	// A session still holds the lock on a fence. If a process was stopped in the middle of a write,
	// or the network loses packets, its session can stay alive longer than all our timeouts.
	if err := s.endHolders(ctx, tx, node); err != nil {
		return err
	}
	return try(tx)
}

// endHolders ends the commit connections of a node that hold locks on its fences. The server allows
// this, because the same database role has opened them. The session of a person who holds such a
// lock stays.
func (s *Store) endHolders(ctx context.Context, tx pgx.Tx, node model.NodeID) error {
	// A transaction that has locked a row is the xmax of the row, and holds a lock on its own id.
	const end = `
select pg_terminate_backend(a.pid) from pg_stat_activity a
where a.datname = current_database() and position($2 in a.application_name) > 0 and a.pid in (
  select l.pid from {schema}.fences f join pg_locks l on l.transactionid = f.xmax
  where f.node = $1 and l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted)`
	_, err := tx.Exec(ctx, s.sql(end), nodeArg(node), node.String()+" lane")
	return err
}

// patient returns an error of class Away if the statement gave up waiting for a lock. So the caller
// decides whether to wait longer.
func patient(err error) error {
	var e *store.Error
	var pg *pgconn.PgError
	if errors.As(err, &e) && e.Class == store.Retryable && errors.As(err, &pg) && (pg.Code == codeLockNotAvailable || pg.Code == codeQueryCanceled) {
		return &store.Error{Class: store.Away, Op: e.Op, Err: e.Err}
	}
	return err
}

// Acquire takes shards that are free or whose owner has been fenced. It returns them together with
// the shards that the node already owns.
//
// It is one round trip. Every statement sees what was committed before the statement began. The
// update begins after the rows of the shards are locked, so it sees every node that has taken one
// of these shards before. The positions are read after the last commit of the previous owner.
//
// The messages are read before the cursors of their receivers. At the same time, a receiver may
// advance its cursor, and a sweep may delete the messages up to that cursor. If Acquire read the
// cursors first, it could miss both the deleted messages and the new cursor. Then the next message
// would get a position that the receiver has passed, and the receiver would ignore the message.
func (s *Store) Acquire(ctx context.Context, node model.NodeID, epoch int64, shards []model.ShardID) ([]store.AcquiredShard, error) {
	const (
		lockNode   = `select 1 from {schema}.nodes where node = $1 and epoch = $2 for update`
		lockShards = `select 1 from {schema}.shards where shard = any ($1) order by shard for update`
		take       = `
update {schema}.shards s set node = $1, epoch = $2
where s.shard = any ($3) and exists (select from {schema}.nodes n where n.node = $1 and n.epoch = $2)
  and (s.node is null or s.node = $1 and s.epoch = $2 or not exists (select from {schema}.nodes n where n.node = s.node and n.epoch = s.epoch))
returning s.shard, s.tokens`
		received = `select to_shard, from_shard, position from {schema}.cursors where to_shard = any ($1)`
		consumed = `select to_shard, from_shard, position from {schema}.cursors where from_shard = any ($1)`
		// The last message between every two shards. The query skips through the index from pair to
		// pair instead of reading all messages.
		waiting = `
with recursive pairs as (
  (select to_shard, from_shard from {schema}.messages order by to_shard, from_shard limit 1)
  union all
  select n.to_shard, n.from_shard from pairs p cross join lateral (
    select m.to_shard, m.from_shard from {schema}.messages m
    where (m.to_shard, m.from_shard) > (p.to_shard, p.from_shard) order by m.to_shard, m.from_shard limit 1) n
)
select p.to_shard, p.from_shard, l.seq from pairs p cross join lateral (
  select m.seq from {schema}.messages m where m.to_shard = p.to_shard and m.from_shard = p.from_shard order by m.seq desc limit 1) l
where p.from_shard = any ($1)`
	)

	const op = "acquire"
	var out []store.AcquiredShard
	err := s.work(ctx, op, true, func(ctx context.Context, c *pgx.Conn) error {
		want := shardArgs(shards)
		var batch pgx.Batch
		for _, sql := range []string{lockNode, lockShards, take, received, waiting, consumed} {
			switch sql {
			case lockNode:
				batch.Queue(s.sql(sql), nodeArg(node), epoch)
			case take:
				batch.Queue(s.sql(sql), nodeArg(node), epoch, want)
			default:
				batch.Queue(s.sql(sql), want)
			}
		}
		results := c.SendBatch(ctx, &batch)
		err := readAcquired(results, &out)
		return errors.Join(err, results.Close())
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

// takenShard is a shard that the node has acquired.
type takenShard struct {
	Shard  int16
	Tokens int64
}

func readAcquired(results pgx.BatchResults, out *[]store.AcquiredShard) error {
	alive, err := results.Exec()
	if err != nil {
		return err
	}
	if _, err = results.Exec(); err != nil {
		return err
	}

	rows, err := results.Query()
	if err != nil {
		return err
	}
	taken, err := pgx.CollectRows(rows, pgx.RowToStructByPos[takenShard])
	if err != nil {
		return err
	}

	if alive.RowsAffected() == 0 {
		return fencedError("acquire")
	}
	byShard := make(map[model.ShardID]*store.AcquiredShard, len(taken))
	*out = make([]store.AcquiredShard, len(taken))

	for i, s := range taken {
		a := &(*out)[i]
		*a = store.AcquiredShard{Shard: model.ShardID(s.Shard), Received: map[model.ShardID]int64{}, Sent: map[model.ShardID]int64{}, Tokens: s.Tokens}
		byShard[a.Shard] = a
	}

	for i := range 3 {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		var to, from model.ShardID
		var position int64

		_, err = pgx.ForEachRow(rows, []any{&to, &from, &position}, func() error {
			if i == 0 {
				if a := byShard[to]; a != nil {
					a.Received[from] = position
				}
			} else if a := byShard[from]; a != nil {
				a.Sent[to] = max(a.Sent[to], position)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}

	return nil
}

// SetDrained stores the order that a node must hand its shards over, or withdraws the order.
// Repeating the call changes nothing.
func (s *Store) SetDrained(ctx context.Context, node model.NodeID, drained bool) (found bool, err error) {
	const set = `update {schema}.nodes set drained = $2 where node = $1`
	err = s.work(ctx, "set drained", true, func(ctx context.Context, c *pgx.Conn) error {
		tag, err := c.Exec(ctx, s.sql(set), nodeArg(node), drained)
		found = err == nil && tag.RowsAffected() == 1
		return err
	})
	return found, err
}

// Unregister removes a node with its fences and frees the shards that it still owns.
func (s *Store) Unregister(ctx context.Context, node model.NodeID, epoch int64) error {
	const (
		deleteNode   = `delete from {schema}.nodes where node = $1 and epoch = $2`
		deleteFences = `delete from {schema}.fences where node = $1`
		freeShards   = `update {schema}.shards set node = null, epoch = 0 where node = $1 and epoch = $2`
	)

	err := s.work(ctx, "unregister", true, func(ctx context.Context, c *pgx.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, s.sql(deleteNode), nodeArg(node), epoch)
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			var batch pgx.Batch
			batch.Queue(s.sql(deleteFences), nodeArg(node)) // waits for a commit in flight
			batch.Queue(s.sql(freeShards), nodeArg(node), epoch)
			return tx.SendBatch(ctx, &batch).Close()
		})
	})
	if err == nil {
		s.dropLanes(node)
	}

	return err
}

// Refence moves the fence of a lane to a new epoch. An orphan is a commit whose sender no
// longer waits for it. The update waits for an orphan that holds the row, and sees its result. A
// later orphan finds another epoch and fails.
func (s *Store) Refence(ctx context.Context, l store.LaneRef) (epoch, landed int64, err error) {
	const refence = `update {schema}.fences set epoch = $4 where node = $1 and lane = $2 and epoch = any ($3) returning batch`
	const op = "refence"
	// If the answer to the update is lost, the fence may already have the new epoch. So the next
	// attempt accepts every epoch that this call has drawn.
	ours := []int64{l.Epoch}
	for try := 0; ; try++ {
		err = s.work(ctx, op, true, func(ctx context.Context, c *pgx.Conn) error {
			if epoch, err = s.drawEpoch(ctx, c); err != nil {
				return err
			}
			err := c.QueryRow(ctx, s.sql(refence), nodeArg(l.Node), clampLane(l.Lane), ours, epoch).Scan(&landed)
			if errors.Is(err, pgx.ErrNoRows) {
				return fencedError(op)
			}
			return err
		})
		const tries = 3
		if store.ClassOf(err) != store.Unknown || err == nil || try == tries || ctx.Err() != nil {
			break
		}
		ours = append(ours, epoch)
	}

	if err != nil {
		return 0, 0, patient(err)
	}
	return epoch, landed, nil
}
