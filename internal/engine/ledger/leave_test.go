package ledger_test

import (
	"testing"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/model"
)

// A node starts to leave while the write that takes a whole page is in flight. The node still gives
// the page back, so other nodes do not have to wait until the leaving node is declared dead.
func TestLeaveWhileAPageIsTaken(t *testing.T) {
	rules, err := rule.NewSet([]rule.Limit{{Name: "a", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := ledger.New(1)
	b.Gate.SetRules(t0, rules)
	b.SetRules(rules)
	b.SetAlone(true)
	it := &gate.Task{Ref: model.TaskRef{ID: "t"}, Spec: &model.TaskSpec{Limits: []string{"a"}}}
	b.Gate.Take(t0, it)
	b.Post()
	due := b.DuePages(t0)
	if len(due) != 1 {
		t.Fatalf("pages %v are due", due)
	}

	page := due[0]
	body, needed, err := b.Compose(t0, page)
	if err != nil || !needed {
		t.Fatalf("nothing is written: %v", err)
	}
	if _, sole, _ := ledger.Read(body); sole != 1 {
		t.Fatalf("the page is taken by %d", sole)
	}

	b.Leave(t0)
	for range 5 {
		if err := b.ApplyPage(t0, page, body); err != nil {
			t.Fatal(err)
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

	if list, sole, err := ledger.Read(body); sole != 0 || err != nil {
		t.Errorf("the page stays with place %d: %v, %v", sole, list, err)
	}
}
