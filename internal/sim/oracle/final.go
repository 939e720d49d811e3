package oracle

import (
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// CheckRun compares a run with the store and with its program.
func (s *Oracle) CheckRun(r *Run) {
	row, err := s.Store.LoadExecution(context.Background(), r.Address.Shard, r.Address.Name, r.ID)
	if err != nil || row == nil {
		s.Fail("I4: %s is not in the store: %v", scenario.Short(r.ID), err)
	}
	if row.Outcome.Status != r.outcome.Status || row.Current != (r.Address.Current == r) {
		s.Fail("I3: %s is %s in the store, %s by the ledger", scenario.Short(r.ID), row.Outcome.Status, r.outcome.Status)
	}
	events, err := s.Store.LoadEvents(context.Background(), store.RunKey{Shard: r.Address.Shard, Run: r.ID}, int64(len(r.Start.Carried)), 1<<30, 1<<30)
	if err != nil || len(events)+len(r.Start.Carried) != len(r.Events) {
		s.Fail("I4: %s has %d events in the store, %d by the ledger: %v", scenario.Short(r.ID), len(events)+len(r.Start.Carried), len(r.Events), err)
	}

	for i := range events {
		o := &r.Events[len(r.Start.Carried)+i]
		if e := &events[i]; e.Seq != o.Seq || e.Kind != o.Kind || e.ID != o.ID || e.At != o.At {
			s.Fail("I4: event %d of %s is another one in the store", o.Seq, scenario.Short(r.ID))
		}
	}

	s.checkLabels(r)
}

// CheckProgram compares the outcome of a run with its program.
func (s *Oracle) CheckProgram(r *Run) {
	// Run the program over the history that the code had seen when it returned. The program must
	// end in the same way.
	m := s.NewMachine(&r.Start)
	m.Hide(r.Events)
	for i := range r.Events {
		if m.End != nil {
			break
		}
		m.Feed(&r.Events[i])
	}

	switch {
	case m.Broken != nil:
		s.Fail("I13: history of %s: %v", scenario.Short(r.ID), m.Broken)
	case r.outcome.Status == model.Terminated:
		return // a run may be terminated at any place of its program
	case r.outcome.Status == model.Continued && r.outcome.Failure != nil:
		return // a reset may end a run at any place of its program
	case r.unbegun || timedOut(&r.outcome):
		return // the run may have ended before its program began, or at any place of its program
	case m.End == nil:
		s.Fail("I13: %s is %s, and its program has not ended", scenario.Short(r.ID), r.outcome.Status)
	case m.End.Status != r.outcome.Status || string(m.End.Output.Data) != string(r.outcome.Output.Data):
		s.Fail("I13: %s is %s with %x, its program ends as %s with %x", scenario.Short(r.ID), r.outcome.Status, r.outcome.Output.Data, m.End.Status, m.End.Output.Data)
	}

	if r.outcome.Status == model.Continued {
		if next := s.Ledger.Runs[r.outcome.Next]; next == nil || !next.Start.Input.Equal(m.End.Input) {
			s.Fail("I2: %s continues with another input than its program says", scenario.Short(r.ID))
		}
	}
}

// labels returns the labels of the start of a run, with the changes of its history.
func (r *Run) labels() []model.Label {
	labels := r.Start.Labels
	for i := range r.Events {
		if e := &r.Events[i]; e.Kind == model.EventLabeled {
			labels = model.SetLabel(labels, e.Name, string(e.Output.Data))
		}
	}
	return labels
}

// checkLabels checks that a query finds a run by the labels of its history, and that the next run
// of the chain starts with these labels.
func (s *Oracle) checkLabels(r *Run) {
	rows, err := s.Store.LoadLabels(context.Background(), []store.RunKey{{Shard: r.Address.Shard, Run: r.ID}})
	if err != nil {
		s.Fail("labels of %s: %v", scenario.Short(r.ID), err)
	}
	var stored []model.Label
	for i := range rows {
		stored = append(stored, rows[i].Label)
	}
	if want := r.labels(); !slices.Equal(stored, want) {
		s.Fail("I4: %s is found by the labels %v, its history says %v", scenario.Short(r.ID), stored, want)
	}
	if next := s.Ledger.Runs[r.outcome.Next]; next != nil && next.Start.Source.IsZero() && !slices.Equal(next.Start.Labels, r.labels()) {
		s.Fail("I2: %s continues with the labels %v, it had %v", scenario.Short(r.ID), next.Start.Labels, r.labels())
	}
}

// CheckOps compares the answers that users got with the store.
func (s *Oracle) CheckOps() {
	for _, o := range s.Ops {
		var ids []model.Payload
		switch o.Message.Kind {
		case model.MessageSignal:
			ids = append(ids, o.Message.Input)
		case model.MessageStart:
			for i := range o.Message.With {
				ids = append(ids, o.Message.With[i].Input)
			}
		default:
		}

		for _, p := range ids {
			got := s.Ledger.signals[scenario.SignalID(p)]
			if o.Acked && got == nil {
				s.Fail("I4: %s was accepted and is not in a history", o)
			}
			if o.Misuses && got != nil && !s.IsForgotten(o) {
				s.Fail("A1: %s is in a history, and its id belongs to another request", o)
			}
			if o.Refused != nil && o.Tries == 1 && o.Shadow == nil && !s.isRepeated(o) && got != nil {
				s.Fail("I10: %s was refused (%v) and is in a history", o, o.Refused)
			}
		}
	}

	s.checkOrder()
}

// isRepeated reports whether another op repeats this op.
func (s *Oracle) isRepeated(o *Op) bool {
	for _, x := range s.Ops {
		if x.Shadow == o {
			return true
		}
	}
	return false
}

// checkOrder checks that signals of one user to one address arrive in order: if a signal was
// accepted before the user sent another one, the first signal comes first. A late copy of a signal
// says nothing about the order, because the owner may have received the first copy long before.
func (s *Oracle) checkOrder() {
	type sent struct {
		o     *Op
		order int
	}

	last := map[model.Address][]sent{}
	for _, o := range s.Ops {
		if o.Message.Kind != model.MessageSignal || !o.Acked || o.Shadow != nil {
			continue
		}
		got := s.Ledger.signals[scenario.SignalID(o.Message.Input)]
		if got.address.Sick {
			continue // a quarantine delays messages
		}
		for _, before := range last[o.Message.To] {
			if before.o.User == o.User && before.o.Ended <= o.Invoked && before.order > got.order {
				s.Fail("I11: %s was received after %s, which was sent later", before.o, o)
			}
		}
		last[o.Message.To] = append(last[o.Message.To], sent{o, got.order})
	}
}
