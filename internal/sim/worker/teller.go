package worker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// Teller is a worker of entities in a process. Its id is negative, as in the engine: positive ids
// belong to workers of workflows.
type Teller struct {
	Oracle  *oracle.Oracle
	Process *kernel.Process
	Host    host
	ID      lane.WorkerID
	Offer   model.EntityOffer
	Held    []uint64 // generations of hand-overs that the teller has not reported
	Kept    bool     // it has kept calls although no slot was free, so it may exceed its slots
	leaving bool
	gone    bool
	died    bool
	Unseen  []uint64            // hand-overs that left a lane after the teller had died
	deeds   map[uint64][]uint64 // the calls of the hand-overs in Held
}

// Leave takes a teller out of its process. From now on the teller gets no new calls. The teller
// leaves when it has reported everything, and after a while in any case.
func (t *Teller) Leave() {
	s := t.Oracle
	if t.leaving {
		return
	}
	t.leaving = true
	if s.Tracing {
		s.Logf("%s teller %d leaves", t.Process.Name(), t.ID)
	}

	t.Host.Tell(func(now model.Time, l *lane.Lane) { l.Withdraw(now, t.ID) })
	end := s.Now + s.Between(0, 50)*kernel.Millisecond
	var wait func()
	wait = func() {
		if len(t.Held) > 0 && s.Now < end {
			s.After(2*kernel.Millisecond, t.Process, wait)
			return
		}
		t.Host.Follow(func(now model.Time, l *lane.Lane) { l.Leave(now, t.ID) })
		t.gone, t.Held = true, nil
		t.Host.DismissTeller(t)
		s.Did(scenario.OpTellerLeft)
	}

	s.After(2*kernel.Millisecond, t.Process, wait)
}

// Operate makes the calls after a while. Sometimes the teller makes only the first of the calls,
// reports twice, or reports nothing until the faults have ended.
func (t *Teller) Operate(o model.Operations) {
	s := t.Oracle
	if s.Tracing && !t.died {
		var calls strings.Builder
		for i := range o.Calls {
			d, _ := scenario.DeedOf(o.Calls[i].Input)
			fmt.Fprintf(&calls, " %s %x", o.Calls[i].Name, d.ID)
		}
		s.Logf("%s teller %d has calls of %s on state %d, gen %x:%s", t.Process.Name(), t.ID, o.Entity.Key, scenario.StampOf(scenario.AccountOf(o.State, o.Exists && !o.Entity.Stateless())), o.Generation, calls.String())
	}

	if t.died {
		t.Unseen = append(t.Unseen, o.Generation)
		return
	}
	t.Held = append(t.Held, o.Generation)
	t.note(&o)
	mine := 0
	for _, gen := range t.Held {
		if gen>>32 == o.Generation>>32 {
			mine++
		}
	}
	if n := t.Offer.Slots; n > 0 && mine > n && !t.Kept {
		s.Fail("I21: teller %d of %s has %d hand-overs and %d slots", t.ID, t.Process.Name(), mine, n)
	}
	took := kernel.OneOf(s, 0, s.Between(0, 2*kernel.Millisecond), s.Between(0, 30*kernel.Millisecond))
	if !s.Healed && s.Chance(0.04) {
		s.Hurt(scenario.FaultTellerHangs)
		took = max(took, s.Plan.FaultsUntil-s.Now)
	}

	s.After(took, t.Process, func() {
		if t.died {
			return
		}
		if i := slices.IndexFunc(o.Calls, func(c model.OperationCall) bool { return c.Name == scenario.DoKill }); i >= 0 {
			switch d, _ := scenario.DeedOf(o.Calls[i].Input); {
			case !oracle.KillsTeller(d.ID):
				t.Host.Kill(o.Entity, d.ID)
			case !t.gone:
				t.die(o.Entity, d.ID)
			}
			return
		}

		most := len(o.Calls)
		if !s.Healed && most > 1 && s.Chance(0.15) {
			most = 1 + s.Pick(most-1)
			s.Hurt(scenario.FaultHandedBack)
		}
		h, r := s.Operate(&o, most)
		s.Ledger.RecordReport(h)
		t.report(r)
		if !s.Healed && s.Chance(0.1) {
			s.Hurt(scenario.FaultOperatedTwice)
			s.After(s.Between(0, 3*kernel.Millisecond), t.Process, func() { t.report(r) })
		}
	})
}

// note notes which calls a hand-over has.
func (t *Teller) note(o *model.Operations) {
	if t.deeds == nil {
		t.deeds = map[uint64][]uint64{}
	}
	for i := range o.Calls {
		if d, ok := scenario.DeedOf(o.Calls[i].Input); ok {
			t.deeds[o.Generation] = append(t.deeds[o.Generation], d.ID)
		}
	}
}

// die ends the teller, but not the process of the owner, because of a call. The teller stands for a
// worker that is a process of its own.
func (t *Teller) die(a model.Address, deed uint64) {
	s := t.Oracle
	if s.Tracing {
		s.Logf("%s teller %d DIES of %x", t.Process.Name(), t.ID, deed)
	}
	s.Ledger.CheckLoss(a, deed)
	for _, gen := range t.Held {
		s.Ledger.LoseTeller(t.deeds[gen])
	}
	t.leaving, t.gone, t.died, t.Held = true, true, true, nil
	t.Host.Follow(func(now model.Time, l *lane.Lane) { l.Lose(now, t.ID, t.Unseen) })
	t.Host.DismissTeller(t)
	t.Host.ReplaceTeller()
}

// IsDead reports whether a call has killed the teller.
func (t *Teller) IsDead() bool { return t.died }

// report reports the outcome of calls to the current incarnation, even if the teller has left.
func (t *Teller) report(r model.Operated) {
	s := t.Oracle
	if t.died {
		return
	}
	t.Held = slices.DeleteFunc(t.Held, func(gen uint64) bool { return gen == r.Generation })
	delete(t.deeds, r.Generation)
	if s.Tracing {
		s.Logf("%s teller %d reports %d calls of %s, gen %x", t.Process.Name(), t.ID, len(r.Results), r.Entity.Key, r.Generation)
	}
	t.Host.Post(r.Generation, func(now model.Time, l *lane.Lane) { l.FinishCalls(now, t.ID, &r) })
}
