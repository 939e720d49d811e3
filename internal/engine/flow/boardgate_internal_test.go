package flow

import (
	"fmt"
	"testing"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

func oneAtATime(t *testing.T) *rule.Set {
	t.Helper()
	set, err := rule.NewSet([]rule.Limit{{Name: "one", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// limitedItem is a task that needs the only permit of a limit.
func limitedItem(key string) *queue.Item {
	ref := model.TaskRef{Address: model.Address{Tenant: model.DefaultTenant, Type: "task:work", Key: key}, ID: model.TaskStep}
	return &queue.Item{Ref: ref, Spec: &model.TaskSpec{Kind: "work", Queue: "q", Limits: []string{"one"}}}
}

// take asks the gate whether a task may start. It asks several times, and between two questions it
// writes the pages of the ledger that the task needs.
func take(t *testing.T, now model.Time, k *BoardGate, it *queue.Item) (ok bool, why model.Reason) {
	t.Helper()
	ok, why, _ = k.Take(now, it)
	for range 3 {
		k.Book.Post()
		for _, n := range k.Book.DuePages(now) {
			body, needed, err := k.Book.Compose(now, n)
			if err == nil && needed {
				err = k.Book.ApplyPage(now, n, body)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		ok, why, _ = k.Take(now, it)
	}

	return ok, why
}

// An attempt whose run has moved away keeps its permit. When the run comes back, the next attempt
// takes over that permit. If that attempt ends early, the permit stays taken until the worker of
// the first attempt is done.
func TestPermitOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	const now = model.Time(100)
	set := oneAtATime(t)
	for _, later := range []string{"is never claimed", "is executed, too", "is executed while rules change", "was claimed by a dead node", "is the same one"} {
		t.Run(later, func(t *testing.T) {
			at := map[model.ClaimRef]bool{} // claims that workers execute
			k := NewBoardGate(ledger.New(1), func(_ queue.WorkerID, c model.ClaimRef) (bool, *model.TaskReport) { return at[c], nil })
			k.SetRules(now, set, queue.New(queue.Config{Gate: k}))
			it, other := limitedItem("it"), limitedItem("other")
			first, second := model.ClaimRef{TaskRef: it.Ref, Claim: 1}, model.ClaimRef{TaskRef: it.Ref, Claim: 5}

			take := func(who string, it *queue.Item, want bool) {
				t.Helper()
				if ok, why := take(t, now, k, it); ok != want {
					t.Fatalf("%s is let through: %v (%s)", who, ok, why)
				}
			}

			take("the first attempt", it, true)
			at[first] = true
			k.RecordWorker(it.Ref, first.Claim, 1)
			k.Give(now, it, queue.Forgotten) // the run of the task moves away
			take("another task while the first worker is at it", other, false)

			switch later {
			case "is never claimed":
				take("the next attempt", it, true)
				k.Give(now, it, queue.Neither)
			case "was claimed by a dead node":
				k.Hold(now, it, "")
				k.RecordWorker(it.Ref, second.Claim, 0)
				k.Give(now, it, queue.Neither)
			case "is the same one":
				k.Hold(now, it, "")
				k.RecordWorker(it.Ref, first.Claim, 1)
				k.Give(now, it, queue.Succeeded)
			default:
				take("the next attempt", it, true)
				at[second] = true
				k.RecordWorker(it.Ref, second.Claim, 2)
				if later == "is executed while rules change" {
					k.Hold(now, it, "")
				}
				k.Give(now, it, queue.Forgotten)
				delete(at, second)
				k.FreeOrphan(now, second, queue.Succeeded)
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

// The only node of a cluster decides that a claim has ended. If the worker is done, the next task
// gets the permit immediately. If the worker still executes the task, the permit stays taken until
// the worker is informed. The reason: the store may refuse the row of the decision. Then the node
// undoes the decision, so that the claim is open again. The run may move to another node with this
// open claim.
func TestPermitOfAWorkerThatIsAtIt(t *testing.T) {
	t.Parallel()
	const now = model.Time(100)
	for _, executes := range []bool{false, true} {
		book := ledger.New(1)
		book.SetAlone(true)
		k := NewBoardGate(book, func(_ queue.WorkerID, c model.ClaimRef) (bool, *model.TaskReport) {
			if executes {
				return true, nil
			}
			return false, &model.TaskReport{Ref: c}
		})
		k.SetRules(now, oneAtATime(t), queue.New(queue.Config{Gate: k}))
		it, other := limitedItem("it"), limitedItem("other")
		if ok, why := take(t, now, k, it); !ok || k.Shared(it.Ref) {
			t.Fatalf("it is let through: %v (%s), and others share the limit: %v", ok, why, k.Shared(it.Ref))
		}

		k.RecordWorker(it.Ref, 1, 1)
		k.Give(now, it, queue.Failed)
		if ok, why := take(t, now, k, other); ok == executes {
			t.Errorf("another task is let through: %v (%s), and the worker executes: %v", ok, why, executes)
		}
		if k.FreeOrphan(now, model.ClaimRef{TaskRef: it.Ref, Claim: 1}, queue.Neither) != executes {
			t.Errorf("something was kept for a worker: %v", !executes)
		}
		if ok, why := take(t, now, k, other); !ok {
			t.Errorf("another task is not let through in the end: %s", why)
		}
	}
}

// The node that made a claim counts it under the limits of its task. When that node dies, the owner
// of the run counts the claim.
func TestClaimOfANodeThatIsNoMore(t *testing.T) {
	t.Parallel()
	const now = model.Time(100)
	k := NewBoardGate(ledger.New(1), func(queue.WorkerID, model.ClaimRef) (bool, *model.TaskReport) { return false, nil })
	tasks := queue.New(queue.Config{Gate: k})
	k.SetRules(now, oneAtATime(t), tasks)
	it := limitedItem("it")
	tasks.Hold(now, *it, queue.HeldClaim{Ref: model.ClaimRef{TaskRef: it.Ref, Claim: 1}, Maker: "other"})
	k.Inherit(now, map[string]bool{"other": true}, tasks)
	if k.IsAdmitted(it.Ref) {
		t.Error("the claim is counted here, too, while the node that made it lives")
	}
	k.Inherit(now, map[string]bool{}, tasks)
	if !k.IsAdmitted(it.Ref) {
		t.Error("the claim of a dead node is not counted")
	}
	if ok, why := take(t, now, k, limitedItem("other")); ok {
		t.Errorf("another task is let through: %s", why)
	}
}

// A claim whose run is quarantined, or belongs to another node, keeps its permit while its worker
// executes it. The report of that worker frees the permit, although the end of the claim is not
// stored. If that worker has left, a report that another worker sends for it also frees the permit.
// No other report frees it.
func TestPermitOfAReportThatCannotBeStored(t *testing.T) {
	t.Parallel()
	const now, worker, other = model.Time(100), queue.WorkerID(1), queue.WorkerID(2)
	for _, when := range []string{"before it is given up", "after it is given up", "after it was decided"} {
		for _, by := range []queue.WorkerID{worker, other} {
			t.Run(fmt.Sprintf("%s, by %d", when, by), func(t *testing.T) {
				t.Parallel()
				executes := true
				k := NewBoardGate(ledger.New(1), func(id queue.WorkerID, c model.ClaimRef) (bool, *model.TaskReport) {
					if id != worker || executes {
						return id == worker, nil
					}
					return false, &model.TaskReport{Ref: c}
				})
				k.SetRules(now, oneAtATime(t), queue.New(queue.Config{Gate: k}))
				it, next := limitedItem("it"), limitedItem("next")
				claim := model.ClaimRef{TaskRef: it.Ref, Claim: 1}

				report := func(id queue.WorkerID, claim model.ClaimRef, want bool) {
					t.Helper()
					if got := k.FreeReported(now, id, &model.TaskReport{Ref: claim}); got != want {
						t.Fatalf("a report of claim %d by worker %d frees something: %v", claim.Claim, id, got)
					}
				}
				pass := func(it *queue.Item, want bool) {
					t.Helper()
					if ok, why := take(t, now, k, it); ok != want {
						t.Fatalf("%s is let through: %v (%s)", it.Ref, ok, why)
					}
				}

				pass(it, true)
				k.RecordWorker(it.Ref, claim.Claim, worker)
				// The run of the claim is here, and the report is about to be stored.
				report(worker, claim, false)
				switch when {
				case "before it is given up":
					executes = false
					k.Give(now, it, queue.Forgotten)
					pass(next, true)
					return
				case "after it is given up":
					k.Give(now, it, queue.Forgotten)
					report(other, claim, false)
					executes = false
				case "after it was decided":
					executes = false
					k.Give(now, it, queue.Succeeded)
				}

				pass(next, false)
				report(worker, model.ClaimRef{TaskRef: it.Ref, Claim: 7}, false)
				pass(next, false)
				report(by, claim, true)
				pass(next, true)
			})
		}
	}
}

// The run of a reported claim is quarantined, so the gate has given the permit of the claim to
// another task. Then the quarantine ends, and the lane reads the run again. Until the report is
// durable, the claim holds a permit beyond the limit. The task of the claim must not start its next
// attempt with that permit. It waits until the other task has ended.
func TestPermitThatIsFoundAgain(t *testing.T) {
	t.Parallel()
	const now, worker = model.Time(100), queue.WorkerID(1)
	executes := true
	k := NewBoardGate(ledger.New(1), func(_ queue.WorkerID, c model.ClaimRef) (bool, *model.TaskReport) {
		if executes {
			return true, nil
		}
		return false, &model.TaskReport{Ref: c, Returned: true}
	})
	k.SetRules(now, oneAtATime(t), queue.New(queue.Config{Gate: k}))
	it, next := limitedItem("it"), limitedItem("next")
	pass := func(it *queue.Item, want bool) {
		t.Helper()
		if ok, why := take(t, now, k, it); ok != want {
			t.Fatalf("%s is let through: %v (%s)", it.Ref, ok, why)
		}
	}

	pass(it, true)
	k.RecordWorker(it.Ref, 1, worker)
	executes = false
	k.Give(now, it, queue.Forgotten) // its run is quarantined
	pass(next, true)
	k.Hold(now, it, "") // the quarantine is over
	k.RecordWorker(it.Ref, 1, worker)
	k.Give(now, it, queue.Neither) // the report is applied, and not durable
	pass(it, false)
	k.Give(now, next, queue.Succeeded)
	pass(it, true)
}

// The time of a claim is over, and its worker has reported. Usually the permit becomes free when
// the end of the claim is stored. The end cannot be stored while the run is quarantined, so the
// quarantine frees the permit. A claim keeps its permit while its worker still executes it. A claim
// of another run keeps its permit too.
func TestPermitOfATimeoutThatCannotBeStored(t *testing.T) {
	t.Parallel()
	const now, worker = model.Time(100), queue.WorkerID(1)
	executes := true
	k := NewBoardGate(ledger.New(1), func(_ queue.WorkerID, c model.ClaimRef) (bool, *model.TaskReport) {
		if executes {
			return true, nil
		}
		return false, &model.TaskReport{Ref: c}
	})
	k.SetRules(now, oneAtATime(t), queue.New(queue.Config{Gate: k}))
	it, next := limitedItem("it"), limitedItem("next")
	quarantine := func(a model.Address) {
		for _, ref := range k.OrphansAt(a) {
			k.FreeDone(now, ref)
		}
	}
	pass := func(it *queue.Item, want bool) {
		t.Helper()
		if ok, why := take(t, now, k, it); ok != want {
			t.Fatalf("%s is let through: %v (%s)", it.Ref, ok, why)
		}
	}

	pass(it, true)
	k.RecordWorker(it.Ref, 1, worker)
	k.Give(now, it, queue.Failed) // the time of the claim is over
	quarantine(it.Ref.Address)
	pass(next, false) // the worker does not know that

	executes = false
	quarantine(next.Ref.Address)
	pass(next, false)
	quarantine(it.Ref.Address)
	pass(next, true)
}

// The time of a claim is over, and the lent worker that executes it does not know that yet. The
// next attempt of the task must not start under the same permit. If the worker belongs to this
// node, it learns that its time is over before the next attempt starts.
func TestNextAttemptWaitsForALentWorker(t *testing.T) {
	t.Parallel()
	const now, worker = model.Time(100), queue.WorkerID(1)
	for _, lent := range []bool{false, true} {
		executes := true
		k := NewBoardGate(ledger.New(1), func(queue.WorkerID, model.ClaimRef) (bool, *model.TaskReport) { return executes, nil })
		k.Lent = func(id queue.WorkerID) bool { return lent && id == worker }
		k.SetRules(now, oneAtATime(t), queue.New(queue.Config{Gate: k}))
		it := limitedItem("it")
		if ok, why := take(t, now, k, it); !ok {
			t.Fatalf("the first attempt waits: %s", why)
		}
		k.RecordWorker(it.Ref, 1, worker)

		k.Give(now, it, queue.Failed)
		ok, why, again := k.Take(now, it)
		if ok == lent || lent && (again <= now || why.Code != model.WaitLine) {
			t.Errorf("lent %v: the next attempt starts: %v (%s), asks again at %d", lent, ok, why, again)
		}
		executes = false
		if ok, why := take(t, now, k, it); !ok {
			t.Errorf("lent %v: the worker has stopped, and the next attempt waits: %s", lent, why)
		}
	}
}
