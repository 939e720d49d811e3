package ledger_test

import (
	"testing"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/model"
)

// A node asks for more permits while the write that grants it everything is in flight. Its request
// is then on the page although the node does not need it. The node withdraws the request, so that
// other nodes get the permits that are unused here.
func TestWantThatCrossesAGrant(t *testing.T) {
	t.Parallel()
	rules, err := rule.NewSet([]rule.Limit{{Name: "a", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 2}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := ledger.New(1)
	b.Gate.SetRules(t0, rules)
	b.SetRules(rules)

	items := []*gate.Task{
		{Ref: model.TaskRef{ID: "t"}, Spec: &model.TaskSpec{Limits: []string{"a"}}},
		{Ref: model.TaskRef{ID: "u"}, Spec: &model.TaskSpec{Limits: []string{"a"}}},
	}

	b.Gate.Take(t0, items[0])
	b.Post()
	page := b.DuePages(t0)[0]
	body, _, err := b.Compose(t0, page)
	if err != nil {
		t.Fatal(err)
	}

	b.Gate.Take(t0, items[1])
	b.Post()
	for range 5 {
		if err := b.ApplyPage(t0, page, body); err != nil {
			t.Fatal(err)
		}

		for _, it := range items {
			if ok, why, _ := b.Gate.Take(t0, it); !ok {
				t.Fatalf("%s: %s", it.Ref.ID, why)
			}
		}

		b.Post()
		next, needed, err := b.Compose(t0, page)
		if err != nil {
			t.Fatal(err)
		}
		if !needed {
			break
		}

		body = next
	}

	list, _, err := ledger.Read(body)
	if err != nil || len(list) != 1 || len(list[0].Leases) != 1 {
		t.Fatal(list, err)
	}
	if l := list[0].Leases[0]; l.Permits != 2 || l.Want != 0 {
		t.Errorf("the place has %d permits and wants %d more", l.Permits, l.Want)
	}
}
