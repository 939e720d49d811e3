package storetest

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var removeTests = []test{
	{name: "open and closed runs are removed, with their timers and their key", run: testRemoves},
	{name: "entities are removed with what waits for them", run: testEntityRemoves},
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
	// The key of the removed run is free again.
	l.Write(func(b *store.Batch) { b.Starts = []store.StartRow{x.SubjectOf(open.Start.Address).StartRow()} })
}

func testEntityRemoves(x *suite) {
	l := x.Join(1).Lanes[0]
	gone, other := x.CounterIn(3), x.CounterIn(3)
	l.Write(func(b *store.Batch) {
		b.Entities = []store.EntityRow{gone.Lock(1, "s"), other.Set(1, "kept")}
		b.Mailbox = []store.MailboxRow{gone.Mail(1), gone.Mail(2), other.Mail(1)}
	})
	raw := func(c Counter) (tables []string) {
		x.Helper()
		err := x.Store.ReadRaw(x.Context(), c.Shard, c.Address, model.RunID{}, func(r store.RawRow) error {
			tables = append(tables, r.Table)
			return nil
		})
		if err != nil {
			x.Fatal(err)
		}
		return tables
	}
	x.Want("raw rows", []string{"entities", "mailbox", "mailbox"}, raw(gone))
	remove := func(b *store.Batch) { b.EntityRemoves = []store.EntityKey{gone.EntityKey, x.CounterIn(3).EntityKey} }
	before := x.Contents()
	refused := l.Batch()
	remove(refused)
	refused.Taken = []store.MailboxKey{gone.Take(1)} // the batch has already removed this item
	l.Refuse(refused, store.Refused)
	x.Want("contents after a refusal", before, x.Contents())

	l.Write(remove)
	x.Want("raw rows that are left", 0, len(raw(gone)))
	x.wantEntity("the removed entity", gone, nil)
	x.Want("raw rows of the other", []string{"entities", "mailbox"}, raw(other))
	l.Write(func(b *store.Batch) { // the entity and its mailbox start again
		b.Entities, b.Mailbox = []store.EntityRow{gone.Set(1, "again")}, []store.MailboxRow{gone.Mail(1)}
	})
}
