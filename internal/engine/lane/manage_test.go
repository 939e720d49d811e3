package lane_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// An operator cannot skip or drop a signal while the worker of the run may be about to take the
// signal. That is while the worker runs a step, and while it has events that it has not answered.
// The signal stays. Once the code waits, or no worker has the run, the same request succeeds. A
// request that only lists signals always succeeds.
func TestSignalThatTheCodeMayBeAboutToTake(t *testing.T) {
	t.Parallel()
	for _, do := range []string{model.MailboxSkip, model.MailboxDrop, model.MailboxDropNamed} {
		t.Run(do, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			a := key("a")
			run := r.startRun(a)
			waits, tried := []model.Reason{{Code: model.WaitSignal, Name: "never"}}, 0
			try := func(seq int64, want string) {
				t.Helper()
				tried++
				id := "go"
				if do != model.MailboxDropNamed {
					events, err := r.st.LoadEvents(t.Context(), store.RunKey{Shard: a.Shard(shards), Run: run}, seq-1, 1, 1<<20)
					if err != nil || len(events) != 1 {
						t.Fatalf("%+v, %v", events, err)
					}
					id = model.SignalID(run, &events[0])
				}
				token := fmt.Sprint("try ", tried)
				r.send(model.Message{Kind: model.MessageMailbox, To: a, Name: do, ID: id}, token)
				r.settle()
				r.wantAnswer(token, want)
			}

			// The worker has the start, and then the signal, and has not answered yet.
			r.signal(a, "go", "first")
			r.settle()
			try(1, "conflict")
			r.send(model.Message{Kind: model.MessageMailbox, To: a, Name: model.MailboxList}, "list")
			r.settle()
			r.wantAnswer("list", "")
			r.wantEvents(a, "signal_received go")

			// The worker runs a step.
			r.turn(a, model.Turn{Running: true, Waits: []model.Reason{{Code: model.WaitStep, Name: "x"}}})
			r.settle()
			try(1, "conflict")

			// The code waits.
			r.turn(a, model.Turn{Waits: waits})
			r.settle()
			try(1, "")

			// No worker has the run.
			r = newRig(t)
			run = r.startRun(a)
			r.signal(a, "go", "second")
			r.settle()
			try(1, "")
		})
	}
}

// An operator drops a signal of a run whose start is not stored yet. After the commit a worker gets
// the run with that signal, and may take the signal. So the drop waits for the commit.
func TestDropOfASignalOfAFreshRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.signal(a, "go", "signal")
	r.settle()
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued}})
	r.flush()
	next := r.commit.Starts[0].Start
	r.send(model.Message{Kind: model.MessageMailbox, To: a, Name: model.MailboxDrop, ID: model.SignalID(next.Run, &next.Carried[0])}, "drop")
	r.settle()
	r.wantAnswer("drop", "conflict")
	r.turn(a, model.Turn{Commands: []model.Command{{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, ID: "s", Name: "go", Ref: 1}}}})
	r.settle()
	r.wantEvents(a, "signal_received go", "signal_taken s")
	if x := r.current(a); x.Blocked != nil {
		t.Errorf("the run is blocked: %s", x.Blocked)
	}
}

// An operator drops a call that is only in memory, and the store refuses that. The entity is
// quarantined, and the caller hears that, as the callers of its other calls do.
func TestRefusedDropOfACallInMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	r.operation(a, "add", "1", "one")
	r.settle()
	call := &model.Message{Kind: model.MessageCall, To: a, Name: "add", Input: model.TextPayload("2"), RequestID: "two"}
	at := r.now
	r.l.Deliver(r.now, call, true, "two")
	r.settle()
	r.refuse = func(b *store.Batch) error {
		if slices.ContainsFunc(b.Requests, func(q store.Reply) bool { return q.ID == "two" }) {
			return store.Errorf(store.Refused, "commit", "injected")
		}
		return nil
	}

	drop := &model.Message{Kind: model.MessageMailbox, Name: model.MailboxDrop, To: a, ID: model.ItemID(0, at, call), RequestID: "drop"}
	r.l.Deliver(r.now, drop, true, "drop")
	r.take()
	r.settle()
	for _, caller := range []string{"one", "two", "drop"} {
		r.wantAnswer(caller, "blocked")
	}
}
