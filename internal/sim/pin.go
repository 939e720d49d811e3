package sim

import (
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// In some simulations workers have versions and offer their workflows as pinned: the first worker
// that continues a run binds the run to its version. Deploys take all workers of one version away
// and bring them back later. What must hold: no worker gets a run that is pinned to another
// version, unless its own code no longer pins the workflow; a run is pinned once; and a run that
// waited for its version continues.

var versions = [...]string{"one", "two"}

// unpinned is the version of a build that pins no workflow: it continues every run.
const unpinned = "later"

// drawVersion gives a worker a version, if workers have versions.
func (w *worker) drawVersion() {
	s := w.p.s
	switch {
	case !s.plan.pins:
	case s.chance(0.1):
		w.offer.Version = unpinned
	default:
		w.setVersion(oneOf(s, versions[:]...))
	}
}

// setVersion makes a worker offer its workflows as pinned.
func (w *worker) setVersion(v string) { w.offer.Version, w.offer.Pinned = v, w.offer.Workflows }

// pins reports whether the code of the worker pins a workflow.
func (w *worker) pins(workflow string) bool { return slices.Contains(w.offer.Pinned, workflow) }

// pin binds a run without a version to the version of its worker.
func (h *hold) pin(cs *[]model.Command, eventful *int) {
	if h.pinning || h.m.pin != "" || !h.w.pins(h.m.start.Address.Type) {
		return
	}
	h.pinning = true
	*eventful++
	*cs = append(*cs, model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventPinned, ID: "pin", Name: h.w.offer.Version}})
}

// pinned records that a run is bound to a version.
func (l *ledger) pinned(r *run, e *model.Event) {
	if r.pin != "" {
		l.fail("I20: %s is pinned to %s, and was to %s", r.id, e.Name, r.pin)
	}
	r.pin = e.Name
	l.s.did(opPinned)
}

// mayContinue fails if the owner of a pinned run hands it to a worker of another version. A former
// owner may not know the pin.
func (sh *shell) mayContinue(w *worker, r *run) {
	s := sh.s
	if w == nil || r.pin == "" || s.ledger.owner[r.address.shard] != sh.inc.self.ID {
		return
	}
	if w.pins(r.address.name.Type) && w.offer.Version != r.pin {
		s.fail("I20: %s of %s is pinned to version %s, and goes to worker %d of %s, which is version %s", short(r.id), r.address.name, r.pin, w.id, w.p.name(), w.offer.Version)
	}
	if w.offer.Version == unpinned {
		s.did(opUnpinned)
	}
	if r.stranded {
		r.stranded = false
		s.did(opUnstranded)
	}
}

// explained records that a run waits for a worker of its version.
func (s *Sim) explained(a *address, why model.Reason) {
	if r := a.current; why.Code == model.WaitWorker && strings.HasPrefix(why.Detail, "version ") && r != nil && r.open() && r.pin != "" {
		r.stranded = true
		s.did(opStranded)
	}
}

// deploy replaces the workers of one version in all processes, and brings them back after a while.
func (s *Sim) deploy() {
	old, next := versions[0], versions[1]
	if s.chance(0.5) {
		old, next = next, old
	}
	s.hurt(faultDeploy)

	each := func(do func(p *proc)) {
		for _, p := range s.procs {
			if p != nil {
				s.at(s.now, p, func() { do(p) })
			}
		}
	}

	each(func(p *proc) {
		for _, w := range slices.Clone(p.workers) {
			if w.offer.Version != next {
				w.leave()
			}
		}
		p.join(false, next)
	})

	s.after(s.between(5, 150)*millisecond, nil, s.lookForStranded)
	s.after(s.between(20, 800)*millisecond, nil, func() { each(func(p *proc) { p.join(false, old) }) })
}

// lookForStranded asks the owners of pinned runs why these wait.
func (s *Sim) lookForStranded() {
	for _, r := range s.ledger.order {
		if !r.open() || r.pin == "" {
			continue
		}
		for _, p := range s.procs {
			if p != nil && p.inc != nil && p.inc.owner[r.address.shard] {
				reasons, _ := p.inc.shells[int(r.address.shard)%len(p.inc.shells)].lane.Explain(r.address.name)
				for _, why := range reasons {
					s.explained(r.address, why)
				}
			}
		}
	}
}
