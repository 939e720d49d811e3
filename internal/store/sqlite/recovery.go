package sqlite

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlRunnable = `select run, tenant, workflow, key from perdure_executions
		where shard = ?1 and run > ?2 and state = 0 order by run`
	// Large bodies are in perdure_bodies. If a body is missing there, the column is null, which is
	// not a valid body.
	sqlEvents = `select seq, at, kind, iif(length(body) > 1, body,
		(select b.body from perdure_bodies b where b.run = ?1 and b.shard = ?2 and b.seq = perdure_history.seq))
		from perdure_history where run = ?1 and shard = ?2 `
	sqlLoadEvents = sqlEvents + `and seq > ?3 order by seq limit ?4`
	sqlEventsOf   = sqlEvents + `and seq < ?3 and kind = ?4 order by seq desc limit ?5`
	sqlLastEvent  = `select max(seq) from perdure_history where run = ?1 and shard = ?2`
	// sqlScheduled returns the last position, and whether the run has an event of a kind.
	sqlScheduled  = `select (` + sqlLastEvent + `), exists (select 1 from perdure_history where run = ?1 and shard = ?2 and kind = ?3)`
	sqlLoadTimers = `select due, run, id, tenant, workflow, key from perdure_timers
		where shard = ?1 and (due, run, id) > (?2, ?3, ?4) and due <= ?5 order by due, run, id`
	sqlRunTimers = `select due, run, id, tenant, workflow, key from perdure_timers where run = ?1 and shard = ?2 order by id`
)

// distinct returns the shards of a request in order, each once.
func distinct(shards []model.ShardID) []model.ShardID {
	return slices.Compact(slices.Sorted(slices.Values(shards)))
}

