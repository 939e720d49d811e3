package cluster

import (
	"errors"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some simulations nodes ask each other over connections, as engine/direct.go does, before they
// use the store. Connections break at any moment: before a request arrives, after it has arrived,
// or while it waits in front of the lane. In the last case the sender sends the request again
// through the store, and the first copy takes effect only after that. A sender may also ask a node
// that no longer owns the shard.

// attempt says what happened to a request before the sender puts it into the store.
type attempt struct {
	taken bool
	link  model.RunID
}

// askKind is what a node asks the owner to do.
type askKind int

const (
	askSend askKind = iota
	askRun
	askQuery
	askBrief
	askAwait
)

// ask is a request to the owner of an address.
type ask struct {
	kind    askKind
	message *model.Message // nil for askAwait
	to      model.Address
	run     model.RunID
	fresh   bool
}

// askFor returns the request that carries a message.
func askFor(m *model.Message, awaits, fresh bool) *ask {
	q := &ask{kind: askSend, message: m, to: m.To, fresh: fresh}
	switch {
	case m.Kind == model.MessageQuery || m.Brief && m.Name == scenario.DoRead:
		q.kind = askQuery
	case m.Brief:
		q.kind = askBrief
	case awaits:
		q.kind = askRun
	}
	return q
}

// told is the reply of an owner to a request.
type told struct {
	moved, taken bool
	answer       lane.Answer
}

// linkTo returns the id of the connection to an incarnation.
func (inc *incarnation) linkTo(other *incarnation) model.RunID {
	if inc.links == nil {
		inc.links = map[*incarnation]model.RunID{}
	}
	if inc.links[other].IsZero() {
		inc.links[other] = inc.p.Cluster.NewRun()
	}
	return inc.links[other]
}

// believed returns the incarnation that owned a shard at the last renewal, or nil if that
// incarnation has ended.
func (inc *incarnation) believed(shard model.ShardID) *incarnation {
	if int(shard) >= len(inc.owners) || inc.owners[shard].Node == inc.self.ID {
		return nil
	}
	if p := inc.p.Cluster.nodeNamed(inc.owners[shard].Node.String()); p != nil {
		return p.Inc
	}
	return nil
}

// sendDirectly asks the owner of a message over a connection, and sends the message through the
// store if that does not succeed.
func (p *Proc) sendDirectly(q *ask, tried attempt, reply func(*lane.Answer)) {
	m := q.message
	q.fresh = q.fresh && !tried.taken
	p.ask(q, 0, func(a *lane.Answer, now attempt) {
		if !errors.Is(a.Err, lane.ErrNotOwner) || a.Begun {
			p.Cluster.Did(scenario.OpLinked)
			p.Cluster.Ledger.RecordAnswer(m)
			if m.Drawn && a.Err == nil && !tried.taken && !now.taken {
				p.clerk.acked = append(p.clerk.acked, store.RequestKey{Shard: p.Cluster.ShardOf(m.To), Address: m.To, ID: m.RequestID})
				p.clerk.tidy()
			}
			p.fillReceipt(m, q.kind == askSend && a.Err == nil && !tried.taken && !now.taken)
			reply(a)
			return
		}

		switch {
		case q.kind == askBrief && now.taken:
			p.Cluster.Ledger.RecordAnswer(m)
			reply(&lane.Answer{Err: lane.ErrInterrupted})
			return
		case q.kind == askQuery:
			now = attempt{} // a second copy changes nothing
		}
		tried.taken = tried.taken || now.taken
		if tried.link.IsZero() {
			tried.link = now.link
		}
		p.clerk.send(m, tried, reply)
	})
}

// ask sends a request over a connection. If the shard has moved to another owner, it asks that
// owner, but only once.
func (p *Proc) ask(q *ask, try int, reply func(*lane.Answer, attempt)) {
	s, inc := p.Cluster, p.Inc
	unsent := func() { reply(&lane.Answer{Err: lane.ErrNotOwner}, attempt{}) }
	if inc == nil || inc.ended || !s.Has(scenario.Links) {
		unsent()
		return
	}
	other := inc.believed(s.ShardOf(q.to))
	if other == nil || !s.Healed && s.Chance(0.05) { // sometimes there is no connection
		unsent()
		return
	}

	link, settled := inc.linkTo(other), false
	lost := func() {
		if settled {
			return
		}
		settled = true
		if inc.links[other] == link {
			delete(inc.links, other)
		}
		s.Hurt(scenario.FaultLinkLost)
		reply(&lane.Answer{Err: lane.ErrNotOwner}, attempt{taken: true, link: link})
	}
	hear := func(t told) {
		if settled {
			return
		}
		settled = true
		switch {
		case t.moved && !t.taken && !t.answer.Begun && try == 0:
			s.After(s.Between(1, 40)*kernel.Millisecond, p.Process, func() { p.ask(q, 1, reply) })
		case t.moved:
			reply(&lane.Answer{Begun: t.answer.Begun, Err: lane.ErrNotOwner}, attempt{taken: t.taken})
		default:
			reply(&t.answer, attempt{})
		}
	}

	// The connection may break: the request or the reply is lost, or the request waits in front of
	// the lane and takes effect later. The sender notices the loss after a random time.
	late, arrives, returns := int64(0), true, true
	if !s.Healed && s.Chance(0.2) {
		returns = false
		switch s.Pick(3) {
		case 0:
			arrives = false
		case 1:
			late = s.Between(0, 400) * kernel.Millisecond
		}
		s.After(s.Between(0, 100)*kernel.Millisecond, p.Process, lost)
	}
	if arrives {
		s.After(s.Disk.Latency(), other.p.Process, func() {
			other.serve(q, arrival{
				link: link, late: late,
				reply: func(t told) {
					if returns {
						s.After(s.Disk.Latency(), p.Process, func() { hear(t) })
					}
				},
				gone: func() { s.After(s.Between(0, 100)*kernel.Millisecond, p.Process, lost) },
			})
		})
	}
	p.watchLink(other, &settled, lost)
}

// watchLink ends a request when the other incarnation is gone.
func (p *Proc) watchLink(other *incarnation, settled *bool, lost func()) {
	s := p.Cluster
	s.After(200*kernel.Millisecond, p.Process, func() {
		switch {
		case *settled:
		case other.p.Dead || other.p.Inc != other || other.ended:
			lost()
		default:
			p.watchLink(other, settled, lost)
		}
	})
}

// arrival is a request that has arrived over a connection.
type arrival struct {
	link  model.RunID
	late  int64 // how long the request waits in front of the lane
	reply func(told)
	gone  func() // is called if the process ends before it has answered
}

// serve handles a request of another node, as engine/directserve.go does.
func (inc *incarnation) serve(q *ask, r arrival) {
	s, p := inc.p.Cluster, inc.p
	shard := s.ShardOf(q.to)
	if p.Inc != inc || inc.ended {
		r.gone()
		return
	}
	if !inc.Owner[shard] {
		s.Did(scenario.OpMoved)
		r.reply(told{moved: true})
		return
	}

	sh, tenure := inc.Shells[int(shard)%len(inc.Shells)], inc.tenure
	c := NewCall(p, func(a *lane.Answer) {
		if errors.Is(a.Err, ErrCrashed) {
			r.gone()
			return
		}
		r.reply(inc.judge(q.kind, a))
	})
	put := func(now model.Time) {
		m := *q.message
		m.Linked, m.Drawn = r.link, false
		fresh := q.fresh && inc.tenure == tenure
		if q.kind == askRun {
			sh.Lane.Run(now, &m, fresh, c)
			return
		}
		sh.Lane.Deliver(now, &m, fresh, c)
	}
	if q.kind == askAwait {
		put = func(model.Time) { inc.await(sh, q, c) }
	}

	arrive := func() {
		if !sh.put(c, put) {
			c.Finish(&lane.Answer{Err: lane.ErrNotOwner})
		}
	}
	if r.late == 0 {
		arrive()
		return
	}
	s.Hurt(scenario.FaultLinkLate)
	s.After(r.late, p.Process, arrive)
}

// await registers another node that waits for the end of an execution.
func (inc *incarnation) await(sh *shell, q *ask, c *call) {
	sure, err := sh.Lane.Await(q.to, q.run, c)
	if err != nil {
		c.Finish(&lane.Answer{Err: err})
	}
	if err != nil || sure {
		return
	}
	inc.p.look(inc.p.Cluster.ShardOf(q.to), q.to, q.run, func(a *lane.Answer) {
		if a != nil {
			sh.result(func(model.Time) { sh.Lane.Forget(q.to, c) })
			c.Finish(a)
		}
	})
}

// judge decides what another node gets as the answer, as served.judge of the engine does.
func (inc *incarnation) judge(kind askKind, a *lane.Answer) told {
	serving := inc.serving()
	switch {
	case errors.Is(a.Err, lane.ErrNotOwner):
		return told{moved: true, taken: a.Token != nil, answer: lane.Answer{Begun: a.Begun}}
	case a.Result != nil:
	case kind == askQuery && !serving:
		return told{answer: lane.Answer{Err: lane.ErrAskAgain}}
	case kind == askBrief && a.Err == nil && !serving:
		return told{answer: lane.Answer{Err: lane.ErrInterrupted}}
	case kind == askQuery || kind == askBrief:
	case !serving && !a.Committed && (a.Answer.Existing || a.Answer.Failure != nil), isEnding(a.Err):
		return told{moved: true, taken: true, answer: lane.Answer{Begun: a.Begun}}
	}
	return told{answer: *a}
}

// isEnding reports whether an error says only that this owner is ending. In that case the next
// owner can still serve the request.
func isEnding(err error) bool {
	return fault.Is(err, fault.Unavailable) && !errors.Is(err, lane.ErrInterrupted) && !errors.Is(err, lane.ErrAskAgain) && !errors.Is(err, lane.ErrLater)
}

// note sends a message to the owner of its shard over a connection. It returns false if there is no
// connection. In that case the caller sends the owner a hint instead.
func (inc *incarnation) note(row *store.MessageRow) bool {
	s := inc.p.Cluster
	if !s.Has(scenario.Links) {
		return false
	}
	other := inc.believed(row.To)
	if other == nil || s.Chance(0.1) {
		return false
	}

	m := *row
	s.After(s.Disk.Latency(), other.p.Process, func() {
		if other.p.Inc != other || !other.Owner[m.To] {
			return // the next owner of the shard reads the message from the store
		}
		sh := other.Shells[int(m.To)%len(other.Shells)]
		sh.put(nil, func(model.Time) {
			sh.mails([]store.MessageRow{m}, nil)
			sh.Lane.Messages([]store.MessageRow{m})
		})
	})
	return true
}
