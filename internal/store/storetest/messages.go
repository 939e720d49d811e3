package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// wholePages is a limit in bytes that no page of the tests reaches.
const wholePages = 1 << 30

// messagesOf reads a page of LoadMessages that is limited only by the number of rows.
func messagesOf(ctx context.Context, s store.Store, shards []model.ShardID, limit int) ([]store.MessageRow, error) {
	rows, _, err := s.LoadMessages(ctx, shards, limit, wholePages)
	return rows, err
}

var messageTests = []test{
	{name: "messages behind the cursor come in order per pair", run: testMessages},
	{name: "a message behind a gap is not returned", run: testMessageGaps},
	{name: "limit", run: testMessageLimit},
	{name: "limit of bytes", run: testMessageBytes},
	{name: "cursors advance from where they are", run: testCursors},
	{name: "every kind and field comes back as it was", run: testMessageRoundTrip},
	{name: "sweep removes what is behind the cursor and resets nothing", run: testSweepMessages},
	{name: "sweep is bounded and leaves other shards alone", run: testSweepBounds},
	{name: "a view tells of mail", run: testMail},
}

// mail returns the rows of LoadMessages, sorted by pair. It fails the test if the messages between
// two shards are out of order.
func (x *suite) mail(limit int, shards ...model.ShardID) []store.MessageRow {
	x.Helper()
	got := try(messagesOf(x.Context(), x.Store, shards, limit)).or(x)
	if len(got) > limit {
		x.Errorf("%d messages, more than the limit %d", len(got), limit)
	}
	last := make(map[[2]model.ShardID]int64)
	for _, m := range got {
		pair := [2]model.ShardID{m.To, m.From}
		if before, ok := last[pair]; ok && m.Seq != before+1 {
			x.Errorf("message %d of pair %v after message %d", m.Seq, pair, before)
		}
		last[pair] = m.Seq
	}
	slices.SortStableFunc(got, compareMessages)
	return got
}

// rows returns the messages of a pair of shards, from position first to position last.
func rows(to, from model.ShardID, first, last int64) (out []store.MessageRow) {
	for seq := first; seq <= last; seq++ {
		out = append(out, Message(to, from, seq))
	}
	return out
}

func testMessages(x *suite) {
	l := x.Join(1).Lanes[0]
	l.Write(func(b *store.Batch) {
		b.Messages = slices.Concat(rows(1, 2, 1, 2), rows(1, 1, 1, 3), rows(2, 1, 1, 1), rows(1, 3, 1, 12))
	})
	l.Write(func(b *store.Batch) { b.Messages = rows(1, 2, 3, 4) })
	x.Want("to shard 1", slices.Concat(rows(1, 1, 1, 3), rows(1, 2, 1, 4), rows(1, 3, 1, 12)), x.mail(100, 1))
	x.Want("to shard 2", rows(2, 1, 1, 1), x.mail(100, 2, 2, 9))
	l.Write(func(b *store.Batch) {
		b.Cursors = []store.CursorRow{{To: 1, From: 2, Next: 3}, {To: 1, From: 1, Next: 3}, {To: 1, From: 3, Next: 9}}
	})
	x.Want("behind the cursors", slices.Concat(rows(1, 2, 4, 4), rows(1, 3, 10, 12), rows(2, 1, 1, 1)), x.mail(100, 1, 2))
	l.Write(func(b *store.Batch) { b.Cursors = []store.CursorRow{{To: 1, From: 2, Prev: 3, Next: 4}} })
	l.Write(func(b *store.Batch) { b.Messages = rows(1, 2, 5, 5) })
	x.Want("after more", slices.Concat(rows(1, 2, 5, 5), rows(1, 3, 10, 12)), x.mail(100, 1))
	taken := l.Batch()
	taken.Messages = slices.Concat(rows(1, 2, 6, 6), rows(1, 3, 12, 12))
	l.Refuse(taken, store.Refused)
}

func testMessageGaps(x *suite) {
	l := x.Join(1).Lanes[0]
	// The sender promises not to leave a gap, but the reader does not rely on that promise.
	l.Write(func(b *store.Batch) {
		b.Messages = slices.Concat(rows(1, 2, 1, 2), rows(1, 2, 4, 6), rows(1, 3, 2, 3), rows(1, 4, 1, 1))
	})
	x.Want("up to the gap", slices.Concat(rows(1, 2, 1, 2), rows(1, 4, 1, 1)), x.mail(100, 1))
	l.Write(func(b *store.Batch) {
		b.Messages = rows(1, 3, 1, 1)
		b.Cursors = []store.CursorRow{{To: 1, From: 2, Next: 2}}
	})
	x.Want("a gap right behind the cursor", slices.Concat(rows(1, 3, 1, 3), rows(1, 4, 1, 1)), x.mail(100, 1))
	l.Write(func(b *store.Batch) { b.Messages = rows(1, 2, 3, 3) })
	x.Want("when it is filled", slices.Concat(rows(1, 2, 3, 6), rows(1, 3, 1, 3), rows(1, 4, 1, 1)), x.mail(100, 1))
}

