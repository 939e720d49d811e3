package cluster

import (
	"slices"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/sim/worker"
)

// checkOperate checks the operations that a lane hands to a worker of entities: views run on
// durable state (L10), and nothing begins before its cause is durable (L2).
func (sh *shell) checkOperate(o *model.Operations) {
	s := sh.s
	for i := range o.Calls {
		s.CheckBegun(sh.inc.self.ID, o.Entity, &o.Calls[i])
	}
	if o.Entity.Stateless() {
		return
	}
	n := s.Ledger.HoldingOf(o.Entity)
	// The check needs EntityIdleTTL = 0: with an idle time, an operation prolongs the state before
	// the store has the new time.
	if s.Plan.EntityIdleTTL == 0 && o.Exists && n.IsOver(scenario.StampOf(scenario.AccountOf(o.State, true)), o.Now) {
		s.Fail("X1: %s is called on a state that has expired", o.Entity)
	}
	if o.Calls[0].Name != scenario.DoRead {
		return
	}
	// In a section a view is an ordinary call. A view that runs ahead is in a section.
	if d, _ := scenario.DeedOf(o.Calls[0].Input); s.Ledger.Doings[d.ID] == nil || s.Ledger.Doings[d.ID].Section != "" {
		return
	}
	if n.Seen(scenario.StampOf(scenario.AccountOf(o.State, o.Exists)), 0) < 0 {
		s.Fail("L10: a view of %s is made on a state that is not in the store", o.Entity)
	}
}

// Engage adds a teller to a process.
func (p *Proc) Engage() {
	s := p.Cluster
	p.nextTeller--
	t := &worker.Teller{Oracle: s.Oracle, Process: p.Process, Host: p, ID: p.nextTeller}
	accounts := model.EntityType{Type: scenario.AccountType, Views: []string{scenario.DoRead}, Idle: s.Plan.EntityIdle, TTL: s.Plan.EntityTTL, IdleTTL: s.Plan.EntityIdleTTL}
	desks := model.EntityType{Type: scenario.DeskType, Concurrency: s.Plan.Overlap, Idle: s.Plan.EntityIdle}
	t.Offer = model.EntityOffer{Name: "sim", Tenant: scenario.Tenant, Types: []model.EntityType{accounts, desks}, Slots: s.Plan.Slots}
	if !s.Healed && s.Chance(0.2) {
		t.Offer.Types = t.Offer.Types[:1]
	}
	p.Tellers = append(p.Tellers, t)
	if p.Inc != nil {
		p.Inc.engage(t)
	}
}

func (inc *incarnation) engage(t *worker.Teller) {
	slots := inc.newSlots(t.ID, t.Offer.Slots, &t.Kept)
	for _, sh := range inc.Shells {
		sh.result(func(now model.Time) { sh.Lane.JoinEntities(now, t.ID, t.Offer, slots) })
	}
}

// operate passes the hand-overs of a lane to tellers.
func (p *Proc) operate(sh *shell, calls []lane.OperateCall) {
	s := p.Cluster
	for i := range calls {
		c := &calls[i]
		s.Mix(7, uint64(int64(c.Worker)), c.Operations.Generation, uint64(len(c.Operations.Calls)))
		sh.checkOperate(&c.Operations)
		is := func(t *worker.Teller) bool { return t.ID == c.Worker }
		if j := slices.IndexFunc(p.Tellers, is); j >= 0 {
			p.Tellers[j].Operate(c.Operations)
		} else if j := slices.IndexFunc(p.dead, is); j >= 0 {
			p.dead[j].Operate(c.Operations)
		}
	}
}
