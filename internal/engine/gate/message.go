package gate

import (
	"slices"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
)

// Message is a message of this node to the owner of a shared limit.
type Message struct {
	Resource rule.Resource
	ToOwner  limit.ToOwner
}

// Out returns the messages for owners, in order. It returns each of them once.
func (g *Gate) Out() []Message {
	m := g.out
	g.out = nil
	return m
}

// Receive applies a message that the owner of a limit has sent to this place.
func (g *Gate) Receive(now model.Time, id rule.Resource, m limit.ToPlace) {
	r := g.resource(now, id, g.numbers(id))
	if r.local.Receive(m) {
		g.wake(r)
	}
	g.exchange(now, r)
}

// Wants is what a place wants of a limit, according to the owner of the limit.
type Wants struct {
	Permits int
	Tokens  int64
	Over    int // permits that the place has in use beyond its lease
}

// CompareWants compares what this place wants with what the owner of a limit believes that this
// place wants, and corrects the owner if the two differ. w is what the owner believes after it has
// received everything that the place sent.
func (g *Gate) CompareWants(now model.Time, id rule.Resource, w Wants) {
	r := g.resource(now, id, g.numbers(id))
	r.local.CorrectBelief(w.Permits, w.Tokens, w.Over)
	g.exchange(now, r)
}

// Own makes this node the owner of the limits in owners. The node may also use a limit that it now
// owns (see New) and that is not in owners: for this limit, Own makes an owner with fresh. The
// caller has already passed all replies of the previous owners to Receive. The parameter told has
// the messages of this node that the previous owners have not received.
func (g *Gate) Own(now model.Time, owners map[rule.Resource]*limit.Owner, told []Message, fresh func(limit.Numbers) *limit.Owner) {
	for id, o := range owners {
		g.resource(now, id, o.Numbers()).owner = o
	}

	owned := g.sortedResources()
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
			g.deliver(r, r.owner.Configure(now, n)) // the rules have changed in between
		}
		g.exchange(now, r)

		// Only the owner of a limit knows when the next token accrues. This node could not tell
		// that time to the tasks that it refused earlier, so these tasks have to ask again.
		if _, token := r.local.Shortage(); token {
			g.wake(r)
		}
	}
}

// Disown ends the ownership of the chosen limits. It returns the owners whose state must not be
// lost: owners of limits that are in use, or whose tokens (the starts that a period allows) have
// not all accrued again.
func (g *Gate) Disown(now model.Time, which func(rule.Resource) bool) map[rule.Resource]*limit.Owner {
	owners := map[rule.Resource]*limit.Owner{}
	for _, r := range g.sortedResources() {
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

// Shared reports whether an admitted task holds a limit that another node owns.
func (g *Gate) Shared(ref model.TaskRef) bool {
	e := g.entries[ref]
	return e != nil && slices.ContainsFunc(e.held, func(r *resource) bool { return r.owner == nil })
}

// IsAdmitted reports whether a task was admitted through at least one limit or breaker.
func (g *Gate) IsAdmitted(ref model.TaskRef) bool {
	e := g.entries[ref]
	return e != nil && e.holds
}

// numbers returns the configured numbers of a limit, zero if no rule defines it.
func (g *Gate) numbers(id rule.Resource) limit.Numbers {
	n, _ := g.rules.Numbers(id)
	return n
}

// Row is the stored form of a breaker.
type Row struct {
	Breaker rule.BreakerID
	Data    []byte
}

// Dirty returns the breakers whose state or probes have changed and must be stored. It returns each
// change once. Only a node that uses the store alone, and so owns its breakers, needs Dirty. Limits
// need no rows in that case: after a restart the dispatcher finds their holders again (Hold).
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

// Ask is a message of this node to a shared breaker.
type Ask struct {
	Breaker rule.BreakerID
	ToOwner breaker.ToOwner
}

// Asks returns the messages for shared breakers, in order. It returns each of them once.
func (g *Gate) Asks() []Ask {
	a := g.asks
	g.asks = nil
	return a
}

// Adopt replaces the state of a breaker by a stored row. A nil row resets the breaker. If this node
// owns the breaker, the breaker then ignores the outcomes of calls that are in flight.
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
		for _, m := range g.unsent[id] { // these reports are not part of the stored row yet
			m.Ask = false
			b.Receive(now, &m)
		}
		g.stored[id] = b
		g.updateView(now, id, breaker.Permit{}, false)
		return nil
	}

	c := g.circuits[id]
	if c == nil {
		c = &circuit{id: id}
		g.circuits[id] = c
	}

	c.owner = b
	for _, e := range g.entries { // the order does not matter, because all lose their permit
		if e.breaker == c {
			e.permit = breaker.Permit{} // another call may get its number
		}
	}

	g.wakeCircuit(c)
	return nil
}

// ConfirmAsks drops the first n unsent Asks of a breaker, because the stored row of the breaker
// includes them. After that, the caller passes that row to Adopt.
func (g *Gate) ConfirmAsks(id rule.BreakerID, n int) {
	if g.unsent[id] = g.unsent[id][min(n, len(g.unsent[id])):]; len(g.unsent[id]) == 0 {
		delete(g.unsent, id)
	}
}

// Answer delivers the reply to an Ask. The caller has passed the state of the breaker to Adopt
// before. If probe is not zero, this node may let one task through as that probe.
func (g *Gate) Answer(now model.Time, id rule.BreakerID, probe breaker.Permit) {
	g.updateView(now, id, probe, true)
}

// updateView updates the view of a shared breaker.
func (g *Gate) updateView(now model.Time, id rule.BreakerID, probe breaker.Permit, answer bool) {
	c := g.circuits[id]
	if c == nil {
		return
	}
	n := g.sharedBreaker(now, id).News(now)
	n.Probe, n.Answer = probe, answer
	c.view.Receive(now, n)
	// Even if the answer is a refusal, wake the waiting groups: they learn until when they have to
	// wait.
	g.wakeCircuit(c)
	g.publish(now, c, false)
}
