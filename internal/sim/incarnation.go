package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// incarnation is one life of a node, from its registration to the loss of its lease or its orderly
// end.
type incarnation struct {
	p        *proc
	self     store.NodeInfo
	epoch    int64
	member   *cluster.Membership
	shells   []*shell
	owner    []bool // by shard: requests are routed here
	begun    bool   // it has read the settings
	draining bool
	ended    bool
	lost     bool // it has lost its lease or its fence
	label    string
	board    *board         // nil when there are no tasks
	purse    *purse         // nil if nodes do not lend each other slots
	alive    []model.NodeID // the nodes that have a lease, as of the last renewal
	ticks    int            // number of the last tick that was set
	tickAt   int64          // when it is due
	swept    store.DeadPlace
	looked   int64 // when it first saw the other nodes
	keeps    bool  // its lanes must delete nothing because of its age

	// its member of the nodes that share limits; nil if there are no settings
	participant *flow.Participant
}

func (inc *incarnation) name() string { return inc.label }

// begin starts the machines of an incarnation.
func (p *proc) begin(info store.NodeInfo, reg store.Registration, sent time.Duration, first storeclock.Verdict) {
	s := p.s
	inc := &incarnation{p: p, self: info, epoch: reg.Epoch, owner: make([]bool, s.plan.shards)}
	inc.label = fmt.Sprintf("%s@%d", p.label, inc.epoch)
	inc.member = cluster.New(cluster.Config{
		Self: info, TTL: s.plan.ttl, RenewEvery: s.plan.renew, Margin: s.plan.margin, Longest: s.plan.ttl, Gone: p.gone,
	}, reg.Epoch, sent)
	if first.Change == storeclock.Adopted && first.By.Abs() > s.plan.ttl/2 {
		// as the engine does: the clocks differ, and the store's may have jumped
		inc.member.Distrust(sent)
	}
	p.inc = inc
	if m := s.ledger.nodes[info.ID]; m != nil {
		m.inc = inc
	}
	if s.opts.Trace {
		s.logf("%s registered", inc.name())
	}

	if s.tasks {
		inc.board = newBoard(inc)
		if s.lends {
			inc.purse = newPurse(inc)
			s.nodeIDs[info.ID.String()] = info.ID
		}
	}

	for i := range s.plan.lanes {
		cfg := s.plan.lane
		cfg.Ref = store.LaneRef{Node: info.ID, Lane: i, Epoch: reg.Epoch}
		cfg.Shards, cfg.Lanes, cfg.NewRun = s.plan.shards, s.plan.lanes, p.newRun
		if inc.board != nil {
			cfg.Board = inc.board
		}
		sh := &shell{s: s, inc: inc, index: i, lane: lane.New(cfg)}
		sh.roundFunc, sh.wakeFunc = sh.round, sh.wake
		inc.shells = append(inc.shells, sh)
	}

	for _, w := range p.workers {
		inc.join(w)
	}
	for _, t := range p.tellers {
		inc.engage(t)
	}

	if !s.gates {
		inc.start()
		return
	}

	inc.participant = p.flow.NewParticipant(inc.place(), inc.board, participantLife{inc})
	p.spawn(func() {
		p.flow.Equip(inc.participant)
		inc.start()
	})
}

// start lets an incarnation serve, once it has read the settings.
func (inc *incarnation) start() {
	s, p := inc.p.s, inc.p
	inc.begun = true
	for _, h := range p.hands {
		inc.board.join(h)
	}
	if inc.purse != nil {
		inc.purse.begin()
	}
	if p.leaving {
		inc.drain()
	}
	if s.tasks && s.plan.keepDead > 0 {
		inc.sweepDead()
	}

	// a process that starts after a lasting jump believes that all ids are older than they are
	if s.hard(hardIDs) && !s.hard(hardClock) {
		inc.sweepIDs()
	}
	inc.loop()
}

func (inc *incarnation) drain() {
	inc.draining = true
	inc.member.Drain()
	inc.loop()
}

