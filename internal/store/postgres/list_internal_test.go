package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// all returns the nodes of a plan.
func (n *node) all() []*node {
	out := []*node{n}
	for i := range n.Plans {
		out = append(out, n.Plans[i].all()...)
	}
	return out
}

// planCheck opens a store with 20,000 rows in each large table. The returned function checks that a
// statement uses an index, scans nothing, and sorts only if sorted is set.
func planCheck(t *testing.T) func(name, sql, want string, sorted bool, args ...any) {
	t.Helper()
	s := openFilled(t)
	conn, err := pgx.ConnectConfig(t.Context(), s.cfg.connConfig(s.cfg.baseSettings(time.Minute, time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), "vacuum analyze"); err != nil {
		t.Fatal(err)
	}

	return func(name, sql, want string, sorted bool, args ...any) {
		t.Helper()
		var text []byte
		if err := conn.QueryRow(t.Context(), "explain (format json) "+expand(s.cfg.schema, sql), args...).Scan(&text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var plans []struct{ Plan node }
		if err := json.Unmarshal(text, &plans); err != nil {
			t.Fatal(err)
		}

		nodes := plans[0].Plan.all()
		used := slices.ContainsFunc(nodes, func(n *node) bool { return n.Index == want })
		bad := slices.ContainsFunc(nodes, func(n *node) bool {
			return strings.Contains(n.Type, "Seq Scan") || n.Type == "Sort" && !sorted
		})
		if !used || bad {
			t.Errorf("%s does not use %s, or sorts, or scans:\n%s", name, want, text)
		}
	}
}

// Lists of dead tasks use the order of an index. Groups are read from an index without the rows.
// Old dead tasks are found by their shard.
func TestDeadPlans(t *testing.T) {
	t.Parallel()
	Sequential(t)
	check := planCheck(t)
	no := false
	for name, c := range map[string]struct {
		q    store.DeadQuery
		want string
	}{
		"everything":    {store.DeadQuery{}, "dead_at"},
		"a kind":        {store.DeadQuery{Kinds: []string{"k1"}, Requeued: &no}, "dead_at"},
		"a time":        {store.DeadQuery{From: 100, To: 19_000}, "dead_at"},
		"what is alike": {store.DeadQuery{Fingerprint: "f7", Kinds: []string{"k1", "k2"}}, "dead_alike"},
	} {
		for _, after := range []store.DeadPlace{{}, {At: 10_000, Run: model.RunID{6: 0x70}, Task: "t"}} {
			q := c.q
			q.Tenant, q.After = "filler", after
			l := deadListing(&q, false)
			check(name, l.deadPage(&q), c.want, false, append(l.args, 6)...)
		}
	}

	l := deadListing(&store.DeadQuery{Tenant: "filler"}, true)
	check("groups", l.deadGroups(), "dead_alike", true, append(l.args, 10)...)
	check("old ones", loadDeadBefore, "dead_age", true, []int16{1, 2, 3}, 500, 1, 100, runArg(model.RunID{1}), "t", 10)
}

// A page of a listing uses the index that is meant for it. If the index has the order of the
// listing, the page does not sort. No page scans or sorts all 20,000 rows of the table.
func TestListingPlans(t *testing.T) {
	t.Parallel()
	Sequential(t)
	check := planCheck(t)
	label := func(values ...string) []model.LabelCondition {
		return []model.LabelCondition{{Name: "n", Values: values}, {Name: "m", Values: []string{"x"}, Not: true}}
	}

	for _, c := range []struct {
		name   string
		q      store.Query
		want   string
		sorted bool
	}{
		{name: "everything", want: "executions_started"},
		{name: "a status", q: store.Query{Statuses: []model.Status{model.Completed}}, want: "executions_started"},
		{name: "a label", q: store.Query{Labels: label("v7")}, want: "labels_value"},
		{name: "a label and a time", q: store.Query{Labels: label("v7"), StartedFrom: 100, StartedTo: 19_000}, want: "labels_value"},
		{name: "several values", q: store.Query{Labels: label("v7", "v8")}, want: "labels_value", sorted: true},
		// There are few blocked runs.
		{name: "what is blocked", q: store.Query{Reasons: []model.ReasonCode{model.WaitMismatch}}, want: "executions_blocked", sorted: true},
		{name: "a key", q: store.Query{Key: "k77"}, want: "executions_current", sorted: true},
	} {
		for _, after := range []store.PageMark{{}, {Started: 10_000, Run: model.RunID{6: 0x70}}} {
			q := c.q
			q.Tenant, q.Limit, q.After = "filler", 5, after
			l := newListing(&q)
			check(fmt.Sprint(c.name, " after ", after), l.page(&q), c.want, c.sorted, append(l.args, 6)...)
		}
	}
}

// Lists of entities use the order of an index, and entities with mailbox items are found by their
// shard. A query for a key in all types sorts at most a page of each type.
func TestEntityPlans(t *testing.T) {
	t.Parallel()
	Sequential(t)
	check := planCheck(t)
	for name, c := range map[string]struct {
		q      store.EntityQuery
		want   string
		sorted bool
	}{
		"everything":            {store.EntityQuery{}, "entities_listing", false},
		"a type":                {store.EntityQuery{Type: "t1"}, "entities_listing", false},
		"a key":                 {store.EntityQuery{Type: "t1", Key: "k1"}, "entities_listing", false},
		"a beginning":           {store.EntityQuery{Type: "t1", KeyPrefix: "k1"}, "entities_listing", false},
		"a key of any type":     {store.EntityQuery{Key: "k1"}, "entities_listing", true},
		"a beginning, any type": {store.EntityQuery{KeyPrefix: "k"}, "entities_listing", true},
		"locked":                {store.EntityQuery{Locked: true}, "entities_locked", false},
		"locked of a type":      {store.EntityQuery{Locked: true, Type: "t0"}, "entities_locked", false},
		"locked by beginning":   {store.EntityQuery{Locked: true, KeyPrefix: "k"}, "entities_locked", true},
	} {
		for _, after := range []model.Address{{}, {Type: "t1", Key: "k1500"}} {
			q := c.q
			q.Tenant, q.After = "filler", after
			sql, args := entityListing(&q)
			check(fmt.Sprint(name, " after ", after), sql, c.want, c.sorted, append(args, 6)...)
		}
	}

	check("mailboxes", loadMailboxes, "mailbox_pkey", true, []int16{1, 2, 3}, 1, "filler", "t", "k1", 10)
}
