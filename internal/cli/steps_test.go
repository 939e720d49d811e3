package cli

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// stepEvents is a history with every kind of step.
var stepEvents = []model.Event{
	{Seq: 0, At: noon, Kind: model.EventStarted, Name: "order"},
	{Seq: 1, At: after(time.Second), Kind: model.EventTaskScheduled, ID: "/charge:1", Name: "charge"},
	{Seq: 2, At: after(2 * time.Second), Kind: model.EventTaskClaimed, ID: "/charge:1", Attempt: 1, Worker: "w-1"},
	{Seq: 3, At: after(3 * time.Second), Kind: model.EventAttemptFailed, ID: "/charge:1", Attempt: 1, Failure: declined, Due: after(time.Minute)},
	{Seq: 4, At: after(4 * time.Second), Kind: model.EventTaskClaimed, ID: "/charge:1", Attempt: 2, Worker: "w-2"},
	{Seq: 5, At: after(5 * time.Second), Kind: model.EventStepCompleted, ID: "/charge:1"},
	{Seq: 6, At: after(6 * time.Second), Kind: model.EventAttemptFailed, ID: "/mail:1", Name: "mail", Attempt: 1, Failure: declined, Due: after(time.Minute)},
	{Seq: 7, At: after(7 * time.Second), Kind: model.EventStepCompleted, ID: "/mail:1", Name: "mail"},
	{Seq: 8, At: after(8 * time.Second), Kind: model.EventChildStarted, ID: "/ship:1", Name: "ship", Target: addressOf("ship", "42")},
	{Seq: 9, At: after(9 * time.Second), Kind: model.EventSent, ID: "/deposit:1", Name: "deposit", Target: addressOf("entity:account", "a")},
	{Seq: 10, At: after(10 * time.Second), Kind: model.EventChildClosed, ID: "/ship:1", Status: model.Canceled},
	{Seq: 11, At: after(11 * time.Second), Kind: model.EventAnswered, ID: "/deposit:1", Failure: declined},
	{Seq: 12, At: after(12 * time.Second), Kind: model.EventTimerFired, ID: "/sleep:0", Due: after(12 * time.Second)},
	{Seq: 13, At: after(13 * time.Second), Kind: model.EventTaskScheduled, ID: "/pack:1", Name: "pack", Worker: "w-1"},
	{Seq: 14, At: after(14 * time.Second), Kind: model.EventTaskScheduled, ID: "/late:1", Name: "late"},
	{Seq: 15, At: after(15 * time.Second), Kind: model.EventTaskTimedOut, ID: "/late:1", Attempt: 1, Failure: declined},
	{Seq: 16, At: after(16 * time.Second), Kind: model.EventAttemptFailed, ID: "/call:1", Name: "call", Attempt: 3, Failure: declined, Due: after(time.Minute)},
	{Seq: 17, At: after(17 * time.Second), Kind: model.EventTaskScheduled, ID: "/drop:1", Name: "drop"},
	{Seq: 18, At: after(18 * time.Second), Kind: model.EventWithdrawn, ID: "/drop:1"},
}

// The steps of a run follow from its history. A step that is open when the run ends has the state
// unfinished.
func TestSteps(t *testing.T) {
	t.Parallel()
	type short struct {
		Seq                    int64
		Kind, Name, ID, State  string
		Attempt                int
		Took, Worker, Due, Err string
	}
	shorten := func(lines []stepLine) (all []short) {
		for _, l := range lines {
			all = append(all, short{l.Seq, l.Kind, l.Name, l.ID, l.State, l.Attempt, l.Took, l.Worker, l.Due, l.Error})
		}
		return all
	}
	m, minute := declined.Message, after(time.Minute).String()
	want := []short{
		{1, "task", "charge", "/charge:1", "completed", 2, "4s", "w-2", "", ""},
		{6, "step", "mail", "/mail:1", "completed", 2, "", "", "", ""},
		{8, "child", "ship", "/ship:1", "canceled", 0, "2s", "", "", ""},
		{9, "call", "deposit", "/deposit:1", "failed", 0, "2s", "", "", m},
		{12, "timer", "", "/sleep:0", "fired", 0, "", "", after(12 * time.Second).String(), ""},
		{13, "task", "pack", "/pack:1", "running", 1, "", "w-1", "", ""},
		{14, "task", "late", "/late:1", "failed", 1, "1s", "", "", m},
		{16, "step", "call", "/call:1", "waiting", 3, "", "", minute, m},
		{17, "task", "drop", "/drop:1", "withdrawn", 0, "1s", "", "", ""},
		{19, "timer", "", "/sleep:1", "waiting", 0, "", "", minute, ""},
	}
	timers := []api.Timer{{ID: "/sleep:1", Due: after(time.Minute)}, {ID: "/call:1", Due: after(time.Minute)}}
	if diff := cmp.Diff(want, shorten(stepsOf(stepEvents, timers)), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}

	closed := append(slices.Clip(stepEvents), model.Event{Seq: 19, At: after(20 * time.Second), Kind: model.EventClosed})
	for _, l := range stepsOf(closed, nil) {
		if want := map[string]string{"/pack:1": "unfinished", "/call:1": "unfinished", "/charge:1": "completed"}[l.ID]; want != "" && l.State != want {
			t.Errorf("%s is %s after the end of the run, want %s", l.ID, l.State, want)
		}
	}
}
