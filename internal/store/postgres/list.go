package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// listing is the statement of a listing: its tables, its condition and its arguments.
type listing struct {
	from  string
	where strings.Builder
	args  []any
	// started and run are the columns of the leading table that order the listing.
	started, run string
}

// and adds a condition. In it, %s is replaced by the parameter of the argument.
func (l *listing) and(condition string, args ...any) {
	names := make([]any, len(args))
	for i, a := range args {
		l.args = append(l.args, a)
		names[i] = fmt.Sprintf("$%d", len(l.args))
	}
	if l.where.Len() > 0 {
		l.where.WriteString(" and ")
	}
	fmt.Fprintf(&l.where, condition, names...)
}

// newListing returns the statement for all pages of a query. The planner must not move its
// subqueries, as explained in recovery.go. The statement finds rows by a label, by being blocked,
// by the order of starts of the tenant, or by their key. Every secondary index has a condition,
// which must be repeated here.
func newListing(q *store.Query) *listing {
	l := &listing{from: "{schema}.executions e", started: "e.started", run: "e.run"}
	lead := slices.IndexFunc(q.Labels, func(c model.LabelCondition) bool { return !c.Not })
	switch {
	case lead >= 0:
		l.from = `{schema}.labels l
cross join lateral (select {execution}, e.reason from {schema}.executions e where e.shard = l.shard and e.run = l.run limit 1) e`
		l.started, l.run = "l.started", "l.run"
		l.and("l.tenant = %s and l.name = %s and l.value is not null", q.Tenant, q.Labels[lead].Name)
		if values := q.Labels[lead].Values; len(values) == 1 {
			l.and("l.value = %s", values[0]) // for one value, the index has the order of the list
		} else {
			l.and("l.value = any (%s)", values)
		}
	case len(q.Reasons) > 0 && !slices.ContainsFunc(q.Reasons, func(c model.ReasonCode) bool { return !c.Blocks() }):
		l.and("e.tenant = %s and e.blocked is not null", q.Tenant)
	default:
		l.and("e.tenant = %s and e.started is not null", q.Tenant)
	}

	l.filter(q, lead)
	return l
}

// filter adds the conditions on a run. lead is the index in q.Labels of the condition that the
// statement already has; -1 for none.
func (l *listing) filter(q *store.Query, lead int) {
	switch len(q.Workflows) {
	case 0:
	case 1:
		l.and("e.workflow = %s", q.Workflows[0])
	default:
		l.and("e.workflow = any (%s)", q.Workflows)
	}

	if q.Key != "" {
		l.and("e.key = %s", q.Key)
	}
	if q.KeyPrefix != "" {
		l.and("starts_with(e.key, %s)", q.KeyPrefix)
	}
	if len(q.Statuses) > 0 {
		l.and("e.state = any (%s)", statesOf(q.Statuses))
	}

	if len(q.Reasons) > 0 {
		codes := make([]string, len(q.Reasons))
		for i, c := range q.Reasons {
			codes[i] = string(c)
		}
		l.and("e.state < 2 and coalesce(e.reason, %s) = any (%s)", string(model.WaitTurn), codes)
	}

	for _, c := range [...]struct {
		condition string
		bound     model.Time
	}{
		{l.started + " >= %s", q.StartedFrom},
		{l.started + " < %s", q.StartedTo},
		{"e.state > 1 and e.closed >= %s", q.ClosedFrom},
		{"e.state > 1 and e.closed < %s", q.ClosedTo},
	} {
		if c.bound != 0 {
			l.and(c.condition, c.bound)
		}
	}

	if !q.AllRuns {
		l.and("e.current")
	}

	for i, c := range q.Labels {
		if i == lead {
			continue
		}
		not := ""
		if c.Not {
			not = "not "
		}
		l.and(not+"coalesce((select x.value = any (%[2]s) from {schema}.labels x where x.shard = e.shard and x.run = e.run and x.name = %[1]s limit 1), false)",
			c.Name, c.Values)
	}
}

