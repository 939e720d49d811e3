package storetest

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var commitTests = []test{
	{name: "a batch writes every table", run: testEveryTable},
	{name: "an empty batch moves the fence", run: testEmptyBatch},
	{name: "one bad row refuses all others", run: testBadRows},
	{name: "a refused batch takes back writes on top of each other", run: testRefusedLayers},
	{name: "tables are written in order", run: testTableOrder},
	{name: "rows of many runs and shards", run: testManyRows},
}

// scene is a store with rows in every table, and the rows for a next batch that writes to every
// table once more.
type scene struct {
	*suite
	node, other *Node
	lane        *Lane
	// open and parked are open runs. closed and old have ended. The next batch deletes old.
	open, parked, closed, old Subject
	// waits is a request in the inbox. put is a request that is not in the inbox; the next batch
	// defers it.
	waits, put store.InboxRow
	fresh      Subject
	// The next batch changes the entity counter and takes one of the two calls in its mailbox. It
	// removes the entity gone and inserts the entity another.
	counter, gone, another Counter
}

func newScene(x *suite) *scene {
	x.Helper()
	c := &scene{suite: x, node: x.Join(1), other: x.Join(1)}
	c.lane = c.node.Lanes[0]
	c.open, c.parked, c.closed, c.old, c.fresh = x.Subject(), x.Subject(), x.Subject(), x.Subject(), x.Subject()
	c.counter, c.gone, c.another = x.Counter(), x.Counter(), x.Counter()
	c.node.Acquire(1, 2, 3)
	c.other.Acquire(4)
	c.waits, c.put = c.open.Request(x.RunID(), "waits"), c.open.Request(x.RunID(), "put")
	if err := x.Store.PutInbox(x.Context(), []store.InboxRow{c.waits}); err != nil {
		x.Fatalf("put inbox: %v", err)
	}

	c.lane.Write(func(b *store.Batch) {
		b.Starts = append(b.Starts, c.open.StartRow(), c.parked.StartRow(), c.closed.StartRow(), c.old.StartRow())
		b.Events = append(b.Events, c.open.Event(1))
		b.Timers = append(b.Timers, c.open.Timer("stop", Noon), c.parked.Timer("stop-all", Noon))
		b.Messages = append(b.Messages, Message(1, 2, 1), Message(1, 2, 2), Message(3, 2, 1))
		b.Requests = append(b.Requests, c.open.Reply("old", Noon))
		b.Dead = append(b.Dead, c.open.Dead("mark", "charge", "boom", Noon), c.open.Dead("drop", "charge", "boom", Noon))
		b.TaskData = append(b.TaskData, c.open.Datum("a", "set", "1"), c.open.Datum("a", "drop", "1"))
		b.Logs = append(b.Logs, c.open.Line("a", Noon, 0, "first"))
		b.Entities = append(b.Entities, c.counter.Set(1, "1"), c.gone.Set(1, "1"))
		b.Mailbox = append(b.Mailbox, c.counter.Mail(1), c.counter.Mail(2))
	})

	c.lane.Write(func(b *store.Batch) {
		b.Closes = append(b.Closes, c.closed.Close(model.Failed), c.old.Close(model.Completed))
		b.Cursors = append(b.Cursors, store.CursorRow{To: 1, From: 2, Next: 1})
	})

	return c
}

