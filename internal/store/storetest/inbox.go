package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var inboxTests = []test{
	{name: "requests come in the order of their ids", run: testInboxOrder},
	{name: "limit of bytes", run: testInboxBytes},
	{name: "a request that is dead is not served", run: testInboxOfTheDead},
	{name: "putting a request again changes nothing", run: testPutAgain},
	{name: "a remembered request is not put again", run: testPutRemembered},
	{name: "a request that is remembered is seen", run: testSeen},
	{name: "a vacant address has no run", run: testVacant},
	{name: "a refusal may be remembered again", run: testRefusedAgain},
	{name: "dead letters are listed", run: testDeadLetters},
	{name: "deferred requests wait", run: testDeferred},
	{name: "answers that callers have are forgotten", run: testForgets},
	{name: "replies", run: testReplies},
	{name: "a request is remembered by address", run: testRequestKeys},
}

// put stores requests.
func (x *suite) put(rows ...store.InboxRow) {
	x.Helper()
	if err := x.Store.PutInbox(x.Context(), rows); err != nil {
		x.Fatalf("put inbox: %v", err)
	}
}

// inboxOf reads a page of LoadInbox that is limited only by the number of rows. It leaves out what
// stores need not know.
func inboxOf(ctx context.Context, s store.Store, shards []model.ShardID, now model.Time, limit int) ([]store.InboxRow, error) {
	rows, _, err := s.LoadInbox(ctx, shards, now, limit, wholePages)
	return unknowing(rows), err
}

// unknowing sets Vacant to false in rows, because stores need not know it.
func unknowing(rows []store.InboxRow) []store.InboxRow {
	for i := range rows {
		rows[i].Vacant = false
	}
	return rows
}

// inbox returns the rows of LoadInbox.
func (x *suite) inbox(now model.Time, shards ...model.ShardID) []store.InboxRow {
	x.Helper()
	return try(inboxOf(x.Context(), x.Store, shards, now, 1000)).or(x)
}

func testInboxOrder(x *suite) {
	l := x.Join(1).Lanes[0]
	subjects := []Subject{x.SubjectIn(8), x.SubjectIn(1), x.SubjectIn(5)}
	var all []store.InboxRow
	for i := range 30 {
		all = append(all, subjects[i%3].Request(x.RunID(), fmt.Sprint(i)))
	}
	backwards := slices.Clone(all)
	slices.Reverse(backwards)
	x.put(backwards[:10]...)
	x.put(backwards[10:]...)
	x.Want("all", all, x.inbox(Noon, 1, 5, 8))
	one := slices.DeleteFunc(slices.Clone(all), func(r store.InboxRow) bool { return r.Shard != 5 })
	x.Want("of one shard", one, x.inbox(Noon, 5))
	x.Want("limited", all[:7], try(inboxOf(x.Context(), x.Store, []model.ShardID{8, 5, 1}, Noon, 7)).or(x))

	l.Write(func(b *store.Batch) {
		for _, r := range all[:29] {
			b.Inbox = append(b.Inbox, Consume(r))
		}
	})

	x.Want("the last one", all[29:], x.inbox(Noon, 1, 5, 8))
}

// testInboxBytes reads pages that are limited by bytes. Each page has the first rows of all shards,
// and exceeds the limit by at most one row.
func testInboxBytes(x *suite) {
	l := x.Join(1).Lanes[0]
	subjects := []Subject{x.SubjectIn(8), x.SubjectIn(1), x.SubjectIn(5)}
	shards := []model.ShardID{1, 5, 8}
	var all []store.InboxRow
	for i := range 12 {
		row := subjects[i%3].Request(x.RunID(), fmt.Sprint(i))
		row.Message.Input = model.Payload{Data: bytes.Repeat([]byte("r"), 10_000), Encoding: "raw"}
		all = append(all, row)
	}
	dead := subjects[0].Request(x.RunID(), "dead")
	dead.NotBefore = model.MaxTime
	l.Write(func(b *store.Batch) { b.Deferred = append(slices.Clone(all), dead) })

	for _, maxBytes := range []int{0, 1, 10_000} {
		page, more, err := x.Store.LoadInbox(x.Context(), shards, Noon, 100, maxBytes)
		if err != nil || !more {
			x.Errorf("a page of %d bytes tells more: %v, %v", maxBytes, more, err)
		}
		x.Want(fmt.Sprintf("a page of %d bytes", maxBytes), all[:1], unknowing(page))
	}
	for left := all; len(left) > 0; {
		page, more, err := x.Store.LoadInbox(x.Context(), shards, Noon, 100, 35_000)
		if err != nil {
			x.Fatal(err)
		}
		x.Want("page", left[:4], unknowing(page))
		if left = left[4:]; len(left) > 0 && !more {
			x.Fatalf("the page tells that it is the last one, and %d requests are behind it", len(left))
		}
		l.Write(func(b *store.Batch) {
			for _, r := range page {
				b.Inbox = append(b.Inbox, Consume(r))
			}
		})
	}
	if page, more, err := x.Store.LoadInbox(x.Context(), shards, Noon, 100, 35_000); err != nil || len(page) != 0 || more {
		x.Errorf("an empty inbox has %d requests, more is %v: %v", len(page), more, err)
	}
}

