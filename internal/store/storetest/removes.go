package storetest

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var removeTests = []test{
	{name: "open and closed runs are removed, with their timers and their key", run: testRemoves},
}

func testRemoves(x *suite) {
	l := x.Join(1).Lanes[0]
	open, other := x.SubjectIn(3), x.SubjectIn(3)
	closed := x.SubjectOf(open.Start.Address)
	l.Write(func(b *store.Batch) {
		b.Starts, b.Closes = []store.StartRow{closed.StartRow(), other.StartRow()}, []store.CloseRow{closed.Close(model.Completed)}
	})
	next := open.StartRow()
	next.Replaces = closed.Run
	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{next}
		b.Events = []store.EventRow{open.Event(1), open.Event(2)}
		b.Timers = []store.Timer{open.Timer("t", Noon), other.Timer("t", Noon)}
	})
	raw := func(run model.RunID) (tables map[string]int) {
		x.Helper()
		tables = map[string]int{}
		err := x.Store.ReadRaw(x.Context(), 3, open.Start.Address, run, func(r store.RawRow) error {
			tables[r.Table]++
			return nil
		})
		if err != nil {
			x.Fatal(err)
		}
		return tables
	}
	if got := raw(model.RunID{}); got["executions"] != 2 || got["history"] != 2 || got["timers"] != 1 {
		x.Errorf("rows of both runs: %v", got)
	}
	if got := raw(closed.Run); got["executions"] != 1 || got["history"] != 0 {
		x.Errorf("rows of one run: %v", got)
	}
	l.Write(func(b *store.Batch) { b.Removes = []store.RunKey{open.RunKey, closed.RunKey, x.SubjectIn(3).RunKey} })
	if got := raw(model.RunID{}); len(got) != 0 {
		x.Errorf("what is left: %v", got)
	}
	x.Want("timers", []store.Timer{other.Timer("t", Noon)}, try(x.Store.LoadTimers(x.Context(), []model.ShardID{3}, store.TimerMark{}, Noon, 10)).or(x))
	heads := try(x.Store.LoadRunnable(x.Context(), []model.ShardID{3}, store.RunKey{}, 10)).or(x)
	if len(heads) != 1 || heads[0].Run != other.Run {
		x.Errorf("runnable: %+v", heads)
	}
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{x.SubjectOf(open.Start.Address).StartRow()} }) // the key is free
}
