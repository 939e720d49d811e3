package flovyn

import (
	"context"
	"strconv"
	"testing"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// shelf is a store with the history of one execution.
type shelf struct {
	api.Backend

	run    model.RunID
	events []model.Event
}

// History returns pages of two events.
func (s *shelf) History(_ context.Context, r api.HistoryRequest) (api.HistoryPage, error) {
	page := api.HistoryPage{Run: s.run}
	for i := range s.events {
		if s.events[i].Seq <= r.After {
			continue
		}
		if page.More = len(page.Events) == 2; page.More {
			break
		}
		page.Events = append(page.Events, s.events[i])
	}
	return page, nil
}

// begin starts a run with signals.
func (s *shelf) begin(run byte, signals int) {
	s.run, s.events = model.RunID{run}, []model.Event{{Kind: model.EventStarted}}
	for i := range signals {
		s.events = append(s.events, model.Event{Kind: model.EventSignalReceived, Seq: int64(i + 1), Name: "s", RequestID: strconv.Itoa(int(run)) + "." + strconv.Itoa(i)})
	}
}

// A tail starts to count again when another run of the execution starts, for example after a reset.
func TestTailOfAnotherRun(t *testing.T) {
	t.Parallel()
	s := &shelf{}
	d := &Door{backend: s, tails: newTails(), cfg: Config{}.withDefaults()}
	tail := d.tails.get(model.Address{Key: "k"})
	number := func(request string, want int64) {
		t.Helper()
		if err := tail.reserve(t.Context(), d, request, 1); err != nil {
			t.Fatal(err)
		}
		defer tail.release(request, 1)
		if got, err := tail.number(t.Context(), d, request); err != nil || got != want {
			t.Errorf("signal %s has the number %d, %v, want %d", request, got, err, want)
		}
	}

	s.begin(1, 5)
	number("1.3", 5)
	s.begin(2, 3)
	number("2.0", 2)
	number("1.4", 4) // the signal went to the previous run, so it gets the last number
	s.begin(3, 9)
	number("3.8", 10)
	if tail.reserved != 0 || len(tail.wanted) != 0 {
		t.Errorf("%d bytes and %d numbers are left over", tail.reserved, len(tail.wanted))
	}
}

// No matter how many executions get signals, the door follows a bounded number of events.
func TestTailsAreBounded(t *testing.T) {
	t.Parallel()
	s := newTails()
	check := func() {
		t.Helper()
		all := map[*tail]bool{}
		for _, half := range []map[model.Address]*tail{s.now, s.old} {
			for _, t := range half {
				all[t] = true
			}
		}
		events := 0
		for t := range all {
			events += t.events
		}
		if len(all) > maxTails || events > maxTailEvents {
			t.Fatalf("%d executions with %d events are followed", len(all), events)
		}
	}

	for i := range 2 * maxTails {
		s.get(model.Address{Key: strconv.Itoa(i)})
	}
	check()
	for round := range 3 {
		for i := range 10 {
			s.grew(s.get(model.Address{Key: "long" + strconv.Itoa(i)}), (1-min(round, 1))*90_000)
			check()
		}
	}
	if t1, t2 := s.get(model.Address{Key: "last"}), s.get(model.Address{Key: "last"}); t1 != t2 {
		t.Error("an execution has two tails")
	}
}
