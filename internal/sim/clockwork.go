package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
)

// Nodes estimate the store's time with storeclock, the production code. In some simulations the
// store's clock jumps: forward for a while and back again, by up to a month; forward permanently;
// back permanently; or by an amount that nodes cannot distinguish from a slow answer. Machines are
// suspended: a process does nothing for a while, and its own clock stops too. What must hold: a
// jump that did not last fires no timer early and deletes nothing early; no timer stops; no node is
// fenced while its lease is valid; and no node serves data from memory that another node owns.

// jumpPlan is the plan of a simulation for its clocks.
type jumpPlan struct {
	clock    storeclock.Config
	jumps    int
	suspends int
}

func (s *Sim) drawClock() {
	s.plan.clock = storeclock.Config{Jump: time.Second, Persist: 1500 * time.Millisecond, Hold: 2 * time.Second}
	s.plan.jumps, s.plan.suspends = s.pick(3), s.pick(3)
}

// jump lets the store's clock jump.
func (s *Sim) jump() {
	if s.now < s.jumping || s.now > s.plan.faultsUntil*9/10 {
		return
	}

	// a process that starts now would take it for the real time
	if slices.ContainsFunc(s.procs[:], func(p *proc) bool { return p != nil && !p.timed }) {
		s.after(20*millisecond, nil, s.jump)
		return
	}

	by, lasts := int64(0), int64(0)
	switch s.pick(5) {
	case 0, 1: // far and short: no node may follow
		by, lasts = oneOf(s, s.between(2, 60)*second, 24*3600*second, 31*24*3600*second), s.between(20, s.plan.clock.Persist.Milliseconds()/2)*millisecond
	case 2:
		by, lasts = -s.between(2, 60)*second, s.between(20, s.plan.clock.Persist.Milliseconds()/2)*millisecond
	case 3: // permanent
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
		// A node that follows the first jump cannot distinguish this one from it, and corrects its
		// clock slowly.
		s.lasting = max(s.lasting, s.shift)
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

// fairTime is the latest time that a node may assume: the clock of the store, without jumps that
// did not last.
func (s *Sim) fairTime() model.Time {
	return model.Time(epoch + s.now + max(s.shift-s.passing(), s.lasting) + s.skew())
}

// passing is the part of the store clock's shift that will not last.
func (s *Sim) passing() int64 {
	if s.now < s.jumping {
		return s.shift - s.lasting
	}
	return 0
}

// suspend stops a process and its clock for a while.
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

// askAtOnce sends reads to a process that wakes from a suspend, about data that it owned before.
// The process has had no chance to look at the time.
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

// wakesUp checks a node that wakes from a suspend and has not received anything yet. It must not
// answer reads of data that other nodes have taken over.
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

// mono is the time of the process's own clock since its start. It includes the suspended time that
// the process has noticed.
func (p *proc) mono() time.Duration { return p.own(p.s.now - p.asleep + p.noticed) }

// own is what the process's clock would show at a time without any suspend.
func (p *proc) own(at int64) time.Duration {
	return time.Duration(float64(at-p.born)*p.rate) * time.Microsecond
}

// notice finds out whether the machine was suspended.
func (p *proc) notice() { p.noticed = p.asleep }

// when returns the time at which the process's own clock will show mono.
func (p *proc) when(mono time.Duration) int64 {
	return p.born + p.asleep - p.noticed + int64(float64(mono.Microseconds())/p.rate) + 1
}

// resetClock makes a process forget its estimate of the store's clock.
func (p *proc) resetClock() {
	// The clock of the machine is near that of the store, unless the store's has jumped: nodes
	// that distrust the store's clock in every seed would never be seen to trust it.
	wall := model.Time(epoch + p.s.now - p.s.between(-100, 100)*millisecond)
	p.clock, p.last, p.timed = storeclock.New(p.s.plan.clock, p.mono(), wall), 0, false
}

// now is the process's estimate of store time. It never goes back, unless the process starts over
// because the store's clock went back.
func (p *proc) now() model.Time {
	p.last = max(p.last, p.clock.Now(p.mono()))
	return p.last
}

// reads adds a reading of the store's clock, taken between sent and now.
func (p *proc) reads(sent time.Duration, at model.Time) storeclock.Verdict {
	s := p.s
	got := p.mono()
	if !p.timed { // the first reading counts as the time at which it was requested
		p.timed = true
		s.tripped = max(s.tripped, (got - sent).Microseconds())
	}
	v := p.clock.Read(storeclock.Reading{Sent: sent, Got: got, Store: at})
	if v.Change == storeclock.Adopted {
		p.last = 0 // until now the process used the clock of the machine, which may be ahead
	}
	s.behind = max(s.behind, int64(s.storeTime()-p.clock.Now(got)))
	return v
}

var errClockBack = errors.New("the store's clock went back and stays there")

// readClock uses the reading of the store's clock in a renewal, as incarnation.readClock of the
// engine does.
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

// wakeSleepers lets every part that sleeps until a time look at the time again.
func (inc *incarnation) wakeSleepers() {
	for _, sh := range inc.shells {
		sh.result(func(model.Time) {})
	}
	if inc.board != nil {
		inc.board.Reconsider()
	}
}

// serving reports whether the node may answer from memory.
func (inc *incarnation) serving() bool {
	inc.p.notice()
	return inc.member.Serving(inc.p.mono())
}

// mayServe reports whether serving would return true, and does not change the process.
func (inc *incarnation) mayServe() bool {
	return inc.member.Serving(inc.p.own(inc.p.s.now)) && !inc.betrayed()
}

// skew is how far the clock of a node may be ahead of the store's: the drift since the last
// renewal, plus the error of the first reading, which is at most the duration of its call.
func (s *Sim) skew() int64 {
	skew := int64(s.plan.drift*float64(s.now)) + s.tripped + 1
	if s.slewed {
		skew += s.now / 200
	}
	return skew
}

// deceived reports whether a node that fences another one had no way to know that the clock of the
// store has jumped, because it had not seen the leases of others before the jump. Any recent jump
// counts, not only the latest one.
func (inc *incarnation) deceived() bool {
	s := inc.p.s
	return slices.ContainsFunc(s.jumped, func(at int64) bool { return inc.looked > at && s.now < at+2*s.plan.ttl.Microseconds() })
}

// newRun draws the id of a run from the estimate of store time. It is larger than all ids before.
func (p *proc) newRun() model.RunID {
	p.drawn = max(p.drawn, p.now())
	return p.s.newRunAt(p.drawn)
}
