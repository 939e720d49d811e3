package core_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// crashed is an entity as the next owner finds it after a crash.
func crashed(a model.Address, mailbox []model.MailboxItem, self model.NodeID) *core.Entity {
	n := core.NewEntity(a, nil, mailbox)
	n.Suspect(self)
	return n
}

func names(items []*core.Item) string {
	var out []string
	for _, it := range items {
		out = append(out, it.Message.Name)
	}
	return strings.Join(out, " ")
}

// Calls that an owner finds after a crash are noted together, then one at a time, then set aside; no call is made before its note is stored, and none out of order.
func TestSuspects(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "t", Type: model.EntityPrefix + "e", Key: "k"}
	var mailbox []model.MailboxItem
	for i, name := range []string{"a", "bomb", "c"} {
		mailbox = append(mailbox, model.MailboxItem{Seq: int64(i + 1), Message: model.Message{Kind: model.MessageCall, To: a, Name: name, From: model.Link{ID: fmt.Sprint("s", i)}}})
	}
	node := func(i byte) model.NodeID { return model.NodeID{15: i} }
	const most, bytes = 64, 1 << 20

	// The second process notes all of them at once, and makes them together.
	n := crashed(a, mailbox, node(2))
	if got := n.Next(most, bytes); got != nil {
		t.Fatalf("%s are made before they are noted", names(got))
	}
	items, alone := n.Suspects(most)
	if names(items) != "a bomb c" || alone {
		t.Fatalf("suspects %q, alone %v", names(items), alone)
	}
	d, aside, _ := n.Note(items, node(2), 1)
	if len(aside) != 0 || len(d.Mailbox) != 3 || len(d.Taken) != 3 {
		t.Fatalf("set aside %q, decision %+v", names(aside), d)
	}
	if got := n.Next(most, bytes); got != nil {
		t.Fatalf("%s are made before their note is stored", names(got))
	}
	if again, _ := n.Suspects(most); again != nil {
		t.Fatalf("%s are noted twice", names(again))
	}
	mailbox = d.Mailbox
	n.Noted()
	if got := names(n.Next(most, bytes)); got != "a bomb c" {
		t.Fatalf("made together: %q", got)
	}

	// The same node reads them again, because a commit was refused: it does not count itself.
	if got, _ := crashed(a, mailbox, node(2)).Suspects(most); got != nil {
		t.Errorf("%s are noted again by the node that has noted them", names(got))
	}

	// The third process notes and makes them one at a time.
	n = crashed(a, mailbox, node(3))
	for _, want := range []string{"a", "bomb"} {
		items, alone = n.Suspects(most)
		if names(items) != want || !alone {
			t.Fatalf("suspects %q, alone %v; want %s alone", names(items), alone, want)
		}
		d, _, _ = n.Note(items, node(3), 2)
		n.Noted()
		if got := n.Next(most, bytes); names(got) != want || !n.Lonely() {
			t.Fatalf("made %q, want %s by itself", names(got), want)
		}
		if want == "a" {
			if _, ok := n.Apply(items, &model.Operated{Results: []model.OperationResult{{}}}, 0, 3); !ok {
				t.Fatal("the result of a was not applied")
			}
		}
	}
	mailbox = append(d.Mailbox, mailbox[2]) // the process dies with bomb

	// The fourth process sets it aside, tells its caller, and makes the rest.
	n = crashed(a, mailbox, node(4))
	items, _ = n.Suspects(most)
	d, aside, why := n.Note(items, node(4), 4)
	if names(aside) != "bomb" || len(d.Messages) != 1 || why[0].Type != model.FailurePoison || !strings.Contains(why[0].Message, "3 processes died while bomb") {
		t.Fatalf("set aside %q: %+v, %+v", names(aside), d, why)
	}
	if items, alone = n.Suspects(most); names(items) != "c" || !alone {
		t.Errorf("then suspects %q, alone %v", names(items), alone)
	}
}

// A stored view may end its process as well: it is noted before it is made, also while the entity is locked, and set aside in the end.
func TestSuspectViews(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "t", Type: model.EntityPrefix + "e", Key: "k"}
	mailbox := []model.MailboxItem{
		{Seq: 1, Message: model.Message{Kind: model.MessageLock, To: a, From: model.Link{ID: "next"}}},
		{Seq: 2, Message: model.Message{Kind: model.MessageCall, To: a, Name: "bomb", From: model.Link{ID: "s"}}},
	}
	view := func(string) bool { return true }
	for i := byte(2); i < 4; i++ {
		n := core.NewEntity(a, &model.Entity{Address: a, Version: 1, Holder: model.Link{ID: "section"}}, mailbox)
		n.Suspect(model.NodeID{15: i})
		n.Mark(view)
		if got := n.Views(view); got != nil {
			t.Fatalf("%s is made by process %d before it is noted", names(got), i)
		}
		items, _ := n.Suspects(64)
		d, aside, _ := n.Note(items, model.NodeID{15: i}, 1)
		if names(items) != "bomb" || len(aside) != 0 {
			t.Fatalf("process %d notes %q and sets %q aside", i, names(items), names(aside))
		}
		if got := n.Views(view); got != nil {
			t.Fatalf("%s is made by process %d before the note is stored", names(got), i)
		}
		n.Noted()
		if got := n.Views(view); names(got) != "bomb" {
			t.Fatalf("process %d makes %q", i, names(got))
		}
		mailbox[1] = d.Mailbox[0]
	}
	n := crashed(a, mailbox, model.NodeID{15: 4})
	n.Mark(view)
	items, _ := n.Suspects(64)
	if _, aside, _ := n.Note(items, model.NodeID{15: 4}, 1); names(aside) != "bomb" {
		t.Errorf("%q is set aside", names(aside))
	}
}