// loop is what the members loop of production does after each event.
func (inc *incarnation) loop() {
	if inc.ended || !inc.begun {
		return
	}
	s := inc.p.s

	if inc.draining && inc.member.Drained() {
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

	at := max(inc.p.when(next), s.now+1)
	if inc.tickAt == at {
		return
	}
	inc.ticks++
	tick := inc.ticks
	inc.tickAt = at

	s.at(at, inc.p, func() {
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
	l := inc.p.s.ledger
	for i, mine := range inc.owner {
		if mine && l.owner[i] != inc.self.ID {
			l.fail("I1: %s serves shard %d, which belongs to %s", inc.name(), i, l.name(l.owner[i]))
		}
	}
}

// end stops the incarnation because it lost its lease, or in good order if why is nil.
func (inc *incarnation) end(why error) {
	if inc.ended {
		return
	}
	s, p := inc.p.s, inc.p
	inc.ended, inc.lost = true, why != nil
	if s.opts.Trace {
		s.logf("%s ends: %v", inc.name(), why)
	}
	for i := range inc.owner {
		inc.owner[i] = false
	}

	for _, sh := range inc.shells {
		if why != nil {
			sh.die(why)
		} else {
			sh.die(fmt.Errorf("the node is stopping"))
		}
	}

	if inc.purse != nil && inc.begun {
		inc.purse.end()
	}
	p.inc, p.parting = nil, inc // its goroutines need a moment

	if why != nil {
		s.hurt(faultLateFenced)
		s.after(s.between(0, 20)*millisecond, p, func() {
			p.parting = nil
			p.register()
		})
		return
	}

	s.did(opDrained)
	if inc.participant == nil {
		inc.unregister()
		return
	}

	p.spawn(func() {
		inc.participant.Leave(background)
		inc.unregister()
	})
}

func (inc *incarnation) unregister() {
	s := inc.p.s
	s.disk.call(&request{
		p: inc.p, name: "unregister", fate: s.disk.draw(faultRegisterLost, faultRegisterLost, false),
		exec: func(done func()) {
			s.disk.holdAll(inc.self.ID, func() {
				if err := s.disk.mem.Unregister(background, inc.self.ID, inc.epoch); err == nil {
					s.ledger.fenced(inc.self.ID, true)
				}
				done()
			})
		},
		ok: inc.p.end, bad: func(error) { inc.p.end() },
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
		if inc.p.s.opts.Trace {
			inc.p.s.logf("%s gives up %v", inc.name(), a.GiveUp)
		}
		for _, sh := range a.GiveUp {
			inc.owner[sh] = false
			if inc.purse != nil {
				inc.purse.leaving[sh] = true
			}
		}
		for i, sh := range inc.shells {
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
		if int(sh)%len(inc.shells) == index {
			mine = append(mine, sh)
		}
	}
	return mine
}

func (inc *incarnation) mailWaits() {
	for _, sh := range inc.shells {
		sh.result(func(model.Time) { sh.lane.MailWaits() })
	}
}

func (inc *incarnation) renew(r store.RenewRequest) {
	s, p := inc.p.s, inc.p
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
				inc.looked = s.now
			}
			if inc.readClock(sent, v.Now); inc.ended {
				return
			}
		}

		a := inc.member.Renewed(p.mono(), v, err)
		if err == nil {
			inc.alive = inc.alive[:0]
			for i := range v.Members {
				inc.alive = append(inc.alive, v.Members[i].ID)
			}
			if s.gates {
				inc.viewed(&v)
			}
			if inc.purse != nil {
				inc.purse.seen(&v)
			}
		}

		inc.act(a)
		inc.loop()
	}

	s.disk.call(&request{
		p: p, name: "renew", fate: s.disk.draw(faultRenewFails, faultRenewLost, false),
		exec: func(done func()) {
			v, err = s.disk.mem.Renew(background, r)
			if n := len(v.Members); n > 0 && !s.healed && s.chance(s.plan.oddView) {
				// Views only propose. If nodes disagree because of a view, shards move back and
				// forth, and nothing else goes wrong.
				v.Members[s.pick(n)].Draining = true
				s.hurt(faultOddView)
			}
			done()
		},
		ok: func() { answered(v, err) }, bad: func(e error) { answered(store.View{}, e) },
	})
}

func (inc *incarnation) fence(f cluster.FenceTarget) {
	s, p := inc.p.s, inc.p
	var ok bool
	var err error

	answered := func(ok bool, err error) {
		if !inc.ended {
			inc.member.Fenced(f.Node, ok, err)
			inc.loop()
		}
	}

	s.disk.call(&request{
		p: p, name: "fence node", fate: s.disk.draw(faultFenceFails, faultFenceLost, true),
		exec: func(done func()) {
			s.disk.holdAll(f.Node, func() {
				ok, err = s.disk.mem.FenceNode(background, f.Node, f.Epoch, f.Proven)
				if ok && err == nil && s.ledger.fenced(f.Node, false) {
					if !f.Proven && inc.deceived() {
						s.ledger.nodes[f.Node].betrayed = s.now + s.plan.ttl.Microseconds()
					}
					if f.Proven && s.living(f.Node) {
						s.ledger.nodes[f.Node].betrayed = s.now + s.plan.ttl.Microseconds()
						s.hurt(faultLie)
					} else if f.Proven {
						s.did(opTakeoverProof)
					} else {
						s.did(opTakeoverLease)
					}
					if s.opts.Trace {
						s.logf("store    %s fences %s, proven %v", inc.name(), s.ledger.name(f.Node), f.Proven)
					}
				}

				done()
			})
		},
		ok: func() { answered(ok, err) }, bad: func(e error) { answered(false, e) },
	})
}

func (inc *incarnation) acquire(shards []model.ShardID) {
	s, p := inc.p.s, inc.p
	var got []store.AcquiredShard
	var err error
	f := s.disk.draw(faultAcquireFails, faultAcquireLost, true)
	if f == late {
		s.hurt(faultAcquireLate)
	}

	s.disk.call(&request{
		p: p, name: "acquire", fate: f,
		exec: func(done func()) {
			if got, err = s.disk.mem.Acquire(background, inc.self.ID, inc.epoch, shards); err == nil {
				s.ledger.acquired(inc, got)
			}
			done()
		},
		ok: func() { inc.acquired(got, err) }, bad: func(e error) { inc.acquired(nil, e) },
	})
}

func (inc *incarnation) acquired(got []store.AcquiredShard, err error) {
	if inc.ended {
		return
	}
	inc.act(inc.member.Acquired(got, err))

	if err == nil && !inc.ended {
		for i, sh := range inc.shells {
			var mine []store.AcquiredShard
			for _, g := range got {
				if int(g.Shard)%len(inc.shells) == i {
					mine = append(mine, g)
				}
			}
			if len(mine) > 0 {
				sh.result(func(now model.Time) { sh.lane.Acquire(now, mine) })
			}
		}

		for _, g := range got {
			inc.owner[g.Shard] = true
		}
		if inc.purse != nil {
			inc.purse.acquired(got)
		}
		inc.knock(got)
	}

	inc.loop()
}

// knock sends a start of an existing run while the node still loads the shard.
func (inc *incarnation) knock(got []store.AcquiredShard) {
	s := inc.p.s
	if s.healed || s.opts.Calm || !s.chance(0.3) {
		return
	}
	for _, r := range s.ledger.order {
		if !r.open() || r.address.current != r || !slices.ContainsFunc(got, func(g store.AcquiredShard) bool { return g.Shard == r.address.shard }) {
			continue
		}
		o := s.helper.op(model.Message{Kind: model.MessageStart, To: r.address.name, Input: r.origin, Task: r.start.Task})
		o.message.RequestID, o.pinned = "", inc.p
		s.after(s.between(0, 3*millisecond), nil, func() { o.perform(func() {}) })
		return
	}
}

// A lane calls freed when it has given up shards.
func (inc *incarnation) freed(shards []model.ShardID) {
	if !inc.ended {
		if inc.purse != nil {
			inc.purse.freed(shards)
		}
		inc.member.Freed(shards)
		inc.p.s.announceMembership(inc.p)
		inc.loop()
	}
}

// announceMembership notifies the other nodes that the membership or ownership has changed.
func (s *Sim) announceMembership(from *proc) {
	for _, p := range s.procs {
		if p != nil && p != from && !s.hintIsLost() {
			s.after(s.disk.latency(), p, func() {
				if p.inc != nil {
					p.inc.member.RenewNow()
					p.inc.loop()
				}
			})
		}
	}
}

// fenced records that a node is no longer a member. It reports whether that is new. After an
// orderly end the node's shards are free.
func (l *ledger) fenced(id model.NodeID, unregistered bool) bool {
	m := l.nodes[id]
	if m == nil || !m.alive {
		return false
	}
	m.alive = false
	if unregistered {
		for i := range l.owner {
			if l.owner[i] == id {
				l.owner[i] = model.NodeID{}
			}
		}
	}
	return true
}

// acquired checks which node gets shards, and that no other node still serves them (I1).
func (l *ledger) acquired(inc *incarnation, got []store.AcquiredShard) {
	for _, g := range got {
		old := l.owner[g.Shard]
		if old == inc.self.ID {
			continue
		}
		if m := l.nodes[old]; m != nil && m.alive {
			l.fail("I1: %s takes shard %d, which belongs to %s", inc.name(), g.Shard, l.name(old))
		}

		for _, p := range l.s.procs {
			if p == nil || p.inc == nil || p.inc == inc {
				continue
			}
			if p.inc.owner[g.Shard] && p.inc.mayServe() {
				l.fail("I1: %s gets shard %d while %s still serves it", inc.name(), g.Shard, p.inc.name())
			}
		}

		l.owner[g.Shard] = inc.self.ID
		l.tenure[g.Shard]++
		l.s.did(opAcquire)
	}
}
