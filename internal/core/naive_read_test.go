package core_test

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
)

// This file has the parts of the naive model that read the history of a run.

func (r *naiveRun) open() bool { return r.status == model.Running }

func (r *naiveRun) last() model.Time {
	if n := len(r.events); n > len(r.start.Carried) {
		return r.events[n-1].At
	}
	return r.start.At
}

func (r *naiveRun) count(want func(*model.Event) bool) (n int) {
	for i := range r.events {
		if want(&r.events[i]) {
			n++
		}
	}
	return n
}

// pendingSignals returns the signals that were received and not taken.
func (r *naiveRun) pendingSignals() (signals []model.Event) {
	for _, e := range r.events {
		taken := r.count(func(t *model.Event) bool { return t.Kind == model.EventSignalTaken && t.Ref == e.Seq })
		if e.Kind == model.EventSignalReceived && taken == 0 {
			signals = append(signals, e)
		}
	}
	return signals
}

// children returns the children that were asked for and are neither closed nor withdrawn.
func (r *naiveRun) children() (open []model.Event) {
	for i, e := range r.events {
		if e.Kind != model.EventChildStarted {
			continue
		}
		over := slices.ContainsFunc(r.events[i:], func(o model.Event) bool {
			return o.ID == e.ID && (o.Kind == model.EventChildClosed || o.Kind == model.EventWithdrawn)
		})
		if !over {
			open = append(open, e)
		}
	}
	return open
}

func (r *naiveRun) watchers() (who []model.Link) {
	for _, e := range r.events {
		if e.Kind == model.EventWatched {
			who = append(who, e.Waiter())
		}
	}
	return who
}

// cancel returns the position of the cancel request.
func (r *naiveRun) cancel() (seq int64) {
	for _, e := range r.events {
		if e.Kind == model.EventCancelRequest {
			seq = e.Seq
		}
	}
	return seq
}

// calls returns the steps that sent a message and were neither answered nor withdrawn.
func (r *naiveRun) calls() (open []string) {
	for i, e := range r.events {
		over := slices.ContainsFunc(r.events[i:], func(o model.Event) bool {
			return o.ID == e.ID && (o.Kind == model.EventAnswered || o.Kind == model.EventWithdrawn)
		})
		if e.Kind == model.EventSent && !over {
			open = append(open, e.ID)
		}
	}
	return open
}

// updates returns the updates that were received and not answered.
func (r *naiveRun) updates() (open []model.Event) {
	for _, e := range r.events {
		answers := r.count(func(a *model.Event) bool { return a.Kind == model.EventUpdateAnswered && a.Ref == e.Seq })
		if e.Kind == model.EventUpdateReceived && answers == 0 {
			open = append(open, e)
		}
	}
	return open
}

// states returns the events that set the current states.
func (r *naiveRun) states() (set []model.Event) {
	for i, e := range r.events {
		later := slices.ContainsFunc(r.events[i+1:], func(o model.Event) bool { return o.Kind == model.EventStateSet && o.Name == e.Name })
		if e.Kind == model.EventStateSet && !later && len(e.Output.Data) > 0 {
			set = append(set, e)
		}
	}
	return set
}

// isPaused reports whether the last of pause and resume was a pause.
func (r *naiveRun) isPaused() (is bool) {
	for _, e := range r.events {
		switch e.Kind {
		case model.EventPaused:
			is = true
		case model.EventResumed:
			is = false
		default:
		}
	}
	return is
}

// pin returns the version that the code has chosen last.
func (r *naiveRun) pin() (version string) {
	for _, e := range r.events {
		if e.Kind == model.EventPinned {
			version = e.Name
		}
	}
	return version
}
