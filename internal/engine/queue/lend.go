package queue

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// Lend says how many more claims may be proposed to a worker whose slots belong to somebody else,
// who alone knows how many are free. Each proposal uses one of them up, and the end of a claim
// frees none.
func (b *Board) Lend(now model.Time, id WorkerID, n int) {
	b.advance(now)
	if w := b.workers[id]; w != nil {
		w.lent, w.credit = true, max(n, 0)
		b.settleWorker(w)
	}
}

// Lent is how many of the slots that were lent have not been used.
func (b *Board) Lent(id WorkerID) int {
	if w := b.workers[id]; w != nil && w.lent {
		return w.credit
	}
	return 0
}

// Idle is how many slots of a worker nothing is proposed for or claimed with.
func (b *Board) Idle(id WorkerID) int {
	if w := b.workers[id]; w != nil {
		return max(w.free(), 0)
	}
	return 0
}

// Holds reports whether a claim is held, by nobody or by the worker, and no report of it has come.
func (b *Board) Holds(id WorkerID, claim model.ClaimRef) bool {
	t := b.claimed(claim)
	return t != nil && t.state != reported && (t.worker == nil || t.worker.id == id)
}

// Proposed reports whether a task was proposed to a worker while it waited, and that is not
// decided. One that was told of anew since is not: it gave back what it had been let through with.
func (b *Board) Proposed(id WorkerID, ref model.TaskRef) bool {
	t := b.tasks[keyOf(&ref)]
	return t != nil && t.state == matched && (t.worker == nil || t.worker.id == id)
}

// Want is a kind of tasks of a queue.
type Want struct{ Tenant, Queue, Kind string }

// Compare orders wants.
func (w Want) Compare(o Want) int {
	return cmp.Or(cmp.Compare(w.Tenant, o.Tenant), cmp.Compare(w.Queue, o.Queue), cmp.Compare(w.Kind, o.Kind))
}

// Waiting is what a task that waits in a line waits for.
func (b *Board) Waiting(ref model.TaskRef) (w Want, waits bool) {
	t := b.tasks[keyOf(&ref)]
	if t == nil || t.state != waiting {
		return Want{}, false
	}
	return Want{t.site.name.tenant, t.site.name.queue, t.Spec.Kind}, true
}

// Waits reports whether any task waits in a line.
func (b *Board) Waits() bool { return len(b.lines) > 0 }

// Unserved are the kinds of tasks that could begin now but for want of a free worker, in order. It
// looks at no more than limit lines, whichever they are.
func (b *Board) Unserved(limit int) []Want {
	var out []Want
	for name, ln := range b.lines {
		if limit--; limit < 0 {
			break
		}
		if ln.site.paused || ln.group.closed || slices.ContainsFunc(ln.leaves, func(lf *leaf) bool { return lf.cell.tenant.level.class.free.len() > 0 }) {
			continue
		}
		want := Want{name.tenant, name.queue, name.kind}
		if i, found := slices.BinarySearchFunc(out, want, Want.Compare); !found {
			out = slices.Insert(out, i, want)
		}
	}
	return out
}

// Abandoned are the kinds of tasks that wait and that no worker here offers to execute, in order.
// It looks at no more than limit lines, whichever they are.
func (b *Board) Abandoned(limit int) []Want {
	var out []Want
	for name, ln := range b.lines {
		if limit--; limit < 0 {
			break
		}
		if len(ln.leaves) > 0 {
			continue
		}
		want := Want{name.tenant, name.queue, name.kind}
		if i, found := slices.BinarySearchFunc(out, want, Want.Compare); !found {
			out = slices.Insert(out, i, want)
		}
	}
	return out
}
