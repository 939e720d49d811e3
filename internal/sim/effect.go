package sim

import (
	"strings"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Every effect must have a cause that is durable at that moment (L2, I4).

// stored checks that the events that a lane passes on are in the store.
func (s *Sim) stored(id model.RunID, events []model.Event, who string) *run {
	r := s.ledger.runs[id]
	if r == nil {
		s.fail("L2: %s hears of %s, which is not in the store", who, short(id))
	}
	for i := range events {
		e := &events[i]
		if e.Seq < 1 || e.Seq > int64(len(r.events)) {
			s.fail("L2: %s hears of event %d (%s) of %s, which is not in the store", who, e.Seq, e.Kind, short(id))
		}
		if o := &r.events[e.Seq-1]; o.Kind != e.Kind || o.ID != e.ID || o.At != e.At || o.Ref != e.Ref || string(o.Input.Data) != string(e.Input.Data) {
			s.fail("L2: %s hears of another event %d of %s than the one in the store", who, e.Seq, short(id))
		}
	}
	return r
}

// checkCall checks a call to a worker.
func (sh *shell) checkCall(c *lane.Call) {
	s := sh.s
	switch c.Kind {
	case lane.CallActivate:
		r := s.stored(c.Run, c.Activation.Events, "a worker")
		sh.mayGoOn(r, "activated")
		sh.mayContinue(sh.inc.p.worker(c.Worker), r)
		for i := range c.Activation.Events {
			if c.Activation.Events[i].Seq != int64(i+1) {
				s.fail("activation of %s has event %d in place of %d", short(c.Run), c.Activation.Events[i].Seq, i+1)
			}
		}
		if c.Activation.Start.Run != c.Run || c.Activation.Start.Address != r.address.name {
			s.fail("activation of %s with the start of another run", short(c.Run))
		}

	case lane.CallQuery, lane.CallRecall:
		s.stored(c.Run, nil, "a worker")

	case lane.CallDeliver:
		sh.mayGoOn(s.stored(c.Run, c.Events, "a worker"), "told of events")
		for _, w := range sh.inc.p.workers {
			if w.id != c.Worker {
				continue
			}
			if h := w.held[c.Run]; h != nil && h.gen == c.Generation && c.Events[0].Seq != h.last()+1 {
				s.fail("worker %d of %s gets event %d of %s after event %d", w.id, sh.inc.name(), c.Events[0].Seq, short(c.Run), h.last())
			}
		}

	case lane.CallRetry:
		r := s.stored(c.Run, nil, "a worker")
		sh.mayGoOn(r, "to retry")
		b, a, ok := parseAsk(c.ID)
		if !ok || r.asks[b][a].attempts == 0 {
			s.fail("L2: a worker is to repeat %s of %s, which has not failed", c.ID, short(c.Run))
		}

	case lane.CallEvict:
		r := s.ledger.runs[c.Run]
		if c.Reason == "closed" && (r == nil || r.open()) {
			s.fail("L2: a worker hears that %s is closed, and it is open", short(c.Run))
		}
		if (strings.Contains(c.Reason, "quarantined") || strings.Contains(c.Reason, "cannot be understood")) && r != nil && !r.address.sick {
			s.fail("I14: %s is quarantined, and there is nothing wrong with it: %s", r.address.name, c.Reason)
		}
		if strings.Contains(c.Reason, "could not be stored") && r != nil && !r.address.sick {
			if w := sh.inc.p.worker(c.Worker); w != nil && !w.leaving {
				s.fail("I14: a turn of %s is undone by a row of somebody else", r.address.name)
			}
		}
		if strings.HasPrefix(c.Reason, "stale") {
			s.did(opStale)
		}
		sh.checkTaken(c, r)
	}
}

// giveUp lets the lane give up shards, and remembers the time of the order.
func (sh *shell) giveUp(now model.Time, shards []model.ShardID) {
	if sh.moving == nil {
		sh.moving = map[model.ShardID]model.Time{}
	}
	for _, id := range shards {
		sh.moving[id] = now
	}
	sh.lane.GiveUp(now, shards)
}

// checkTaken checks that no lane takes a run from its worker while the worker runs a step: nothing
// has crashed, and the body would run again. Only a shard that has waited long enough may still
// move.
func (sh *shell) checkTaken(c *lane.Call, r *run) {
	w := sh.inc.p.worker(c.Worker)
	orderly := c.Reason == "the shard moves" || c.Reason == "the worker leaves" || strings.Contains(c.Reason, "paused")
	if w == nil || r == nil || !orderly {
		return
	}
	h := w.held[c.Run]
	if h == nil || h.gen != c.Generation || !h.wanted() {
		return
	}
	since, moving := sh.moving[r.address.name.Shard(sh.s.plan.shards)]
	if c.Reason == "the shard moves" && moving && sh.inc.p.now() >= since.Add(sh.s.plan.lane.DrainWait) {
		return
	}
	sh.s.fail("%s is taken from worker %d of %s while a step of it runs: %s", short(c.Run), w.id, sh.inc.name(), c.Reason)
}

// checkMail checks a message that a lane passes on.
func (sh *shell) checkMail(row *store.MessageRow) {
	c := sh.s.ledger.channel(row.To, row.From)
	if row.Seq < 1 || row.Seq > int64(len(c.rows)) || c.rows[row.Seq-1].Message.To != row.Message.To {
		sh.s.fail("L2: message %d from shard %d to shard %d is passed on and not in the store", row.Seq, row.From, row.To)
	}
}

// checkResult checks the end of an execution that a user awaited.
func (s *Sim) checkResult(o *op, res *lane.Result) {
	a, r := o.message.To, s.ledger.runs[res.Run]
	if r == nil || r.open() || r.address.name != a || r.outcome.Status != res.Outcome.Status || string(r.outcome.Output.Data) != string(res.Outcome.Output.Data) {
		s.fail("I4: a caller hears an outcome of %s that is not in the store", a)
	}
	s.hears(o, r)
}

// checkAnswer checks that the answer that a caller gets is durable.
func (s *Sim) checkAnswer(o *op, a *model.Answer) {
	if o.message.Kind == model.MessageDelete {
		for _, id := range o.message.Runs {
			if s.ledger.runs[id].deleted == 0 {
				s.fail("I21: %s was accepted, and %s is there", o, short(id))
			}
		}
		return
	}

	if o.message.Kind == model.MessageRequeue {
		s.checkLetterAnswer(o, a)
		return
	}

	r := s.ledger.runs[a.Run]
	if r == nil || r.address.name != o.message.To {
		s.fail("I4: %s was accepted for %s, which is not in the store", o, short(a.Run))
	}
	if o.tries == 1 && o.shadow == nil {
		s.hears(o, r)
	}

	switch o.message.Kind {
	case model.MessageStart:
		if o.message.Past != nil {
			s.checkBegun(o, a, r)
			return
		}
		if !r.origin.Equal(o.message.Input) {
			s.fail("I10: %s was answered with a run of another input", o)
		}
		s.checkReuse(o, a, r)
		if !a.Existing && o.shadow == nil {
			if r.fresh++; r.fresh > 1 {
				s.fail("I2: two starts of %s were told that %s is theirs", o.message.To, short(a.Run))
			}
		}
		for i := range o.message.With {
			s.hasSignal(o, &o.message.With[i].Input)
		}
	case model.MessageSignal:
		s.hasSignal(o, &o.message.Input)
	case model.MessageSettle:
		if got, ok := r.settled[o.message.Name]; !ok || got != string(o.message.Input.Data) {
			s.fail("I9: %s was accepted, and the promise has another value or none", o)
		}
	case model.MessageCancel:
		if !r.cancel {
			s.fail("I4: %s was accepted and is not in the history", o)
		}
	case model.MessageUpdate, model.MessageQuery, model.MessagePause, model.MessageTerminate:
		s.checkTalk(o, a, r)
	default:
	}
}

// checkReuse checks that a start created a run only where its reuse policy allows it.
func (s *Sim) checkReuse(o *op, a *model.Answer, r *run) {
	if a.Existing || r.replaced == nil || !o.message.ToRun.IsZero() {
		return
	}
	if reuse := o.message.Reuse; reuse == model.ReturnExisting || reuse == model.ReuseIfFailed && r.replaced.outcome.Status == model.Completed {
		s.fail("I2: %s has begun %s over %s, which is %s", o, short(r.id), short(r.replaced.id), r.replaced.outcome.Status)
	}
}

func (s *Sim) hasSignal(o *op, p *model.Payload) {
	if got := s.ledger.signals[signalID(*p)]; got == nil || got.address.name != o.message.To {
		s.fail("I4: %s was accepted and is not in a history", o)
	}
}

// checkDeath checks that a lane stops only for a reason: its node was fenced, or it may have fenced
// itself.
func (sh *shell) checkDeath(why error) {
	m := sh.s.ledger.nodes[sh.inc.self.ID]
	if m.alive && !sh.unsure {
		sh.s.fail("lane %d of %s gives up and nobody has fenced it: %v", sh.index, sh.inc.name(), why)
	}
}
