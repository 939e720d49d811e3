package storetest

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var runTests = []test{
	{name: "runnable runs are open and not parked", run: testRunnable},
	{name: "runnable runs come in pages", run: testRunnablePages},
	{name: "a mark replaces the mark before", run: testMarks},
	{name: "answers are replies and closed runs", run: testAnswers},
	{name: "the details of a run", run: testDetails},
}

// runnable returns the result of LoadRunnable for shards.
func (x *suite) runnable(shards ...model.ShardID) []store.RunHead {
	x.Helper()
	return try(x.Store.LoadRunnable(x.Context(), shards, store.RunKey{}, 1000)).or(x)
}

func testRunnable(x *suite) {
	l := x.Join(1).Lanes[0]
	a, b, c := x.SubjectIn(2), x.SubjectIn(2), x.SubjectIn(5)
	l.Write(func(w *store.Batch) { w.Starts = []store.StartRow{c.StartRow(), b.StartRow(), a.StartRow()} })
	x.Want("after the start", []store.RunHead{a.Head(), b.Head(), c.Head()}, x.runnable(5, 2, 2, 7))
	x.Want("of one shard", []store.RunHead{c.Head()}, x.runnable(5))
	l.Write(func(w *store.Batch) { w.Marks = []store.MarkRow{a.Park(), c.Park()} })
	x.Want("with parked ones", []store.RunHead{b.Head()}, x.runnable(2, 5))
	blocked := a.Unpark()
	blocked.Blocked = &model.Reason{Code: model.WaitMismatch, Detail: "other code"}
	l.Write(func(w *store.Batch) { w.Marks = []store.MarkRow{blocked} })
	x.Want("with one unparked", []store.RunHead{a.Head(), b.Head()}, x.runnable(2, 5))

	l.Write(func(w *store.Batch) {
		w.Closes = []store.CloseRow{b.Close(model.Completed), c.Close(model.Canceled)}
		w.Marks = []store.MarkRow{a.Unpark()}
	})

	x.Want("with closed ones", []store.RunHead{a.Head()}, x.runnable(2, 5))
	l.Write(func(w *store.Batch) { w.Closes = []store.CloseRow{a.Close(model.Completed)} })
	x.Want("at the end", []store.RunHead(nil), x.runnable(2, 5))
}

func testRunnablePages(x *suite) {
	l := x.Join(1).Lanes[0]
	var want []store.RunHead
	var rows []store.StartRow

	subjects := make(map[store.RunKey]Subject)
	for i := range 40 {
		s := x.SubjectIn([]model.ShardID{9, 3, 12}[i%3])
		subjects[s.RunKey] = s
		rows, want = append(rows, s.StartRow()), append(want, s.Head())
	}

	l.Write(func(b *store.Batch) { b.Starts = rows })
	slices.SortFunc(want, func(a, b store.RunHead) int { return compareKeys(a.RunKey, b.RunKey) })
	shards := []model.ShardID{12, 9, 3}
	for _, limit := range []int{1, 7, 39, 40, 41} {
		var got []store.RunHead
		var after store.RunKey
		for {
			p := try(x.Store.LoadRunnable(x.Context(), shards, after, limit)).or(x)
			if len(p) > limit {
				x.Fatalf("%d runs, more than the limit %d", len(p), limit)
			}
			if len(p) == 0 {
				break
			}
			got, after = append(got, p...), p[len(p)-1].RunKey
			if len(got) > len(want) {
				x.Fatalf("%d runs in pages of %d, want %d", len(got), limit, len(want))
			}
		}

		x.Want("pages", want, got)
	}

	// The mark is a position, so it also works if the run at the mark has been parked or closed
	// since.
	mark := want[10].RunKey
	l.Write(func(b *store.Batch) {
		b.Closes = []store.CloseRow{subjects[mark].Close(model.Completed)}
		b.Marks = []store.MarkRow{subjects[want[11].RunKey].Park()}
	})

	got := try(x.Store.LoadRunnable(x.Context(), shards, mark, 5)).or(x)
	x.Want("behind a mark that is gone", want[12:17], got)
	// If the mark is in a shard that the request does not name, the page has all runs after the
	// mark in the order of (shard, run).
	between := store.RunKey{Shard: 4}
	got = try(x.Store.LoadRunnable(x.Context(), shards, between, 1000)).or(x)
	first := slices.IndexFunc(want, func(h store.RunHead) bool { return h.Shard > 4 })
	rest := slices.DeleteFunc(slices.Clone(want[first:]), func(h store.RunHead) bool { return h.RunKey == mark || h.RunKey == want[11].RunKey })
	x.Want("behind a mark between shards", rest, got)
}

