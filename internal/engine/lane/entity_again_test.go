package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Everybody whose call is only in memory is told when the entity moves, also those who wait behind others.
func TestEntityMovesWithBriefCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	r.operation(a, "add", "1", "begun", brief)
	r.settle()
	for _, token := range []string{"two", "three", "four"} {
		r.operation(a, "add", token, token, brief)
	}
	r.giveUp(0, 1, 2, 3)
	r.settle()
	for _, token := range []string{"two", "three", "four"} {
		if got := r.answers[token].Err; got != error(lane.ErrNotOwner) {
			t.Errorf("%s hears %v", token, got)
		}
	}
	if got := r.answers["begun"].Err; got != error(lane.ErrInterrupted) {
		t.Errorf("the call that had begun hears %v", got)
	}
}

// A request that comes by another process while the same call waits in memory only is stored: its row in the inbox is gone, and nobody would ask again.
func TestEntityRequestRepeatedElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("a")
	same := model.Message{Kind: model.MessageCall, To: a, Name: "add", Input: model.TextPayload("1")}
	r.operation(a, "add", "1", "here", func(m *model.Message) { m.RequestID = "same" })
	r.settle()
	key := r.post(same, "same")
	r.settle()
	if n := r.inboxed(); n != 0 {
		t.Fatalf("%d requests wait", n)
	}
	r.dies()
	r.settle()
	r.joinEntities(1)
	r.work()
	if got := r.remembered(key); got == nil || string(got.Output.Data) != "1;" {
		t.Errorf("the other process finds %+v", got)
	}
	r.wantState(a, "1;")
}

// What comes by another process and is kept in memory only is made once, also when the batch that had the message and its result is refused.
func TestBriefCallIsMadeOnceAfterARefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	r.operation(a, "add", "0", "zero")
	r.work()
	refused := false
	r.refuse = func(b *store.Batch) error {
		if len(b.Entities) > 0 && len(b.Inbox) > 0 {
			refused = true
			return store.Errorf(store.Refused, "commit", "both at once")
		}
		return nil
	}
	r.operation(ledger("b"), "add", "1", "another")
	r.settle()
	r.serve(1)
	r.flush() // that commit is on its way
	key := r.post(model.Message{Kind: model.MessageCall, To: a, Name: "add", Input: model.TextPayload("1"), Brief: true}, "brief")
	for len(r.operations) == 0 {
		r.read()
		r.flush()
	}
	r.serve(1)
	r.settle()
	if !refused {
		t.Error("the message and its result are not in one batch")
	}
	if len(r.operations) > 0 {
		t.Error("the call is made again")
	}
	r.wantState(a, "0;1;")
	if got := r.remembered(key); got == nil || string(got.Output.Data) != "0;1;" {
		t.Errorf("the other process finds %+v", got)
	}
}

// What waits for an entity whose shard is given up is sent away with everything that was noted of it, also while a lock waits its turn.
func TestEntityMovesWhileALockWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.joinEntities(2)
	a := ledger("a")
	r.began(key("run"))
	r.operation(a, "add", "1", "begun")
	r.settle()
	r.locks("run", a)
	// The same request may have been served: the answer is looked for, and the call waits meanwhile.
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageCall, To: a, Name: "add", Input: model.TextPayload("2"), RequestID: "again"}, false, "waits")
	r.take()
	r.giveUp(0, 1, 2, 3)
	r.settle()
	r.pass(r.cfg.DrainWait * 2)
	r.settle()
	if got := r.answers["waits"].Err; got != error(lane.ErrNotOwner) {
		t.Errorf("the call that waits hears %v", got)
	}
	if n := r.l.Held(); n != 0 {
		t.Errorf("%d bytes are held by nothing", n)
	}
}
