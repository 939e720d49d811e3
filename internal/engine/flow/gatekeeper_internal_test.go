package flow

import (
	"testing"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// An attempt whose run has moved away goes on to hold its permit. When the run comes back, the next attempt is let through with that. If it comes to nothing, the permit is not free before the
// worker of the first attempt is done.
func TestPermitOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	const now = model.Time(100)
	set, err := rule.NewSet([]rule.Limit{{Name: "one", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	task := func(key string) *queue.Item {
		ref := model.TaskRef{Address: model.Address{Tenant: model.DefaultTenant, Type: "task:work", Key: key}, ID: model.TaskStep}
		return &queue.Item{Ref: ref, Spec: &model.TaskSpec{Kind: "work", Queue: "q", Limits: []string{"one"}}}
	}
	for _, later := range []string{"comes to nothing", "is executed, too", "is executed while rules change", "was claimed by a node that is no more", "is the same one"} {
		t.Run(later, func(t *testing.T) {
			at := map[model.ClaimRef]bool{} // what workers are at
			book := ledger.New(1)
			k := NewGatekeeper(book, func(_ queue.WorkerID, c model.ClaimRef) bool { return at[c] })
			k.SetRules(now, set, queue.New(queue.Config{Gate: k}))
			it, other := task("it"), task("other")
			first, second := model.ClaimRef{TaskRef: it.Ref, Claim: 1}, model.ClaimRef{TaskRef: it.Ref, Claim: 5}
			take := func(who string, it *queue.Item, want bool) {
				t.Helper()
				ok, why, _ := k.Take(now, it)
				for range 3 { // until everything that it needs is written
					book.Post()
					for _, n := range book.Due(now) {
						body, needed, err := book.Compose(now, n)
						if err == nil && needed {
							err = book.Seen(now, n, body)
						}
						if err != nil {
							t.Fatal(err)
						}
					}
					ok, why, _ = k.Take(now, it)
				}
				if ok != want {
					t.Fatalf("%s is let through: %v (%s)", who, ok, why)
				}
			}
			take("the first attempt", it, true)
			at[first] = true
			k.Held(it.Ref, first.Claim, 1)
			k.Forgets = true // its run moves away
			k.Give(now, it, queue.Neither)
			k.Forgets = false
			take("another task while the first worker is at it", other, false)
			switch later {
			case "comes to nothing":
				take("the next attempt", it, true)
				k.Give(now, it, queue.Neither)
			case "was claimed by a node that is no more":
				k.Hold(now, it)
				k.Held(it.Ref, second.Claim, 0)
				k.Give(now, it, queue.Neither)
			case "is the same one":
				k.Hold(now, it)
				k.Held(it.Ref, first.Claim, 1)
				k.Give(now, it, queue.Succeeded)
			default:
				take("the next attempt", it, true)
				at[second] = true
				k.Held(it.Ref, second.Claim, 2)
				if later == "is executed while rules change" {
					k.Hold(now, it)
				}
				k.Forgets = true
				k.Give(now, it, queue.Neither)
				k.Forgets = false
				delete(at, second)
				k.Settled(now, second, queue.Succeeded)
			}
			take("another task when the next attempt is over", other, false)
			delete(at, first)
			if !k.LetGo(now) {
				t.Error("nothing was held for the first worker")
			}
			take("another task in the end", other, true)
		})
	}
}