func testMarks(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{s.StartRow()} })

	for _, m := range []store.MarkRow{
		{Parked: true, Waits: []model.Reason{{Code: model.WaitTimer, Until: Noon}, {Code: model.WaitSignal, Name: "go"}}},
		{Blocked: &model.Reason{Code: model.WaitPoison, Detail: "refused"}},
		{Parked: true},
		{Waits: []model.Reason{{Code: model.WaitTurn}}, Blocked: &model.Reason{Code: model.WaitStuck, Detail: "stack"}},
		{},
		{Parked: true, Blocked: &model.Reason{}},
	} {
		m.RunKey = s.RunKey
		l.Write(func(b *store.Batch) { b.Marks = []store.MarkRow{m} })
		want := s.Execution()
		want.Parked, want.Waits, want.Blocked = m.Parked, m.Waits, m.Blocked
		x.Want("marked run", &want, x.row(s))
	}

	// One batch marks many runs, and each run gets its own mark.
	var subjects []Subject
	for range 10 {
		subjects = append(subjects, x.Subject())
	}

	l.Write(func(b *store.Batch) {
		for i, s := range subjects {
			b.Starts = append(b.Starts, s.StartRow())
			m := s.Park()
			m.Parked, m.Waits[0].Attempt = i%2 == 0, i
			b.Marks = append(b.Marks, m)
		}
	})

	for i, s := range subjects {
		if e := x.row(s); e.Parked != (i%2 == 0) || len(e.Waits) != 1 || e.Waits[0].Attempt != i {
			x.Errorf("run %d: parked %v, waits %v", i, e.Parked, e.Waits)
		}
	}
}

// ended returns the closed ones among the given runs.
func (x *suite) ended(runs ...store.RunKey) []store.Execution {
	x.Helper()
	return try(x.Store.LoadAnswers(x.Context(), store.Awaited{Runs: runs})).or(x).Ended
}

func testAnswers(x *suite) {
	l := x.Join(1).Lanes[0]
	open, done, failed, continued := x.Subject(), x.Subject(), x.Subject(), x.Subject()
	next := x.SubjectOf(continued.Start.Address)
	reply := done.Reply("r", Noon)
	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{open.StartRow(), done.StartRow(), failed.StartRow(), continued.StartRow()}
		b.Requests = []store.Reply{reply}
	})

	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{next.Replace(continued.Run)}
		b.Closes = []store.CloseRow{done.Close(model.Completed), failed.Close(model.Failed), continued.Close(model.Continued)}
		b.Closes[1].Outcome.Failure = &model.Failure{Message: "no"}
	})
	want := []store.Execution{
		done.ClosedRow(model.Completed, true), failed.ClosedRow(model.Failed, true), continued.ClosedRow(model.Continued, false),
	}
	want[1].Outcome.Failure = &model.Failure{Message: "no"}

	elsewhere := done.RunKey
	elsewhere.Shard ^= 1
	byRun := []store.RunKey{failed.RunKey, open.RunKey, done.RunKey, continued.RunKey, next.RunKey, elsewhere, {Run: x.RunID()}}
	at := func(s Subject) store.AddressKey { return store.AddressKey{Shard: s.Shard, Address: s.Start.Address} }
	byAddress := []store.AddressKey{at(failed), at(open), at(done), at(continued), {Shard: elsewhere.Shard, Address: done.Start.Address}, at(x.Subject())}
	unknown := reply.RequestKey
	unknown.ID = "unknown"
	requests := []store.RequestKey{unknown, reply.RequestKey}

	for what, c := range map[string]struct {
		ask     store.Awaited
		replies []store.Reply
		ended   []store.Execution
	}{
		"nothing":    {},
		"runs":       {ask: store.Awaited{Runs: byRun}, ended: want},
		"addresses":  {ask: store.Awaited{Addresses: byAddress}, ended: want[:2]},
		"requests":   {ask: store.Awaited{Requests: requests}, replies: []store.Reply{reply}},
		"everything": {ask: store.Awaited{Requests: requests, Runs: byRun[2:], Addresses: byAddress[:1]}, replies: []store.Reply{reply}, ended: want},
	} {
		got := try(x.Store.LoadAnswers(x.Context(), c.ask)).or(x)
		slices.SortFunc(got.Ended, func(a, b store.Execution) int { return a.Start.Run.Compare(b.Start.Run) })
		x.Want("ended, asked for "+what, c.ended, got.Ended)
		x.Want("replies, asked for "+what, c.replies, got.Replies)
	}
}

