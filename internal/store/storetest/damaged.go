package storetest

import (
	"bytes"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var damagedTests = []test{
	{name: "a message that cannot be read holds nothing back", run: testDamagedMessage},
	{name: "a message of a newer build is kept whole", run: testNewerMessage},
	{name: "a request that cannot be read delays no other", run: testDamagedRequest},
	{name: "a dead letter that cannot be read is listed", run: testDamagedDeadLetter},
	{name: "an item that cannot be read delays no other", run: testDamagedItem},
	{name: "what cannot be read counts in a page", run: testDamagedPages},
}

// rubbish is a body that no build can read.
func rubbish() *model.Damaged { return &model.Damaged{Raw: []byte{0xff, 1, 2}} }

// newer is the body of a message that only a newer build can read.
func newer(m model.Message) *model.Damaged {
	m.Kind = 250
	return &model.Damaged{Raw: model.AppendMessage(nil, &m)}
}

// wantDamaged checks that a body was returned as it is stored, with a reason that contains the
// words.
//
//arch:parameters one line per check reads best in the tests
func (x *suite) wantDamaged(what string, got, want *model.Damaged, isNewer bool, words ...string) {
	x.Helper()
	if got == nil {
		x.Fatalf("%s: it is taken for one that can be read", what)
	}
	x.Want(what, want.Raw, got.Raw)
	if got.Newer != isNewer {
		x.Errorf("%s: newer is %v", what, got.Newer)
	}
	for _, word := range words {
		if !strings.Contains(got.Why, word) {
			x.Errorf("%s: %q does not name %q", what, got.Why, word)
		}
	}
}

func testDamagedMessage(x *suite) {
	rows := []store.MessageRow{Message(3, 1, 1), Message(3, 1, 2), Message(3, 1, 3), Message(3, 2, 1)}
	rows[1] = store.MessageRow{To: 3, From: 1, Seq: 2, Damaged: rubbish()}
	l := x.Join(1).Lanes[0]
	l.Write(func(b *store.Batch) { b.Messages = rows })
	got := try(messagesOf(x.Context(), x.Store, []model.ShardID{3}, 10)).or(x)
	if len(got) != 4 {
		x.Fatalf("%d messages, want all four", len(got))
	}
	x.wantDamaged("the second", got[1].Damaged, rows[1].Damaged, false)
	got[1].Damaged, got[1].Message, rows[1].Damaged = nil, model.Message{}, nil
	x.Want("all", rows, got)

	// The commit that moves the cursor past the message also stores the message as a dead letter.
	dead := store.InboxRow{Shard: 3, ID: x.RunID(), Message: model.SetAside(model.Address{}, &model.Damaged{Raw: []byte{0xff}, Why: "no message"}), NotBefore: model.MaxTime}
	l.Write(func(b *store.Batch) {
		b.Cursors = []store.CursorRow{{To: 3, From: 1, Prev: 0, Next: 2}}
		b.Deferred = []store.InboxRow{dead}
	})
	x.Want("behind it", rows[2:], try(messagesOf(x.Context(), x.Store, []model.ShardID{3}, 10)).or(x))
	x.Want("dead letters", []store.InboxRow{dead}, try(x.Store.LoadDeadLetters(x.Context(), model.RunID{}, 10)).or(x))
}

// testDamagedPages checks that a page ends after a large row, even if the row cannot be read.
func testDamagedPages(x *suite) {
	s := x.SubjectIn(3)
	large := &model.Damaged{Raw: bytes.Repeat([]byte{0xff}, 10_000)}
	x.Join(1).Lanes[0].Write(func(b *store.Batch) {
		b.Messages = []store.MessageRow{{To: 3, From: 1, Seq: 1, Damaged: large}, Message(3, 1, 2)}
		b.Deferred = []store.InboxRow{{Shard: 3, ID: x.RunID(), Damaged: large}, s.Request(x.RunID(), "r")}
	})

	for maxBytes, want := range map[int]int{10_000: 1, 15_000: 2} {
		messages, more, err := x.Store.LoadMessages(x.Context(), []model.ShardID{3}, 10, maxBytes)
		if err != nil || len(messages) != want || more != (want == 1) {
			x.Errorf("a page of %d bytes has %d messages, more is %v: %v", maxBytes, len(messages), more, err)
		}
		requests, more, err := x.Store.LoadInbox(x.Context(), []model.ShardID{3}, Noon, 10, maxBytes)
		if err != nil || len(requests) != want || more != (want == 1) {
			x.Errorf("a page of %d bytes has %d requests, more is %v: %v", maxBytes, len(requests), more, err)
		}
	}
}

func testNewerMessage(x *suite) {
	s := x.SubjectIn(3)
	whole := s.Request(x.RunID(), "r").Message
	body := newer(whole)
	l := x.Join(1).Lanes[0]
	l.Write(func(b *store.Batch) { b.Messages = []store.MessageRow{{To: 3, From: 1, Seq: 1, Damaged: body}} })
	got := try(messagesOf(x.Context(), x.Store, []model.ShardID{3}, 10)).or(x)
	if len(got) != 1 || got[0].Message.To != s.Start.Address || got[0].Message.RequestID != "r" {
		x.Fatalf("what is known of it: %+v", got)
	}
	x.wantDamaged("the message", got[0].Damaged, body, true, "250")

	// The damaged message moves to the inbox unchanged. There the engine can defer it any number of
	// times.
	row := store.InboxRow{Shard: 3, ID: x.RunID(), Message: got[0].Message, Damaged: got[0].Damaged, NotBefore: Noon}
	for range 2 {
		l.Write(func(b *store.Batch) { b.Deferred = []store.InboxRow{row} })
		row.NotBefore += 100
	}
	if early := x.inbox(Noon+50, 3); len(early) > 0 {
		x.Errorf("before its time: %+v", early)
	}
	late := x.inbox(Noon+100, 3)
	if len(late) != 1 || late[0].Message.To != s.Start.Address {
		x.Fatalf("in the inbox: %+v", late)
	}
	x.wantDamaged("in the inbox", late[0].Damaged, body, true)
	// A build that knows the kind reads the same body.
	if m, err := model.DecodeMessage(append([]byte{}, model.AppendMessage(nil, &whole)...)); err != nil || m.RequestID != "r" {
		x.Errorf("%+v, %v", m, err)
	}
}

func testDamagedRequest(x *suite) {
	s := x.SubjectIn(3)
	first := s.Request(x.RunID(), "a")
	bad := store.InboxRow{Shard: 3, ID: x.RunID(), Damaged: rubbish()}
	last := s.Request(x.RunID(), "c")
	x.put(first, bad, last)
	got := x.inbox(Noon, 3)
	if len(got) != 3 {
		x.Fatalf("%d requests, want three", len(got))
	}
	x.wantDamaged("the second", got[1].Damaged, bad.Damaged, false, bad.ID.String())
	x.Want("the others", []store.InboxRow{first, last}, []store.InboxRow{got[0], got[2]})
	got[1].NotBefore = model.MaxTime
	x.Join(1).Lanes[0].Write(func(b *store.Batch) { b.Deferred = []store.InboxRow{got[1]} })
	x.Want("without it", []store.InboxRow{first, last}, x.inbox(Noon, 3))
}

func testDamagedDeadLetter(x *suite) {
	s := x.SubjectIn(3)
	rows := []store.InboxRow{s.Request(x.RunID(), "a"), {Shard: 3, ID: x.RunID(), Damaged: rubbish()}, s.Request(x.RunID(), "c")}
	for i := range rows {
		rows[i].NotBefore = model.MaxTime
	}
	x.Join(1).Lanes[0].Write(func(b *store.Batch) { b.Deferred = rows })
	got := try(x.Store.LoadDeadLetters(x.Context(), model.RunID{}, 10)).or(x)
	if len(got) != 3 {
		x.Fatalf("%d dead letters, want three", len(got))
	}
	x.wantDamaged("the second", got[1].Damaged, rows[1].Damaged, false, rows[1].ID.String())
	x.Want("the others", []store.InboxRow{rows[0], rows[2]}, []store.InboxRow{got[0], got[2]})
}

func testDamagedItem(x *suite) {
	c := x.CounterIn(3)
	items := []store.MailboxRow{c.Mail(1), c.Mail(2), c.Mail(3)}
	items[1].Item.Message, items[1].Item.Damaged = model.Message{}, rubbish()
	l := x.Join(1).Lanes[0]
	l.Write(func(b *store.Batch) { b.Mailbox = items })
	got := try(x.Store.LoadEntity(x.Context(), c.EntityKey, 10, 1<<20)).or(x)
	if len(got.Mailbox) != 3 {
		x.Fatalf("%d items, want three", len(got.Mailbox))
	}

	x.wantDamaged("the second", got.Mailbox[1].Damaged, items[1].Item.Damaged, false)
	x.Want("the others", []model.MailboxItem{items[0].Item, items[2].Item}, []model.MailboxItem{got.Mailbox[0], got.Mailbox[2]})
	page := try(x.Store.LoadMailbox(x.Context(), c.EntityKey, 1, 10, 1<<20)).or(x)
	if len(page) != 2 || page[0].Damaged == nil || page[1].Damaged != nil {
		x.Errorf("the rest of the mailbox: %+v", page)
	}
	l.Write(func(b *store.Batch) { b.Taken = []store.MailboxKey{c.Take(2)} })
	x.Want("without it", []model.MailboxItem{items[0].Item, items[2].Item}, try(x.Store.LoadEntity(x.Context(), c.EntityKey, 10, 1<<20)).or(x).Mailbox)
}
