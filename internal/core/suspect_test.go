package core_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

const (
	most      = 64
	handBytes = 1 << 20
)

func node(i byte) model.NodeID { return model.NodeID{15: i} }

// calls returns a mailbox with calls of the given names.
func calls(a model.Address, names ...string) (mailbox []model.MailboxItem) {
	for i, name := range names {
		mailbox = append(mailbox, model.MailboxItem{
			Seq: int64(i + 1), Message: model.Message{Kind: model.MessageCall, To: a, Name: name, From: model.Link{ID: fmt.Sprint("s", i)}},
		})
	}
	return mailbox
}

// crashedEntity returns an entity as the next owner finds it after a crash. alone is how many
// unmarked suspects that owner may make alone.
func crashedEntity(a model.Address, mailbox []model.MailboxItem, self model.NodeID, alone int) *core.Entity {
	n := core.NewEntity(a, nil, mailbox)
	n.Suspect(self, math.MaxInt64, alone)
	return n
}

// lonely marks the next suspect, hands it to a worker, and checks that the worker gets it alone. It
// returns the row of the call.
func lonely(t *testing.T, n *core.Entity, self model.NodeID, want string) (items []*core.Item, row model.MailboxItem) {
	t.Helper()
	items, alone := n.Suspects(most)
	if names(items) != want || !alone {
		t.Fatalf("suspects %q, alone %v; want %s alone", names(items), alone, want)
	}
	d, aside, _ := n.Note(items, self, 2)
	if len(aside) != 0 || len(d.Mailbox) != 1 || len(d.Taken) != 1 {
		t.Fatalf("set aside %q, decision %+v", names(aside), d)
	}

	if got := n.Next(most, handBytes); got != nil {
		t.Fatalf("%s are made before their mark is stored", names(got))
	}
	n.ReleaseNoted()
	if got := n.Next(most, handBytes); names(got) != want || !n.Lonely() {
		t.Fatalf("made %q, want %s alone", names(got), want)
	}

	return items, d.Mailbox[0]
}

// complete applies the result of one call.
func complete(t *testing.T, n *core.Entity, items []*core.Item) {
	t.Helper()
	if _, ok := n.Apply(items, &model.Operated{Results: make([]model.OperationResult, len(items))}, 0, 3); !ok {
		t.Fatalf("the result of %s was not applied", names(items))
	}
}

func names(items []*core.Item) string {
	var out []string
	for _, it := range items {
		out = append(out, it.Message.Name)
	}
	return strings.Join(out, " ")
}

// If an owner finds few calls after a crash, it marks and makes them one at a time. When two owners
// have died while they made a call alone, the next owner sets the call aside. No worker makes a
// call before its mark is stored, or out of order.
func TestSuspects(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "t", Type: model.EntityPrefix + "e", Key: "k"}
	mailbox := calls(a, "a", "bomb", "c")

	// The second process makes call a, and dies while it makes call bomb alone. The third process
	// dies in the same way.
	n := crashedEntity(a, mailbox, node(2), most)
	if got := n.Next(most, handBytes); got != nil {
		t.Fatalf("%s are made before they are marked", names(got))
	}
	items, _ := lonely(t, n, node(2), "a")
	complete(t, n, items)
	_, row := lonely(t, n, node(2), "bomb")
	mailbox = []model.MailboxItem{row, mailbox[2]}

	// The same node reads the entity again, because a commit was refused. It does not count its own
	// mark as a death.
	n = crashedEntity(a, mailbox, node(2), most)
	if got := names(n.Next(most, handBytes)); got != "bomb" || !n.Lonely() {
		t.Errorf("the node that has marked bomb makes %q", got)
	}
	_, mailbox[0] = lonely(t, crashedEntity(a, mailbox, node(3), most), node(3), "bomb")

	// The fourth process sets bomb aside, answers its caller, and makes the rest.
	n = crashedEntity(a, mailbox, node(4), most)
	items, _ = n.Suspects(most)
	d, aside, why := n.Note(items, node(4), 4)
	if names(aside) != "bomb" || len(d.Messages) != 1 || why[0].Type != model.FailurePoison || !strings.Contains(why[0].Message, "3 processes died while bomb") {
		t.Fatalf("set aside %q: %+v, %+v", names(aside), d, why)
	}
	lonely(t, n, node(4), "c")
}

// If there are too many suspects, the owner marks them and a worker gets them together at first. If
// only one process dies while it makes a call alone, the call is not set aside.
func TestSuspectsTogetherFirst(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "t", Type: model.EntityPrefix + "e", Key: "k"}
	mailbox := calls(a, "a", "bomb", "c")
	n := crashedEntity(a, mailbox, node(2), 0)
	items, alone := n.Suspects(most)
	if names(items) != "a bomb c" || alone {
		t.Fatalf("suspects %q, alone %v", names(items), alone)
	}
	d, aside, _ := n.Note(items, node(2), 1)
	if again, _ := n.Suspects(most); len(aside) != 0 || again != nil {
		t.Fatalf("set aside %q; %s are marked twice", names(aside), names(again))
	}
	mailbox = d.Mailbox
	n.ReleaseNoted()
	if got := names(n.Next(most, handBytes)); got != "a bomb c" {
		t.Fatalf("made together: %q", got)
	}

	// The third and the fourth process die while they make the first call alone.
	for i := byte(3); i <= 4; i++ {
		_, mailbox[0] = lonely(t, crashedEntity(a, mailbox, node(i), 0), node(i), "a")
	}
	n = crashedEntity(a, mailbox, node(5), 0)
	items, _ = n.Suspects(most)
	if _, aside, why := n.Note(items, node(5), 1); names(aside) != "a" || !strings.Contains(why[0].Message, "4 processes died while a") {
		t.Errorf("set aside %q: %v", names(aside), why)
	}
}

