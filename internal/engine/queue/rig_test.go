package queue

import (
	"fmt"
	"hash/fnv"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/internal/model"
	"pgregory.net/rapid"
)

// fakeGate is a gate with a limit per group. A moody gate also refuses some tasks of groups that
// have room. Two fake gates with the same fields that get the same calls give the same answers.
type fakeGate struct {
	room  map[string]int
	used  map[string]int
	moody bool
	calls []string
	// alias overrides the groups of tasks. A key is the breaker of a task followed by its fair key,
	// and the value is the group of the task. Without an entry, the group has the name of the
	// breaker.
	alias map[string]string
}

func newFakeGate(moody bool) *fakeGate {
	return &fakeGate{room: map[string]int{"": 1000, "g": 1, "h": 2, "i": 1000}, used: map[string]int{}, moody: moody}
}

func (g *fakeGate) Group(it *Item) string {
	if other, ok := g.alias[it.Spec.Breaker+it.Spec.Fair]; ok {
		return other
	}
	return it.Spec.Breaker
}

func (g *fakeGate) Take(now model.Time, it *Item) (bool, model.Reason, model.Time) {
	g.calls = append(g.calls, fmt.Sprint("take ", it.Ref, now))
	name := g.Group(it)
	why := model.Reason{Code: model.WaitTurn, Name: name}
	h := fnv.New32()
	fmt.Fprint(h, len(g.calls), it.Ref)
	switch {
	case g.used[name] >= g.room[name]:
		return false, why, 0
	case g.moody && h.Sum32()%4 == 0:
		return false, why, now + model.Time(h.Sum32()/4%4)
	case g.moody && h.Sum32()%31 == 1:
		return false, why, 0
	}
	g.hold(it, 1)
	return true, model.Reason{}, 0
}

func (g *fakeGate) Hold(now model.Time, it *Item, _ string) {
	g.calls = append(g.calls, fmt.Sprint("hold ", it.Ref, now))
	g.hold(it, 1)
}

func (g *fakeGate) Give(now model.Time, it *Item, how Outcome) {
	g.calls = append(g.calls, fmt.Sprint("give ", it.Ref, now, how))
	g.hold(it, -1)
}

// hold counts tasks by the breaker in their specs, whatever name their group has.
func (g *fakeGate) hold(it *Item, n int) { g.used[it.Spec.Breaker] += n }

// rig runs a board and the naive board side by side.
type rig struct {
	board         *Board
	naive         *naive
	gate, mirror  *fakeGate
	now           model.Time
	runs, claims  int64
	items         []Item // every item that newItem has created
	claimRefs     []model.ClaimRef
	tenants, keys []string
}

func newRig(moody bool) *rig {
	r := &rig{gate: newFakeGate(moody), mirror: newFakeGate(moody), now: 100, tenants: []string{"a", "b"}, keys: []string{"", "k", "l"}}
	weights := map[string]int{"b": 3}
	r.board = New(Config{Gate: r.gate, Weights: weights, Grace: 5 * time.Microsecond})
	r.naive = newNaive(r.mirror, weights, 5*time.Microsecond)
	return r
}

func micros(t *rapid.T, label string, most int) time.Duration {
	return time.Duration(rapid.IntRange(0, most).Draw(t, label)) * time.Microsecond
}

func (r *rig) newItem(t *rapid.T) Item {
	r.runs++
	it := Item{
		Ref:  model.TaskRef{Address: model.Address{Tenant: rapid.SampledFrom(r.tenants).Draw(t, "tenant"), Type: "w", Key: fmt.Sprint(r.runs)}, ID: "s"},
		Lane: rapid.IntRange(0, 1).Draw(t, "lane"), Scheduled: r.now,
		Spec: &model.TaskSpec{
			Kind: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "kind"), Queue: rapid.SampledFrom([]string{"q", "r"}).Draw(t, "queue"),
			Priority: rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "priority"), Fair: rapid.SampledFrom(r.keys).Draw(t, "fair"),
			Weight: rapid.IntRange(0, 3).Draw(t, "weight"), Breaker: rapid.SampledFrom([]string{"", "g", "h", "i"}).Draw(t, "group"),
		},
	}

	it.Ref.Run[0] = byte(rapid.IntRange(0, 255).Draw(t, "run"))
	it.Ref.Run[14], it.Ref.Run[15] = byte(r.runs>>8), byte(r.runs)
	it.Visible = r.now.Add(time.Duration(max(rapid.IntRange(-6, 6).Draw(t, "delay"), -int(r.now)+1)) * time.Microsecond)

	if rapid.IntRange(0, 2).Draw(t, "deadlines") == 0 {
		it.Spec.ToStart, it.Spec.ToClose = micros(t, "to start", 8), micros(t, "to close", 8)
		it.Spec.Silence, it.Spec.Total = micros(t, "silence", 5), micros(t, "total", 20)
	}

	if rapid.IntRange(0, 9).Draw(t, "max") == 0 {
		it.Spec.Retry.MaxAttempts = 2
		it.Attempt = rapid.IntRange(0, 2).Draw(t, "attempt")
	}

	r.items = append(r.items, it)
	return it
}

