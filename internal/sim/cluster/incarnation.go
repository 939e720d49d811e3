package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/disk"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// incarnation is one life of a node, from its registration to the loss of its lease or its orderly
// end.
type incarnation struct {
	p        *Proc
	self     store.NodeInfo
	epoch    int64
	member   *cluster.Membership
	Shells   []*shell
	Owner    []bool // by shard: requests are routed here
	begun    bool   // it has read the settings
	draining bool
	ended    bool
	lost     bool // it has lost its lease or its fence
	label    string
	board    *board                       // nil when there are no tasks
	purse    *purse                       // nil if nodes do not lend each other slots
	alive    []model.NodeID               // the nodes that have a lease, as of the last renewal
	owners   []store.ShardOwner           // the owners of the shards, as of the last renewal
	links    map[*incarnation]model.RunID // connections to other nodes
	tenure   int                          // counts how often the node has acquired shards
	ticks    int                          // number of the last tick that was set
	tickAt   int64                        // when that tick is due
	swept    store.DeadPlace
	looked   int64         // when the node first saw the other nodes
	off      time.Duration // how wrong the store's clock seemed to be at the first reading
	keeps    bool          // the lanes of the node must not delete rows because of their age

	reunion []model.Time // by shard: until when its runs wait for workers of the last owner

	// participant takes part in the shared limits for this node; nil if there are no settings
	participant *flow.Participant
}

func (inc *incarnation) name() string { return inc.label }

// begin starts the machines of an incarnation.
func (p *Proc) begin(info store.NodeInfo, reg store.Registration, sent time.Duration, first storeclock.Verdict) {
	s := p.Cluster
	inc := &incarnation{p: p, self: info, epoch: reg.Epoch, Owner: make([]bool, s.Plan.Shards), reunion: make([]model.Time, s.Plan.Shards)}
	inc.label = fmt.Sprintf("%s@%d", p.Label, inc.epoch)
	inc.member = cluster.New(cluster.Config{
		Self: info, TTL: p.ttl(), Gone: p.gone,
	}, reg.Epoch, sent)
	if first.Change == storeclock.Adopted { // as in the engine
		inc.off = first.By.Abs()
		inc.member.Distrust(first.By)
	}
	p.Inc = inc
	known := &oracle.Life{Label: inc.label, Now: p.Now}
	if m := s.Ledger.Nodes[info.ID]; m != nil {
		m.Life, s.lives[info.ID] = known, inc
	}
	if s.Tracing {
		s.Logf("%s registered", inc.name())
	}

	if s.Has(scenario.Tasks) {
		inc.board = newBoard(inc)
		if k := inc.board.keeper; k != nil {
			known.Gate = k.Admissions
		}
		if s.Has(scenario.Lending) {
			inc.purse = newPurse(inc)
			s.nodeIDs[info.ID.String()] = info.ID
		}
	}

	for i := range s.Plan.Lanes {
		cfg := s.Plan.Lane
		cfg.Ref = store.LaneRef{Node: info.ID, Lane: i, Epoch: reg.Epoch}
		cfg.Layout, cfg.Lanes, cfg.NewRun = s.Plan.Layout, s.Plan.Lanes, p.newRun
		if inc.board != nil {
			cfg.Board = inc.board
		}
		sh := &shell{s: s, inc: inc, index: i, Lane: lane.New(cfg), LaneLog: &oracle.LaneLog{}}
		known.Lanes = append(known.Lanes, sh.LaneLog)
		sh.roundFunc, sh.wakeFunc = sh.round, sh.wake
		inc.Shells = append(inc.Shells, sh)
	}

	for _, w := range p.Workers {
		inc.join(w)
	}
	for _, t := range p.Tellers {
		inc.engage(t)
	}

	if !s.Has(scenario.Gates) {
		inc.start()
		return
	}

	inc.participant = p.Flow.NewParticipant(inc.place(), inc.board, participantLife{inc})
	p.Spawn(func() {
		p.Flow.Equip(inc.participant)
		inc.start()
	})
}

// start lets an incarnation serve, once it has read the settings.
func (inc *incarnation) start() {
	s, p := inc.p.Cluster, inc.p
	inc.begun = true
	for _, h := range p.Hands {
		inc.board.join(h)
	}
	if inc.purse != nil {
		inc.purse.begin()
	}
	if p.leaving {
		inc.drain()
	}
	if s.Has(scenario.Tasks) && s.Plan.KeepDead > 0 {
		inc.sweepDead()
	}

	// Do not sweep in seeds in which clocks jump: a process that starts after a lasting jump
	// believes that all ids are older than they are.
	if s.Has(scenario.RequestIDs) && !s.Has(scenario.ClockJumps) {
		inc.sweepIDs()
	}
	inc.loop()
}

