package queue

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"pgregory.net/rapid"
)

// This file tests the invariants that the board must keep. Their numbers (E16 and so on) are
// explained in internal/archtest/testdata/invariants.txt. The tests look at the board from outside,
// without the naive board.

var everything = model.TaskOffer{Tenants: []string{"a", "b"}, Queues: []string{"q", "r"}, Kinds: []string{"x", "y"}, Slots: 1}

func newOffer(slots int) model.TaskOffer {
	o := everything
	o.Slots = slots
	return o
}

// plain is the n-th task of tenant a on queue q, without anything special.
func plain(n int, visible model.Time) Item {
	it := Item{
		Ref:  model.TaskRef{Address: model.Address{Tenant: "a", Type: "w", Key: "k"}, ID: "s"},
		Spec: &model.TaskSpec{Kind: "x", Queue: "q"}, Scheduled: visible, Visible: visible,
	}
	it.Ref.Run[12], it.Ref.Run[13], it.Ref.Run[14], it.Ref.Run[15] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	return it
}

func claimOf(ref model.TaskRef, n int64) model.ClaimRef {
	return model.ClaimRef{TaskRef: ref, Claim: n}
}

// E16: at most one worker at a time has claimed a task. E20: a proposed task is visible, offered
// and not paused, and its worker is here and has slots. E43: the load of a worker stays within its
// slots whenever it gets a task.
func TestE16E20E43ProposalsAreExclusiveAndSuitable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(true)
		actions := r.actions()
		owner := map[model.TaskRef]bool{}

		proposed := func(t *rapid.T, it *Item, id WorkerID) {
			w := r.naive.worker(id)
			switch {
			case owner[it.Ref]:
				t.Fatalf("%s already has a worker", it.Ref)
			case it.Visible > r.now:
				t.Fatalf("%s is visible at %d, now is %d", it.Ref, it.Visible, r.now)
			case w == nil || !w.covers(it):
				t.Fatalf("worker %d does not offer %s", id, it.Ref)
			case r.naive.paused[siteName{it.Ref.Address.Tenant, it.Spec.Queue}]:
				t.Fatalf("the queue of %s is paused", it.Ref)
			case it.spent():
				t.Fatalf("%s has no attempt left", it.Ref)
			}

			owner[it.Ref] = true
			for _, s := range r.board.Stats().Workers {
				if s.ID == id && s.Held > s.Slots {
					t.Fatalf("worker %d has %d claims and %d slots", id, s.Held, s.Slots)
				}
			}
		}

		match := func(t *rapid.T) {
			got := r.board.Match(r.now)
			same(t, "Match", got, r.naive.match(r.now))
			for _, m := range got {
				proposed(t, &r.naive.find(m.Ref).Item, m.Worker)
			}
		}

		actions["match"], actions["match2"] = match, match
		actions["reserve"] = func(t *rapid.T) {
			it := r.newItem(t)
			id, ok := r.board.Reserve(r.now, &it)
			r.naive.reserve(r.now, &it)
			if ok {
				proposed(t, &it, id)
			}
		}

		actions[""] = func(*rapid.T) {
			for ref := range owner {
				if k := r.naive.find(ref); k == nil || !isTaken(k.state) {
					delete(owner, ref)
				}
			}
		}

		t.Repeat(actions)
	})
}

// E19: the board never hands out a task whose attempts are used up, and does not keep it either.
func TestE19SpentTasksAreReportedAndNotHandedOut(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	b.Join(1, 1, newOffer(10))
	it := plain(1, 1)
	it.Spec.Retry.MaxAttempts = 3

	for it.Attempt = range 3 {
		b.Add(1, it)
		if got := b.Match(1); len(got) != 1 {
			t.Fatalf("attempt %d is not handed out", it.Attempt+1)
		}
		b.Hold(1, it, HeldClaim{Ref: claimOf(it.Ref, int64(it.Attempt)), Worker: 1})
		b.Remove(1, it.Ref, Failed)
	}

	it.Attempt = 3
	if _, ok := b.Reserve(1, &it); ok {
		t.Error("a fourth attempt was reserved")
	}
	b.Add(1, it)
	if got := b.Match(1); got != nil {
		t.Errorf("a fourth attempt is handed out: %v", got)
	}
	if b.Wake() != 1 {
		t.Errorf("Wake = %d: the board would not look", b.Wake())
	}
	if got := b.TakeDue(1); len(got) != 1 || got[0].Kind != DueSpent {
		t.Errorf("Due = %v", got)
	}
	if got := b.TakeDue(1); got != nil {
		t.Errorf("twice: %v", got)
	}
}

