package sim

import "github.com/perdure/perdure/internal/model"

// In some simulations a live node is declared dead: a peer believes to have proof that its process
// has ended, and fences it, although its lease holds. Nothing that is stored may suffer from that:
// the store excludes whatever the node still sends, and the node begins anew. Only what it answers
// from memory may be out of date until it notices, because that rests on its lease.

// lie has the others believe for a while that a process has ended.
func (s *Sim) lie() {
	p := s.procs[s.pick(3)]
	if p == nil || s.healed {
		return
	}
	p.slandered = s.now + s.between(20, 600)*millisecond
	if s.opts.Trace {
		s.logf("%s is believed to be DEAD for %d ms", p.name(), (p.slandered-s.now)/1000)
	}
}

// betrayed reports whether a live node was declared dead a short time ago, so that it may believe
// in a lease that it has lost. No lease lasts for longer than that.
func (inc *incarnation) betrayed() bool {
	s := inc.p.s
	return s.now < s.ledger.nodes[inc.self.ID].betrayed
}

// living reports whether the process of a node is there.
func (s *Sim) living(id model.NodeID) bool {
	m := s.ledger.nodes[id]
	return m != nil && m.inc != nil && !m.inc.p.dead && !m.inc.ended
}
