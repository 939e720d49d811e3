package sim

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Rules that users set. Their numbers are drawn each time.

func (s *Sim) drawLimit() rule.Limit {
	l := oneOf(
		s, rule.Limit{Name: "all"}, rule.Limit{Name: "kinds", Per: rule.PerKind}, rule.Limit{Name: "first", Queue: taskQueues[0]}, rule.Limit{Name: "named", Per: rule.PerName},
	)
	l.Tenant = tenant
	if l.Name != "first" || s.chance(0.3) {
		l.Numbers.Concurrency = 1 + s.pick(3)
	}
	if l.Name == "first" || s.chance(0.2) {
		l.Numbers.Rate, l.Numbers.Per, l.Numbers.Burst = s.between(1, 4), microseconds(s.between(5, 40)*millisecond), s.between(0, 3)
	}
	return l
}

func (s *Sim) drawBreaker() rule.Breaker {
	b := oneOf(s, rule.Breaker{Name: breakerNames[0]}, rule.Breaker{Kind: taskKinds[1]})
	b.Tenant = tenant
	b.Config = breaker.Config{
		Failures: 1 + s.pick(3), Window: microseconds(s.between(20, 400) * millisecond), Successes: 1 + s.pick(2), Probes: 1 + s.pick(2),
		Reset: microseconds(s.between(5, 150) * millisecond), Lease: microseconds(s.between(20, 200) * millisecond), MaxRetryAfter: microseconds(s.between(5, 60) * millisecond),
	}
	// A task needs a probe and permits, and gets them one after the other, each with a write. With
	// a shorter lease no task would have all of them at once.
	if s.shared {
		b.Config.Lease += 200 * time.Millisecond
	}
	return b
}

// breakerNames are the breaker that tasks name, and the breaker of a kind.
var breakerNames = [...]string{"b0", rule.KindBreaker(taskKinds[1])}

// nameOf returns the name of the breaker of a rule.
func nameOf(b *rule.Breaker) string {
	if b.Kind != "" {
		return rule.KindBreaker(b.Kind)
	}
	return b.Name
}

// drawSettings sets some rules at the start.
func (s *Sim) drawSettings() {
	for range 3 {
		l := s.drawLimit()
		s.put(settingLimit, l.Name, l)
	}
	b := s.drawBreaker()
	s.put(settingBreaker, nameOf(&b), b)
}

func (s *Sim) put(kind, name string, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		s.fail("%s %s: %v", kind, name, err)
	}
	x := store.Setting{SettingKey: store.SettingKey{Tenant: tenant, Kind: kind, Name: name}, Body: body}
	_, _ = s.disk.mem.PutSetting(background, x, 0) // there may be one already
}

// drawFlow draws a change of a setting by a user.
func (u *user) drawFlow() *op {
	s := u.s
	set := func(what string, do func(p *proc) error) *op {
		o := u.op(model.Message{})
		o.set, o.what = do, what
		return o
	}

	id := rule.BreakerID{Tenant: tenant, Name: oneOf(s, breakerNames[:]...)}
	switch n := s.pick(14); {
	case n < 3:
		limit := func(l rule.Limit) *op {
			return set("set limit "+l.Name, func(p *proc) error { return p.flow.SetLimit(background, tenant, l, true) })
		}
		l := s.drawLimit()
		if s.chance(0.3) { // two users at the same time
			other := l
			other.Numbers.Concurrency = 1 + s.pick(3)
			s.after(0, nil, func() { limit(other).perform(func() {}) })
		}
		return limit(l)
	case n < 4:
		name := s.drawLimit().Name
		return set("remove limit "+name, func(p *proc) error { return p.flow.DeleteLimit(background, tenant, name) })
	case n < 6:
		b := s.drawBreaker()
		return set("set breaker "+nameOf(&b), func(p *proc) error { return p.flow.SetBreaker(background, tenant, b) })
	case n < 7:
		b := s.drawBreaker()
		return set("remove breaker "+nameOf(&b), func(p *proc) error { return p.flow.DeleteBreaker(background, tenant, nameOf(&b)) })
	case n < 9:
		return set("trip "+id.Name, func(p *proc) error { return p.flow.Trip(background, id, "by a user") })
	case n < 10:
		wait := microseconds(s.between(5, 200) * millisecond)
		return set("pause "+id.Name, func(p *proc) error { return p.flow.Pause(background, id, p.s.storeTime().Add(wait), "by a user") })
	case n < 11:
		return set("reset "+id.Name, func(p *proc) error { return p.flow.Reset(background, id) })
	default:
		queue := oneOf(s, taskQueues[:]...)
		s.did(opQueuePaused)
		s.after(s.between(1, 300)*millisecond, nil, func() {
			set("resume "+queue, func(p *proc) error { return p.flow.ResumeQueue(background, tenant, queue) }).perform(func() {})
		})
		return set("pause "+queue, func(p *proc) error { return p.flow.PauseQueue(background, tenant, queue, "by a user") })
	}
}

