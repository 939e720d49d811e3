package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlRunnable = `select run, tenant, workflow, key from perdure_executions
		where shard = ?1 and run > ?2 and state = 0 order by run limit ?3`
	sqlLoadEvents = `select seq, at, kind, body from perdure_history where run = ?1 and shard = ?2 and seq > ?3 order by seq limit ?4`
	sqlEventsOf   = `select seq, at, kind, body from perdure_history where run = ?1 and shard = ?2 and seq < ?3 and kind = ?4 order by seq desc limit ?5`
	sqlLoadTimers = `select due, run, id, tenant, workflow, key from perdure_timers
		where shard = ?1 and (due, run, id) > (?2, ?3, ?4) and due <= ?5 order by due, run, id limit ?6`
	sqlRunTimers = `select due, run, id, tenant, workflow, key from perdure_timers where run = ?1 and shard = ?2 order by id`
)

// distinct is the shards of a request in order, each once.
func distinct(shards []model.ShardID) []model.ShardID {
	return slices.Compact(slices.Sorted(slices.Values(shards)))
}

// LoadRunnable returns open runs that are not parked.
func (s *Store) LoadRunnable(ctx context.Context, shards []model.ShardID, after store.RunKey, limit int) (out []store.RunHead, err error) {
	err = s.read(ctx, "load runnable", func(c *conn) error {
		for _, shard := range distinct(shards) {
			if shard < after.Shard || len(out) >= limit {
				continue
			}
			var from model.RunID
			if shard == after.Shard {
				from = after.Run
			}
			err := c.query(sqlRunnable, heads(&out, shard), int(shard), from[:], limit-len(out))
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

// heads collects runs of a shard with their addresses.
func heads(out *[]store.RunHead, shard model.ShardID) func(q *stmt) error {
	return func(q *stmt) error {
		run, ok := q.id(0)
		if !ok {
			return corrupt(fmt.Errorf("an id is not 16 bytes long"), "executions")
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
		size := 0
		return c.query(sqlLoadEvents, func(q *stmt) error {
			if size += len(q.raw(3)); size > maxBytes && len(out) > 0 {
				return errStop
			}
			e, err := eventOf(q, key)
			out = append(out, e)
			return err
		}, key.Run[:], int(key.Shard), after, limit)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LoadEventsOf returns stored events of one kind, the newest first.
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

// eventOf is the event of a row: seq, at, kind, body.
func eventOf(q *stmt, key store.RunKey) (model.Event, error) {
	seq, at := q.int(0), model.Time(q.int(1))
	kind := model.EventKind(q.int(2))
	if q.int(2) > math.MaxUint8 || q.int(2) < 0 {
		kind = 0 // of no build; the checksum says so too
	}
	body, err := unseal(eventColumns(make([]byte, 0, 64), key, seq, at, kind), q.raw(3))
	if err != nil {
		return model.Event{}, corrupt(err, "history, run %s, position %d", key.Run, seq)
	}
	e, err := model.DecodeEvent(seq, at, kind, body)
	if err != nil {
		return e, corrupt(err, "history, run %s, position %d", key.Run, seq)
	}
	return e, nil
}

// LoadTimers returns timers in the order in which they are due.
func (s *Store) LoadTimers(ctx context.Context, shards []model.ShardID, after store.TimerMark, until model.Time, limit int) (out []store.Timer, err error) {
	err = s.read(ctx, "load timers", func(c *conn) error {
		// Each shard has its own order. What was found so far bounds the search in the next shard, so that about
		// limit × ln(shards) rows are read and not limit × shards.
		until := until
		for _, shard := range distinct(shards) {
			err := c.query(sqlLoadTimers, func(q *stmt) error {
				t, err := scanTimer(q, shard)
				out = append(out, t)
				return err
			}, int(shard), int64(after.Due), after.Run[:], after.ID, int64(until), limit)
			if err != nil {
				return err
			}
			if len(out) >= limit {
				slices.SortFunc(out, compareTimers)
				out = out[:limit]
				until = out[limit-1].Due
			}
		}
		slices.SortFunc(out, compareTimers)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func compareTimers(a, b store.Timer) int {
	return cmp.Or(cmp.Compare(a.Due, b.Due), a.Run.Compare(b.Run), cmp.Compare(a.ID, b.ID))
}

// LoadRunTimers returns the open timers of one run.
func (s *Store) LoadRunTimers(ctx context.Context, key store.RunKey) (out []store.Timer, err error) {
	err = s.read(ctx, "load timers of a run", func(c *conn) error {
		return c.query(sqlRunTimers, func(q *stmt) error {
			t, err := scanTimer(q, key.Shard)
			out = append(out, t)
			return err
		}, key.Run[:], int(key.Shard))
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func scanTimer(q *stmt, shard model.ShardID) (store.Timer, error) {
	t := store.Timer{
		Shard: shard, ID: q.text(2), Due: model.Time(q.int(0)),
		Address: model.Address{Tenant: q.text(3), Type: q.text(4), Key: q.text(5)},
	}
	run, ok := q.id(1)
	if !ok {
		return t, corrupt(fmt.Errorf("an id is not 16 bytes long"), "timers, timer %q", t.ID)
	}
	t.Run = run
	return t, nil
}
