package engine

import (
	"slices"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/lending"
	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// loans implements loan.Host, which the lender of an incarnation needs. It also has the methods
// that the borrower needs. For the borrower, debts replaces the method Lane.
type loans struct{ inc *incarnation }

func (n loans) Alive(node model.NodeID) bool {
	alive := n.inc.alive.Load()
	return alive != nil && slices.Contains(*alive, node.String())
}

func (n loans) LookAround() { n.inc.post(n.inc.member.RenewNow) }

func (n loans) GiveBack(claims []model.ClaimRef) { n.inc.eng.giveBack(claims) }

func (n loans) Serving() bool { return n.inc.isServing() }

func (n loans) Lane(claim model.ClaimRef) loan.ClaimLane {
	if l := n.inc.lane(n.inc.shardOf(claim.Address)); l != nil {
		return claimLane{l}
	}
	return nil
}

// debts is the variant of loans for the borrower. It also accepts reports for a shard that this
// node is giving up, because the node waits for these reports.
type debts struct{ loans }

func (n debts) Lane(claim model.ClaimRef) loan.ClaimLane {
	if l := n.inc.keeper(n.inc.shardOf(claim.Address)); l != nil {
		return claimLane{l}
	}
	return nil
}

func (n loans) Hire(w *lending.LockedWorker, offer model.TaskOffer, node model.NodeID) loan.Hired {
	s := n.inc.eng.taskSession(w, offer, node)
	n.inc.board.enlist(s)
	return hired{n.inc, s}
}

func (n loans) Workers() []loan.Own {
	ss := n.inc.eng.taskWorkers.own()
	own := make([]loan.Own, len(ss))
	for i, s := range ss {
		own[i] = ownWorker{n.inc, s}
	}
	return own
}

// claimLane implements loan.ClaimLane: a lane that receives messages about claims from other nodes.
type claimLane struct{ s *laneShell }

func (c claimLane) Attach(claim model.ClaimRef, id queue.WorkerID) {
	by := c.s.inc.speaker(id)
	c.s.inbox.follow(op{do: func(l *lane.Lane, now model.Time) { l.Attach(now, claim, id, by) }})
}

func (c claimLane) Report(r *model.TaskReport, id queue.WorkerID) {
	c.s.inc.board.FreeSlot(id, r)
	c.s.inbox.follow(op{report: r, task: id})
}

func (c claimLane) Progress(claim model.ClaimRef, id queue.WorkerID, p model.Payload) {
	by := c.s.inc.speaker(id)
	c.s.inbox.follow(op{do: func(l *lane.Lane, now model.Time) { l.Progress(now, claim, by, p) }})
}

// speaker returns the name under which a worker speaks for claims, see TaskSession.speaker.
func (inc *incarnation) speaker(id queue.WorkerID) string {
	if s := inc.eng.taskWorkers.get(id); s != nil {
		return s.speaker()
	}
	return ""
}

func (c claimLane) Lose(claim model.ClaimRef) {
	c.s.inbox.result(func(l *lane.Lane, now model.Time) { l.Expire(now, claim, true, model.FailureLost) })
}

// hired implements loan.Hired: the session of a worker that another node lends.
type hired struct {
	inc *incarnation
	s   *TaskSession
}

func (h hired) ID() queue.WorkerID { return h.s.id }

func (h hired) SetHeld(holds, waiting map[model.ClaimRef]bool) []model.ClaimRef {
	return h.s.setHeld(holds, waiting)
}

func (h hired) DropClaim(claim model.ClaimRef) { h.s.dropClaim(claim) }

func (h hired) Dismiss() {
	h.s.mu.Lock()
	h.s.over = true
	h.s.mu.Unlock()
	h.inc.eng.taskWorkers.remove(h.s.id)
	h.inc.board.strike(h.s)
}

// ownWorker implements loan.Own: a worker of this node as its lender sees it.
type ownWorker struct {
	inc *incarnation
	s   *TaskSession
}

func (w ownWorker) Offer() *model.TaskOffer { return &w.s.offer }

func (w ownWorker) Idle() int { return w.inc.board.idle(w.s) }

func (w ownWorker) LendOut(most int) int { return w.inc.board.lendOut(w.s, most) }

func (w ownWorker) Regain(n int) { w.s.regain(n) }

func (w ownWorker) Rejoin() { w.inc.board.join(w.s) }

func (w ownWorker) Each(do func(model.ClaimRef, bool)) { w.s.abroadBy(do) }

func (w ownWorker) Deliver(claim model.ClaimRef) {
	l := loans{w.inc}.Lane(claim)
	if r := w.s.takeBackReport(claim); r != nil {
		w.s.resend(r, true)
	}
	w.s.mu.Lock()
	n := w.s.abroad.NewsOf(claim)
	w.s.mu.Unlock()
	if l == nil || n.Seq == 0 {
		return
	}

	if n.Beat {
		w.inc.board.Beat(w.s.id, claim)
	}
	if n.Progress != nil {
		l.Progress(claim, w.s.id, *n.Progress)
	}
	w.s.dropSentNews(map[model.ClaimRef]uint64{claim: n.Seq})
}

func (w ownWorker) List(to model.NodeID, foreign, owned func(model.ClaimRef) bool, room *int) ([]peer.Hold, map[model.ClaimRef]uint64) {
	return w.s.holdsAbroad(to, foreign, owned, room)
}

func (w ownWorker) DropSentNews(sent map[model.ClaimRef]uint64) { w.s.dropSentNews(sent) }

func (w ownWorker) Has(claim model.ClaimRef) bool { return w.s.has(claim) }

func (w ownWorker) Take(claims []model.Claim, maker model.NodeID) bool {
	return w.s.executeAbroad(claims, maker)
}

func (w ownWorker) Stop(claim model.ClaimRef, canceled bool) {
	if w.s.hasClaim(claim) {
		w.s.stop(claim, canceled)
	}
}

func (w ownWorker) Settle(claim model.ClaimRef, err error) {
	if w.s.hasReport(claim) {
		w.s.settleReport(claim, err)
	}
}
