package worker

import (
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// replies adds to a turn the answers that the program gives now. It returns the positions of the
// updates.
func (h *Hold) replies(m *scenario.Machine, cs *[]model.Command, eventful *int) (seqs []int64) {
	for i := range m.Updates {
		u := &m.Updates[i]
		if h.replied[u.Seq] || !m.Answers(u) {
			continue
		}
		seqs = append(seqs, u.Seq)
		*eventful++
		*cs = append(*cs, model.Command{Kind: model.CommandAnswer, Event: model.Event{
			ID: "u", Name: u.Name, Ref: u.Seq, Output: scenario.ReplyTo(u.Input),
		}})
	}
	return seqs
}

// Query answers with the number of events that the code has seen, as soon as the code waits.
func (h *Hold) Query(q model.Query) {
	s := h.w.Oracle
	s.After(s.Between(0, 2*kernel.Millisecond), h.w.Process, func() {
		switch {
		case h.dropped || !h.w.Host.Serves():
		case h.inline || h.ahead != nil || h.thinking || h.hasPreview():
			h.Query(q)
		default:
			seen := h.m.Seen
			h.w.Host.Post(h.Gen, func(now model.Time, l *lane.Lane) {
				l.AnswerQuery(now, h.w.ID, lane.QueryAnswer{Run: h.run, Generation: h.Gen, ID: q.ID, Output: scenario.SignalPayload(uint64(seen) + 1)})
			})
		}
	})
}

// Recall answers a query about a closed run from its stored history.
func (w *Worker) Recall(run model.RunID, gen uint64, q model.Query) {
	s := w.Oracle
	s.After(s.Between(0, 2*kernel.Millisecond), w.Process, func() {
		if !w.Host.Serves() || w.gone {
			return
		}
		s.Did(scenario.OpRecalled)
		seen := len(s.Ledger.Runs[run].Events)
		w.Host.Post(gen, func(now model.Time, l *lane.Lane) {
			l.AnswerQuery(now, w.ID, lane.QueryAnswer{Run: run, Generation: gen, ID: q.ID, Output: scenario.SignalPayload(uint64(seen) + 1)})
		})
	})
}
