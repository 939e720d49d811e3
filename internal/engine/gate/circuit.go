package gate

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// circuit is a breaker as this node sees it: the machine itself, or a view of it.
type circuit struct {
	id    rule.BreakerID
	owner *breaker.Owner
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
		if g.owns(id.Address()) {
			c.owner = breaker.New(g.rules.BreakerConfig(id), now)
		} else {
			c.view = breaker.NewView()
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

// told sends what others are to hear of a breaker, and wakes those whom it had refused.
func (g *Gate) told(now model.Time, c *circuit, changed bool) {
	if c.view != nil {
		if m, ok := c.view.Tell(); ok {
			g.out = append(g.out, Message{Breaker: c.id, Place: g.home, ToBreaker: &m})
		}
		return
	}
	if changed {
		g.spread(c, c.owner.Tell(now))
	}
}

// spread sends news of a breaker that was changed, which is to be stored.
func (g *Gate) spread(c *circuit, sends []breaker.Send) {
	for _, s := range sends {
		g.out = append(g.out, Message{Breaker: c.id, Place: s.To, News: &s.News})
	}
	g.save(c)
	g.wakeCircuit(c)
}

func (g *Gate) wakeCircuit(c *circuit) {
	for _, group := range c.groups {
		g.rouse(group)
	}
	c.groups = nil
}

// Trip opens a breaker; see breaker.Breaker.Trip. One that there is not is made.
func (g *Gate) Trip(now model.Time, id rule.BreakerID, why string) error {
	return g.operate(now, id, true, func(o *breaker.Owner) { o.Trip(now, why) })
}

// Pause lets nothing through a breaker before a time; one in the past ends the pause. A breaker that there is not is made.
func (g *Gate) Pause(now model.Time, id rule.BreakerID, until model.Time, why string) error {
	return g.operate(now, id, true, func(o *breaker.Owner) { o.PauseUntil(now, until, why) })
}

// Reset closes a breaker and ends its pause.
func (g *Gate) Reset(now model.Time, id rule.BreakerID) error {
	return g.operate(now, id, false, func(o *breaker.Owner) { o.Reset(now) })
}

func (g *Gate) operate(now model.Time, id rule.BreakerID, create bool, do func(*breaker.Owner)) error {
	if !g.owns(id.Address()) {
		return fault.New(fault.Unavailable, "breaker %s is not owned by this node", id)
	}
	c := g.circuits[id]
	if c == nil {
		if !create {
			return fault.New(fault.NotFound, "breaker %s", id)
		}
		c = g.circuit(now, id)
	}
	do(c.owner)
	g.spread(c, c.owner.Tell(now))
	return nil
}

// RetryAfter is what the other side of a task has said: nobody is to call it before the time. The task names the breaker; without one nothing happens.
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