// E21: no strictly higher priority is skipped. Within a priority and a single key the order is
// (visible, id).
func TestE21PriorityThenFIFO(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := New(Config{})
		var all []Item
		for n := range rapid.IntRange(1, 200).Draw(t, "tasks") {
			it := plain(n, model.Time(rapid.IntRange(1, 50).Draw(t, "visible")))
			it.Ref.Run[0] = byte(rapid.IntRange(0, 255).Draw(t, "run"))
			it.Spec.Priority = rapid.IntRange(-2, 2).Draw(t, "priority")
			it.Spec.Kind = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "kind")
			all = append(all, it)
			b.Add(model.Time(rapid.IntRange(1, 60).Draw(t, "now")), it)
		}

		slices.SortFunc(all, func(x, y Item) int {
			return cmp.Or(cmp.Compare(y.Spec.Priority, x.Spec.Priority), compareItems(&x, &y))
		})
		b.Join(60, 1, newOffer(3))

		var got []model.TaskRef
		for {
			ms := b.Match(60)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				got = append(got, m.Ref)
				b.Remove(60, m.Ref, Succeeded)
			}
		}

		var want []model.TaskRef
		for _, it := range all {
			want = append(want, it.Ref)
		}
		same(t, "order", got, want)
	})
}

// E22: many workers that claim many tasks get all of them, each once.
func TestE22NothingIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := newRig(false)
		r.gate.room = map[string]int{"": 3, "g": 1, "h": 2, "i": 1}
		seen := map[model.TaskRef]int{}
		for range rapid.IntRange(1, 60).Draw(t, "tasks") {
			it := r.newItem(t)
			it.Spec.ToStart, it.Spec.Total, it.Attempt = 0, 0, 0
			r.board.Add(r.now, it)
			seen[it.Ref] = 0
		}

		r.now += 10
		workers := rapid.IntRange(1, 5).Draw(t, "workers")
		for id := range workers {
			r.board.Join(r.now, WorkerID(id+1), newOffer(rapid.IntRange(1, 4).Draw(t, "slots")))
		}

		for {
			ms := r.board.Match(r.now)
			if len(ms) == 0 {
				break
			}
			for _, m := range ms {
				if rapid.IntRange(0, 4).Draw(t, "refused") == 0 {
					r.board.Unreserve(r.now, m.Ref)
					continue
				}
				seen[m.Ref]++
				r.board.Remove(r.now, m.Ref, Succeeded)
			}
		}

		for ref, n := range seen {
			if n != 1 {
				t.Fatalf("%s was executed %d times", ref, n)
			}
		}

		for _, w := range r.board.Stats().Workers {
			if w.Held != 0 {
				t.Fatalf("worker %d still holds %d", w.ID, w.Held) // E43
			}
		}

		for group, n := range r.gate.used {
			if n != 0 {
				t.Fatalf("%d permits of %q are still held", n, group)
			}
		}
	})
}

// E26: if the worker of a claim is gone, the board reports the claim when the grace period is over.
// It never reports the claim of a worker that sends heartbeats, however long the claim takes. E32:
// a worker whose heartbeats come in shorter intervals than the limit never times out.
func TestE26E32BeatingOwnersKeepTheirClaims(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 20).Draw(t, "limit")
		b := New(Config{Grace: 7 * time.Microsecond})
		it := plain(1, 1)
		it.Spec.Silence = time.Duration(limit) * time.Microsecond
		claim := claimOf(it.Ref, 1)
		b.Join(1, 1, newOffer(1))
		recovered := rapid.Bool().Draw(t, "recovered")
		now := model.Time(1)

		if recovered {
			b.Hold(now, it, HeldClaim{Ref: claim})
			now += model.Time(rapid.IntRange(0, 7).Draw(t, "comes back after"))
			if got := b.TakeDue(now); got != nil {
				t.Fatalf("lost within the grace: %v", got)
			}
			if !b.Beat(now, 1, claim) {
				t.Fatal("the worker may not come back")
			}
		} else {
			b.Hold(now, it, HeldClaim{Ref: claim, Worker: 1})
		}

		for range rapid.IntRange(0, 30).Draw(t, "beats") {
			now += model.Time(rapid.IntRange(1, limit).Draw(t, "interval"))
			if got := b.TakeDue(now); got != nil {
				t.Fatalf("%v at %d", got, now)
			}
			if !b.Beat(now, 1, claim) {
				t.Fatalf("not held at %d", now)
			}
			if b.Beat(now, 1, claimOf(it.Ref, 2)) || b.Beat(now, 2, claim) {
				t.Fatal("another worker may beat")
			}
		}

		kind, wait := DueSilence, limit
		if rapid.Bool().Draw(t, "leaves") {
			now += model.Time(rapid.IntRange(0, limit).Draw(t, "leaves after"))
			same(t, "Leave", b.Leave(now, 1), []model.ClaimRef{claim})
			kind, wait = DueLost, 7
		}

		end := now + model.Time(wait)
		if got := b.TakeDue(end); got != nil {
			t.Fatalf("too early: %v", got)
		}
		if wake := b.Wake(); wake != end+1 {
			t.Fatalf("Wake = %d, want %d", wake, end+1)
		}

		same(t, "TakeDue", b.TakeDue(end+1), []Due{{Ref: it.Ref, Claim: 1, Kind: kind}})
		if b.Beat(end+1, 1, claim) {
			t.Fatal("held after it was reported")
		}
	})
}

