package ledger_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/model"
)

// A node that had a whole page in its memory dies, so the next owner of the page has no tokens yet.
// The only other node has a task that waits for a token, and takes the page. Now the gate must wake
// the task: the gate refused the task without a time to ask again, and from now on only the gate
// knows when a token accrues.
func TestTaskThatWaitsForTokensIsWokenWhenItsNodeTakesThePage(t *testing.T) {
	t.Parallel()
	rules, err := rule.NewSet([]rule.Limit{{Name: "a", Per: rule.PerName, Numbers: limit.Numbers{Rate: 3, Per: 28 * time.Millisecond}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	node := func(place limit.Place) *ledger.Book {
		b := ledger.New(place)
		b.Gate.SetRules(t0, rules)
		b.SetRules(rules)
		b.SetAlone(true)
		return b
	}
	item := func(id string) *gate.Task {
		return &gate.Task{Ref: model.TaskRef{ID: id}, Spec: &model.TaskSpec{Limits: []string{"a"}}}
	}
	write := func(b *ledger.Book, page int) []byte {
		t.Helper()
		body, needed, err := b.Compose(t0, page)
		if err != nil || !needed {
			t.Fatalf("nothing is written: %v", err)
		}
		return body
	}

	first := node(1)
	first.Gate.Take(t0, item("t"))
	first.Post()
	page := first.DuePages(t0)[0]
	body := write(first, page)

	second, waits := node(2), item("u")
	see := func() {
		t.Helper()
		if err := second.ApplyPage(t0, page, body); err != nil {
			t.Fatal(err)
		}
	}
	see()
	second.Clean(map[limit.Place]bool{1: true})
	body = write(second, page)
	see()

	if ok, _, again := second.Gate.Take(t0, waits); ok || again != 0 {
		t.Fatalf("the task is let through: %t, or told when to ask again: %s", ok, again)
	}
	second.Post()
	second.Gate.TakeWoken()
	body = write(second, page)
	see()
	if _, sole, err := ledger.Read(body); sole != 2 || err != nil {
		t.Fatalf("the page is with place %d: %v", sole, err)
	}

	if woken := second.Gate.TakeWoken(); len(woken) != 1 {
		t.Fatalf("the gate wakes %q: the task waits forever", woken)
	}
	ok, why, again := second.Gate.Take(t0, waits)
	if ok || again == 0 {
		t.Fatalf("let through %t, to ask again at %s: %s", ok, again, why)
	}
	if ok, why, _ := second.Gate.Take(again, waits); !ok {
		t.Errorf("the task is refused when the token has accrued: %s", why)
	}
}
