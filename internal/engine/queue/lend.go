package queue

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// Lend sets how many more claims the board may propose to a lent worker. The slots of a lent worker
// belong to another node, and only that node knows how many are free. Each proposal uses up one of
// the n, and the end of a claim gives none back.
func (b *Board) Lend(now model.Time, id WorkerID, n int) {
	b.advance(now)
	if w := b.workers[id]; w != nil {
		w.lent, w.credit = true, max(n, 0)
		b.settleWorker(w)
	}
}

// LentSlots returns how many lent slots are unused.
func (b *Board) LentSlots(id WorkerID) int {
	if w := b.workers[id]; w != nil && w.lent {
		return w.credit
	}
	return 0
}

// Idle returns how many slots of a worker have neither a proposal nor a claim.
func (b *Board) Idle(id WorkerID) int {
	if w := b.workers[id]; w != nil {
		return max(w.free(), 0)
	}
	return 0
}

// HasClaim reports whether a claim still holds its task, has no report, and has either this worker
// or no worker.
func (b *Board) HasClaim(id WorkerID, claim model.ClaimRef) bool {
	t := b.findClaim(claim)
	return t != nil && t.state != reported && (t.worker == nil || t.worker.id == id)
}

// IsAssigned reports whether a claim still holds its task and its worker is on the board.
func (b *Board) IsAssigned(claim model.ClaimRef) bool {
	t := b.findClaim(claim)
	return t != nil && t.worker != nil
}

// HasProposal reports whether Match has proposed a task to a worker and the proposal is undecided.
// Another Add for the task ends the proposal, because it gives back the permits.
func (b *Board) HasProposal(id WorkerID, ref model.TaskRef) bool {
	t := b.tasks[keyOf(&ref)]
	return t != nil && t.state == matched && (t.worker == nil || t.worker.id == id)
}

// Want is a kind of tasks in a queue.
type Want struct{ Tenant, Queue, Kind string }

// Compare orders wants.
func (w Want) Compare(o Want) int {
	return cmp.Or(cmp.Compare(w.Tenant, o.Tenant), cmp.Compare(w.Queue, o.Queue), cmp.Compare(w.Kind, o.Kind))
}

// Waiting returns which tenant, queue and kind a worker must offer to get a task that waits in a
// line. waits is false if the task is in no line.
func (b *Board) Waiting(ref model.TaskRef) (w Want, waits bool) {
	t := b.tasks[keyOf(&ref)]
	if t == nil || t.state != waiting {
		return Want{}, false
	}
	return Want{t.site.name.tenant, t.site.name.queue, t.Spec.Kind}, true
}

// HasWaiting reports whether any task waits in a line.
func (b *Board) HasWaiting() bool { return len(b.lines) > 0 }

// UnservedWants returns, in order, the kinds of tasks that could start now if a worker were free.
// It visits at most limit lines, in no particular order.
func (b *Board) UnservedWants(limit int) []Want {
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

// AbandonedWants returns, in order, the kinds of waiting tasks that no worker here offers to
// execute. It visits at most limit lines, in no particular order.
func (b *Board) AbandonedWants(limit int) []Want {
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
