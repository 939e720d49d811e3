package sim

import (
	"slices"

	cutting "github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
)

// reset is a message that has the current run of an address begin anew from some place of its history; nil when there is none, and most of the time.
func (s *Sim) reset(to model.Address) *model.Message {
	a := s.ledger.addresses[to]
	if a == nil || a.current == nil || !a.current.open() || a.sick || !s.chance(0.1) {
		return nil
	}
	r := a.current
	if slices.ContainsFunc(r.events, talks) {
		return nil
	}
	h := &model.History{Start: r.start, Events: r.events, Outcome: r.outcome}
	plan, err := cutting.Cut(h, &cutting.Request{
		Mode: cutting.Reset, After: int64(s.pick(len(r.events) + 1)), Placed: true,
		Child: func(child model.Address) (model.Status, bool, error) {
			c := s.ledger.addresses[child]
			if c == nil || c.current == nil {
				return 0, false, nil
			}
			return c.current.outcome.Status, true, nil
		},
	})
	if err != nil { // behind a cancel request
		return nil
	}
	plan.Past.Next = int64(len(r.events)) + 1
	return &model.Message{Kind: model.MessageStart, To: to, ToRun: r.id, Input: r.start.Input, Labels: r.start.Labels, Past: &plan.Past}
}

// talks reports whether an event is about something that a reset takes back, so that the next run differs from the one that gave way: that is for
// other tests.
func talks(e model.Event) bool {
	switch e.Kind { //nolint:exhaustive // the others are the same after a reset
	case model.EventUpdateReceived, model.EventUpdateAnswered, model.EventStateSet, model.EventPaused, model.EventResumed, model.EventLabeled:
		return true
	default:
		return false
	}
}

// inherit notes what a run has from its past.
func (r *run) inherit(e *model.Event) {
	if e.Kind == model.EventPromiseSettled {
		if r.settled == nil {
			r.settled = map[string]string{}
		}
		r.settled[e.Name] = string(e.Output.Data)
	}
	bi, ai, ok := parseAsk(e.ID)
	if !ok || e.Blank() {
		return
	}
	h := &r.asks[bi][ai]
	switch e.Kind {
	case model.EventStepCompleted, model.EventStepFailed:
		h.outcome = true
	case model.EventAttemptFailed:
		h.attempts = e.Attempt
	case model.EventTimerFired:
		h.fired = true
	case model.EventWithdrawn:
		h.withdrawn = true
	case model.EventSignalTaken:
		h.taken = true
	case model.EventChildStarted:
		h.started = true
	case model.EventChildClosed:
		h.closed = true
	case model.EventSent:
		h.sent = true
	default:
	}
}
