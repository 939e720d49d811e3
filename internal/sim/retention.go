package sim

import (
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Closed runs and dead tasks leave after a while: the lanes remove runs, and the sweep of their
// owner removes dead tasks. What must hold (R1): without a request, nothing leaves before its time;
// an open run never leaves; a dead task does not leave while the task that it was requeued as is
// open; and a retention that a run states at its end counts. And (R2) everything leaves: when
// nothing else happens, within its time plus two sweeps.

// forever is the retention of rows that never leave.
const forever = time.Duration(1<<63 - 1)

// drawRetention decides the retention times.
func (s *Sim) drawRetention() {
	p := &s.plan
	if !s.chance(0.6) {
		return
	}
	p.lane.Retention = oneOf(s, 100*time.Millisecond, 400*time.Millisecond, 1500*time.Millisecond)
	p.lane.RetainEvery = oneOf(s, 50*time.Millisecond, 200*time.Millisecond, 500*time.Millisecond)
	p.keepDead = oneOf(s, 0, 150*time.Millisecond, 600*time.Millisecond)
}

// drawRetain draws the retention that the runs of a program state themselves.
func (s *Sim) drawRetain() time.Duration {
	if s.plan.lane.Retention == 0 {
		return 0
	}
	return oneOf(s, 0, 0, 0, microseconds(s.between(10, 900)*millisecond), forever)
}

// retained adds the retention of its program to the end of a run.
func (h *hold) retained(end *model.Close) *model.Close {
	if end == nil || h.m.p.retain == 0 {
		return end
	}
	c := *end
	c.Retain = h.m.p.retain
	return &c
}

// leaves returns when a closed run may be removed. ever is false for a run that stays.
func (r *run) leaves(s *Sim) (at model.Time, ever bool) {
	if own := r.outcome.Leaves; own != 0 {
		return own, own < epoch+model.Time(365*24*3600*second)
	}
	return max(r.outcome.At, r.start.At).Add(s.plan.lane.Retention), s.plan.lane.Retention > 0
}

// checkLeaves checks that the retention in the end of a run is the one of its program.
func (l *ledger) checkLeaves(r *run) {
	program, _, _, ok := parseInput(r.start.Input)
	byCode := ok && r.start.Task == nil && r.outcome.Status != model.Terminated && !(r.outcome.Status == model.Continued && r.outcome.Failure != nil)
	want := model.Time(0)
	if byCode && l.s.programs[program].retain != 0 {
		want = r.outcome.At.Add(l.s.programs[program].retain)
	}
	if r.outcome.Leaves != want {
		l.fail("R1: %s leaves at %s, its program says %s", r.id, r.outcome.Leaves, want)
	}
}

// expired checks that a run may leave: a user has asked for it, or its time is over.
func (l *ledger) expired(r *run) {
	if r.condemned {
		return
	}
	at, ever := r.leaves(l.s)
	if now := l.s.fairTime(); !ever || at > now {
		l.fail("R1: %s is removed at %s, and was to stay until %s", r.id, now, at)
	}
	l.s.did(opExpired)
	if r.outcome.Leaves != 0 {
		l.s.did(opExpiredOwn)
	}
}

// sweepDead purges dead tasks whose retention is over, as incarnation.sweepDead does, and schedules
// the next sweep.
func (inc *incarnation) sweepDead() {
	s, p := inc.p.s, inc.p
	if inc.ended {
		return
	}
	s.after(s.plan.lane.RetainEvery.Microseconds(), p, inc.sweepDead)
	if !p.clock.MayDelete(p.mono()) {
		return
	}

	var mine []model.ShardID
	for i := range inc.owner {
		if inc.owner[i] {
			mine = append(mine, model.ShardID(i))
		}
	}

	const page = 3
	now := p.now()
	var rows []store.DeadRow
	var going []store.DeadRow

	s.disk.call(&request{
		p: p, name: "load dead", fate: s.disk.draw(faultRepliesFails, faultRepliesFails, false),
		exec: func(done func()) {
			rows, _ = s.disk.mem.LoadDeadBefore(background, mine, now.Add(-s.plan.keepDead), inc.swept, page)
			for _, row := range rows {
				q := row.Body.Requeued
				run, _ := s.disk.mem.LoadExecution(background, q.Address.Shard(s.plan.shards), q.Address, q.Run)
				if engine.Purgeable(&row, run, now) {
					going = append(going, row)
				}
			}
			done()
		},
		ok: func() {
			for _, row := range going {
				o := &model.DeadTaskOrder{Do: model.DeadTaskPurge, Ref: model.TaskRef{Address: row.Body.Address, Run: row.Run, ID: row.Task}, Count: row.Requeued, Run: row.Body.Requeued.Run}
				p.deliver(&model.Message{Kind: model.MessageRequeue, To: o.Ref.Address, DeadTask: o}, false, func(*lane.Answer) {})
			}
			inc.swept = store.DeadPlace{}
			if len(rows) == page {
				inc.swept = rows[page-1].Place()
			}
		},
		bad: func(error) {},
	})
}

// checkGone waits until every retention is over, and checks that everything has left (R2).
func (s *Sim) checkGone() {
	if s.plan.lane.Retention == 0 {
		return
	}

	last := s.storeTime()
	for _, r := range s.ledger.order {
		if at, ever := r.leaves(s); ever {
			last = max(last, at)
		}
	}

	for _, x := range s.ledger.letterOrder {
		if s.plan.keepDead > 0 {
			last = max(last, x.body.At.Add(s.plan.keepDead), x.body.Requeued.At.Add(engine.OnItsWay))
		}
	}

	// The slack covers the time until a node may delete anything because of its age, the walks of a
	// lane and the sweeps, each page of both, slow clocks, and older commits that a fence has to
	// wait for.
	wait := (s.plan.clock.Persist + s.plan.clock.Hold).Microseconds()
	slack := wait + int64(3+len(s.ledger.letterOrder))*s.plan.lane.RetainEvery.Microseconds() + second + s.skew() + 8*s.plan.slow
	s.runUntil(int64(last)-epoch-s.shift+slack, func() bool { return s.staying() == "" })
	if what := s.staying(); what != "" {
		s.fail("R2: everything has ended, and %s stays behind its time", what)
	}
	s.sweepAll()

	for _, r := range s.ledger.order {
		if r.deleted != 0 {
			s.checkDeleted(r)
		}
	}

	s.checkLetters()
}

// staying returns something that should have left and is still there.
func (s *Sim) staying() string {
	for _, r := range s.ledger.order {
		if _, ever := r.leaves(s); ever && r.deleted == 0 {
			return short(r.id)
		}
	}
	if s.plan.keepDead > 0 {
		for _, x := range s.ledger.letterOrder {
			// the start of its requeue may be in flight
			if r := s.ledger.runs[x.body.Requeued.Run]; !x.purged && (r == nil || r.deleted == 0) {
				return "the dead letter of " + x.ref.String()
			}
		}
	}
	return ""
}
