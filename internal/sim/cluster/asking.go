package cluster

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// A node may take over a run with a task that a worker of another live node has claimed. The new
// owner has to wait, because only that worker knows how the claim ends. But perhaps no worker has
// the claim. That happens if the claim was stored and never handed over, or if its worker left
// while the history could not be written. So the new owner asks the other node, as
// engine/loan/debtor.go does, and gives the claim back if that node does not have it. Questions and
// answers are messages that get lost, arrive late or arrive twice.

// unheard is a claim that a worker of another node should have, and about which the owner of the
// run has heard nothing.
type unheard struct {
	node  string
	since int64
	// denied says that the node has answered that none of its workers has the claim. When the node
	// answered, the claim could no longer be in flight to a worker, because too much time had
	// passed.
	denied bool
}

// sureAfter is how long a claim may be in flight to a worker.
const sureAfter = 50 * kernel.Millisecond

// found starts to ask about a claim that a worker of another live node should have. The lane calls
// found.
func (b *board) found(node string, ref model.ClaimRef) {
	if u := b.inc.purse; u != nil {
		if to := b.inc.p.Cluster.nodeIDs[node]; !to.IsZero() {
			u.debtor.AskAbout(u.now(), to, ref)
		}
		return
	}
	if b.unheard[ref] != nil {
		return
	}
	u := &unheard{node: node, since: b.inc.p.Cluster.Now}
	b.unheard[ref] = u
	b.ask(ref, u)
}

// ask repeats the question until the node answers that it does not have the claim, or until the
// board no longer waits for the claim.
func (b *board) ask(ref model.ClaimRef, u *unheard) {
	s, p := b.inc.p.Cluster, b.inc.p
	s.After(s.Between(10, 60)*kernel.Millisecond, p.Process, func() {
		if b.inc.ended || u.denied {
			return
		}

		if !b.b.HasClaim(0, ref) || !b.livesElsewhere(u.node) {
			delete(b.unheard, ref)
			return
		}

		asked := s.Now
		s.sendLossy(s.nodeNamed(u.node), func(to *Proc) {
			if to.Inc == nil || to.Inc.self.ID.String() != u.node {
				return
			}
			has := to.has(ref)
			s.sendLossy(p, func(*Proc) {
				if !b.inc.ended && !has && asked >= u.since+sureAfter && !u.denied {
					u.denied = true
					s.Did(scenario.OpDenied)
				}
			})
		})

		b.ask(ref, u)
	})
}

// IsDropped implements lane.Board.
func (b *board) IsDropped(_ string, ref model.ClaimRef) bool {
	if u := b.inc.purse; u != nil {
		if !u.debtor.IsDropped(ref) {
			return false
		}
	} else if u := b.unheard[ref]; u == nil || !u.denied {
		return false
	}
	b.inc.p.Cluster.Dropped[ref] = true
	return true
}

// has reports whether a worker of the process has received a claim whose report is not settled.
func (p *Proc) has(ref model.ClaimRef) bool {
	for _, h := range p.Hands {
		if h.has(ref) {
			return true
		}
	}
	return false
}

// nodeNamed returns the process whose current incarnation has the given node id, or nil.
func (s *Cluster) nodeNamed(id string) *Proc {
	for _, p := range s.Procs {
		if p != nil && p.Inc != nil && p.Inc.self.ID.String() == id {
			return p
		}
	}
	return nil
}

// sendLossy sends a message from one process to another. The message may get lost, arrive late or
// arrive twice.
func (s *Cluster) sendLossy(to *Proc, read func(to *Proc)) {
	if to == nil || s.hintIsLost() {
		return
	}
	times, late := 1, int64(0)
	if !s.Healed && s.Chance(0.2) {
		times, late = 1+s.Pick(2), s.Between(0, 2*sureAfter)
		s.Hurt(scenario.FaultMessageOdd)
	}
	for range times {
		s.After(s.Disk.Latency()+late, to.Process, func() { read(to) })
		late += s.Between(0, sureAfter)
	}
}