// statesOf returns the values of the column state for the statuses.
func statesOf(statuses []model.Status) (states []int16) {
	for _, s := range statuses {
		if s == model.Running {
			states = append(states, stateRunnable, stateParked)
		} else if s.Closed() {
			states = append(states, int16(s))
		}
	}
	return states
}

// page returns the statement of one page. The last argument is the limit.
func (l *listing) page(q *store.Query) string {
	if q.After != (store.PageMark{}) {
		l.and(l.started+" <= %s", q.After.Started) // for an index that does not have the column run
		l.and("("+l.started+", "+l.run+") < (%s, %s)", q.After.Started, runArg(q.After.Run))
	}
	return "select {execution} from " + l.from + " where " + l.where.String() +
		fmt.Sprintf(" order by %s desc, %s desc limit $%d", l.started, l.run, len(l.args)+1)
}

// List returns executions, newest start first. Conditions without an index filter the rows while
// the server reads them.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	l := newListing(&q)
	sql := expand(s.cfg.schema, l.page(&q))
	limit := max(0, q.Limit)

	err = s.read(ctx, "list", func(ctx context.Context, c *pgx.Conn) error {
		page = store.Page{}
		found, err := c.Query(ctx, sql, append(l.args, limit+1)...)
		if err != nil {
			return err
		}
		rows, err := scanExecutions(found, (*executionRow).unreadable)
		if page.More = len(rows) > limit; page.More {
			rows = rows[:limit]
		}
		page.Executions = rows
		return err
	})

	return page, err
}

// Count counts executions.
func (s *Store) Count(ctx context.Context, q store.Query) (n int64, err error) {
	l := newListing(&q)
	sql := expand(s.cfg.schema, "select count(*) from "+l.from+" where "+l.where.String())
	err = s.read(ctx, "count", func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, sql, l.args...).Scan(&n)
	})
	return n, err
}

// Tally counts executions in groups. The database reads at most q.Limit rows of the list.
func (s *Store) Tally(ctx context.Context, q store.Query, by store.TallyBy) (groups []store.TallyGroup, err error) {
	l := newListing(&q)
	workflow := "''"
	if by.Workflow {
		workflow = "e.workflow"
	}
	sql := expand(s.cfg.schema, fmt.Sprintf(`select workflow, state, reason, count(*) from (
  select %s workflow, e.state, case when e.state < 2 then coalesce(e.reason, '%s') else '' end reason from %s where %s order by %s desc, %s desc limit $%d
) f group by 1, 2, 3`, workflow, model.WaitTurn, l.from, l.where.String(), l.started, l.run, len(l.args)+1))

	err = s.read(ctx, "tally", func(ctx context.Context, c *pgx.Conn) error {
		t := store.Tally{By: by}
		rows, err := c.Query(ctx, sql, append(l.args, max(0, q.Limit))...)
		if err != nil {
			return err
		}
		var name, reason string
		var state int16
		var n int64
		_, err = pgx.ForEachRow(rows, []any{&name, &state, &reason, &n}, func() error {
			status := model.Running
			if state > stateParked {
				status = model.Status(state)
			}
			t.Add(store.TallyGroup{Workflow: name, Status: status, Reason: model.ReasonCode(reason)}, n)
			return nil
		})
		groups = t.Groups
		return err
	})
	return groups, err
}

// loadTenants jumps from one tenant to the next in the index of starts.
const loadTenants = `with recursive t (name) as (
  (select tenant from {schema}.executions where started is not null order by tenant limit 1)
  union all
  select (select e.tenant from {schema}.executions e where e.started is not null and e.tenant > t.name order by e.tenant limit 1) from t where t.name is not null
) select name from t where name is not null`

// Tenants returns the tenants that have executions.
func (s *Store) Tenants(ctx context.Context) (all []string, err error) {
	err = s.read(ctx, "load tenants", func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, s.sql(loadTenants))
		if err != nil {
			return err
		}
		all, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return all, err
}
