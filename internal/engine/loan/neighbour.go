package loan

import (
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// neighbour is another node that executes, or could execute, tasks of this one.
type neighbour struct {
	d       *Debtor
	node    model.NodeID
	workers map[string]*BorrowedWorker
	listed  map[model.ClaimRef]bool // the claims of its last poll
	seq     uint64                  // number of that poll
	heard   time.Time

	stream  model.RunID
	last    uint64       // number of the last entry
	sent    uint64       // number of the last entry that was in an answer
	pending []datedEntry // entries that no poll has acknowledged

	answer   func(*peer.PollReply) // answers the open poll; nil if there is none
	expected int                   // claims and reports that are being committed
	strange  []model.ClaimRef

	knows   bool // the neighbour knows that tasks wait, and polls on its own when it has slots
	coming  bool // the neighbour was asked to poll immediately
	knocked time.Time
}

// datedEntry is an entry for a worker of another node, with its time.
type datedEntry struct {
	peer.Entry
	at time.Time
}

// lastContact returns when the two nodes last exchanged a message.
func (n *neighbour) lastContact() time.Time {
	if n.knocked.After(n.heard) {
		return n.knocked
	}
	return n.heard
}

// idle reports whether this node can forget the neighbour, because it could learn everything about
// the neighbour again.
func (n *neighbour) idle() bool {
	if len(n.pending) > 0 || n.answer != nil {
		return false
	}
	for _, w := range n.workers {
		if len(w.known) > 0 {
			return false
		}
	}
	return true
}

// end returns the claims that were lost with a dead node, and the claims that were never sent to
// that node.
func (n *neighbour) end() (lost, untold []model.ClaimRef) {
	waiting := map[model.ClaimRef]bool{}
	for i := range n.pending {
		if e := &n.pending[i]; e.Claim != nil && e.N > n.sent {
			waiting[e.Claim.Ref] = true
			untold = append(untold, e.Claim.Ref)
		}
	}
	for _, w := range n.workers {
		for ref := range w.known {
			if !waiting[ref] {
				lost = append(lost, ref)
			}
		}
	}
	return lost, untold
}

// dismiss removes a worker of the node from the board.
func (n *neighbour) dismiss(name string) {
	w := n.workers[name]
	delete(n.workers, name)
	w.session.Dismiss()
}

// take compares the claims that the workers of a node have with the claims that they should have.
// It returns the claims that the workers do not have although this node has sent them, and how many
// slots the workers lend.
func (n *neighbour) take(p *peer.Poll) (missing []model.ClaimRef, lend []Slot) {
	board := n.d.cfg.Board
	waiting := map[string]map[model.ClaimRef]bool{} // claims in flight to the workers
	for i := range n.pending {
		if e := &n.pending[i]; e.Claim != nil {
			if waiting[e.Worker] == nil {
				waiting[e.Worker] = map[model.ClaimRef]bool{}
			}
			waiting[e.Worker][e.Claim.Ref] = true
		}
	}

	n.listed = map[model.ClaimRef]bool{}
	here := map[string]bool{}
	expected := max(n.expected, 0)
	for i := range p.Workers {
		pw := &p.Workers[i]
		here[pw.Name] = true
		w := n.worker(pw)

		holds := map[model.ClaimRef]bool{}
		for j := range pw.Holds {
			h := &pw.Holds[j]
			holds[h.Ref], n.listed[h.Ref] = true, true
			delete(n.d.unheard, h.Ref)
		}

		for _, ref := range w.session.SetHeld(holds, waiting[pw.Name]) {
			// The session had the claim, perhaps because a lane has found in the history of the run
			// that the worker has it. Add the claim to known, so that the loop below finds it
			// missing.
			w.known[ref] = true
		}
		for j := range pw.Holds {
			w.noteHold(&pw.Holds[j])
		}

		for ref := range w.known {
			if !holds[ref] && !waiting[pw.Name][ref] {
				delete(w.known, ref)
				if board.HasClaim(w.session.ID(), ref) {
					missing = append(missing, ref)
				}
			}
		}

		lend = append(lend, Slot{w.session.ID(), max(0, pw.Lend-len(waiting[pw.Name])-expected)})
	}

	if len(here) == len(n.workers) {
		return missing, lend
	}

	for _, name := range slices.Sorted(maps.Keys(n.workers)) {
		if !here[name] { // the worker has left; its node gives back entries that arrive there later
			w := n.workers[name]
			for ref := range w.known {
				if !waiting[name][ref] && board.HasClaim(w.session.ID(), ref) {
					missing = append(missing, ref)
				}
			}
			n.dismiss(name)
		}
	}

	return missing, lend
}

// worker returns a worker of the node. If the worker is new, it puts the worker on the board.
func (n *neighbour) worker(pw *peer.PollWorker) *BorrowedWorker {
	w := n.workers[pw.Name]
	offer := model.TaskOffer{Name: pw.Name, Tenants: pw.Tenants, Queues: pw.Queues, Kinds: pw.Kinds, Version: pw.Version}
	if w == nil {
		w = &BorrowedWorker{n: n, known: map[model.ClaimRef]bool{}, reports: map[model.ClaimRef]bool{}, offer: offer}
		w.session = n.d.cfg.Owner.Hire(w, offer, n.node)
		n.workers[pw.Name] = w
	}
	return w
}

// reply answers the open poll. Lent slots that were not used belong to the node again.
func (n *neighbour) reply(now time.Time) {
	cfg := &n.d.cfg
	a := peer.PollReply{Seq: n.seq, Stream: n.stream, Strange: n.strange}
	wants := cfg.Board.Unlend(n.ids())

	// This node may have lost its lease. In that case another node may own the runs by now, and may
	// have made claims that this node would take for ended claims. So do not answer.
	if !cfg.Owner.Serving() {
		n.answer = nil
		return
	}

	n.tidy(now)
	size := 0
	for i := range n.pending {
		if size += n.pending[i].Size(); size > answerBytes && i > 0 {
			a.Coming = len(n.pending) - i
			break
		}
		a.Entries = append(a.Entries, n.pending[i].Entry)
		n.sent = n.pending[i].N
	}

	a.Coming += max(n.expected, 0)
	for _, w := range wants {
		if n.covers(w) {
			a.Wants = append(a.Wants, peer.WantedTasks(w))
		}
	}

	n.knows, n.coming = len(a.Wants) > 0, a.Coming > 0
	answer := n.answer
	n.answer = nil
	answer(&a)
}

// tidy drops claims that have ended, and claims of runs that have moved away.
func (n *neighbour) tidy(now time.Time) {
	n.pending = slices.DeleteFunc(n.pending, func(e datedEntry) bool { return e.Claim != nil && n.over(&e, now) })
	for _, w := range n.workers {
		for ref := range w.known {
			if n.d.cfg.Owner.Lane(ref) == nil || !n.d.cfg.Board.HasClaim(w.session.ID(), ref) {
				delete(w.known, ref) // if the node lists the claim again, the lane checks it
			}
		}
	}
}

// over reports whether the claim of an entry should no longer be executed. The claim of a run that
// has moved is still sent for a while. The next owner of the run waits longer than that before it
// decides that no worker has the claim.
func (n *neighbour) over(e *datedEntry, now time.Time) bool {
	w := n.workers[e.Worker]
	if w == nil {
		return false // the worker has left, and its node gives the claim back
	}

	ref := e.Claim.Ref
	if n.d.cfg.Owner.Lane(ref) == nil {
		if now.Sub(e.at) < n.d.cfg.Pace.TellMoved {
			return false
		}
	} else if n.d.cfg.Board.HasClaim(w.session.ID(), ref) {
		return false
	}

	// If the entry was sent, it may have arrived. In that case the session keeps the claim until
	// the node has listed what it holds.
	if e.N > n.sent && !n.listed[ref] {
		w.session.DropClaim(ref)
	}
	return true
}

func (n *neighbour) ids() []queue.WorkerID {
	ids := make([]queue.WorkerID, 0, len(n.workers))
	for _, w := range n.workers {
		ids = append(ids, w.session.ID())
	}
	return ids
}

// covers reports whether a worker of the node could take tasks of this kind.
func (n *neighbour) covers(want queue.Want) bool {
	for _, w := range n.workers {
		if covers(&w.offer, want) {
			return true
		}
	}
	return false
}

// push adds an entry for the node.
func (n *neighbour) push(now time.Time, e peer.Entry) {
	n.last++
	e.N = n.last
	n.pending = append(n.pending, datedEntry{e, now})
}

// flush answers the open poll, or schedules a knock so that the node fetches its entries.
func (n *neighbour) flush(now time.Time) {
	switch {
	case n.answer != nil && n.expected <= 0:
		n.reply(now)
	case n.answer == nil:
		n.d.cfg.Wake()
	}
}