func (inc *incarnation) drain() {
	inc.draining = true
	inc.member.Drain()
	inc.loop()
}

// loop does what the membership loop of the engine does in production after each event.
func (inc *incarnation) loop() {
	if inc.ended || !inc.begun {
		return
	}
	s := inc.p.Cluster

	if inc.draining && inc.member.HasDrained() {
		inc.end(nil)
		return
	}

	inc.p.notice()
	inc.checkServing()
	inc.act(inc.member.Tick(inc.p.mono()))
	if inc.ended {
		return
	}
	next := inc.member.NextTick()
	if next == 1<<63-1 {
		return
	}

	at := max(inc.p.when(next), s.Now+1)
	if inc.tickAt == at {
		return
	}
	inc.ticks++
	tick := inc.ticks
	inc.tickAt = at

	s.At(at, inc.p.Process, func() {
		if tick == inc.ticks {
			inc.tickAt = 0
			inc.loop()
		}
	})
}

// checkServing checks that a node that trusts its lease owns the shards that it serves (I1).
func (inc *incarnation) checkServing() {
	if !inc.mayServe() {
		return
	}
	l := inc.p.Cluster.Ledger
	for i, mine := range inc.Owner {
		if mine && l.Owner[i] != inc.self.ID {
			l.Fail("I1: %s serves shard %d, which belongs to %s", inc.name(), i, l.Name(l.Owner[i]))
		}
	}
}

// end stops the incarnation. If why is nil, the node leaves cleanly; otherwise why says how it lost
// its lease.
func (inc *incarnation) end(why error) {
	if inc.ended {
		return
	}
	s, p := inc.p.Cluster, inc.p
	inc.ended, inc.lost = true, why != nil
	if s.Tracing {
		s.Logf("%s ends: %v", inc.name(), why)
	}
	for i := range inc.Owner {
		inc.Owner[i] = false
	}

	for _, sh := range inc.Shells {
		if why != nil {
			sh.die(why)
		} else {
			sh.die(fmt.Errorf("the node is stopping"))
		}
	}

	if inc.purse != nil && inc.begun {
		inc.purse.end()
	}
	p.Inc, p.parting = nil, inc // its goroutines need a moment to end

	if why != nil {
		s.Hurt(scenario.FaultLateFenced)
		s.After(s.Between(0, 20)*kernel.Millisecond, p.Process, func() {
			p.parting = nil
			p.register()
		})
		return
	}

	s.Did(scenario.OpDrained)
	if inc.participant == nil {
		inc.unregister()
		return
	}

	p.Spawn(func() {
		inc.participant.Leave(context.Background())
		inc.unregister()
	})
}

func (inc *incarnation) unregister() {
	s := inc.p.Cluster
	s.Disk.Call(&disk.Request{
		Process: inc.p.Process, Name: "unregister", Fate: s.Disk.Draw(scenario.FaultRegisterLost, scenario.FaultRegisterLost, false),
		Exec: func(done func()) {
			s.Disk.HoldAll(inc.self.ID, func() {
				if err := s.Disk.Mem.Unregister(context.Background(), inc.self.ID, inc.epoch); err == nil {
					s.Ledger.Fenced(inc.self.ID, true)
				}
				done()
			})
		},
		OK: inc.p.end, Bad: func(error) { inc.p.end() },
	})
}

// act carries out the actions of the membership.
func (inc *incarnation) act(a cluster.Actions) {
	if inc.ended {
		return
	}

	if a.Lost != nil {
		inc.end(a.Lost)
		return
	}

	if a.Renew != nil {
		inc.renew(*a.Renew)
	}
	for _, f := range a.Fence {
		inc.fence(f)
	}
	if len(a.Acquire) > 0 {
		inc.acquire(a.Acquire)
	}

	if len(a.GiveUp) > 0 {
		if inc.p.Cluster.Tracing {
			inc.p.Cluster.Logf("%s gives up %v", inc.name(), a.GiveUp)
		}
		for _, sh := range a.GiveUp {
			inc.Owner[sh] = false
			if inc.purse != nil {
				inc.purse.leaving[sh] = true
			}
		}
		for i, sh := range inc.Shells {
			if mine := inc.laneShards(i, a.GiveUp); len(mine) > 0 {
				sh.result(func(now model.Time) { sh.giveUp(now, mine) })
			}
		}
	}

	if a.Mail {
		inc.mailWaits()
	}
}

