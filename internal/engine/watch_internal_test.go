package engine

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// compareOffers compares a view of the members with the view before: workers join, change and
// leave. A class of remote workers counts as unchanged if only the name of its entry changes to
// that of another worker of the class.
func TestCompareOffers(t *testing.T) {
	t.Parallel()
	member := func(id byte, serves ...store.Served) store.Member {
		m := store.Member{Serves: serves}
		m.ID = model.NodeID{15: id}
		return m
	}
	order := store.Served{Tenant: "a", Workflow: "order", Version: "v1"}
	newOrder := store.Served{Tenant: "a", Workflow: "order", Version: "v2"}
	local := store.Served{Tenant: "a", Worker: "w", Queues: []string{"mails"}, Activities: []string{"mail"}, Slots: 4}
	draining := local
	draining.Draining = true
	far := store.Served{Tenant: "b", Worker: "r1", Workers: 3, Queues: []string{"mails"}, Activities: []string{"mail"}, Slots: 30}
	renamed, fewer := far, far
	renamed.Worker = "r2"
	fewer.Worker, fewer.Workers, fewer.Slots = "r2", 2, 20

	for name, c := range map[string]struct {
		was, now []store.Member
		want     []string
	}{
		"nothing":       {[]store.Member{member(1, order, local, far)}, []store.Member{member(1, order, local, renamed)}, nil},
		"another build": {[]store.Member{member(1, order)}, []store.Member{member(1, newOrder)}, []string{"a joined order", "a left order"}},
		"it drains":     {[]store.Member{member(1, local)}, []store.Member{member(1, draining)}, []string{"a changed w"}},
		"one of many":   {[]store.Member{member(1, far)}, []store.Member{member(1, fewer)}, []string{"b changed r2"}},
		"another node":  {[]store.Member{member(1, order)}, []store.Member{member(1, order), member(2, order)}, []string{"a joined order"}},
		"a node died":   {[]store.Member{member(1, order), member(2, local, far)}, []store.Member{member(1, order)}, []string{"a left w", "b left r1"}},
	} {
		var got []string
		for _, ch := range compareOffers(c.was, c.now, 1) {
			got = append(got, fmt.Sprintf("%s %s %s%s", ch.Address.Tenant, ch.Kind, ch.Of, ch.Name))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
