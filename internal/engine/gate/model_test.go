package gate_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/model"
)

var names = []string{"a", "b", "c"}

// One node against a list: a task passes exactly if all its limits have a permit left, and whoever could pass has been woken.
func TestModel(t *testing.T) {
	t.Parallel()
	for range 4 {
		rapid.Check(t, checkOneNode)
	}
}

func checkOneNode(t *rapid.T) {
	numbers := map[string]int{}
	set := func() *rule.Set {
		var list []rule.Limit
		for _, n := range names {
			numbers[n] = rapid.IntRange(1, 3).Draw(t, n)
			list = append(list, named(n, numbers[n]))
		}
		s, err := rule.NewSet(list, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	g := gate.New(1, nil)
	g.SetRules(t0, set())
	var waiting, holding []*gate.Item
	made := 0
	could := func(it *gate.Item) bool {
		for _, n := range it.Spec.Limits {
			held := 0
			for _, h := range holding {
				if slices.Contains(h.Spec.Limits, n) {
					held++
				}
			}
			if held >= numbers[n] {
				return false
			}
		}
		return true
	}
	try := func(it *gate.Item) bool {
		want := could(it)
		ok, why, _ := g.Take(t0, it)
		if ok != want {
			t.Fatalf("%v of %v: %v, want %v: %v; %+v", it.Ref.Address.Key, it.Spec.Limits, ok, want, why, g.Limits())
		}
		if ok {
			holding = append(holding, it)
		}
		return ok
	}
	// As a dispatcher does: groups that are woken are tried until one is refused.
	dispatch := func() {
		for n := 0; ; n++ {
			woken := g.Woken()
			if len(woken) == 0 {
				break
			}
			if n > 1000 {
				t.Fatalf("wake-ups without end")
			}
			for _, group := range woken {
				for i := 0; i < len(waiting); i++ {
					if g.Group(waiting[i]) != group {
						continue
					}
					if !try(waiting[i]) {
						break
					}
					waiting = slices.Delete(waiting, i, i+1)
					i--
				}
			}
		}
		for _, it := range waiting {
			if could(it) {
				t.Fatalf("%v could pass with %v and sleeps: %+v", it.Ref.Address.Key, it.Spec.Limits, g.Limits())
			}
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"": func(*rapid.T) { dispatch() },
		"arrive": func(t *rapid.T) {
			made++
			var limits []string
			for _, n := range names {
				if rapid.Bool().Draw(t, n) {
					limits = append(limits, n)
				}
			}
			if it := item(made, model.TaskSpec{Limits: limits}); !try(it) {
				waiting = append(waiting, it)
			}
		},
		"finish": func(t *rapid.T) {
			if len(holding) > 0 {
				i := rapid.IntRange(0, len(holding)-1).Draw(t, "holder")
				it := holding[i]
				holding = slices.Delete(holding, i, i+1)
				g.Give(t0, it, breaker.Succeeded)
			}
		},
		"cancel": func(t *rapid.T) {
			if len(waiting) > 0 {
				i := rapid.IntRange(0, len(waiting)-1).Draw(t, "waiter")
				it := waiting[i]
				waiting = slices.Delete(waiting, i, i+1)
				g.Give(t0, it, breaker.Neither)
			}
		},
		"rules": func(*rapid.T) { g.SetRules(t0, set()) },
	})
	for _, s := range g.Limits() {
		want := 0
		for _, it := range holding {
			if slices.Contains(it.Spec.Limits, s.Resource.Name) {
				want++
			}
		}
		if len(s.Holders) != want {
			t.Fatalf("%+v, want %d holders", s, want)
		}
	}
	for _, it := range append(holding, waiting...) {
		g.Give(t0, it, breaker.Neither)
	}
	for _, s := range g.Limits() {
		if len(s.Holders)+len(s.Waiters) != 0 {
			t.Fatalf("%+v", s)
		}
	}
}

const nodes = 3

// cluster is some gates, and what is under way between them: in order between two ends.
type cluster struct {
	t       *rapid.T
	now     model.Time
	gates   [nodes]*gate.Gate
	numbers map[string]int
	mail    [nodes][nodes][]gate.Message
	waiting [nodes][]*gate.Item
	holding [nodes][]*gate.Item
	made    int
}

// ownerOf spreads the owners over the nodes.
func ownerOf(a model.Address) int { return int(a.Shard(nodes)) }

func (c *cluster) collect(i int) {
	if _, err := c.gates[i].Dirty(); err != nil {
		c.t.Fatal(err)
	}
	for _, m := range c.gates[i].Out() {
		to := int(m.Place)
		switch {
		case m.ToOwner != nil:
			to = ownerOf(m.Resource.Address())
		case m.ToBreaker != nil:
			to = ownerOf(m.Breaker.Address())
		}
		if to == i {
			c.t.Fatalf("a message to itself: %+v", m)
		}
		c.mail[i][to] = append(c.mail[i][to], m)
	}
}

func (c *cluster) deliver(from, to int) bool {
	if len(c.mail[from][to]) == 0 {
		return false
	}
	m := c.mail[from][to][0]
	c.mail[from][to] = c.mail[from][to][1:]
	c.gates[to].Receive(c.now, &m)
	c.collect(to)
	return true
}

func (c *cluster) try(i int, it *gate.Item) bool {
	ok, _, _ := c.gates[i].Take(c.now, it)
	if ok {
		c.holding[i] = append(c.holding[i], it)
	}
	c.collect(i)
	return ok
}

// dispatch tries what was woken, or everything.
func (c *cluster) dispatch(i int, all bool) (progress bool) {
	woken := c.gates[i].Woken()
	c.waiting[i] = slices.DeleteFunc(c.waiting[i], func(it *gate.Item) bool {
		if !all && !slices.Contains(woken, c.gates[i].Group(it)) {
			return false
		}
		ok := c.try(i, it)
		progress = progress || ok
		return ok
	})
	return progress
}

func (c *cluster) check() {
	for _, n := range names {
		held := 0
		for i := range c.gates {
			for _, it := range c.holding[i] {
				if slices.Contains(it.Spec.Limits, n) {
					held++
				}
			}
		}
		if held > c.numbers[n] {
			c.t.Fatalf("%d holders of %s, which allows %d", held, n, c.numbers[n])
		}
	}
}

// Several nodes, several limits per task, owners on different nodes: never more holders than allowed, and no deadlock, whatever the order of delivery:
// when holders finish and messages arrive, everybody gets through. Only those who are woken are tried.
func TestCluster(t *testing.T) {
	t.Parallel()
	for range 2 {
		rapid.Check(t, checkCluster)
	}
}

func checkCluster(t *rapid.T) {
	c := &cluster{t: t, now: t0, numbers: map[string]int{}}
	var list []rule.Limit
	for i, n := range names {
		c.numbers[n] = rapid.IntRange(1, 2).Draw(t, n)
		l := named(n, c.numbers[n])
		if i == 1 && rapid.Bool().Draw(t, "rate") {
			l.Numbers.Rate, l.Numbers.Per = 10, time.Second
		}
		list = append(list, l)
	}
	s, err := rule.NewSet(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.gates {
		c.gates[i] = gate.New(model.ShardID(i), func(a model.Address) bool { return ownerOf(a) == i })
		c.gates[i].SetRules(t0, s)
	}
	node := func(t *rapid.T, name string) int { return rapid.IntRange(0, nodes-1).Draw(t, name) }
	t.Repeat(map[string]func(*rapid.T){
		"": func(*rapid.T) { c.check() },
		"arrive": func(t *rapid.T) {
			c.made++
			i := node(t, "node")
			var limits []string
			for _, n := range names {
				if rapid.IntRange(0, 2).Draw(t, n) > 0 {
					limits = append(limits, n)
				}
			}
			if it := item(c.made, model.TaskSpec{Limits: limits}); !c.try(i, it) {
				c.waiting[i] = append(c.waiting[i], it)
			}
		},
		"deliver":  func(t *rapid.T) { c.deliver(node(t, "from"), node(t, "to")) },
		"deliver2": func(t *rapid.T) { c.deliver(node(t, "from"), node(t, "to")) },
		"dispatch": func(t *rapid.T) { c.dispatch(node(t, "node"), false) },
		"finish": func(t *rapid.T) {
			if i := node(t, "node"); len(c.holding[i]) > 0 {
				c.finish(i)
			}
		},
		"pass time": func(*rapid.T) { c.pass(100 * time.Millisecond) },
	})
	// Nothing new comes: everything gets through.
	for n := 0; ; n++ {
		left := 0
		for i := range c.gates {
			left += len(c.waiting[i]) + len(c.holding[i])
		}
		if left == 0 {
			break
		}
		if n > 20*c.made+200 {
			text := ""
			for i := range c.gates {
				text += fmt.Sprintf("\nnode %d: %+v", i, c.gates[i].Limits())
			}
			t.Fatalf("%d of %d tasks do not get through:%s", left, c.made, text)
		}
		for i := range c.gates {
			for j := range c.gates {
				c.deliver(i, j)
			}
		}
		for i := range c.gates {
			c.dispatch(i, false)
			c.check()
		}
		if n%3 == 0 {
			for i := range c.gates {
				if len(c.holding[i]) > 0 {
					c.finish(i)
				}
			}
			c.pass(100 * time.Millisecond)
		}
	}
}

func (c *cluster) finish(i int) {
	it := c.holding[i][0]
	c.holding[i] = c.holding[i][1:]
	c.gates[i].Give(c.now, it, breaker.Succeeded)
	c.collect(i)
}

// pass lets time go on; those who were told a time try again.
func (c *cluster) pass(d time.Duration) {
	c.now = c.now.Add(d)
	for i := range c.gates {
		if next := c.gates[i].Next(); !next.IsZero() && next <= c.now {
			c.gates[i].Tick(c.now)
			c.collect(i)
		}
		for _, s := range c.gates[i].Limits() {
			if s.Numbers.Rate > 0 && len(s.Waiters) > 0 {
				c.dispatch(i, true)
			}
		}
	}
}

// Trying again what is refused tells the owner nothing new, however many wait.
func TestRefusalsAreSilent(t *testing.T) {
	t.Parallel()
	g := gate.New(1, func(model.Address) bool { return false })
	g.SetRules(t0, rules(t, []rule.Limit{named("a", 1), named("b", 1)}))
	items := make([]*gate.Item, 100)
	sent := 0
	for i := range items {
		items[i] = item(i, model.TaskSpec{Limits: []string{"a", "b"}})
		g.Take(t0, items[i])
		sent += len(g.Out())
	}
	if sent > 10 {
		t.Errorf("%d messages while the line grew to %d", sent, len(items))
	}
	for range 3 {
		for _, it := range items {
			g.Take(t0, it)
		}
	}
	if m := g.Out(); len(m) != 0 {
		t.Errorf("%d messages, the first %+v", len(m), m[0].ToOwner)
	}
}

// A breaker that is owned by one node counts what happens on all of them, and lets one probe through in all.
func TestBreakerOfSeveralNodes(t *testing.T) {
	t.Parallel()
	s := rules(t, nil, rule.Breaker{Name: "*", Config: breaker.Config{Failures: 4, Reset: 10 * time.Second, Successes: 1}})
	id := rule.BreakerID{Tenant: "acme", Name: "db"}
	owner := ownerOf(id.Address())
	var gates [nodes]*gate.Gate
	for i := range gates {
		gates[i] = gate.New(model.ShardID(i), func(a model.Address) bool { return ownerOf(a) == i })
		gates[i].SetRules(t0, s)
	}
	now := t0
	exchange := func() {
		for busy := true; busy; {
			busy = false
			for _, g := range gates {
				for _, m := range g.Out() {
					busy = true
					if m.ToBreaker != nil {
						gates[owner].Receive(now, &m)
					} else {
						gates[m.Place].Receive(now, &m)
					}
				}
			}
		}
	}
	call := func(node, n int) (*gate.Item, bool, model.Reason) {
		it := item(n, model.TaskSpec{Breaker: "db"})
		ok, why, _ := gates[node].Take(now, it)
		if !ok && why.Until.IsZero() { // the owner is asked
			exchange()
			if len(gates[node].Woken()) > 0 {
				ok, why, _ = gates[node].Take(now, it)
			}
		}
		return it, ok, why
	}
	for i := range 4 {
		it, ok, why := call(i%nodes, i)
		if !ok {
			t.Fatalf("call %d: %v", i, why)
		}
		gates[i%nodes].Give(now, it, breaker.Failed)
		exchange()
	}
	for i := range nodes {
		if _, ok, why := call(i, 10+i); ok || why.Code != model.WaitBreaker || why.Until != at(10*time.Second) {
			t.Fatalf("node %d: %v %v", i, ok, why)
		}
	}
	now = at(10 * time.Second)
	probes := 0
	for i := range nodes {
		if _, ok, _ := call(i, 20+i); ok {
			probes++
		}
	}
	if probes != 1 {
		t.Fatalf("%d probes", probes)
	}
}
