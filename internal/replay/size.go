package replay

import "github.com/perdure/perdure/internal/model"

// suggestion is the name of a mark in the history. The mark records a length: once the history is
// that long, the run should continue as new. Version refuses this name as the name of a change.
const suggestion = "perdure/continue-as-new"

// HistoryLength returns how many events the history has up to the position of the code, including
// the start.
func (x Ctx) HistoryLength() int64 {
	x.must("HistoryLength")
	x.co.settle()
	return x.co.m.length()
}

// HistoryBytes estimates how many bytes the history has up to the position of the code, as the
// engine counts them.
func (x Ctx) HistoryBytes() int {
	x.must("HistoryBytes")
	x.co.settle()
	return x.co.m.weight()
}

// ShouldContinue reports whether the history has reached half of a limit. Limits may change while
// the run is open. So when the answer becomes true, the run records the length of the history at
// that point. A replay gives the same answer at each position.
func (x Ctx) ShouldContinue() bool {
	x.must("ShouldContinueAsNew")
	x.co.settle()
	m := x.co.m
	if m.suggested == 0 {
		m.suggested = m.suggest()
	}
	return m.suggested > 0 && m.suggested <= m.length()
}

// suggest returns the length that the history must have reached for the run to continue as new; 0
// while no such length is known.
func (m *machine) suggest() int64 {
	past := false
	for i, e := range m.r.events {
		if e.Kind == model.EventVersionMarked && e.Name == suggestion {
			m.newAsk("", &identity{kind: askMark, name: suggestion}).recorded = true
			return e.Ref
		}
		past = past || i >= m.fed && m.isUnasked(e)
	}

	near := func(is, most int64) bool { return most > 0 && is >= most/2 }
	if lim := &m.r.limits; past || !near(m.length(), lim.Events) && !near(int64(m.weight()), int64(lim.Bytes)) {
		return 0
	}
	a := m.newAsk("", &identity{kind: askMark, name: suggestion})
	m.request(a, model.Command{Kind: model.CommandRecord, Event: model.Event{
		Kind: model.EventVersionMarked, ID: a.id, Name: suggestion, Ref: m.length(), Position: a.position,
	}})
	m.marks = true

	return m.length()
}

// length returns how many events the history has up to the position of the code, including the
// start.
func (m *machine) length() int64 { return int64(m.fed) + 1 }

// weight estimates how many bytes the history has up to the position of the code. It adds what was
// fed since the last call.
func (m *machine) weight() int {
	if m.weighed == 0 {
		m.bytes = m.r.start.Input.Size()
	}
	for ; m.weighed < m.fed; m.weighed++ {
		m.bytes += m.r.events[m.weighed].Size()
	}
	return m.bytes
}
