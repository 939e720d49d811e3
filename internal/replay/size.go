package replay

import "github.com/perdure/perdure/internal/model"

// suggestion is the name of the mark that records since when a run should continue as new. Version
// refuses it as the name of a change.
const suggestion = "perdure/continue-as-new"

// HistoryLength is how many events the history has up to where the code is, with the start.
func (x Ctx) HistoryLength() int64 {
	x.must("HistoryLength")
	x.co.settle()
	return x.co.m.length()
}

// HistoryBytes is roughly how many bytes the history takes up to where the code is, as the engine
// counts them.
func (x Ctx) HistoryBytes() int {
	x.must("HistoryBytes")
	x.co.settle()
	return x.co.m.weight()
}

// ShouldContinue reports whether the history has come half the way to a limit. Limits may be
// changed while the run goes on, so what the code has been told is recorded: since which length of
// the history it is true. Where it was not told so before, it is not now.
func (x Ctx) ShouldContinue() bool {
	x.must("ShouldContinueAsNew")
	x.co.settle()
	m := x.co.m
	if m.suggested == 0 {
		m.suggested = m.suggest()
	}
	return m.suggested > 0 && m.suggested <= m.length()
}

// suggest is the length of the history since which the run should continue as new; 0 when it need
// not.
func (m *machine) suggest() int64 {
	past := false
	for i, e := range m.r.events {
		if e.Kind == model.EventVersionMarked && e.Name == suggestion {
			m.newAsk("", &identity{kind: askMark, name: suggestion}).recorded = true
			return e.Ref
		}
		past = past || i >= m.fed && m.unasked(e)
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

// length is how many events the history has up to where the code is, with the start.
func (m *machine) length() int64 { return int64(m.fed) + 1 }

// weight is roughly how many bytes the history takes up to where the code is. It counts what was
// fed since it was last asked.
func (m *machine) weight() int {
	if m.weighed == 0 {
		m.bytes = m.r.start.Input.Size()
	}
	for ; m.weighed < m.fed; m.weighed++ {
		m.bytes += m.r.events[m.weighed].Size()
	}
	return m.bytes
}
