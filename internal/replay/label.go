package replay

import (
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// SetLabel sets a label of the execution, or removes it when the value is empty. The change is
// recorded once: a replay finds the record and does not record the change again. If the code no
// longer sets a label that is recorded, the worker ignores the record, because no other part of the
// code can depend on a label.
func (x Ctx) SetLabel(name, value string) error {
	if err := x.enter("SetLabel", name); err != nil {
		return err
	}
	if err := model.CheckLabel(name, value); err != nil {
		return fault.New(fault.Invalid, "%w", err)
	}
	m := x.co.m
	labels := model.SetLabel(m.labels, name, value)
	if len(labels) > model.MaxLabels {
		return fault.New(fault.Exhausted, "label %s would be number %d of the execution, which may have %d", name, len(labels), model.MaxLabels)
	}

	m.labels = labels
	a := m.newAsk(x.co.path, &identity{kind: askLabel, name: name})
	m.note(a, []byte(value))

	if m.strayLabels[a.id] {
		a.recorded = true // the history has the label at an earlier place
		return nil
	}

	m.request(a, model.Command{Kind: model.CommandRecord, Event: model.Event{
		Kind: model.EventLabeled, ID: a.id, Name: name, Output: model.TextPayload(value), Position: a.position,
	}})
	return nil
}

// applyLabel applies the record of a label.
func (m *machine) applyLabel(e *model.Event) {
	if a := m.find(e.ID); a != nil {
		m.apply(a, e)
		return
	}
	if m.strayLabels == nil {
		m.strayLabels = map[string]bool{}
	}
	m.strayLabels[e.ID] = true
}

// StartLabel returns the value of a label that the run was started with; empty if there is no such
// label.
func (x Ctx) StartLabel(name string) string {
	x.must("StartLabel")
	for _, l := range x.co.m.r.start.Labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}