func testMessageLimit(x *suite) {
	l := x.Join(1).Lanes[0]
	l.Write(func(b *store.Batch) {
		b.Messages = slices.Concat(rows(1, 2, 1, 20), rows(1, 3, 1, 20), rows(4, 2, 1, 20))
	})
	cursor := make(map[[2]model.ShardID]int64)

	total := 0
	for {
		got := x.mail(7, 1, 4)
		if len(got) == 0 {
			break
		}
		if len(got) != min(7, 60-total) {
			x.Fatalf("%d messages, want %d", len(got), min(7, 60-total))
		}

		total += len(got)
		next := make(map[[2]model.ShardID]int64)
		for _, m := range got {
			pair := [2]model.ShardID{m.To, m.From}
			if before := max(next[pair], cursor[pair]); m.Seq != before+1 {
				x.Fatalf("message %d of %v, want %d", m.Seq, pair, before+1)
			}
			next[pair] = m.Seq
		}

		l.Write(func(b *store.Batch) {
			for pair, seq := range next {
				b.Cursors = append(b.Cursors, store.CursorRow{To: pair[0], From: pair[1], Prev: cursor[pair], Next: seq})
				cursor[pair] = seq
			}
		})
	}

	if total != 60 {
		x.Errorf("%d messages in all, want 60", total)
	}
}

// testMessageBytes reads pages that are limited by bytes. Each has at least one row, exceeds the
// limit by at most one row, and keeps the order of the pairs.
func testMessageBytes(x *suite) {
	l := x.Join(1).Lanes[0]
	large := func(rows []store.MessageRow) []store.MessageRow {
		for i := range rows {
			rows[i].Message.Input = model.Payload{Data: bytes.Repeat([]byte("m"), 10_000), Encoding: "raw"}
		}
		return rows
	}
	all := large(slices.Concat(rows(1, 2, 1, 5), rows(1, 3, 1, 4), rows(4, 2, 1, 3)))
	l.Write(func(b *store.Batch) { b.Messages = all })

	cursor := make(map[[2]model.ShardID]int64)
	var got []store.MessageRow
	for pages := 0; ; pages++ {
		page, more, err := x.Store.LoadMessages(x.Context(), []model.ShardID{1, 4}, 100, 15_000)
		if err != nil {
			x.Fatal(err)
		}
		if want := min(2, len(all)-len(got)); len(page) != want {
			x.Fatalf("page %d has %d messages of 10 kB, want %d for a limit of 15 kB", pages, len(page), want)
		}

		if behind := len(all) - len(got) - len(page); behind > 0 && !more {
			x.Fatalf("page %d tells that it is the last one, and %d messages are behind it", pages, behind)
		}
		if len(page) == 0 {
			break
		}
		got = append(got, page...)

		b := l.Batch()
		for _, m := range page {
			pair := [2]model.ShardID{m.To, m.From}
			b.Cursors = slices.DeleteFunc(b.Cursors, func(c store.CursorRow) bool { return c.To == m.To && c.From == m.From })
			b.Cursors = append(b.Cursors, store.CursorRow{To: m.To, From: m.From, Prev: cursor[pair], Next: m.Seq})
		}

		for _, c := range b.Cursors {
			cursor[[2]model.ShardID{c.To, c.From}] = c.Next
		}
		l.Commit(b)
	}
	x.Want("all pages", all, got)

	l.Write(func(b *store.Batch) { b.Messages = large(rows(1, 2, 6, 7)) })
	for _, maxBytes := range []int{0, 1, 10_000} {
		page, more, err := x.Store.LoadMessages(x.Context(), []model.ShardID{1}, 100, maxBytes)
		if err != nil || len(page) != 1 || !more {
			x.Errorf("a page of %d bytes has %d messages, more is %v: %v", maxBytes, len(page), more, err)
		}
	}
	page, more, err := x.Store.LoadMessages(x.Context(), []model.ShardID{1}, 100, 30_000)
	if err != nil || len(page) != 2 || more {
		x.Errorf("a page with room for all has %d messages, more is %v: %v", len(page), more, err)
	}
}

