package cluster

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/sim/worker"
)

// mayContinue fails the simulation if the owner of a pinned run hands the run to a worker of
// another version. A former owner may hand the run to such a worker, because it may not know the
// pin.
func (sh *shell) mayContinue(w *worker.Worker, r *oracle.Run) {
	s := sh.s
	if w == nil || r.Pin == "" || s.Ledger.Owner[r.Address.Shard] != sh.inc.self.ID {
		return
	}
	if w.Pins(r.Address.Name.Type) && w.Offer.Version != r.Pin {
		s.Fail("I20: %s of %s is pinned to version %s, and goes to worker %d of %s, which is version %s", scenario.Short(r.ID), r.Address.Name, r.Pin, w.ID, w.Process.Name(), w.Offer.Version)
	}
	if w.Offer.Version == scenario.Unpinned {
		s.Did(scenario.OpUnpinned)
	}
	if r.Stranded {
		r.Stranded = false
		s.Did(scenario.OpUnstranded)
	}
}

// mayGoOn fails the simulation if the owner of a paused run hands work of the run to a worker. A
// former owner may hand work out, because it may not know that the run is paused.
func (sh *shell) mayGoOn(r *oracle.Run, what string) {
	if s := sh.s; r.Paused && s.Ledger.Owner[r.Address.Shard] == sh.inc.self.ID {
		s.Fail("I15: %s of %s is %s while it is paused", scenario.Short(r.ID), r.Address.Name, what)
	}
}

// Join adds a worker to a process. If workers have versions and none is given, the version is
// random.
func (p *Proc) Join(bad bool, version string) {
	p.nextID++
	w := &worker.Worker{Oracle: p.Cluster.Oracle, Process: p.Process, Host: p, ID: p.nextID, Bad: bad, Held: map[model.RunID]*worker.Hold{}}
	w.Offer = model.Offer{Name: "sim", Tenant: scenario.Tenant, Workflows: p.Cluster.WorkflowTypes(), Slots: p.Cluster.Plan.Slots, Previews: p.Cluster.Has(scenario.Previews)}

	if bad {
		p.Cluster.Hurt(scenario.FaultBadWorker)
	} else if !p.Cluster.Healed && p.Cluster.Chance(0.2) {
		w.Offer.Workflows = p.Cluster.WorkflowTypes()[:1+p.Cluster.Pick(2)]
	}

	if version == "" {
		w.DrawVersion()
	} else {
		w.SetVersion(version)
	}

	if p.Cluster.Has(scenario.Outliving) {
		w.Process = p.Cluster.NewProcess(fmt.Sprintf("%s-w%d", p.Label, w.ID))
		p.Cluster.remotes = append(p.Cluster.remotes, w)
	}

	p.Workers = append(p.Workers, w)
	if p.Inc != nil {
		p.Inc.join(w)
	}
}

func (inc *incarnation) join(w *worker.Worker) {
	slots := inc.newSlots(w.ID, w.Offer.Slots, &w.Kept)
	for i, sh := range inc.Shells {
		id, offer := w.ID, w.Offer
		offer.Held = inc.heldIn(i, offer.Held)
		sh.result(func(now model.Time) { sh.Lane.Join(now, id, offer, slots) })
	}
}

func (p *Proc) worker(id lane.WorkerID) *worker.Worker {
	for _, w := range p.Workers {
		if w.ID == id {
			return w
		}
	}
	return nil
}

// call passes a call of a lane to a worker.
func (p *Proc) call(c *lane.Call) {
	w := p.worker(c.Worker)
	if w == nil {
		return
	}

	if c.Kind == lane.CallRecall {
		// the worker may still hold the run whose end it has reported
		w.Recall(c.Run, c.Generation, *c.Query)
		return
	}

	h := w.Held[c.Run]
	if h != nil && h.Gen != c.Generation {
		if c.Kind != lane.CallActivate {
			return
		}
		p.Cluster.Fail("worker %d of %s gets %s while it holds it already", w.ID, p.Name(), scenario.Short(c.Run))
	}

	switch c.Kind {
	case lane.CallActivate:
		p.disclaim(c.Run)
		w.Activate(c.Activation)
	case lane.CallDeliver:
		if h != nil {
			h.Deliver(c.Events)
		}
	case lane.CallPreview:
		if h != nil {
			h.Preview(c.Events)
		}
	case lane.CallConfirm:
		if h != nil {
			h.Confirm(c.Durable)
		}
	case lane.CallRetry:
		if h != nil {
			h.Retry(c.ID)
		}
	case lane.CallQuery:
		if h != nil {
			h.Query(*c.Query)
		}
	case lane.CallRecall: // see above
	case lane.CallTaken:
		p.checkTaken(w, c)
	case lane.CallEvict:
		p.Cluster.Did(scenario.OpEvicted)
		if h != nil {
			if p.Cluster.Tracing {
				p.Cluster.Logf("%s worker %d evicted %s: %s", p.Name(), w.ID, scenario.Short(c.Run), c.Reason)
			}
			h.Drop()
		}
	}
}

// checkTaken fails the simulation if a lane answers a turn that the worker has not reported, or
// answers a turn twice.
func (p *Proc) checkTaken(w *worker.Worker, c *lane.Call) {
	if h := w.Held[c.Run]; h != nil && !h.Answer() {
		p.Cluster.Fail("I22: worker %d of %s gets an answer about %s, and has reported no turn", w.ID, p.Name(), scenario.Short(c.Run))
	}
}

// Serves implements worker.host.
func (p *Proc) Serves() bool { return p.Inc != nil }

// Lanes implements worker.host.
func (p *Proc) Lanes() int {
	if p.Inc == nil {
		return 0
	}
	return len(p.Inc.Shells)
}

// Post implements worker.host.
func (p *Proc) Post(generation uint64, do func(now model.Time, l *lane.Lane)) bool {
	if p.Inc == nil {
		return false
	}
	sh := p.Inc.Shells[generation%uint64(len(p.Inc.Shells))]
	return sh.put(nil, func(now model.Time) { do(now, sh.Lane) })
}

// Tell implements worker.host.
func (p *Proc) Tell(do func(now model.Time, l *lane.Lane)) {
	if p.Inc == nil {
		return
	}
	for _, sh := range p.Inc.Shells {
		sh.result(func(now model.Time) { do(now, sh.Lane) })
	}
}

// Follow implements worker.host.
func (p *Proc) Follow(do func(now model.Time, l *lane.Lane)) {
	if p.Inc == nil {
		return
	}
	for _, sh := range p.Inc.Shells {
		sh.put(nil, func(now model.Time) { do(now, sh.Lane) })
	}
}

// Dismiss implements worker.host.
func (p *Proc) Dismiss(w *worker.Worker) {
	p.Workers = slices.DeleteFunc(p.Workers, func(o *worker.Worker) bool { return o == w })
}

// ReplaceTeller implements worker.host.
func (p *Proc) ReplaceTeller() {
	s := p.Cluster
	s.After(s.Between(0, 50)*kernel.Millisecond, p.Process, p.Engage)
}

// DismissTeller implements worker.host.
func (p *Proc) DismissTeller(t *worker.Teller) {
	p.Tellers = slices.DeleteFunc(p.Tellers, func(o *worker.Teller) bool { return o == t })
	if t.IsDead() {
		p.dead = append(p.dead, t)
	}
}
