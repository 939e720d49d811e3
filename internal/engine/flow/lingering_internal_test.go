package flow

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// takeNow asks the gate whether a task may start. Unlike take, it works without a ledger.
func takeNow(t *testing.T, now model.Time, k *BoardGate, it *queue.Item) (ok bool, why model.Reason) {
	t.Helper()
	if k.Book != nil {
		return take(t, now, k, it)
	}
	ok, why, _ = k.Take(now, it)
	return ok, why
}

// A claim has ended, and its code still runs. The code keeps the permit until the worker says that
// the code has ended. The next attempt of the task needs a permit of its own. This is true whether
// or not nodes share the limit.
func TestPermitOfLingeringCode(t *testing.T) {
	t.Parallel()
	const now = model.Time(100)
	for _, book := range []*ledger.Book{nil, ledger.New(1)} {
		at := map[model.ClaimRef]bool{}
		k := NewBoardGate(book, func(_ queue.WorkerID, c model.ClaimRef) (bool, *model.TaskReport) { return at[c], nil })
		k.SetRules(now, oneAtATime(t), queue.New(queue.Config{Gate: k}))
		it, other := limitedItem("it"), limitedItem("other")
		first := model.ClaimRef{TaskRef: it.Ref, Claim: 1}
		takes := func(what string, it *queue.Item, want bool, reason string) {
			t.Helper()
			if ok, why := takeNow(t, now, k, it); ok != want || !strings.Contains(why.Detail, reason) {
				t.Fatalf("shared %v, %s: the task passes: %v (%s)", book != nil, what, ok, why)
			}
		}

		takes("at first", it, true, "")
		at[first] = true
		k.RecordWorker(it.Ref, 1, 1)
		k.Give(now, it, queue.Failed) // decided and not durable
		if !k.KeepsPermits() {
			t.Fatal("the session would not tell the board that the code has ended")
		}
		takes("before the end is durable", other, false, "")
		if book == nil {
			takes("before the end is durable", it, false, "until the worker of the last attempt knows")
		}

		k.Linger(now, first)
		takes("while the code runs", other, false, "its code still runs")
		takes("while the code runs", it, false, "its code still runs")
		// New rules do not free the permit.
		k.SetRules(now, oneAtATime(t), queue.New(queue.Config{Gate: k}))
		takes("under new rules", other, false, "its code still runs")

		delete(at, first)
		if !k.FreeOrphan(now, first, queue.Neither) || k.FreeOrphan(now, first, queue.Neither) {
			t.Fatal("the end of the code frees no permit, or frees it twice")
		}
		takes("when the code has ended", it, true, "")
		k.RecordWorker(it.Ref, 2, 1)
		k.Give(now, it, queue.Succeeded)
		if k.KeepsPermits() || len(k.Limits()) > 0 && len(k.Limits()[0].Holders) > 0 {
			t.Errorf("shared %v: something is left: %+v", book != nil, k.Limits())
		}
	}
}

// The code of a lost claim still runs when the next attempt of its task has taken over its permit.
// The code counts too, so the limit has one holder too many, and nothing starts before both are
// done.
func TestLingeringCodeBesideTheNextAttempt(t *testing.T) {
	t.Parallel()
	const now = model.Time(100)
	at := map[model.ClaimRef]bool{}
	k := NewBoardGate(ledger.New(1), func(_ queue.WorkerID, c model.ClaimRef) (bool, *model.TaskReport) { return at[c], nil })
	k.SetRules(now, oneAtATime(t), queue.New(queue.Config{Gate: k}))
	it, other := limitedItem("it"), limitedItem("other")
	first := model.ClaimRef{TaskRef: it.Ref, Claim: 1}
	if ok, why := take(t, now, k, it); !ok {
		t.Fatal(why)
	}
	at[first] = true
	k.RecordWorker(it.Ref, 1, 1)
	k.Give(now, it, queue.Forgotten) // the run moves to another node, which ends the claim
	if ok, why := take(t, now, k, it); !ok {
		t.Fatalf("the run is back, and its next attempt does not start: %s", why)
	}
	k.RecordWorker(it.Ref, 2, 1)
	k.Linger(now, first) // the board stops the worker of the first attempt

	k.Give(now, it, queue.Succeeded)
	if ok, why := take(t, now, k, other); ok {
		t.Errorf("another task starts while the code of the first attempt runs: %s", why)
	}
	delete(at, first)
	k.LetGo(now)
	if ok, why := take(t, now, k, other); !ok {
		t.Errorf("another task does not start in the end: %s", why)
	}
}

// A node loses its lease while the code of a lost claim runs. Its next incarnation counts the
// claim.
func TestLingeringCodeOfAnEarlierIncarnation(t *testing.T) {
	t.Parallel()
	const now = model.Time(100)
	at := func(queue.WorkerID, model.ClaimRef) (bool, *model.TaskReport) { return true, nil }
	one, two := NewBoardGate(nil, at), NewBoardGate(nil, at)
	it, other := limitedItem("it"), limitedItem("other")
	claim := model.ClaimRef{TaskRef: it.Ref, Claim: 1}
	for _, k := range []*BoardGate{one, two} {
		k.SetRules(now, oneAtATime(t), queue.New(queue.Config{Gate: k}))
	}
	if ok, why, _ := one.Take(now, it); !ok {
		t.Fatal(why)
	}
	one.RecordWorker(it.Ref, 1, 1)
	one.Give(now, it, queue.Neither)
	one.Linger(now, claim)

	two.AdoptLingering(now, claim, 1, *one.LingeringItem(claim))
	if ok, why, _ := two.Take(now, other); ok {
		t.Errorf("another task starts: %s", why)
	}
	two.FreeOrphan(now, claim, queue.Neither)
	if ok, why, _ := two.Take(now, other); !ok {
		t.Errorf("another task does not start in the end: %s", why)
	}
}

// The breaker learns about a time-out when its claim ends, although the code of the claim still
// runs.
func TestBreakerOfLingeringCode(t *testing.T) {
	t.Parallel()
	const now = model.Time(100)
	set, err := rule.NewSet([]rule.Limit{{Name: "one", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}}},
		[]rule.Breaker{{Name: "b", Config: breaker.Config{Failures: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	k := NewBoardGate(nil, func(queue.WorkerID, model.ClaimRef) (bool, *model.TaskReport) { return true, nil })
	k.SetRules(now, set, queue.New(queue.Config{Gate: k}))
	it := limitedItem("it")
	it.Spec.Breaker = "b"
	if ok, why, _ := k.Take(now, it); !ok {
		t.Fatal(why)
	}
	k.RecordWorker(it.Ref, 1, 1)
	k.Give(now, it, queue.Failed)
	k.Linger(now, model.ClaimRef{TaskRef: it.Ref, Claim: 1})
	if why := func() model.Reason { _, why, _ := k.Take(now, it); return why }(); why.Code != model.WaitBreaker {
		t.Errorf("the next attempt waits because %+v, want the breaker", why)
	}
}