// Builds that did not count lone attempts wrote these rows: the first mark means that the call was
// made together with others, the second that it was made alone.
func TestSuspectsOfOlderBuilds(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "t", Type: model.EntityPrefix + "e", Key: "k"}
	for deaths, attempts := range map[int]int{1: 2, 2: 1} {
		mailbox := calls(a, "bomb")
		mailbox[0].Message.Deaths, mailbox[0].Message.By = deaths, node(2)
		for i := range attempts {
			_, mailbox[0] = lonely(t, crashedEntity(a, mailbox, node(byte(3+i)), 0), node(byte(3+i)), "bomb")
		}
		n := crashedEntity(a, mailbox, node(9), 0)
		items, _ := n.Suspects(most)
		if _, aside, _ := n.Note(items, node(9), 1); names(aside) != "bomb" {
			t.Errorf("%d deaths and %d lone attempts: set aside %q", deaths, attempts, names(aside))
		}
	}
}

// An owner that released the entity in an orderly way was not killed by the call that it had
// marked. The next owner removes the mark before it makes the call.
func TestPardon(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "t", Type: model.EntityPrefix + "e", Key: "k"}
	mailbox := calls(a, "slow", "next")
	_, mailbox[0] = lonely(t, crashedEntity(a, mailbox, node(2), most), node(2), "slow")

	for range 2 { // the second time there is nothing to remove
		n := core.NewEntity(a, nil, mailbox)
		n.Pardon(node(3))
		if items, alone := n.Suspects(most); names(items) != "" {
			if alone || names(items) != "slow" || n.Next(most, handBytes) != nil {
				t.Fatalf("takes the mark of %q back, alone %v", names(items), alone)
			}
			d, _, _ := n.Note(items, node(3), 1)
			n.ReleaseNoted()
			mailbox[0] = d.Mailbox[0]
		}
		if got := names(n.Next(most, handBytes)); got != "slow next" {
			t.Fatalf("makes %q", got)
		}
	}

	for i := byte(4); i <= 5; i++ {
		_, mailbox[0] = lonely(t, crashedEntity(a, mailbox, node(i), most), node(i), "slow")
	}
}

// Only the first hand-over of an entity can have been running. Of the calls behind it, only views
// are suspects, because views do not wait for their turn.
func TestSuspectsOfTheFirstHandOver(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "t", Type: model.EntityPrefix + "e", Key: "k"}
	waiting := make([]string, 100)
	for i := range waiting {
		waiting[i] = "op"
	}
	waiting[99] = "view"
	n := core.NewEntity(a, nil, calls(a, waiting...))
	if lone := n.Suspect(node(2), math.MaxInt64, 200); lone != 64 {
		t.Errorf("%d calls are to be made alone", lone)
	}
	n.Mark(func(name string) bool { return name == "view" })
	if got := n.Views(func(string) bool { return true }); got != nil {
		t.Errorf("%s is made without a mark", names(got))
	}
	for range 64 {
		items, _ := lonely(t, n, node(2), "op")
		complete(t, n, items)
	}
	if got := n.Next(most, handBytes); len(got) != 35 {
		t.Errorf("%d calls behind the first hand-over are made", len(got))
	}

	// The calls of the section that holds the lock may have been running. So may the calls that
	// wait for the end of the section, if its release was not stored yet.
	mailbox := calls(a, waiting...)
	mailbox[99].Message.From, mailbox[99].Message.Section = model.Link{ID: "s/1"}, "section"
	n = core.NewEntity(a, &model.Entity{Address: a, Version: 1, Holder: model.Link{ID: "section"}}, mailbox)
	if lone := n.Suspect(node(2), math.MaxInt64, 200); lone != 65 {
		t.Errorf("%d calls of a locked entity are to be made alone", lone)
	}

	// Calls of a service overlap: any number of them may have been running.
	service := model.Address{Tenant: "t", Type: model.ServicePrefix + "s", Key: "k"}
	if lone := core.NewEntity(service, nil, calls(service, waiting...)).Suspect(node(2), math.MaxInt64, 200); lone != 100 {
		t.Errorf("%d calls of a service are to be made alone", lone)
	}
}

// A stored view may kill its process as well. The owner marks the view before a worker makes it,
// even while the entity is locked. In the end the owner sets the view aside.
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
		n.Suspect(model.NodeID{15: i}, math.MaxInt64, most)
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
		n.ReleaseNoted()
		if got := n.Views(view); names(got) != "bomb" {
			t.Fatalf("process %d makes %q", i, names(got))
		}

		mailbox[1] = d.Mailbox[0]
	}

	n := crashedEntity(a, mailbox, model.NodeID{15: 4}, most)
	n.Mark(view)
	items, _ := n.Suspects(64)
	if _, aside, _ := n.Note(items, model.NodeID{15: 4}, 1); names(aside) != "bomb" {
		t.Errorf("%q is set aside", names(aside))
	}
}