func testInboxOfTheDead(x *suite) {
	s := x.Subject()
	waiting, dead := s.Request(x.RunID(), "waiting"), s.Request(x.RunID(), "dead")
	dead.NotBefore = model.MaxTime
	x.Join(1).Lanes[0].Write(func(b *store.Batch) { b.Deferred = []store.InboxRow{waiting, dead} })
	x.Want("at the end of time", []store.InboxRow{waiting}, x.inbox(model.MaxTime, s.Shard))
}

func testDeadLetters(x *suite) {
	subjects := []Subject{x.SubjectIn(1), x.SubjectIn(5), x.SubjectIn(8)}
	var all []store.InboxRow
	x.Join(1).Lanes[0].Write(func(b *store.Batch) {
		for i := range 9 {
			waiting, dead := subjects[i%3].Request(x.RunID(), fmt.Sprint("waiting", i)), subjects[i%3].Request(x.RunID(), fmt.Sprint("dead", i))
			dead.NotBefore = model.MaxTime
			all = append(all, dead)
			b.Deferred = append(b.Deferred, dead, waiting)
		}
	})

	page := func(after model.RunID, limit int) []store.InboxRow {
		return try(x.Store.LoadDeadLetters(x.Context(), after, limit)).or(x)
	}
	x.Want("all", all, page(model.RunID{}, 100))
	x.Want("the first page", all[:4], page(model.RunID{}, 4))
	x.Want("the next one", all[4:8], page(all[3].ID, 4))
	x.Want("the last one", all[8:], page(all[7].ID, 4))
	if rest := page(all[8].ID, 4); len(rest) > 0 {
		x.Errorf("behind the last one there are %v", rest)
	}
}

func testPutAgain(x *suite) {
	s := x.Subject()
	a, b := s.Request(x.RunID(), "a"), s.Request(x.RunID(), "b")
	x.put(a)
	changed := a
	changed.Message.Input = Text("changed")
	x.put(changed, b)
	x.put(a, b)
	x.Want("inbox", []store.InboxRow{a, b}, x.inbox(Noon, s.Shard))

	// Putting a deferred request again does not change its time either.
	l := x.Join(1).Lanes[0]
	later := a
	later.NotBefore = Noon + 100
	l.Write(func(w *store.Batch) { w.Deferred = []store.InboxRow{later} })
	x.put(a)
	x.Want("inbox with one deferred", []store.InboxRow{b}, x.inbox(Noon, s.Shard))
	x.Want("the deferred one, later", []store.InboxRow{later, b}, x.inbox(Noon+100, s.Shard))
}

func testPutRemembered(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	a, b := s.Request(x.RunID(), "a"), s.Request(x.RunID(), "b")
	x.put(a)

	l.Write(func(w *store.Batch) {
		w.Inbox = []store.InboxKey{Consume(a)}
		w.Requests = []store.Reply{s.Reply("a", Noon)}
	})

	x.put(a, b)
	x.Want("inbox", []store.InboxRow{b}, x.inbox(Noon, s.Shard))
	// After its answer is swept, the request id can be used like any other.
	if n := try(x.Store.Sweep(x.Context(), store.SweepRequest{Shards: []model.ShardID{s.Shard}, RequestsBefore: Noon + 1, Limit: 10})).or(x); n != 1 {
		x.Errorf("swept %d rows, want the remembered request", n)
	}
	x.put(a)
	x.Want("inbox after it was forgotten", []store.InboxRow{a, b}, x.inbox(Noon, s.Shard))
}

