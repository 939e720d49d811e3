package storetest

import (
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var startTests = []test{
	{name: "if absent returns the run that is there", run: testIfAbsent},
	{name: "continue as new", run: testContinue},
	{name: "a new run after a closed one", run: testReuse},
	{name: "the same key in other tenants and types is another address", run: testAddresses},
	{name: "starts and outcomes come back as they were", run: testStartRoundTrip},
}

// current returns the current run of an address, or nil if there is none.
func (x *suite) current(s Subject) *store.Execution {
	x.Helper()
	return try(x.Store.LoadExecution(x.Context(), s.Shard, s.Start.Address, model.RunID{})).or(x)
}

// row returns the row of a run, or nil if there is none.
func (x *suite) row(s Subject) *store.Execution {
	x.Helper()
	return try(x.Store.LoadExecution(x.Context(), s.Shard, s.Start.Address, s.Run)).or(x)
}

func testIfAbsent(x *suite) {
	l := x.Join(1).Lanes[0]
	open, closed, parked := x.Subject(), x.Subject(), x.Subject()
	open.Start.Carried = []model.Event{
		{Seq: 1, At: 5, Kind: model.EventSignalReceived, Name: "first", Input: Text("one")},
		{Seq: 2, At: 6, Kind: model.EventWatched, Watcher: &model.Link{Address: parked.Start.Address, Run: parked.Run, ID: "w"}},
	}
	first := l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{open.StartIfAbsent(), closed.StartIfAbsent(), parked.StartIfAbsent()}
		b.Closes = []store.CloseRow{closed.Close(model.Failed)}
		b.Marks = []store.MarkRow{parked.Park()}
	})
	x.Want("existing, where there was none", store.Committed{}, first)

	again := func(s Subject) Subject { return x.SubjectOf(s.Start.Address) }
	a, b, c, fresh := again(open), again(closed), again(parked), x.Subject()
	got := l.Write(func(batch *store.Batch) {
		batch.Starts = []store.StartRow{a.StartIfAbsent(), fresh.StartIfAbsent(), b.StartIfAbsent(), c.StartIfAbsent()}
		batch.Events = []store.EventRow{fresh.Event(1), open.Event(3)}
	})
	p := parked.Execution()
	p.Parked, p.Waits = true, parked.Park().Waits
	x.Want("existing", store.Committed{Existing: []store.ExistingStart{
		{Index: 0, Execution: open.Execution()},
		{Index: 2, Execution: closed.ClosedRow(model.Failed, true)},
		{Index: 3, Execution: p},
	}}, got)
	for _, s := range []Subject{a, b, c} {
		if e := x.row(s); e != nil {
			x.Errorf("a start that found its address taken was inserted: %+v", e)
		}
	}
	was, now := fresh.Execution(), x.current(fresh)
	x.Want("the other start of the batch", &was, now)
	if e := x.Contents().Events; len(e) != 2 {
		x.Errorf("%d histories, want those of the two other runs of the batch", len(e))
	}
	was = open.Execution()
	x.Want("current run", &was, x.current(open))
	// If the same start is sent again, it finds its own run.
	got = l.Write(func(batch *store.Batch) { batch.Starts = []store.StartRow{open.StartIfAbsent()} })
	x.Want("the same start again", store.Committed{Existing: []store.ExistingStart{{Execution: open.Execution()}}}, got)
}

func testContinue(x *suite) {
	l := x.Join(1).Lanes[0]
	first := x.Subject()
	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{first.StartRow()}
		b.Timers = []store.Timer{first.Timer("t", Noon)}
		b.Events = []store.EventRow{first.Event(1)}
	})
	runs := []Subject{first}
	for range 3 {
		old := runs[len(runs)-1]
		next := x.SubjectOf(first.Start.Address)
		next.Start.First, next.Start.Previous = first.Run, old.Run
		next.Start.Carried = []model.Event{{Seq: 1, At: 9, Kind: model.EventSignalReceived, Name: "kept", Input: Text("signal")}}
		// Another run can replace the open run only if the same batch closes the open run.
		b := l.Batch()
		b.Starts = []store.StartRow{next.StartRow()}
		b.Closes = []store.CloseRow{old.Close(model.Continued)}
		l.Refuse(b, store.Refused)
		b.Starts, b.Closes = []store.StartRow{next.Replace(old.Run)}, nil
		l.Refuse(b, store.Refused)

		b.Closes = []store.CloseRow{old.Close(model.Continued)}
		b.Closes[0].Outcome.Next = next.Run
		b.StopAll = []store.RunKey{old.StopAll()}
		b.Events = []store.EventRow{old.Event(7), next.Event(2)}
		l.Commit(b)
		closed := old.ClosedRow(model.Continued, false)
		closed.Outcome.Next = next.Run
		x.Want("old run", &closed, x.row(old))
		open := next.Execution()
		x.Want("new run", &open, x.row(next))
		x.Want("current run", &open, x.current(next))
		runs = append(runs, next)
	}
	last := runs[len(runs)-1]
	// Only the last run may be replaced.
	b := l.Batch()
	b.Starts = []store.StartRow{x.SubjectOf(first.Start.Address).Replace(first.Run)}
	l.Refuse(b, store.Refused)
	c := x.Contents()
	x.Want("runnable", []store.RunHead{last.Head()}, c.Runnable)
	x.Want("timers", []store.Timer(nil), c.Timers)
}

