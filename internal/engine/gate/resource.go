package gate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

// If there are fewer resources than minSweep, sweep does not look for unused ones.
const minSweep = 1 << 14

// maxNamed is the number of holders that a refusal names.
const maxNamed = 3

// resource is a limit as this node sees it.
type resource struct {
	id    rule.Resource
	local *limit.Local
	owner *limit.Owner // nil if another node owns the limit
	// line holds the waiting groups in order. Some of them may have left; see trim.
	line []*taskGroup
	// named holds a few holders to name in refusals.
	named []model.TaskRef
	gone  bool
}

// available reports whether the node has a permit and a token left to hand out.
func (r *resource) available() bool {
	permit, token := r.local.Shortage()
	return !permit && !token
}

// resourceOf returns the resource of a limit and creates it if necessary.
func (g *Gate) resourceOf(now model.Time, u *use) *resource {
	if u.r != nil && !u.r.gone {
		return u.r
	}
	u.r = g.resource(now, u.Resource, u.Numbers)
	return u.r
}

func (g *Gate) resource(now model.Time, id rule.Resource, n limit.Numbers) *resource {
	r := g.resources[id]
	if r == nil {
		r = &resource{id: id, local: limit.NewLocal(n)}
		if g.owns == nil || g.owns(id) {
			r.owner = limit.NewOwner(n, now)
		}
		g.resources[id] = r
	}
	return r
}

// exchange passes messages between the local part of a limit and its owner: directly if the owner
// is here, otherwise by queueing them in Out.
func (g *Gate) exchange(now model.Time, r *resource) {
	for {
		m, ok := r.local.Tell()
		if !ok {
			break
		}
		if r.owner == nil {
			g.out = append(g.out, Message{Resource: r.id, ToOwner: m})
			return
		}
		g.deliver(r, r.owner.Receive(now, g.home, m))
	}

	if _, token := r.local.Shortage(); token && r.owner != nil && r.local.WaiterCount() > 0 {
		if sends := r.owner.Tick(now); len(sends) > 0 {
			g.deliver(r, sends)
			g.exchange(now, r)
		}
	}
}

// deliver hands the messages of a local owner to this place. An owner on this node has messages for
// this place only.
func (g *Gate) deliver(r *resource, sends []limit.Send) {
	for _, s := range sends {
		if s.To == g.home && r.local.Receive(s.ToPlace) {
			g.wake(r)
		}
	}
}

// wake wakes the groups at the head of the line, as many as there are free permits.
func (g *Gate) wake(r *resource) {
	if len(r.line) == 0 {
		return
	}
	r.trim()
	n := r.local.Block() - r.local.HolderCount()
	if r.local.Numbers().Concurrency == 0 {
		n = r.local.WaiterCount()
	}

	for _, q := range r.line {
		if n <= 0 {
			return
		}
		if q.at == r && !q.ready {
			g.rouse(q.name)
			n -= q.waiting
		}
	}
}

// rouse adds a group to the woken ones.
func (g *Gate) rouse(group string) {
	if n := len(g.woken); n == 0 || g.woken[n-1] != group {
		g.woken = append(g.woken, group)
	}
}

// trim drops groups that no longer wait here. At the head of the line it drops them every time.
// Elsewhere it drops them once the line is more than about twice as long as the number of waiting
// tasks.
func (r *resource) trim() {
	k := 0
	for k < len(r.line) && r.line[k].at != r {
		k++
	}
	r.line = r.line[k:]

	if len(r.line) > 2*r.local.WaiterCount()+16 {
		// A group that left and came back is in the line twice. It keeps its first place.
		seen := make(map[*taskGroup]bool, r.local.WaiterCount())
		r.line = slices.DeleteFunc(r.line, func(q *taskGroup) bool {
			if q.at != r || seen[q] {
				return true
			}
			seen[q] = true
			return false
		})
	}
}

// refusal returns why a task does not pass here, and when to ask again.
func (r *resource) refusal(now model.Time) (why model.Reason, again model.Time) {
	n := r.local.Numbers()
	if permit, _ := r.local.Shortage(); permit {
		return model.Reason{Code: model.WaitPermit, Name: r.id.String(), Detail: r.describeHolders(n.Concurrency)}, 0
	}
	why = model.Reason{Code: model.WaitRate, Name: r.id.String(), Detail: n.String()}
	if r.owner != nil {
		if again = r.owner.Next(); !again.IsZero() {
			again = max(again, now+1)
		}
		why.Until = again
	}
	return why, again
}

// describeHolders describes which tasks hold the permits, as far as this node knows.
func (r *resource) describeHolders(of int) string {
	if len(r.named) == 0 && r.local.HolderCount() > 0 {
		r.named = holders(r)
		r.named = slices.Clip(r.named[:min(len(r.named), maxNamed)])
	}

	var b strings.Builder
	if r.local.HolderCount() < of {
		fmt.Fprintf(&b, "%d of %d are here, the others elsewhere", r.local.Block(), of)
	} else {
		fmt.Fprintf(&b, "all %d are held", of)
	}

	for i, ref := range r.named {
		if i == 0 {
			b.WriteString(", by ")
		} else {
			b.WriteString("; ")
		}
		b.WriteString(ref.String())
	}

	if more := r.local.HolderCount() - len(r.named); more > 0 && len(r.named) > 0 {
		fmt.Fprintf(&b, "; and %d more", more)
	}
	return b.String()
}

// holders returns the holders of a limit in the order of their names.
func holders(r *resource) []model.TaskRef {
	list := r.local.Holders()
	slices.SortFunc(list, model.TaskRef.Compare)
	return list
}

func (r *resource) name(ref model.TaskRef) {
	if len(r.named) < maxNamed {
		r.named = append(r.named, ref)
	}
}

func (r *resource) unname(ref model.TaskRef) {
	if i := slices.Index(r.named, ref); i >= 0 {
		r.named = slices.Delete(r.named, i, i+1)
	}
}

// sweep drops unused resources. It runs when there are twice as many resources as were left after
// the last run.
func (g *Gate) sweep(now model.Time) {
	if len(g.resources) < g.sweepAt {
		return
	}

	var distant []*resource
	for _, r := range g.resources {
		switch {
		case !r.local.Idle():
		case r.owner != nil: // sends no message, so the order does not matter
			g.forget(now, r)
		default:
			distant = append(distant, r)
		}
	}

	slices.SortFunc(distant, func(a, b *resource) int { return a.id.Compare(b.id) })
	for _, r := range distant {
		g.forget(now, r)
	}
	g.sweepAt = max(minSweep, 2*len(g.resources))
}

// forget returns the leased permits of an idle resource to its owner, and drops the resource if
// nothing about it is left to remember.
func (g *Gate) forget(now model.Time, r *resource) {
	r.local.Drain()
	g.exchange(now, r)
	if r.local.IsGone() && (r.owner == nil || r.owner.Idle(now)) {
		r.gone = true
		delete(g.resources, r.id)
	}
}

// Rest returns the leased permits of all unused limits.
func (g *Gate) Rest(now model.Time) {
	for _, r := range g.sortedResources() {
		if r.local.Idle() {
			g.forget(now, r)
		}
	}
}
