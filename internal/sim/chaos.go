package sim

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// scheduleChaos decides which faults happen besides failing store calls, and when.
func (s *Sim) scheduleChaos() {
	at := func(n int, do func()) {
		for range n {
			s.at(s.between(0, s.plan.faultsUntil*9/10), nil, do)
		}
	}

	at(s.plan.crashes, func() {
		if p := s.procs[s.pick(3)]; p != nil {
			p.crash()
			s.restart(p.slot)
		}
	})

	at(s.plan.pauses, func() {
		if p := s.procs[s.pick(3)]; p != nil {
			p.pause(oneOf(s, s.between(10, 100)*millisecond, s.between(s.plan.ttl.Microseconds(), 5*s.plan.ttl.Microseconds()/2)))
		}
	})

	at(s.plan.leaves, func() {
		if p := s.procs[s.pick(3)]; p != nil && !p.paused {
			s.hurt(faultLeave)
			p.leave()
			s.watchLeave(p)
		}
	})

	at(s.plan.aways, func() {
		s.disk.away = s.now + s.between(10, 400)*millisecond
		if s.opts.Trace {
			s.logf("store    is AWAY for %d ms", (s.disk.away-s.now)/1000)
		}
		s.hurt(faultStoreAway)
	})

	at(s.plan.poisons, func() { s.sicken(s.disk.poison, "poison") })
	at(s.plan.corrupts, func() { s.sicken(s.disk.corrupt, "corrupt") })
	at(s.plan.moves, func() {
		if p := s.procs[s.pick(3)]; p != nil {
			s.hurt(faultWorkerMoves)
			s.at(s.now, p, func() {
				if len(p.workers) > 0 && s.chance(0.7) {
					p.workers[s.pick(len(p.workers))].leave()
				}
				if s.chance(0.7) {
					p.join(s.chance(0.2), "")
				}
			})
		}
	})

	at(s.plan.sweeps, func() { s.sweep() })
	at(s.plan.deploys, s.deploy)
	at(s.plan.hires, func() {
		if p := s.procs[s.pick(3)]; p != nil {
			s.at(s.now, p, func() {
				if len(p.hands) > 0 && s.chance(0.6) {
					if h := p.hands[s.pick(len(p.hands))]; !h.ghost {
						h.leave()
					}
				}
				if s.chance(0.7) {
					p.hire()
				}
			})
		}
	})

	at(s.plan.entityMoves, func() {
		if p := s.procs[s.pick(3)]; p != nil {
			s.at(s.now, p, func() {
				if len(p.tellers) > 0 && s.chance(0.6) {
					p.tellers[s.pick(len(p.tellers))].leave()
				}
				if s.chance(0.7) {
					p.engage()
				}
			})
		}
	})

	s.disk.poisonMarks = s.chance(0.3)
	s.scheduleHardships(at)
}

// restart boots a process in a slot after a while.
func (s *Sim) restart(slot int) {
	s.after(oneOf(s, s.between(0, 50)*millisecond, s.between(100, 2000)*millisecond), nil, func() { s.boot(slot) })
}

// watchLeave restarts a process that has left.
func (s *Sim) watchLeave(p *proc) {
	s.after(20*millisecond, nil, func() {
		switch {
		case p.left:
			s.restart(p.slot)
		case !p.dead:
			s.watchLeave(p)
		}
	})
}

// sicken makes the rows of an address unwritable or unreadable for a while.
func (s *Sim) sicken(what map[model.Address]bool, name string) {
	a := s.sickAddress()
	s.ledger.address(a).sick = true
	what[a] = true
	if s.opts.Trace {
		s.logf("store    %s: %s", name, a)
	}
	s.after(s.between(50, 1500)*millisecond, nil, func() {
		delete(what, a)
		if s.opts.Trace {
			s.logf("store    no more %s: %s", name, a)
		}
	})
}

// sickAddress draws an address whose rows are to be unwritable or unreadable.
func (s *Sim) sickAddress() model.Address {
	a := s.address()
	if s.chance(0.2) {
		a = s.childAddress()
	}
	if s.tasks && s.chance(0.4) {
		a = s.taskAddress(s.pick(len(taskKeys)))
	}
	if s.entities && s.chance(0.4) {
		a = accountAddress(s.pick(s.plan.accounts))
	}
	return a
}

