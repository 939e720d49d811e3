package sim

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// In some simulations the store refuses rows of an address until everything else has ended. What
// must hold: all other executions continue and end during that time, except for executions that
// wait for a refused address. Then the store accepts the rows again, and everything ends.

// sickenForGood makes the rows of an address unwritable until everything else has ended.
func (s *Sim) sickenForGood() {
	a := s.sickAddress()
	// the task that executes now reports to a run that cannot store the report
	if busy := s.executed(); s.chance(0.5) && len(busy) > 0 {
		a = oneOf(s, busy...)
	}
	s.ledger.address(a).sick = true
	s.disk.lasting[a] = true
	s.hurt(faultLastingPoison)
	if s.opts.Trace {
		s.logf("store    lasting poison: %s", a)
	}
}

// executed returns the addresses of the runs whose tasks are executing now.
func (s *Sim) executed() (list []model.Address) {
	for _, p := range s.procs {
		if p == nil {
			continue
		}
		for _, h := range p.hands {
			for _, ref := range h.refs() {
				list = append(list, ref.Address)
			}
		}
	}
	return list
}

// neighboursEnd waits until everything has ended that does not wait for a refused address, and then
// ends the refusals.
func (s *Sim) neighboursEnd() {
	if len(s.disk.lasting) == 0 && !s.plan.lateUpgrade {
		return
	}
	ended := false
	var look func()

	look = func() {
		if ended = s.others() == ""; !ended {
			s.after(20*millisecond, nil, look)
		}
	}

	s.after(0, nil, look)
	s.runUntil(s.now+s.plan.patience, func() bool { return ended })
	if !ended {
		s.dumpIf()
		s.fail("I14: rows of %v are refused, and their neighbours are stuck for %d s: %s", s.refusedKeys(), s.plan.patience/second, s.others())
	}

	s.did(opNeighbours)
	if s.opts.Trace {
		s.logf("store    no more lasting poison")
	}
	clear(s.disk.lasting)
	s.upgradeAll()
}

func (s *Sim) refusedKeys() (keys []string) {
	for a := range s.disk.lasting {
		keys = append(keys, a.Key)
	}
	slices.Sort(keys)
	return keys
}

// others returns something that has not ended although it does not wait for a refused address, or
// an empty string.
func (s *Sim) others() string {
	waits := s.waitsForRefused()
	for _, r := range s.ledger.order {
		if r.open() && !waits[r.address.name] {
			return fmt.Sprintf("run %s of %s is open", short(r.id), r.address.name)
		}
	}

	for _, row := range s.ledger.inbox {
		if !waits[row.Message.To] {
			return fmt.Sprintf("a request to %s waits", row.Message.To)
		}
	}

	for k, c := range s.ledger.pairs {
		if c.next < int64(len(c.rows)) {
			return fmt.Sprintf("messages from shard %d to shard %d: %d of %d consumed", k[1], k[0], c.next, len(c.rows))
		}
	}

	for _, n := range s.ledger.holdingOrder {
		if len(n.box) > 0 && !waits[n.address.name] {
			return fmt.Sprintf("%d items wait for %s", len(n.box), n.address.name)
		}
	}

	behind := map[*user]bool{} // users that wait themselves
	for _, o := range s.ops {
		switch {
		case o.done:
		case waits[o.message.To]:
			behind[o.user] = true
		default:
			return o.String() + " has not ended"
		}
	}

	for _, u := range s.users {
		if u.busy && !behind[u] {
			return fmt.Sprintf("user %d is not done", u.index)
		}
	}

	return s.heldByOthers(waits)
}

// heldByOthers returns something that a worker holds for an address that does not wait for a
// refused one.
func (s *Sim) heldByOthers(waits map[model.Address]bool) string {
	for _, p := range s.procs {
		if p == nil || p.inc == nil {
			return "a node is away"
		}

		for _, w := range p.workers {
			for id := range w.held {
				if r := s.ledger.runs[id]; r == nil || !waits[r.address.name] {
					return fmt.Sprintf("worker %d of %s holds %s", w.id, p.name(), short(id))
				}
			}
		}

		for _, h := range p.hands {
			for _, ref := range h.refs() {
				if !waits[ref.Address] {
					return fmt.Sprintf("%s executes claim %d of %s", h.offer.Name, ref.Claim, short(ref.Run))
				}
			}
			for ref := range h.reported {
				if !waits[ref.Address] {
					return fmt.Sprintf("%s has reported claim %d of %s, and hears nothing", h.offer.Name, ref.Claim, short(ref.Run))
				}
			}
		}
	}

	return ""
}

// waitsForRefused returns the addresses that may wait: addresses whose rows are refused or cannot
// be read before an upgrade, and addresses that wait for them.
func (s *Sim) waitsForRefused() map[model.Address]bool {
	waits := map[model.Address]bool{}
	for a := range s.disk.lasting {
		waits[a] = true
	}
	for a := range s.newEvents {
		waits[a] = true
	}

	for _, row := range s.ledger.inbox {
		if s.plan.lateUpgrade && s.isNew(&row.Message) {
			waits[row.Message.To], waits[row.Message.From.Address] = true, true
		}
	}

	for grown := true; grown; {
		grown = false
		note := func(a model.Address) {
			if !waits[a] {
				waits[a], grown = true, true
			}
		}
		for _, r := range s.ledger.order {
			if !r.open() || waits[r.address.name] || r.start.Task != nil {
				continue
			}
			if slices.ContainsFunc(s.needs(r), func(a model.Address) bool { return waits[a] }) {
				note(r.address.name)
			}
		}

		for _, n := range s.ledger.holdingOrder {
			if waits[n.row.Holder.Address] {
				note(n.address.name)
			}
		}
	}

	return waits
}

// needs returns the addresses that the current block of a run depends on.
func (s *Sim) needs(r *run) (list []model.Address) {
	m := s.replay(r)
	if m.end != nil || m.pc == cleanupBlock {
		return nil
	}

	b := &m.p.blocks[m.pc]
	switch b.kind { //nolint:exhaustive // the other blocks wait for no execution
	case blockChild:
		list = append(list, b.childOf(m.start, m.pc))
	case blockWatch, blockSend, blockCall:
		list = append(list, b.target)
	case blockOperate, blockTell:
		list = append(list, b.targets[0])
	case blockSection:
		list = append(append(list, b.locks...), b.targets[:]...)
	}

	for i := range r.events { // a copy waits for the child of its source
		if block, _, ok := parseAsk(r.events[i].ID); ok && block == m.pc && !r.events[i].Target.IsZero() {
			list = append(list, r.events[i].Target)
		}
	}

	return list
}

// dumpIf adds the state of all lanes to the trace, if there is one.
func (s *Sim) dumpIf() {
	if s.opts.Trace {
		s.dump()
	}
}

// poisonous reports whether rows of an address are refused.
func (d *disk) poisonous(a model.Address) bool { return d.poison[a] || d.lasting[a] }