func testReuse(x *suite) {
	l := x.Join(1).Lanes[0]
	old := x.Subject()
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{old.StartRow()} })
	l.Write(func(b *store.Batch) { b.Closes = []store.CloseRow{old.Close(model.Failed)} })
	next := x.SubjectOf(old.Start.Address)
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{next.Replace(old.Run)} })
	closed, open := old.ClosedRow(model.Failed, false), next.Execution()
	x.Want("old run", &closed, x.row(old))
	x.Want("current run", &open, x.current(old))
	b := l.Batch()
	b.Starts = []store.StartRow{x.SubjectOf(old.Start.Address).Replace(old.Run)}
	l.Refuse(b, store.Refused)
}

func testAddresses(x *suite) {
	l := x.Join(1).Lanes[0]
	base := x.Address()
	for _, a := range []model.Address{
		base,
		{Tenant: "other", Type: base.Type, Key: base.Key},
		{Tenant: base.Tenant, Type: "other", Key: base.Key},
		{Tenant: base.Tenant, Type: base.Type, Key: "O" + base.Key[1:]},
		{Tenant: base.Tenant, Type: base.Type + base.Key, Key: ""},
		{Tenant: base.Tenant, Type: base.Type, Key: base.Key + " "},
	} {
		s := x.SubjectOf(a)
		s.Shard = 3 // all in one shard, so that only the address distinguishes them
		s.Start.Input = Text(a.String())
		got := l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{s.StartIfAbsent()} })
		if len(got.Existing) != 0 {
			x.Errorf("%q was found taken by %q", a, got.Existing[0].Execution.Start.Address)
		}
		e := s.Execution()
		x.Want("execution", &e, x.current(s))
	}

	elsewhere := x.SubjectOf(base)
	elsewhere.Shard = 4
	if e := x.current(elsewhere); e != nil {
		x.Errorf("found in a shard where it is not: %+v", e)
	}
}

func testStartRoundTrip(x *suite) {
	l := x.Join(1).Lanes[0]
	rapid.Check(x.t, func(t *rapid.T) {
		s := x.Subject()
		named := s.Start
		s.Start = Starts().Draw(t, "start")
		s.Start.Address, s.Start.Run, s.Start.At = named.Address, named.Run, named.At

		m := store.MarkRow{
			RunKey: s.RunKey, Parked: rapid.Bool().Draw(t, "parked"),
			Waits: rapid.SliceOfN(Reasons(), 0, 3).Draw(t, "waits"), Blocked: rapid.Ptr(Reasons(), true).Draw(t, "blocked"),
		}

		l.Write(func(b *store.Batch) {
			b.Starts = []store.StartRow{s.StartRow()}
			b.Marks = []store.MarkRow{m}
		})

		want := s.Execution()
		want.Parked, want.Waits, want.Blocked = m.Parked, m.Waits, m.Blocked
		if d := Diff(&want, x.row(s)); d != "" {
			t.Fatalf("open run (-want +got):\n%s", d)
		}
		o := Outcomes().Draw(t, "outcome")
		l.Write(func(b *store.Batch) { b.Closes = []store.CloseRow{{RunKey: s.RunKey, Outcome: o}} })
		want = s.Execution()
		want.Outcome = o
		if d := Diff(&want, x.row(s)); d != "" {
			t.Fatalf("closed run (-want +got):\n%s", d)
		}

		outcomes := x.ended(s.RunKey)
		if d := Diff([]store.Execution{want}, outcomes); d != "" {
			t.Fatalf("outcome (-want +got):\n%s", d)
		}
	})
}
