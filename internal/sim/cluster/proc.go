package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/disk"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/sim/worker"
	"github.com/perdure/perdure/internal/store"
)

// Mend gives a process workers that can run all programs.
func (p *Proc) Mend() {
	for _, w := range p.Workers {
		w.Bad = false
	}
	// with lending, only the process in slot 0 gets a task worker, and the others borrow its slots
	if p.Cluster.Has(scenario.Tasks) && (!p.Cluster.Has(scenario.Lending) || p.Slot == 0) {
		p.Hire()
	}
	if p.Cluster.Has(scenario.Tasks) {
		p.wakeHands()
	}
	if p.Cluster.Has(scenario.Entities) {
		p.Engage()
	}

	if !p.Cluster.Plan.Pins {
		p.Join(false, "")
		return
	}

	for _, v := range scenario.Versions {
		p.Join(false, v)
	}
}

// betrayed reports whether other nodes declared this node dead, while it lived, less than a lease
// ago. Such a node may still trust the lease that it has lost.
func (inc *incarnation) betrayed() bool {
	s := inc.p.Cluster
	return s.Now < s.Ledger.Nodes[inc.self.ID].Betrayed
}

// living reports whether the process of a node is alive.
func (s *Cluster) living(id model.NodeID) bool {
	inc := s.lives[id]
	return inc != nil && !inc.p.Dead && !inc.ended
}

// Proc is a process: workers and, one after the other, incarnations of a node.
type Proc struct {
	*kernel.Process

	Cluster *Cluster
	Slot    int
	pid     int
	born    int64
	rate    float64 // the speed of its clock, relative to the clock of the store

	// foreign has the shards that the process took from another process, until it has received the
	// answer of the store.
	foreign map[model.ShardID]bool
	// orphans has the foreign shards whose last owner has died.
	orphans map[model.ShardID]bool
	// forgets has answers by drawn request id. The process removes an answer when the client sends
	// a receipt.
	forgets map[string]store.RequestKey

	drained   bool  // an operator has drained the node
	leaving   bool  // it is shutting down cleanly
	Left      bool  // it has shut down
	Newer     bool  // it is of the newer build
	Slandered int64 // until this time the other nodes believe that the process has ended
	Tended    int64 // when the process last got good workers, after the faults have ended

	clock           *storeclock.Clock
	last            model.Time
	Timed           bool  // it has seen the clock of the store
	asleep, noticed int64 // how long its machine was suspended, and how much of that it knows
	drawn           model.Time

	Inc        *incarnation
	Workers    []*worker.Worker
	Hands      []*hand
	Tellers    []*worker.Teller
	nextHand   queue.WorkerID
	nextID     lane.WorkerID
	nextTeller lane.WorkerID // below zero
	dead       []*worker.Teller
	clerk      clerk
	calls      []*call

	Flow    *flow.Flow       // nil if there are no settings
	parting *incarnation     // an incarnation that is ending
	told    []rule.BreakerID // breakers that the process has written and its gate has not read yet
}

// visitor makes requests at moments that are interesting for a node. The users of the workload
// implement it.
type visitor interface {
	// Ask reads the state of an address through a process, immediately.
	Ask(p *Proc, a model.Address)
	// Knock sends a message through a process, a moment later.
	Knock(p *Proc, m model.Message)
	// Repeat sends a late copy of a request through a process, a moment later. The request was
	// served under an id of the era of the process, at one of the addresses.
	Repeat(p *Proc, at func(model.Address) bool)
}

// Boot starts a process in a slot.
func (s *Cluster) Boot(slot int) {
	if s.Procs[slot] != nil || s.Leaving {
		return
	}

	if s.Now < s.Jumping { // a process that starts accepts the clock of the store as it is
		s.At(s.Jumping+1, nil, func() { s.Boot(slot) })
		return
	}

	s.pids++
	p := &Proc{Cluster: s, Slot: slot, pid: s.pids, born: s.Now, rate: 1, foreign: map[model.ShardID]bool{}, orphans: map[model.ShardID]bool{}, forgets: map[string]store.RequestKey{}, Newer: s.Upgraded || !s.Plan.Upgrades}
	p.Process = s.NewProcess(fmt.Sprintf("n%d.%d", slot, p.pid))
	if s.Plan.Drift > 0 {
		p.rate += s.Plan.Drift * (2*float64(s.Random()>>11)/(1<<53) - 1)
	}
	p.resetClock()
	p.clerk.p = p
	s.Procs[slot] = p
	if s.Tracing {
		s.Logf("%s starts, clock %+.3f%%", p.Name(), (p.rate-1)*100)
	}
	for range 1 + s.Pick(2) {
		p.Join(!s.Healed && !s.Opts.Calm && s.Chance(0.2), "")
	}

	if s.Has(scenario.Tasks) {
		for range s.Pick(3) {
			p.Hire()
		}
	}

	if s.Has(scenario.Entities) {
		for range s.Pick(3) {
			p.Engage()
		}
	}

	if s.Has(scenario.Gates) {
		p.Flow = newFlow(p)
		p.readSettings()
		return
	}

	p.register()
}

