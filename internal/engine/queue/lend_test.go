package queue_test

import (
	"testing"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// The board uses a lent slot once. Neither the end of its claim nor the end of another claim frees
// it.
func TestLentSlotsAreUsedOnce(t *testing.T) {
	t.Parallel()
	const now = model.Time(1000)
	b := queue.New(queue.Config{})
	offer := model.TaskOffer{Name: "w", Tenants: []string{"t"}, Queues: []string{"q"}, Kinds: []string{"k"}}
	b.Join(now, 1, offer)
	b.Lend(now, 1, 0)
	spec := &model.TaskSpec{Kind: "k", Queue: "q"}

	items := make([]queue.Item, 5)
	for i := range items {
		items[i] = queue.Item{Ref: model.TaskRef{Address: model.Address{Tenant: "t"}, Run: model.RunID{byte(i + 1)}, ID: "task"}, Spec: spec}
		b.Add(now, items[i])
	}

	want := []queue.Want{{Tenant: "t", Queue: "q", Kind: "k"}}
	if got := b.UnservedWants(10); len(b.Match(now)) != 0 || len(got) != 1 || got[0] != want[0] {
		t.Fatalf("without a loan %v is unserved", got)
	}
	b.Lend(now, 1, 2)
	if got := b.UnservedWants(10); len(got) != 0 {
		t.Errorf("with a free slot %v is unserved", got)
	}
	matches := b.Match(now)
	if len(matches) != 2 || b.LentSlots(1) != 0 {
		t.Fatalf("%d claims with 2 slots, %d left", len(matches), b.LentSlots(1))
	}

	for _, m := range matches {
		b.Hold(now, queue.Item{Ref: m.Ref, Spec: spec}, queue.HeldClaim{Ref: model.ClaimRef{TaskRef: m.Ref, Claim: 7}, Worker: 1})
		if !b.HasClaim(1, model.ClaimRef{TaskRef: m.Ref, Claim: 7}) || b.HasClaim(2, model.ClaimRef{TaskRef: m.Ref, Claim: 7}) {
			t.Error("it is held by the worker")
		}
		b.Remove(now, m.Ref, queue.Succeeded)
	}

	if n := len(b.Match(now)); n != 0 {
		t.Errorf("%d claims with slots that were used", n)
	}
	b.Lend(now, 1, 10)
	if n := len(b.Match(now)); n != 3 || b.LentSlots(1) != 7 {
		t.Errorf("%d claims with 10 slots, %d left", n, b.LentSlots(1))
	}
	b.Join(now, 2, model.TaskOffer{Tenants: []string{"t"}, Queues: []string{"q"}, Kinds: []string{"k"}, Slots: 3})
	if q := b.Stats().Queues; len(q) != 1 || q[0].Workers != 1 || q[0].Slots != 3 {
		t.Errorf("%+v: a worker that is lent counts where it is at home", q)
	}
	b.Leave(now, 2)
	if q := b.Stats().Queues; len(q) != 1 || q[0].Workers != 0 || q[0].Slots != 0 {
		t.Errorf("%+v: a worker that is lent counts where it is at home", q)
	}
	b.Pause("t", "q", "")
	b.Lend(now, 1, 0)
	b.Add(now, queue.Item{Ref: model.TaskRef{Address: model.Address{Tenant: "t"}, Run: model.RunID{9}, ID: "task"}, Spec: spec})
	if got := b.UnservedWants(10); len(got) != 0 {
		t.Errorf("of a paused queue %v is unserved", got)
	}
}