// batch returns the next batch: one good row for every table.
func (c *scene) batch() *store.Batch {
	b := c.lane.Batch()
	b.Deletes = []store.RunKey{c.old.RunKey}
	b.Starts = []store.StartRow{c.fresh.StartRow()}
	b.Closes = []store.CloseRow{c.open.Close(model.Completed)}
	b.Marks = []store.MarkRow{c.parked.Park()}
	b.Events = []store.EventRow{c.open.Event(2), c.fresh.Event(1)}
	b.Dead = []store.DeadRow{c.open.Dead("new", "charge", "boom", Noon+1)}
	mark, _ := Requeue(c.open.Dead("mark", "charge", "boom", Noon), Noon+2)
	b.DeadMarks = []store.DeadMark{mark}
	b.DeadDeletes = []store.DeadKey{c.open.Dead("drop", "", "", 0).DeadKey}
	drop := c.open.Datum("a", "drop", "")
	drop.Deleted = true
	b.TaskData = []store.TaskDatum{c.open.Datum("a", "set", "2"), drop}
	b.Logs = []store.LogRow{c.open.Line("a", Noon, 0, "second")}
	b.StopTimers = []store.TimerKey{c.open.Stop("stop")}
	b.Timers = []store.Timer{c.fresh.Timer("new", Noon+5)}
	b.StopAll = []store.RunKey{c.parked.StopAll()}
	b.Taken = []store.MailboxKey{c.counter.Take(1)}
	b.Mailbox = []store.MailboxRow{c.counter.Mail(3)}
	b.Entities = []store.EntityRow{c.counter.Set(2, "2"), c.gone.Remove(1), c.another.Set(1, "1")}
	b.Messages = []store.MessageRow{Message(1, 2, 3)}
	b.Cursors = []store.CursorRow{{To: 1, From: 2, Prev: 1, Next: 2}, {To: 3, From: 2, Next: 1}}
	b.Inbox = []store.InboxKey{Consume(c.waits)}
	b.Deferred = []store.InboxRow{c.put}
	b.Requests = []store.Reply{c.open.Reply("waits", Noon+1)}
	b.Free = []model.ShardID{2}

	return b
}

func testEveryTable(x *suite) {
	c := newScene(x)
	got := c.lane.Commit(c.batch())
	x.Want("result", store.Committed{}, got)

	run := func(s Subject) store.Execution {
		e := try(x.Store.LoadExecution(x.Context(), s.Shard, s.Start.Address, s.Run)).or(x)
		if e == nil {
			x.Fatalf("run %s is gone", s.Run)
		}
		return *e
	}

	if x.loadRun(c.old) != nil {
		x.Error("the deleted run is there")
	}
	x.Want("started run", c.fresh.Execution(), run(c.fresh))
	x.Want("closed run", c.open.ClosedRow(model.Completed, true), run(c.open))
	parked := c.parked.Execution()
	parked.Parked, parked.Waits = true, c.parked.Park().Waits
	x.Want("parked run", parked, run(c.parked))
	all := x.Contents()

	x.Want("events", []History{
		{c.open.RunKey, []model.Event{c.open.Event(1).Event, c.open.Event(2).Event}},
		{c.fresh.RunKey, []model.Event{c.fresh.Event(1).Event}},
	}, sortHistories(all.Events))

	_, marked := Requeue(c.open.Dead("mark", "charge", "boom", Noon), Noon+2)
	x.Want("dead tasks", []store.DeadRow{c.open.Dead("new", "charge", "boom", Noon+1), marked}, all.Dead)
	x.Want("data of tasks", []store.TaskDatum{c.open.Datum("a", "set", "2")}, all.TaskData)
	x.Want("log lines", []string{"first", "second"}, x.lines(c.open, ""))
	x.Want("timers", []store.Timer{c.fresh.Timer("new", Noon+5)}, all.Timers)
	x.Want("entities", []model.Entity{c.counter.Set(2, "2").Entity, c.another.Set(1, "1").Entity}, all.Entities)
	x.Want("mailbox", []store.MailboxRow{c.counter.Mail(2), c.counter.Mail(3)}, all.Mailbox)
	x.Want("messages", []store.MessageRow{Message(1, 2, 3)}, all.Messages)
	x.Want("inbox", []store.InboxRow{c.put}, all.Inbox)
	x.Want("replies", []store.Reply{c.open.Reply("old", Noon), c.open.Reply("waits", Noon+1)}, all.Replies)
	x.Want("runnable", []store.RunHead{c.fresh.Head()}, all.Runnable)

	x.Want("owners", []store.ShardOwner{
		{Shard: 1, Node: c.node.ID, Epoch: c.node.Epoch},
		{Shard: 3, Node: c.node.ID, Epoch: c.node.Epoch},
		{Shard: 4, Node: c.other.ID, Epoch: c.other.Epoch},
	}, all.Owners)
}

// sortHistories sorts histories by run, which is the order in which fixtures create runs.
func sortHistories(hs []History) []History {
	slices.SortFunc(hs, func(a, b History) int { return a.Run.Run.Compare(b.Run.Run) })
	return hs
}

