package rule

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// MaxRules bounds the rules with the same tenant pattern, because the engine compares each task of
// a matching tenant with each of these rules. It skips all rules of a pattern that does not match
// the tenant.
const MaxRules = 1000

// Set is a set of rules that fit together. It never changes. The nil Set has no rules.
type Set struct {
	limits   []*parsedLimit
	breakers []*parsedBreaker
	groups   map[pattern]*group
	open     []*group // groups for several tenants
}

// group is the rules that select the same tenants.
type group struct {
	tenant   pattern
	limits   []*parsedLimit
	breakers []*parsedBreaker
}

// parsedLimit is a limit with its patterns and its path.
type parsedLimit struct {
	Limit
	tenant, queue, kind pattern
	path                Path
}

// parsedBreaker is a breaker rule with its patterns.
type parsedBreaker struct {
	Breaker
	tenant, name pattern // name of the breaker, or of the kind
}

// NewSet checks rules, each alone and all together, and returns everything that is wrong.
func NewSet(limits []Limit, breakers []Breaker) (*Set, error) {
	s, problems := Fit(limits, breakers)
	switch len(problems) {
	case 0:
		return s, nil
	case 1:
		return nil, problems[0]
	}
	return nil, fault.New(fault.KindOf(problems[0]), "%w", errors.Join(problems...))
}

// Fit makes a set of the rules that are valid and do not contradict a rule before them, and of at
// most MaxRules rules per tenant pattern. It leaves out the others, and returns what is wrong with
// them.
func Fit(limits []Limit, breakers []Breaker) (s *Set, problems []error) {
	s = &Set{groups: map[pattern]*group{}}
	full := map[*group]int{} // rules beyond the bound, per group
	for i := range limits {
		p, err := parseLimit(limits[i])
		if err != nil {
			problems = append(problems, err)
			continue
		}
		g := s.group(p.tenant)
		switch wrong := g.against(&p); {
		case len(wrong) > 0:
			problems = append(problems, wrong...)
		case g.full():
			full[g]++
		default:
			s.limits, g.limits = append(s.limits, &p), append(g.limits, &p)
		}
	}

	for i := range breakers {
		p, err := parseBreaker(breakers[i])
		if err != nil {
			problems = append(problems, err)
			continue
		}
		g := s.group(p.tenant)
		switch {
		case slices.ContainsFunc(g.breakers, func(o *parsedBreaker) bool { return p.name == o.name && (p.Kind != "") == (o.Kind != "") }):
			problems = append(problems, fault.New(fault.Conflict, "two breaker rules select the same breakers: %s", p.describe()))
		case g.full():
			full[g]++
		default:
			s.breakers, g.breakers = append(s.breakers, &p), append(g.breakers, &p)
		}
	}

	for _, g := range slices.SortedFunc(maps.Keys(full), func(a, b *group) int { return strings.Compare(a.tenant.String(), b.tenant.String()) }) {
		problems = append(problems, fault.New(fault.Invalid, "tenant %s: %d rules, at most %d", g.tenant, MaxRules+full[g], MaxRules))
	}
	return s, problems
}

// group returns the group of a tenant pattern. It adds the group to the set if it is missing.
func (s *Set) group(tenant pattern) *group {
	g := s.groups[tenant]
	if g == nil {
		g = &group{tenant: tenant}
		if s.groups[tenant] = g; tenant.open {
			s.open = append(s.open, g)
		}
	}
	return g
}

// of iterates over the groups that select a tenant.
func (s *Set) of(tenant string) iter.Seq[*group] {
	return func(yield func(*group) bool) {
		if s == nil {
			return
		}
		if g := s.groups[pattern{text: tenant}]; g != nil && !yield(g) {
			return
		}
		for _, g := range s.open {
			if g.tenant.matches(tenant) && !yield(g) {
				return
			}
		}
	}
}

// full reports whether the group has as many rules as it may.
func (g *group) full() bool { return len(g.limits)+len(g.breakers) >= MaxRules }

