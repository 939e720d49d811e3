package sim

import (
	"github.com/perdure/perdure/internal/model"
)

// A node may take over a run with a claim of a worker of another live node. It has to wait, because
// only that worker can tell how the claim ends. But it may be that no worker has the claim: the
// claim was stored and never handed over, or its worker left while the history could not be
// written. So the owner asks the other node, as engine/loan/debtor.go does, and gives the claim
// back if that node does not have it. Questions and answers are messages that get lost, arrive late
// or arrive twice.

// unheard is a claim of a worker of another node about which the owner of the run has no news.
type unheard struct {
	node  string
	since int64
	// the node has answered that none of its workers has the claim, at a time when no claim could
	// still be in flight to them
	denied bool
}

// sureAfter is how long a claim may be in flight to a worker.
const sureAfter = 50 * millisecond

// The lane calls found for a claim that a worker of another live node should have.
func (b *board) found(node string, ref model.ClaimRef) {
	if u := b.inc.purse; u != nil {
		if to := b.inc.p.s.nodeIDs[node]; !to.IsZero() {
			u.debtor.AskAbout(u.now(), to, ref)
		}
		return
	}
	if b.unheard[ref] != nil {
		return
	}
	u := &unheard{node: node, since: b.inc.p.s.now}
	b.unheard[ref] = u
	b.ask(ref, u)
}

// ask repeats the question until the node has denied the claim or the board no longer waits for
// the claim.
func (b *board) ask(ref model.ClaimRef, u *unheard) {
	s, p := b.inc.p.s, b.inc.p
	s.after(s.between(10, 60)*millisecond, p, func() {
		if b.inc.ended || u.denied {
			return
		}

		if !b.b.Holds(0, ref) || !b.livesElsewhere(u.node) {
			delete(b.unheard, ref)
			return
		}

		asked := s.now
		s.letter(s.nodeNamed(u.node), func(to *proc) {
			if to.inc == nil || to.inc.self.ID.String() != u.node {
				return
			}
			has := to.has(ref)
			s.letter(p, func(*proc) {
				if !b.inc.ended && !has && asked >= u.since+sureAfter && !u.denied {
					u.denied = true
					s.did(opDenied)
				}
			})
		})

		b.ask(ref, u)
	})
}

// Dropped implements lane.Board.
func (b *board) Dropped(_ string, ref model.ClaimRef) bool {
	if u := b.inc.purse; u != nil {
		if !u.debtor.Dropped(ref) {
			return false
		}
	} else if u := b.unheard[ref]; u == nil || !u.denied {
		return false
	}
	b.inc.p.s.dropped[ref] = true
	return true
}

// has reports whether a worker of the process has received a claim whose report is not settled.
func (p *proc) has(ref model.ClaimRef) bool {
	for _, h := range p.hands {
		if h.has(ref) {
			return true
		}
	}
	return false
}

// nodeNamed returns the process whose current life is a node, or nil.
func (s *Sim) nodeNamed(id string) *proc {
	for _, p := range s.procs {
		if p != nil && p.inc != nil && p.inc.self.ID.String() == id {
			return p
		}
	}
	return nil
}

// letter sends a message from one process to another. It may get lost, arrive late or arrive twice.
func (s *Sim) letter(to *proc, read func(to *proc)) {
	if to == nil || s.hintIsLost() {
		return
	}
	times, late := 1, int64(0)
	if !s.healed && s.chance(0.2) {
		times, late = 1+s.pick(2), s.between(0, 2*sureAfter)
		s.hurt(faultLetterOdd)
	}
	for range times {
		s.after(s.disk.latency()+late, to, func() { read(to) })
		late += s.between(0, sureAfter)
	}
}
