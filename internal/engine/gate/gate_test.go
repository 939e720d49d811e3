package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const t0 = model.Time(1_000_000_000_000_000)

func at(d time.Duration) model.Time { return t0.Add(d) }

func rules(t testing.TB, limits []rule.Limit, breakers ...rule.Breaker) *rule.Set {
	t.Helper()
	s, err := rule.NewSet(limits, breakers)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func namedLimit(name string, concurrency int) rule.Limit {
	return rule.Limit{Name: name, Per: rule.PerName, Numbers: limit.Numbers{Concurrency: concurrency}}
}

func item(n int, spec model.TaskSpec) *gate.Task {
	return &gate.Task{Ref: model.TaskRef{Address: model.Address{Tenant: "acme", Type: "task:x", Key: fmt.Sprint(n)}, ID: model.TaskStep}, Spec: &spec}
}

func open(t testing.TB, s *rule.Set) *gate.Gate {
	g := gate.New(1, nil)
	g.SetRules(t0, s)
	return g
}

// G1, G2: a task that needs two limits gets both or none, and the refusal names the task that holds
// the limit.
func TestAllOrNothing(t *testing.T) {
	t.Parallel()
	g := open(t, rules(t, []rule.Limit{namedLimit("a", 2), namedLimit("b", 1)}))
	one, two, three := item(1, model.TaskSpec{Limits: []string{"a", "b"}}), item(2, model.TaskSpec{Limits: []string{"a", "b"}}), item(3, model.TaskSpec{Limits: []string{"a"}})
	if ok, why, _ := g.Take(t0, one); !ok {
		t.Fatal(why)
	}
	ok, why, again := g.Take(t0, two)
	if ok || why.Code != model.WaitPermit || !strings.Contains(why.Name, "b") || !strings.Contains(why.Detail, "acme/task:x/1") || again != 0 {
		t.Fatalf("%v %+v %v", ok, why, again)
	}

	if ok, why, _ := g.Take(t0, three); !ok {
		t.Fatalf("a task that was refused keeps nothing: %v", why)
	}
	s := g.Limits()
	if len(s) != 2 || len(s[0].Holders) != 2 || len(s[1].Holders) != 1 || len(s[1].Waiters) != 1 || s[1].Waiters[0].Ref != two.Ref {
		t.Fatalf("%+v", s)
	}

	g.Give(t0, one, breaker.Succeeded)
	if w := g.TakeWoken(); len(w) != 1 || w[0] != g.Group(two) {
		t.Fatalf("%q", w)
	}
	if ok, why, _ := g.Take(t0, two); !ok {
		t.Fatal(why)
	}

	g.Give(t0, two, breaker.Succeeded)
	g.Give(t0, two, breaker.Succeeded)
	g.Give(t0, three, breaker.Neither)

	for _, s := range g.Limits() {
		if len(s.Holders)+len(s.Waiters) != 0 {
			t.Fatalf("%+v", s)
		}
	}

	if m := g.Out(); len(m) != 0 {
		t.Fatalf("one node sends nothing: %+v", m)
	}
	if rows, err := g.Dirty(); len(rows) != 0 || err != nil {
		t.Fatalf("%+v, %v", rows, err)
	}
}

// The gate wakes a task, and another limit refuses it. The wake-up goes to the next task.
func TestWakeUpIsPassedOn(t *testing.T) {
	t.Parallel()
	g := open(t, rules(t, []rule.Limit{namedLimit("a", 1), namedLimit("b", 1)}))
	holdsA, holdsB := item(1, model.TaskSpec{Limits: []string{"a"}}), item(2, model.TaskSpec{Limits: []string{"b"}})
	both, onlyA := item(3, model.TaskSpec{Limits: []string{"a", "b"}}), item(4, model.TaskSpec{Limits: []string{"a"}})
	for _, it := range []*gate.Task{holdsA, holdsB, both, onlyA} {
		g.Take(t0, it)
	}
	g.Give(t0, holdsA, breaker.Succeeded)
	if w := g.TakeWoken(); len(w) != 1 || w[0] != g.Group(both) {
		t.Fatalf("%q", w)
	}

	if ok, why, _ := g.Take(t0, both); ok || !strings.Contains(why.Name, "b") {
		t.Fatal(why)
	}
	if w := g.TakeWoken(); len(w) != 1 || w[0] != g.Group(onlyA) {
		t.Fatalf("%q", w)
	}
	if ok, _, _ := g.Take(t0, onlyA); !ok {
		t.Fatal("no task holds a")
	}

	// A task that leaves the line also passes the wake-up on.
	third := item(5, model.TaskSpec{Limits: []string{"b"}})
	g.Take(t0, third)
	g.Give(t0, holdsB, breaker.Succeeded)
	g.TakeWoken()
	g.Give(t0, both, breaker.Neither)
	if w := g.TakeWoken(); len(w) != 1 || w[0] != g.Group(third) {
		t.Fatalf("%q", w)
	}
}

func TestRate(t *testing.T) {
	t.Parallel()
	g := open(t, rules(t, []rule.Limit{{Name: "r", Numbers: limit.Numbers{Rate: 2, Per: time.Second, Burst: 2}}}))
	for i := range 2 {
		if ok, why, _ := g.Take(t0, item(i, model.TaskSpec{})); !ok {
			t.Fatal(why)
		}
	}

	it := item(9, model.TaskSpec{})
	ok, why, again := g.Take(t0, it)
	if ok || why.Code != model.WaitRate || again != at(500*time.Millisecond) || why.Until != again {
		t.Fatalf("%v %+v %v", ok, why, again)
	}
	if ok, _, _ := g.Take(again-1, it); ok {
		t.Fatal("before its time")
	}

	if ok, why, _ := g.Take(again, it); !ok {
		t.Fatal(why)
	}
	if ok, why, again := g.Take(at(500*time.Millisecond), item(10, model.TaskSpec{})); ok || again != at(time.Second) {
		t.Fatal(why, again)
	}
}

// Each value of the input has its own limit. A limit that no rule defines holds a task back until a
// rule defines it.
func TestKeysAndUnknownLimits(t *testing.T) {
	t.Parallel()
	perCustomer := rule.Limit{Name: "customer", Per: rule.PerKey, Key: "input.customer", Numbers: limit.Numbers{Concurrency: 1}}
	g := open(t, rules(t, []rule.Limit{perCustomer}))

	of := func(n int, customer string) *gate.Task {
		it := item(n, model.TaskSpec{})
		it.Input = &model.Payload{Data: fmt.Appendf(nil, `{"customer": %q}`, customer)}
		return it
	}
	for i, c := range []struct {
		customer string
		ok       bool
	}{{"a", true}, {"b", true}, {"a", false}, {"c", true}, {"", true}, {"", false}} {
		if ok, why, _ := g.Take(t0, of(i, c.customer)); ok != c.ok {
			t.Errorf("%d, customer %s: %v %v", i, c.customer, ok, why)
		}
	}

	if g.Group(of(8, "a")) == g.Group(of(9, "b")) || g.Group(of(8, "a")) != g.Group(of(9, "a")) {
		t.Error("groups are by key")
	}
	unknown := item(20, model.TaskSpec{Limits: []string{"later/7"}})
	if ok, why, again := g.Take(t0, unknown); ok || why.Code != model.WaitPermit || !strings.Contains(why.String(), "later/7") || !strings.Contains(why.String(), "defined") || again != 0 {
		t.Errorf("%v %v", ok, why)
	}
	g.SetRules(t0, rules(t, []rule.Limit{namedLimit("later", 1)}))
	if ok, why, _ := g.Take(t0, unknown); !ok {
		t.Error(why)
	}
}

// G4: the numbers of a limit change while some tasks hold the limit and others wait for it.
func TestRulesChange(t *testing.T) {
	t.Parallel()
	g := open(t, rules(t, []rule.Limit{namedLimit("a", 1)}))
	items := make([]*gate.Task, 4)
	for i := range items {
		items[i] = item(i, model.TaskSpec{Limits: []string{"a"}})
		if ok, _, _ := g.Take(t0, items[i]); ok != (i == 0) {
			t.Fatal(i)
		}
	}

	g.SetRules(t0, rules(t, []rule.Limit{namedLimit("a", 3)}))
	if len(g.TakeWoken()) == 0 {
		t.Fatal("no task is woken")
	}

	for i, it := range items {
		if ok, _, _ := g.Take(t0, it); ok != (i < 3) {
			t.Fatal(i)
		}
	}

	g.SetRules(t0, rules(t, []rule.Limit{namedLimit("a", 1)}))
	for i, it := range items[:3] {
		if ok, why, _ := g.Take(t0, items[3]); ok {
			t.Fatalf("passes after %d of 3 have finished: %v", i, why)
		}
		g.Give(t0, it, breaker.Succeeded)
	}

	if ok, why, _ := g.Take(t0, items[3]); !ok {
		t.Fatal(why)
	}
	g.SetRules(t0, nil)
	g.Give(t0, items[3], breaker.Succeeded)
}

// An open breaker holds back the tasks that name it and no others. It lets one probe through.
// Whenever the state of the breaker changes, Dirty returns the new state, so that the node stores
// it.
func TestBreaker(t *testing.T) {
	t.Parallel()
	config := breaker.Config{Failures: 2, Reset: 10 * time.Second, Successes: 1}
	g := open(t, rules(t, []rule.Limit{namedLimit("a", 1)}, rule.Breaker{Kind: "http.*", Config: config}))
	call := func(n int) *gate.Task { return item(n, model.TaskSpec{Kind: "http.get", Limits: []string{"a"}}) }
	for i := range 2 {
		it := call(i)
		if ok, why, _ := g.Take(t0, it); !ok {
			t.Fatal(why)
		}
		g.Give(t0, it, breaker.Failed)
	}
	rows, err := g.Dirty()
	if err != nil || len(rows) != 1 || rows[0].Breaker != (rule.BreakerID{Tenant: "acme", Name: "activity:http.get"}) {
		t.Fatalf("%+v, %v", rows, err)
	}
	one, two := call(10), call(11)
	ok, why, again := g.Take(at(time.Second), one)
	if ok || why.Code != model.WaitBreaker || why.Name != "activity:http.get" || again != at(10*time.Second) || why.Until != again || !strings.Contains(why.Detail, "2 failures") {
		t.Fatalf("%v %+v %v", ok, why, again)
	}
	if ok, why, _ := g.Take(at(time.Second), item(12, model.TaskSpec{Kind: "other", Limits: []string{"a"}})); !ok {
		t.Fatalf("what the breaker refuses holds no limit: %v", why)
	}
	g.Give(at(time.Second), item(12, model.TaskSpec{Kind: "other"}), breaker.Succeeded)

	// Another node takes over the stored row.
	g2 := open(t, rules(t, []rule.Limit{namedLimit("a", 5)}, rule.Breaker{Kind: "http.*", Config: config}))
	if err := g2.Adopt(t0, rule.BreakerID{Tenant: "acme", Name: "activity:http.get"}, rows[0].Data); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*gate.Gate{g, g2} {
		g.Take(at(9*time.Second), one)
		if ok, why, _ := g.Take(at(10*time.Second), one); !ok {
			t.Fatalf("a probe: %v", why)
		}
		if ok, why, _ := g.Take(at(10*time.Second), two); ok || why.Code != model.WaitBreaker {
			t.Fatalf("a second probe: %v %v", ok, why)
		}

		g.TakeWoken()
		g.Give(at(11*time.Second), one, breaker.Succeeded)
		if w := g.TakeWoken(); len(w) != 1 || w[0] != g.Group(two) {
			t.Fatalf("%q", w)
		}
		if ok, why, _ := g.Take(at(11*time.Second), two); !ok {
			t.Fatal(why)
		}

		if s := g.Breakers(at(11 * time.Second)); len(s) != 1 || s[0].State != breaker.Closed {
			t.Fatalf("%+v", s)
		}
	}
}

// When a callee asks for a pause (RetryAfter), the breaker holds all its tasks back. A stored state
// that the gate adopts can hold tasks back as well. The next change of the breaker wakes these
// tasks.
func TestStoredState(t *testing.T) {
	t.Parallel()
	g := open(t, nil)
	id := rule.BreakerID{Tenant: "acme", Name: "db"}
	it := item(1, model.TaskSpec{Breaker: "db"})

	adopt := func(now model.Time, do func(*breaker.Breaker)) {
		t.Helper()
		b := breaker.New(breaker.Config{}, t0)
		do(b)
		row, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Adopt(now, id, row); err != nil {
			t.Fatal(err)
		}
	}

	adopt(t0, func(b *breaker.Breaker) { b.Trip(t0, "they said so") })
	if ok, why, _ := g.Take(t0, it); ok || why.Detail != "they said so" {
		t.Fatal(why)
	}
	if adopt(t0, func(*breaker.Breaker) {}); len(g.TakeWoken()) != 1 {
		t.Fatal("no task is woken")
	}

	g.RetryAfter(t0, it, at(time.Minute))
	if ok, _, again := g.Take(t0, it); ok || again != at(time.Minute) {
		t.Fatal(again)
	}
	adopt(t0, func(b *breaker.Breaker) { b.PauseUntil(t0, at(time.Hour), "migration") })
	if ok, why, again := g.Take(at(2*time.Minute), it); ok || again != at(time.Hour) || why.Detail != "migration" {
		t.Fatal(why, again)
	}

	if err := g.Adopt(at(2*time.Minute), id, []byte("rubbish")); !fault.Is(err, fault.Corrupt) {
		t.Fatal(err)
	}
	if err := g.Adopt(at(2*time.Minute), id, nil); err != nil {
		t.Fatal(err)
	}
	if ok, why, _ := g.Take(at(2*time.Minute), it); !ok {
		t.Fatal(why)
	}
}

// Claims that are found after a restart hold their limits, even if the limits are full by now.
func TestHold(t *testing.T) {
	t.Parallel()
	g := open(t, rules(t, []rule.Limit{namedLimit("a", 1)}))
	spec := model.TaskSpec{Limits: []string{"a"}, Breaker: "b"}
	one, two, three := item(1, spec), item(2, spec), item(3, spec)
	g.Hold(t0, one)
	g.Hold(t0, two)
	g.Hold(t0, two)
	if ok, why, _ := g.Take(t0, three); ok || !strings.Contains(why.Detail, "/1; acme/task:x/2") {
		t.Fatal(ok, why)
	}

	g.Give(t0, one, breaker.Failed)
	if ok, _, _ := g.Take(t0, three); ok {
		t.Fatal("one of one is still held")
	}
	g.Give(t0, two, breaker.Failed)
	if ok, why, _ := g.Take(t0, three); !ok {
		t.Fatal(why)
	}
}

// The gate drops the limits of keys that no task uses.
func TestSweep(t *testing.T) {
	t.Parallel()
	g := open(t, rules(t, []rule.Limit{namedLimit("a", 1), {Name: "all", Numbers: limit.Numbers{Concurrency: 10}}}))
	for i := range 20_000 {
		it := item(i, model.TaskSpec{Limits: []string{fmt.Sprint("a/", i)}})
		if ok, why, _ := g.Take(t0, it); !ok {
			t.Fatal(why)
		}
		g.Give(t0, it, breaker.Succeeded)
	}
	if n := g.Size(); n > 17_000 {
		t.Fatalf("%d limits are kept", n)
	}
}

func BenchmarkTakeGive(b *testing.B) {
	g := open(b, rules(b, []rule.Limit{{Name: "all", Numbers: limit.Numbers{Concurrency: 40}}, namedLimit("key", 1)}, rule.Breaker{Kind: "*", Config: breaker.Config{Failures: 100}}))
	items := make([]*gate.Task, 10_000)
	for i := range items {
		items[i] = item(i, model.TaskSpec{Kind: "k", Queue: "q", Limits: []string{fmt.Sprint("key/", i)}})
	}

	now := t0
	for _, it := range items { // the gate has a resource for each key
		g.Take(now, it)
		g.Give(now, it, breaker.Succeeded)
	}

	for _, it := range items[:39] {
		g.Take(now, it)
	}
	b.ReportAllocs()

	i := 39
	for b.Loop() {
		now++
		if ok, why, _ := g.Take(now, items[i]); !ok {
			b.Fatal(why)
		}
		oldest := i - 39
		if oldest < 0 {
			oldest += len(items)
		}
		g.Give(now, items[oldest], breaker.Succeeded)
		if i++; i == len(items) {
			i = 0
		}
	}
}

func BenchmarkRefused(b *testing.B) {
	g := open(b, rules(b, []rule.Limit{{Name: "all", Numbers: limit.Numbers{Concurrency: 40}}}))
	for i := range 40 {
		g.Take(t0, item(i, model.TaskSpec{}))
	}
	it := item(99, model.TaskSpec{})
	b.ReportAllocs()
	for b.Loop() {
		if ok, _, _ := g.Take(t0, it); ok {
			b.Fatal("41 of 40")
		}
	}
}

// Two nodes have reached the same generation of a breaker, each with its own probe. When one node
// adopts the state of the other, its breaker must not mistake the outcome of a call of its own node
// for the outcome of the other node's probe. Otherwise there would be two probes (E35 in
// internal/archtest/testdata/invariants.txt).
func TestAdoptedStateIsNotThatOfOwnCalls(t *testing.T) {
	t.Parallel()
	set := rules(t, nil, rule.Breaker{Name: "b", Config: breaker.Config{Failures: 1, Successes: 1, Probes: 1, Reset: time.Second}})
	spec := model.TaskSpec{Breaker: "b"}

	probing := func() (g *gate.Gate, probe *gate.Task, row []byte) {
		g = open(t, set)
		for n, now := range []model.Time{t0, at(time.Second)} {
			probe = item(n, spec)
			if ok, why, _ := g.Take(now, probe); !ok {
				t.Fatal(why)
			}
			if n == 0 {
				g.Give(now, probe, breaker.Failed)
			}
		}
		rows, err := g.Dirty()
		if err != nil || len(rows) != 1 {
			t.Fatal(rows, err)
		}
		return g, probe, rows[0].Data
	}

	g, probe, _ := probing()
	_, _, theirs := probing()
	if err := g.Adopt(at(time.Second), rule.BreakerID{Tenant: "acme", Name: "b"}, theirs); err != nil {
		t.Fatal(err)
	}
	g.Give(at(time.Second), probe, breaker.Succeeded)
	if s := g.Breakers(at(time.Second)); s[0].State != breaker.HalfOpen || s[0].Probes != 1 {
		t.Errorf("the breaker is %s with %d probes, want that of the other node under way", s[0].State, s[0].Probes)
	}
	if ok, _, _ := g.Take(at(time.Second), item(3, spec)); ok {
		t.Error("a second probe is let through")
	}
}

// G3: the gate has asked a shared breaker for a probe, and a task waits for the answer. The answer
// wakes the task even if the breaker grants no probe. The task then gets a time at which to ask
// again. It needs that time because the node with the probe may be dead, and no message announces
// the end of that node's lease.
func TestNoProbeIsAnAnswer(t *testing.T) {
	t.Parallel()
	config := breaker.Config{Failures: 1, Probes: 1, Reset: time.Second, Lease: time.Minute}
	id := rule.BreakerID{Tenant: "acme", Name: "b"}
	b := breaker.New(config, t0)
	b.Trip(t0, "")
	if probe, _ := b.Receive(at(time.Second), &breaker.ToOwner{Ask: true}); probe.Probe == 0 {
		t.Fatal("another node gets no probe")
	}

	g := gate.New(1, func(rule.Resource) bool { return false })
	g.SetRules(t0, rules(t, nil, rule.Breaker{Name: "b", Config: config}))
	adopt := func(b *breaker.Breaker, now model.Time) {
		t.Helper()
		row, err := b.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Adopt(now, id, row); err != nil {
			t.Fatal(err)
		}
	}

	// This is the breaker as this node knows it: the node does not know yet that another node has
	// the probe.
	open := breaker.New(config, t0)
	open.Trip(t0, "")
	adopt(open, t0)
	it := item(1, model.TaskSpec{Breaker: "b"})
	if ok, why, again := g.Take(at(2*time.Second), it); ok || !again.IsZero() {
		t.Fatalf("%v, %v, again at %s", ok, why, again)
	}

	if asks := g.Asks(); len(asks) != 1 || !asks[0].ToOwner.Ask {
		t.Fatalf("asked %+v", asks)
	}
	g.TakeWoken()
	g.ConfirmAsks(id, 1)
	adopt(b, at(3*time.Second))
	g.Answer(at(3*time.Second), id, breaker.Permit{})
	if len(g.TakeWoken()) == 0 {
		t.Fatal("no task is woken")
	}

	if ok, why, again := g.Take(at(3*time.Second), it); ok || again != at(time.Second+time.Minute) {
		t.Errorf("%v, %v, again at %s", ok, why, again)
	}
}
