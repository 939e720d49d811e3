package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// disagreeing describes a node whose settings or breaker states differ from the store. It returns
// an empty string if there is none.
func (s *Cluster) disagreeing() string {
	for _, p := range s.Procs {
		if p == nil || p.Inc == nil {
			return "a node is away"
		}
		if p.Threads > 0 {
			return p.Name() + " reads or writes settings"
		}
	}

	list, err := s.Disk.Mem.ListSettings(context.Background(), scenario.Tenant, "")
	if err != nil {
		s.Fail("settings: %v", err)
	}
	var rules []store.Setting

	paused := map[string]bool{}
	for i := range list {
		switch x := &list[i]; x.Kind {
		case scenario.SettingLimit, scenario.SettingBreaker:
			rules = append(rules, *x)
		case scenario.SettingQueue:
			paused[x.Name] = true
		}
	}

	set := s.rulesOf(rules)
	for _, p := range s.Procs {
		k, now := p.Inc.board.keeper, p.Now()
		if mine := k.rules(); !slices.Equal(mine.Limits(), set.Limits()) || !slices.Equal(mine.Breakers(), set.Breakers()) {
			return p.Name() + " goes by other rules"
		}

		if !maps.Equal(k.b.paused, paused) {
			return p.Name() + " has other queues paused"
		}

		for i := range list {
			x := &list[i]
			if x.Kind != scenario.SettingState {
				continue
			}
			o, err := breaker.Decode(x.Body)
			if err != nil {
				s.Fail("breaker %s: %v", x.Name, err)
			}
			want, got := o.Status(now), k.status(now, rule.BreakerID{Tenant: scenario.Tenant, Name: x.Name})
			if s.Has(scenario.SharedGates) && got == (breaker.Status{}) {
				continue // the breaker had no task on this node
			}
			if got.State != want.State || got.Since != want.Since || got.Held != want.Held {
				return p.Name() + " acts on another state of breaker " + x.Name
			}
		}
	}

	if s.Has(scenario.SharedGates) {
		return s.unsettled()
	}
	return ""
}

// rulesOf makes a rule set from stored settings.
func (s *Cluster) rulesOf(list []store.Setting) *rule.Set {
	slices.SortFunc(list, func(a, b store.Setting) int { return cmp.Compare(a.Version, b.Version) })
	var limits []rule.Limit
	var breakers []rule.Breaker
	for i := range list {
		x, err := &list[i], error(nil)
		if x.Kind == scenario.SettingLimit {
			limits = append(limits, rule.Limit{})
			err = json.Unmarshal(x.Body, &limits[len(limits)-1])
		} else {
			breakers = append(breakers, rule.Breaker{})
			err = json.Unmarshal(x.Body, &breakers[len(breakers)-1])
		}
		if err != nil {
			s.Fail("setting %s: %v", x.SettingKey, err)
		}
	}

	set, err := rule.NewSet(limits, breakers)
	if err != nil {
		s.Fail("rules: %v", err)
	}
	return set
}

// CheckFlows checks that all nodes use the same settings in the end.
func (s *Cluster) CheckFlows() {
	if !s.Has(scenario.Gates) {
		return
	}
	s.RunUntil(s.Now+8*s.LongestTtl().Microseconds(), func() bool { return s.disagreeing() == "" })
	if what := s.disagreeing(); what != "" {
		s.Fail("settings: everything has ended, and %s", what)
	}
}