func testEmptyBatch(x *suite) {
	l := x.Join(1).Lanes[0]
	for range 3 {
		l.Write(func(*store.Batch) {})
	}
	b := l.Batch()
	b.Number = 3
	l.Refuse(b, store.Fenced)
	_, landed, err := x.Store.Refence(x.Context(), l.Ref)
	if err != nil || landed != 3 {
		x.Errorf("landed %d, %v; want 3", landed, err)
	}
}

func testBadRows(x *suite) {
	c := newScene(x)
	gone := x.Subject() // a run that was never started
	stranger := x.SubjectOf(c.open.Start.Address)
	twin := x.Subject()
	twin.Run, twin.Shard, twin.Start.Run = c.open.Run, c.open.Shard, c.open.Run
	twin.Start.Address = x.AddressIn(c.open.Shard)
	absent := twin.StartRow()
	absent.IfAbsent = true

	cursor := func(to, from model.ShardID, prev, next int64) func(b *store.Batch) {
		return func(b *store.Batch) {
			b.Cursors = []store.CursorRow{{To: 3, From: 2, Next: 1}, {To: to, From: from, Prev: prev, Next: next}}
		}
	}

	bad := []struct {
		name string
		add  func(b *store.Batch)
	}{
		{"start of a taken address", func(b *store.Batch) { b.Starts = append(b.Starts, stranger.StartRow()) }},
		{"start of a taken address whose run is closed", func(b *store.Batch) {
			b.Starts = append(b.Starts, x.SubjectOf(c.closed.Start.Address).StartRow())
		}},
		{"start with a taken run id", func(b *store.Batch) { b.Starts = append(b.Starts, twin.StartRow()) }},
		{"start if absent with a taken run id", func(b *store.Batch) { b.Starts = append(b.Starts, absent) }},
		{"start that replaces an unknown run", func(b *store.Batch) { b.Starts = append(b.Starts, stranger.Replace(gone.Run)) }},
		{"start that replaces the run of another address", func(b *store.Batch) {
			b.Starts = append(b.Starts, stranger.Replace(c.closed.Run))
		}},
		{"start that replaces an open run without its close", func(b *store.Batch) {
			b.Starts = append(b.Starts, x.SubjectOf(c.parked.Start.Address).Replace(c.parked.Run))
		}},
		{"delete of an open run", func(b *store.Batch) { b.Deletes = append(b.Deletes, c.parked.RunKey) }},
		{"close of an unknown run", func(b *store.Batch) { b.Closes = append(b.Closes, gone.Close(model.Failed)) }},
		{"close of a closed run", func(b *store.Batch) { b.Closes = append(b.Closes, c.closed.Close(model.Canceled)) }},
		{"mark of an unknown run", func(b *store.Batch) { b.Marks = append(b.Marks, gone.Park()) }},
		{"mark of a closed run", func(b *store.Batch) { b.Marks = append(b.Marks, c.closed.Park()) }},
		{"mark of a run that closes in the batch", func(b *store.Batch) { b.Marks = append(b.Marks, c.open.Park()) }},
		{"event at a taken position", func(b *store.Batch) { b.Events = append(b.Events, c.open.Event(1)) }},
		{"dead task that exists", func(b *store.Batch) { b.Dead = append(b.Dead, c.open.Dead("drop", "charge", "boom", Noon)) }},
		{"mark of a dead task of another count", func(b *store.Batch) { b.DeadMarks[0].Prev++ }},
		{"delete of an unknown dead task", func(b *store.Batch) { b.DeadDeletes[0].Task = "nobody" }},
		{"log line that is there twice", func(b *store.Batch) { b.Logs = append(b.Logs, b.Logs[0]) }},
		{"stop of an unknown timer", func(b *store.Batch) { b.StopTimers = append(b.StopTimers, c.open.Stop("nope")) }},
		{"stop of a timer of another run", func(b *store.Batch) { b.StopTimers = append(b.StopTimers, c.fresh.Stop("stop-all")) }},
		{"timer that exists", func(b *store.Batch) { b.Timers = append(b.Timers, c.parked.Timer("stop-all", Noon+9)) }},
		{"taken item that does not wait", func(b *store.Batch) { b.Taken = append(b.Taken, c.counter.Take(9)) }},
		{"taken item of another entity", func(b *store.Batch) { b.Taken = append(b.Taken, c.gone.Take(2)) }},
		{"mailbox at a taken position", func(b *store.Batch) { b.Mailbox = append(b.Mailbox, c.counter.Mail(2)) }},
		{"entity that exists", func(b *store.Batch) { b.Entities[2] = c.counter.Set(1, "1") }},
		{"entity that does not exist", func(b *store.Batch) { b.Entities[2].Prev = 1 }},
		{"entity of an older version", func(b *store.Batch) { b.Entities[0] = c.counter.Set(3, "3") }},
		{"removed entity of another version", func(b *store.Batch) { b.Entities[1].Prev = 2 }},
		{"message at a taken position", func(b *store.Batch) { b.Messages = append(b.Messages, Message(1, 2, 2)) }},
		{"message at a consumed position", func(b *store.Batch) { b.Messages = append(b.Messages, Message(1, 2, 1)) }},
		{"cursor from behind", cursor(1, 2, 0, 2)},
		{"cursor from ahead", cursor(1, 2, 2, 3)},
		{"cursor of an unknown pair", cursor(4, 2, 1, 2)},
		{"consumed request that does not exist", func(b *store.Batch) {
			b.Inbox = append(b.Inbox, store.InboxKey{Shard: c.open.Shard, ID: x.RunID()})
		}},
		{"consumed request of another shard", func(b *store.Batch) {
			b.Inbox = []store.InboxKey{{Shard: c.waits.Shard ^ 1, ID: c.waits.ID}}
		}},
		{"answer to a remembered request", func(b *store.Batch) { b.Requests = append(b.Requests, c.open.Reply("old", Noon+2)) }},
		{"free of a shard that is free", func(b *store.Batch) { b.Free = append(b.Free, 9) }},
		{"free of a shard of another node", func(b *store.Batch) { b.Free = append(b.Free, 4) }},
	}

	x.Note(c.batch())
	before := x.Contents()
	for _, row := range bad {
		b := c.batch()
		row.add(b)
		_, err := c.lane.Try(x.Context(), b)
		if err == nil {
			x.Fatalf("%s: committed", row.name)
		}
		if store.ClassOf(err) != store.Refused {
			x.Errorf("%s: class %s, want refused: %v", row.name, store.ClassOf(err), err)
		}
		if d := Diff(before, x.Contents()); d != "" {
			x.Fatalf("%s: something was applied (-before +after):\n%s", row.name, d)
		}
	}

	// None of the refused batches moved the fence. A batch with only the good rows commits.
	c.lane.Commit(c.batch())
}

