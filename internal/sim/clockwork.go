package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
)

// Nodes know the store's time by storeclock, the code of production. In some simulations the store's clock jumps: forward for a while and back again, by up to a month; forward for good; back for good;
// or by little, which nodes cannot tell from a slow answer. Machines are suspended: a process does nothing for a while, and its own clock stands still meanwhile. What must hold: no timer fires early and nothing leaves
// early because of a jump that did not last, no timer stands still, nobody is fenced whose lease holds, and nobody serves from memory what belongs to somebody else.

// jumpPlan is what a simulation decides about its clocks before anything happens.
type jumpPlan struct {
	clock    storeclock.Config
	jumps    int
	suspends int
}

func (s *Sim) drawClock() {
	s.plan.clock = storeclock.Config{Jump: time.Second, Persist: 1500 * time.Millisecond, Hold: 2 * time.Second}
	s.plan.jumps, s.plan.suspends = s.pick(3), s.pick(3)
}

// jump has the store's clock jump.
func (s *Sim) jump() {
	if s.now < s.jumping || s.now > s.plan.faultsUntil*9/10 {
		return
	}
	if slices.ContainsFunc(s.procs[:], func(p *proc) bool { return p != nil && !p.timed }) { // a process that begins would take it for the time
		s.after(20*millisecond, nil, s.jump)
		return
	}
	by, lasts := int64(0), int64(0)
	switch s.pick(5) {
	case 0, 1: // far, and not for long: nobody may follow
		by, lasts = oneOf(s, s.between(2, 60)*second, 24*3600*second, 31*24*3600*second), s.between(20, s.plan.clock.Persist.Milliseconds()/2)*millisecond
	case 2:
		by, lasts = -s.between(2, 60)*second, s.between(20, s.plan.clock.Persist.Milliseconds()/2)*millisecond
	case 3: // for good
		by = oneOf(s, s.between(2, 20), 3600) * second
	case 4:
		by = -s.between(2, 10) * second
	}
	if s.chance(0.2) { // nodes follow slowly
		by, s.slewed = s.between(-800, 800)*millisecond, true
	}
	s.shift, s.jumped = s.shift+by, append(s.jumped, s.now)
	if s.opts.Trace {
		s.logf("store    its clock JUMPS by %s", time.Duration(by*1000))
	}
	s.hurt(faultJump)
	if lasts == 0 {
		s.lasting, s.stepped = max(s.lasting, s.shift), s.now
		return
	}
	if s.stepped > 0 && s.now < s.stepped+2*s.plan.clock.Persist.Microseconds() && microseconds(by).Abs() < s.plan.clock.Jump {
		s.lasting = max(s.lasting, s.shift) // a node that accepts the jump before cannot tell this one apart from it, and corrects it slowly
	}
	s.jumping = min(s.now+lasts, s.plan.faultsUntil-1)
	s.at(s.jumping, nil, func() {
		s.shift, s.jumped = s.shift-by, append(s.jumped, s.now)
		if s.opts.Trace {
			s.logf("store    its clock jumps BACK by %s", time.Duration(by*1000))
		}
		s.hurt(faultJumpBack)
	})
}

// fairTime is the latest that anybody may believe it is: by the clock of the store, without jumps that did not last.
func (s *Sim) fairTime() model.Time {
	return model.Time(epoch + s.now + max(s.shift-s.passing(), s.lasting) + s.skew())
}

// passing is by how much the store's clock has jumped for a while.
func (s *Sim) passing() int64 {
	if s.now < s.jumping {
		return s.shift - s.lasting
	}
	return 0
}

// suspend stops a process for a while, and its clock with it.
func (p *proc) suspend(d int64) {
	s := p.s
	if p.paused {
		return
	}
	s.hurt(faultSuspend)
	p.pause(d)
	s.after(d, nil, func() {
		if !p.dead {
			p.asleep += d
			p.askAtOnce()
		}
	})
}

// askAtOnce has somebody read from a process what it owned before it was suspended, before it has had a chance to look at the time.
func (p *proc) askAtOnce() {
	if p.inc != nil {
		p.inc.wakesUp()
	}
	for _, r := range p.s.ledger.order {
		if r.open() && p.inc != nil && p.inc.owner[r.address.shard] {
			o := p.s.helper.op(model.Message{To: r.address.name})
			o.read, o.pinned = true, p
			o.perform(func() {})
			return
		}
	}
}

// wakesUp checks that a node which goes on after a suspend would answer no read of what others have taken over meanwhile, although it
// has heard of nothing yet.
func (inc *incarnation) wakesUp() {
	s := inc.p.s
	for shard, mine := range inc.owner {
		owner := s.ledger.owner[shard]
		if !mine || owner == inc.self.ID {
			continue
		}
		s.did(opWokeUp)
		if inc.serving() && !inc.betrayed() {
			s.fail("I1: %s was suspended, and would answer a read of shard %d, which belongs to %s", inc.name(), shard, s.ledger.name(owner))
		}
		return
	}
}

