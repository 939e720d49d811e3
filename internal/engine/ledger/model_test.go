package ledger_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/model"
)

const t0 = model.Time(1_000_000_000_000_000)

var names = []string{"a", "b", "c"}

// row is a page in the store.
type row struct {
	version int64
	body    []byte
}

// write is a write in flight.
type write struct {
	page    int
	body    []byte
	version int64 // the version that the write expects
}

// node is a book with the tasks that its place has admitted or keeps waiting.
type node struct {
	place   limit.Place
	book    *ledger.Book
	known   [ledger.Pages]int64
	flight  *write
	waiting []*gate.Task
	holding []*gate.Task
}

// GoString is for the log of a property.
func (n *node) GoString() string {
	return fmt.Sprintf("place %d, %d hold, %d wait", n.place, len(n.holding), len(n.waiting))
}

// dead is a dead node. Its claims count until other nodes have found them.
type dead struct {
	place  limit.Place
	claims []*gate.Task
	marks  map[*node]*ledger.Mark // marks of the nodes that have found claims of the dead node
}

// GoString is for the log of a property.
func (d *dead) GoString() string { return fmt.Sprintf("place %d, %d claims", d.place, len(d.claims)) }

// world is a store and its nodes.
type world struct {
	t       *rapid.T
	now     model.Time
	rows    [ledger.Pages]row
	nodes   []*node
	dead    []*dead
	limbo   []*gate.Task // claims that no node has found yet
	clean   map[limit.Place]bool
	numbers map[string]limit.Numbers
	// most says how many tasks may hold a limit, by the most generous of the rules so far.
	most   map[string]int
	began  map[string][]model.Time
	rules  *rule.Set
	epochs limit.Place
	made   int
}

func (w *world) setRules(draw func(name string) limit.Numbers) {
	var list []rule.Limit
	for _, n := range names {
		w.numbers[n] = draw(n)
		w.most[n] = max(w.most[n], w.numbers[n].Concurrency)
		list = append(list, rule.Limit{Name: n, Per: rule.PerName, Numbers: w.numbers[n]})
	}
	var err error
	if w.rules, err = rule.NewSet(list, nil); err != nil {
		w.t.Fatal(err)
	}
	for _, n := range w.nodes {
		w.tellRules(n)
	}
}

func (w *world) tellRules(n *node) {
	n.book.Gate.SetRules(w.now, w.rules)
	n.book.SetRules(w.rules)
	n.book.Post()
}

func (w *world) spawn() {
	w.epochs++
	n := &node{place: w.epochs, book: ledger.New(w.epochs)}
	w.nodes = append(w.nodes, n)
	w.tellRules(n)
	n.book.Clean(w.clean)
	w.read(n)
}

// read passes all changed pages to a node.
func (w *world) read(n *node) {
	for p := range w.rows {
		w.look(n, p)
	}
}

func (w *world) look(n *node, page int) {
	if r := &w.rows[page]; r.version > n.known[page] {
		n.known[page] = r.version
		if err := n.book.ApplyPage(w.now, page, r.body); err != nil {
			w.t.Fatal(err)
		}
	}
}

// compose starts a write, if one is needed.
func (w *world) compose(n *node, page int) {
	if n.flight != nil {
		return
	}
	body, needed, err := n.book.Compose(w.now, page)
	if err != nil {
		w.t.Fatal(err)
	}
	if needed {
		n.flight = &write{page, body, n.known[page]}
	}
}

// land applies a write to the store. A node that gets no answer reads the result later. A node
// whose write came too late reads the page immediately.
func (w *world) land(n *node, told bool) {
	f := n.flight
	if f == nil {
		return
	}
	n.flight = nil

	if r := &w.rows[f.page]; r.version == f.version {
		r.version++
		r.body = f.body
		if told {
			n.known[f.page] = r.version
			if err := n.book.ApplyPage(w.now, f.page, f.body); err != nil {
				w.t.Fatal(err)
			}
		}
		return
	}

	w.look(n, f.page)
}

func (w *world) try(n *node, it *gate.Task) bool {
	ok, _, _ := n.book.Gate.Take(w.now, it)
	n.book.Post()
	if ok {
		n.holding = append(n.holding, it)
		for _, l := range it.Spec.Limits {
			w.began[l] = append(w.began[l], w.now)
		}
	}
	return ok
}