// E30: the board reports schedule-to-start if and only if the task was unclaimed for longer than
// the limit. It no longer hands out a reported task. A claim whose commit fails does not restart
// the limit.
func TestE30ScheduleToStartOrClaim(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		b := New(Config{})
		it := plain(1, model.Time(rapid.IntRange(1, 9).Draw(t, "visible")))
		limit := rapid.IntRange(1, 9).Draw(t, "limit")
		it.Spec.ToStart = time.Duration(limit) * time.Microsecond
		b.Add(1, it)
		joins := model.Time(rapid.IntRange(1, 25).Draw(t, "a worker comes at"))
		refused := rapid.Bool().Draw(t, "the first claim is refused")

		claimed, timedOut := false, false
		for now := model.Time(1); now < 40; now++ {
			if now == joins {
				b.Join(now, 1, newOffer(1))
			}
			dueFirst := rapid.Bool().Draw(t, "due first")
			if !dueFirst && len(b.Match(now)) > 0 {
				claimed = true
			}

			due := func() {
				for _, d := range b.TakeDue(now) {
					if d.Kind != DueToStart || timedOut || now != it.Visible+model.Time(limit)+1 {
						t.Fatalf("%v at %d", d, now)
					}
					timedOut = true
				}
			}

			due()
			if dueFirst && len(b.Match(now)) > 0 {
				claimed = true
			}

			if claimed && refused {
				b.Unreserve(now, it.Ref)
				b.Slots(now, 1, 0)
				claimed, refused = false, false
				due()
			} else if claimed && now < it.Visible {
				t.Fatalf("claimed at %d", now)
			}
		}

		if claimed == timedOut {
			t.Fatalf("claimed: %v, timed out: %v", claimed, timedOut)
		}
	})
}

// E43, E45: a worker that drains gets no further tasks and keeps its claims. However its tasks end,
// its load returns to zero.
func TestE43DrainingWorkers(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	b.Join(1, 1, newOffer(4))
	for n := range 6 {
		b.Add(1, plain(n, 1))
	}
	ms := b.Match(1)
	if len(ms) != 4 {
		t.Fatalf("%d of 4 slots are used", len(ms))
	}

	b.Slots(1, 1, 0)
	for i, m := range ms {
		it := plain(i, 1)
		claim := claimOf(m.Ref, int64(i+1))
		switch i {
		case 0: // succeeds
			b.Hold(1, it, HeldClaim{Ref: claim, Worker: 1})
			if !b.MarkReported(1, 1, claim) || b.MarkReported(1, 1, claim) {
				t.Error("a report counts once")
			}
			b.Remove(1, m.Ref, Succeeded)
		case 1: // fails
			b.Hold(1, it, HeldClaim{Ref: claim, Worker: 1})
			b.Remove(1, m.Ref, Failed)
			b.Add(1, it)
		case 2: // the commit of the claim fails
			b.Unreserve(1, m.Ref)
		case 3: // the task is given back because the worker leaves
			b.Hold(1, it, HeldClaim{Ref: claim, Worker: 1})
		}

		if i < 3 {
			if got := b.Stats().Workers[0].Held; got != 3-i {
				t.Errorf("after %d: the load is %d", i, got)
			}
		}
	}

	if got := b.Match(1); got != nil {
		t.Errorf("a draining worker gets %v", got)
	}
	if got := b.Leave(1, 1); len(got) != 1 || got[0].Claim != 4 {
		t.Errorf("it held %v", got)
	}
	if got := b.Stats(); len(got.Workers) != 0 || got.Queues[0].Waiting != 4 || got.Queues[0].Claimed != 1 {
		t.Errorf("%+v", got)
	}
}

