package storetest

import (
	"bytes"
	"slices"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var eventTests = []test{
	{name: "every kind and field comes back as it was", run: testEventRoundTrip},
	{name: "events come in order whatever the order of rows", run: testEventOrder},
	{name: "a position is taken once", run: testEventPositions},
	{name: "pages by number", run: testEventPages},
	{name: "pages by bytes with at least one event", run: testEventBytes},
	{name: "large bodies", run: testLargeBodies},
	{name: "events of one kind, the newest first", run: testEventsOfKind},
	{name: "a run with its events and timers", run: testLoadRun},
	{name: "several runs with their events and timers", run: testLoadRuns},
}

// events returns all stored events of a run.
func (x *suite) events(key store.RunKey) []model.Event {
	x.Helper()
	return try(x.Store.LoadEvents(x.Context(), key, 0, 100_000, 1<<30)).or(x)
}

func testEventRoundTrip(x *suite) {
	l := x.Join(1).Lanes[0]
	rapid.Check(x.t, func(t *rapid.T) {
		s := x.Subject()
		s.Start.Carried = EventLists(2).Draw(t, "carried")
		events := EventLists(4).Draw(t, "events")

		l.Write(func(b *store.Batch) {
			b.Starts = []store.StartRow{s.StartRow()}
			for i := range events {
				events[i].Seq += int64(len(s.Start.Carried))
				b.Events = append(b.Events, store.EventRow{RunKey: s.RunKey, Event: events[i]})
			}
		})

		if d := Diff(events, x.events(s.RunKey)); d != "" {
			t.Fatalf("events (-want +got):\n%s", d)
		}
		if d := Diff(s.Start.Carried, x.row(s).Start.Carried); d != "" {
			t.Fatalf("carried events (-want +got):\n%s", d)
		}
	})

	// Write every kind at least once, whatever the generator chose.
	s := x.Subject()
	b := l.Batch()

	var want []model.Event
	for k := model.EventStarted; k <= model.LastEventKind; k++ {
		if !k.Known() {
			continue
		}
		e := s.Event(int64(k)).Event
		e.Kind = k
		want = append(want, e)
		b.Events = append(b.Events, store.EventRow{RunKey: s.RunKey, Event: e})
	}

	l.Commit(b)
	x.Want("an event of every kind", want, x.events(s.RunKey))
}

func testEventsOfKind(x *suite) {
	l := x.Join(1).Lanes[0]
	a, other := x.SubjectIn(3), x.SubjectIn(3)
	var want []model.Event

	l.Write(func(b *store.Batch) {
		for seq := int64(1); seq <= 40; seq++ {
			row := a.Event(seq)
			if row.Event.Kind = model.EventStepCompleted; seq%3 == 0 {
				row.Event.Kind = model.EventStateSet
				want = append([]model.Event{row.Event}, want...)
			}
			b.Events = append(b.Events, row)
		}
		row := other.Event(7)
		row.Event.Kind = model.EventStateSet
		b.Events = append(b.Events, row)
	})

	load := func(before int64, limit int) []model.Event {
		return try(x.Store.LoadEventsOf(x.Context(), a.RunKey, model.EventStateSet, before, limit)).or(x)
	}
	x.Want("all of them", want, load(1<<62, 100))
	x.Want("the newest two", want[:2], load(1<<62, 2))
	x.Want("those below a position", want[len(want)-3:], load(12, 100))
	if n := len(load(3, 100)); n != 0 {
		x.Errorf("%d events below the first, want none", n)
	}
}

func testEventOrder(x *suite) {
	l := x.Join(1).Lanes[0]
	a, c := x.SubjectIn(3), x.SubjectIn(3)
	l.Write(func(b *store.Batch) {
		for _, seq := range []int64{10, 2, 9, 1} {
			b.Events = append(b.Events, a.Event(seq), c.Event(seq+1))
		}
	})
	last := func(s Subject) int64 { return try(x.Store.LastEvent(x.Context(), s.RunKey)).or(x) }
	x.Want("the last positions", []int64{10, 11, 0}, []int64{last(a), last(c), last(x.SubjectIn(3))})

	l.Write(func(b *store.Batch) { b.Events = []store.EventRow{a.Event(3), a.Event(100)} })
	var got []int64
	for _, e := range x.events(a.RunKey) {
		got = append(got, e.Seq)
	}
	x.Want("positions", []int64{1, 2, 3, 9, 10, 100}, got)
	if n := len(x.events(c.RunKey)); n != 4 {
		x.Errorf("%d events of the other run, want 4", n)
	}
}

func testEventPositions(x *suite) {
	l := x.Join(1).Lanes[0]
	a := x.SubjectIn(3)
	other := x.SubjectIn(4)
	other.Run = a.Run // the same run id in another shard is another run
	l.Write(func(b *store.Batch) { b.Events = []store.EventRow{a.Event(1), a.Event(2)} })
	l.Write(func(b *store.Batch) { b.Events = []store.EventRow{other.Event(1)} })
	for _, rows := range [][]store.EventRow{
		{a.Event(1)}, {a.Event(2), a.Event(3)}, {a.Event(3), a.Event(2)}, {a.Event(3), a.Event(3)},
	} {
		b := l.Batch()
		b.Events = rows
		l.Refuse(b, store.Refused)
	}
	x.Want("events", []model.Event{a.Event(1).Event, a.Event(2).Event}, x.events(a.RunKey))
	x.Want("events of the other", []model.Event{other.Event(1).Event}, x.events(other.RunKey))
}

func testEventPages(x *suite) {
	l := x.Join(1).Lanes[0]
	a := x.Subject()
	const n = 25

	l.Write(func(b *store.Batch) {
		for seq := range int64(n) {
			b.Events = append(b.Events, a.Event(seq+3)) // as if the start carried two events
		}
	})

	for _, limit := range []int{1, 4, 24, 25, 26} {
		after, count := int64(0), 0
		for {
			p := try(x.Store.LoadEvents(x.Context(), a.RunKey, after, limit, 1<<20)).or(x)
			if len(p) == 0 {
				break
			}
			if len(p) > limit {
				x.Fatalf("%d events, more than the limit %d", len(p), limit)
			}
			for _, e := range p {
				if d := Diff(a.Event(int64(count)+3).Event, e); d != "" {
					x.Fatalf("event %d (-want +got):\n%s", count, d)
				}
				count++
			}
			after = p[len(p)-1].Seq
		}

		if count != n {
			x.Errorf("%d events in pages of %d, want %d", count, limit, n)
		}
	}

	if p := try(x.Store.LoadEvents(x.Context(), a.RunKey, n+2, 10, 1<<20)).or(x); len(p) != 0 {
		x.Errorf("events behind the last one: %v", p)
	}
}

func testEventBytes(x *suite) {
	l := x.Join(1).Lanes[0]
	a := x.Subject()
	const n, size = 20, 2000

	l.Write(func(b *store.Batch) {
		for seq := range int64(n) {
			e := a.Event(seq + 1)
			e.Event.Input = model.Payload{Data: bytes.Repeat([]byte{byte(seq)}, size)}
			b.Events = append(b.Events, e)
		}
	})

	for _, most := range []int{0, 1, size, 3 * size, 5*size + 1, 100 * size} {
		after, count := int64(0), 0
		for {
			p := try(x.Store.LoadEvents(x.Context(), a.RunKey, after, n, most)).or(x)
			if len(p) == 0 {
				break
			}
			// The bound is approximate: a page may have one event more than the bound allows, but
			// not more.
			if len(p) > most/size+1 {
				x.Fatalf("%d events of %d bytes in a page of %d bytes", len(p), size, most)
			}
			count += len(p)
			after = p[len(p)-1].Seq
			if after != int64(count) {
				x.Fatalf("position %d after %d events", after, count)
			}
		}

		if count != n {
			x.Errorf("%d events in pages of %d bytes, want %d", count, most, n)
		}
	}
}

func testLargeBodies(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	big := func(fill byte) model.Payload {
		return model.Payload{Data: bytes.Repeat([]byte{fill, 0, 0xff, '\''}, 1<<18)} // 1 MiB
	}
	s.Start.Input = big(1)
	e := s.Event(1)
	e.Event.Input, e.Event.Output = big(2), big(3)
	m := Message(1, 2, 1)
	m.Message.Input = big(4)
	r := s.Request(x.RunID(), "big")
	r.Message.Input = big(5)
	reply := s.Reply("big", Noon)
	reply.Body = big(6).Data
	if err := x.Store.PutInbox(x.Context(), []store.InboxRow{r}); err != nil {
		x.Fatal(err)
	}

	l.Write(func(b *store.Batch) {
		b.Starts, b.Events = []store.StartRow{s.StartRow()}, []store.EventRow{e}
		b.Messages, b.Requests = []store.MessageRow{m}, []store.Reply{reply}
	})

	o := s.Close(model.Completed)
	o.Outcome.Output = big(7)
	l.Write(func(b *store.Batch) { b.Closes = []store.CloseRow{o} })
	c := x.Contents()
	same := len(c.Executions) == 1 && len(c.Events) == 1 && len(c.Messages) == 1 && len(c.Inbox) == 1 && len(c.Replies) == 1
	if !same {
		x.Fatalf("%d executions, %d histories, %d messages, %d requests, %d replies; want one of each",
			len(c.Executions), len(c.Events), len(c.Messages), len(c.Inbox), len(c.Replies))
	}

	got := c.Events[0].Events[0]
	for i, p := range []model.Payload{
		c.Executions[0].Start.Input, got.Input, got.Output, c.Messages[0].Message.Input, c.Inbox[0].Message.Input,
		{Data: c.Replies[0].Body},
		c.Executions[0].Outcome.Output,
	} {
		if !p.Equal(big(byte(i + 1))) {
			x.Errorf("large body %d came back with %d bytes, not as it was", i+1, p.Size())
		}
	}
}

func testLoadRun(x *suite) {
	l := x.Join(1).Lanes[0]
	const n = 5
	open, bare, closed, other := x.SubjectIn(3), x.SubjectIn(3), x.SubjectIn(3), x.SubjectIn(3)
	open.Start.Carried = []model.Event{open.Event(1).Event, open.Event(2).Event}
	var events []model.Event
	var timers []store.Timer

	l.Write(func(b *store.Batch) {
		for _, s := range []Subject{open, bare, closed, other} {
			b.Starts = append(b.Starts, s.StartRow())
		}
		for seq := range int64(n) {
			events = append(events, open.Event(seq+3).Event)
			b.Events = append(b.Events, open.Event(seq+3), closed.Event(seq+1), other.Event(seq+1))
		}
		timers = []store.Timer{open.Timer("1", Noon+1), open.Timer("2", Noon)}
		b.Timers = append(slices.Clone(timers), other.Timer("1", Noon))
	})

	l.Write(func(b *store.Batch) { b.Closes = []store.CloseRow{closed.Close(model.Completed)} })
	load := func(s Subject, a model.Address, run model.RunID, limit, maxBytes int) store.Run {
		x.Helper()
		return try(x.Store.LoadRun(x.Context(), s.Shard, a, run, limit, maxBytes)).or(x)
	}
	for _, run := range []model.RunID{open.Run, {}} {
		r := load(open, open.Start.Address, run, 100, 1<<20)
		x.Want("row", x.row(open), r.Execution)
		x.Want("events", events, r.Events)
		x.Want("timers", timers, r.Timers)
		for name, r := range map[string]store.Run{"number": load(open, open.Start.Address, run, 2, 1<<20), "bytes": load(open, open.Start.Address, run, 100, 1)} {
			if len(r.Events) == 0 || len(r.Events) > 2 || !r.More {
				x.Errorf("a page by %s has %d events, more %v", name, len(r.Events), r.More)
			}
			x.Want("first events", events[:len(r.Events)], r.Events)
			x.Want("timers with the first events", timers, r.Timers)
		}
		if r := load(open, open.Start.Address, run, n, 1<<20); len(r.Events) != n {
			x.Errorf("%d events in a page of %d", len(r.Events), n)
		}
	}

	if r := load(bare, bare.Start.Address, model.RunID{}, 100, 1<<20); r.Execution == nil || r.More || len(r.Events)+len(r.Timers) > 0 {
		x.Errorf("a run without events: %+v", r)
	}
	for _, run := range []model.RunID{closed.Run, {}} {
		x.Want("a closed run", store.Run{Execution: x.row(closed)}, load(closed, closed.Start.Address, run, 100, 1<<20))
	}
	x.Want("nobody", store.Run{}, load(open, x.Address(), model.RunID{}, 100, 1<<20))
	x.Want("no such run", store.Run{}, load(open, open.Start.Address, x.RunID(), 100, 1<<20))
	x.Want("a shard beyond all", store.Run{}, try(x.Store.LoadRun(x.Context(), model.MaxShards, open.Start.Address, open.Run, 100, 1<<20)).or(x))
}

func testLoadRuns(x *suite) {
	l := x.Join(1).Lanes[0]
	const n = 3
	var all []Subject
	var keys []store.AddressKey
	for i := range 6 {
		all = append(all, x.SubjectIn(model.ShardID(i%4)))
		keys = append(keys, store.AddressKey{Shard: all[i].Shard, Address: all[i].Start.Address})
	}
	many, closed, bare, timed, continued := all[0], all[1], all[2], all[3], all[4]
	next := x.SubjectOf(continued.Start.Address)
	keys[5] = store.AddressKey{Shard: many.Shard, Address: x.Address()} // has no run

	var events []model.Event
	l.Write(func(b *store.Batch) {
		for _, s := range []Subject{many, closed, bare, timed, continued} {
			b.Starts = append(b.Starts, s.StartRow())
		}
		for seq := range int64(n) {
			events = append(events, many.Event(seq+1).Event)
			b.Events = append(b.Events, many.Event(seq+1), closed.Event(seq+1), continued.Event(seq+1))
		}
		b.Events = append(b.Events, timed.Event(1))
		b.Timers = []store.Timer{timed.Timer("2", Noon), timed.Timer("1", Noon+1)}
	})
	l.Write(func(b *store.Batch) {
		b.Starts = []store.StartRow{next.Replace(continued.Run)}
		b.Closes = []store.CloseRow{closed.Close(model.Completed), continued.Close(model.Continued)}
	})

	load := func(keys []store.AddressKey, limit, maxBytes int) []store.Run {
		x.Helper()
		return try(x.Store.LoadRuns(x.Context(), keys, limit, maxBytes)).or(x)
	}
	whole := []store.Run{
		{Execution: x.row(many), Events: events},
		{Execution: x.row(closed)},
		{Execution: x.row(bare)},
		{Execution: x.row(timed), Events: []model.Event{timed.Event(1).Event}, Timers: []store.Timer{timed.Timer("1", Noon+1), timed.Timer("2", Noon)}},
		{Execution: x.row(next)},
		{},
	}
	x.Want("all", whole, load(keys, 100, 1<<20))
	x.Want("none", 0, len(load(nil, 100, 1<<20)))

	// The limit applies to each run separately.
	short := load(keys, n-1, 1<<20)
	x.Want("the first events", events[:n-1], short[0].Events)
	x.Want("more", true, short[0].More)
	x.Want("the others", whole[1:], short[1:])

	// The bound of bytes applies to all runs together, and each page continues after the previous
	// page.
	pages := 0
	for left := keys; len(left) > 0; pages++ {
		page := load(left, 100, 1)
		if len(page) == 0 || len(page) > len(left) {
			x.Fatalf("%d runs in a page for %d keys", len(page), len(left))
		}
		for i := range page {
			x.Want("row", whole[len(keys)-len(left)+i].Execution, page[i].Execution)
		}
		left = left[len(page):]
	}
	if pages < 2 {
		x.Error("a page of one byte has all runs")
	}
	beyond := []store.AddressKey{{Shard: model.MaxShards, Address: many.Start.Address}, keys[3]}
	x.Want("a shard beyond all", []store.Run{{}, whole[3]}, load(beyond, 100, 1<<20))
}
