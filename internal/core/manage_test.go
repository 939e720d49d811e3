package core_test

import (
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// An operator's change of a mailbox is one decision: a skipped call gets a row behind the others,
// and the commit that removes the row of a dropped call answers its caller.
func TestManagedMailbox(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "default", Type: "entity:ledger", Key: "a"}
	n := core.NewEntity(a, nil, nil)
	for _, id := range []string{"first", "second", "third"} {
		m := &model.Message{Kind: model.MessageCall, To: a, Name: "op", RequestID: model.CallIDs + id}
		n.Deliver(m, core.Arrival{Stored: true, Room: 10}, 1)
	}
	ask := func(do, id string) (core.Decision, model.Calls) {
		t.Helper()
		d := n.Deliver(&model.Message{Kind: model.MessageMailbox, To: a, Name: do, ID: id}, core.Arrival{}, 2)
		if d.Refusal() != nil {
			return d, model.Calls{}
		}
		c, err := model.DecodeCalls(d.Answer.Output)
		if err != nil {
			t.Fatal(err)
		}
		return d, c
	}
	d, all := ask(model.MailboxList, "")
	if d.HasWrites() || len(all.Calls) != 3 || all.Calls[1].RequestID != "second" || all.Calls[1].Position != 2 {
		t.Fatalf("%+v", all)
	}
	first, second := all.Calls[0].ID, all.Calls[1].ID

	d, moved := ask(model.MailboxSkip, first)
	if len(d.Taken) != 1 || d.Taken[0] != 1 || len(d.Mailbox) != 1 || d.Mailbox[0].Seq != 4 || moved.Calls[0].Position != 3 {
		t.Errorf("skipped by %+v: %+v", d, moved)
	}
	if d, _ := ask(model.MailboxDrop, first); refusal(d.Refusal()) != "not_found" {
		t.Errorf("the id from before: %v", d.Refusal())
	}
	d, _ = ask(model.MailboxDrop, second)
	if len(d.Taken) != 1 || d.Taken[0] != 2 || len(d.Replies) != 1 || d.Replies[0].Answer.Failure.Kind != model.FailureDropped {
		t.Errorf("dropped by %+v", d)
	}

	n.Next(10, 1<<20)
	_, all = ask(model.MailboxList, "")
	if len(all.Calls) != 2 || all.Calls[0].RequestID != "third" || !all.Calls[0].Running {
		t.Fatalf("%+v", all)
	}
	for _, do := range []string{model.MailboxSkip, model.MailboxDrop} {
		if d, _ := ask(do, all.Calls[0].ID); refusal(d.Refusal()) != "conflict" || d.HasWrites() {
			t.Errorf("%s of a call that runs: %v", do, d.Refusal())
		}
	}
	if d, _ := ask("burn", moved.Calls[0].ID); refusal(d.Refusal()) != "invalid" {
		t.Errorf("an unknown verb: %v", d.Refusal())
	}

	n.Deliver(lockMessage(a, "s", 1), core.Arrival{Room: 10}, 3)
	_, all = ask(model.MailboxList, "")
	if d, _ := ask(model.MailboxDrop, all.Calls[2].ID); refusal(d.Refusal()) != "invalid" {
		t.Errorf("the request of a lock: %v", d.Refusal())
	}
}
