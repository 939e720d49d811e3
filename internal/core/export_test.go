package core

import (
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
)

// Diff describes how two states of a run differ; empty when they do not. Timers are compared as a
// set. It does not compare facts that are only in memory: the firings that the code has not seen,
// and the back-offs that its worker has been woken for.
func Diff(a, b *Execution) string {
	if (a == nil) != (b == nil) {
		return fmt.Sprintf("one is nil: %v, %v", a == nil, b == nil)
	}
	if a == nil {
		return ""
	}
	var out strings.Builder

	field := func(name string, x, y any) {
		if s, t := fmt.Sprintf("%+v", x), fmt.Sprintf("%+v", y); s != t {
			fmt.Fprintf(&out, "%s: %s, %s\n", name, s, t)
		}
	}

	timers := func(x *Execution) (ts []string) {
		for _, t := range x.timers {
			ts = append(ts, fmt.Sprintf("%q@%d", t.ID, t.Due))
		}
		slices.Sort(ts)
		return ts
	}

	field("start", a.Start, b.Start)
	field("status", a.Outcome.Status, b.Outcome.Status)
	field("next", a.Next, b.Next)
	field("last", a.Last, b.Last)
	field("canceling", a.Canceling, b.Canceling)
	field("parked", a.Parked, b.Parked)
	field("blocked", a.Blocked != nil, b.Blocked != nil)
	if a.Blocked != nil && b.Blocked != nil {
		field("blocked", *a.Blocked, *b.Blocked)
	}
	field("timers", timers(a), timers(b))
	field("children", a.children, b.children)
	field("settled", a.settled, b.settled)
	field("signals", a.signals, b.signals)
	field("labels", a.labels, b.labels)
	field("watchers", a.watchers, b.watchers)
	field("calls", a.calls, b.calls)
	field("sections", a.sections, b.sections)
	field("updates", a.updates, b.updates)
	field("states", a.states, b.states)
	field("pin", a.Pin, b.Pin)
	field("paused", a.Paused != nil, b.Paused != nil)
	if a.Paused != nil && b.Paused != nil {
		field("paused", *a.Paused, *b.Paused)
	}

	return out.String()
}

// Facts are parts of a state that only the core sees, for tests.
type Facts struct {
	Children, Settled, Calls, States []string
	Signals, Updates                 []int64
	Watchers                         int
}

// FactsOf returns the facts of a run.
func FactsOf(x *Execution) (f Facts) {
	for _, c := range x.children {
		f.Children = append(f.Children, c.id)
	}
	f.Settled = slices.Clone(x.settled)
	for i := range x.signals {
		f.Signals = append(f.Signals, x.signals[i].Seq)
	}
	for _, c := range x.calls {
		f.Calls = append(f.Calls, c.id)
	}
	for i := range x.updates {
		f.Updates = append(f.Updates, x.updates[i].Seq)
	}
	for i := range x.states {
		f.States = append(f.States, fmt.Sprintf("%s=%s", x.states[i].Name, x.states[i].Output.Data))
	}
	f.Watchers = len(x.watchers)

	return f
}

// SectionFacts is an open section of a run, for tests.
type SectionFacts struct {
	ID     string
	Locks  []model.Address
	Epochs []int64
}

// SectionsOf returns the open sections of a run.
func SectionsOf(x *Execution) (all []SectionFacts) {
	for _, s := range x.sections {
		all = append(all, SectionFacts{s.id, s.locks, slices.Clone(s.epochs)})
	}
	return all
}

// IsGranted reports whether the section has all its locks.
func (s *SectionFacts) IsGranted() bool { return len(s.Epochs) == len(s.Locks) }

// AskedEntities returns the entities that are locked for the section, and the entity whose lock it
// waits for.
func (s *SectionFacts) AskedEntities() []model.Address {
	return s.Locks[:min(len(s.Epochs)+1, len(s.Locks))]
}
