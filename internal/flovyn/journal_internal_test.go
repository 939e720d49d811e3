package flovyn

import (
	"strings"
	"testing"

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