// sweep removes messages that were consumed.
func (s *Sim) sweep() {
	var mine []model.ShardID
	for i := range s.plan.shards {
		mine = append(mine, model.ShardID(i))
	}
	n, err := s.disk.mem.Sweep(background, store.SweepRequest{Shards: mine, Limit: 1 + s.pick(20)})
	if err != nil {
		s.fail("sweep: %v", err)
	}
	if n > 0 {
		s.did(opSwept)
	}
}

// sweepAll removes everything that may be removed.
func (s *Sim) sweepAll() {
	for i := range s.plan.shards {
		if _, err := s.disk.mem.Sweep(background, store.SweepRequest{Shards: []model.ShardID{model.ShardID(i)}, Limit: 1 << 20}); err != nil {
			s.fail("sweep: %v", err)
		}
	}
}

// heal ends all faults.
func (s *Sim) heal() {
	s.healed = true
	if s.opts.Trace {
		s.logf("HEAL")
	}
	s.disk.away = 0
	clear(s.disk.poison)
	clear(s.disk.corrupt)
	if !s.plan.lateUpgrade {
		s.upgradeAll()
	}

	for _, p := range s.procs {
		if p == nil {
			continue
		}
		p.resume()
	}

	s.tend()
}

// tend keeps the cluster complete after the faults have ended, and sends open runs what they wait
// for.
func (s *Sim) tend() {
	if s.leaving {
		return
	}
	blocked := false
	for _, r := range s.ledger.order {
		blocked = blocked || (r.open() && r.blocked != nil && r.blocked.Code == model.WaitStuck)
	}

	for slot, p := range s.procs {
		if p == nil {
			s.boot(slot)
			p = s.procs[slot]
		}
		if p.tended == 0 || (blocked && s.now > p.tended+second) {
			p.tended = s.now
			s.at(s.now, p, p.mend)
		}
	}

	s.provide()
	s.openGates()
	s.after(50*millisecond, nil, s.tend)
}

// mend gives a process workers that can run all programs.
func (p *proc) mend() {
	for _, w := range p.workers {
		w.bad = false
	}
	if p.s.tasks && (!p.s.lends || p.slot == 0) { // otherwise the other nodes lend it slots
		p.hire()
	}
	if p.s.tasks {
		p.wakeHands()
	}
	if p.s.entities {
		p.engage()
	}

	if !p.s.plan.pins {
		p.join(false, "")
		return
	}

	for _, v := range versions {
		p.join(false, v)
	}
}

// provide sends open runs the signals and promises that they wait for.
func (s *Sim) provide() {
	for _, r := range s.ledger.order {
		if !r.open() || s.disk.lasting[r.address.name] {
			continue
		}

		if r.paused && (r.resumed == nil || r.resumed.done) {
			r.resumed = s.helper.op(model.Message{Kind: model.MessageResume, To: r.address.name})
			r.resumed.perform(func() {})
		}

		if r.start.Task != nil {
			continue
		}
		m := s.replay(r)
		kind, name := m.wants()
		if kind == 0 {
			continue
		}

		u := s.helper
		message := settle(r.address.name, name, u)
		switch {
		case r.provided == nil || (r.provided.done && r.provided.refused == nil):
			if kind == blockSignal {
				message = u.signalTo(r.address.name, name)
			}
		case r.provided.done:
			// The run holds as many signals of other names as it may.
			message = model.Message{Kind: model.MessageCancel, To: r.address.name, Failure: &model.Failure{Message: "cannot take the signal that it waits for"}}
		default:
			continue
		}

		r.provided = u.op(message)
		r.provided.perform(func() {})
	}
}

// replay runs the program of a run over its history.
func (s *Sim) replay(r *run) machine {
	m := s.newMachine(&r.start)
	for i := range r.events {
		m.feed(&r.events[i])
	}
	if m.broken != nil {
		s.fail("I13: history of %s (%s): %v", short(r.id), r.address.name.Key, m.broken)
	}
	return m
}