func testCursors(x *suite) {
	l := x.Join(1).Lanes[0]
	l.Write(func(b *store.Batch) { b.Messages = rows(1, 2, 1, 9) })
	l.Write(func(b *store.Batch) { b.Cursors = []store.CursorRow{{To: 1, From: 2, Next: 3}} })

	for _, c := range []store.CursorRow{
		{To: 1, From: 2, Prev: 0, Next: 3},
		{To: 1, From: 2, Prev: 0, Next: 4},
		{To: 1, From: 2, Prev: 2, Next: 4},
		{To: 1, From: 2, Prev: 4, Next: 5},
		{To: 2, From: 1, Prev: 3, Next: 4},
	} {
		b := l.Batch()
		b.Cursors = []store.CursorRow{{To: 7, From: 7, Next: 1}, c}
		l.Refuse(b, store.Refused)
		x.Want(fmt.Sprintf("after refused cursor %+v", c), rows(1, 2, 4, 9), x.mail(100, 1))
	}

	l.Write(func(b *store.Batch) {
		b.Cursors = []store.CursorRow{{To: 1, From: 2, Prev: 3, Next: 9}, {To: 7, From: 7, Next: 1}}
	})
	x.Want("at the end", []store.MessageRow(nil), x.mail(100, 1))
}

func testMessageRoundTrip(x *suite) {
	l := x.Join(1).Lanes[0]
	seq := int64(0)
	rapid.Check(x.t, func(t *rapid.T) {
		row := store.MessageRow{To: 1, From: 2, Seq: seq + 1, Message: Messages().Draw(t, "message")}
		request := store.InboxRow{Shard: 3, ID: x.RunID(), Message: Messages().Draw(t, "request"), NotBefore: min(Times().Draw(t, "not before"), model.MaxTime-1)}
		// some adapters store the tenant and the type in columns
		request.Message.To.Tenant, request.Message.To.Type = "tenant", "type"
		request.Message.To.Key, request.Message.RequestID = "key", fmt.Sprint("request ", seq)

		l.Write(func(b *store.Batch) {
			b.Messages = []store.MessageRow{row}
			b.Deferred = []store.InboxRow{request}
		})

		seq++
		if d := Diff([]store.MessageRow{row}, x.mail(10, 1)); d != "" {
			t.Fatalf("message (-want +got):\n%s", d)
		}
		inbox := try(inboxOf(x.Context(), x.Store, []model.ShardID{3}, model.MaxTime, 10)).or(x)
		if d := Diff([]store.InboxRow{request}, inbox); d != "" {
			t.Fatalf("request (-want +got):\n%s", d)
		}

		l.Write(func(b *store.Batch) {
			b.Cursors = []store.CursorRow{{To: 1, From: 2, Prev: seq - 1, Next: seq}}
			b.Inbox = []store.InboxKey{Consume(request)}
		})
	})
}

// movedState returns the state that came with a shard. It leaves out positions that are zero.
func movedState(a store.AcquiredShard) store.AcquiredShard {
	for _, m := range []map[model.ShardID]int64{a.Received, a.Sent} {
		for shard, position := range m {
			if position == 0 {
				delete(m, shard)
			}
		}
	}
	return a
}

// state acquires a shard for a new node and returns the state that moves with it.
func (x *suite) state(shard model.ShardID) store.AcquiredShard {
	x.Helper()
	n := x.Join(1)
	defer n.Fence()
	return x.stateOf(n, shard)
}

// stateOf acquires a shard for a node, which may have it already, and returns the state that moves
// with it.
func (x *suite) stateOf(n *Node, shard model.ShardID) store.AcquiredShard {
	x.Helper()
	got := n.Acquire(shard)
	if len(got) != 1 || got[0].Shard != shard {
		x.Fatalf("acquired %v, want shard %d", got, shard)
	}
	return movedState(got[0])
}

