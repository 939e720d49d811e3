package sqlite

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// selectExecution reads rows of runs in the order that scanExecution expects.
const selectExecution = `select ` + executionColumns + ` from perdure_executions e `

// executionColumns reads a large start from its own table, see inlineStart.
const executionColumns = `e.run, e.shard, e.state, e.current, e.started, e.closed, e.tenant, e.workflow, e.key,
	coalesce(e.start, (select s.body from perdure_starts s where s.run = e.run and s.shard = e.shard)),
	e.outcome, e.waits, e.blocked`

const (
	sqlCurrentRun = selectExecution + `where tenant = ?1 and workflow = ?2 and key = ?3 and current = 1`
	sqlRun        = selectExecution + `where run = ?1 and shard = ?2`
)

// scanExecution reads the row of a run.
func scanExecution(q *stmt) (e store.Execution, err error) {
	run, ok := q.id(0)
	if !ok {
		return e, corrupt(fmt.Errorf("an id is not 16 bytes long"), "executions")
	}
	key := store.RunKey{Shard: model.ShardID(q.int(1)), Run: run}
	bad := func(what string, err error) (store.Execution, error) {
		return e, corrupt(err, "executions, run %s, %s", key.Run, what)
	}
	e.Shard, e.Current = key.Shard, q.int(3) != 0
	at, a := model.Time(q.int(4)), model.Address{Tenant: q.text(6), Type: q.text(7), Key: q.text(8)}
	// The checksum also covers the columns of the row. So unseal refuses a start that is stored
	// under another key or address.
	body, err := unseal(startColumns(nil, key, a, at), q.raw(9))
	if err != nil {
		return bad("start", err)
	}

	if e.Start, err = model.DecodeStart(a, run, at, body); err != nil {
		return bad("start", err)
	}
	state := q.int(2)
	// A closed run has an outcome. It has no waits and is not blocked.
	if state >= stateClosed {
		status, at := model.Status(state), model.Time(q.int(5))
		if body, err = unseal(outcomeColumns(nil, key, status, at), q.raw(10)); err != nil {
			return bad("outcome", err)
		}
		if e.Outcome, err = model.DecodeOutcome(status, at, body); err != nil {
			return bad("outcome", err)
		}
		return e, nil
	}

	e.Outcome.Status, e.Parked = model.Running, state == stateParked
	if e.Waits, err = scanReasons(q.raw(11), waitsColumns(nil, key)); err != nil {
		return bad("waits", err)
	}
	blocked, err := scanReasons(q.raw(12), blockedColumns(nil, key))
	if err != nil {
		return bad("blocked", err)
	}

	if len(blocked) > 0 {
		e.Blocked = &blocked[0]
	}
	return e, nil
}

// scanReasons reads reasons; null means none.
func scanReasons(sealed, columns []byte) ([]model.Reason, error) {
	if sealed == nil {
		return nil, nil
	}
	body, err := unseal(columns, sealed)
	if err != nil {
		return nil, err
	}
	return model.DecodeReasons(body)
}

// oneExecution reads at most one row of a run.
func oneExecution(c *conn, sql string, args ...any) (found *store.Execution, err error) {
	err = c.query(sql, func(q *stmt) error {
		e, err := scanExecution(q)
		found = &e
		return err
	}, args...)
	if err != nil {
		return nil, err
	}
	return found, nil
}

// currentRun reads the current run of an address, nil if there is none.
func currentRun(c *conn, a model.Address) (*store.Execution, error) {
	return oneExecution(c, sqlCurrentRun, a.Tenant, a.Type, a.Key)
}

// LoadExecution returns the current run of an address, or the given run.
func (s *Store) LoadExecution(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (found *store.Execution, err error) {
	err = s.read(ctx, "load execution", func(c *conn) (err error) {
		found, err = loadExecution(c, shard, a, run)
		return err
	})
	return found, err
}

func loadExecution(c *conn, shard model.ShardID, a model.Address, run model.RunID) (*store.Execution, error) {
	if !run.IsZero() {
		return oneExecution(c, sqlRun, run[:], int(shard))
	}
	// An address has at most one current run. Find it without the shard, and check the shard
	// afterwards.
	found, err := currentRun(c, a)
	if found != nil && found.Shard != shard {
		found = nil // the caller has the wrong shard
	}
	return found, err
}

// LoadDetails returns what a description of a run shows, from one snapshot.
func (s *Store) LoadDetails(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (d store.RunDetails, err error) {
	err = s.read(ctx, "load details of a run", func(c *conn) (err error) {
		d = store.RunDetails{}
		if d.Execution, err = loadExecution(c, shard, a, run); err != nil || d.Execution == nil {
			return err
		}
		key := d.Key()
		if d.Labels, err = loadLabels(c, key); err != nil {
			return err
		}
		if d.Execution.Outcome.Status.Closed() {
			d.Last, _, err = c.number(sqlLastEvent, key.Run[:], int(key.Shard))
			return err
		}

		err = c.query(sqlScheduled, func(q *stmt) error {
			d.Last, d.Tasks = q.int(0), q.int(1) != 0 // null is 0
			return nil
		}, key.Run[:], int(key.Shard), int(model.EventTaskScheduled))
		if err == nil {
			d.Timers, err = loadRunTimers(c, key)
		}
		return err
	})
	if err != nil {
		return store.RunDetails{}, err
	}
	return d, nil
}
