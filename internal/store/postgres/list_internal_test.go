package postgres

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// all are the nodes of a plan.
func (n *node) all() []*node {
	out := []*node{n}
	for i := range n.Plans {
		out = append(out, n.Plans[i].all()...)
	}
	return out
}

// Dead letters are listed in the order of an index, groups are found without the rows, and what is old by its shard.
func TestDeadPlans(t *testing.T) {
	t.Parallel()
	s := openFilled(t)
	conn, err := pgx.ConnectConfig(t.Context(), s.cfg.connConfig(s.cfg.baseSettings(time.Minute, time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "vacuum analyze"); err != nil {
		t.Fatal(err)
	}
	check := func(name, sql, want string, sorted bool, args ...any) {
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

// A page of a listing is found by the index that is meant for it, and read in its order where it has one: in a table of 20,000 rows, no page sorts or
// scans them.
func TestListingPlans(t *testing.T) {
	t.Parallel()
	s := openFilled(t)
	conn, err := pgx.ConnectConfig(t.Context(), s.cfg.connConfig(s.cfg.baseSettings(time.Minute, time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "analyze"); err != nil {
		t.Fatal(err)
	}
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
		{name: "what is blocked", q: store.Query{Reasons: []model.ReasonCode{model.WaitMismatch}}, want: "executions_blocked", sorted: true}, // they are few
		{name: "a key", q: store.Query{Key: "k77"}, want: "executions_current", sorted: true},
	} {
		for _, after := range []store.PageMark{{}, {Started: 10_000, Run: model.RunID{6: 0x70}}} {
			q := c.q
			q.Tenant, q.Limit, q.After = "filler", 5, after
			l := newListing(&q)
			sql := expand(s.cfg.schema, l.page(&q))
			var text []byte
			if err := conn.QueryRow(t.Context(), "explain (format json) "+sql, append(l.args, 6)...).Scan(&text); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			var plans []struct{ Plan node }
			if err := json.Unmarshal(text, &plans); err != nil {
				t.Fatal(err)
			}
			nodes := plans[0].Plan.all()
			used := slices.ContainsFunc(nodes, func(n *node) bool { return n.Index == c.want })
			bad := slices.ContainsFunc(nodes, func(n *node) bool {
				return strings.Contains(n.Type, "Seq Scan") || n.Type == "Sort" && !c.sorted
			})
			if !used || bad {
				t.Errorf("%s after %v does not use %s, or sorts, or scans:\n%s", c.name, after, c.want, text)
			}
		}
	}
}
