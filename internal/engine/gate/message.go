package gate

import (
	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Message goes between the owner of a limit or breaker and a place that uses it: to the address of the Resource or Breaker, or to Place.
type Message struct {
	Resource rule.Resource
	Breaker  rule.BreakerID
	// Place is the other end than the owner.
	Place model.ShardID
	// One of these is given.
	ToOwner   *limit.ToOwner
	ToPlace   *limit.ToPlace
	ToBreaker *breaker.ToOwner
	News      *breaker.News
}

// Out are messages that are to be sent, in their order, in the commit that stores Dirty. They are told once.
func (g *Gate) Out() []Message {
	m := g.out
	g.out = nil
	return m
}

// Receive takes a message.
func (g *Gate) Receive(now model.Time, m *Message) {
	switch {
	case m.ToOwner != nil:
		r := g.resource(now, m.Resource, g.numbers(m.Resource))
		if r.owner != nil {
			r.remote = true
			g.deliver(r, r.owner.Receive(now, m.Place, *m.ToOwner))
			g.exchange(now, r)
		}
	case m.ToPlace != nil:
		r := g.resource(now, m.Resource, g.numbers(m.Resource))
		if r.local.Receive(*m.ToPlace) {
			g.wake(r)
		}
		g.save(r)
		g.exchange(now, r)
	case m.ToBreaker != nil:
		c := g.circuit(now, m.Breaker)
		if c.owner == nil {
			return
		}
		sends, changed := c.owner.Receive(now, m.Place, m.ToBreaker)
		for _, s := range sends {
			g.out = append(g.out, Message{Breaker: c.id, Place: s.To, News: &s.News})
		}
		if changed {
			g.save(c)
			g.wakeCircuit(c)
		}
	case m.News != nil:
		if c := g.circuits[m.Breaker]; c != nil && c.view != nil {
			if c.view.Receive(now, *m.News) {
				g.wakeCircuit(c)
			}
			g.told(now, c, false)
		}
	}
}

func (g *Gate) numbers(id rule.Resource) limit.Numbers {
	n, _ := g.rules.Numbers(id)
	return n
}

// Next is when Tick is due, because other places wait for tokens of limits that are owned here; zero for never.
func (g *Gate) Next() (next model.Time) {
	for _, r := range g.resources {
		if r.owner != nil && r.remote {
			if t := r.owner.Next(); !t.IsZero() && (next.IsZero() || t < next) {
				next = t
			}
		}
	}
	return next
}

// Tick leases tokens that have accrued to other places.
func (g *Gate) Tick(now model.Time) {
	for _, r := range g.sorted() {
		if r.owner != nil && r.remote {
			if t := r.owner.Next(); !t.IsZero() && t <= now {
				g.deliver(r, r.owner.Tick(now))
				g.exchange(now, r)
			}
		}
	}
}

// Row is what is to be stored of a limit or breaker.
type Row struct {
	Address model.Address
	// Place tells that it is the block of a limit that is leased to this place, and not what its owner knows.
	Place bool
	Data  []byte
}

// saver is what has rows.
type saver interface {
	rows() ([]Row, error)
	isListed() *bool
}

func (g *Gate) save(s saver) {
	if listed := s.isListed(); !*listed {
		*listed = true
		g.dirty = append(g.dirty, s)
	}
}

// Dirty are the rows that have changed in a way that must survive: states and probes of breakers, and leases between nodes. Limits of a single node have none: their
// holders are found again (Hold). They are told once.
func (g *Gate) Dirty() ([]Row, error) {
	var list []Row
	for _, s := range g.dirty {
		*s.isListed() = false
		rows, err := s.rows()
		if err != nil {
			return nil, err
		}
		list = append(list, rows...)
	}
	g.dirty = nil
	return list, nil
}

func (c *circuit) isListed() *bool { return &c.listed }

func (c *circuit) rows() ([]Row, error) {
	if c.owner == nil {
		return nil, nil // a view is made anew
	}
	data, err := c.owner.Encode()
	return []Row{{Address: c.id.Address(), Data: data}}, err
}

func (r *resource) isListed() *bool { return &r.listed }

func (r *resource) rows() (list []Row, err error) {
	if r.owner != nil {
		data, err := r.owner.Encode()
		if err != nil {
			return nil, err
		}
		list = append(list, Row{Address: r.id.Address(), Data: data})
	}
	data, err := r.local.Encode()
	return append(list, Row{Address: r.id.Address(), Place: true, Data: data}), err
}

// LoadBreaker gives a breaker that is owned here what was stored of it. It must not be in use yet.
func (g *Gate) LoadBreaker(now model.Time, id rule.BreakerID, row []byte) error {
	if g.circuits[id] != nil {
		return fault.New(fault.Internal, "breaker %s is in use already", id)
	}
	o, err := breaker.Decode(row)
	if err != nil {
		return err
	}
	c := &circuit{id: id, owner: o}
	g.circuits[id] = c
	if n := g.rules.BreakerConfig(id); n != o.Status(now).Config {
		o.Configure(now, n)
		g.told(now, c, true)
	}
	return nil
}

// Adopt gives a breaker that is owned here another state, which somebody else has stored; nil for none, so that it begins anew. Calls under way count for nothing any more.
func (g *Gate) Adopt(now model.Time, id rule.BreakerID, row []byte) error {
	o := breaker.New(g.rules.BreakerConfig(id), now)
	if row != nil {
		var err error
		if o, err = breaker.Decode(row); err != nil {
			return err
		}
		if n := g.rules.BreakerConfig(id); n != o.Status(now).Config {
			o.Configure(now, n)
		}
	}
	c := g.circuits[id]
	if c == nil {
		c = &circuit{id: id}
		g.circuits[id] = c
	}
	if c.owner == nil && c.view != nil {
		return fault.New(fault.Unavailable, "breaker %s is not owned by this node", id)
	}
	c.owner = o
	for _, e := range g.entries { // in any order: each is told the same
		if e.breaker == c {
			e.permit = breaker.Permit{} // its number may be that of somebody else's call by now
		}
	}
	g.wakeCircuit(c)
	return nil
}

// LoadLimit gives a limit what was stored of it: by its owner, if that lives here, and of the block of this place; nil for nothing. It must not be in use yet.
func (g *Gate) LoadLimit(now model.Time, id rule.Resource, owner, place []byte) (err error) {
	if g.resources[id] != nil {
		return fault.New(fault.Internal, "limit %s is in use already", id)
	}
	r := &resource{id: id, local: limit.NewLocal(g.numbers(id)), remote: true}
	if owner != nil {
		if r.owner, err = limit.DecodeOwner(owner); err != nil {
			return err
		}
	}
	if place != nil {
		if r.local, err = limit.DecodeLocal(place); err != nil {
			return err
		}
	}
	g.resources[id] = r
	if n, ok := g.rules.Numbers(id); ok && (n != r.local.Numbers() || r.owner != nil && n != r.owner.Numbers()) {
		g.configure(now, r, n)
	}
	return nil
}
