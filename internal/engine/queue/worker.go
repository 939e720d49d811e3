package queue

import (
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// WorkerID is a worker of this node. 0 is nobody.
type WorkerID int

// InlineWorker stands for the workers of workflows, which make attempts of steps themselves
// (model.InlineQueue). Stats leaves it out.
const InlineWorker WorkerID = -1

// worker is one that has joined.
type worker struct {
	id     WorkerID
	class  *class
	slots  int
	tasks  []*task // proposed to it and claimed by it; not those that it has reported
	served uint64  // when it was served last
	at     int32

	lent   bool // its slots are somebody else's, see Lend
	credit int  // how many of them may be used
}

func (w *worker) free() int {
	if w.lent {
		return w.credit
	}
	return w.slots - len(w.tasks)
}

// byFree is the order of Q3.
type byFree struct{}

func (byFree) before(a, b *worker) bool {
	if a.free() != b.free() {
		return a.free() > b.free()
	}
	if a.served != b.served {
		return a.served < b.served
	}
	return a.id < b.id
}
func (byFree) place(w *worker) *int32 { return &w.at }

// class are the workers with the same offer. It exists as long as there is one.
type class struct {
	name                   string
	tenants, queues, kinds []string // sorted
	workers                int
	free                   heap[*worker, byFree]
	levels                 map[int]*level
	active                 heap[*level, byPriority] // with something that could begin
	at                     int32
}

func (c *class) covers(tenant, kind string) bool {
	_, ok := slices.BinarySearch(c.kinds, kind)
	if ok {
		_, ok = slices.BinarySearch(c.tenants, tenant)
	}
	return ok
}

// byTurn is the order in which classes are served: the highest priority first, then the worker with
// the most free slots. So whoever gets a task is the worker with the most free slots of all that
// could take it: any other class that could has nothing of a higher priority either.
type byTurn struct{}

func (byTurn) before(a, b *class) bool {
	if x, y := a.active.top().priority, b.active.top().priority; x != y {
		return x > y
	}
	return byFree{}.before(a.free.top(), b.free.top())
}
func (byTurn) place(c *class) *int32 { return &c.at }

// settle has a class served when it has both a worker and a task.
func (b *Board) settle(c *class) {
	if c.free.len() > 0 && c.active.len() > 0 {
		b.ready.put(c)
	} else {
		b.ready.remove(c)
	}
}

// settleWorker sorts a worker in whose slots or tasks have changed.
func (b *Board) settleWorker(w *worker) {
	if w.free() > 0 {
		w.class.free.put(w)
	} else {
		w.class.free.remove(w)
	}
	b.settle(w.class)
}

// Join adds a worker. One that has joined before offers something else from now on, and keeps what
// it holds.
func (b *Board) Join(now model.Time, id WorkerID, offer model.TaskOffer) {
	b.advance(now)
	w := b.workers[id]
	if w == nil {
		w = &worker{id: id}
		b.workers[id] = w
	}
	old := w.class
	c := b.class(sorted(offer.Tenants), sorted(offer.Queues), sorted(offer.Kinds))
	c.workers++
	b.detach(w)
	w.class, w.slots = c, max(offer.Slots, 0)
	b.settleWorker(w)
	if old != nil && old.workers == 0 {
		b.dropClass(old)
	}
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// detach takes a worker out of its class.
func (b *Board) detach(w *worker) {
	if w.class == nil {
		return
	}
	w.class.free.remove(w)
	w.class.workers--
	b.settle(w.class)
	w.class = nil
}

// class finds the class of an offer, or makes it and lists in it what it covers.
func (b *Board) class(tenants, queues, kinds []string) *class {
	var name strings.Builder
	for _, list := range [][]string{tenants, queues, kinds} {
		for _, s := range list {
			name.WriteString(strconv.Quote(s))
		}
		name.WriteByte(';')
	}

	c := b.classes[name.String()]
	if c != nil {
		return c
	}
	c = &class{name: name.String(), tenants: tenants, queues: queues, kinds: kinds, levels: map[int]*level{}}
	b.classes[c.name] = c
	for _, q := range queues {
		b.byQueue[q] = append(b.byQueue[q], c)
	}
	lines := b.covered(c)
	// shares are given out in this order
	slices.SortFunc(lines, func(x, y *line) int { return compareTasks(x.tasks.top(), y.tasks.top()) })
	for _, ln := range lines {
		b.enter(c, ln)
	}

	return c
}

// dropClass forgets a class whose last worker has left.
func (b *Board) dropClass(c *class) {
	for _, ln := range b.covered(c) {
		i := slices.IndexFunc(ln.leaves, func(lf *leaf) bool { return lf.cell.tenant.level.class == c })
		lf := ln.leaves[i]
		ln.leaves = slices.Delete(ln.leaves, i, i+1)
		b.exit(lf)
	}
	delete(b.classes, c.name)
	for _, q := range c.queues {
		if list := slices.DeleteFunc(b.byQueue[q], func(o *class) bool { return o == c }); len(list) > 0 {
			b.byQueue[q] = list
		} else {
			delete(b.byQueue, q)
		}
	}
}

// covered are the lines that a class covers.
func (b *Board) covered(c *class) []*line {
	var lines []*line
	for _, tenant := range c.tenants {
		for _, q := range c.queues {
			s := b.sites[siteName{tenant, q}]
			if s == nil {
				continue
			}
			for _, ln := range s.lines.xs {
				if c.covers(tenant, ln.name.kind) {
					lines = append(lines, ln)
				}
			}
		}
	}
	return lines
}

// Slots changes how many claims a worker may hold. What it holds it keeps.
func (b *Board) Slots(now model.Time, id WorkerID, n int) {
	b.advance(now)
	w := b.workers[id]
	if w == nil {
		return
	}
	w.slots = max(n, 0)
	b.settleWorker(w)
}

// Leave removes a worker, and returns the claims that it held, in the order of Visible. They are
// nobody's now, and lost after the grace; the caller has each returned or failed before. What is
// proposed to it stays so until it is decided: Held tells that the worker is not here.
func (b *Board) Leave(now model.Time, id WorkerID) []model.ClaimRef {
	b.advance(now)
	w := b.workers[id]
	if w == nil {
		return nil
	}
	delete(b.workers, id)
	slices.SortFunc(w.tasks, compareTasks)

	var claims []model.ClaimRef
	for _, t := range w.tasks {
		t.worker, t.workerAt = nil, 0
		if t.state == held || t.state == late {
			claims = append(claims, model.ClaimRef{TaskRef: t.Ref, Claim: t.claim})
			t.beat = now
			b.arm(t)
		}
	}

	w.tasks = nil
	c := w.class
	b.detach(w)
	if c.workers == 0 {
		b.dropClass(c)
	}

	return claims
}

// assign gives a slot of a worker to a task; nil for nobody.
func (b *Board) assign(t *task, w *worker) {
	if t.worker == w {
		return
	}

	if old := t.worker; old != nil {
		last := len(old.tasks) - 1
		moved := old.tasks[last]
		old.tasks[t.workerAt-1], moved.workerAt = moved, t.workerAt
		old.tasks[last] = nil
		old.tasks = old.tasks[:last]
		t.workerAt = 0
		b.settleWorker(old)
	}

	if t.worker = w; w != nil {
		w.tasks = append(w.tasks, t)
		t.workerAt = int32(len(w.tasks))
		b.settleWorker(w)
	}
}
