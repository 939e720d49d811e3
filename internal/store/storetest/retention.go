package storetest

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var retentionTests = []test{
	{name: "closed runs expire by age, in pages", run: testExpiredPages},
	{name: "open runs are passed over", run: testExpiredOpen},
	{name: "a walk ends at the age of ids", run: testExpiredIDs},
	{name: "a walk continues although the runs of its last page are deleted", run: testExpiredWalk},
	{name: "a walk finds older runs in a later shard", run: testExpiredShards},
	{name: "a run can have its own removal time", run: testExpiredOwn},
	{name: "runs with their own removal time come in pages", run: testExpiredOwnPages},
	{name: "an imported run is as old as its import", run: testExpiredImported},
	{name: "a deleted run does not expire again", run: testExpiredDeleted},
	{name: "a refused batch does not change which runs expire", run: testExpiredRefused},
	{name: "a sweep removes old dead letters", run: testSweepDeadLetters},
}

const day = model.Time(86_400_000_000)

// expiredRuns returns the result of one call of LoadExpired that starts at the beginning of the
// walk.
func (x *suite) expiredRuns(closed, now model.Time, limit int, shards ...model.ShardID) store.Expired {
	x.Helper()
	return try(x.Store.LoadExpired(x.Context(), store.ExpiredRequest{Shards: shards, ClosedBefore: closed, Now: now, Limit: limit})).or(x)
}

// walk makes a whole round over runs without their own removal time. It returns the runs of each
// shard in the order in which the store returned them, and the number of runs that the store looked
// at.
func (x *suite) walk(closed model.Time, limit int, shards ...model.ShardID) (out []store.RunHead, walked int) {
	x.Helper()
	r := store.ExpiredRequest{Shards: shards, ClosedBefore: closed, Limit: limit}
	for pages := 0; ; pages++ {
		p := try(x.Store.LoadExpired(x.Context(), r)).or(x)
		if p.Walked > limit || len(p.Runs) > p.Walked || p.Walked < limit && p.Next != (store.RunKey{}) {
			x.Fatalf("page %d, limit %d: got %d expired runs, %d runs walked, and the next page starts after %v", pages, limit, len(p.Runs), p.Walked, p.Next)
		}
		out, walked = append(out, p.Runs...), walked+p.Walked
		if r.After = p.Next; r.After == (store.RunKey{}) {
			break
		}
		if pages > 1000 {
			x.Fatal("the walk does not end")
		}
	}

	slices.SortStableFunc(out, func(a, b store.RunHead) int { return int(a.Shard) - int(b.Shard) })
	return out, walked
}

// closedAt writes a run that was closed at the time at. leaves is its own removal time, or 0.
func (x *suite) closedAt(l *Lane, s Subject, at, leaves model.Time) {
	x.Helper()
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{s.StartRow()} })
	l.Write(func(b *store.Batch) {
		c := s.Close(model.Completed)
		c.Outcome.At, c.Outcome.Leaves = at, leaves
		b.Closes = []store.CloseRow{c}
	})
}

func headsOf(of ...Subject) (out []store.RunHead) {
	for _, s := range of {
		out = append(out, s.Head())
	}
	return out
}

func testExpiredPages(x *suite) {
	l := x.Join(1).Lanes[0]
	byShard := map[model.ShardID][]Subject{}
	shards := []model.ShardID{2, 6, 11}
	var all, late []Subject

	for i := range 6 { // in turn, so that ids of the shards are mixed
		for _, shard := range shards {
			s := x.SubjectIn(shard)
			byShard[shard] = append(byShard[shard], s)
			x.closedAt(l, s, Noon+day+model.Time(i%2)*10, 0)
		}
	}

	for _, shard := range shards {
		for i, s := range byShard[shard] {
			if all = append(all, s); i%2 == 1 {
				late = append(late, s)
			}
		}
	}

	for _, limit := range []int{1, 2, 5, 17, 18, 19, 100} {
		got, walked := x.walk(Noon+day+11, limit, 11, 2, 6, 2)
		x.Want(fmt.Sprint("in pages of ", limit), headsOf(all...), got)
		if walked != len(all) {
			x.Errorf("in pages of %d: looked at %d runs", limit, walked)
		}
	}

	for _, limit := range []int{1, 4, 100} {
		got, _ := x.walk(model.MaxTime, limit, 6)
		x.Want("one shard", headsOf(byShard[6]...), got)
	}

	got, _ := x.walk(Noon+day+10, 4, shards...)
	var early []Subject
	for _, s := range all {
		if !slices.ContainsFunc(late, func(o Subject) bool { return o.RunKey == s.RunKey }) {
			early = append(early, s)
		}
	}

	x.Want("not those of the time itself", headsOf(early...), got)
	got, _ = x.walk(Noon+day, 4, shards...)
	x.Want("nothing yet", []store.RunHead(nil), got)
	x.Want("no room", store.Expired{}, x.expiredRuns(model.MaxTime, model.MaxTime, 0, shards...))
	got, _ = x.walk(model.MaxTime, 4, 3)
	x.Want("elsewhere", []store.RunHead(nil), got)
	first := x.expiredRuns(model.MaxTime, 0, 5, shards...)
	again := x.expiredRuns(model.MaxTime, 0, 5, shards...)
	x.Want("a round from the beginning", first, again)
}