// answerSetting handles the answer to an attempt to change a setting.
func (o *op) answerSetting(a *lane.Answer, again, end func()) {
	switch {
	case a.Err == nil:
		o.acked = true
		o.user.s.did(opSet)
		end()
	case fault.Is(a.Err, fault.Conflict), fault.Is(a.Err, fault.NotFound):
		end()
	case o.tries < 4:
		again()
	default:
		o.unknown = true
		end()
	}
}

// openGates removes every permanent obstacle once all faults have ended: it resumes queues, creates
// the limits that tasks name, and sets a rule for the breaker that they name, whose numbers are
// otherwise too long for a simulation.
func (s *Sim) openGates() {
	if !s.gates || s.opening != nil && !s.opening.done {
		return
	}
	list, err := s.disk.mem.ListSettings(background, tenant, "")
	if err != nil {
		s.fail("settings: %v", err)
	}

	paused, named, ruled := "", false, false
	for i := range list {
		switch x := &list[i]; {
		case x.Kind == settingQueue && paused == "":
			paused = x.Name
		case x.Kind == settingLimit && x.Name == "named":
			named = true
		case x.Kind == settingBreaker && x.Name == breakerNames[0]:
			ruled = true
		}
	}

	var do func(p *proc) error
	switch {
	case paused != "":
		do = func(p *proc) error { return p.flow.ResumeQueue(background, tenant, paused) }
	case !ruled:
		b := rule.Breaker{Name: breakerNames[0], Config: s.drawBreaker().Config}
		do = func(p *proc) error { return p.flow.SetBreaker(background, tenant, b) }
	case !named:
		l := rule.Limit{Name: "named", Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}}
		do = func(p *proc) error { return p.flow.SetLimit(background, tenant, l, true) }
	default:
		return
	}

	s.opening = s.helper.op(model.Message{})
	s.opening.set, s.opening.what = do, "open"
	s.opening.perform(func() {})
}

// disagreeing returns where a node has other settings than the store, or uses another state of a
// breaker.
func (s *Sim) disagreeing() string {
	for _, p := range s.procs {
		if p == nil || p.inc == nil {
			return "a node is away"
		}
		if p.threads > 0 {
			return p.name() + " reads or writes settings"
		}
	}

	list, err := s.disk.mem.ListSettings(background, tenant, "")
	if err != nil {
		s.fail("settings: %v", err)
	}
	var rules []store.Setting

	paused := map[string]bool{}
	for i := range list {
		switch x := &list[i]; x.Kind {
		case settingLimit, settingBreaker:
			rules = append(rules, *x)
		case settingQueue:
			paused[x.Name] = true
		}
	}

	set := s.rulesOf(rules)
	for _, p := range s.procs {
		k, now := p.inc.board.keeper, p.now()
		if mine := k.rules(); !slices.Equal(mine.Limits(), set.Limits()) || !slices.Equal(mine.Breakers(), set.Breakers()) {
			return p.name() + " goes by other rules"
		}

		if !maps.Equal(k.b.paused, paused) {
			return p.name() + " has other queues paused"
		}

		for i := range list {
			x := &list[i]
			if x.Kind != settingState {
				continue
			}
			o, err := breaker.Decode(x.Body)
			if err != nil {
				s.fail("breaker %s: %v", x.Name, err)
			}
			want, got := o.Status(now), k.status(now, rule.BreakerID{Tenant: tenant, Name: x.Name})
			if s.shared && got == (breaker.Status{}) {
				continue // the breaker had no task on this node
			}
			if got.State != want.State || got.Since != want.Since || got.Held != want.Held {
				return p.name() + " acts on another state of breaker " + x.Name
			}
		}
	}

	if s.shared {
		return s.unsettled()
	}
	return ""
}

// rulesOf makes a rule set from stored settings.
func (s *Sim) rulesOf(list []store.Setting) *rule.Set {
	slices.SortFunc(list, func(a, b store.Setting) int { return cmp.Compare(a.Version, b.Version) })
	var limits []rule.Limit
	var breakers []rule.Breaker
	for i := range list {
		x, err := &list[i], error(nil)
		if x.Kind == settingLimit {
			limits = append(limits, rule.Limit{})
			err = json.Unmarshal(x.Body, &limits[len(limits)-1])
		} else {
			breakers = append(breakers, rule.Breaker{})
			err = json.Unmarshal(x.Body, &breakers[len(breakers)-1])
		}
		if err != nil {
			s.fail("setting %s: %v", x.SettingKey, err)
		}
	}

	set, err := rule.NewSet(limits, breakers)
	if err != nil {
		s.fail("rules: %v", err)
	}
	return set
}

// checkFlows checks that all nodes use the same settings in the end.
func (s *Sim) checkFlows() {
	if !s.gates {
		return
	}
	s.runUntil(s.now+8*s.plan.ttl.Microseconds(), func() bool { return s.disagreeing() == "" })
	if what := s.disagreeing(); what != "" {
		s.fail("settings: everything has ended, and %s", what)
	}
}
