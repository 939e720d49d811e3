package scenario

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/store"
)

// Kinds of settings, as they are stored.
const (
	SettingLimit   = "limit"
	SettingBreaker = "breaker"
	SettingState   = "breaker_state"
	SettingQueue   = "queue"
	SettingPage    = "limit_page"
	SettingFound   = "limit_found"
)

// Uses reports whether a set of rules says that a task needs a resource.
func Uses(set *rule.Set, spec *model.TaskSpec, in *model.Payload, r rule.Resource) bool {
	return slices.ContainsFunc(set.Resolve(Tenant, spec, in), func(u rule.Use) bool { return u.Resource == r })
}

// The functions below draw rules that users set. Each time they draw new numbers for a rule.

// DrawLimit draws a limit that a user sets.
func (s *Scenario) DrawLimit() rule.Limit {
	l := kernel.OneOf(
		s, rule.Limit{Name: "all"}, rule.Limit{Name: "kinds", Per: rule.PerKind}, rule.Limit{Name: "first", Queue: TaskQueues[0]}, rule.Limit{Name: "named", Per: rule.PerName},
	)
	l.Tenant = Tenant
	if l.Name != "first" || s.Chance(0.3) {
		l.Numbers.Concurrency = 1 + s.Pick(3)
	}
	if l.Name == "first" || s.Chance(0.2) {
		l.Numbers.Rate, l.Numbers.Per, l.Numbers.Burst = s.Between(1, 4), kernel.Microseconds(s.Between(5, 40)*kernel.Millisecond), s.Between(0, 3)
	}
	return l
}

// DrawBreaker draws a breaker that a user sets.
func (s *Scenario) DrawBreaker() rule.Breaker {
	b := kernel.OneOf(s, rule.Breaker{Name: BreakerNames[0]}, rule.Breaker{Kind: TaskKinds[1]})
	b.Tenant = Tenant
	b.Config = breaker.Config{
		Failures: 1 + s.Pick(3), Window: kernel.Microseconds(s.Between(20, 400) * kernel.Millisecond), Successes: 1 + s.Pick(2), Probes: 1 + s.Pick(2),
		Reset: kernel.Microseconds(s.Between(5, 150) * kernel.Millisecond), Lease: kernel.Microseconds(s.Between(20, 200) * kernel.Millisecond), MaxRetryAfter: kernel.Microseconds(s.Between(5, 60) * kernel.Millisecond),
	}
	// A task needs a probe and permits. It gets the probe and each permit one after the other, each
	// with a write. With a shorter lease, the probe would expire before the task has all permits.
	if s.Has(SharedGates) {
		b.Config.Lease += 200 * time.Millisecond
	}
	return b
}

// BreakerNames are the names of two breakers: one that tasks name, and one for all tasks of a kind.
var BreakerNames = [...]string{"b0", rule.KindBreaker(TaskKinds[1])}

// NameOf returns the name of the breaker of a rule.
func NameOf(b *rule.Breaker) string {
	if b.Kind != "" {
		return rule.KindBreaker(b.Kind)
	}
	return b.Name
}

// drawSettings sets some rules at the start.
func (s *Scenario) drawSettings() {
	for range 3 {
		l := s.DrawLimit()
		s.put(SettingLimit, l.Name, l)
	}
	b := s.DrawBreaker()
	s.put(SettingBreaker, NameOf(&b), b)
}

func (s *Scenario) put(kind, name string, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		s.Fail("%s %s: %v", kind, name, err)
	}
	s.Settings = append(s.Settings, store.Setting{SettingKey: store.SettingKey{Tenant: Tenant, Kind: kind, Name: name}, Body: body})
}

// PermitsOf returns the limits whose permits a task needs.
func PermitsOf(set *rule.Set, spec *model.TaskSpec, in *model.Payload) (list []rule.Resource) {
	for _, u := range set.Resolve(Tenant, spec, in) {
		if u.Numbers.Concurrency > 0 {
			list = append(list, u.Resource)
		}
	}
	return list
}