// drawKnown draws one of the tasks on the board; false if there is none.
func (r *rig) drawKnown(t *rapid.T) (*naiveTask, bool) {
	if len(r.naive.tasks) == 0 {
		return nil, false
	}
	return r.naive.tasks[rapid.IntRange(0, len(r.naive.tasks)-1).Draw(t, "task")], true
}

func (r *rig) claim(ref model.TaskRef) model.ClaimRef {
	r.claims++
	c := model.ClaimRef{TaskRef: ref, Claim: r.claims}
	r.claimRefs = append(r.claimRefs, c)
	return c
}

func same[T any](t *rapid.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}

func subset(t *rapid.T, label string, all ...string) []string {
	var out []string
	for _, s := range all {
		if rapid.IntRange(0, 3).Draw(t, label) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func (r *rig) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":     func(t *rapid.T) { r.check(t) },
		"time": func(t *rapid.T) { r.now += model.Time(rapid.IntRange(0, 4).Draw(t, "by")) },
		"join": func(t *rapid.T) {
			offer := model.TaskOffer{
				Tenants: subset(t, "tenants", r.tenants...), Queues: subset(t, "queues", "q", "r"), Kinds: subset(t, "kinds", "x", "y", model.AnyKind),
				Slots: rapid.IntRange(0, 4).Draw(t, "slots"),
			}
			id := WorkerID(rapid.IntRange(1, 4).Draw(t, "worker"))
			r.board.Join(r.now, id, offer)
			r.naive.join(r.now, id, offer)
		},
		"slots": func(t *rapid.T) {
			id, n := WorkerID(rapid.IntRange(1, 4).Draw(t, "worker")), rapid.IntRange(0, 4).Draw(t, "slots")
			r.board.Slots(r.now, id, n)
			r.naive.advance(r.now)
			if w := r.naive.worker(id); w != nil {
				w.offer.Slots = n
			}
		},
		"leave": func(t *rapid.T) {
			id := WorkerID(rapid.IntRange(1, 4).Draw(t, "worker"))
			same(t, "Leave", r.board.Leave(r.now, id), r.naive.leaveWorker(r.now, id))
		},
		"add":  r.add,
		"add2": r.add,
		"burst": func(t *rapid.T) {
			for range 8 {
				r.add(t)
			}
		},
		"add again": func(t *rapid.T) {
			k, ok := r.drawKnown(t)
			if !ok {
				t.Skip()
			}
			it := k.Item
			it.Visible = r.now + model.Time(rapid.IntRange(0, 3).Draw(t, "delay"))
			r.board.Add(r.now, it)
			r.naive.add(r.now, it)
		},
		"reserve": func(t *rapid.T) {
			it := r.newItem(t)
			gotID, gotOK := r.board.Reserve(r.now, &it)
			wantID, wantOK := r.naive.reserve(r.now, &it)
			same(t, "Reserve: worker", gotID, wantID)
			same(t, "Reserve", gotOK, wantOK)
		},
		"unreserve": func(t *rapid.T) {
			k, ok := r.drawKnown(t)
			if !ok {
				t.Skip()
			}
			ref := k.Ref
			r.board.Unreserve(r.now, ref)
			r.naive.unreserve(r.now, ref)
		},
		"match":  r.match,
		"match2": r.match,
		"held": func(t *rapid.T) {
			var it Item
			var id WorkerID
			k, ok := r.drawKnown(t)
			if ok && rapid.IntRange(0, 5).Draw(t, "known") > 0 {
				it, id = k.Item, k.worker
			} else {
				it = r.newItem(t)
			}

			if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
				id = WorkerID(rapid.IntRange(0, 4).Draw(t, "worker"))
			}
			if rapid.Bool().Draw(t, "claimed earlier") {
				it.Claimed = r.now - 2
			}
			c := r.claim(it.Ref)
			same(t, "Hold", r.board.Hold(r.now, it, HeldClaim{Ref: c, Worker: id}), r.naive.hold(r.now, it, c, id))
		},
		"commit all": func(t *rapid.T) { // the usual case
			for _, k := range append([]*naiveTask(nil), r.naive.tasks...) {
				if k.state == "matched" || k.state == "reserved" {
					c, it, id := r.claim(k.Ref), k.Item, k.worker
					same(t, "Hold", r.board.Hold(r.now, it, HeldClaim{Ref: c, Worker: id}), r.naive.hold(r.now, it, c, id))
				}
			}
		},
		"remove": func(t *rapid.T) {
			k, ok := r.drawKnown(t)
			if !ok {
				t.Skip()
			}
			ref, how := k.Ref, Outcome(rapid.IntRange(0, 2).Draw(t, "how"))
			r.board.Remove(r.now, ref, how)
			r.naive.remove(r.now, ref, how)
		},
		"beat": func(t *rapid.T) {
			if len(r.claimRefs) == 0 {
				t.Skip()
			}
			c, id := rapid.SampledFrom(r.claimRefs).Draw(t, "claim"), WorkerID(rapid.IntRange(0, 4).Draw(t, "worker"))
			same(t, "Beat", r.board.Beat(r.now, id, c), r.naive.beat(r.now, id, c))
		},
		"reported": func(t *rapid.T) {
			if len(r.claimRefs) == 0 {
				t.Skip()
			}
			c, id := rapid.SampledFrom(r.claimRefs).Draw(t, "claim"), WorkerID(rapid.IntRange(0, 4).Draw(t, "worker"))
			if k := r.naive.find(c.TaskRef); k != nil && rapid.Bool().Draw(t, "right worker") {
				id = k.worker
			}
			same(t, "MarkReported", r.board.MarkReported(r.now, id, c), r.naive.markReported(r.now, id, c))
		},
		"due": func(t *rapid.T) { same(t, "TakeDue", r.board.TakeDue(r.now), r.naive.takeDue(r.now)) },
		"pause": func(t *rapid.T) {
			name := siteName{rapid.SampledFrom(r.tenants).Draw(t, "tenant"), rapid.SampledFrom([]string{"q", "r"}).Draw(t, "queue")}
			if rapid.IntRange(0, 2).Draw(t, "resume") > 0 {
				r.board.Resume(name.tenant, name.queue)
				delete(r.naive.paused, name)
			} else {
				r.board.Pause(name.tenant, name.queue, "because")
				r.naive.paused[name] = true
			}
		},
		"regroup": func(t *rapid.T) {
			alias := map[string]string{}
			for _, group := range []string{"", "g", "h", "i"} {
				for _, key := range r.keys {
					if rapid.IntRange(0, 2).Draw(t, "alias") == 0 {
						alias[group+key] = rapid.SampledFrom([]string{"", "g", "h", "i"}).Draw(t, "other")
					}
				}
			}
			r.gate.alias, r.mirror.alias = alias, alias
			r.board.Regroup(r.now)
			r.naive.advance(r.now)
			clear(r.naive.closed)
		},
		"changed": func(t *rapid.T) {
			groups := subset(t, "groups", "g", "h")
			if rapid.Bool().Draw(t, "room") {
				name, room := rapid.SampledFrom([]string{"g", "h"}).Draw(t, "limit"), rapid.IntRange(0, 3).Draw(t, "room of it")
				r.gate.room[name], r.mirror.room[name] = room, room
			}
			r.board.Reopen(r.now, groups...)
			r.naive.reopen(r.now, groups...)
		},
	}
}

