package gate

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

// circuit is a breaker as this node sees it: the machine itself, or a view of one that others
// share.
type circuit struct {
	id    rule.BreakerID
	owner *breaker.Breaker
	view  *breaker.View
	// groups were refused and are to be woken.
	groups []string
	listed bool
}

// circuitOf finds the breaker of a plan, or makes it; nil when it has none.
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
			c.view.Receive(now, g.stand(now, id).News(now))
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

func (c *circuit) done(now model.Time, p breaker.Permit, how breaker.Outcome) (changed bool) {
	if c.owner != nil {
		return c.owner.Done(now, p, how)
	}
	c.view.Done(now, p, how)
	return false
}

// refuse remembers who is to be woken, and says why.
func (c *circuit) refuse(group string, until model.Time, text string) (ok bool, why model.Reason, again model.Time) {
	if !slices.Contains(c.groups, group) {
		c.groups = append(c.groups, group)
	}
	return false, model.Reason{Code: model.WaitBreaker, Name: c.id.String(), Until: until, Detail: text}, until
}

// stand is a breaker that others share as it was last seen, with the numbers of today.
func (g *Gate) stand(now model.Time, id rule.BreakerID) *breaker.Breaker {
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

// told passes on what a view has to tell, or has a breaker that was changed stored, and wakes those
// whom it had refused.
func (g *Gate) told(now model.Time, c *circuit, changed bool) {
	if c.view != nil {
		m, ok := c.view.Tell()
		if !ok {
			return
		}
		g.numbered++
		m.Place, m.Seq = int64(g.home), g.numbered
		g.asks = append(g.asks, Ask{Breaker: c.id, ToOwner: m})
		g.unsent[c.id] = append(g.unsent[c.id], m)

		// What this node has seen itself it acts on at once, as it will be stored unless somebody
		// else gets ahead. Probes are given out by what is stored alone.
		if m.Ask = false; len(m.Reports) > 0 || !m.RetryAfter.IsZero() {
			b := g.stand(now, c.id)
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

// RetryAfter is what the other side of a task has said: nobody is to call it before the time. The
// task names the breaker; without one nothing happens.
func (g *Gate) RetryAfter(now model.Time, it *Item, until model.Time) {
	c := g.circuitOf(now, g.planOf(it))
	switch {
	case c == nil:
	case c.owner != nil:
		g.told(now, c, c.owner.RetryAfter(now, until))
	default:
		c.view.RetryAfter(until)
		g.told(now, c, false)
	}
}