func (inc *incarnation) laneShards(index int, shards []model.ShardID) (mine []model.ShardID) {
	for _, sh := range shards {
		if int(sh)%len(inc.Shells) == index {
			mine = append(mine, sh)
		}
	}
	return mine
}

func (inc *incarnation) mailWaits() {
	for _, sh := range inc.Shells {
		sh.result(func(model.Time) { sh.Lane.MailWaits() })
	}
}

func (inc *incarnation) renew(r store.RenewRequest) {
	s, p := inc.p.Cluster, inc.p
	var v store.View
	var err error
	p.notice()
	sent := p.mono()

	answered := func(v store.View, err error) {
		if inc.ended {
			return
		}
		p.notice()

		if err == nil {
			if inc.looked == 0 {
				inc.looked = s.Now
			}
			if inc.readClock(sent, v.Now); inc.ended {
				return
			}
		}

		a := inc.member.ApplyRenewal(p.mono(), v, err)
		if err == nil {
			inc.owners = v.Owners
			inc.noteDrain(&v)
			s.noteGroups(&v)
			inc.alive = inc.alive[:0]
			for i := range v.Members {
				inc.alive = append(inc.alive, v.Members[i].ID)
			}
			if s.Has(scenario.Gates) {
				inc.applyView(&v)
			}
			if inc.purse != nil {
				inc.purse.applyView(&v)
			}
		}

		inc.act(a)
		inc.loop()
	}

	s.Disk.Call(&disk.Request{
		Process: p.Process, Name: "renew", Fate: s.Disk.Draw(scenario.FaultRenewFails, scenario.FaultRenewLost, false),
		Exec: func(done func()) {
			v, err = s.Disk.Mem.Renew(context.Background(), r)
			if n := len(v.Members); n > 0 && !s.Healed && s.Chance(s.Plan.OddView) {
				// A view only proposes owners. If views differ between nodes, shards move back and
				// forth, but nothing else goes wrong.
				v.Members[s.Pick(n)].Draining = true
				s.Hurt(scenario.FaultOddView)
			}
			done()
		},
		OK: func() { answered(v, err) }, Bad: func(e error) { answered(store.View{}, e) },
	})
}

func (inc *incarnation) fence(f store.FenceRequest) {
	s, p := inc.p.Cluster, inc.p
	var ok bool
	var err error

	answered := func(ok bool, err error) {
		if !inc.ended {
			inc.member.ApplyFence(f.Node, ok, err)
			inc.loop()
		}
	}

	s.Disk.Call(&disk.Request{
		Process: p.Process, Name: "fence node", Fate: s.Disk.Draw(scenario.FaultFenceFails, scenario.FaultFenceLost, true),
		Exec: func(done func()) {
			s.Disk.HoldAll(f.Node, func() {
				ok, err = s.Disk.Mem.FenceNode(context.Background(), f)
				if ok && err == nil && s.Ledger.Fenced(f.Node, false) {
					m := s.Ledger.Nodes[f.Node]
					if !f.Proven && inc.deceived(m.Ttl) {
						m.Betrayed = s.Now + m.Ttl.Microseconds()
					}
					if f.Proven && s.living(f.Node) {
						m.Betrayed = s.Now + m.Ttl.Microseconds()
						s.Hurt(scenario.FaultLie)
					} else if f.Proven {
						s.Did(scenario.OpTakeoverProof)
					} else {
						s.Did(scenario.OpTakeoverLease)
					}
					if s.Tracing {
						s.Logf("store    %s fences %s, proven %v", inc.name(), s.Ledger.Name(f.Node), f.Proven)
					}
				}

				done()
			})
		},
		OK: func() { answered(ok, err) }, Bad: func(e error) { answered(false, e) },
	})
}