// mono is the time of its own clock since it started, with the time that the machine was suspended as far as it was noticed.
func (p *proc) mono() time.Duration { return p.own(p.s.now - p.asleep + p.noticed) }

// own is what its clock shows at a time, if the machine was never suspended.
func (p *proc) own(at int64) time.Duration {
	return time.Duration(float64(at-p.born)*p.rate) * time.Microsecond
}

// notice finds out whether the machine was suspended.
func (p *proc) notice() { p.noticed = p.asleep }

// when is the time at which its own clock will stand at mono.
func (p *proc) when(mono time.Duration) int64 {
	return p.born + p.asleep - p.noticed + int64(float64(mono.Microseconds())/p.rate) + 1
}

// resetClock has a process forget what it knows of the store's clock.
func (p *proc) resetClock() {
	wall := model.Time(epoch + p.s.now - p.s.between(-5*second, 5*second))
	p.clock, p.last, p.timed = storeclock.New(p.s.plan.clock, p.mono(), wall), 0, false
}

// now is its idea of store time; it never goes back, unless it has started over because the store's clock has.
func (p *proc) now() model.Time {
	p.last = max(p.last, p.clock.Now(p.mono()))
	return p.last
}

// reads takes in what the store's clock showed between a moment and now.
func (p *proc) reads(sent time.Duration, at model.Time) storeclock.Verdict {
	s := p.s
	got := p.mono()
	if !p.timed { // it takes the first reading for what it was when it was asked for
		p.timed = true
		s.tripped = max(s.tripped, (got - sent).Microseconds())
	}
	v := p.clock.Read(storeclock.Reading{Sent: sent, Got: got, Store: at})
	if v.Change == storeclock.Adopted {
		p.last = 0 // until now it went by the clock of the machine, which may be ahead
	}
	s.behind = max(s.behind, int64(s.storeTime()-p.clock.Now(got)))
	return v
}

var errClockBack = errors.New("the store's clock went back and stays there")

// readClock takes in what a renewal says of the store's clock, as incarnation.readClock of the engine does.
func (inc *incarnation) readClock(sent time.Duration, at model.Time) {
	s, p := inc.p.s, inc.p
	v := p.reads(sent, at)
	switch v.Change {
	case storeclock.Doubted:
		s.did(opDoubted)
	case storeclock.Cleared:
		s.did(opCleared)
	case storeclock.Advanced:
		s.did(opAdvanced)
		inc.wakeSleepers()
	case storeclock.WentBack:
		s.did(opWentBack)
		p.resetClock()
		inc.end(errClockBack)
		return
	case storeclock.Agrees, storeclock.Adopted:
	}
	inc.member.Doubt(p.clock.InDoubt(), v.By)
	if keep := !p.clock.MayDelete(p.mono()); keep != inc.keeps {
		inc.keeps = keep
		for _, sh := range inc.shells {
			sh.result(func(model.Time) { sh.lane.KeepAll(keep) })
		}
	}
}

// wakeSleepers has everything look at the time that sleeps until one.
func (inc *incarnation) wakeSleepers() {
	for _, sh := range inc.shells {
		sh.result(func(model.Time) {})
	}
	if inc.board != nil {
		inc.board.Reconsider()
	}
}

// serving reports whether answers from memory may be given.
func (inc *incarnation) serving() bool {
	inc.p.notice()
	return inc.member.Serving(inc.p.mono())
}

// mayServe reports whether it would say so if it were asked.
func (inc *incarnation) mayServe() bool {
	return inc.member.Serving(inc.p.own(inc.p.s.now)) && !inc.betrayed()
}

// skew is how far any clock may be ahead of the store's: it drifts since the last renewal, and begins with what the way of an answer explains.
func (s *Sim) skew() int64 {
	skew := int64(s.plan.drift*float64(s.now)) + s.tripped + 1
	if s.slewed {
		skew += s.now / 200
	}
	return skew
}

// deceived reports whether a node that fences another one had no chance to know that the store's
// clock has jumped: it has not seen the leases of others before the jump. It may be any jump of the
// last time, not only the latest one. In production such a node compares the store's clock with
// that of its machine (Membership.Distrust), which the simulator does not have.
func (inc *incarnation) deceived() bool {
	s := inc.p.s
	return slices.ContainsFunc(s.jumped, func(at int64) bool { return inc.looked > at && s.now < at+2*s.plan.ttl.Microseconds() })
}

// newRun draws the id of a run at its idea of store time, later than all before.
func (p *proc) newRun() model.RunID {
	p.drawn = max(p.drawn, p.now())
	return p.s.newRunAt(p.drawn)
}
