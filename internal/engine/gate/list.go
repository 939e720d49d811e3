package gate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

// LimitStatus is the state of a limit on this node.
type LimitStatus struct {
	Resource rule.Resource
	Numbers  limit.Numbers
	// Holders are the tasks of this node that hold permits of the limit, sorted by name. Waiters
	// are the tasks that the limit has refused, in the order in which they started to wait. A
	// waiter represents its group: the dispatcher does not ask the gate about the other tasks of
	// the group.
	Holders []model.TaskRef
	Waiters []Waiter
	Groups  []string // the groups of the waiters
	// Block is how many permits are leased to this node, including the permits that its tasks hold.
	Block int
}

// Waiter is a task that waits for a limit.
type Waiter struct {
	Ref   model.TaskRef
	Since model.Time
}

// BreakerStatus is the state of a breaker.
type BreakerStatus struct {
	ID rule.BreakerID
	breaker.Status
}

// Limits lists the limits that are in use on this node, in canonical order.
func (g *Gate) Limits() []LimitStatus {
	var list []LimitStatus
	waiting, groups := map[*resource][]Waiter{}, map[*resource][]string{}
	for _, e := range g.entries {
		if q := e.queued; q != nil && q.at != nil {
			waiting[q.at] = append(waiting[q.at], Waiter{e.ref, e.since})
			groups[q.at] = append(groups[q.at], q.name)
		}
	}

	for _, r := range g.sortedResources() {
		s := LimitStatus{Resource: r.id, Numbers: r.local.Numbers(), Holders: holders(r), Block: r.local.Block()}
		s.Waiters, s.Groups = waiting[r], groups[r]
		slices.Sort(s.Groups)
		s.Groups = slices.Compact(s.Groups)
		slices.SortFunc(s.Waiters, func(a, b Waiter) int { return cmp.Or(cmp.Compare(a.Since, b.Since), a.Ref.Compare(b.Ref)) })
		if len(s.Holders)+len(s.Waiters)+s.Block > 0 {
			list = append(list, s)
		}
	}

	return list
}

// LimitLoad counts the permits of a limit on this node.
type LimitLoad struct {
	Resource rule.Resource
	Held     int      // permits that tasks hold
	Block    int      // permits that are leased to this node, including Held
	Groups   []string // the groups that wait for the limit
}

// Loads returns the loads of all limits that this node keeps, used or not, in no particular order.
// It is cheaper than Limits, because it does not visit the tasks.
func (g *Gate) Loads() []LimitLoad {
	groups := map[*resource][]string{}
	for name, q := range g.groups {
		if q.at != nil {
			groups[q.at] = append(groups[q.at], name)
		}
	}

	list := make([]LimitLoad, 0, len(g.resources))
	for id, r := range g.resources {
		list = append(list, LimitLoad{Resource: id, Held: r.local.HolderCount(), Block: r.local.Block(), Groups: groups[r]})
	}
	return list
}

// BreakerPermit returns the permit that a task has from its breaker. The permit is zero if the task
// has no breaker, or if an earlier owner admitted the task. It is also zero if this node has
// replaced the state of the breaker since it admitted the task, see Adopt.
func (g *Gate) BreakerPermit(ref model.TaskRef) breaker.Permit {
	if e := g.entries[ref]; e != nil {
		return e.permit
	}
	return breaker.Permit{}
}

// Breakers lists the breakers that this node has used, sorted by name.
func (g *Gate) Breakers(now model.Time) []BreakerStatus {
	var list []BreakerStatus
	for c := range maps.Values(g.circuits) {
		b := c.owner
		if b == nil {
			b = g.sharedBreaker(now, c.id)
		}
		list = append(list, BreakerStatus{c.id, b.Status(now)})
	}
	slices.SortFunc(list, func(a, b BreakerStatus) int {
		return strings.Compare(a.ID.Tenant+"\x00"+a.ID.Name, b.ID.Tenant+"\x00"+b.ID.Name)
	})
	return list
}
