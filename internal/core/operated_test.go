package core_test

import (
	"fmt"
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// handedEntity returns an entity whose calls a worker has, these calls, and the version of the
// state that the worker got.
func handedEntity(t *testing.T, calls ...string) (*core.Entity, []*core.Item, int64) {
	t.Helper()
	a := model.Address{Tenant: "default", Type: "entity:ledger", Key: "a"}
	n := core.NewEntity(a, nil, nil)
	for _, name := range calls {
		n.Deliver(&model.Message{Kind: model.MessageCall, To: a, Name: name, RequestID: name}, core.Arrival{Room: 10, Tag: name}, 1)
	}
	return n, n.Next(10, 1<<20), n.Row.Version
}

func operatedReport(state string, results ...model.OperationResult) *model.Operated {
	return &model.Operated{Results: results, Changed: true, Exists: true, State: model.TextPayload(state)}
}

// The entity does not apply a result that a worker computed from an old state. The call is handed
// over again.
func TestEntityRefusesAnOldResult(t *testing.T) {
	t.Parallel()
	n, items, version := handedEntity(t, "one")
	if _, ok := n.Apply(items, operatedReport("one", model.OperationResult{}), version, 2); !ok {
		t.Fatal("the first result is refused")
	}
	n.Deliver(&model.Message{Kind: model.MessageCall, To: n.Row.Address, Name: "two"}, core.Arrival{Room: 10, Tag: "two"}, 3)
	items = n.Next(10, 1<<20)
	if d, ok := n.Apply(items, operatedReport("two", model.OperationResult{}), version, 4); ok || d.HasWrites() || string(n.Row.State.Data) != "one" {
		t.Errorf("the result for the old version %d is applied: the state is %q", version, n.Row.State.Data)
	}
	if again := n.Next(10, 1<<20); len(again) != 1 || again[0] != items[0] {
		t.Errorf("the call is not handed over again: %v", again)
	}
}

// The core does not send the messages of a call that fails. It sends the messages of the other
// calls of the same hand-over.
func TestFailedCallSendsNothing(t *testing.T) {
	t.Parallel()
	n, items, version := handedEntity(t, "one", "two")
	to := model.Address{Tenant: "default", Type: "w", Key: "k"}
	send := []model.Message{{Kind: model.MessageSignal, To: to, Name: "failed"}}
	d, ok := n.Apply(items, operatedReport("two", model.OperationResult{Failure: &model.Failure{Message: "no"}, Messages: send},
		model.OperationResult{Messages: []model.Message{{Kind: model.MessageSignal, To: to, Name: "sent"}}}), version, 2)
	if !ok || len(d.Messages) != 1 || d.Messages[0].Name != "sent" {
		t.Errorf("the messages are %+v, want only the message of the call that succeeded", d.Messages)
	}
	if len(d.Replies) != 2 || d.Replies[0].Answer.Failure == nil || d.Replies[1].Answer.Failure != nil {
		t.Errorf("the answers are %+v, want a failure and a success", d.Replies)
	}
}

func lockMessage(to model.Address, section string, run byte) *model.Message {
	return &model.Message{Kind: model.MessageLock, To: to, From: model.Link{Address: model.Address{Tenant: "default", Type: "w", Key: "k"}, Run: model.RunID{run}, ID: section}}
}

// A call of another caller behind a lock request waits until the lock is granted and released. A
// worker does not get such a call together with the calls in front of the request.
func TestLockIsABarrier(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "default", Type: "entity:ledger", Key: "a"}
	n := core.NewEntity(a, &model.Entity{Address: a, Version: 1, Exists: true}, []model.MailboxItem{
		{Seq: 1, Message: model.Message{Kind: model.MessageCall, To: a, Name: "before"}},
		{Seq: 2, Message: *lockMessage(a, "section", 1)},
		{Seq: 3, Message: model.Message{Kind: model.MessageCall, To: a, Name: "behind"}},
	})
	items := n.Next(10, 1<<20)
	if len(items) != 1 || items[0].Message.Name != "before" {
		t.Fatalf("%d calls are handed over, want only the call in front of the lock request", len(items))
	}
	if n.Apply(items, operatedReport("before", model.OperationResult{}), 1, 2); !n.Row.Locked() || n.Next(10, 1<<20) != nil {
		t.Error("the lock is not granted, or the call behind it is handed over")
	}
}