func testSweepMessages(x *suite) {
	l := x.Join(1).Lanes[0]
	l.Write(func(b *store.Batch) {
		b.Messages = slices.Concat(rows(1, 2, 1, 10), rows(1, 1, 1, 4), rows(2, 1, 1, 3), rows(2, 3, 1, 2))
	})
	l.Write(func(b *store.Batch) {
		b.Cursors = []store.CursorRow{{To: 1, From: 2, Next: 6}, {To: 1, From: 1, Next: 4}, {To: 2, From: 1, Next: 3}}
	})

	want := []store.AcquiredShard{
		{Shard: 1, Received: map[model.ShardID]int64{1: 4, 2: 6}, Sent: map[model.ShardID]int64{1: 4, 2: 3}},
		{Shard: 2, Received: map[model.ShardID]int64{1: 3}, Sent: map[model.ShardID]int64{1: 10}},
		{Shard: 3, Sent: map[model.ShardID]int64{2: 2}},
		{Shard: 4},
	}

	check := func(when string) {
		x.Helper()
		for _, w := range want {
			x.Want(fmt.Sprintf("%s: state of shard %d", when, w.Shard), w, x.state(w.Shard))
		}
		x.Want(when+": messages", slices.Concat(rows(1, 2, 7, 10), rows(2, 3, 1, 2)), x.mail(100, 1, 2))
	}

	check("before")
	sweep := store.SweepRequest{Shards: []model.ShardID{1, 2}, Limit: 1000}
	if n := try(x.Store.Sweep(x.Context(), sweep)).or(x); n != 13 {
		x.Errorf("swept %d rows, want 13", n)
	}
	check("after")
	if n := try(x.Store.Sweep(x.Context(), sweep)).or(x); n != 0 {
		x.Errorf("swept %d rows again, want none", n)
	}
	check("after a second sweep")

	// Sender and receiver continue at their positions.
	l.Write(func(b *store.Batch) {
		b.Messages = rows(1, 1, 5, 5)
		b.Cursors = []store.CursorRow{{To: 1, From: 2, Prev: 6, Next: 10}}
	})

	if n := try(x.Store.Sweep(x.Context(), sweep)).or(x); n != 4 {
		x.Errorf("swept %d rows, want 4", n)
	}
	x.Want("messages at the end", slices.Concat(rows(1, 1, 5, 5), rows(2, 3, 1, 2)), x.mail(100, 1, 2))
	w := store.AcquiredShard{Shard: 1, Received: map[model.ShardID]int64{1: 4, 2: 10}, Sent: map[model.ShardID]int64{1: 5, 2: 3}}
	x.Want("state at the end", w, x.state(1))
}

func testSweepBounds(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.SubjectIn(1)
	elsewhere := x.SubjectIn(2)

	l.Write(func(b *store.Batch) {
		b.Messages = slices.Concat(rows(1, 2, 1, 10), rows(2, 1, 1, 10))
		b.Cursors = []store.CursorRow{{To: 1, From: 2, Next: 8}, {To: 2, From: 1, Next: 10}}
		for i := range 6 {
			b.Requests = append(b.Requests, s.Reply(fmt.Sprint(i), Noon+model.Time(i)), elsewhere.Reply(fmt.Sprint(i), Noon))
		}
	})

	sweep := store.SweepRequest{Shards: []model.ShardID{1}, RequestsBefore: Noon + 4, Limit: 5}
	total := 0
	for range 20 {
		n := try(x.Store.Sweep(x.Context(), sweep)).or(x)
		if n > sweep.Limit {
			x.Fatalf("swept %d rows, more than the limit %d", n, sweep.Limit)
		}
		total += n
		if n == 0 {
			break
		}
	}

	if total != 8+4 {
		x.Errorf("swept %d rows, want 8 messages and 4 requests", total)
	}
	c := x.Contents()
	x.Want("messages", rows(1, 2, 9, 10), c.Messages)
	if len(c.Replies) != 2+6 {
		x.Errorf("%d requests left, want 2 young ones and 6 of the other shard", len(c.Replies))
	}
	if n := try(x.Store.Sweep(x.Context(), store.SweepRequest{RequestsBefore: model.MaxTime, Limit: 100})).or(x); n != 0 {
		x.Errorf("a sweep of no shards removed %d rows", n)
	}

	// A request that was forgotten may be remembered again.
	l.Write(func(b *store.Batch) { b.Requests = []store.Reply{s.Reply("0", Noon+9)} })
	// The other shard still has its rows, so the store refuses a message at a taken position.
	b := l.Batch()
	b.Messages = rows(2, 1, 10, 10)
	l.Refuse(b, store.Refused)
}

func testMail(x *suite) {
	n := x.Join(1)
	l := n.Lanes[0]
	s := x.SubjectIn(3)

	want := func(what string, mail bool, shards ...model.ShardID) {
		x.Helper()
		if got := n.Renew(time.Hour, shards...).Mail; got != mail {
			x.Errorf("%s: mail is %v, want %v", what, got, mail)
		}
	}

	want("nothing", false, 1, 2, 3)
	l.Write(func(b *store.Batch) { b.Messages = rows(1, 2, 1, 2) })
	want("messages to shard 1", true, 1, 2)
	want("messages to another shard", false, 2, 3)
	want("no shards", false)
	l.Write(func(b *store.Batch) { b.Cursors = []store.CursorRow{{To: 1, From: 2, Next: 1}} })
	want("one message left", true, 1)
	l.Write(func(b *store.Batch) { b.Cursors = []store.CursorRow{{To: 1, From: 2, Prev: 1, Next: 2}} })
	want("all consumed, none swept", false, 1, 2, 3)
	r := s.Request(x.RunID(), "r")
	if err := x.Store.PutInbox(x.Context(), []store.InboxRow{r}); err != nil {
		x.Fatal(err)
	}

	want("a request to shard 3", true, 3, 1)
	want("a request to another shard", false, 1, 2)
	l.Write(func(b *store.Batch) { b.Inbox = []store.InboxKey{Consume(r)} })
	want("consumed", false, 3)
}