// A worker that left while a claim was being committed does not get the task.
func TestHeldTellsThatTheWorkerLeft(t *testing.T) {
	t.Parallel()
	b := New(Config{Grace: time.Microsecond})
	b.Join(1, 1, newOffer(1))
	it := plain(1, 1)
	if id, ok := b.Reserve(1, &it); !ok || id != 1 {
		t.Fatal(id, ok)
	}

	if got := b.Leave(1, 1); got != nil {
		t.Errorf("it held %v", got)
	}
	if b.Hold(1, it, HeldClaim{Ref: claimOf(it.Ref, 1), Worker: 1}) {
		t.Error("the worker is here")
	}
	if got := b.TakeDue(3); len(got) != 1 || got[0].Kind != DueLost || got[0].Claim != 1 {
		t.Errorf("Due = %v", got)
	}
}

// The board spreads the load: equal workers get equally many tasks.
func TestWorkersAreServedEvenly(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	for id := range 5 {
		b.Join(1, WorkerID(id+1), newOffer(3))
	}

	count := map[WorkerID]int{}
	for n := range 1000 {
		it := plain(n, 1)
		id, ok := b.Reserve(1, &it)
		if !ok {
			t.Fatal("no worker")
		}
		count[id]++
		b.Remove(1, it.Ref, Succeeded)
	}

	for id, n := range count {
		if n != 200 {
			t.Errorf("worker %d got %d", id, n)
		}
	}
}

// Over a long run, keys and tenants that always have tasks get their shares, give or take two tasks
// each.
func TestFairnessIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tenants := map[string]int{"a": rapid.IntRange(1, 5).Draw(t, "weight of a"), "b": rapid.IntRange(1, 5).Draw(t, "weight of b")}
		keys := map[string]int{}
		for k := range rapid.IntRange(1, 5).Draw(t, "keys") {
			keys[fmt.Sprint(k)] = rapid.IntRange(1, 4).Draw(t, "weight")
		}
		b := New(Config{Weights: tenants})
		runs := 0
		specs := map[model.RunID]Item{}

		add := func(tenant, fair string) {
			runs++
			it := plain(runs, 1)
			it.Ref.Address.Tenant, it.Spec.Fair, it.Spec.Weight = tenant, fair, keys[fair]
			specs[it.Ref.Run] = it
			b.Add(1, it)
		}
		for _, tenant := range []string{"a", "b"} {
			for k := range len(keys) {
				for range 20 {
					add(tenant, fmt.Sprint(k))
				}
			}
		}

		for id := range 2 {
			b.Join(1, WorkerID(id+1), newOffer(rapid.IntRange(1, 3).Draw(t, "slots")))
		}

		perTenant, perKey, total := map[string]int{}, map[[2]string]int{}, 0
		for total < 2000 {
			for _, m := range b.Match(1) {
				it := specs[m.Ref.Run]
				b.Remove(1, m.Ref, Succeeded)
				add(it.Ref.Address.Tenant, it.Spec.Fair)
				perTenant[it.Ref.Address.Tenant]++
				perKey[[2]string{it.Ref.Address.Tenant, it.Spec.Fair}]++
				total++
			}
		}

		within := func(what string, got, of, weight, weights int) {
			if want := of * weight / weights; got < want-2*len(keys) || got > want+2*len(keys) {
				t.Fatalf("%s got %d of %d, should be %d", what, got, of, want)
			}
		}

		sum := 0
		for _, w := range keys {
			sum += w
		}

		for tenant, n := range perTenant {
			within(tenant, n, total, tenants[tenant], tenants["a"]+tenants["b"])
			for k, w := range keys {
				within(tenant+"/"+k, perKey[[2]string{tenant, k}], n, w, sum)
			}
		}
	})
}

