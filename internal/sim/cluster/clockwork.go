package cluster

import (
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/storeclock"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// Suspend stops a process and its clock for a while.
func (p *Proc) Suspend(d int64) {
	s := p.Cluster
	if p.Paused {
		return
	}
	s.Hurt(scenario.FaultSuspend)
	p.Pause(d)
	s.After(d, nil, func() {
		if !p.Dead {
			p.asleep += d
			p.askAtOnce()
		}
	})
}

// askAtOnce sends reads to a process at the moment at which the process wakes from a suspend,
// before it can look at the time. The reads are about data that the process owned before the
// suspend.
func (p *Proc) askAtOnce() {
	if p.Inc != nil {
		p.Inc.wakesUp()
	}
	for _, r := range p.Cluster.Ledger.Order {
		if r.Open() && p.Inc != nil && p.Inc.Owner[r.Address.Shard] {
			p.Cluster.Visitor.Ask(p, r.Address.Name)
			return
		}
	}
}

// wakesUp checks a node that wakes from a suspend, before anything arrives. The node must not
// answer reads of data that other nodes have taken over.
func (inc *incarnation) wakesUp() {
	s := inc.p.Cluster
	for shard, mine := range inc.Owner {
		owner := s.Ledger.Owner[shard]
		if !mine || owner == inc.self.ID {
			continue
		}
		s.Did(scenario.OpWokeUp)
		if inc.serving() && !inc.betrayed() {
			s.Fail("I1: %s was suspended, and would answer a read of shard %d, which belongs to %s", inc.name(), shard, s.Ledger.Name(owner))
		}
		return
	}
}

// mono is the time of the process's own clock since its start. It includes the suspended time that
// the process has noticed.
func (p *Proc) mono() time.Duration { return p.own(p.Cluster.Now - p.asleep + p.noticed) }

// own returns what the process's clock would show at the time at, if the process had never been
// suspended.
func (p *Proc) own(at int64) time.Duration {
	return time.Duration(float64(at-p.born)*p.rate) * time.Microsecond
}

// notice finds out whether the machine was suspended.
func (p *Proc) notice() { p.noticed = p.asleep }

// when returns the time at which the process's own clock will show mono.
func (p *Proc) when(mono time.Duration) int64 {
	return p.born + p.asleep - p.noticed + int64(float64(mono.Microseconds())/p.rate) + 1
}

// resetClock makes a process forget its estimate of the store's clock.
func (p *Proc) resetClock() {
	// The clock of the machine is near the clock of the store, unless the clock of the store has
	// jumped. A larger difference would make nodes distrust the clock of the store in every seed.
	wall := model.Time(kernel.Epoch + p.Cluster.Now - p.Cluster.Between(-100, 100)*kernel.Millisecond)
	p.clock, p.last, p.Timed = storeclock.New(p.Cluster.Plan.Clock, p.mono(), wall), 0, false
}

// Now is the process's estimate of store time. The estimate never goes back, except when the
// process starts a new estimate because the store's clock went back.
func (p *Proc) Now() model.Time {
	p.last = max(p.last, p.clock.Now(p.mono()))
	return p.last
}

// reads adds a reading of the store's clock. The store took the reading between the time sent and
// now.
func (p *Proc) reads(sent time.Duration, at model.Time) storeclock.Verdict {
	s := p.Cluster
	got := p.mono()
	if !p.Timed { // the clock takes the first reading as the time at which the process asked for it
		p.Timed = true
		s.Tripped = max(s.Tripped, (got - sent).Microseconds())
	}
	v := p.clock.Read(storeclock.Reading{Sent: sent, Got: got, Store: at})
	if v.Change == storeclock.Adopted {
		p.last = 0 // until now the process used the clock of the machine, which may be ahead
	}
	s.Behind = max(s.Behind, int64(s.StoreTime()-p.clock.Now(got)))
	return v
}

var errClockBack = errors.New("the store's clock was set back and has stayed back")

// readClock uses the reading of the store's clock in a renewal, as incarnation.readClock of the
// engine does.
func (inc *incarnation) readClock(sent time.Duration, at model.Time) {
	s, p := inc.p.Cluster, inc.p
	v := p.reads(sent, at)
	switch v.Change {
	case storeclock.Doubted:
		s.Did(scenario.OpDoubted)
	case storeclock.Cleared:
		s.Did(scenario.OpCleared)
	case storeclock.Advanced:
		s.Did(scenario.OpAdvanced)
		inc.wakeSleepers()
	case storeclock.WentBack:
		s.Did(scenario.OpWentBack)
		p.resetClock()
		inc.end(errClockBack)
		return
	case storeclock.Agrees, storeclock.Adopted:
	}

	inc.member.Doubt(p.clock.InDoubt(), v.By)
	if keep := !p.clock.MayDelete(p.mono()); keep != inc.keeps {
		inc.keeps = keep
		for _, sh := range inc.Shells {
			sh.result(func(model.Time) { sh.Lane.KeepAll(keep) })
		}
	}
}

// wakeSleepers wakes every part of the node that sleeps until a time, so that it looks at the clock
// again.
func (inc *incarnation) wakeSleepers() {
	for _, sh := range inc.Shells {
		sh.result(func(model.Time) {})
	}
	if inc.board != nil {
		inc.board.Reconsider()
	}
}

// serving reports whether the node may answer from memory.
func (inc *incarnation) serving() bool {
	inc.p.notice()
	return inc.member.IsServing(inc.p.mono())
}

// mayServe reports whether serving would return true, and does not change the process.
func (inc *incarnation) mayServe() bool {
	return inc.member.IsServing(inc.p.own(inc.p.Cluster.Now)) && !inc.betrayed()
}

// deceived is for a node that fences another node, whose lease has the length ttl. It reports
// whether the node could not know that the clock of the store has jumped, because it had not seen
// the leases of other nodes before the jump. It considers all recent jumps, not only the latest
// one.
func (inc *incarnation) deceived(ttl time.Duration) bool {
	s := inc.p.Cluster
	if inc.off > ttl/2 {
		return false // the node compares this difference with the lease
	}
	return slices.ContainsFunc(s.Jumped, func(at int64) bool { return inc.looked > at && s.Now < at+2*ttl.Microseconds() })
}

// newRun draws the id of a run from the estimate of store time. The id is larger than all earlier
// ids of the process.
func (p *Proc) newRun() model.RunID {
	p.drawn = max(p.drawn, p.Now())
	return p.Cluster.NewRunAt(p.drawn)
}
