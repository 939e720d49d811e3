package service

import (
	"context"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/spelling"
)

// mostNames is the largest number of known names that an error lists.
const mostNames = 20

// knownBreakers returns the names of breakers that exist. A breaker exists if it has a state or a
// rule, or if an activity of a live worker names it. A name that ends in * means all names with
// this prefix.
func (s *Service) knownBreakers(ctx context.Context, tenant string) ([]string, error) {
	st, err := s.flow().State(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range st.Breakers {
		names = append(names, st.Breakers[i].ID.Name)
	}
	rules, err := s.BreakerRules(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for i := range rules {
		names = append(names, rules[i].Name)
	}

	workers, err := s.ListWorkers(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for i := range workers {
		names = append(names, workers[i].Breakers...)
	}
	// The store learns about a worker of this process some seconds after the worker has joined. So
	// ask the engine of this process too.
	if s.engine != nil {
		_, serves, _ := s.engine.Self()
		for i := range serves {
			if serves[i].Tenant == tenant {
				names = append(names, serves[i].Breakers...)
			}
		}
	}

	slices.Sort(names)
	return slices.Compact(names), nil
}

// checkBreaker refuses the name of a breaker that does not exist. Without this check, a trip or a
// pause with a misspelt name would succeed, and would hold back no task.
func (s *Service) checkBreaker(ctx context.Context, op, tenant, name string) error {
	names, err := s.knownBreakers(ctx, tenant)
	if err != nil {
		return err
	}
	for _, known := range names {
		if begin, open := strings.CutSuffix(known, "*"); known == name || open && strings.HasPrefix(name, begin) {
			return nil
		}
	}
	err = fault.New(fault.NotFound, "%s: there is no breaker %.80s", op, name)
	return fault.WithHint(err, "%s; set a rule for a new name first", breakerHint(name, names))
}

// breakerHint names the breakers with the most similar names. If none is similar, it names the
// first mostNames breakers.
func breakerHint(name string, known []string) string {
	if len(known) == 0 {
		return "there are no breakers yet"
	}
	var near []string
	for _, k := range known {
		if spelling.Distance(name, k) <= (len(name)+2)/3 {
			near = append(near, k)
		}
	}
	if len(near) > 0 {
		return "did you mean " + strings.Join(near[:min(len(near), 3)], " or ") + "?"
	}
	more := ""
	if len(known) > mostNames {
		known, more = known[:mostNames], ", …"
	}
	return "known breakers: " + strings.Join(known, ", ") + more
}