func (w *world) arrive(n *node, limits []string) {
	w.made++
	it := &gate.Task{Ref: model.TaskRef{Address: model.Address{Tenant: "acme", Type: "task:x", Key: fmt.Sprint(w.made)}, ID: model.TaskStep}, Spec: &model.TaskSpec{Limits: limits}}
	if !w.try(n, it) {
		n.waiting = append(n.waiting, it)
	}
}

// dispatch tries the woken groups, and the tasks that are due.
func (w *world) dispatch(n *node) {
	woken := n.book.Gate.TakeWoken()
	n.waiting = slices.DeleteFunc(n.waiting, func(it *gate.Task) bool {
		timed := slices.ContainsFunc(it.Spec.Limits, func(l string) bool { return w.numbers[l].Rate > 0 })
		return (timed || slices.Contains(woken, n.book.Gate.Group(it))) && w.try(n, it)
	})
}

func (w *world) finish(n *node, i int) {
	it := n.holding[i]
	n.holding = slices.Delete(n.holding, i, i+1)
	n.book.Gate.Give(w.now, it, breaker.Succeeded)
	n.book.Post()
}

// kill ends a node. A write of the node may still land.
func (w *world) kill(n *node, lands bool) {
	if f := n.flight; f != nil && lands && w.rows[f.page].version == f.version {
		w.rows[f.page] = row{f.version + 1, f.body}
	}
	w.nodes = slices.DeleteFunc(w.nodes, func(o *node) bool { return o == n })
	w.limbo = append(w.limbo, n.holding...)
	w.dead = append(w.dead, &dead{n.place, n.holding, map[*node]*ledger.Mark{}})
}

// find makes a node count the claims of dead nodes.
func (w *world) find(n *node, all bool) {
	for len(w.limbo) > 0 {
		it := w.limbo[0]
		w.limbo = w.limbo[1:]
		it.Plan = nil
		n.book.Gate.Hold(w.now, it)
		n.holding = append(n.holding, it)
		if !all {
			break
		}
	}
	n.book.Post()
	m := n.book.Mark()
	for _, d := range w.dead {
		d.marks[n] = &m
	}
}

// settle tells all nodes which dead places may be dropped.
func (w *world) settle() {
	w.dead = slices.DeleteFunc(w.dead, func(d *dead) bool {
		w.clean[d.place] = false // the place is dead but may not be dropped yet
		if slices.ContainsFunc(d.claims, func(it *gate.Task) bool { return slices.Contains(w.limbo, it) }) {
			return false
		}
		for n, m := range d.marks {
			if slices.Contains(w.nodes, n) && !n.book.Landed(m) {
				return false
			}
		}
		w.clean[d.place] = true
		return true
	})

	for _, n := range w.nodes {
		n.book.Clean(w.clean)
	}
}

// check checks D1.
func (w *world) check() {
	for _, l := range names {
		held := 0
		count := func(it *gate.Task) {
			if slices.Contains(it.Spec.Limits, l) {
				held++
			}
		}
		for _, n := range w.nodes {
			for _, it := range n.holding {
				count(it)
			}
		}

		for _, it := range w.limbo {
			count(it)
		}
		if held > w.most[l] {
			w.t.Fatalf("%d hold %s, which allows %d", held, l, w.most[l])
		}
	}
}

// drain lets every task finish, which checks D2.
func (w *world) drain() {
	if len(w.nodes) == 0 {
		w.spawn()
	}

	for round := 0; ; round++ {
		left := len(w.limbo)
		for _, n := range w.nodes {
			left += len(n.waiting) + len(n.holding)
		}
		if left == 0 {
			return
		}

		if round > 60*w.made+600 {
			text := ""
			for _, n := range w.nodes {
				text += fmt.Sprintf("\nplace %d: %+v", n.place, n.book.Gate.Limits())
			}
			for p, r := range w.rows {
				if list, sole, err := ledger.Read(r.body); len(list) > 0 || sole != 0 || err != nil {
					text += fmt.Sprintf("\npage %d: %+v, %d, %v", p, list, sole, err)
				}
			}
			w.t.Fatalf("%d of %d tasks do not get through:%s", left, w.made, text)
		}

		w.find(w.nodes[0], true)
		for _, n := range w.nodes {
			w.read(n)
			w.land(n, true)
			for _, p := range n.book.DuePages(w.now) {
				w.compose(n, p)
				w.land(n, true)
			}
			w.dispatch(n)
			w.check()
		}

		w.settle()
		if round%4 == 0 {
			for _, n := range w.nodes {
				if len(n.holding) > 0 {
					w.finish(n, 0)
				}
			}
			w.now = w.now.Add(100 * time.Millisecond)
		}
	}
}