// A key gets no credit for its absence, and a key that comes back with one task at a time gets no
// more than its share.
func TestIdleKeysHoardNoCredit(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	runs := 0

	add := func(fair string) {
		runs++
		it := plain(runs, 1)
		it.Ref.Address.Key, it.Spec.Fair = fair, fair
		b.Add(1, it)
	}

	b.Join(1, 1, newOffer(1))
	serve := func() string {
		m := b.Match(1)[0]
		b.Remove(1, m.Ref, Succeeded)
		return m.Ref.Address.Key
	}

	for range 3000 {
		add("busy")
	}
	for range 1000 {
		serve()
	}
	for range 500 {
		add("was away")
	}
	count := map[string]int{}
	for range 100 {
		count[serve()]++
	}
	if n := count["was away"]; n < 49 || n > 51 {
		t.Errorf("after being away it gets %d of 100", n)
	}
	clear(count)
	add("one at a time")

	for range 300 {
		who := serve()
		count[who]++
		if who == "one at a time" {
			add(who)
		}
	}

	if n := count["one at a time"]; n < 99 || n > 101 {
		t.Errorf("with one at a time it gets %d of 300", n)
	}
}

// A stream of new keys does not starve a waiting key.
func TestFreshKeysDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	b.Join(1, 1, newOffer(1))

	add := func(n int, fair string) {
		it := plain(n, 1)
		it.Ref.Address.Key, it.Spec.Fair = fair, fair
		b.Add(1, it)
	}
	for n := range 5 {
		add(n, "zzz")
	}

	left := 5
	for n := range 100 {
		add(100+n, fmt.Sprintf("a%d", n))
		m := b.Match(1)[0]
		b.Remove(1, m.Ref, Succeeded)
		if m.Ref.Address.Key == "zzz" {
			left--
		}
	}

	if left > 0 {
		t.Errorf("%d still wait behind keys that came later", left)
	}
}

// Only the order of calls decides: two boards with the same calls give the same answers, although
// they contain maps.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	play := func() (out []Match) {
		random := rand.New(rand.NewPCG(1, 2))
		b := New(Config{Gate: newFakeGate(true)})
		for n := range 300 {
			it := plain(n, model.Time(random.IntN(5)+1))
			it.Ref.Address.Tenant = []string{"a", "b"}[random.IntN(2)]
			it.Spec.Fair, it.Spec.Breaker = fmt.Sprint(random.IntN(9)), []string{"", "g", "h"}[random.IntN(3)]
			b.Add(1, it)

			if n == 100 {
				for id := range 3 {
					b.Join(5, WorkerID(id+1), newOffer(2+id))
				}
			}

			for _, m := range b.Match(model.Time(6 + n)) {
				out = append(out, m)
				if random.IntN(2) == 0 {
					b.Remove(model.Time(6+n), m.Ref, Failed)
				}
			}

			b.Reopen(model.Time(6 + n))
		}

		return out
	}

	first := play()
	for range 5 {
		if !slices.Equal(first, play()) {
			t.Fatal("two boards that were told the same differ")
		}
	}
}

// Deadlines far away do not overflow into the past.
func TestDeadlinesSaturate(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	it := plain(1, model.MaxTime-5)
	it.Spec.ToStart, it.Spec.Total = 1<<63-1, 1<<63-1
	b.Add(1, it)
	if got := b.TakeDue(model.MaxTime); got != nil {
		t.Errorf("%v", got)
	}
	it.Spec = &model.TaskSpec{Kind: "x", Queue: "q", ToClose: 1<<63 - 1, Silence: 1<<63 - 1}
	b.Join(1, 1, newOffer(1))
	b.Hold(model.MaxTime-5, it, HeldClaim{Ref: claimOf(it.Ref, 1), Worker: 1})
	if got := b.TakeDue(model.MaxTime); got != nil {
		t.Errorf("%v", got)
	}
	if b.Wake() != 0 {
		t.Errorf("Wake = %d", b.Wake())
	}
}

// The text of a reason is readable.
func TestReasonsOfTasks(t *testing.T) {
	t.Parallel()
	b := New(Config{})
	for n := range 3 {
		b.Add(1, plain(n, 1))
	}
	ref := plain(2, 1).Ref

	expect := func(want string) {
		t.Helper()
		if got, ok := b.Explain(ref); !ok || got.String() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}

	expect("waits for a worker that offers queue q, activity x")
	b.Join(1, 1, newOffer(1))
	expect("waits in line in queue q: 2 of its key and priority are before it")
	b.Match(1)
	expect("waits in line in queue q: 1 of its key and priority are before it")
	b.Pause("a", "q", "maintenance")
	expect("waits in queue q, which is paused: maintenance")
	if _, ok := b.Explain(model.TaskRef{}); ok {
		t.Error("a task that is not here is explained")
	}
}
