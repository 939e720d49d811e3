package worker

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// In some seeds workers are separate processes, and outlive the server that gives them runs, as
// remote workers do. A worker that loses its server keeps the bodies that run, and the outcomes
// that the server has not confirmed. When another server gives it the run again, a step takes over
// the kept body or outcome instead of running again.

// body is an attempt of a step that a worker runs.
type body struct {
	hold    *Hold // nil after the worker has lost its server
	b, a    int   // the place of the step in the program
	attempt int
	done    bool // the body has ended without a hold, or its outcome is not confirmed
}

// end handles the return of the body.
func (y *body) end() {
	if y.hold == nil {
		y.done = true
		return
	}
	y.hold.ran(y.b, y.a)
}

// Lose makes the worker forget its runs, because its server is gone. The offer of the worker to the
// next server lists these runs.
func (w *Worker) Lose() {
	ids := make([]model.RunID, 0, len(w.Held))
	for id := range w.Held {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, model.RunID.Compare)

	var held []model.HeldRun
	for _, h := range w.Offer.Held { // runs that the last server has not handed over again
		if len(w.kept[h.Run]) > 0 && w.Held[h.Run] == nil {
			held = append(held, h)
		}
	}
	for _, id := range ids {
		h := w.Held[id]
		held = append(held, model.HeldRun{Address: h.m.Start.Address, Run: id, Given: h.since})
		h.keep()
		h.Drop()
	}
	w.Offer.Held = held
}

// Disclaim removes a run from the list of runs that the worker had when it lost its last server. A
// server has handed the run over again, to this worker or to another one. If this worker then gives
// the run back and loses its server, its next offer does not name the run, because another worker
// may have it by then.
func (w *Worker) Disclaim(run model.RunID) {
	isRun := func(h model.HeldRun) bool { return h.Run == run }
	if slices.ContainsFunc(w.Offer.Held, isRun) {
		// Change a copy, because lanes share the list.
		w.Offer.Held = slices.DeleteFunc(slices.Clone(w.Offer.Held), isRun)
	}
}

// keep saves the running bodies and the unconfirmed outcomes of the run in the worker.
func (h *Hold) keep() {
	if h.w.kept == nil {
		h.w.kept = map[model.RunID][]*body{}
	}

	kept := h.w.kept[h.run]
	for _, y := range h.bodies {
		if h.marks[y.b][y.a]&markRunning != 0 && y.attempt == h.m.Asks[y.b][y.a].Attempts+1 {
			y.hold = nil
			kept = append(kept, y)
		}
	}

	for b := range h.marks {
		for a := range h.marks[b] {
			if x := &h.m.Asks[b][a]; h.marks[b][a]&markOutcome != 0 && !x.Done && !x.Gone {
				kept = append(kept, &body{b: b, a: a, attempt: x.Attempts + 1, done: true})
			}
		}
	}

	h.w.kept[h.run] = kept
}

// takeOver returns the kept body of an attempt, or nil if the worker has none.
func (h *Hold) takeOver(b, a, attempt int) *body {
	kept := h.w.kept[h.run]
	i := slices.IndexFunc(kept, func(y *body) bool { return y.b == b && y.a == a && y.attempt == attempt })
	if i < 0 {
		return nil
	}
	y := kept[i]
	h.w.kept[h.run] = slices.Delete(kept, i, i+1)
	y.hold = h
	s := h.w.Oracle
	s.Did(scenario.OpBodyKept)
	if y.done {
		s.After(0, h.w.Process, y.end)
	}
	return y
}

// lingers draws how much longer a body takes. The body may take so long that its server ends first.
func (w *Worker) lingers() int64 {
	s := w.Oracle
	if !s.Has(scenario.Outliving) || s.Healed || !s.Chance(0.4) {
		return 0
	}
	return s.Between(0, 600*kernel.Millisecond)
}

// HoldsAny reports whether the worker holds a run at one of the given addresses, or keeps bodies of
// such a run for the next server.
func (w *Worker) HoldsAny(at func(model.Address) bool) bool {
	for _, h := range w.Held {
		if at(h.m.Start.Address) {
			return true
		}
	}
	return slices.ContainsFunc(w.Offer.Held, func(h model.HeldRun) bool { return at(h.Address) })
}

// Runs reports whether the worker still runs an attempt of a step for the next server.
func (w *Worker) Runs(run model.RunID, b, a, attempt int) bool {
	return slices.ContainsFunc(w.kept[run], func(y *body) bool { return !y.done && y.b == b && y.a == a && y.attempt == attempt })
}

// Serves reports whether the worker can continue a run. pin is the version to which the run is
// pinned, or empty.
func (w *Worker) Serves(workflow, pin string) bool {
	return !w.Leaving && !w.Bad && slices.Contains(w.Offer.Workflows, workflow) && (pin == "" || w.Offer.Version == pin || !w.Pins(workflow))
}
