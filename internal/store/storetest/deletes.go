package storetest

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var deleteTests = []test{
	{name: "a deleted run is gone, and its address free", run: testDelete},
	{name: "an open run is not deleted", run: testDeleteOpen},
	{name: "a deleted run makes room in the same batch", run: testDeleteAndStart},
	{name: "a refused batch deletes nothing", run: testDeleteRefused},
	{name: "sweeps remove the events, page by page", run: testSweepDeleted},
}

// past writes a run with the given number of events and closes it.
func (x *suite) past(l *Lane, s Subject, events int64) {
	x.Helper()
	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{s.StartRow()}
		for i := range events {
			b.Events = append(b.Events, s.Event(i+1))
		}
	})
	l.Write(func(b *store.Batch) { b.Closes = []store.CloseRow{s.Close(model.Completed)} })
}

func (x *suite) loadRun(s Subject) *store.Execution {
	x.Helper()
	return try(x.Store.LoadExecution(x.Context(), s.Shard, s.Start.Address, s.Run)).or(x)
}

func testDelete(x *suite) {
	l := x.Join(1).Lanes[0]
	s, other := x.SubjectIn(1), x.SubjectIn(1)
	s.Start.Input.Data = make([]byte, 4096) // an adapter may store a large value elsewhere
	s.Start.Labels = []model.Label{{Name: "region", Value: "eu"}, {Name: "tier", Value: "gold"}}
	x.past(l, s, 3)
	x.past(l, other, 1)
	l.Write(func(b *store.Batch) {
		b.Requests = []store.Reply{s.Reply("r", Noon)}
	})
	l.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{s.RunKey, x.Subject().RunKey} })
	if x.loadRun(s) != nil {
		x.Error("the run is still there")
	}
	if cur := try(x.Store.LoadExecution(x.Context(), s.Shard, s.Start.Address, model.RunID{})).or(x); cur != nil {
		x.Errorf("the address has the run %s", cur.Start.Run)
	}
	page := try(x.Store.List(x.Context(), store.Query{Tenant: model.DefaultTenant, AllRuns: true, Limit: 10})).or(x)
	x.Want("listed", []store.Execution{other.ClosedRow(model.Completed, true)}, page.Executions)
	if got := try(x.Store.LoadLabels(x.Context(), []store.RunKey{s.RunKey})).or(x); len(got) != 0 {
		x.Errorf("it has labels: %v", got)
	}
	if got := x.ended(s.RunKey); len(got) != 0 {
		x.Errorf("it has an outcome: %v", got)
	}
	if got := try(x.Store.LoadReplies(x.Context(), []store.RequestKey{s.RequestKey("r")})).or(x); len(got) != 1 {
		x.Error("its requests are forgotten")
	}

	// A second delete changes nothing, and a start of the address creates a new run.
	l.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{s.RunKey} })
	again := x.SubjectOf(s.Start.Address)
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{again.StartIfAbsent()} })
	x.Want("started again", again.Execution(), *x.loadRun(again))
	if got := try(x.Store.LoadEvents(x.Context(), again.RunKey, 0, 10, 1<<20)).or(x); len(got) != 0 {
		x.Errorf("it has events of the run before: %v", got)
	}
}

func testDeleteOpen(x *suite) {
	l := x.Join(1).Lanes[0]
	open, parked, closed := x.SubjectIn(1), x.SubjectIn(1), x.SubjectIn(2)
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{open.StartRow(), parked.StartRow()} })
	l.Write(func(b *store.Batch) { b.Marks = []store.MarkRow{parked.Park()} })
	x.past(l, closed, 1)
	for _, s := range []Subject{open, parked} {
		b := l.Batch()
		b.Deletes = []store.RunKey{closed.RunKey, s.RunKey}
		l.Refuse(b, store.Refused)
		if x.loadRun(s) == nil || x.loadRun(closed) == nil {
			x.Error("a refused batch has deleted something")
		}
	}
}

func testDeleteAndStart(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	x.past(l, s, 2)
	next := x.SubjectOf(s.Start.Address)
	l.Write(func(b *store.Batch) {
		b.Deletes = []store.RunKey{s.RunKey}
		b.Starts = []store.StartRow{next.StartRow()}
	})
	if x.loadRun(s) != nil {
		x.Error("the run is still there")
	}
	x.Want("the run after it", next.Execution(), *x.loadRun(next))
}

func testDeleteRefused(x *suite) {
	l := x.Join(1).Lanes[0]
	s, other := x.Subject(), x.Subject()
	x.past(l, s, 2)
	x.past(l, other, 1)
	b := l.Batch()
	b.Deletes = []store.RunKey{s.RunKey}
	b.Events = []store.EventRow{other.Event(1)} // the position is taken: refuses the batch
	l.Refuse(b, store.Refused)
	x.Want("the run", s.ClosedRow(model.Completed, true), *x.loadRun(s))
	if n := try(x.Store.Sweep(x.Context(), store.SweepRequest{Shards: x.Shards(), Limit: 100})).or(x); n != 0 {
		x.Errorf("%d rows were swept", n)
	}
	if got := try(x.Store.LoadEvents(x.Context(), s.RunKey, 0, 10, 1<<20)).or(x); len(got) != 2 {
		x.Errorf("%d events, want 2", len(got))
	}
}

func testSweepDeleted(x *suite) {
	l := x.Join(1).Lanes[0]
	long, short, kept, elsewhere := x.SubjectIn(1), x.SubjectIn(1), x.SubjectIn(1), x.SubjectIn(2)
	x.past(l, long, 25)
	x.past(l, short, 1)
	x.past(l, kept, 4)
	x.past(l, elsewhere, 3)
	l.Write(func(b *store.Batch) { b.Deletes = []store.RunKey{long.RunKey, short.RunKey, elsewhere.RunKey} })

	sweep := func(limit int, shards ...model.ShardID) int {
		n := try(x.Store.Sweep(x.Context(), store.SweepRequest{Shards: shards, Limit: limit})).or(x)
		if n > limit {
			x.Errorf("%d rows in one sweep, at most %d", n, limit)
		}
		return n
	}

	total := 0
	for n := -1; n != 0; total += n {
		n = sweep(10, 1)
	}
	if total != 25+1+2 { // the events, and a row for each of the runs
		x.Errorf("%d rows were swept, want 28", total)
	}

	for s, want := range map[string]struct {
		of Subject
		n  int
	}{"long": {long, 0}, "short": {short, 0}, "kept": {kept, 4}, "elsewhere": {elsewhere, 3}} {
		if got := try(x.Store.LoadEvents(x.Context(), want.of.RunKey, 0, 100, 1<<20)).or(x); len(got) != want.n {
			x.Errorf("%s has %d events, want %d", s, len(got), want.n)
		}
	}

	if n := sweep(100, 2); n != 4 {
		x.Errorf("%d rows of the other shard were swept, want 4", n)
	}
}