func testExpiredOpen(x *suite) {
	l := x.Join(1).Lanes[0]
	const open, limit = 50, 7
	for i := range open {
		s := x.SubjectIn(model.ShardID(i % 2))
		l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{s.StartRow()} })
		if i%3 == 0 {
			l.Write(func(b *store.Batch) { b.Marks = []store.MarkRow{s.Park()} })
		}
	}

	if got, walked := x.walk(model.MaxTime, limit, 0, 1); len(got) != 0 || walked != open {
		x.Errorf("there are %d open runs; the walk looked at %d runs, and says that these expire: %v", open, walked, got)
	}
	old := x.SubjectIn(1)
	next := x.SubjectOf(old.Start.Address)
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{old.StartRow()} })

	l.Write(func(b *store.Batch) { // the run continues as new
		b.Starts = []store.StartRow{next.Replace(old.Run)}
		b.Closes = []store.CloseRow{old.Close(model.Continued)}
	})

	for range 2 { // the second round gives the same result
		got, walked := x.walk(model.MaxTime, limit, 0, 1)
		x.Want("the run before the current one", headsOf(old), got)
		if walked != open+2 {
			x.Errorf("looked at %d runs", walked)
		}
	}

	if p := x.expiredRuns(model.MaxTime, model.MaxTime, limit, 0, 1); len(p.Runs) != 0 || p.Walked != limit || p.Next == (store.RunKey{}) {
		x.Errorf("the first page: %+v", p)
	}
}

// idAt returns a new id whose UUIDv7 has the given time.
func (x *suite) idAt(at model.Time) model.RunID {
	id, old := x.RunID(), store.OldestID(at)
	copy(id[:6], old[:6])
	return id
}

func testExpiredIDs(x *suite) {
	l := x.Join(1).Lanes[0]
	var runs []Subject
	for i := range 4 {
		s := x.SubjectIn(1)
		at := Noon + model.Time(i)*day
		s.Run = x.idAt(at)
		s.Start.Run, s.Start.At = s.Run, at
		x.closedAt(l, s, at+1, 0)
		runs = append(runs, s)
	}

	for i := range 5 {
		got, walked := x.walk(Noon+model.Time(i)*day, 2, 1)
		x.Want(fmt.Sprint("after ", i, " days"), headsOf(runs[:i]...), got)
		if walked != i {
			x.Errorf("after %d days, %d runs were looked at", i, walked)
		}
	}

	for _, closed := range []model.Time{0, 1} { // no run is that old
		if p := x.expiredRuns(closed, Noon, 10, 1); p.Walked != 0 {
			x.Errorf("runs of before %d: %+v", closed, p)
		}
	}
}

