package cluster

import (
	"strings"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// checkCall checks a call to a worker.
func (sh *shell) checkCall(c *lane.Call) {
	s := sh.s
	switch c.Kind {
	case lane.CallActivate:
		r := s.Stored(c.Run, c.Activation.Events, "a worker")
		sh.mayGoOn(r, "activated")
		sh.mayBegin(r)
		sh.mayContinue(sh.inc.p.worker(c.Worker), r)
		for i := range c.Activation.Events {
			if c.Activation.Events[i].Seq != int64(i+1) {
				s.Fail("activation of %s has event %d in place of %d", scenario.Short(c.Run), c.Activation.Events[i].Seq, i+1)
			}
		}
		if c.Activation.Start.Run != c.Run || c.Activation.Start.Address != r.Address.Name {
			s.Fail("activation of %s with the start of another run", scenario.Short(c.Run))
		}

	case lane.CallQuery, lane.CallRecall, lane.CallTaken:
		s.Stored(c.Run, nil, "a worker")

	case lane.CallDeliver:
		sh.mayGoOn(s.Stored(c.Run, c.Events, "a worker"), "told of events")
		sh.checkOrder(c)

	case lane.CallPreview:
		sh.checkOrder(c)

	case lane.CallConfirm:
		r := s.Stored(c.Run, nil, "a worker")
		sh.mayGoOn(r, "told that events are durable")
		if c.Durable > int64(len(r.Events)) {
			s.Fail("L2: a worker hears that event %d of %s is durable, and the store has %d", c.Durable, scenario.Short(c.Run), len(r.Events))
		}

	case lane.CallRetry:
		r := s.Stored(c.Run, nil, "a worker")
		sh.mayGoOn(r, "to retry")
		b, a, ok := scenario.ParseAsk(c.ID)
		if !ok || r.Asks[b][a].Attempts == 0 {
			s.Fail("L2: a worker is to repeat %s of %s, which has not failed", c.ID, scenario.Short(c.Run))
		}

	case lane.CallEvict:
		r := s.Ledger.Runs[c.Run]
		if c.Reason == "closed" && (r == nil || r.Open()) {
			s.Fail("L2: a worker hears that %s is closed, and it is open", scenario.Short(c.Run))
		}
		if (strings.Contains(c.Reason, "quarantined") || strings.Contains(c.Reason, "cannot be understood")) && r != nil && !r.Address.Sick {
			s.Fail("I14: %s is quarantined, but nothing has damaged it: %s", r.Address.Name, c.Reason)
		}
		if strings.Contains(c.Reason, "could not be stored") && r != nil && !r.Address.Sick {
			if w := sh.inc.p.worker(c.Worker); w != nil && !w.Leaving {
				s.Fail("I14: a turn of %s is undone by a row of another address", r.Address.Name)
			}
		}
		if strings.HasPrefix(c.Reason, "stale") {
			s.Did(scenario.OpStale)
		}
		if strings.Contains(c.Reason, "preview") {
			s.Did(scenario.OpSpoiled)
		}
		sh.checkTaken(c, r)
	}
}

// checkOrder checks that a worker gets the events of a run without a gap.
func (sh *shell) checkOrder(c *lane.Call) {
	if len(c.Events) == 0 {
		sh.s.Fail("worker %d of %s gets nothing for %s", c.Worker, sh.inc.name(), scenario.Short(c.Run))
	}
	w := sh.inc.p.worker(c.Worker)
	if w == nil {
		return
	}
	if h := w.Held[c.Run]; h != nil && h.Gen == c.Generation && c.Events[0].Seq != h.Last()+1 {
		sh.s.Fail("worker %d of %s gets event %d of %s after event %d", w.ID, sh.inc.name(), c.Events[0].Seq, scenario.Short(c.Run), h.Last())
	}
}

// mayBegin fails the simulation if the owner of a run hands the run to a worker before its start
// time. A former owner may hand the run over too early, because it may not know the run.
func (sh *shell) mayBegin(r *oracle.Run) {
	if s := sh.s; r.Waiting() && s.Ledger.Owner[r.Address.Shard] == sh.inc.self.ID {
		s.Fail("T1: %s of %s is activated, and begins at %s", scenario.Short(r.ID), r.Address.Name, r.Start.Begins)
	}
}

// giveUp lets the lane give up shards, and remembers the time of the order.
func (sh *shell) giveUp(now model.Time, shards []model.ShardID) {
	if sh.Moving == nil {
		sh.Moving = map[model.ShardID]model.Time{}
	}
	for _, id := range shards {
		sh.Moving[id] = now
	}
	sh.Lane.GiveUp(now, shards)
}

// checkTaken checks that no lane takes a run from its worker while the worker runs a step.
// Otherwise the body would run again although nothing has crashed. The exception is a shard that
// has waited long enough to move to another node.
func (sh *shell) checkTaken(c *lane.Call, r *oracle.Run) {
	w := sh.inc.p.worker(c.Worker)
	orderly := c.Reason == "the shard moves" || c.Reason == "the worker leaves" || strings.Contains(c.Reason, "paused")
	if w == nil || r == nil || !orderly {
		return
	}
	h := w.Held[c.Run]
	if h == nil || h.Gen != c.Generation || !h.Wanted() {
		return
	}
	since, moving := sh.Moving[sh.s.ShardOf(r.Address.Name)]
	if c.Reason == "the shard moves" && moving && sh.inc.p.Now() >= since.Add(sh.s.Plan.Lane.DrainWait) {
		return
	}
	sh.s.Fail("%s is taken from worker %d of %s while a step of it runs: %s", scenario.Short(c.Run), w.ID, sh.inc.name(), c.Reason)
}

// checkMail checks a message that a lane passes on.
func (sh *shell) checkMail(row *store.MessageRow) {
	c := sh.s.Ledger.Channel(row.To, row.From)
	if row.Seq < 1 || row.Seq > int64(len(c.Rows)) || c.Rows[row.Seq-1].Message.To != row.Message.To {
		sh.s.Fail("L2: message %d from shard %d to shard %d is passed on and not in the store", row.Seq, row.From, row.To)
	}
}

// checkDeath checks that a lane stops only for a good reason. Either another node has fenced its
// node, or the lane may have fenced itself.
func (sh *shell) checkDeath(why error) {
	m := sh.s.Ledger.Nodes[sh.inc.self.ID]
	if m.Alive && !sh.unsure {
		sh.s.Fail("lane %d of %s gives up although no node has fenced it: %v", sh.index, sh.inc.name(), why)
	}
}
