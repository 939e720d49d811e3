package lending

import (
	"slices"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Worker is a worker of another node, as the board sees it.
type Worker struct {
	n       *neighbour
	session Hired
	known   map[model.ClaimRef]bool // claims that the lane knows it has
	reports map[model.ClaimRef]bool // those whose report the lane has, and has not settled
	offer   model.TaskOffer
}

// holds takes in what a poll says of a claim.
func (w *Worker) holds(h *peer.Hold) {
	ref, id := h.Ref, w.session.ID()
	l := w.n.b.owner.Lane(ref)
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
		w.n.b.board.Beat(id, ref)
	}
	if p := h.Progress; p != nil {
		l.Progress(ref, *p)
	}
}

// Expect tells that so many claims by a borrowed worker are on their way to the store.
func (w *Worker) Expect(count int) {
	w.n.b.mu.Lock()
	w.n.expected += count
	w.n.b.mu.Unlock()
}

// Execute is for lanes.
func (w *Worker) Execute(claims []model.Claim) {
	n := w.n
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	for i := range claims {
		c := claims[i]
		w.known[c.Ref] = true
		n.push(peer.Entry{Worker: w.offer.Name, Claim: &c})
	}
	n.expected = max(n.expected-len(claims), 0)
	n.pushed()
}

// Stop is for lanes.
func (w *Worker) Stop(ref model.ClaimRef, canceled bool) {
	n := w.n
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	if !canceled {
		delete(w.known, ref)
	}
	n.push(peer.Entry{Worker: w.offer.Name, Stop: &ref, Canceled: canceled})
	n.pushed()
}

// Settled is for lanes.
func (w *Worker) Settled(ref model.ClaimRef, err error) {
	n := w.n
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	e := peer.Entry{Worker: w.offer.Name, Settled: &ref}
	if err != nil {
		e.Refusal = &model.Failure{Kind: fault.KindOf(err).String(), Message: err.Error()}
	}
	delete(w.known, ref)
	delete(w.reports, ref)
	n.push(e)
	n.expected = max(n.expected-1, 0)
	n.pushed()
}

// Unsettled is told that a report came to the wrong owner: its node tells the right one.
func (w *Worker) Unsettled(ref model.ClaimRef) {
	w.n.b.mu.Lock()
	defer w.n.b.mu.Unlock()
	delete(w.reports, ref)
	w.n.expected = max(w.n.expected-1, 0)
	w.n.pushed()
}

func covers(o *model.TaskOffer, w queue.Want) bool {
	return slices.Contains(o.Tenants, w.Tenant) && slices.Contains(o.Queues, w.Queue) && slices.Contains(o.Kinds, w.Kind)
}