func (inc *incarnation) acquire(shards []model.ShardID) {
	s, p := inc.p.Cluster, inc.p
	var got []store.AcquiredShard
	var err error
	f := s.Disk.Draw(scenario.FaultAcquireFails, scenario.FaultAcquireLost, true)
	if f == disk.Late {
		s.Hurt(scenario.FaultAcquireLate)
	}

	s.Disk.Call(&disk.Request{
		Process: p.Process, Name: "acquire", Fate: f,
		Exec: func(done func()) {
			if got, err = s.Disk.Mem.Acquire(context.Background(), inc.self.ID, inc.epoch, shards); err == nil {
				inc.checkAlone(got)
				inc.checkGroups(got)
				for i := range got {
					got[i].Foreign = p.foreign[got[i].Shard] || inc.isForeign(got[i].Shard)
					got[i].Crashed = s.Has(scenario.Killers) && (p.orphans[got[i].Shard] || inc.isOrphaned(got[i].Shard))
					// The process keeps these two facts until it has received the answer of the
					// store.
					p.foreign[got[i].Shard], p.orphans[got[i].Shard] = got[i].Foreign, got[i].Crashed
				}
				s.Ledger.CheckAcquired(inc.self.ID, got)
			}
			done()
		},
		OK: func() {
			for i := range got {
				delete(p.foreign, got[i].Shard)
				delete(p.orphans, got[i].Shard)
			}
			inc.takeShards(got, err)
		}, Bad: func(e error) { inc.takeShards(nil, e) },
	})
}

func (inc *incarnation) takeShards(got []store.AcquiredShard, err error) {
	if inc.ended {
		return
	}
	inc.act(inc.member.ApplyAcquire(got, err))

	if err == nil && !inc.ended {
		for i, sh := range inc.Shells {
			var mine []store.AcquiredShard
			for _, g := range got {
				if int(g.Shard)%len(inc.Shells) == i {
					mine = append(mine, g)
				}
			}
			if len(mine) > 0 {
				sh.result(func(now model.Time) { sh.acquire(now, mine) })
			}
		}

		inc.tenure++
		for _, g := range got {
			inc.Owner[g.Shard] = true
		}
		if inc.purse != nil {
			inc.purse.addShards(got)
		}
		inc.knock(got)
	}

	inc.loop()
}

// knock sends a start of an existing run while the node still loads the shard. Before that, it
// sends a late copy of an earlier request. Another node may have served the request before this
// node got the shard.
func (inc *incarnation) knock(got []store.AcquiredShard) {
	s := inc.p.Cluster
	if s.Has(scenario.DrawnIDs) && !s.Healed && !s.Opts.Calm {
		s.Visitor.Repeat(inc.p, func(a model.Address) bool {
			return slices.ContainsFunc(got, func(g store.AcquiredShard) bool { return g.Shard == s.ShardOf(a) })
		})
	}

	if s.Healed || s.Opts.Calm || !s.Chance(0.3) {
		return
	}
	for _, r := range s.Ledger.Order {
		if !r.Open() || r.Address.Current != r || !slices.ContainsFunc(got, func(g store.AcquiredShard) bool { return g.Shard == r.Address.Shard }) {
			continue
		}
		s.Visitor.Knock(inc.p, model.Message{Kind: model.MessageStart, To: r.Address.Name, Input: r.Origin, Task: r.Start.Task})
		return
	}
}

// dropShards notes that a lane has given up shards. The lane calls it.
func (inc *incarnation) dropShards(shards []model.ShardID) {
	if !inc.ended {
		if inc.purse != nil {
			inc.purse.dropShards(shards)
		}
		inc.member.RemoveShards(shards)
		inc.p.Cluster.announceMembership(inc.p)
		inc.loop()
	}
}

// announceMembership notifies the other nodes that the membership or ownership has changed.
func (s *Cluster) announceMembership(from *Proc) {
	for _, p := range s.Procs {
		if p != nil && p != from && !s.hintIsLost() {
			s.After(s.Disk.Latency(), p.Process, func() {
				if p.Inc != nil {
					p.Inc.member.RenewNow()
					p.Inc.loop()
				}
			})
		}
	}
}

// checkAlone checks that no other node still serves the shards that this node gets (I1).
func (inc *incarnation) checkAlone(got []store.AcquiredShard) {
	s := inc.p.Cluster
	for _, g := range got {
		if s.Ledger.Owner[g.Shard] == inc.self.ID {
			continue
		}
		for _, p := range s.Procs {
			if p == nil || p.Inc == nil || p.Inc == inc {
				continue
			}
			if p.Inc.Owner[g.Shard] && p.Inc.mayServe() {
				s.Fail("I1: %s gets shard %d while %s still serves it", inc.name(), g.Shard, p.Inc.name())
			}
		}
	}
}
