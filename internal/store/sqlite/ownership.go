package sqlite

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The file lock lets only one process open the store for writing, so the engine registers as the
// sole node of the store. Register removes the nodes of processes that are gone. So the engine
// needs neither leases nor /proc to find out whether a node in this store is dead.

// now returns the time of the clock by which the store judges leases.
func now() model.Time { return model.TimeOf(time.Now()) }

// fencedError returns the error for a node that has been fenced.
func fencedError(op string, node model.NodeID, epoch int64) error {
	return store.Errorf(store.Fenced, op, "%s is not registered under epoch %d", node, epoch)
}

// nextEpoch takes the next epoch from the counter.
func nextEpoch(c *conn) (int64, error) {
	epoch, found, err := c.number("update perdure_meta set value = value + 1 where name = 'epoch' returning value")
	if err == nil && !found {
		err = corrupt(fmt.Errorf("the counter of epochs is missing"), "meta")
	}
	return epoch, err
}

// Register adds a node, or replaces it if its id is known.
func (s *Store) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (r store.Registration, err error) {
	const op = "register"
	err = s.write(ctx, op, func(w *writer) (err error) {
		if r.Epoch, err = nextEpoch(w.conn); err != nil {
			return err
		}
		// The process holds the lock of the file, so all registered nodes belong to dead processes.
		if n.Sole {
			if err := removeNodes(w.conn); err != nil {
				return err
			}
		}

		r.Now = now()
		_, err = w.exec(`insert or replace into perdure_nodes (node, epoch, expires, draining, host, boot, namespace, pid, pid_start, version, ttl)
			values (?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?)`,
			n.ID[:], r.Epoch, int64(r.Now.Add(ttl)), n.Host, n.BootID, n.Namespace, n.PID, n.PIDStart, n.Version, ttl.Microseconds())
		if err != nil {
			return err
		}
		// A node that registers again gets new fences, so commits with the old epoch fail.
		if _, err := w.exec("delete from perdure_fences where node = ?", n.ID[:]); err != nil {
			return err
		}
		for lane := range lanes {
			if _, err := w.exec("insert into perdure_fences (node, lane, epoch, batch) values (?, ?, ?, 0)", n.ID[:], lane, r.Epoch); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return store.Registration{}, err
	}
	return r, nil
}

// Renew extends the lease and returns the view of the cluster.
func (s *Store) Renew(ctx context.Context, r store.RenewRequest) (v store.View, err error) {
	const op = "renew"
	err = s.write(ctx, op, func(w *writer) (err error) {
		at := now()
		draining := 0
		if r.Draining {
			draining = 1
		}
		changed, err := w.exec("update perdure_nodes set expires = ?, ttl = ?, draining = ?, serves = ? where node = ? and epoch = ?",
			int64(at.Add(r.TTL)), r.TTL.Microseconds(), draining, store.EncodeServed(r.Serves), r.Node[:], r.Epoch)
		if err != nil {
			return err
		}

		// No row means that the node was removed, or has registered again with another epoch.
		if changed != 1 {
			return fencedError(op, r.Node, r.Epoch)
		}
		if v, err = loadView(w.conn); err != nil {
			return err
		}
		// The node compares this time with its own clock, and uses it to decide which leases have
		// ended.
		v.Now = at
		v.Mail, err = hasMail(w.conn, r.Shards, at)

		return err
	})
	if err != nil {
		return store.View{}, err
	}

	return v, nil
}

// FenceNode removes a node and its fences if the lease of the node has ended or its death is
// proven. There is one writer, so no commit of the node is in flight.
func (s *Store) FenceNode(ctx context.Context, r store.FenceRequest) (ended bool, err error) {
	err = s.write(ctx, "fence", func(w *writer) error {
		at, known := now(), false
		err := w.query("select epoch, expires from perdure_nodes where node = ?", func(q *stmt) error {
			known = true
			// The clock of this process is the clock of the store and judges the lease.
			expires := model.Time(q.int(1))
			ended = r.Ends(q.int(0), expires, expires <= at)
			return nil
		}, r.Node[:])
		if err != nil {
			return err
		}

		// A node that is already gone cannot commit, because its fences are gone too.
		if !known {
			ended = true
		}
		if !known || !ended {
			return nil
		}

		return removeNode(w.conn, r.Node)
	})

	return ended && err == nil, err
}

// removeNode deletes a node and its fences.
func removeNode(c *conn, node model.NodeID) error {
	if _, err := c.exec("delete from perdure_fences where node = ?", node[:]); err != nil {
		return err
	}
	_, err := c.exec("delete from perdure_nodes where node = ?", node[:])
	return err
}

// removeNodes deletes every node with its fences. After that, Acquire treats the shards of these
// nodes as free.
func removeNodes(c *conn) error {
	if _, err := c.exec("delete from perdure_fences"); err != nil {
		return err
	}
	_, err := c.exec("delete from perdure_nodes")
	return err
}

// Acquire takes shards for a node.
func (s *Store) Acquire(ctx context.Context, node model.NodeID, epoch int64, shards []model.ShardID) (out []store.AcquiredShard, err error) {
	const op = "acquire"
	err = s.write(ctx, op, func(w *writer) error {
		// A fenced node must not get shards, even if it does not know yet that it is fenced.
		_, alive, err := w.number("select 1 from perdure_nodes where node = ? and epoch = ?", node[:], epoch)
		if err != nil {
			return err
		}
		if !alive {
			return fencedError(op, node, epoch)
		}

		out = nil
		for _, shard := range distinct(shards) {
			// Take the shard if it is free, if it belongs to a node that is gone, or if this node
			// already owns it. The last case happens if an earlier answer was lost.
			tokens, taken, err := w.number(`update perdure_shards set node = ?2, epoch = ?3 where shard = ?1 and
				(node is null or (node = ?2 and epoch = ?3) or not exists (
					select 1 from perdure_nodes n where n.node = perdure_shards.node and n.epoch = perdure_shards.epoch)) returning tokens`,
				int(shard), node[:], epoch)
			if err != nil {
				return err
			}
			if taken {
				out = append(out, store.AcquiredShard{
					Shard: shard, Received: map[model.ShardID]int64{}, Sent: map[model.ShardID]int64{}, Tokens: tokens,
				})
			}
		}

		return loadPositions(w.conn, out)
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

// loadPositions fills in Received and Sent: the positions of the last messages that the shards have
// received and sent.
func loadPositions(c *conn, shards []store.AcquiredShard) error {
	// The tables hold all pairs of shards. One pass over them is cheaper than a query per acquired
	// shard.
	byShard := make(map[model.ShardID]*store.AcquiredShard, len(shards))
	for i := range shards {
		byShard[shards[i].Shard] = &shards[i]
	}

	// The last sent position is in the table of messages. If a sweep has removed all messages to a
	// receiver, the last sent position is the cursor of that receiver.
	sent := func(to, from model.ShardID, seq int64) {
		if a := byShard[from]; a != nil {
			a.Sent[to] = max(a.Sent[to], seq)
		}
	}

	err := c.query("select to_shard, from_shard, seq from perdure_cursors", func(q *stmt) error {
		to, from, seq := model.ShardID(q.int(0)), model.ShardID(q.int(1)), q.int(2)
		if a := byShard[to]; a != nil {
			a.Received[from] = seq
		}
		sent(to, from, seq)
		return nil
	})
	if err != nil {
		return err
	}

	return eachPair(c, sent)
}

// eachPair calls f for every pair of shards that has messages, with the last position. It jumps
// from pair to pair, so its cost depends on the number of pairs and not on the number of messages.
func eachPair(c *conn, f func(to, from model.ShardID, last int64)) error {
	to, from := int64(-1), int64(-1)
	for {
		last, found := int64(0), false
		err := c.query(sqlNextPair, func(q *stmt) error {
			to, from, found = q.int(0), q.int(1), true
			return nil
		}, to, from)
		if err != nil || !found {
			return err
		}
		if last, _, err = c.number(sqlLastMessage, to, from); err != nil {
			return err
		}
		f(model.ShardID(to), model.ShardID(from), last)
	}
}

const (
	sqlNextPair = `select to_shard, from_shard from perdure_messages where (to_shard, from_shard) > (?1, ?2)
		order by to_shard, from_shard limit 1`
	sqlLastMessage = `select max(seq) from perdure_messages where to_shard = ?1 and from_shard = ?2`
)

// SetDrained refuses: only one process can have the file open for writing, so no other node could
// take the shards.
func (s *Store) SetDrained(context.Context, model.NodeID, bool) (bool, error) {
	return false, store.Errorf(store.Refused, "set drained", "%w",
		fault.New(fault.Conflict, "only one process can open this store: no other node could take the shards"))
}

// Unregister removes a node with its fences and frees the shards that it still owns.
func (s *Store) Unregister(ctx context.Context, node model.NodeID, epoch int64) error {
	const op = "unregister"
	return s.write(ctx, op, func(w *writer) error {
		_, found, err := w.number("select 1 from perdure_nodes where node = ? and epoch = ?", node[:], epoch)
		if err != nil {
			return err
		}
		if !found {
			return fencedError(op, node, epoch)
		}
		// The node may not have freed all its shards. Free the rest, so that no shard has an owner
		// that is gone.
		if _, err := w.exec("update perdure_shards set node = null, epoch = 0 where node = ?", node[:]); err != nil {
			return err
		}
		return removeNode(w.conn, node)
	})
}

// Refence moves a lane to a new epoch.
func (s *Store) Refence(ctx context.Context, l store.LaneRef) (epoch, landed int64, err error) {
	const op = "refence"
	err = s.write(ctx, op, func(w *writer) (err error) {
		// There is one writer. So a commit with an unknown result was either applied before this
		// transaction or will never be applied. The number of the batch in the fence shows which.
		if epoch, err = nextEpoch(w.conn); err != nil {
			return err
		}
		found := false
		landed, found, err = w.number("update perdure_fences set epoch = ? where node = ? and lane = ? and epoch = ? returning batch",
			epoch, l.Node[:], l.Lane, l.Epoch)
		if err == nil && !found {
			err = store.Errorf(store.Fenced, op, "lane %d of %s does not stand at epoch %d", l.Lane, l.Node, l.Epoch)
		}
		return err
	})
	if err != nil {
		return 0, 0, err
	}

	return epoch, landed, nil
}

// Members returns the nodes and the owners of the shards.
func (s *Store) Members(ctx context.Context) (v store.View, err error) {
	err = s.read(ctx, "members", func(c *conn) (err error) {
		v, err = loadView(c)
		v.Now = now()
		return err
	})
	if err != nil {
		return store.View{}, err
	}
	return v, nil
}

// loadView reads nodes and shards.
func loadView(c *conn) (v store.View, err error) {
	err = c.query(`select node, epoch, expires, draining, host, boot, namespace, pid, pid_start, version, serves, ttl
		from perdure_nodes order by node`, func(q *stmt) error {
		m := store.Member{
			NodeInfo: store.NodeInfo{
				Host: q.text(4), BootID: q.text(5), Namespace: q.text(6), PID: int(q.int(7)), PIDStart: q.int(8), Version: q.text(9),
			},
			Epoch: q.int(1), Expires: model.Time(q.int(2)), TTL: time.Duration(q.int(11)) * time.Microsecond,
			Draining: q.int(3) != 0, Serves: store.DecodeServed(q.text(10)),
		}
		id, ok := q.id(0)
		if !ok {
			return nil // no node has such an id, so no shard can belong to it
		}
		m.ID = id
		v.Members = append(v.Members, m)
		return nil
	})
	if err != nil {
		return v, err
	}

	err = c.query("select shard, node, epoch from perdure_shards order by shard", func(q *stmt) error {
		o := store.ShardOwner{Shard: model.ShardID(q.int(0)), Epoch: q.int(2)}
		if id, ok := q.id(1); ok {
			o.Node = id
		}
		v.Owners = append(v.Owners, o)
		return nil
	})
	if err != nil {
		return v, err
	}

	v.Settings, err = settingsCounter(c)
	return v, err
}
