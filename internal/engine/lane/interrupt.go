package lane

import (
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// InterruptCall tells a worker to interrupt a call that it has.
type InterruptCall struct {
	Worker       WorkerID
	Interruption model.Interruption
}

// interrupt tells the workers that have calls of an entity to interrupt the calls that an operator
// has chosen. A call ends as always, by the report of its worker. If the report is on its way, the
// worker ignores the interruption.
func (l *Lane) interrupt(e *entry, m *model.Message) {
	n := e.actor.entity
	for _, j := range e.actor.jobs {
		i := slices.IndexFunc(j.items, func(it *core.Item) bool { return n.IsInterrupted(it, m) })
		if i < 0 {
			continue
		}
		if m.ID == "" {
			i = model.AnyCall
		}
		l.out.Interrupts = append(l.out.Interrupts, InterruptCall{j.worker, model.Interruption{Entity: e.address, Generation: j.gen, Call: i}})
	}
}

// statePin returns the version that the code of an entity must know to read its state, in the form
// of the version that a run is pinned to. It is empty if all code can read the state.
func statePin(n *model.Entity) string {
	if !n.Exists || n.State.Encoding == "" {
		return ""
	}
	if v := n.State.StateVersion(); v > 1 {
		return strconv.Itoa(v)
	}
	return ""
}
