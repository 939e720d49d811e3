package engine

import (
	"slices"

	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// This file handles orphans and lingering claims. An orphan is a claim that a worker of this node,
// or a worker that is lent to it, still executes although its run has moved away or is quarantined,
// or although the lane has decided that the claim has ended. A lingering claim has ended for good,
// but its code still runs. Both keep their permits until their workers are done (see
// flow.BoardGate).

// Release implements lane.Board.
func (b *board) Release(now model.Time, id queue.WorkerID, r *model.TaskReport) {
	b.mu.Lock()
	b.release(now, id, r)
	b.mu.Unlock()
}

// release frees the permits of a reported claim whose run is quarantined or belongs to another
// node. The caller must hold the lock.
func (b *board) release(now model.Time, id queue.WorkerID, r *model.TaskReport) {
	if b.gate.FreeReported(now, id, r) {
		b.settle(now)
		b.moved = true
	}
}

// stopEarlier stops workers that still execute an earlier claim of a task whose next claim a lane
// is about to hand over. The next claim is durable, so the earlier one has ended.
func (b *board) stopEarlier(calls []lane.TaskCall) {
	isExecute := func(c lane.TaskCall) bool { return c.Kind == lane.TaskExecute }
	if !slices.ContainsFunc(calls, isExecute) || !b.gate.KeepsPermits() {
		return
	}
	var earlier []flow.WorkerClaim
	b.mu.Lock()
	for i := range calls {
		if calls[i].Kind == lane.TaskExecute {
			earlier = append(earlier, b.gate.Earlier(calls[i].Ref)...)
		}
	}
	b.mu.Unlock()
	for _, c := range earlier {
		if s := b.inc.eng.taskWorkers.get(c.Worker); s != nil {
			s.stop(c.Ref, false)
		}
	}
}

// Quarantine implements lane.Board.
func (b *board) Quarantine(now model.Time, a model.Address) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ref := range b.gate.OrphansAt(a) {
		if _, freed := b.gate.FreeDone(now, ref); freed {
			b.moved = true
		}
	}
	b.settle(now)
}

// settleClaim frees the permits of an orphan or a lingering claim when its worker is done with it,
// and the end of the claim is durable or no longer matters.
func (b *board) settleClaim(ref model.ClaimRef, how queue.Outcome) {
	if !b.gate.KeepsPermits() {
		return // most claims end without such permits, so do not lock the board for them
	}
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	done := b.gate.FreeOrphan(now, ref, how)
	if done {
		b.settle(now)
		b.moved = true
	}
	b.mu.Unlock()
	if done {
		b.Propose()
	}
}

// KeptFor returns the nodes whose workers execute claims for which this node still keeps permits,
// although it no longer owns the runs.
func (b *board) KeptFor() map[model.NodeID]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var nodes map[model.NodeID]bool
	for id := range b.gate.Orphans() {
		if s := b.inc.eng.taskWorkers.get(id); s != nil && !s.node.IsZero() {
			if nodes == nil {
				nodes = map[model.NodeID]bool{}
			}
			nodes[s.node] = true
		}
	}
	return nodes
}

// LetGo frees the permits of claims whose workers, on other nodes, are done or gone.
func (b *board) LetGo() {
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	b.moved = b.gate.LetGo(now) || b.moved
	b.settle(now)
	b.mu.Unlock()
	b.Propose()
}
