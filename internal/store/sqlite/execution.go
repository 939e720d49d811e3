package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// selectExecution reads rows of runs in the order that scanExecution expects.
const selectExecution = `select e.run, e.shard, e.state, e.current, e.started, e.closed, e.tenant, e.workflow, e.key,
	coalesce(e.start, (select s.body from perdure_starts s where s.run = e.run and s.shard = e.shard)),
	e.outcome, e.waits, e.blocked from perdure_executions e `

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
	body, err := unseal(startColumns(nil, key, a, at), q.raw(9))
	if err != nil {
		return bad("start", err)
	}
	if e.Start, err = model.DecodeStart(a, run, at, body); err != nil {
		return bad("start", err)
	}
	state := q.int(2)
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

// currentRun reads the current run of an address; nil when there is none.
func currentRun(c *conn, a model.Address) (*store.Execution, error) {
	return oneExecution(c, sqlCurrentRun, a.Tenant, a.Type, a.Key)
}

// LoadExecution returns the current run of an address, or the run itself.
func (s *Store) LoadExecution(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (found *store.Execution, err error) {
	err = s.read(ctx, "load execution", func(c *conn) (err error) {
		if run.IsZero() {
			if found, err = currentRun(c, a); found != nil && found.Shard != shard {
				found = nil // the caller is mistaken about the shard
			}
		} else {
			found, err = oneExecution(c, sqlRun, run[:], int(shard))
		}
		return err
	})
	return found, err
}

// LoadOutcomes returns the rows of those runs that are closed.
func (s *Store) LoadOutcomes(ctx context.Context, keys []store.RunKey) (out []store.Execution, err error) {
	err = s.read(ctx, "load outcomes", func(c *conn) error {
		for _, k := range keys {
			e, err := oneExecution(c, sqlRun, k.Run[:], int(k.Shard))
			if err != nil {
				return err
			}
			if e != nil && e.Outcome.Status.Closed() {
				out = append(out, *e)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// filter is the condition of a listing and its arguments.
type filter struct {
	sql  strings.Builder
	args []any
}

func (f *filter) and(condition string, args ...any) {
	if f.sql.Len() == 0 {
		f.sql.WriteString("where ")
	} else {
		f.sql.WriteString(" and ")
	}
	f.sql.WriteString(condition)
	f.args = append(f.args, args...)
}

// newFilter is the condition for all pages of a query.
func newFilter(q *store.Query) *filter {
	f := &filter{}
	f.and("tenant = ?", q.Tenant)
	if q.Workflow != "" {
		f.and("workflow = ?", q.Workflow)
	}
	if q.KeyPrefix != "" {
		f.and("key >= ?", q.KeyPrefix)
		if end := prefixEnd(q.KeyPrefix); end != "" {
			f.and("key < ?", end)
		}
	}
	if !q.AllRuns {
		f.and("current = 1")
	}
	if q.StartedFrom != 0 {
		f.and("started >= ?", int64(q.StartedFrom))
	}
	if q.StartedTo != 0 {
		f.and("started < ?", int64(q.StartedTo))
	}
	if len(q.Statuses) > 0 {
		var states []string
		for status := model.Running; status <= model.LastStatus; status++ {
			if slices.Contains(q.Statuses, status) {
				states = append(states, statesOf(status))
			}
		}
		f.and("state in (" + strings.Join(states, ", ") + ")")
	}
	return f
}

// statesOf are the values of the column for a status.
func statesOf(s model.Status) string {
	if s == model.Running {
		return fmt.Sprintf("%d, %d", stateRunnable, stateParked)
	}
	return fmt.Sprint(int(s))
}

// prefixEnd is the smallest text, by bytes, above all texts with a prefix; empty when there is none.
func prefixEnd(prefix string) string {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return string(end[:i+1])
		}
	}
	return ""
}

// List returns executions, newest start first.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	f := newFilter(&q)
	if q.After != (store.PageMark{}) {
		f.and("(started, run) < (?, ?)", int64(q.After.Started), q.After.Run[:])
	}
	// Newest first by default. A prefix of keys of one workflow selects so little that it is better found first and sorted then.
	index := "indexed by perdure_executions_listing "
	if q.Workflow != "" && q.KeyPrefix != "" && !q.AllRuns {
		index = "indexed by perdure_executions_current "
	}
	sql := selectExecution + index + f.sql.String() + " order by started desc, run desc limit ?"
	err = s.read(ctx, "list", func(c *conn) error {
		return c.query(sql, func(row *stmt) error {
			if len(page.Executions) == q.Limit {
				page.More = true
				return errStop
			}
			e, err := scanExecution(row)
			if run, ok := row.id(0); ok && fault.Is(err, fault.Corrupt) {
				status := model.Running
				if state := row.int(2); state >= stateClosed {
					status = model.Status(state)
				}
				a := model.Address{Tenant: row.text(6), Type: row.text(7), Key: row.text(8)}
				e.Unreadable(model.Start{Address: a, Run: run, At: model.Time(row.int(4))}, status, err)
				err = nil
			}
			page.Executions = append(page.Executions, e)
			return err
		}, append(f.args, q.Limit+1)...)
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

// Count counts executions that match.
func (s *Store) Count(ctx context.Context, q store.Query) (n int64, err error) {
	f := newFilter(&q)
	err = s.read(ctx, "count", func(c *conn) (err error) {
		n, _, err = c.number("select count(*) from perdure_executions "+f.sql.String(), f.args...)
		return err
	})
	return n, err
}