// testRefusedLayers makes the store refuse batches that change the same things through different
// tables. If an adapter undoes these changes in the wrong order, some of them stay.
func testRefusedLayers(x *suite) {
	c := newScene(x)
	next := x.SubjectOf(c.open.Start.Address)
	layers := func() *store.Batch {
		b := c.lane.Batch()
		b.Deletes = []store.RunKey{c.closed.RunKey, c.old.RunKey}
		b.Starts = []store.StartRow{next.Replace(c.open.Run), c.fresh.StartRow()}
		b.Closes = []store.CloseRow{c.open.Close(model.Continued), c.fresh.Close(model.Failed)}
		b.Marks = []store.MarkRow{next.Park()}
		b.Events = []store.EventRow{c.open.Event(2), c.open.Event(3), c.fresh.Event(1)}
		b.StopTimers = []store.TimerKey{c.open.Stop("stop"), c.parked.Stop("stop-all")}
		b.Timers = []store.Timer{c.open.Timer("stop", Noon+1), c.parked.Timer("stop-all", Noon+2), c.parked.Timer("more", Noon+3)}
		b.StopAll = []store.RunKey{c.parked.StopAll()}
		b.Messages = slices.Concat(rows(1, 2, 3, 5), rows(2, 2, 1, 2))
		b.Cursors = []store.CursorRow{{To: 2, From: 2, Next: 2}}
		b.Taken = []store.MailboxKey{c.counter.Take(1), c.counter.Take(2)}
		b.Mailbox = []store.MailboxRow{c.counter.Mail(1), c.gone.Mail(1)}
		b.Entities = []store.EntityRow{c.gone.Remove(1), c.counter.Set(2, "2"), c.another.Set(1, "1")}
		return b
	}

	x.Note(layers())
	before := x.Contents()
	for range 2 {
		b := layers()
		b.Free = []model.ShardID{1, 4} // the store refuses the batch: the node does not own shard 4
		c.lane.Refuse(b, store.Refused)
		if d := Diff(before, x.Contents()); d != "" {
			x.Fatalf("something was applied (-before +after):\n%s", d)
		}
	}

	c.lane.Commit(layers())
	x.Want("state of shard 2", store.AcquiredShard{
		Shard: 2, Received: map[model.ShardID]int64{2: 2}, Sent: map[model.ShardID]int64{1: 5, 2: 2, 3: 1},
	}, x.stateOf(c.node, 2))
}

