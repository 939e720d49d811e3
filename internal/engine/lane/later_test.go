package lane_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The lane has no room, so it refuses a request of another process. The process may send the
// request again with the same id, because the lane does not remember the refusal.
func TestRequestThatFindsNoRoomIsSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Limits.Signals = 1 })
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.signal(a, "s", "first")
	r.settle()
	again := model.Message{Kind: model.MessageSignal, To: a, Name: "s", RequestID: "req-1"}
	row := r.putRow(again)
	r.l.MailWaits()
	r.settle()
	if got := r.storedRefusal(a, row); got == nil || got.Failure == nil || got.Failure.Kind != fault.Exhausted.String() {
		t.Fatalf("the request was answered %+v", got)
	}

	r.wantHint(a)
	r.turn(a, waitingTurn(model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Name: "s", Ref: 1}}))
	r.settle()
	r.post(again, "req-1")
	r.settle()
	r.wantEvents(a, "signal_received s", "signal_taken s", "signal_received s")
}

// A message without a waiting caller finds no room. It does not become a dead letter: the lane
// tries it again until there is room.
func TestMessageThatFindsNoRoomIsTriedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Limits.Signals = 1 })
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.signal(a, "s", "first")
	r.settle()
	m := model.Message{Kind: model.MessageSignal, To: a, Name: "s", RequestID: "req-1", Keep: true}
	if err := r.st.PutInbox(t.Context(), []store.InboxRow{{Shard: a.Shard(shards), ID: r.newRun(), Message: m}}); err != nil {
		t.Fatal(err)
	}

	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, "signal_received s")
	r.turn(a, waitingTurn(model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Name: "s", Ref: 1}}))
	r.settle()
	r.pass(2 * time.Minute)
	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, "signal_received s", "signal_taken s", "signal_received s")
	if letters, err := r.st.LoadDeadLetters(t.Context(), model.RunID{}, 10); err != nil || len(letters) != 0 {
		t.Errorf("dead letters: %v, %v", letters, err)
	}
}