func testSeen(x *suite) {
	l := x.Join(1).Lanes[0]
	s, other := x.SubjectIn(4), x.SubjectIn(4)
	a, b, c := s.Request(x.RunID(), "a"), s.Request(x.RunID(), "b"), other.Request(x.RunID(), "a")
	x.put(a, b, c)
	// The owner got the request in another way and served it. The row in the inbox is still there.
	l.Write(func(w *store.Batch) { w.Requests = []store.Reply{s.Reply("a", Noon)} })
	seen := a
	seen.Seen = true
	x.Want("inbox", []store.InboxRow{seen, b, c}, x.inbox(Noon, 4))
	l.Write(func(w *store.Batch) { w.Inbox = []store.InboxKey{Consume(a)} })
	x.Want("inbox, consumed", []store.InboxRow{b, c}, x.inbox(Noon, 4))
	// A request without a request id cannot be remembered.
	d := s.Request(x.RunID(), "")
	x.put(d)
	x.Want("inbox with a nameless request", []store.InboxRow{b, c, d}, x.inbox(Noon, 4))
}

func testVacant(x *suite) {
	l := x.Join(1).Lanes[0]
	open, closed, gone, none := x.SubjectIn(4), x.SubjectIn(4), x.SubjectIn(4), x.SubjectIn(4)
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{open.StartRow(), closed.StartRow(), gone.StartRow()} })
	l.Write(func(b *store.Batch) {
		b.Closes = []store.CloseRow{closed.Close(model.Completed), gone.Close(model.Completed)}
	})
	l.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{gone.RunKey} })
	all := []store.InboxRow{open.Request(x.RunID(), "a"), closed.Request(x.RunID(), "b"), gone.Request(x.RunID(), "c"), none.Request(x.RunID(), "d")}
	x.put(all...)

	rows, _, err := x.Store.LoadInbox(x.Context(), []model.ShardID{4}, Noon, 10, wholePages)
	if err != nil || len(rows) != len(all) {
		x.Fatalf("%d rows, %v", len(rows), err)
	}
	knows := rows[3].Vacant
	x.Want("vacant", []bool{false, false, knows, knows}, []bool{rows[0].Vacant, rows[1].Vacant, rows[2].Vacant, rows[3].Vacant})
	if shared := x.Store.Info().Shared; shared && !knows {
		x.Error("a shared store does not know whether addresses are vacant")
	}
}

func testRefusedAgain(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	a := s.Request(x.RunID(), "a")
	first := s.Reply(model.RefusedIDs+a.ID.String(), Noon)
	second := first
	second.At, second.Body = Noon+1, []byte("another answer")
	x.put(a)
	l.Write(func(w *store.Batch) { w.Inbox, w.Requests = []store.InboxKey{Consume(a)}, []store.Reply{first} })
	// The sender has put the request twice. The second copy lands after the refusal, and must not
	// take effect.
	x.put(a)
	x.Want("inbox after a late copy of a refused request", []store.InboxRow(nil), x.inbox(Noon, s.Shard))
	l.Write(func(w *store.Batch) { w.Requests = []store.Reply{second} })
	x.Want("what is remembered", []store.Reply{first}, try(x.Store.LoadReplies(x.Context(), []store.RequestKey{first.RequestKey})).or(x))

	// For any other remembered id, the store refuses the batch.
	l.Write(func(w *store.Batch) { w.Requests = []store.Reply{s.Reply("a", Noon)} })
	b := l.Batch()
	b.Requests = []store.Reply{s.Reply("a", Noon)}
	l.Refuse(b, store.Refused)
}

func testForgets(x *suite) {
	l := x.Join(1).Lanes[0]
	s, other := x.SubjectIn(4), x.SubjectIn(5)
	a, b, c, d := s.Reply("a", Noon), s.Reply("b", Noon), other.Reply("a", Noon), s.Reply("d", Noon)
	all := []store.RequestKey{a.RequestKey, b.RequestKey, c.RequestKey, d.RequestKey}
	left := func(what string, want ...store.Reply) {
		x.Helper()
		got := try(x.Store.LoadReplies(x.Context(), all)).or(x)
		slices.SortFunc(got, func(a, b store.Reply) int { return compareRequests(a.RequestKey, b.RequestKey) })
		slices.SortFunc(want, func(a, b store.Reply) int { return compareRequests(a.RequestKey, b.RequestKey) })
		x.Want(what, want, got)
	}
	l.Write(func(w *store.Batch) { w.Requests = []store.Reply{a, b, c, d} })

	// A batch forgets the named answers, of any shard. It skips answers that do not exist.
	missing := s.Reply("never", Noon).RequestKey
	l.Write(func(w *store.Batch) { w.Forgets = []store.RequestKey{a.RequestKey, c.RequestKey, missing} })
	left("after a batch has forgotten two", b, d)

	// A refused batch forgets nothing.
	refused := l.Batch()
	refused.Forgets, refused.Requests = []store.RequestKey{b.RequestKey}, []store.Reply{d}
	l.Refuse(refused, store.Refused)
	left("after a refused batch", b, d)

	// A sweep also forgets named answers, without a lane and without a limit. After that, the id
	// may be used again.
	if n := try(x.Store.Sweep(x.Context(), store.SweepRequest{Answered: []store.RequestKey{b.RequestKey, missing}})).or(x); n != 1 {
		x.Errorf("swept %d rows, want one answer", n)
	}
	left("after a sweep", d)
	l.Write(func(w *store.Batch) { w.Requests = []store.Reply{a} })
	left("after the id was used again", a, d)
}

