package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// teller is a worker of entities in a process. Its id is negative, as in the engine: positive ids
// are workers of workflows.
type teller struct {
	p       *proc
	id      lane.WorkerID
	offer   model.EntityOffer
	held    []uint64 // generations of hand-overs that it has not reported
	leaving bool
	gone    bool
}

// engage adds a teller to a process.
func (p *proc) engage() {
	s := p.s
	p.nextTeller--
	t := &teller{p: p, id: p.nextTeller}
	accounts := model.EntityType{Type: accountType, Views: []string{doRead}, Idle: s.plan.entityIdle}
	desks := model.EntityType{Type: deskType, Concurrency: s.plan.overlap, Idle: s.plan.entityIdle}
	t.offer = model.EntityOffer{Name: "sim", Tenant: tenant, Types: []model.EntityType{accounts, desks}}
	if !s.healed && s.chance(0.2) {
		t.offer.Types = t.offer.Types[:1]
	}
	p.tellers = append(p.tellers, t)
	if p.inc != nil {
		p.inc.engage(t)
	}
}

func (inc *incarnation) engage(t *teller) {
	for _, sh := range inc.shells {
		sh.result(func(now model.Time) { sh.lane.JoinEntities(now, t.id, t.offer) })
	}
}

// leave takes a teller out of its process. The teller gets nothing new, and leaves when it has
// reported everything, or after a while.
func (t *teller) leave() {
	s, p := t.p.s, t.p
	if t.leaving {
		return
	}
	t.leaving = true
	if s.opts.Trace {
		s.logf("%s teller %d leaves", p.name(), t.id)
	}

	if p.inc != nil {
		for _, sh := range p.inc.shells {
			sh.result(func(model.Time) { sh.lane.Withdraw(t.id) })
		}
	}

	end := s.now + s.between(0, 50)*millisecond
	var wait func()
	wait = func() {
		if len(t.held) > 0 && s.now < end {
			s.after(2*millisecond, p, wait)
			return
		}
		if p.inc != nil {
			for _, sh := range p.inc.shells {
				sh.result(func(now model.Time) { sh.lane.Leave(now, t.id) })
			}
		}
		t.gone, t.held = true, nil
		p.tellers = slices.DeleteFunc(p.tellers, func(o *teller) bool { return o == t })
		s.did(opTellerLeft)
	}

	s.after(2*millisecond, p, wait)
}

// operate passes the hand-overs of a lane to tellers.
func (p *proc) operate(sh *shell, calls []lane.OperateCall) {
	s := p.s
	for i := range calls {
		c := &calls[i]
		s.mix(7, uint64(int64(c.Worker)), c.Operations.Generation, uint64(len(c.Operations.Calls)))
		sh.checkOperate(&c.Operations)
		if j := slices.IndexFunc(p.tellers, func(t *teller) bool { return t.id == c.Worker }); j >= 0 {
			p.tellers[j].operate(c.Operations)
		}
	}
}

// operate makes the calls after a while. Some tellers make only the first ones, report twice, or
// report nothing until the faults have ended.
func (t *teller) operate(o model.Operations) {
	s := t.p.s
	if s.opts.Trace {
		var calls strings.Builder
		for i := range o.Calls {
			d, _ := deedOf(o.Calls[i].Input)
			fmt.Fprintf(&calls, " %s %x", o.Calls[i].Name, d.id)
		}
		s.logf("%s teller %d has calls of %s on state %d, gen %x:%s", t.p.name(), t.id, o.Entity.Key, stampOf(accountOf(o.State, o.Exists && !o.Entity.Stateless())), o.Generation, calls.String())
	}

	t.held = append(t.held, o.Generation)
	took := oneOf(s, 0, s.between(0, 2*millisecond), s.between(0, 30*millisecond))
	if !s.healed && s.chance(0.04) {
		s.hurt(faultTellerHangs)
		took = max(took, s.plan.faultsUntil-s.now)
	}

	s.after(took, t.p, func() {
		most := len(o.Calls)
		if !s.healed && most > 1 && s.chance(0.15) {
			most = 1 + s.pick(most-1)
			s.hurt(faultHandedBack)
		}
		h, r := s.operate(&o, most)
		s.ledger.handed(h)
		t.report(r)
		if !s.healed && s.chance(0.1) {
			s.hurt(faultOperatedTwice)
			s.after(s.between(0, 3*millisecond), t.p, func() { t.report(r) })
		}
	})
}

// report reports the outcome of calls to the current incarnation, also when the teller has left.
func (t *teller) report(r model.Operated) {
	s := t.p.s
	t.held = slices.DeleteFunc(t.held, func(gen uint64) bool { return gen == r.Generation })
	if s.opts.Trace {
		s.logf("%s teller %d reports %d calls of %s, gen %x", t.p.name(), t.id, len(r.Results), r.Entity.Key, r.Generation)
	}
	if inc := t.p.inc; inc != nil {
		sh := inc.shells[r.Generation%uint64(len(inc.shells))]
		sh.put(nil, func(now model.Time) { sh.lane.FinishCalls(now, t.id, &r) })
	}
}