// against returns the contradictions between a limit and the group.
func (g *group) against(p *parsedLimit) (problems []error) {
	for _, other := range g.limits {
		if err := p.conflictWith(other); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// parseLimit checks a limit alone.
func parseLimit(l Limit) (p parsedLimit, err error) {
	p.Limit = l
	if err := checkName(l.Name); err != nil {
		return p, err
	}

	wrap := func(err error) error { return fault.New(fault.KindOf(err), "limit %s: %w", l.Name, err) }
	for _, f := range []struct {
		what, text string
		into       *pattern
	}{{"tenant", l.Tenant, &p.tenant}, {"queue", l.Queue, &p.queue}, {"activity", l.Kind, &p.kind}} {
		if *f.into, err = parsePattern(f.what, f.text); err != nil {
			return p, wrap(err)
		}
	}

	switch l.Per {
	case Shared, PerQueue, PerKind, PerTenant, PerName:
		if l.Key != "" {
			return p, fault.New(fault.Invalid, "limit %s has a key, so it must be per key, not per %q", l.Name, l.Per.Word())
		}
	case PerKey:
		if p.path, err = ParsePath(l.Key); err != nil {
			return p, wrap(err)
		}
	default:
		return p, fault.New(fault.Invalid, "limit %s: per is %q, must be queue, activity, tenant, key or name", l.Name, string(l.Per))
	}

	if l.Per == PerName && (p.queue != pattern{open: true} || p.kind != pattern{open: true}) {
		return p, fault.New(fault.Invalid, "limit %s: per is name, so only tasks that name the limit use it: leave out the queue and the activity", l.Name)
	}
	if err := l.Numbers.Validate(); err != nil {
		return p, wrap(err)
	}
	if l.Why != "" && !l.Disabled {
		return p, fault.New(fault.Invalid, "limit %s has the reason of a disabled limit, but is not disabled", l.Name)
	}

	return p, nil
}

// checkName refuses names that could be confused with keys or with syntax of the command line.
func checkName(name string) error {
	if name == "" || len(name) > MaxName || strings.ContainsFunc(name, func(r rune) bool {
		return !(r < 0x80 && (letter(byte(r), false) || r == '.' || r == '-' || r == ':'))
	}) {
		return fault.New(fault.Invalid, "%q is not a name of a limit: 1 to %d letters, digits, and . _ - :", name, MaxName)
	}
	return nil
}

// conflictWith returns an error if two rules have the same name, or if they have the same patterns,
// scope and key but different numbers. The caller passes rules with the same tenant pattern. A
// disabled rule contradicts only a rule with the same name.
func (p *parsedLimit) conflictWith(other *parsedLimit) error {
	if p.Name == other.Name {
		return fault.New(fault.Conflict, "two limits are called %s", p.Name)
	}
	if p.Disabled || other.Disabled {
		return nil
	}
	if p.queue == other.queue && p.kind == other.kind && p.Per == other.Per && p.Key == other.Key && p.Per != PerName && p.Numbers != other.Numbers {
		return fault.New(fault.Conflict, "limits %s and %s contradict each other: both are for tenant %s, queue %s, activity %s, but %s allows %s, and %s %s",
			other.Name, p.Name, p.tenant, p.queue, p.kind, other.Name, other.Numbers, p.Name, p.Numbers)
	}
	return nil
}

// parseBreaker checks a breaker rule alone.
func parseBreaker(b Breaker) (p parsedBreaker, err error) {
	p.Breaker = b
	if (b.Name == "") == (b.Kind == "") {
		return p, fault.New(fault.Invalid, "a breaker rule needs either a name (* for all) or an activity: it has name %q, activity %q", b.Name, b.Kind)
	}
	if p.tenant, err = parsePattern("tenant", b.Tenant); err != nil {
		return p, err
	}
	if p.name, err = parsePattern("breaker", b.Name+b.Kind); err != nil {
		return p, err
	}
	if err := b.Config.Validate(); err != nil {
		return p, fault.New(fault.KindOf(err), "%s: %w", p.describe(), err)
	}
	return p, nil
}

// describe names a breaker rule in an error.
func (p *parsedBreaker) describe() string {
	if p.Kind != "" {
		return "breakers of activity " + p.name.String() + ", tenant " + p.tenant.String()
	}
	return "breaker " + p.name.String() + ", tenant " + p.tenant.String()
}

// CheckQueues returns an error for a rule that selects no known queue.
func (s *Set) CheckQueues(known []string) error {
	for _, l := range s.Limits() {
		q, err := parsePattern("queue", l.Queue)
		if err != nil {
			return err
		}
		if q != (pattern{open: true}) && !slices.ContainsFunc(known, q.matches) {
			return fault.New(fault.NotFound, "limit %s: there is no queue %s", l.Name, l.Queue)
		}
	}
	return nil
}

// Limits returns the limits of the set.
func (s *Set) Limits() (list []Limit) {
	if s == nil {
		return nil
	}
	for _, l := range s.limits {
		list = append(list, l.Limit)
	}
	return list
}

// Breakers returns the breaker rules of the set.
func (s *Set) Breakers() (list []Breaker) {
	if s == nil {
		return nil
	}
	for _, b := range s.breakers {
		list = append(list, b.Breaker)
	}
	return list
}

// Use is a resource that a task needs a permit for.
type Use struct {
	Resource Resource
	Numbers  limit.Numbers
	// Missing says that the task names a limit that no rule defines. The task waits until there is
	// such a rule, because until then the engine does not know how many of these tasks may run.
	Missing bool
}

// Resolve lists the resources that a task needs, in canonical order, each once.
func (s *Set) Resolve(tenant string, spec *model.TaskSpec, input *model.Payload) (uses []Use) {
	// The rules that select the task.
	for g := range s.of(tenant) {
		for _, l := range g.limits {
			if spec.Queue == model.InlineQueue && (l.Queue != "" || l.Per == PerQueue) {
				continue // the task has no queue
			}
			if l.Disabled || l.Per == PerName || !l.queue.matches(spec.Queue) || !l.kind.matches(spec.Kind) {
				continue
			}
			r := l.resource(tenant)

			switch l.Per {
			case Shared, PerTenant, PerName:
			case PerQueue:
				r.Key = keyOf(spec.Queue)
			case PerKind:
				r.Key = keyOf(spec.Kind)
			case PerKey:
				r.Key = l.path.Key(input)
			}

			uses = append(uses, Use{Resource: r, Numbers: l.Numbers})
		}
	}

	// The limits that the task names.
	for _, named := range spec.Limits {
		name, key, _ := strings.Cut(named, "/")
		found := false
		for g := range s.of(tenant) {
			for _, l := range g.limits {
				if l.Per != PerName || l.Name != name {
					continue
				}
				found = true
				if l.Disabled {
					continue
				}
				r := l.resource(tenant)
				r.Key = keyOf(key)
				uses = append(uses, Use{Resource: r, Numbers: l.Numbers})
			}
		}
		if !found {
			uses = append(uses, Use{Resource: Resource{Name: name, Selector: tenant, Tenant: tenant, Key: keyOf(key)}, Missing: true})
		}
	}

	slices.SortFunc(uses, func(a, b Use) int { return a.Resource.Compare(b.Resource) })
	return slices.CompactFunc(uses, func(a, b Use) bool { return a.Resource == b.Resource })
}

// resource returns the resource of a rule for a tenant, without its key.
func (l *parsedLimit) resource(tenant string) Resource {
	r := Resource{Name: l.Name, Selector: l.tenant.String(), Tenant: tenant}
	if l.Per == Shared && l.tenant.open {
		r.Tenant = ""
	}
	return r
}

// Numbers returns what a resource allows. It returns false if no rule defines the resource, or only
// a disabled rule does.
func (s *Set) Numbers(r Resource) (n limit.Numbers, ok bool) {
	if s != nil {
		text, open := strings.CutSuffix(r.Selector, "*")
		if g := s.groups[pattern{text, open}]; g != nil {
			for _, l := range g.limits {
				if l.Name == r.Name && !l.Disabled {
					return l.Numbers, true
				}
			}
		}
	}
	return n, false
}

// Compare is the canonical order in which a task takes several resources.
func (r Resource) Compare(other Resource) int {
	return cmp.Or(
		strings.Compare(r.Name, other.Name), strings.Compare(r.Selector, other.Selector),
		strings.Compare(r.Tenant, other.Tenant), strings.Compare(r.Key, other.Key),
	)
}

// Breaker returns the breaker of a task and its configuration. The id is zero if the task has no
// breaker.
func (s *Set) Breaker(tenant string, spec *model.TaskSpec) (BreakerID, breaker.Config) {
	id := BreakerID{Tenant: tenant, Name: spec.Breaker}
	if spec.Breaker == "" {
		if s.best(tenant, spec.Kind, true) == nil {
			return BreakerID{}, breaker.Config{}
		}
		id.Name = KindBreaker(spec.Kind)
	}
	return id, s.BreakerConfig(id)
}

// BreakerConfig returns the configuration of a breaker, with defaults. For the breaker of a kind, a
// rule for kinds wins over a rule for names.
func (s *Set) BreakerConfig(id BreakerID) breaker.Config {
	best := s.best(id.Tenant, id.Name, false)
	if kind, ok := strings.CutPrefix(id.Name, KindBreaker("")); ok {
		if b := s.best(id.Tenant, kind, true); b != nil {
			best = b
		}
	}
	if best == nil {
		return breaker.Config{}.WithDefaults()
	}
	return best.Config.WithDefaults()
}

// best returns the most specific rule for a kind or for a name.
func (s *Set) best(tenant, text string, kind bool) (best *parsedBreaker) {
	for g := range s.of(tenant) {
		for _, b := range g.breakers {
			if (b.Kind != "") != kind || !b.name.matches(text) {
				continue
			}
			if best == nil || cmp.Or(b.tenant.special()-best.tenant.special(), b.name.special()-best.name.special()) > 0 {
				best = b
			}
		}
	}
	return best
}