func testDeferred(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.SubjectIn(4)
	a, b, c := s.Request(x.RunID(), "a"), s.Request(x.RunID(), "b"), s.Request(x.RunID(), "c")
	x.put(a)
	a.NotBefore, b.NotBefore = Noon+10, Noon+20
	l.Write(func(w *store.Batch) { w.Deferred = []store.InboxRow{a, b, c} })
	x.Want("before", []store.InboxRow{c}, x.inbox(Noon+9, 4))
	x.Want("at the time of the first", []store.InboxRow{a, c}, x.inbox(Noon+10, 4))
	x.Want("at the time of the second", []store.InboxRow{a, b, c}, x.inbox(Noon+20, 4))
	moved := a
	moved.NotBefore = Noon + 30
	moved.Message.Input = Text("only the time moves")
	l.Write(func(w *store.Batch) { w.Deferred = []store.InboxRow{moved} })
	a.NotBefore = moved.NotBefore
	x.Want("moved, before", []store.InboxRow{b, c}, x.inbox(Noon+29, 4))
	x.Want("moved, after", []store.InboxRow{a, b, c}, x.inbox(Noon+30, 4))
	l.Write(func(w *store.Batch) { w.Inbox = []store.InboxKey{Consume(a), Consume(b), Consume(c)} })
	x.Want("consumed", []store.InboxRow(nil), x.inbox(model.MaxTime, 4))
}

func testReplies(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	empty := s.Reply("empty", Noon)
	empty.Body = nil
	odd := s.Reply("odd", model.MaxTime)
	odd.Body = []byte("\x00\xff'\\")
	l.Write(func(b *store.Batch) { b.Requests = []store.Reply{s.Reply("a", Noon), empty, odd} })
	got := try(x.Store.LoadReplies(x.Context(), []store.RequestKey{
		s.RequestKey("odd"), s.RequestKey("unknown"), s.RequestKey("empty"), s.RequestKey("a"), x.Subject().RequestKey("a"), s.RequestKey("A"),
	})).or(x)
	slices.SortFunc(got, func(a, b store.Reply) int { return compareRequests(a.RequestKey, b.RequestKey) })
	x.Want("replies", []store.Reply{s.Reply("a", Noon), empty, odd}, got)
	if got := try(x.Store.LoadReplies(x.Context(), nil)).or(x); len(got) != 0 {
		x.Errorf("replies to no requests: %v", got)
	}
}

func testRequestKeys(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.SubjectIn(4)
	key := s.RequestKey("id")
	var all []store.Reply

	b := l.Batch()
	for i, change := range []func(k *store.RequestKey){
		func(*store.RequestKey) {},
		func(k *store.RequestKey) { k.Shard = 5 },
		func(k *store.RequestKey) { k.Address.Tenant = "other" },
		func(k *store.RequestKey) { k.Address.Type = "other" },
		func(k *store.RequestKey) { k.Address.Key = "other" },
		func(k *store.RequestKey) { k.ID = "ID" },
	} {
		k := key
		change(&k)
		r := store.Reply{RequestKey: k, At: Noon, Body: []byte{byte(i)}}
		all = append(all, r)
		b.Requests = append(b.Requests, r)
	}

	l.Commit(b)
	for _, r := range all {
		x.Want("reply", []store.Reply{r}, try(x.Store.LoadReplies(x.Context(), []store.RequestKey{r.RequestKey})).or(x))
		again := l.Batch()
		again.Requests = []store.Reply{r}
		l.Refuse(again, store.Refused)
	}
}
