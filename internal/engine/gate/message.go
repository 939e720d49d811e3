package gate

import (
	"slices"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

// Message is what this node tells the owner of a limit that others share.
type Message struct {
	Resource rule.Resource
	ToOwner  limit.ToOwner
}

// Out are messages for owners, in their order. They are told once.
func (g *Gate) Out() []Message {
	m := g.out
	g.out = nil
	return m
}

// Receive takes what the owner of a limit says to this place.
func (g *Gate) Receive(now model.Time, id rule.Resource, m limit.ToPlace) {
	r := g.resource(now, id, g.numbers(id))
	if r.local.Receive(m) {
		g.wake(r)
	}
	g.exchange(now, r)
}

// Believed takes what the owner of a limit believes that this place wants, when everything that the
// place has told has been heard.
func (g *Gate) Believed(now model.Time, id rule.Resource, want int, tokens int64, over int) {
	r := g.resource(now, id, g.numbers(id))
	r.local.Believed(want, tokens, over)
	g.exchange(now, r)
}

// Own makes this node the owner of limits: of those that are given, and of all it knows for which
// owns is true now. What their owners have said is known here; told is what they have not heard
// yet.
func (g *Gate) Own(now model.Time, owners map[rule.Resource]*limit.Owner, told []Message, fresh func(limit.Numbers) *limit.Owner) {
	for id, o := range owners {
		g.resource(now, id, o.Numbers()).owner = o
	}

	owned := g.sorted()
	for _, r := range owned {
		if r.owner == nil && g.owns(r.id) {
			r.owner = fresh(r.local.Numbers())
		}
	}

	for i := range told {
		r := g.resource(now, told[i].Resource, g.numbers(told[i].Resource))
		g.deliver(r, r.owner.Receive(now, g.home, told[i].ToOwner))
	}

	for _, r := range owned {
		if r.owner == nil {
			continue
		}
		if n, ok := g.rules.Numbers(r.id); ok && n != r.owner.Numbers() {
			g.deliver(r, r.owner.Configure(now, n)) // the rules have changed since
		}
		g.exchange(now, r)

		// The gate tells a task when a token accrues only when it refuses the task. The waiting tasks
		// were refused before this node owned the limit, so they have to ask again.
		if _, token := r.local.Lacks(); token {
			g.wake(r)
		}
	}
}

// Disown ends the ownership of limits, which go on with what is returned: those of the given ones
// that somebody uses or whose tokens are not all there.
func (g *Gate) Disown(now model.Time, which func(rule.Resource) bool) map[rule.Resource]*limit.Owner {
	owners := map[rule.Resource]*limit.Owner{}
	for _, r := range g.sorted() {
		if r.owner == nil || !which(r.id) {
			continue
		}
		if r.local.Idle() {
			g.forget(now, r)
		}
		if !r.gone {
			owners[r.id], r.owner = r.owner, nil
		}
	}
	return owners
}

// Shared reports whether a task that was let through holds a limit whose owner lives elsewhere.
func (g *Gate) Shared(ref model.TaskRef) bool {
	e := g.entries[ref]
	return e != nil && slices.ContainsFunc(e.held, func(r *resource) bool { return r.owner == nil })
}

// Holds reports whether a task was let through something.
func (g *Gate) Holds(ref model.TaskRef) bool {
	e := g.entries[ref]
	return e != nil && e.holds
}

func (g *Gate) numbers(id rule.Resource) limit.Numbers {
	n, _ := g.rules.Numbers(id)
	return n
}

// Row is what is to be stored of a breaker.
type Row struct {
	Breaker rule.BreakerID
	Data    []byte
}

// Dirty are the breakers that have changed in a way that must survive, their states and probes,
// where this node is their owner: nobody else has the store. Limits need nothing then: their
// holders are found again (Hold). They are told once.
func (g *Gate) Dirty() (list []Row, err error) {
	for _, c := range g.dirty {
		c.listed = false
		data, err := c.owner.Encode()
		if err != nil {
			return nil, err
		}
		list = append(list, Row{c.id, data})
	}
	g.dirty = nil
	return list, nil
}

// Ask is what this node tells a breaker that others share.
type Ask struct {
	Breaker rule.BreakerID
	ToOwner breaker.ToOwner
}

// Asks are messages for breakers that others share, in their order. They are told once.
func (g *Gate) Asks() []Ask {
	a := g.asks
	g.asks = nil
	return a
}

// Adopt gives a breaker another state, which somebody has stored; nil for none, so that it begins
// anew. Where this node is its owner, calls under way count for nothing any more.
func (g *Gate) Adopt(now model.Time, id rule.BreakerID, row []byte) error {
	b := breaker.New(g.rules.BreakerConfig(id), now)
	if row != nil {
		var err error
		if b, err = breaker.Decode(row); err != nil {
			return err
		}
		if n := g.rules.BreakerConfig(id); n != b.Status(now).Config {
			b.Configure(now, n)
		}
	}

	if g.owns != nil {
		for _, m := range g.unsent[id] { // it comes on top of that
			m.Ask = false
			b.Receive(now, &m)
		}
		g.stored[id] = b
		g.hear(now, id, breaker.Permit{}, false)
		return nil
	}

	c := g.circuits[id]
	if c == nil {
		c = &circuit{id: id}
		g.circuits[id] = c
	}

	c.owner = b
	for _, e := range g.entries { // in any order: each is told the same
		if e.breaker == c {
			e.permit = breaker.Permit{} // its number may be that of somebody else's call by now
		}
	}

	g.wakeCircuit(c)
	return nil
}

// Told tells that a number of Asks of a breaker, the first ones, are part of what is stored. Adopt
// says what that is.
func (g *Gate) Told(id rule.BreakerID, n int) {
	if g.unsent[id] = g.unsent[id][min(n, len(g.unsent[id])):]; len(g.unsent[id]) == 0 {
		delete(g.unsent, id)
	}
}

// Answer tells what came of an Ask: the breaker stands as it was adopted last, and this node was
// given the probe, unless it is zero.
func (g *Gate) Answer(now model.Time, id rule.BreakerID, probe breaker.Permit) {
	g.hear(now, id, probe, true)
}

func (g *Gate) hear(now model.Time, id rule.BreakerID, probe breaker.Permit, answer bool) {
	c := g.circuits[id]
	if c == nil {
		return
	}
	n := g.stand(now, id).News(now)
	n.Probe, n.Answer = probe, answer
	c.view.Receive(now, n)
	g.wakeCircuit(c) // also when it refuses: who was told to wait for news hears until when
	g.told(now, c, false)
}
