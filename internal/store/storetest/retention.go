package storetest

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var retentionTests = []test{
	{name: "closed runs expire by age, in pages", run: testExpiredPages},
	{name: "open runs never expire", run: testExpiredOpen},
	{name: "a run has its own time", run: testExpiredOwn},
	{name: "an imported run counts from its beginning", run: testExpiredImported},
	{name: "what is deleted does not expire again", run: testExpiredDeleted},
	{name: "a refused batch leaves what expires", run: testExpiredRefused},
	{name: "dead letters go when they are old", run: testSweepLetters},
}

// expired is what LoadExpired returns for shards.
func (x *suite) expired(closed, now model.Time, limit int, shards ...model.ShardID) []store.RunHead {
	x.Helper()
	return try(x.Store.LoadExpired(x.Context(), store.ExpiredRequest{Shards: shards, ClosedBefore: closed, Now: now, Limit: limit})).or(x)
}

// closedAt writes a run that was closed at a time.
func (x *suite) closedAt(l *Lane, s Subject, at, leaves model.Time) {
	x.Helper()
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{s.StartRow()} })
	l.Write(func(b *store.Batch) {
		c := s.Close(model.Completed)
		c.Outcome.At, c.Outcome.Leaves = at, leaves
		b.Closes = []store.CloseRow{c}
	})
}

func testExpiredPages(x *suite) {
	l := x.Join(1).Lanes[0]
	const day = model.Time(86_400_000_000)
	var want []store.RunHead
	shards := []model.ShardID{2, 6, 11}
	for _, shard := range shards {
		var first []Subject
		for i := range 6 {
			s := x.SubjectIn(shard)
			if i%2 == 1 {
				first = append(first, s)
			}
			x.closedAt(l, s, Noon+day+model.Time(i%2)*10, 0)
			if i%2 == 0 {
				want = append(want, s.Head()) // earlier than all of the others, which share a time
			}
		}
		for _, s := range first {
			want = append(want, s.Head())
		}
	}
	for _, limit := range []int{1, 4, 17, 18, 19} {
		got := x.expired(Noon+day+11, 0, limit, 11, 2, 6, 2)
		x.Want(fmt.Sprint("the first ", limit), want[:min(limit, len(want))], got)
	}
	x.Want("one shard", want[6:12], x.expired(model.MaxTime, 0, 100, 6))
	x.Want("not those of the time itself", want[6:9], x.expired(Noon+day+10, 0, 100, 6))
	x.Want("nothing yet", []store.RunHead(nil), x.expired(Noon+day, model.MaxTime, 100, shards...))
	x.Want("no room", []store.RunHead(nil), x.expired(model.MaxTime, model.MaxTime, 0, shards...))
	x.Want("elsewhere", []store.RunHead(nil), x.expired(model.MaxTime, model.MaxTime, 100, 3))
}

func testExpiredOpen(x *suite) {
	l := x.Join(1).Lanes[0]
	open, parked, old := x.SubjectIn(1), x.SubjectIn(1), x.SubjectIn(1)
	next := x.SubjectOf(old.Start.Address)
	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{open.StartRow(), parked.StartRow(), old.StartRow()}
	})
	l.Write(func(b *store.Batch) { b.Marks = []store.MarkRow{parked.Park()} })
	if got := x.expired(model.MaxTime, model.MaxTime, 100, 1); len(got) != 0 {
		x.Errorf("open runs expire: %v", got)
	}
	l.Write(func(b *store.Batch) { // continues as new
		b.Starts = []store.StartRow{next.Replace(old.Run)}
		b.Closes = []store.CloseRow{old.Close(model.Continued)}
	})
	x.Want("the run before the current one", []store.RunHead{old.Head()}, x.expired(model.MaxTime, model.MaxTime, 100, 1))
}

func testExpiredOwn(x *suite) {
	l := x.Join(1).Lanes[0]
	plain, short, long, forever := x.SubjectIn(1), x.SubjectIn(1), x.SubjectIn(1), x.SubjectIn(1)
	x.closedAt(l, plain, Noon+5000, 0)
	x.closedAt(l, forever, Noon+5000, model.MaxTime)
	x.closedAt(l, long, Noon+5000, Noon+9000)
	x.closedAt(l, short, Noon+5000, Noon+6000)
	if e := x.stored(short); e.Outcome.Leaves != Noon+6000 {
		x.Errorf("its own time is %v", e.Outcome.Leaves)
	}
	for _, c := range []struct {
		closed, now model.Time
		want        []Subject
	}{
		{Noon, Noon + 6000, nil},
		{Noon, Noon + 6001, []Subject{short}},
		{Noon + 5001, Noon, []Subject{plain}},
		{Noon + 5001, Noon + 9001, []Subject{plain, short, long}},
		{model.MaxTime, model.MaxTime, []Subject{plain, short, long}},
	} {
		var want []store.RunHead
		for _, s := range c.want {
			want = append(want, s.Head())
		}
		x.Want(fmt.Sprint(c.closed-Noon, " ", c.now-Noon), want, x.expired(c.closed, c.now, 100, 1))
	}
	l.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{short.RunKey, forever.RunKey} })
	x.Want("the others", []store.RunHead{plain.Head(), long.Head()}, x.expired(model.MaxTime, model.MaxTime, 100, 1))
}

