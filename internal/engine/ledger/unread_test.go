package ledger_test

import (
	"testing"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// A node cannot read the page on which another node has a permit: the row is damaged, or a newer
// build has written it. The node must not replace the page by a page of its own, because the permit
// of the other node would be lost. It continues when it can read the page.
func TestPageThatCannotBeReadStays(t *testing.T) {
	t.Parallel()
	rules, err := rule.NewSet([]rule.Limit{{Name: "a", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	node := func(place limit.Place, task string) (*ledger.Book, *gate.Task) {
		b := ledger.New(place)
		b.Gate.SetRules(t0, rules)
		b.SetRules(rules)
		it := &gate.Task{Ref: model.TaskRef{ID: task}, Spec: &model.TaskSpec{Limits: []string{"a"}}}
		b.Gate.Take(t0, it)
		b.Post()
		return b, it
	}

	first, _ := node(1, "t")
	page := first.DuePages(t0)[0]
	body, needed, err := first.Compose(t0, page)
	if err != nil || !needed {
		t.Fatalf("nothing is written: %v", err)
	}

	for _, bad := range [][]byte{{}, []byte("rubbish"), {0xa1, 0x01, 0x18, 0xc8}} { // the last is of version 200
		second, waits := node(2, "u")
		if err := second.ApplyPage(t0, page, bad); !fault.Is(err, fault.Corrupt) {
			t.Fatalf("page %x is read: %v", bad, err)
		}
		second.SetRules(rules)
		second.Clean(map[limit.Place]bool{1: true})
		if due := second.DuePages(t0); len(due) > 0 {
			t.Errorf("pages %v are due beside page %x", due, bad)
		}
		if made, needed, err := second.Compose(t0, page); needed || !fault.Is(err, fault.Corrupt) {
			t.Fatalf("page %x is replaced by %x, %v", bad, made, err)
		}
		second.Clean(nil)

		if err := second.ApplyPage(t0, page, body); err != nil {
			t.Fatal(err)
		}
		made, needed, err := second.Compose(t0, page)
		if err != nil || !needed {
			t.Fatalf("the page can be read, and the task does not ask: %v", err)
		}
		if err := second.ApplyPage(t0, page, made); err != nil {
			t.Fatal(err)
		}
		if ok, _, _ := second.Gate.Take(t0, waits); ok {
			t.Errorf("after page %x, two tasks have the only permit", bad)
		}
		if list, _, err := ledger.Read(made); err != nil || len(list) != 1 || len(list[0].Leases) != 2 {
			t.Errorf("after page %x, the page says %+v, %v", bad, list, err)
		}
	}
}
