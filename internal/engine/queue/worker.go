package queue

import (
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// WorkerID identifies a worker on a board: a worker of the node, or a lent worker. 0 is none.
type WorkerID int

// InlineWorker is the id for attempts of steps that workflow workers run themselves
// (model.InlineQueue). Stats leaves this worker out.
const InlineWorker WorkerID = -1

// worker is a worker that has joined.
type worker struct {
	id    WorkerID
	class *class
	slots int
	// tasks has the tasks that are proposed to the worker or that it has claimed, without reported
	// tasks.
	tasks  []*task
	served uint64 // when the worker was last served
	at     int32

	lent   bool // the slots belong to another node, see Lend
	credit int  // how many of the lent slots may be used
}

// free returns how many more claims the worker may get.
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

// class holds the workers with the same offer. It exists while it has a worker.
type class struct {
	name                   string
	tenants, queues, kinds []string // sorted
	anyKind                bool     // kinds has model.AnyKind
	workers                int
	free                   heap[*worker, byFree]
	levels                 map[int]*level
	active                 heap[*level, byPriority] // levels with a task that could start
	at                     int32
}

// covers reports whether workers of the class execute tasks of this tenant and kind. The caller has
// checked the queue.
func (c *class) covers(tenant, kind string) bool {
	_, ok := slices.BinarySearch(c.kinds, kind)
	if ok || c.anyKind {
		_, ok = slices.BinarySearch(c.tenants, tenant)
	}
	return ok
}

// byTurn is the order in which classes are served: the highest priority first, then the worker with
// the most free slots. So the worker that gets a task has the most free slots of all workers that
// could take it. This is true because no other class that covers the task has a task of a higher
// priority.
type byTurn struct{}

func (byTurn) before(a, b *class) bool {
	if x, y := a.active.top().priority, b.active.top().priority; x != y {
		return x > y
	}
	return byFree{}.before(a.free.top(), b.free.top())
}
func (byTurn) place(c *class) *int32 { return &c.at }

// settle lists a class as ready if it has both a free worker and a task.
func (b *Board) settle(c *class) {
	if c.free.len() > 0 && c.active.len() > 0 {
		b.ready.put(c)
	} else {
		b.ready.remove(c)
	}
}

// settleWorker puts a worker whose slots or tasks have changed at its new place in the order.
func (b *Board) settleWorker(w *worker) {
	if w.free() > 0 {
		w.class.free.put(w)
	} else {
		w.class.free.remove(w)
	}
	b.settle(w.class)
}

// Join adds a worker. If the worker has joined before, Join replaces its offer, and the worker
// keeps its claims.
func (b *Board) Join(now model.Time, id WorkerID, offer model.TaskOffer) {
	b.advance(now)
	w := b.workers[id]
	if w == nil {
		w = &worker{id: id}
		b.workers[id] = w
	}
	old := w.class
	c := b.class(sortedNames(offer.Tenants), sortedNames(offer.Queues), sortedNames(offer.Kinds))
	c.workers++
	b.detach(w)
	w.class, w.slots = c, max(offer.Slots, 0)
	b.settleWorker(w)
	if old != nil && old.workers == 0 {
		b.dropClass(old)
	}
}

func sortedNames(names []string) []string {
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

// class returns the class of an offer. If it is new, class lists the lines that it covers.
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
	c = &class{name: name.String(), tenants: tenants, queues: queues, kinds: kinds, anyKind: slices.Contains(kinds, model.AnyKind), levels: map[int]*level{}}
	b.classes[c.name] = c
	for _, q := range queues {
		b.byQueue[q] = append(b.byQueue[q], c)
	}
	lines := b.coveredLines(c)
	// Shares are assigned in this order.
	slices.SortFunc(lines, func(x, y *line) int { return compareTasks(x.tasks.top(), y.tasks.top()) })
	for _, ln := range lines {
		b.enter(c, ln)
	}

	return c
}

// dropClass removes a class whose last worker has left.
func (b *Board) dropClass(c *class) {
	for _, ln := range b.coveredLines(c) {
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

// coveredLines returns the lines that a class covers.
func (b *Board) coveredLines(c *class) []*line {
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

// Slots sets how many claims a worker may hold. The worker keeps the claims that it already has.
func (b *Board) Slots(now model.Time, id WorkerID, n int) {
	b.advance(now)
	w := b.workers[id]
	if w == nil {
		return
	}
	w.slots = max(n, 0)
	b.settleWorker(w)
}

// Leave removes a worker and returns the claims that it held, in the order of Visible. These claims
// have no worker now, and are lost after the grace period. The caller should return or fail each of
// them before that. Proposals to the worker stay until the caller decides about them. If the caller
// decides with Hold, Hold reports that the worker is not here.
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

// assign gives a slot of a worker to a task. If the worker is nil, assign frees the slot of the
// task.
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
