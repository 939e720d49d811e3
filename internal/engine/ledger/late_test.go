package ledger_test

import (
	"testing"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/model"
)

// A node takes a whole page, and the answer to that write is lost. Before the node reads the page,
// another node leaves a message on the page. The first node hands over the page immediately,
// without waiting for a second message.
func TestMessageOnAPageThatWasTakenUnheard(t *testing.T) {
	t.Parallel()
	rules, err := rule.NewSet([]rule.Limit{{Name: "a", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 2}}}, nil)
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

	write := func(b *ledger.Book, page int, seen []byte) []byte {
		t.Helper()
		if seen != nil {
			if err := b.ApplyPage(t0, page, seen); err != nil {
				t.Fatal(err)
			}
		}
		body, needed, err := b.Compose(t0, page)
		if err != nil || !needed {
			t.Fatalf("nothing is written: %v", err)
		}
		return body
	}

	first, _ := node(1, "t")
	first.SetAlone(true)
	page := first.DuePages(t0)[0]
	taken := write(first, page, nil)
	if _, sole, _ := ledger.Read(taken); sole != 1 {
		t.Fatalf("the page is taken by %d", sole)
	}

	second, waits := node(2, "u")
	first.SetAlone(false)
	body := write(first, page, write(second, page, taken))
	if list, sole, err := ledger.Read(body); sole != 0 || err != nil {
		t.Fatalf("the page stays with place %d: %v, %v", sole, list, err)
	}

	for range 5 {
		for _, b := range []*ledger.Book{second, first} {
			if err := b.ApplyPage(t0, page, body); err != nil {
				t.Fatal(err)
			}
			next, needed, err := b.Compose(t0, page)
			if err != nil {
				t.Fatal(err)
			}
			if needed {
				body = next
			}
		}
	}

	if err := second.ApplyPage(t0, page, body); err != nil {
		t.Fatal(err)
	}
	if ok, why, _ := second.Gate.Take(t0, waits); !ok {
		t.Errorf("the other node waits forever: %s", why)
	}
}