// LoadRunnable returns open runs that are not parked.
func (s *Store) LoadRunnable(ctx context.Context, shards []model.ShardID, after store.RunKey, limit int) (out []store.RunHead, err error) {
	const op = "load runnable"
	var skipped store.Skipped
	err = s.read(ctx, op, func(c *conn) error {
		out, skipped = nil, store.Skipped{}
		// The page continues in the shard of the mark, after the run of the mark. Then it continues
		// in the next shards, from their beginning.
		for _, shard := range distinct(shards) {
			if shard < after.Shard || len(out) >= limit {
				continue
			}
			var from model.RunID
			if shard == after.Shard {
				from = after.Run
			}
			err := c.query(sqlRunnable, heads(&out, shard, limit, &skipped), int(shard), from[:])
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}

	return out, skipped.Err(op)
}

// heads returns a function that collects runs of a shard with their addresses, up to the limit.
func heads(out *[]store.RunHead, shard model.ShardID, limit int, skipped *store.Skipped) func(q *stmt) error {
	return func(q *stmt) error {
		run, ok := q.id(0)
		if len(*out) >= limit {
			return errStop
		}
		if !ok {
			skipped.Note(noID("executions, shard %d, key %q of workflow %q", shard, q.text(3), q.text(2)))
			return nil
		}
		*out = append(*out, store.RunHead{
			RunKey:  store.RunKey{Shard: shard, Run: run},
			Address: model.Address{Tenant: q.text(1), Type: q.text(2), Key: q.text(3)},
		})
		return nil
	}
}

// LoadEvents returns stored events of a run.
func (s *Store) LoadEvents(ctx context.Context, key store.RunKey, after int64, limit, maxBytes int) (out []model.Event, err error) {
	err = s.read(ctx, "load events", func(c *conn) error {
		p, err := loadEvents(c, key, after, limit, maxBytes)
		out = p.events
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// eventPage is a page of events of a run.
type eventPage struct {
	events []model.Event
	size   int  // size of their bodies
	more   bool // there may be more events
}

// loadEvents reads a page of events.
//
//arch:parameters the connection, and the parameters of LoadEvents
func loadEvents(c *conn, key store.RunKey, after int64, limit, maxBytes int) (p eventPage, err error) {
	err = c.query(sqlLoadEvents, func(q *stmt) error {
		// Return the first event however large it is. Otherwise the run could never be loaded.
		n := len(q.raw(3))
		if p.size+n > maxBytes && len(p.events) > 0 {
			p.more = true
			return errStop
		}
		p.size += n
		e, err := eventOf(q, key)
		p.events = append(p.events, e)
		return err
	}, key.Run[:], int(key.Shard), after, limit)
	p.more = p.more || len(p.events) == limit
	return p, err
}

// LoadEventsOf returns stored events of one kind, newest first.
func (s *Store) LoadEventsOf(ctx context.Context, key store.RunKey, kind model.EventKind, before int64, limit int) (out []model.Event, err error) {
	err = s.read(ctx, "load events", func(c *conn) error {
		return c.query(sqlEventsOf, func(q *stmt) error {
			e, err := eventOf(q, key)
			out = append(out, e)
			return err
		}, key.Run[:], int(key.Shard), before, int(kind), limit)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LastEvent returns the highest position of the stored events of a run.
func (s *Store) LastEvent(ctx context.Context, key store.RunKey) (last int64, err error) {
	err = s.read(ctx, "count events", func(c *conn) error {
		return c.query(sqlLastEvent, func(q *stmt) error {
			last = q.int(0) // null is 0
			return nil
		}, key.Run[:], int(key.Shard))
	})
	return last, err
}

// eventOf decodes the event of a row: seq, at, kind, body.
func eventOf(q *stmt, key store.RunKey) (model.Event, error) {
	seq, at := q.int(0), model.Time(q.int(1))
	kind := model.EventKind(q.int(2))
	if q.int(2) > math.MaxUint8 || q.int(2) < 0 {
		kind = 0 // a kind that no build has; the checksum fails too
	}
	body, err := unseal(eventColumns(make([]byte, 0, 64), key, &model.Event{Seq: seq, At: at, Kind: kind}), q.raw(3))
	if err != nil {
		return model.Event{}, corrupt(err, "history, run %s, position %d", key.Run, seq)
	}
	e, err := model.DecodeEvent(seq, at, kind, body)
	if err != nil {
		return e, corrupt(err, "history, run %s, position %d", key.Run, seq)
	}
	return e, nil
}

// LoadRun returns what the engine needs to continue a run.
//
//arch:parameters the signature is part of the store port
func (s *Store) LoadRun(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID, limit, maxBytes int) (r store.Run, err error) {
	err = s.read(ctx, "load run", func(c *conn) error {
		x, err := loadExecution(c, shard, a, run)
		if err == nil {
			r, _, err = loadRest(c, x, limit, maxBytes)
		}
		return err
	})
	return r, err
}

// LoadRuns returns what the engine needs to continue several runs.
func (s *Store) LoadRuns(ctx context.Context, keys []store.AddressKey, limit, maxBytes int) (runs []store.Run, err error) {
	err = s.read(ctx, "load runs", func(c *conn) error {
		runs = make([]store.Run, 0, len(keys))
		left := maxBytes
		for i := range keys {
			if left <= 0 && i > 0 {
				break
			}
			x, err := loadExecution(c, keys[i].Shard, keys[i].Address, model.RunID{})
			if err != nil {
				return err
			}
			r, size, err := loadRest(c, x, limit, left)
			if err != nil {
				return err
			}
			runs = append(runs, r)
			left -= size
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return runs, nil
}

// loadRest reads the events and the timers of an open run. It also returns the size of the bodies
// that it has read.
func loadRest(c *conn, x *store.Execution, limit, maxBytes int) (r store.Run, size int, err error) {
	if x == nil {
		return r, 0, nil
	}
	r.Execution = x
	size = x.Start.Input.Size() + x.Outcome.Output.Size()
	for i := range x.Start.Carried {
		size += x.Start.Carried[i].Size()
	}
	if x.Outcome.Status.Closed() {
		return r, size, nil
	}

	key := store.RunKey{Shard: x.Shard, Run: x.Start.Run}
	p, err := loadEvents(c, key, 0, limit, maxBytes-size)
	r.Events, r.More = p.events, p.more
	if err == nil {
		r.Timers, err = loadRunTimers(c, key)
	}
	return r, size + p.size, err
}

// LoadTimers returns timers in the order in which they are due.
//
// The index orders the timers of each shard separately. So LoadTimers works in rounds, and each
// round reads a portion of every shard. A full portion means that its shard may have more timers
// after the last one of the portion. The earliest of these last timers is the bound of the round:
// up to the bound, LoadTimers knows all timers of all shards. It keeps the timers up to the bound
// and drops the others. The next round starts at the bound and reads larger portions. Because the
// portions start small, LoadTimers drops few timers, even if all timers are due at the same moment.
func (s *Store) LoadTimers(ctx context.Context, shards []model.ShardID, after store.TimerMark, until model.Time, limit int) (out []store.Timer, err error) {
	const op = "load timers"
	all := distinct(shards)
	if len(all) == 0 || limit <= 0 {
		return nil, nil
	}
	var skipped store.Skipped

	err = s.read(ctx, op, func(c *conn) error {
		out, skipped = nil, store.Skipped{}
		w := timerWalk{conn: c, shards: all, mark: after, until: until, skipped: &skipped}
		more := true
		// Start with about twice the fair share of each shard. Most calls need one round.
		for portion := max(16, 2*limit/len(all)); more && len(w.found) < limit; portion *= 2 {
			var err error
			if more, err = w.read(min(portion, limit)); err != nil {
				return err
			}
		}
		out = w.found[:min(len(w.found), limit)]
		return nil
	})
	if err != nil {
		return nil, err
	}

	return out, skipped.Err(op)
}

// timerWalk collects timers of several shards in the order in which they are due.
type timerWalk struct {
	conn    *conn
	shards  []model.ShardID
	until   model.Time
	skipped *store.Skipped

	// found has all timers up to mark, in order.
	found []store.Timer
	mark  store.TimerMark
}

// read makes one round: it reads at most portion timers of each shard after the mark. It keeps the
// timers up to the bound of the round (see LoadTimers), and moves the mark to the bound. It reports
// whether there may be more timers.
func (w *timerWalk) read(portion int) (more bool, err error) {
	begin := len(w.found)
	var bound *store.Timer
	for _, shard := range w.shards {
		from := len(w.found)
		err := w.conn.query(sqlLoadTimers, func(q *stmt) error {
			t, err := scanTimer(q, shard)
			switch {
			case len(w.found)-from == portion:
				return errStop
			case err != nil:
				w.skipped.Note(err)
			default:
				w.found = append(w.found, t)
			}
			return nil
		}, int(shard), int64(w.mark.Due), w.mark.Run[:], w.mark.ID, int64(w.until))
		if err != nil {
			return false, err
		}

		// This shard may have more timers after the last one of its portion. They may be due before
		// the later timers of other shards.
		if len(w.found)-from == portion {
			if last := w.found[len(w.found)-1]; bound == nil || compareTimers(last, *bound) < 0 {
				bound = &last
			}
		}
	}

	// Drop the timers after the bound. The next round reads them again.
	page := w.found[begin:]
	if bound != nil {
		page = slices.DeleteFunc(page, func(t store.Timer) bool { return compareTimers(t, *bound) > 0 })
		w.mark = store.TimerMark{Due: bound.Due, Run: bound.Run, ID: bound.ID}
	}

	slices.SortFunc(page, compareTimers)
	w.found = w.found[:begin+len(page)]
	return bound != nil, nil
}

// compareTimers orders timers as the store returns them.
func compareTimers(a, b store.Timer) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), a.Run.Compare(b.Run), cmp.Compare(a.ID, b.ID))
}

// LoadRunTimers returns the open timers of one run.
func (s *Store) LoadRunTimers(ctx context.Context, key store.RunKey) (out []store.Timer, err error) {
	err = s.read(ctx, "load timers of a run", func(c *conn) (err error) {
		out, err = loadRunTimers(c, key)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func loadRunTimers(c *conn, key store.RunKey) (out []store.Timer, err error) {
	err = c.query(sqlRunTimers, func(q *stmt) error {
		t, err := scanTimer(q, key.Shard)
		out = append(out, t)
		return err
	}, key.Run[:], int(key.Shard))
	return out, err
}

// scanTimer reads a timer: due, run, id and the address.
func scanTimer(q *stmt, shard model.ShardID) (store.Timer, error) {
	t := store.Timer{
		Shard: shard, ID: q.text(2), Due: model.Time(q.int(0)),
		Address: model.Address{Tenant: q.text(3), Type: q.text(4), Key: q.text(5)},
	}
	run, ok := q.id(1)
	if !ok {
		return t, noID("timers, timer %q of %s", t.ID, t.Address)
	}
	t.Run = run
	return t, nil
}
