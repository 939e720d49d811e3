package workload

import (
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// flood lets a user send many large signals to one address from one process, without waiting for
// the answers.
func (s *Workload) flood() {
	p := s.Procs[s.Pick(3)]
	if p == nil || s.Healed {
		return
	}
	u, to := s.helper, s.Address()
	s.Hurt(scenario.FaultFlood)
	for range 20 + s.Pick(30) {
		m := u.signalTo(to, scenario.SignalNames[0])
		m.Input = scenario.Heavy(m.Input, 400+s.Pick(400))
		o := u.op(m)
		o.Message.RequestID, o.pinned = "", p
		s.After(s.Between(0, 2*kernel.Millisecond), nil, func() { o.perform(func() {}) })
	}
}

// In some simulations one node declares another, live node dead. It believes that it has proof that
// the process of the live node has ended, and fences that node although its lease is valid. That
// must not damage stored data: the store refuses everything that the fenced node still sends, and
// that node restarts. Until the fenced node notices this, its answers from memory may be out of
// date, because it trusts its lease.

// lie makes the other nodes believe for a while that a process has ended.
func (s *Workload) lie() {
	p := s.Procs[s.Pick(3)]
	if p == nil || s.Healed {
		return
	}
	p.Slandered = s.Now + s.Between(20, 600)*kernel.Millisecond
	if s.Tracing {
		s.Logf("%s is believed to be DEAD for %d ms", p.Name(), (p.Slandered-s.Now)/1000)
	}
}

// scheduleHardships schedules the hardships.
func (s *Workload) scheduleHardships(at func(n int, do func())) {
	at(s.Plan.Lasting, s.sickenForGood)
	at(s.Plan.Jumps, s.jump)
	if s.Has(scenario.BadRows) {
		at(s.Plan.NewEvents, s.NewKind)
		at(1, s.upgrade)
	}
	at(s.Plan.Suspends, func() {
		if p := s.Procs[s.Pick(3)]; p != nil {
			p.Suspend(s.Between(20, 4*s.Plan.Ttl.Milliseconds()) * kernel.Millisecond)
		}
	})
	at(s.Plan.Floods, s.flood)
	at(s.Plan.Lies, s.lie)
}

// upgrade ends the processes of the old build one after the other. Processes that start from now on
// are of the newer build.
func (s *Workload) upgrade() {
	if !s.Plan.Upgrades || s.Plan.LateUpgrade || s.Upgraded {
		return
	}
	s.Upgraded = true

	for i, p := range s.Procs {
		if p != nil && !p.Newer {
			s.After(int64(i)*s.Between(50, 300)*kernel.Millisecond, nil, func() {
				if p.Dead || s.Healed {
					return
				}
				s.Hurt(scenario.FaultUpgrade)
				p.Crash()
				s.restart(p.Slot)
			})
		}
	}
}

// upgradeAll upgrades all processes to the newer build.
func (s *Workload) upgradeAll() {
	s.Upgraded = true
	for _, p := range s.Procs {
		if p != nil {
			p.Newer = true
		}
	}
}