func testExpiredWalk(x *suite) {
	l := x.Join(1).Lanes[0]
	var open, closed []Subject
	for i := range 12 {
		s := x.SubjectIn(model.ShardID(i % 3))
		if i%4 < 2 {
			x.closedAt(l, s, Noon+1, 0)
			closed = append(closed, s)
		} else {
			l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{s.StartRow()} })
			open = append(open, s)
		}
	}

	r := store.ExpiredRequest{Shards: []model.ShardID{0, 1, 2}, ClosedBefore: model.MaxTime, Limit: 3}
	found := 0
	for round := 0; ; round++ { // as retention does: read a page, commit, read the next page
		p := try(x.Store.LoadExpired(x.Context(), r)).or(x)
		found += len(p.Runs)
		if len(p.Runs) > 0 { // the run at which the walk stopped may be among them
			l.Write(func(b *store.Batch) {
				for _, h := range p.Runs {
					b.Deletes = append(b.Deletes, h.RunKey)
				}
			})
		}
		if r.After = p.Next; r.After == (store.RunKey{}) || round > 100 {
			break
		}
	}

	if found != len(closed) {
		x.Errorf("a round found %d of %d runs", found, len(closed))
	}
	if got, walked := x.walk(model.MaxTime, 3, 0, 1, 2); len(got) != 0 || walked != len(open) {
		x.Errorf("the next round: looked at %d, found %v", walked, got)
	}

	// The walk leaves out a shard that has moved to another owner since the last page, even if it
	// stopped in that shard.
	other, mine := x.SubjectIn(1), x.SubjectIn(2)
	x.closedAt(l, other, Noon+1, 0)
	x.closedAt(l, mine, Noon+1, 0)
	r.After, r.Limit, r.Shards = store.RunKey{Shard: 1, Run: open[0].Run}, 100, []model.ShardID{0, 2}
	x.Want("of the other shards", headsOf(mine), try(x.Store.LoadExpired(x.Context(), r)).or(x).Runs)
}

func testExpiredShards(x *suite) {
	l := x.Join(1).Lanes[0]
	var last, first []Subject
	for _, shard := range []model.ShardID{6, 6, 2, 2} {
		s := x.SubjectIn(shard)
		x.closedAt(l, s, Noon+1, 0)
		if shard == 6 {
			last = append(last, s)
		} else {
			first = append(first, s)
		}
	}

	for limit := 1; limit <= 5; limit++ {
		got, walked := x.walk(model.MaxTime, limit, 2, 6)
		x.Want(fmt.Sprint("in pages of ", limit), headsOf(slices.Concat(first, last)...), got)
		if walked != 4 {
			x.Errorf("in pages of %d: looked at %d runs", limit, walked)
		}
	}
}

func testExpiredOwn(x *suite) {
	l := x.Join(1).Lanes[0]
	plain, short, long, forever := x.SubjectIn(1), x.SubjectIn(1), x.SubjectIn(1), x.SubjectIn(1)
	x.closedAt(l, plain, Noon+5000, 0)
	x.closedAt(l, forever, Noon+5000, model.MaxTime)
	x.closedAt(l, long, Noon+5000, Noon+9000)
	x.closedAt(l, short, Noon+5000, Noon+6000)
	if e := x.loadRun(short); e.Outcome.Leaves != Noon+6000 {
		x.Errorf("the stored removal time is %v", e.Outcome.Leaves)
	}

	for _, c := range []struct {
		closed, now model.Time
		want        []Subject
	}{
		{Noon, Noon + 6000, nil},
		{Noon, Noon + 6001, []Subject{short}},
		{Noon + 5001, Noon, []Subject{plain}},
		{Noon + 5001, Noon + 9001, []Subject{short, long, plain}},
		{model.MaxTime, Noon, []Subject{plain}},
		{model.MaxTime, model.MaxTime, []Subject{short, long, plain}},
	} {
		x.Want(fmt.Sprint(c.closed-Noon, " ", c.now-Noon), headsOf(c.want...), x.expiredRuns(c.closed, c.now, 100, 1).Runs)
	}

	l.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{short.RunKey, forever.RunKey} })
	x.Want("the others", headsOf(long, plain), x.expiredRuns(model.MaxTime, model.MaxTime, 100, 1).Runs)
	// A new run with the id of a deleted run does not keep the time at which the old run was to
	// leave the store.
	x.closedAt(l, short, Noon+5000, 0)
	x.Want("without a time of its own", headsOf(plain, short), x.expiredRuns(model.MaxTime, Noon, 100, 1).Runs)
}

