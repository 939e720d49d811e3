package workload

import (
	"context"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/cluster"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// drawFlow draws a change of a setting by a user.
func (u *user) drawFlow() *action {
	s := u.s
	set := func(what string, do func(p *cluster.Proc) error) *action {
		o := u.op(model.Message{})
		o.set, o.What = do, what
		return o
	}

	id := rule.BreakerID{Tenant: scenario.Tenant, Name: kernel.OneOf(s, scenario.BreakerNames[:]...)}
	switch n := s.Pick(14); {
	case n < 3:
		limit := func(l rule.Limit) *action {
			return set("set limit "+l.Name, func(p *cluster.Proc) error { return p.Flow.SetLimit(context.Background(), scenario.Tenant, l, true) })
		}
		l := s.DrawLimit()
		if s.Chance(0.3) { // two users change the setting at the same time
			other := l
			other.Numbers.Concurrency = 1 + s.Pick(3)
			s.After(0, nil, func() { limit(other).perform(func() {}) })
		}
		return limit(l)
	case n < 4:
		return endLimit(s.DrawLimit(), set)
	case n < 6:
		b := s.DrawBreaker()
		return set("set breaker "+scenario.NameOf(&b), func(p *cluster.Proc) error { return p.Flow.SetBreaker(context.Background(), scenario.Tenant, b) })
	case n < 7:
		b := s.DrawBreaker()
		return set("remove breaker "+scenario.NameOf(&b), func(p *cluster.Proc) error {
			return p.Flow.DeleteBreaker(context.Background(), scenario.Tenant, scenario.NameOf(&b))
		})
	case n < 9:
		return set("trip "+id.Name, func(p *cluster.Proc) error { return p.Flow.Trip(context.Background(), id, "by a user") })
	case n < 10:
		wait := kernel.Microseconds(s.Between(5, 200) * kernel.Millisecond)
		return set("pause "+id.Name, func(p *cluster.Proc) error {
			return p.Flow.Pause(context.Background(), id, p.Cluster.StoreTime().Add(wait), "by a user")
		})
	case n < 11:
		return set("reset "+id.Name, func(p *cluster.Proc) error { return p.Flow.Reset(context.Background(), id) })
	default:
		queue := kernel.OneOf(s, scenario.TaskQueues[:]...)
		s.Did(scenario.OpQueuePaused)
		s.After(s.Between(1, 300)*kernel.Millisecond, nil, func() {
			set("resume "+queue, func(p *cluster.Proc) error { return p.Flow.ResumeQueue(context.Background(), scenario.Tenant, queue) }).perform(func() {})
		})
		return set("pause "+queue, func(p *cluster.Proc) error {
			return p.Flow.PauseQueue(context.Background(), scenario.Tenant, queue, "by a user")
		})
	}
}

// endLimit disables, enables or removes a limit. The numbers of the drawn limit decide which of the
// three it does.
func endLimit(l rule.Limit, set func(what string, do func(p *cluster.Proc) error) *action) *action {
	switch l.Numbers.Concurrency {
	case 1:
		return set("disable limit "+l.Name, func(p *cluster.Proc) error {
			return p.Flow.DisableLimit(context.Background(), scenario.Tenant, l.Name, "by a user")
		})
	case 2:
		return set("enable limit "+l.Name, func(p *cluster.Proc) error { return p.Flow.EnableLimit(context.Background(), scenario.Tenant, l.Name) })
	}
	return set("remove limit "+l.Name, func(p *cluster.Proc) error { return p.Flow.DeleteLimit(context.Background(), scenario.Tenant, l.Name) })
}

// answerSetting handles the answer to an attempt to change a setting.
func (o *action) answerSetting(a *lane.Answer, again, end func()) {
	switch {
	case a.Err == nil:
		o.Acked = true
		o.u.s.Did(scenario.OpSet)
		end()
	case fault.Is(a.Err, fault.Conflict), fault.Is(a.Err, fault.NotFound):
		end()
	case o.Tries < 4:
		again()
	default:
		o.Unknown = true
		end()
	}
}

// openGates removes every permanent obstacle once all faults have ended: it resumes queues, creates
// the limits that tasks name, and sets a rule for the breaker that tasks name. Without a rule, the
// breaker has the default times, which are too long for a simulation.
func (s *Workload) openGates() {
	if !s.Has(scenario.Gates) || s.opening != nil && !s.opening.Done {
		return
	}
	list, err := s.Disk.Mem.ListSettings(context.Background(), scenario.Tenant, "")
	if err != nil {
		s.Fail("settings: %v", err)
	}

	paused, named, ruled := "", false, false
	for i := range list {
		switch x := &list[i]; {
		case x.Kind == scenario.SettingQueue && paused == "":
			paused = x.Name
		case x.Kind == scenario.SettingLimit && x.Name == "named":
			named = true
		case x.Kind == scenario.SettingBreaker && x.Name == scenario.BreakerNames[0]:
			ruled = true
		}
	}

	var do func(p *cluster.Proc) error
	switch {
	case paused != "":
		do = func(p *cluster.Proc) error { return p.Flow.ResumeQueue(context.Background(), scenario.Tenant, paused) }
	case !ruled:
		b := rule.Breaker{Name: scenario.BreakerNames[0], Config: s.DrawBreaker().Config}
		do = func(p *cluster.Proc) error { return p.Flow.SetBreaker(context.Background(), scenario.Tenant, b) }
	case !named:
		l := rule.Limit{Name: "named", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}}
		do = func(p *cluster.Proc) error { return p.Flow.SetLimit(context.Background(), scenario.Tenant, l, true) }
	default:
		return
	}

	s.opening = s.helper.op(model.Message{})
	s.opening.set, s.opening.What = do, "open"
	s.opening.perform(func() {})
}