// Several nodes join, die and sometimes believe that they are alone. Tasks need several limits.
// Pages are written and read at any time; writes are lost or land without an answer. There are
// never more holders than allowed and never more starts than the rate allows. When nothing else
// happens, every task gets through.
func TestModel(t *testing.T) {
	t.Parallel()
	for range 20 {
		rapid.Check(t, func(t *rapid.T) { check(t, false) })
	}
}

// The same as TestModel, while people change the rules.
func TestModelWithOtherRules(t *testing.T) {
	t.Parallel()
	for range 5 {
		rapid.Check(t, func(t *rapid.T) { check(t, true) })
	}
}

func check(t *rapid.T, edit bool) {
	w := &world{t: t, now: t0, numbers: map[string]limit.Numbers{}, most: map[string]int{}, began: map[string][]model.Time{}, clean: map[limit.Place]bool{}}
	draw := func(name string) limit.Numbers {
		n := limit.Numbers{Concurrency: rapid.IntRange(1, 3).Draw(t, name)}
		if name == "b" && rapid.Bool().Draw(t, "rate") {
			n.Rate, n.Per = 10, time.Second
		}
		return n
	}

	w.setRules(draw)
	w.spawn()
	w.spawn()

	some := func(t *rapid.T) *node {
		if len(w.nodes) == 0 {
			t.Skip()
		}
		return rapid.SampledFrom(w.nodes).Draw(t, "node")
	}

	steps := map[string]func(*rapid.T){
		"": func(*rapid.T) { w.check() },
		"arrive": func(t *rapid.T) {
			n := some(t)
			var limits []string
			for _, l := range names {
				if rapid.IntRange(0, 2).Draw(t, l) > 0 {
					limits = append(limits, l)
				}
			}
			w.arrive(n, limits)
		},
		"read": func(t *rapid.T) { w.read(some(t)) },
		"write": func(t *rapid.T) {
			n := some(t)
			if pages := n.book.DuePages(w.now); len(pages) > 0 {
				w.compose(n, rapid.SampledFrom(pages).Draw(t, "page"))
			}
		},
		"write all": func(t *rapid.T) {
			n := some(t)
			w.land(n, true)
			for _, p := range n.book.DuePages(w.now) {
				w.compose(n, p)
				w.land(n, true)
			}
		},
		"land":     func(t *rapid.T) { w.land(some(t), rapid.Bool().Draw(t, "told")) },
		"lose":     func(t *rapid.T) { some(t).flight = nil },
		"dispatch": func(t *rapid.T) { w.dispatch(some(t)) },
		"finish": func(t *rapid.T) {
			if n := some(t); len(n.holding) > 0 {
				w.finish(n, rapid.IntRange(0, len(n.holding)-1).Draw(t, "holder"))
			}
		},
		"alone": func(t *rapid.T) { some(t).book.SetAlone(rapid.Bool().Draw(t, "alone")) },
		"spawn": func(t *rapid.T) {
			if len(w.nodes) > 3 {
				t.Skip()
			}
			w.spawn()
		},
		"kill": func(t *rapid.T) { w.kill(some(t), rapid.Bool().Draw(t, "lands")) },
		"find": func(t *rapid.T) {
			n := some(t)
			w.find(n, rapid.Bool().Draw(t, "all"))
		},
		"settle": func(*rapid.T) { w.settle() },
		"time":   func(*rapid.T) { w.now = w.now.Add(50 * time.Millisecond) },
	}

	if edit {
		steps["rules"] = func(*rapid.T) { w.setRules(draw) }
	}

	// A node has one write in flight at a time. "lose" is a write that never arrives.
	t.Repeat(steps)
	w.drain()

	if n := w.numbers["b"]; n.Rate > 0 && !edit {
		began := w.began["b"]
		for i := range began {
			for j := i; j < len(began); j++ {
				if k := int64(j - i + 1); k*n.Per.Microseconds() > n.Per.Microseconds()+n.Rate*int64(began[j]-began[i]) {
					t.Fatalf("%d in %v with %v", k, began[j].Sub(began[i]), n)
				}
			}
		}
	}
}
