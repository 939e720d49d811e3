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
// has chosen. As always, a call ends with the report of its worker. If the worker has already sent
// the report, it ignores the interruption.
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

// statePin returns the version of the state of an entity: only code that knows this version can
// read the state. The result has the form of the version that a run is pinned to. It is empty if
// all code can read the state.
func statePin(n *model.Entity) string {
	if !n.Exists || n.State.Encoding == "" {
		return ""
	}
	if v := n.State.StateVersion(); v > 1 {
		return strconv.Itoa(v)
	}
	return ""
}
