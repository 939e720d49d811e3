package flovyn

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// A promise has one outcome, whether its time-out or its value comes first.
func TestPromiseHasOneOutcome(t *testing.T) {
	t.Parallel()
	note := model.Event{Kind: model.EventNoted, Name: notePromise, Input: model.Payload{Data: []byte(`{"id":"p-1","name":"p"}`)}}
	value := model.Event{Kind: model.EventPromiseSettled, Name: "p-1", Output: model.Payload{Data: []byte("1")}}

	late := model.Event{Kind: model.EventTimerFired, ID: stepPromise + "p-1"}
	for want, events := range map[string][]model.Event{
		"PROMISE_CREATED PROMISE_RESOLVED": {note, value, late, value},
		"PROMISE_CREATED PROMISE_TIMEOUT":  {note, late, value, late},
	} {
		j := newJournal("x", false)
		for i := range events {
			events[i].Seq = int64(i + 1)
			j.add(&events[i])
		}
		var kinds []string
		for _, r := range j.records {
			kinds = append(kinds, r.kind)
		}
		if got := strings.Join(kinds, " "); got != want {
			t.Errorf("the log is %s, want %s", got, want)
		}
	}
}

// A run is canceled while a worker has it. The door reports the end of the run to the engine, and
// gets no event for that. From then on the log comes from the store, because the log in memory
// lacks the end.
func TestLogOfAnEndedRunComesFromTheStore(t *testing.T) {
	t.Parallel()
	d := &Door{places: newPlaces(), tails: newTails(), workers: newWorkers(), open: t.Context(), cfg: Config{}.withDefaults()}
	q := newFlowQueue(d, site{"t", "q"})
	id, key := model.RunID{1}, uuid.NewString()
	q.Activate(&api.Activation{
		Start:      &model.Start{Run: id, Address: model.Address{Tenant: "t", Type: Prefix + "q", Key: key}, Input: (&envelope{Kind: "ends"}).payload()},
		Generation: 7,
	})
	r := q.runs[id]
	q.hand(r, &flowPoll{worker: "w", got: make(chan *run, 1)})
	if _, ok := q.events(t.Context(), key, false); !ok {
		t.Fatal("a worker has the run, and its log is not in memory")
	}

	q.Deliver(id, 7, []model.Event{{Seq: 1, Kind: model.EventCancelRequest, Failure: &model.Failure{Message: "enough"}}})
	if len(q.acks) != 1 || q.acks[0].Close == nil {
		t.Fatalf("the door reports %v instead of the end", q.acks)
	}
	if _, ok := q.events(t.Context(), key, false); ok {
		t.Error("the log comes from memory, where it has no end")
	}
}