func (r *rig) add(t *rapid.T) {
	it := r.newItem(t)
	r.board.Add(r.now, it)
	r.naive.add(r.now, it)
}

func (r *rig) match(t *rapid.T) {
	got, want := r.board.Match(r.now), r.naive.match(r.now)
	same(t, "calls of the gate", r.gate.calls, r.mirror.calls)
	same(t, "Match", got, want)
}

// check compares what both boards report, and the calls that they have made to their gates. It also
// checks the internal state of the board. It does not change the boards.
func (r *rig) check(t *rapid.T) {
	same(t, "calls of the gate", r.gate.calls, r.mirror.calls)
	same(t, "Stats", r.board.Stats(), r.naive.stats())
	same(t, "Wake", r.board.Wake(), r.naive.wake())
	for _, k := range r.naive.tasks {
		r.checkReason(t, k)
	}
	checkBooks(t, r.board)
}

// checkReason asks the board why a task does not move. The expected answer follows from the state
// of the task on the naive board.
func (r *rig) checkReason(t *rapid.T, k *naiveTask) {
	got, ok := r.board.Explain(k.Ref)
	want := model.WaitTurn
	switch k.state {
	case "delayed":
		want = model.WaitTimer
		if k.Attempt > 0 {
			want = model.WaitRetry
		}
	case "held", "late", "reported":
		want = model.WaitStep
	case "waiting":
		offered := false
		for _, w := range r.naive.workers {
			offered = offered || w.covers(&k.Item)
		}
		_, closed := r.naive.closed[r.mirror.Group(&k.Item)]
		switch {
		case r.naive.paused[siteName{k.Ref.Address.Tenant, k.Spec.Queue}]:
			want = model.WaitPaused
		case !offered:
			want = model.WaitWorker
		case closed:
			want = model.WaitTurn // the answer of the gate
		default:
			want = model.WaitLine
		}
	}

	if !ok || got.Code != want {
		t.Fatalf("Explain(%s, %s) = %s, %v, want %s", k.Ref, k.state, got, ok, want)
	}
}