func testTableOrder(x *suite) {
	l := x.Join(1).Lanes[0]
	// A run may start, get events and end in one batch.
	a, p := x.Subject(), x.Subject()

	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{a.StartRow(), p.StartRow()}
		b.Closes = []store.CloseRow{a.Close(model.Completed)}
		b.Marks = []store.MarkRow{p.Park()}
		b.Events = []store.EventRow{a.Event(1), a.Event(2)}
		b.Timers = []store.Timer{p.Timer("moves", Noon), p.Timer("stays", Noon)}
	})

	got := try(x.Store.LoadExecution(x.Context(), a.Shard, a.Start.Address, model.RunID{})).or(x)
	closed := a.ClosedRow(model.Completed, true)
	x.Want("run that started and ended in one batch", &closed, got)

	// A timer may be stopped and started again, and StopAll comes last.
	l.Write(func(b *store.Batch) {
		b.StopTimers = []store.TimerKey{p.Stop("moves")}
		b.Timers = []store.Timer{p.Timer("moves", Noon+7)}
	})

	x.Want("timers after a move", []store.Timer{p.Timer("stays", Noon), p.Timer("moves", Noon+7)}, x.Contents().Timers)
	l.Write(func(b *store.Batch) {
		b.Timers = []store.Timer{p.Timer("brief", Noon+8)}
		b.StopAll = []store.RunKey{p.StopAll()}
	})

	x.Want("timers after all were stopped", []store.Timer(nil), x.Contents().Timers)
	// When a parked run is closed and its successor starts, the store removes the mark of the
	// parked run.
	next := x.SubjectOf(p.Start.Address)

	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{next.Replace(p.Run)}
		b.Closes = []store.CloseRow{p.Close(model.Continued)}
		b.Marks = []store.MarkRow{next.Park()}
	})

	was := p.ClosedRow(model.Continued, false)
	x.Want("parked run after its close", &was, try(x.Store.LoadExecution(x.Context(), p.Shard, p.Start.Address, p.Run)).or(x))
}

func testManyRows(x *suite) {
	l := x.Join(1).Lanes[0]
	const runs, events = 120, 5
	var subjects []Subject

	b := l.Batch()
	for i := range runs {
		a := x.Subject()
		subjects = append(subjects, a)
		b.Starts = append(b.Starts, a.StartRow())
		for seq := range events {
			b.Events = append(b.Events, a.Event(int64(seq+1)))
		}
		b.Timers = append(b.Timers, a.Timer(fmt.Sprint("t", i), Noon+model.Time(i)))
		b.Requests = append(b.Requests, a.Reply("r", Noon))
		b.Messages = append(b.Messages, Message(a.Shard, 0, int64(i+1)))
	}

	l.Commit(b)
	l.Write(func(b *store.Batch) {
		for i, a := range subjects {
			b.StopTimers = append(b.StopTimers, a.Stop(fmt.Sprint("t", i)))
			switch i % 3 {
			case 0:
				b.Closes = append(b.Closes, a.Close(model.Completed))
			case 1:
				b.Marks = append(b.Marks, a.Park())
			}
		}
	})

	c := x.Contents()
	if len(c.Executions) != runs || len(c.Events) != runs || len(c.Replies) != runs || len(c.Timers) != 0 || len(c.Runnable) != runs/3 {
		x.Errorf("%d executions, %d histories, %d replies, %d timers, %d runnable; want %d, %d, %d, 0, %d",
			len(c.Executions), len(c.Events), len(c.Replies), len(c.Timers), len(c.Runnable), runs, runs, runs, runs/3)
	}

	for _, h := range c.Events {
		if len(h.Events) != events {
			x.Errorf("run %s has %d events, want %d", h.Run.Run, len(h.Events), events)
		}
	}
}
