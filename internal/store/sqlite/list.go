package sqlite

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// listing is the SQL statement that lists executions: its tables, condition, order and arguments.
type listing struct {
	from  string
	where strings.Builder
	args  []any
	// started and run are the columns of the leading table that order the listing.
	started, run string
}

// and adds a condition with its arguments.
func (l *listing) and(condition string, args ...any) {
	if l.where.Len() == 0 {
		l.where.WriteString(" where ")
	} else {
		l.where.WriteString(" and ")
	}
	l.where.WriteString(condition)
	l.args = append(l.args, args...)
}

// anyOf adds the condition that a column has one of several values.
func anyOf[T ~string](l *listing, column string, values []T) {
	if len(values) == 1 {
		l.and(column+" = ?", string(values[0]))
		return
	}
	// Pass all values in one argument, so that the text of the statement does not depend on their
	// number.
	l.and(column+" in (select value from json_each(?))", list(values))
}

// list encodes several texts as one argument.
func list[T ~string](values []T) string {
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // impossible: texts can be encoded
	}
	return string(text)
}

// newListing returns the statement for all pages of a query. The statement says which table or
// index to read first, because SQLite does not know how many rows each of them has. It reads the
// labels first if the query selects a label. Otherwise it reads the blocked runs first if the query
// selects reasons, and all these reasons block a run. Otherwise it reads the keys of current runs
// first if the query selects a key or a prefix of keys, unless it also wants the earlier runs of
// these keys. All other statements read the runs in the order of their starts.
func newListing(q *store.Query) *listing {
	l := &listing{started: "e.started", run: "e.run"}
	// A condition on a label selects few runs, so read the table of labels first if there is such a
	// condition. A negated label selects most runs and can only filter.
	lead := slices.IndexFunc(q.Labels, func(c model.LabelCondition) bool { return !c.Not })
	switch {
	case lead >= 0:
		l.from = "perdure_labels l indexed by perdure_labels_value cross join perdure_executions e on e.run = l.run and e.shard = l.shard"
		l.started, l.run = "l.started", "l.run"
		l.and("l.tenant = ? and l.name = ?", q.Tenant, q.Labels[lead].Name)
		anyOf(l, "l.value", q.Labels[lead].Values)
	case len(q.Reasons) > 0 && !slices.ContainsFunc(q.Reasons, func(c model.ReasonCode) bool { return !c.Blocks() }):
		l.from = "perdure_executions e indexed by perdure_executions_blocked"
		l.and("e.tenant = ? and e.blocked is not null", q.Tenant)
	case (q.Key != "" || q.KeyPrefix != "") && !q.AllRuns:
		// We assume that in each workflow only a few keys match. So it is better to find the runs
		// with these keys first and then to sort them.
		l.from = "perdure_executions e indexed by perdure_executions_current"
		l.and("e.tenant = ?", q.Tenant)
		if len(q.Workflows) == 0 {
			l.and("e.workflow in ("+sqlWorkflows+")", q.Tenant, q.Tenant)
		}
	default:
		l.from = "perdure_executions e indexed by perdure_executions_listing"
		l.and("e.tenant = ?", q.Tenant)
	}

	l.filter(q, lead)
	return l
}

// sqlWorkflows returns the workflows of the executions of a tenant. It jumps from one workflow to
// the next in the index.
const sqlWorkflows = `with recursive w (name) as (
	select * from (select workflow from perdure_executions where tenant = ? and current = 1 order by workflow limit 1)
	union all
	select (select workflow from perdure_executions where tenant = ? and current = 1 and workflow > w.name order by workflow limit 1)
	from w where w.name is not null
) select name from w where name is not null`

// filter adds the conditions on a run. lead is the index in q.Labels of the condition that the
// statement already has; -1 for none.
func (l *listing) filter(q *store.Query, lead int) {
	if !q.AllRuns {
		l.and("e.current = 1")
	}
	if len(q.Workflows) > 0 {
		anyOf(l, "e.workflow", q.Workflows)
	}
	if q.Key != "" {
		l.and("e.key = ?", q.Key)
	}

	// Use a range instead of LIKE. A range uses the index, and % and _ in a key are ordinary
	// characters.
	if q.KeyPrefix != "" {
		l.and("e.key >= ?", q.KeyPrefix)
		if end := prefixEnd(q.KeyPrefix); end != "" {
			l.and("e.key < ?", end)
		}
	}

	if q.StartedFrom != 0 {
		l.and(l.started+" >= ?", int64(q.StartedFrom))
	}
	if q.StartedTo != 0 {
		l.and(l.started+" < ?", int64(q.StartedTo))
	}
	if q.ClosedFrom != 0 {
		l.and("e.state >= 2 and e.closed >= ?", int64(q.ClosedFrom))
	}
	if q.ClosedTo != 0 {
		l.and("e.state >= 2 and e.closed < ?", int64(q.ClosedTo))
	}

	if len(q.Statuses) > 0 {
		var states []string
		for _, status := range q.Statuses {
			states = append(states, statesOf(status))
		}
		l.and("e.state in (" + strings.Join(states, ", ") + ")")
	}

	// A run without a stored reason is ready and waits for a worker (model.WaitTurn).
	if len(q.Reasons) > 0 {
		l.and("e.state < 2 and coalesce(e.reason, '"+string(model.WaitTurn)+"') in (select value from json_each(?))", list(q.Reasons))
	}

	// The other labels are looked up run by run. A run without the label satisfies a negated
	// condition.
	for i, c := range q.Labels {
		if i == lead {
			continue
		}
		not := ""
		if c.Not {
			not = "not "
		}
		l.and(not+"exists (select 1 from perdure_labels x where x.run = e.run and x.shard = e.shard and x.name = ? and x.value in (select value from json_each(?)))",
			c.Name, list(c.Values))
	}
}