func testExpiredOwnPages(x *suite) {
	l := x.Join(1).Lanes[0]
	shards := []model.ShardID{2, 6, 11}
	var want []Subject
	for _, shard := range shards {
		var later []Subject
		for i := range 4 {
			s := x.SubjectIn(shard)
			x.closedAt(l, s, Noon, Noon+100+model.Time(i%2))
			if i%2 == 0 {
				want = append(want, s)
			} else {
				later = append(later, s)
			}
		}
		want = append(want, later...)
	}

	for _, limit := range []int{1, 5, 11, 12, 13} {
		x.Want(fmt.Sprint("the first ", limit), headsOf(want[:min(limit, len(want))]...), x.expiredRuns(1, model.MaxTime, limit, 11, 2, 6, 2).Runs)
	}
	x.Want("one shard", headsOf(want[4:8]...), x.expiredRuns(1, model.MaxTime, 100, 6).Runs)
	x.Want("not those of the time itself", headsOf(want[4:6]...), x.expiredRuns(1, Noon+101, 100, 6).Runs)
}

func testExpiredImported(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.SubjectIn(1)
	s.Start.At = Noon + day
	x.closedAt(l, s, 1, 0) // closed long before it was imported
	if got := x.expiredRuns(s.Start.At, 0, 10, 1); len(got.Runs) != 0 || got.Walked != 1 {
		x.Errorf("the imported run expires too early, or the walk missed it: %v", got)
	}
	x.Want("it", headsOf(s), x.expiredRuns(s.Start.At+1, 0, 10, 1).Runs)
	l.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{s.RunKey} })
	if got := x.expiredRuns(model.MaxTime, 0, 10, 1); len(got.Runs) != 0 {
		x.Errorf("the run was deleted and expires again: %v", got)
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

	for len(all) > 0 { // start from the beginning each time: removed runs do not slow the walk down
		page := x.expiredRuns(model.MaxTime, model.MaxTime, 2, 1)
		here := all[:min(2, len(all))]
		x.Want("page", headsOf(here...), page.Runs)
		l.Write(func(b *store.Batch) {
			for _, s := range here {
				b.Deletes = append(b.Deletes, s.RunKey)
			}
		})
		all = slices.Delete(all, 0, len(here))
	}

	if got := x.expiredRuns(model.MaxTime, model.MaxTime, 10, 1); len(got.Runs) != 0 || got.Walked != 0 {
		x.Errorf("left: %v", got)
	}
}

func testExpiredRefused(x *suite) {
	l := x.Join(1).Lanes[0]
	closed, own, open := x.SubjectIn(1), x.SubjectIn(1), x.SubjectIn(1)
	x.past(l, closed, 2)
	x.closedAt(l, own, Noon, Noon+1)
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{open.StartRow()} })
	b := l.Batch()
	end := open.Close(model.Completed)
	end.Outcome.Leaves = Noon + 2
	b.Deletes, b.Closes = []store.RunKey{closed.RunKey, own.RunKey}, []store.CloseRow{end}
	b.Events = []store.EventRow{closed.Event(1)} // taken, so the store refuses the batch
	l.Refuse(b, store.Refused)
	x.Want("what expires", headsOf(own, closed), x.expiredRuns(model.MaxTime, model.MaxTime, 10, 1).Runs)
}

func testSweepDeadLetters(x *suite) {
	l := x.Join(1).Lanes[0]
	s, other := x.SubjectIn(1), x.SubjectIn(2)
	deadLetter := func(s Subject, at, notBefore model.Time) store.InboxRow {
		r := s.Request(x.idAt(at), "")
		r.NotBefore = notBefore
		return r
	}

	waits := deadLetter(s, Noon, Noon)
	l.Write(func(b *store.Batch) {
		b.Deferred = []store.InboxRow{
			deadLetter(s, Noon, model.MaxTime), deadLetter(s, Noon+1, model.MaxTime), deadLetter(s, Noon+day, model.MaxTime), deadLetter(other, Noon, model.MaxTime), waits,
		}
	})

	sweep := func(before model.Time, limit int, shards ...model.ShardID) int {
		return try(x.Store.Sweep(x.Context(), store.SweepRequest{Shards: shards, DeadLettersBefore: before, Limit: limit})).or(x)
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

	x.Want("what waits", []store.InboxRow{waits}, try(inboxOf(x.Context(), x.Store, []model.ShardID{1, 2}, Noon, 10)).or(x))
}
