package workload

import (
	"context"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/cluster"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// scheduleChaos decides which faults happen, and when. It does not decide which single calls of the
// store fail: the disk and the nodes draw that at each call.
func (s *Workload) scheduleChaos() {
	at := func(n int, do func()) {
		for range n {
			s.At(s.Between(0, s.Plan.FaultsUntil*9/10), nil, do)
		}
	}

	at(s.Plan.Crashes, func() {
		if p := s.Procs[s.Pick(3)]; p != nil {
			p.Crash()
			s.restart(p.Slot)
		}
	})

	at(s.Plan.Pauses, func() {
		if p := s.Procs[s.Pick(3)]; p != nil {
			p.Pause(kernel.OneOf(s, s.Between(10, 100)*kernel.Millisecond, s.Between(s.Plan.Ttl.Microseconds(), 5*s.Plan.Ttl.Microseconds()/2)))
		}
	})

	at(s.Plan.Leaves, func() {
		if p := s.Procs[s.Pick(3)]; p != nil && !p.Paused {
			s.Hurt(scenario.FaultLeave)
			p.Leave()
			s.watchLeave(p)
		}
	})

	at(s.Plan.Aways, func() {
		s.Disk.Away = s.Now + s.Between(10, 400)*kernel.Millisecond
		if s.Tracing {
			s.Logf("store    is AWAY for %d ms", (s.Disk.Away-s.Now)/1000)
		}
		s.Hurt(scenario.FaultStoreAway)
	})

	at(s.Plan.Poisons, func() { s.sicken(s.Disk.Poison, "poison") })
	at(s.Plan.Corrupts, func() { s.sicken(s.Disk.Corrupt, "corrupt") })
	at(s.Plan.Moves, func() {
		if p := s.Procs[s.Pick(3)]; p != nil {
			s.Hurt(scenario.FaultWorkerMoves)
			s.At(s.Now, p.Process, func() {
				if len(p.Workers) > 0 && s.Chance(0.7) {
					p.Workers[s.Pick(len(p.Workers))].Leave()
				}
				if s.Chance(0.7) {
					p.Join(s.Chance(0.2), "")
				}
			})
		}
	})

	at(s.Plan.Sweeps, func() { s.sweep() })
	at(s.Plan.Deploys, s.deploy)
	at(s.Plan.Hires, func() {
		if p := s.Procs[s.Pick(3)]; p != nil {
			s.At(s.Now, p.Process, func() {
				if len(p.Hands) > 0 && s.Chance(0.6) {
					if h := p.Hands[s.Pick(len(p.Hands))]; !h.Ghost {
						h.Leave()
					}
				}
				if s.Chance(0.7) {
					p.Hire()
				}
			})
		}
	})

	at(s.Plan.EntityMoves, func() {
		if p := s.Procs[s.Pick(3)]; p != nil {
			s.At(s.Now, p.Process, func() {
				if len(p.Tellers) > 0 && s.Chance(0.6) {
					p.Tellers[s.Pick(len(p.Tellers))].Leave()
				}
				if s.Chance(0.7) {
					p.Engage()
				}
			})
		}
	})

	at(s.Plan.Drains, s.drain)
	s.Disk.PoisonMarks = s.Chance(0.3)
	s.scheduleHardships(at)
}

// restart boots a process in a slot after a while.
func (s *Workload) restart(slot int) {
	s.After(kernel.OneOf(s, s.Between(0, 50)*kernel.Millisecond, s.Between(100, 2000)*kernel.Millisecond), nil, func() { s.Boot(slot) })
}

// watchLeave waits until a process has left, and restarts it.
func (s *Workload) watchLeave(p *cluster.Proc) {
	s.After(20*kernel.Millisecond, nil, func() {
		switch {
		case p.Left:
			s.restart(p.Slot)
		case !p.Dead:
			s.watchLeave(p)
		}
	})
}

// sicken makes the rows of an address unwritable or unreadable for a while.
func (s *Workload) sicken(what map[model.Address]bool, name string) {
	a := s.SickAddress()
	s.Ledger.Address(a).Sick = true
	what[a] = true
	if s.Tracing {
		s.Logf("store    %s: %s", name, a)
	}
	s.After(s.Between(50, 1500)*kernel.Millisecond, nil, func() {
		delete(what, a)
		if s.Tracing {
			s.Logf("store    %s ends: %s", name, a)
		}
	})
}

// sweep removes messages that were consumed.
func (s *Workload) sweep() {
	var mine []model.ShardID
	for i := range s.Plan.Shards {
		mine = append(mine, model.ShardID(i))
	}
	n, err := s.Disk.Mem.Sweep(context.Background(), store.SweepRequest{Shards: mine, Limit: 1 + s.Pick(20)})
	if err != nil {
		s.Fail("sweep: %v", err)
	}
	if n > 0 {
		s.Did(scenario.OpSwept)
	}
}

// heal ends all faults except lasting poison and the late upgrade, which neighboursEnd ends.
func (s *Workload) heal() {
	s.Healed = true
	if s.Tracing {
		s.Logf("HEAL")
	}
	s.Disk.Away = 0
	clear(s.Disk.Poison)
	clear(s.Disk.Corrupt)
	if !s.Plan.LateUpgrade {
		s.upgradeAll()
	}

	for _, p := range s.Procs {
		if p == nil {
			continue
		}
		p.Resume()
	}

	s.tend()
}

// tend runs again and again after the faults have ended. It restarts missing processes and workers,
// resumes paused runs and queues, and sends open runs the signals and promises that they wait for.
func (s *Workload) tend() {
	if s.Leaving {
		return
	}
	blocked := false
	for _, r := range s.Ledger.Order {
		blocked = blocked || (r.Open() && r.Blocked != nil && r.Blocked.Code == model.WaitStuck)
	}

	for slot, p := range s.Procs {
		if p == nil {
			s.Boot(slot)
			p = s.Procs[slot]
		}
		if p.Tended == 0 || (blocked && s.Now > p.Tended+kernel.Second) {
			p.Tended = s.Now
			s.At(s.Now, p.Process, p.Mend)
		}
	}

	s.provide()
	s.openGates()
	s.After(50*kernel.Millisecond, nil, s.tend)
}

// provide resumes paused runs, and sends open runs the signals and promises that they wait for. It
// cancels a run that has no room for the signal that it waits for.
func (s *Workload) provide() {
	for _, r := range s.Ledger.Order {
		if !r.Open() || s.Disk.Lasting[r.Address.Name] {
			continue
		}

		if r.Paused && (r.Resumed == nil || r.Resumed.Done) {
			o := s.helper.op(model.Message{Kind: model.MessageResume, To: r.Address.Name})
			r.Resumed = o.Op
			o.perform(func() {})
		}

		if r.Start.Task != nil {
			continue
		}
		m := s.Replay(r)
		kind, name := m.Wants()
		if kind == 0 {
			continue
		}

		u := s.helper
		message := settle(r.Address.Name, name, u)
		switch {
		case r.Provided == nil || (r.Provided.Done && r.Provided.Refused == nil):
			if kind == scenario.BlockSignal {
				message = u.signalTo(r.Address.Name, name)
			}
		case r.Provided.Done:
			// The run is full of signals with other names, so it has refused the signal that it
			// waits for.
			message = model.Message{Kind: model.MessageCancel, To: r.Address.Name, Failure: &model.Failure{Message: "cannot take the signal that it waits for"}}
		default:
			continue
		}

		o := u.op(message)
		r.Provided = o.Op
		o.perform(func() {})
	}
}
