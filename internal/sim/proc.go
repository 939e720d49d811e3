package sim

import (
	"fmt"

	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// proc is a process: workers and, one after the other, incarnations of a node.
type proc struct {
	s     *Sim
	slot  int
	pid   int
	label string
	born  int64
	rate  float64 // of its clock against the store's

	dead      bool
	cut       bool // its calls in flight do not arrive
	paused    bool
	deferred  []event // its events during a pause
	leaving   bool    // it is shutting down in good order
	left      bool    // it has shut down
	newer     bool    // it is of the newer build
	slandered int64   // until then the other nodes believe that it has ended
	tended    int64   // when it last got good workers, after the faults have ended

	clock           *storeclock.Clock
	last            model.Time
	timed           bool  // it has seen the clock of the store
	asleep, noticed int64 // how long its machine was suspended, and how much of that it knows
	drawn           model.Time

	inc        *incarnation
	workers    []*worker
	hands      []*hand
	tellers    []*teller
	nextHand   queue.WorkerID
	nextID     lane.WorkerID
	nextTeller lane.WorkerID // below zero
	clerk      clerk
	calls      []*call

	flow    *flow.Flow       // nil if there are no settings
	parting *incarnation     // an incarnation that is ending
	told    []rule.BreakerID // breakers that it has written and its gate has not read yet
	threads int              // that have not ended
	line    []turn           // callers that wait for their turn
}

// boot starts a process in a slot.
func (s *Sim) boot(slot int) {
	if s.procs[slot] != nil || s.leaving {
		return
	}

	if s.now < s.jumping { // a process that starts accepts the clock of the store as it is
		s.at(s.jumping+1, nil, func() { s.boot(slot) })
		return
	}

	s.pids++
	p := &proc{s: s, slot: slot, pid: s.pids, born: s.now, rate: 1, newer: s.upgraded || !s.plan.upgrades}
	if s.plan.drift > 0 {
		p.rate += s.plan.drift * (2*float64(s.random()>>11)/(1<<53) - 1)
	}
	p.resetClock()
	p.clerk.p, p.label = p, fmt.Sprintf("n%d.%d", slot, p.pid)
	s.procs[slot] = p
	if s.opts.Trace {
		s.logf("%s starts, clock %+.3f%%", p.name(), (p.rate-1)*100)
	}
	for range 1 + s.pick(2) {
		p.join(!s.healed && !s.opts.Calm && s.chance(0.2), "")
	}

	if s.tasks {
		for range s.pick(3) {
			p.hire()
		}
	}

	if s.entities {
		for range s.pick(3) {
			p.engage()
		}
	}

	if s.gates {
		p.flow = newFlow(p)
		p.readSettings()
		return
	}

	p.register()
}

func (p *proc) name() string { return p.label }

// info returns what the process registers about itself.
func (p *proc) info() store.NodeInfo {
	id := p.s.newRun()
	for i := range 8 { // rendezvous hashing needs ids that differ in more than a counter
		id[8+i] = byte(p.s.random())
	}
	return store.NodeInfo{ID: model.NodeID(id), Host: "host", PID: p.pid, Version: "sim"}
}

// gone proves that a process on this host has ended.
func (p *proc) gone(n store.NodeInfo) bool {
	if n.PID == p.pid {
		return false
	}
	for _, o := range p.s.procs {
		if o != nil && o.pid == n.PID {
			return !p.s.healed && p.s.now < o.slandered
		}
	}
	return p.s.plan.sameHost
}

// register starts an incarnation.
func (p *proc) register() {
	s := p.s
	p.notice()
	info, sent := p.info(), p.mono()
	var reg store.Registration

	again := func(err error) {
		if s.opts.Trace {
			s.logf("%s cannot register: %v", p.name(), err)
		}
		s.after(s.between(5, 50)*millisecond, p, p.register)
	}

	s.disk.call(&request{
		p: p, name: "register", fate: s.disk.draw(faultRegisterLost, faultRegisterLost, true),
		exec: func(done func()) {
			var err error
			if reg, err = s.disk.mem.Register(background, info, s.plan.lanes, s.plan.ttl); err != nil {
				s.fail("register: %v", err)
			}
			m := &member{alive: true, epoch: reg.Epoch, batch: make([]int64, s.plan.lanes), fence: make([]int64, s.plan.lanes)}
			for i := range m.fence {
				m.fence[i] = reg.Epoch
			}
			s.ledger.nodes[info.ID] = m
			done()
		},
		ok: func() {
			p.notice()
			p.begin(info, reg, sent, p.reads(sent, reg.Now))
		},
		bad: again,
	})
}

// crash ends the process at once. Its calls in flight may or may not arrive.
func (p *proc) crash() {
	s := p.s
	p.dead, p.cut = true, s.chance(0.4)
	s.procs[p.slot] = nil
	s.hurt(faultCrash)
	if s.opts.Trace {
		s.logf("%s CRASHES", p.name())
	}
	for _, c := range p.calls {
		c.lost()
	}
	p.clerk.crash()
}

// pause stops the process for a while. The process does not notice.
func (p *proc) pause(d int64) {
	s := p.s
	if p.paused {
		return
	}
	p.paused = true
	s.hurt(faultPause)
	if d > s.plan.ttl.Microseconds() {
		s.hurt(faultPausePastLease)
	}
	if s.opts.Trace {
		s.logf("%s is PAUSED for %d ms", p.name(), d/1000)
	}
	s.after(d, nil, p.resume)
}

// resume lets the process continue: it now handles every event that arrived during the pause.
func (p *proc) resume() {
	if p.dead || !p.paused {
		return
	}
	p.paused = false
	if p.s.opts.Trace {
		p.s.logf("%s goes on", p.name())
	}
	for _, e := range p.deferred {
		p.s.at(p.s.now, p, e.do)
	}
	p.deferred = nil
}

// leave shuts the process down in good order: it gives up its shards and unregisters.
func (p *proc) leave() {
	if p.leaving {
		return
	}
	p.leaving = true
	if p.s.opts.Trace {
		p.s.logf("%s leaves", p.name())
	}
	if p.inc != nil {
		p.inc.drain()
	}
}

// end stores what is left after its node has ended in good order, and exits.
func (p *proc) end() {
	p.parting = nil
	if p.flow == nil {
		p.exit()
		return
	}
	p.spawn(func() {
		p.flow.End()
		p.exit()
	})
}

// exit removes the process after an orderly end.
func (p *proc) exit() {
	s := p.s
	p.dead, p.left = true, true
	if s.procs[p.slot] == p {
		s.procs[p.slot] = nil
	}
	for _, c := range p.calls {
		c.lost()
	}
	p.clerk.crash()
	if s.opts.Trace {
		s.logf("%s has left", p.name())
	}
}
