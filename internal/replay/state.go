package replay

import (
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of the state of a run. Every continue-as-new copies the state. So state is meant for small
// values that operators want to see, not for large data.
const (
	maxStates     = 256
	maxStateBytes = 1 << 20
)

// isCarriedState reports whether the event is state that this run took over from the run before.
// The code of this run has not set that state.
func isCarriedState(e *model.Event) bool { return e.Kind == model.EventStateSet && e.ID == "" }

// carryStates gives the code the state of the run before, from its first line.
func (m *machine) carryStates() {
	for i := range m.r.start.Carried {
		if e := &m.r.start.Carried[i]; isCarriedState(e) {
			m.setState(e.Name, e.Output)
		}
	}
}

func (m *machine) setState(name string, p model.Payload) {
	if len(p.Data) == 0 {
		delete(m.states, name)
		return
	}
	if m.states == nil {
		m.states = map[string]model.Payload{}
	}
	m.states[name] = p
}

// SetState sets a state of the run. Clients can read the state when it is committed. An empty
// payload removes the state. seal returns the stored form of the payload; it may be nil.
func (x Ctx) SetState(name string, p model.Payload, seal Seal) error {
	if err := x.enter("Set", name); err != nil {
		return err
	}
	m := x.co.m
	if err := m.roomForState(name, p); err != nil {
		return err
	}

	m.setState(name, p)
	a := m.newAsk(x.co.path, &identity{kind: askState, name: name})
	a.seal = seal
	m.note(a, p.Data)
	m.serveEarly(a)

	if !a.recorded {
		m.request(a, model.Command{Kind: model.CommandRecord, Event: model.Event{
			Kind: model.EventStateSet, ID: a.id, Name: name, Output: p, Position: a.position,
		}})
	}

	return nil
}

// roomForState returns an error if the state would exceed a bound.
func (m *machine) roomForState(name string, p model.Payload) error {
	bytes, n := len(name)+p.Size(), 1
	for other, q := range m.states {
		if other != name {
			bytes, n = bytes+len(other)+q.Size(), n+1
		}
	}
	switch {
	case len(p.Data) == 0:
	case n > maxStates:
		return fault.New(fault.Exhausted, "state %s would be the %dth of the execution, which may have %d", name, n, maxStates)
	case bytes > maxStateBytes:
		return fault.New(fault.Exhausted, "with state %s the execution would hold %d bytes of state, and may hold %d", name, bytes, maxStateBytes)
	}
	return nil
}

// State returns the value that the code set last.
func (x Ctx) State(name string) (model.Payload, bool) {
	x.must("Get")
	p, ok := x.co.m.states[name]
	return p, ok
}
