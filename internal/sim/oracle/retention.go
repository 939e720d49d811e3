package oracle

import (
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// Closed runs and dead tasks leave the store after a while: the lanes remove runs, and the sweep of
// their owner removes dead tasks. Rule R1 says: nothing leaves before its time, unless a user asks
// for it. An open run never leaves. A requeued dead task stays until the new task has ended. A
// retention that a run states at its end applies to that run. Rule R2 says: everything leaves in
// the end. If nothing else happens, a row leaves within its time plus two sweeps.

// leaves returns when a closed run may be removed. ever is false for a run that stays in the store
// forever.
func (r *Run) leaves(s *Oracle) (at model.Time, ever bool) {
	if own := r.outcome.Leaves; own != 0 {
		return own, own < kernel.Epoch+model.Time(365*24*3600*kernel.Second)
	}
	return max(r.outcome.At, r.Start.At).Add(s.Plan.Lane.Retention), s.Plan.Lane.Retention > 0
}

// checkLeaves checks that a run states the retention of its program at its end.
func (l *ledger) checkLeaves(b *store.Batch, r *Run) {
	program, _, _, ok := scenario.ParseInput(r.Start.Input)
	byCode := ok && r.Start.Task == nil && r.outcome.Status != model.Terminated && !r.unbegun && !timedOut(&r.outcome)
	if r.outcome.Status == model.Continued && r.outcome.Failure != nil {
		byCode = repeats(b, r) // false if a reset ended the run
	}
	want := model.Time(0)
	if byCode && l.s.Programs[program].Retain != 0 {
		want = r.outcome.At.Add(l.s.Programs[program].Retain)
	}
	if r.outcome.Leaves != want {
		l.Fail("R1: %s leaves at %s, its program says %s", r.ID, r.outcome.Leaves, want)
	}
}

// checkExpiry checks that a run may leave the store: a user has asked for that, or the retention of
// the run is over.
func (l *ledger) checkExpiry(r *Run) {
	if r.condemned {
		return
	}
	at, ever := r.leaves(l.s)
	if now := l.s.FairTime(); !ever || at > now {
		l.Fail("R1: %s is removed at %s, but must stay until %s", r.ID, now, at)
	}
	l.s.Did(scenario.OpExpired)
	if r.outcome.Leaves != 0 {
		l.s.Did(scenario.OpExpiredOwn)
	}
}

// CheckGone waits until every retention is over, and checks that everything has left (R2).
func (s *Oracle) CheckGone() {
	if s.Plan.Lane.Retention == 0 {
		return
	}

	last := s.StoreTime()
	for _, r := range s.Ledger.Order {
		if at, ever := r.leaves(s); ever {
			last = max(last, at)
		}
	}

	for _, x := range s.Ledger.DeadOrder {
		if s.Plan.KeepDead > 0 {
			last = max(last, x.Body.At.Add(s.Plan.KeepDead), x.Body.Requeued.At.Add(engine.OnItsWay))
		}
	}

	// Rows may leave later than their time by this slack. It covers the time until a node may
	// delete rows by age. It covers the rounds in which a lane looks for old runs, and the sweeps
	// with all their pages. It also covers slow clocks, and older commits that a fence has to wait
	// for.
	wait := (s.Plan.Clock.Persist + s.Plan.Clock.Hold).Microseconds()
	slack := wait + int64(3+len(s.Ledger.DeadOrder))*s.Plan.Lane.RetainEvery.Microseconds() + kernel.Second + s.skew() + 8*s.Plan.Slow
	s.RunUntil(int64(last)-kernel.Epoch-s.Shift+slack, func() bool { return s.Staying() == "" })
	if what := s.Staying(); what != "" {
		s.Fail("R2: everything has ended, but %s is still in the store after its time", what)
	}
	s.SweepAll()

	for _, r := range s.Ledger.Order {
		if r.Deleted != 0 {
			s.CheckDeleted(r)
		}
	}

	s.CheckDead()
}

// Staying returns something that should have left and is still in the store.
func (s *Oracle) Staying() string {
	for _, r := range s.Ledger.Order {
		if _, ever := r.leaves(s); ever && r.Deleted == 0 {
			return scenario.Short(r.ID)
		}
	}
	if s.Plan.KeepDead > 0 {
		for _, x := range s.Ledger.DeadOrder {
			// r is nil while the message that starts the requeued task is in flight
			if r := s.Ledger.Runs[x.Body.Requeued.Run]; !x.Purged && (r == nil || r.Deleted == 0) && !s.KnowsDamage(x) {
				return "the dead task of " + x.Ref.String()
			}
		}
	}
	return ""
}
