package gate

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

// circuit is a breaker as this node sees it. If this node owns the breaker, the circuit has the
// breaker itself (owner). If nodes share the breaker, the circuit has a view of the breaker (view).
// Exactly one of the two fields is set.
type circuit struct {
	id    rule.BreakerID
	owner *breaker.Breaker
	view  *breaker.View
	// groups are the groups that the breaker has refused. The next change of the breaker wakes
	// them.
	groups []string
	// listed says that the circuit is in Gate.dirty.
	listed bool
}

// circuitOf returns the breaker of a plan and creates it if necessary. It returns nil if the plan
// has no breaker.
func (g *Gate) circuitOf(now model.Time, p *Plan) *circuit {
	if p.breaker.IsZero() {
		return nil
	}
	return g.circuit(now, p.breaker)
}

func (g *Gate) circuit(now model.Time, id rule.BreakerID) *circuit {
	c := g.circuits[id]
	if c == nil {
		c = &circuit{id: id}
		if g.owns == nil {
			c.owner = breaker.New(g.rules.BreakerConfig(id), now)
		} else {
			c.view = breaker.NewView()
			c.view.Receive(now, g.sharedBreaker(now, id).News(now))
		}
		g.circuits[id] = c
	}
	return c
}

func (c *circuit) until(now model.Time) (model.Time, string) {
	if c.owner != nil {
		return c.owner.Until(now)
	}
	return c.view.Until(now)
}

func (c *circuit) allow(now model.Time, lease time.Duration) breaker.Answer {
	if c.owner != nil {
		return c.owner.Allow(now, lease)
	}
	return c.view.Allow(now, lease)
}

func (c *circuit) finish(now model.Time, p breaker.Permit, how breaker.Outcome) (changed bool) {
	if c.owner != nil {
		return c.owner.Done(now, p, how)
	}
	c.view.Done(now, p, how)
	return false
}

// refuse remembers which group to wake, and returns the refusal.
func (c *circuit) refuse(group string, until model.Time, text string) (ok bool, why model.Reason, again model.Time) {
	if !slices.Contains(c.groups, group) {
		c.groups = append(c.groups, group)
	}
	return false, model.Reason{Code: model.WaitBreaker, Name: c.id.String(), Until: until, Detail: text}, until
}

// sharedBreaker returns a shared breaker as this node last saw it, with its configuration brought
// up to date.
func (g *Gate) sharedBreaker(now model.Time, id rule.BreakerID) *breaker.Breaker {
	config := g.rules.BreakerConfig(id)
	b := g.stored[id]
	if b == nil {
		b = breaker.New(config, now)
		g.stored[id] = b
	}
	if b.Status(now).Config != config {
		b.Configure(now, config)
	}
	return b
}

// publish passes on what has happened at a circuit. For a view, it queues the reports to the shared
// breaker. If this node owns the breaker and the breaker has changed, publish marks the row of the
// breaker as dirty and wakes the refused groups.
func (g *Gate) publish(now model.Time, c *circuit, changed bool) {
	if c.view != nil {
		m, ok := c.view.Tell()
		if !ok {
			return
		}
		g.numbered++
		m.Place, m.Seq = int64(g.home), g.numbered
		g.asks = append(g.asks, Ask{Breaker: c.id, ToOwner: m})
		g.unsent[c.id] = append(g.unsent[c.id], m)

		// This node acts on its own observations immediately, before they are stored. Only the
		// stored breaker grants probes.
		if m.Ask = false; len(m.Reports) > 0 || !m.RetryAfter.IsZero() {
			b := g.sharedBreaker(now, c.id)
			b.Receive(now, &m)
			if c.view.Receive(now, b.News(now)) {
				g.wakeCircuit(c)
			}
		}

		return
	}

	if changed {
		if !c.listed {
			c.listed = true
			g.dirty = append(g.dirty, c)
		}
		g.wakeCircuit(c)
	}
}

func (g *Gate) wakeCircuit(c *circuit) {
	for _, group := range c.groups {
		g.rouse(group)
	}
	c.groups = nil
}

// RetryAfter records that the callee asked for no calls before the given time. It applies to the
// breaker of the task, which the task or a rule names. If the task has none, nothing happens.
func (g *Gate) RetryAfter(now model.Time, it *Task, until model.Time) {
	c := g.circuitOf(now, g.planOf(it))
	switch {
	case c == nil:
	case c.owner != nil:
		g.publish(now, c, c.owner.RetryAfter(now, until))
	default:
		c.view.RetryAfter(until)
		g.publish(now, c, false)
	}
}