// A release frees a lock only if the release names the section that holds the lock (L30). A release
// of another section of the same run changes nothing. Neither does a release of a section of
// another run that has the same id.
func TestReleaseOfAnotherSection(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "default", Type: "entity:ledger", Key: "a"}
	n := core.NewEntity(a, nil, nil)
	n.Deliver(lockMessage(a, "section", 1), core.Arrival{Room: 10}, 1)
	for _, other := range []*model.Message{lockMessage(a, "another", 1), lockMessage(a, "section", 2)} {
		other.Kind = model.MessageRelease
		if d := n.Deliver(other, core.Arrival{Room: 10}, 2); d.HasWrites() || !n.Row.Locked() {
			t.Errorf("a release of %v frees the lock", other.From)
		}
	}
	own := lockMessage(a, "section", 1)
	own.Kind = model.MessageRelease
	if n.Deliver(own, core.Arrival{Room: 10}, 3); n.Row.Locked() {
		t.Error("the release of the holder does not free the lock")
	}
}

// Only calls that wait take room in a mailbox. Of the calls of one hand-over, one runs and the
// others wait for it.
func TestRoomIsForWhatWaits(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "default", Type: "entity:ledger", Key: "a"}
	n := core.NewEntity(a, nil, nil)
	sent := 0
	call := func(room int) bool {
		sent++
		m := &model.Message{Kind: model.MessageCall, To: a, Name: "op", RequestID: fmt.Sprint(sent)}
		d := n.Deliver(m, core.Arrival{Room: room}, 1)
		return d.Refusal() == nil
	}
	if !call(1) || call(1) {
		t.Error("want room for one call that waits, and no room for a second call")
	}
	first := n.Next(10, 1<<20)
	if len(first) != 1 || !call(1) || call(1) {
		t.Error("while a call runs, want room for one call that waits, and no room for a second")
	}
	if second, third := call(3), call(3); !second || !third || call(3) {
		t.Error("while a call runs, want room for three calls that wait, and no room for a fourth")
	}
	n.Apply(first, operatedReport("state", model.OperationResult{}), 0, 2)
	if second := n.Next(10, 1<<20); len(second) != 3 || !call(3) || call(3) {
		t.Error("three calls are handed over together: one of them runs and two wait; want room for a third that waits")
	}

	// The first call waits only until its own row is stored, and runs next. So it takes no room,
	// and one more call may wait.
	n = core.NewEntity(a, nil, nil)
	held := func() bool {
		sent++
		m := &model.Message{Kind: model.MessageCall, To: a, Name: "op", RequestID: fmt.Sprint(sent)}
		d := n.Deliver(m, core.Arrival{Room: 1, Stored: true, Held: true}, 1)
		return d.Refusal() == nil
	}
	if first, second := held(), held(); !first || !second || held() {
		t.Error("want room for the call that runs next and for one call that waits, and no room for a third")
	}
}

// A full mailbox refuses a lock request immediately. A repeated lock request takes no further room.
func TestLockFindsNoRoom(t *testing.T) {
	t.Parallel()
	n, _, _ := handedEntity(t, "begun")
	small := core.Arrival{Stored: true, Room: 1}
	if d := n.Deliver(lockMessage(n.Row.Address, "s", 1), small, 2); d.Refusal() != nil || len(d.Mailbox) != 1 {
		t.Fatalf("there is room for the lock request, but it led to %+v", d)
	}
	if d := n.Deliver(lockMessage(n.Row.Address, "s", 1), small, 3); d.Refusal() != nil || d.HasWrites() {
		t.Errorf("the repeated lock request led to %+v", d)
	}
	d := n.Deliver(lockMessage(n.Row.Address, "t", 2), small, 4)
	if refusal(d.Refusal()) != "exhausted" || len(d.Mailbox) > 0 || n.MailCount() != 2 {
		t.Errorf("the lock request without room led to %+v", d)
	}
	if len(d.Messages) != 1 || d.Messages[0].Kind != model.MessageAnswer || d.Messages[0].ID != "t" || d.Messages[0].Failure == nil {
		t.Errorf("the section gets %+v, want a failure", d.Messages)
	}
}
