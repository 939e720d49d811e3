package gate_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/model"
)

var names = []string{"a", "b", "c"}

// This test compares the gate of one node with a simple model. A task passes if and only if all of
// its limits have a permit left, and the gate has woken each task that could pass.
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
			list = append(list, namedLimit(n, numbers[n]))
		}
		s, err := rule.NewSet(list, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}

	g := gate.New(1, nil)
	g.SetRules(t0, set())
	var waiting, holding []*gate.Task
	made := 0

	could := func(it *gate.Task) bool {
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

	try := func(it *gate.Task) bool {
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

	// Do the same as a dispatcher: try tasks of woken groups until the gate refuses one.
	dispatch := func() {
		for n := 0; ; n++ {
			woken := g.TakeWoken()
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

// When refused tasks try again, the gate sends the owner no new message, however many tasks wait.
func TestRefusalsAreSilent(t *testing.T) {
	t.Parallel()
	g := gate.New(1, func(rule.Resource) bool { return false })
	g.SetRules(t0, rules(t, []rule.Limit{namedLimit("a", 1), namedLimit("b", 1)}))
	items := make([]*gate.Task, 100)

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
