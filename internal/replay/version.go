package replay

import (
	"fmt"

	"github.com/perdure/perdure/internal/model"
)

// Version returns the version of a change that this run follows. If the history has a mark for the
// change, Version returns the version in that mark. If the history has no mark, but shows that the
// code has passed this point before, Version returns the oldest version, because the code did not
// have the change at that time. Otherwise Version returns the newest version and records a mark.
// The worker ignores a mark that the code no longer asks for. So developers can remove a change
// from the code when no run follows an older version.
func (x Ctx) Version(change string, oldest, newest int) int {
	x.must("Version")
	c, m := x.co, x.co.m
	if change == "" || change == suggestion || oldest > newest {
		panic(misuse("Version of %q from %d to %d: it needs the name of a change, and the oldest version that the code supports before the newest", change, oldest, newest))
	}

	v, known := m.versions[change]
	if !known {
		v = m.choose(change, oldest, newest)
		if m.versions == nil {
			m.versions = map[string]int{}
		}
		m.versions[change] = v
	}

	if v < oldest || v > newest {
		m.block(fmt.Sprintf("the run follows version %d of change %q; the code supports %d to %d", v, change, oldest, newest))
		c.park()
		panic("replay: a blocked run continued") // park ends the goroutine
	}

	return v
}

// choose finds or creates the mark of a change. Marks belong to the run, so it does not matter
// which coroutine asks first.
func (m *machine) choose(change string, oldest, newest int) int {
	past := false
	for i, e := range m.r.events {
		if e.Kind == model.EventVersionMarked && e.Name == change {
			m.newAsk("", &identity{kind: askMark, name: change}).recorded = true
			return int(e.Ref)
		}
		past = past || i >= m.fed && m.isUnasked(e)
	}

	if past {
		return oldest
	}
	a := m.newAsk("", &identity{kind: askMark, name: change})
	m.request(a, model.Command{Kind: model.CommandRecord, Event: model.Event{
		Kind: model.EventVersionMarked, ID: a.id, Name: change, Ref: int64(newest), Position: a.position,
	}})
	m.marks = true

	return newest
}

// isUnasked reports whether an event answers something that the code has not asked for yet. If so,
// the code that made the record asked for it at a later place.
func (m *machine) isUnasked(e *model.Event) bool {
	if isUnsolicited(e) {
		return false
	}
	a := m.find(e.ID)
	return a == nil || e.Kind == model.EventWithdrawn && !a.withdrawn
}
