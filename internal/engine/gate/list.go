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

// LimitStatus is how a limit stands on this node.
type LimitStatus struct {
	Resource rule.Resource
	Numbers  limit.Numbers
	// Holders are the tasks of this node that hold it, by name; Waiters those that wait for it, who came first first.
	Holders []model.TaskRef
	Waiters []Waiter
	// Block is how many permits this node may give; Leases what each place has, where the owner lives here.
	Block  int
	Leases []limit.Lease
}

// Waiter is a task that waits for a limit.
type Waiter struct {
	Ref   model.TaskRef
	Since model.Time
}

// BreakerStatus is how a breaker stands.
type BreakerStatus struct {
	ID rule.BreakerID
	// Owned tells that this node decides; others know its state alone.
	Owned bool
	breaker.Status
}

// Limits lists those that are in use on this node, in canonical order.
func (g *Gate) Limits() []LimitStatus {
	var list []LimitStatus
	waiting := map[*resource][]Waiter{}
	for _, e := range g.entries {
		if q := e.queued; q != nil && q.at != nil {
			waiting[q.at] = append(waiting[q.at], Waiter{e.ref, e.since})
		}
	}
	for _, r := range g.sorted() {
		s := LimitStatus{Resource: r.id, Numbers: r.local.Numbers(), Holders: holders(r), Block: r.local.Block()}
		if r.owner != nil {
			s.Leases = r.owner.Leases()
		}
		s.Waiters = waiting[r]
		slices.SortFunc(s.Waiters, func(a, b Waiter) int { return cmp.Or(cmp.Compare(a.Since, b.Since), compare(a.Ref, b.Ref)) })
		if len(s.Holders)+len(s.Waiters)+len(s.Leases) > 0 {
			list = append(list, s)
		}
	}
	return list
}

// Breakers lists those that this node has used, by name.
func (g *Gate) Breakers(now model.Time) []BreakerStatus {
	var list []BreakerStatus
	for c := range maps.Values(g.circuits) {
		s := BreakerStatus{ID: c.id, Owned: c.owner != nil}
		if c.owner != nil {
			s.Status = c.owner.Status(now)
		} else {
			s.Status = c.view.Status(now)
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b BreakerStatus) int {
		return strings.Compare(a.ID.Tenant+"\x00"+a.ID.Name, b.ID.Tenant+"\x00"+b.ID.Name)
	})
	return list
}
