package loan

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// BorrowedWorker is a worker of another node, as the board sees it.
type BorrowedWorker struct {
	n       *neighbour
	session Hired
	known   map[model.ClaimRef]bool // claims that the lane knows the worker has
	reports map[model.ClaimRef]bool // claims whose report the lane has not settled
	offer   model.TaskOffer
}

// noteHold handles what a poll says about a claim.
func (w *BorrowedWorker) noteHold(h *peer.Hold) {
	ref, id := h.Ref, w.session.ID()
	l := w.n.d.cfg.Owner.Lane(ref)
	if l == nil {
		if h.Beat || h.Progress != nil {
			w.n.strange = append(w.n.strange, ref)
		}
		return
	}

	if r := h.Report; r != nil {
		if !w.reports[ref] {
			w.reports[ref] = true
			w.n.expected++
			l.Report(r, id)
		}
		return
	}

	if !w.known[ref] {
		w.known[ref] = true
		l.Attach(ref, id)
	}

	if h.Beat {
		w.n.d.cfg.Board.Beat(id, ref)
	}
	if p := h.Progress; p != nil {
		l.Progress(ref, id, *p)
	}
}

// Expect adds to the number of claims for the worker that the lane is committing.
func (w *BorrowedWorker) Expect(count int) { w.n.expected += count }

// Execute hands over committed claims.
func (w *BorrowedWorker) Execute(now time.Time, claims []model.Claim) {
	n := w.n
	for i := range claims {
		c := claims[i]
		w.known[c.Ref] = true
		n.push(now, peer.Entry{Worker: w.offer.Name, Claim: &c})
	}
	n.expected = max(n.expected-len(claims), 0)
	n.flush(now)
}

// Stop ends a claim, because its outcome is no longer needed.
func (w *BorrowedWorker) Stop(now time.Time, ref model.ClaimRef, canceled bool) {
	if !canceled {
		delete(w.known, ref)
	}
	w.n.push(now, peer.Entry{Worker: w.offer.Name, Stop: &ref, Canceled: canceled})
	w.n.flush(now)
}

// Settle tells the node of the worker that a report is durable, or why it was refused.
func (w *BorrowedWorker) Settle(now time.Time, ref model.ClaimRef, err error) {
	n := w.n
	e := peer.Entry{Worker: w.offer.Name, Settled: &ref}
	if err != nil {
		e.Refusal = &model.Failure{Kind: fault.KindOf(err).String(), Message: err.Error()}
	}
	delete(w.known, ref)
	delete(w.reports, ref)
	n.push(now, e)
	n.expected = max(n.expected-1, 0)
	n.flush(now)
}

// Redirect drops a report that this owner has not recorded, because it does not own the run or has
// no room now. The node of the worker sends the report again, to the node that owns the run by
// then.
func (w *BorrowedWorker) Redirect(now time.Time, ref model.ClaimRef) {
	delete(w.reports, ref)
	w.n.expected = max(w.n.expected-1, 0)
	w.n.flush(now)
}

func covers(o *model.TaskOffer, w queue.Want) bool {
	return slices.Contains(o.Tenants, w.Tenant) && slices.Contains(o.Queues, w.Queue) && model.Executes(o.Kinds, w.Kind)
}