// checkBooks checks the internal state of the board: it contains nothing that is no longer used,
// and every heap is in order.
func checkBooks(t interface{ Fatalf(string, ...any) }, b *Board) {
	leaves := 0
	for _, ln := range b.lines {
		if ln.tasks.len() == 0 || ln.group != b.groups[ln.name.group] || ln.site != b.sites[ln.site.name] {
			t.Fatalf("line %v is empty, or the board does not have its group or its site", ln.name)
		}
		leaves += len(ln.leaves)
	}

	for _, c := range b.classes {
		if c.workers <= 0 || (c.at != 0) != (c.free.len() > 0 && c.active.len() > 0) {
			t.Fatalf("class %s has %d workers, %d of them with free slots, %d levels that could start a task, and place %d among the ready classes", c.name, c.workers, c.free.len(), c.active.len(), c.at)
		}

		for _, lv := range c.levels {
			if lv.leaves <= 0 || lv.leaves > leaves {
				t.Fatalf("level %d of %s has %d leaves, want 1 to %d", lv.priority, c.name, lv.leaves, leaves)
			}
			checkHeap(t, &lv.active)

			for _, tn := range lv.tenants {
				if tn.leaves <= 0 {
					t.Fatalf("the board keeps tenant %s of class %s, which has no waiting tasks", tn.name, c.name)
				}
				checkHeap(t, &tn.active)

				for _, k := range tn.keys {
					if k.leaves <= 0 || (k.at != 0) != (k.cells.len() > 0) {
						t.Fatalf("the board keeps key %v of class %s with %d leaves and %d open cells, at place %d", k.name, c.name, k.leaves, k.cells.len(), k.at)
					}
					checkHeap(t, &k.cells)
				}

				for _, cl := range tn.cells {
					if open := !cl.name.group.closed && !cl.name.site.paused; cl.leaves.len() == 0 || open != (cl.key != nil) || (cl.sharedAt != 0) != (open && cl.leaves.len() > 1) {
						t.Fatalf("the cell of group %s has %d leaves; open: %v, listed under a key: %v, listed as shared: %v", cl.name.group.name, cl.leaves.len(), open, cl.key != nil, cl.sharedAt != 0)
					}
					checkHeap(t, &cl.leaves)
				}

				leaves -= tn.leaves
			}
		}
	}

	if leaves != 0 {
		t.Fatalf("%d leaves more in lines than in classes", leaves)
	}
	for _, s := range b.sites {
		checkHeap(t, &s.lines)
	}
	checkHeap(t, &b.ready)
	checkHeap(t, &b.delayed)
	checkHeap(t, &b.deadlines)
	checkHeap(t, &b.again)
}

func checkHeap[T comparable, O order[T]](t interface{ Fatalf(string, ...any) }, h *heap[T, O]) {
	var o O
	for i, x := range h.xs {
		if int(*o.place(x)) != i+1 {
			t.Fatalf("element %d of a heap thinks that it is %d", i, *o.place(x)-1)
		}
		if i > 0 && o.before(x, h.xs[(i-1)/2]) {
			t.Fatalf("element %d of a heap comes before its parent", i)
		}
	}
}