// info returns what the process registers about itself.
func (p *Proc) info() store.NodeInfo {
	id := p.Cluster.NewRun()
	for i := range 8 { // rendezvous hashing needs ids that differ in more than a counter
		id[8+i] = byte(p.Cluster.Random())
	}
	info := store.NodeInfo{ID: model.NodeID(id), Host: "host", PID: p.pid, Version: "sim", Weight: cluster.DefaultWeight, Drained: p.drained}
	if p.Cluster.Has(scenario.ShardGroups) {
		info.Groups = p.Cluster.Plan.Serves[p.Slot]
	}
	if p.Cluster.Has(scenario.Drains) {
		info.Weight = kernel.OneOf(p.Cluster, 1, 50, cluster.DefaultWeight, cluster.DefaultWeight, 400)
	}
	return info
}

// gone reports whether this process believes that the process of another node on the same host has
// ended. The belief is wrong while that process is slandered.
func (p *Proc) gone(n store.NodeInfo) bool {
	if n.PID == p.pid {
		return false
	}
	for _, o := range p.Cluster.Procs {
		if o != nil && o.pid == n.PID {
			return !p.Cluster.Healed && p.Cluster.Now < o.Slandered
		}
	}
	return p.Cluster.Plan.SameHost
}

// ttl returns the length of the leases of the process.
func (p *Proc) ttl() time.Duration { return p.Cluster.Plan.Ttls[p.Slot] }

// register starts an incarnation.
func (p *Proc) register() {
	s := p.Cluster
	p.notice()
	info, sent := p.info(), p.mono()
	var reg store.Registration

	again := func(err error) {
		if s.Tracing {
			s.Logf("%s cannot register: %v", p.Name(), err)
		}
		s.After(s.Between(5, 50)*kernel.Millisecond, p.Process, p.register)
	}

	s.Disk.Call(&disk.Request{
		Process: p.Process, Name: "register", Fate: s.Disk.Draw(scenario.FaultRegisterLost, scenario.FaultRegisterLost, true),
		Exec: func(done func()) {
			var err error
			if reg, err = s.Disk.Mem.Register(context.Background(), info, s.Plan.Lanes, p.ttl()); err != nil {
				s.Fail("register: %v", err)
			}
			m := &oracle.Member{Alive: true, Epoch: reg.Epoch, Ttl: p.ttl(), Batch: make([]int64, s.Plan.Lanes), Fence: make([]int64, s.Plan.Lanes)}
			for i := range m.Fence {
				m.Fence[i] = reg.Epoch
			}
			s.Ledger.Nodes[info.ID] = m
			done()
		},
		OK: func() {
			p.notice()
			p.begin(info, reg, sent, p.reads(sent, reg.Now))
		},
		Bad: again,
	})
}

// Crash ends the process immediately. Calls of the process that are in flight may or may not
// arrive.
func (p *Proc) Crash() {
	s := p.Cluster
	p.Dead, p.Cut = true, s.Chance(0.4)
	s.Procs[p.Slot] = nil
	s.Hurt(scenario.FaultCrash)
	if s.Tracing {
		s.Logf("%s CRASHES", p.Name())
	}
	for _, c := range p.calls {
		c.abort()
	}
	p.clerk.crash()
	p.disperse()
}

// Kill implements worker.host. A call of an entity ends the process, and a new process starts in
// its slot.
func (p *Proc) Kill(a model.Address, deed uint64) {
	s := p.Cluster
	s.Ledger.CheckKill(a, deed)
	p.Crash()
	wait := kernel.OneOf(s, s.Between(0, 50)*kernel.Millisecond, s.Between(100, 2000)*kernel.Millisecond)
	s.After(wait, nil, func() { s.Boot(p.Slot) })
}

// Pause stops the process for a while. The process does not notice.
func (p *Proc) Pause(d int64) {
	s := p.Cluster
	if p.Paused {
		return
	}
	p.Process.Pause()
	s.Hurt(scenario.FaultPause)
	if d > p.ttl().Microseconds() {
		s.Hurt(scenario.FaultPausePastLease)
	}
	if s.Tracing {
		s.Logf("%s is PAUSED for %d ms", p.Name(), d/1000)
	}
	s.After(d, nil, p.Resume)
}

// Leave shuts the process down cleanly: it gives up its shards and unregisters.
func (p *Proc) Leave() {
	if p.leaving {
		return
	}
	p.leaving = true
	if p.Cluster.Tracing {
		p.Cluster.Logf("%s leaves", p.Name())
	}
	if p.Inc != nil {
		p.Inc.drain()
	}
}

// end runs after the node of the process has shut down cleanly. It lets the flow (see flow.go)
// store what the flow still has in memory, and then removes the process.
func (p *Proc) end() {
	p.parting = nil
	if p.Flow == nil {
		p.exit()
		return
	}
	p.Spawn(func() {
		p.Flow.End()
		p.exit()
	})
}

// exit removes the process after an orderly end.
func (p *Proc) exit() {
	s := p.Cluster
	p.Dead, p.Left = true, true
	if s.Procs[p.Slot] == p {
		s.Procs[p.Slot] = nil
	}
	for _, c := range p.calls {
		c.abort()
	}
	p.clerk.crash()
	p.disperse()
	if s.Tracing {
		s.Logf("%s has left", p.Name())
	}
}