func testExpiredImported(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.SubjectIn(1)
	x.closedAt(l, s, 1, 0) // long before it came here
	if got := x.expired(s.Start.At, 0, 10, 1); len(got) != 0 {
		x.Errorf("it expires before its time: %v", got)
	}
	x.Want("it", []store.RunHead{s.Head()}, x.expired(s.Start.At+1, 0, 10, 1))
	l.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{s.RunKey} })
	if got := x.expired(model.MaxTime, 0, 10, 1); len(got) != 0 {
		x.Errorf("it was deleted and expires: %v", got)
	}
}

func testExpiredDeleted(x *suite) {
	l := x.Join(1).Lanes[0]
	var all []Subject
	for range 5 {
		s := x.SubjectIn(1)
		x.past(l, s, 1)
		all = append(all, s)
	}
	for len(all) > 0 { // as retention does it: a page, a commit, the next page
		page := x.expired(model.MaxTime, model.MaxTime, 2, 1)
		var want []store.RunHead
		var gone []store.RunKey
		for _, s := range all[:min(2, len(all))] {
			want, gone = append(want, s.Head()), append(gone, s.RunKey)
		}
		x.Want("page", want, page)
		l.Write(func(b *store.Batch) { b.Deletes = gone })
		all = slices.Delete(all, 0, len(gone))
	}
	if got := x.expired(model.MaxTime, model.MaxTime, 10, 1); len(got) != 0 {
		x.Errorf("left: %v", got)
	}
}

func testExpiredRefused(x *suite) {
	l := x.Join(1).Lanes[0]
	closed, open := x.SubjectIn(1), x.SubjectIn(1)
	x.past(l, closed, 2)
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{open.StartRow()} })
	b := l.Batch()
	b.Deletes, b.Closes = []store.RunKey{closed.RunKey}, []store.CloseRow{open.Close(model.Completed)}
	b.Events = []store.EventRow{closed.Event(1)} // taken
	l.Refuse(b, store.Refused)
	x.Want("what expires", []store.RunHead{closed.Head()}, x.expired(model.MaxTime, model.MaxTime, 10, 1))
}

func testSweepLetters(x *suite) {
	l := x.Join(1).Lanes[0]
	s, other := x.SubjectIn(1), x.SubjectIn(2)
	id := func(at model.Time) model.RunID {
		id, old := x.RunID(), store.OldestID(at)
		copy(id[:6], old[:6])
		return id
	}
	letter := func(s Subject, at, notBefore model.Time) store.InboxRow {
		r := s.Request(id(at), "")
		r.NotBefore = notBefore
		return r
	}
	const day = model.Time(86_400_000_000)
	waits := letter(s, Noon, Noon)
	l.Write(func(b *store.Batch) {
		b.Deferred = []store.InboxRow{
			letter(s, Noon, model.MaxTime), letter(s, Noon+1, model.MaxTime), letter(s, Noon+day, model.MaxTime), letter(other, Noon, model.MaxTime), waits,
		}
	})
	sweep := func(before model.Time, limit int, shards ...model.ShardID) int {
		return try(x.Store.Sweep(x.Context(), store.SweepRequest{Shards: shards, LettersBefore: before, Limit: limit})).or(x)
	}
	for i, c := range []struct {
		before model.Time
		limit  int
		shards []model.ShardID
		want   int
	}{
		{0, 10, []model.ShardID{1, 2}, 0},
		{Noon, 10, []model.ShardID{1, 2}, 0},
		{Noon + day, 1, []model.ShardID{1}, 1},
		{Noon + day, 10, []model.ShardID{1}, 1},
		{Noon + day, 10, []model.ShardID{1}, 0},
		{Noon + 2*day, 10, []model.ShardID{1, 2}, 2},
	} {
		if n := sweep(c.before, c.limit, c.shards...); n != c.want {
			x.Errorf("sweep %d removed %d rows, want %d", i, n, c.want)
		}
	}
	x.Want("what waits", []store.InboxRow{waits}, try(x.Store.LoadInbox(x.Context(), []model.ShardID{1, 2}, Noon, 10)).or(x))
}