// testDetails compares the result of LoadDetails with the results of the single reads.
func testDetails(x *suite) {
	l := x.Join(1).Lanes[0]
	a, other := x.labeledRun("a", "region", "eu", "tier", "1"), x.labeledRun("b", "region", "us")
	load := func(what string) store.RunDetails {
		x.Helper()
		d := try(x.Store.LoadDetails(x.Context(), a.Shard, a.Start.Address, model.RunID{})).or(x)
		x.Want(what+", in parts", try(store.LoadDetailsByParts(x.Context(), x.Store, a.Shard, a.Start.Address, model.RunID{})).or(x), d)
		x.Want(what+", by its id", d, try(x.Store.LoadDetails(x.Context(), a.Shard, a.Start.Address, a.Run)).or(x))
		return d
	}
	if d := try(x.Store.LoadDetails(x.Context(), a.Shard, a.Start.Address, model.RunID{})).or(x); d.Execution != nil {
		x.Errorf("there is no run, and its details are %+v", d)
	}

	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{a.StartRow(), other.StartRow()} })
	d := load("a new run")
	x.Want("labels", a.Start.Labels, d.Labels)
	x.Want("the last event, timers and tasks", []any{int64(0), 0, false}, []any{d.Last, len(d.Timers), d.Tasks})

	l.Write(func(b *store.Batch) {
		b.Events = []store.EventRow{a.Event(1), a.Event(2), other.Event(7)}
		b.Timers = []store.Timer{a.Timer("y", Noon), a.Timer("x", Noon.Add(time.Hour)), other.Timer("z", Noon)}
	})
	d = load("a run that waits")
	x.Want("timers", []store.Timer{a.Timer("x", Noon.Add(time.Hour)), a.Timer("y", Noon)}, d.Timers)
	x.Want("the last event and tasks", []any{int64(2), false}, []any{d.Last, d.Tasks})

	l.Write(func(b *store.Batch) {
		scheduled := a.Event(3)
		scheduled.Event.Kind = model.EventTaskScheduled
		b.Events = []store.EventRow{scheduled, a.Event(4)}
	})
	d = load("a run with a task")
	x.Want("the last event and tasks", []any{int64(4), true}, []any{d.Last, d.Tasks})

	l.Write(func(b *store.Batch) {
		b.Closes, b.StopAll = []store.CloseRow{a.Close(model.Completed)}, []store.RunKey{a.StopAll()}
	})
	d = load("a closed run")
	x.Want("status, the last event, timers and tasks", []any{model.Completed, int64(4), 0, false}, []any{d.Execution.Outcome.Status, d.Last, len(d.Timers), d.Tasks})
}