// statesOf returns the values of the column state for a status.
func statesOf(s model.Status) string {
	if s == model.Running {
		return fmt.Sprintf("%d, %d", stateRunnable, stateParked)
	}
	return fmt.Sprint(max(int(s), stateClosed))
}

// prefixEnd returns the first text, in byte order, that comes after all texts with the prefix. It
// returns "" if there is no such text.
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

// page returns the statement of one page.
func (l *listing) page(q *store.Query) string {
	if q.After != (store.PageMark{}) {
		l.and("("+l.started+", "+l.run+") < (?, ?)", int64(q.After.Started), q.After.Run[:])
	}
	// The id of a run has 16 bytes. A damaged row with a longer or shorter id has no position in
	// the order of pages. Recovery reports such a run to the owner of its shard.
	l.and("length(" + l.run + ") = 16")
	l.args = append(l.args, q.Limit+1)
	return "select " + executionColumns + " from " + l.from + l.where.String() + " order by " + l.started + " desc, " + l.run + " desc limit ?"
}

// List returns executions, newest start first.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	l := newListing(&q)
	sql := l.page(&q)
	err = s.read(ctx, "list", func(c *conn) error {
		return c.queryOnce(sql, func(row *stmt) error {
			if len(page.Executions) == q.Limit {
				page.More = true
				return errStop
			}

			e, err := scanExecution(row)
			// One damaged row must not hide all others: the list shows its columns and the reason.
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
		}, l.args...)
	})
	if err != nil {
		return store.Page{}, err
	}

	return page, nil
}

// Count counts executions that match.
func (s *Store) Count(ctx context.Context, q store.Query) (n int64, err error) {
	l := newListing(&q)
	err = s.read(ctx, "count", func(c *conn) error {
		return c.queryOnce("select count(*) from "+l.from+l.where.String(), func(row *stmt) error {
			n = row.int(0)
			return nil
		}, l.args...)
	})
	return n, err
}

// Tally counts executions in groups. It reads at most q.Limit rows of the list, and only the
// columns that the groups need.
func (s *Store) Tally(ctx context.Context, q store.Query, by store.TallyBy) (groups []store.TallyGroup, err error) {
	l := newListing(&q)
	columns := "''"
	if by.Workflow {
		columns = "e.workflow"
	}
	sql := "select workflow, state, reason, count(*) from (select " + columns + " workflow, e.state state, case when e.state < 2 then coalesce(e.reason, '" + string(model.WaitTurn) +
		"') end reason from " + l.from + l.where.String() + " order by " + l.started + " desc, " + l.run + " desc limit ?) group by 1, 2, 3"

	err = s.read(ctx, "tally", func(c *conn) error {
		t := store.Tally{By: by}
		err := c.queryOnce(sql, func(row *stmt) error {
			t.Add(store.TallyGroup{Workflow: row.text(0), Status: statusOf(row.int(1)), Reason: model.ReasonCode(row.text(2))}, row.int(3))
			return nil
		}, append(l.args, max(0, q.Limit))...)
		groups = t.Groups
		return err
	})
	return groups, err
}

// statusOf returns the status for a value of the column state.
func statusOf(state int64) model.Status {
	if state >= stateClosed {
		return model.Status(state)
	}
	return model.Running
}

const sqlLoadLabels = `select name, value from perdure_labels where run = ?1 and shard = ?2 order by name`

// LoadLabels returns the labels of runs.
func (s *Store) LoadLabels(ctx context.Context, keys []store.RunKey) (out []store.LabelRow, err error) {
	err = s.read(ctx, "load labels", func(c *conn) error {
		for _, k := range slices.SortedFunc(slices.Values(keys), store.RunKey.Compare) {
			labels, err := loadLabels(c, k)
			if err != nil {
				return err
			}
			for _, l := range labels {
				out = append(out, store.LabelRow{RunKey: k, Label: l})
			}
		}
		return nil
	})
	return out, err
}

// loadLabels reads the labels of a run.
func loadLabels(c *conn, k store.RunKey) (labels []model.Label, err error) {
	err = c.query(sqlLoadLabels, func(row *stmt) error {
		labels = append(labels, model.Label{Name: row.text(0), Value: row.text(1)})
		return nil
	}, k.Run[:], int(k.Shard))
	return labels, err
}

// sqlTenants jumps from one tenant to the next in the index of listings.
const sqlTenants = `with recursive t (name) as (
	select * from (select tenant from perdure_executions indexed by perdure_executions_listing order by tenant limit 1)
	union all
	select (select tenant from perdure_executions indexed by perdure_executions_listing where tenant > t.name order by tenant limit 1)
	from t where t.name is not null
) select name from t where name is not null`

// Tenants returns the tenants that have executions.
func (s *Store) Tenants(ctx context.Context) (all []string, err error) {
	err = s.read(ctx, "load tenants", func(c *conn) error {
		all = nil
		return c.query(sqlTenants, func(row *stmt) error {
			all = append(all, row.text(0))
			return nil
		})
	})
	return all, err
}
