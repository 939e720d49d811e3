package core_test

import (
	"strconv"
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

// The owner lists a long mailbox in pages. Every call that waits during the whole listing is on
// exactly one page, even if the last call of a page is removed before the next page is read.
func TestMailboxPages(t *testing.T) {
	t.Parallel()
	const count = 2*model.MailboxListed + 500
	a := model.Address{Tenant: "default", Type: "entity:ledger", Key: "a"}
	n := core.NewEntity(a, nil, nil)
	for i := range count {
		m := &model.Message{Kind: model.MessageCall, To: a, Name: strconv.Itoa(i), RequestID: model.CallIDs + strconv.Itoa(i)}
		// Every third call is only in the memory of its owner.
		n.Deliver(m, core.Arrival{Stored: i%3 != 0, Room: count, Tag: i}, model.Time(i+1))
	}

	page := func(cursor string) model.Calls {
		t.Helper()
		d := n.Deliver(&model.Message{Kind: model.MessageMailbox, To: a, Name: model.MailboxList, ID: cursor}, core.Arrival{}, count)
		c, err := model.DecodeCalls(d.Answer.Output)
		if err != nil || d.Refusal() != nil || d.HasWrites() {
			t.Fatal(err, d.Refusal())
		}
		return c
	}
	// One of the two calls is stored, the other is not.
	for _, gone := range []int{model.MailboxListed - 1, model.MailboxListed} {
		var seen []string
		for c := page(""); ; c = page(c.Cursor) {
			for i := range c.Calls {
				if c.Calls[i].Position != len(seen)+1 && len(seen) < model.MailboxListed {
					t.Fatalf("call %d has position %d", len(seen), c.Calls[i].Position)
				}
				seen = append(seen, c.Calls[i].Operation)
			}
			if c.Cursor == "" {
				break
			}
			if len(seen) == model.MailboxListed { // remove the last call of the page
				n.Deliver(&model.Message{Kind: model.MessageMailbox, To: a, Name: model.MailboxDrop, ID: c.Calls[len(c.Calls)-1].ID}, core.Arrival{}, count)
			}
		}

		for i, name := range seen {
			if i > 0 && name == seen[i-1] {
				t.Errorf("call %s is listed twice", name)
			}
		}

		want := count - (gone - (model.MailboxListed - 1))
		if len(seen) != want {
			t.Errorf("%d calls are listed, want %d", len(seen), want)
		}
	}

	for _, wrong := range []string{"x", "1.2", "1.2.x", "-1.2.3-4", "1.2.3"} {
		d := n.Deliver(&model.Message{Kind: model.MessageMailbox, To: a, Name: model.MailboxList, ID: wrong}, core.Arrival{}, count)
		if refusal(d.Refusal()) != "invalid" {
			t.Errorf("cursor %q: %v", wrong, d.Refusal())
		}
	}
}

// A long mailbox costs the owner about as much per call as a short one.
func BenchmarkLongMailbox(b *testing.B) {
	for _, count := range []int{1000, 100_000} {
		b.Run(strconv.Itoa(count), func(b *testing.B) {
			a := model.Address{Tenant: "default", Type: "entity:ledger", Key: "a"}
			for b.Loop() {
				n := core.NewEntity(a, nil, nil)
				for i := range count {
					n.Deliver(&model.Message{Kind: model.MessageCall, To: a, Name: "op", OneWay: true, RequestID: model.CallIDs + strconv.Itoa(i)},
						core.Arrival{Stored: true, Room: count}, model.Time(i+1))
				}
				for n.MailCount() > 0 {
					items := n.Next(64, 1<<20)
					if _, ok := n.Apply(items, &model.Operated{Results: make([]model.OperationResult, len(items))}, n.Row.Version, 1); !ok {
						b.Fatal("refused")
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/call")
		})
	}
}
