package sim

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Rules that people set: numbers are drawn each time.

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
	if s.shared { // a probe and the permits that it needs come one after the other, each with a write: in less time than that, nobody would have all of them at once
		b.Config.Lease += 200 * time.Millisecond
	}
	return b
}

// breakerNames are those of the breaker that tasks name, and of that of a kind.
var breakerNames = [...]string{"b0", rule.KindBreaker(taskKinds[1])}

// drawSettings has some rules from the beginning.
func (s *Sim) drawSettings() {
	for range 3 {
		l := s.drawLimit()
		s.put(settingLimit, l.Name, l)
	}
	b := s.drawBreaker()
	s.put(settingBreaker, b.Name+b.Kind, b)
}

func (s *Sim) put(kind, name string, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		s.fail("%s %s: %v", kind, name, err)
	}
	x := store.Setting{SettingKey: store.SettingKey{Tenant: tenant, Kind: kind, Name: name}, Body: body}
	_, _ = s.disk.mem.PutSetting(background, x, 0) // there may be one already
}

// drawFlow is something that a user sets.
func (u *user) drawFlow() *op {
	s := u.s
	set := func(what string, do func(f *flow, then func(error))) *op {
		o := u.op(model.Message{})
		o.set, o.what = do, what
		return o
	}
	write := func(kind, name string, value any) *op {
		return set("set "+kind+" "+name, func(f *flow, then func(error)) {
			f.change(store.SettingKey{Tenant: tenant, Kind: kind, Name: name}, func(*store.Setting) ([]byte, bool, error) {
				body, err := json.Marshal(value)
				return body, true, err
			}, then)
		})
	}
	remove := func(kind, name string) *op {
		return set("remove "+kind+" "+name, func(f *flow, then func(error)) {
			f.change(store.SettingKey{Tenant: tenant, Kind: kind, Name: name}, func(old *store.Setting) ([]byte, bool, error) { return nil, old != nil, nil }, then)
		})
	}
	name := oneOf(s, breakerNames[:]...)
	operate := func(what string, do func(now model.Time, o *breaker.Breaker)) *op {
		return set(what+" "+name, func(f *flow, then func(error)) { f.operate(name, do, then) })
	}
	switch n := s.pick(14); {
	case n < 3:
		l := s.drawLimit()
		return write(settingLimit, l.Name, l)
	case n < 4:
		return remove(settingLimit, s.drawLimit().Name)
	case n < 6:
		b := s.drawBreaker()
		return write(settingBreaker, b.Name+b.Kind, b)
	case n < 7:
		b := s.drawBreaker()
		return remove(settingBreaker, b.Name+b.Kind)
	case n < 9:
		return operate("trip", func(now model.Time, o *breaker.Breaker) { o.Trip(now, "by a user") })
	case n < 10:
		wait := microseconds(s.between(5, 200) * millisecond)
		return operate("pause", func(now model.Time, o *breaker.Breaker) { o.PauseUntil(now, now.Add(wait), "by a user") })
	case n < 11:
		return operate("reset", func(now model.Time, o *breaker.Breaker) { o.Reset(now) })
	default:
		queue := oneOf(s, taskQueues[:]...)
		s.did(opQueuePaused)
		s.after(s.between(1, 300)*millisecond, nil, func() { remove(settingQueue, queue).perform(func() {}) })
		return write(settingQueue, queue, map[string]string{"why": "by a user"})
	}
}

// answerSetting is what came of a try to set something.
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

// openGates has nothing stand in the way for ever, once everything has healed: queues are resumed, limits that tasks name exist, and so does a rule for the breaker
// that they name, which has numbers for people otherwise.
func (s *Sim) openGates() {
	if !s.gates || s.opening != nil && !s.opening.done {
		return
	}
	list, err := s.disk.mem.ListSettings(background, tenant, "")
	if err != nil {
		s.fail("settings: %v", err)
	}
	missing := map[store.SettingKey]any{
		{Tenant: tenant, Kind: settingLimit, Name: "named"}:           rule.Limit{Name: "named", Tenant: tenant, Per: rule.PerName, Numbers: limit.Numbers{Concurrency: 1}},
		{Tenant: tenant, Kind: settingBreaker, Name: breakerNames[0]}: rule.Breaker{Name: breakerNames[0], Tenant: tenant, Config: s.drawBreaker().Config},
	}
	for i := range list {
		x := &list[i]
		delete(missing, x.SettingKey)
		if x.Kind == settingQueue {
			s.open(func(f *flow, then func(error)) {
				f.change(x.SettingKey, func(old *store.Setting) ([]byte, bool, error) { return nil, old != nil, nil }, then)
			})
			return
		}
	}
	if keys := slices.SortedFunc(maps.Keys(missing), store.SettingKey.Compare); len(keys) > 0 {
		body, err := json.Marshal(missing[keys[0]])
		if err != nil {
			s.fail("setting %s: %v", keys[0], err)
		}
		s.open(func(f *flow, then func(error)) {
			f.change(keys[0], func(*store.Setting) ([]byte, bool, error) { return body, true, nil }, then)
		})
	}
}

func (s *Sim) open(do func(f *flow, then func(error))) {
	s.opening = s.helper.op(model.Message{})
	s.opening.set, s.opening.what = do, "open"
	s.opening.perform(func() {})
}

// disagreeing says where a node knows other settings than the store, or acts on another state of a breaker.
func (s *Sim) disagreeing() string {
	list, err := s.disk.mem.ListSettings(background, tenant, "")
	if err != nil {
		s.fail("settings: %v", err)
	}
	if s.shared {
		global, err := s.disk.mem.ListSettings(background, "", "")
		if err != nil {
			s.fail("settings: %v", err)
		}
		list = append(list, global...)
	}
	for _, p := range s.procs {
		if p == nil || p.inc == nil {
			return "a node is away"
		}
		f := p.flow
		if len(f.dirty) > 0 || len(f.all) != len(list) {
			return p.name() + " knows others"
		}
		for i := range list {
			x := &list[i]
			if mine := f.all[x.SettingKey]; mine.Version != x.Version || !bytes.Equal(mine.Body, x.Body) {
				return p.name() + " knows another " + strings.Join([]string{x.Kind, x.Name}, " ")
			}
			if x.Kind != settingState {
				continue
			}
			o, err := breaker.Decode(x.Body)
			if err != nil {
				s.fail("breaker %s: %v", x.Name, err)
			}
			want, got := o.Status(p.now()), p.inc.board.keeper.status(p.now(), rule.BreakerID{Tenant: tenant, Name: x.Name})
			if s.shared && got == (breaker.Status{}) {
				continue // no task of the node has come to it
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

// checkFlows demands that all nodes come to act on the same settings.
func (s *Sim) checkFlows() {
	if !s.gates {
		return
	}
	s.runUntil(s.now+8*s.plan.ttl.Microseconds(), func() bool { return s.disagreeing() == "" })
	if what := s.disagreeing(); what != "" {
		s.fail("settings: everything has ended, and %s", what)
	}
}
