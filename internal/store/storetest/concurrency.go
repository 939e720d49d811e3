package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var concurrencyTests = []test{
	{name: "nodes are fenced while their lanes commit", run: testFenceRace},
	{name: "a lane is refenced while it commits", run: testRefenceRace},
	{name: "starts of one address by many lanes", run: testStartRace},
	{name: "readers see whole batches", run: testReaders},
	{name: "requests are put while they are consumed", run: testInboxRace},
}

// commit sends a batch until the store answers with another class than Retryable.
func (x *suite) commit(b *store.Batch) (store.Committed, error) {
	for {
		c, err := x.Store.Commit(x.Context(), b)
		if err == nil || store.ClassOf(err) != store.Retryable {
			return c, err
		}
	}
}

// racer is a lane that commits until the test stops it. Each batch has an event of its own run and
// a message.
type racer struct {
	lane    *Lane
	subject Subject
	to      model.ShardID
	acked   int64
	unknown bool
	err     error
}

// run commits batches until the number of acknowledged batches is most, or until a batch fails. The
// test sets fenced when FenceNode has returned for the node.
func (r *racer) run(x *suite, most int64, fenced *atomic.Bool, progress *atomic.Int64) {
	for r.acked < most {
		after := fenced.Load() // read before the commit is sent
		b := r.lane.Batch()
		b.Events = []store.EventRow{r.subject.Event(b.Number)}
		b.Messages = []store.MessageRow{Message(r.to, r.subject.Shard, b.Number)}
		_, err := x.commit(b)

		switch {
		case err == nil && after:
			r.err = fmt.Errorf("batch %d was sent after the fence and committed", b.Number)
			return
		case err == nil:
			r.lane.Landed = b.Number
			r.acked = b.Number
			progress.Add(1)
		case store.ClassOf(err) == store.Fenced:
			return
		case store.ClassOf(err) == store.Unknown:
			r.unknown = true
			return
		default:
			r.err = fmt.Errorf("batch %d: %w", b.Number, err)
			return
		}
	}
}

func testFenceRace(x *suite) {
	const nodes, lanes, most = 4, 4, 40
	shards := x.Shards()
	var fenced [nodes]atomic.Bool
	var progress [nodes]atomic.Int64
	var members []*Node

	racers := make([][]*racer, nodes)
	for i := range nodes {
		n := x.Join(lanes)
		members = append(members, n)
		for j, l := range n.Lanes {
			home := shards[i*lanes+j]
			racers[i] = append(racers[i], &racer{lane: l, subject: x.SubjectIn(home), to: shards[(i*lanes+j+1)%len(shards)]})
		}
	}

	var wg sync.WaitGroup
	for i := range nodes {
		for _, r := range racers[i] {
			wg.Go(func() { r.run(x, most, &fenced[i], &progress[i]) })
		}
	}

	// All but the last node are fenced in the middle of their work.
	stopped := make([][]int, nodes)
	for i := range nodes - 1 {
		x.eventually("progress", func() bool { return progress[i].Load() >= int64(8*(i+1)) })
		members[i].Fence()
		fenced[i].Store(true)
		for _, r := range racers[i] {
			stopped[i] = append(stopped[i], len(x.events(r.subject.RunKey)))
		}
	}

	wg.Wait()
	for i := range nodes {
		for j, r := range racers[i] {
			if r.err != nil {
				x.Errorf("node %d lane %d: %v", i, j, r.err)
			}
			got := len(x.events(r.subject.RunKey))
			allowed := int(r.acked)
			if r.unknown {
				allowed++
			}
			if got < int(r.acked) || got > allowed {
				x.Errorf("node %d lane %d: %d batches applied, %d acknowledged, unknown %v", i, j, got, r.acked, r.unknown)
			}
			if stopped[i] != nil && got != stopped[i][j] {
				x.Errorf("node %d lane %d: %d batches when it was fenced, %d in the end", i, j, stopped[i][j], got)
			}
			if mail := x.mail(1000, r.to); len(mail) != got {
				x.Errorf("node %d lane %d: %d messages in %d batches", i, j, len(mail), got)
			}
			if i == nodes-1 && got != most {
				x.Errorf("the node that was not fenced applied %d batches, want %d", got, most)
			}
		}
	}
}

func testRefenceRace(x *suite) {
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	for round := range 10 {
		old := l.Batch()
		old.Events = []store.EventRow{s.Event(old.Number)}
		var wg sync.WaitGroup
		var commitErr, refenceErr error
		var epoch, landed int64
		wg.Go(func() { _, commitErr = x.commit(old) })

		wg.Go(func() {
			for {
				epoch, landed, refenceErr = x.Store.Refence(x.Context(), l.Ref)
				if refenceErr == nil || store.ClassOf(refenceErr) != store.Retryable {
					return
				}
			}
		})

		wg.Wait()
		if refenceErr != nil {
			x.Fatalf("round %d: refence: %v", round, refenceErr)
		}
		if commitErr != nil && store.ClassOf(commitErr) != store.Fenced && store.ClassOf(commitErr) != store.Unknown {
			x.Fatalf("round %d: commit: %v", round, commitErr)
		}

		if commitErr == nil && landed != old.Number {
			x.Fatalf("round %d: batch %d was acknowledged, refence says %d landed", round, old.Number, landed)
		}
		if got := len(x.events(s.RunKey)); got != int(landed) {
			x.Fatalf("round %d: %d batches applied, refence says %d landed", round, got, landed)
		}
		l.Ref.Epoch, l.Landed = epoch, landed
	}
}

func testStartRace(x *suite) {
	const lanes = 8
	n := x.Join(lanes)
	a := x.Address()
	subjects := make([]Subject, lanes)
	existing := make([]store.Committed, lanes)
	errs := make([]error, lanes)
	for i := range subjects {
		subjects[i] = x.SubjectOf(a)
	}

	var wg sync.WaitGroup
	for i, l := range n.Lanes {
		wg.Go(func() {
			b := l.Batch()
			b.Starts = []store.StartRow{subjects[i].StartIfAbsent()}
			existing[i], errs[i] = x.commit(b)
		})
	}

	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		x.Fatal(err)
	}
	e := x.current(subjects[0])

	winners := 0
	for i := range subjects {
		if len(existing[i].Existing) == 0 {
			winners++
			if e.Start.Run != subjects[i].Run {
				x.Errorf("lane %d won, but the current run is another one", i)
			}
		} else if existing[i].Existing[0].Execution.Start.Run != e.Start.Run {
			x.Errorf("lane %d was told of run %s, the current one is %s", i, existing[i].Existing[0].Execution.Start.Run, e.Start.Run)
		}
	}

	if winners != 1 {
		x.Errorf("%d starts of one address won, want 1", winners)
	}
}

func testReaders(x *suite) {
	const batches = 40
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	id := func(n int64) string { return fmt.Sprint("timer ", n) }
	l.Write(func(b *store.Batch) { b.Timers = []store.Timer{s.Timer(id(1), Noon)} })
	var done atomic.Bool
	var readErr atomic.Pointer[error]
	fail := func(err error) { readErr.CompareAndSwap(nil, &err) }

	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for !done.Load() && readErr.Load() == nil {
				timers, err := x.Store.LoadTimers(x.Context(), []model.ShardID{s.Shard}, store.TimerMark{}, model.MaxTime, 10)
				if err != nil {
					fail(err)
				} else if len(timers) != 1 {
					fail(fmt.Errorf("%d timers, want exactly one", len(timers)))
				}
				events, err := x.Store.LoadEvents(x.Context(), s.RunKey, 0, 1000, 1<<20)
				if err != nil {
					fail(err)
				} else if len(events)%2 != 0 {
					fail(fmt.Errorf("%d events, want an even number", len(events)))
				}
			}
		})
	}

	for range batches {
		b := l.Batch()
		b.StopTimers = []store.TimerKey{s.Stop(id(l.Landed))}
		b.Timers = []store.Timer{s.Timer(id(b.Number), Noon+model.Time(b.Number))}
		b.Events = []store.EventRow{s.Event(2*b.Number - 1), s.Event(2 * b.Number)}
		l.Commit(b)
	}

	done.Store(true)
	wg.Wait()
	if err := readErr.Load(); err != nil {
		x.Error(*err)
	}
}

func testInboxRace(x *suite) {
	const senders, each = 4, 15
	l := x.Join(1).Lanes[0]
	s := x.Subject()
	errs := make([]error, senders)

	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			for j := range each {
				r := s.Request(x.RunID(), fmt.Sprint(i, "/", j))
				for said := 0; said < 2; { // put the request twice, as after a lost answer
					err := x.Store.PutInbox(x.Context(), []store.InboxRow{r})
					switch {
					case err == nil:
						said++
					case store.ClassOf(err) != store.Retryable:
						errs[i] = err
						return
					}
				}
			}
		})
	}

	served := make(map[string]int)
	x.eventually("all requests", func() bool {
		b := l.Batch()
		for _, r := range x.inbox(Noon, s.Shard) {
			b.Inbox = append(b.Inbox, Consume(r))
			if !r.Seen {
				served[r.Message.RequestID]++
				b.Requests = append(b.Requests, s.Reply(r.Message.RequestID, Noon))
			}
		}
		l.Commit(b)
		return len(served) == senders*each
	})

	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		x.Fatal(err)
	}

	for id, n := range served {
		if n != 1 {
			x.Errorf("request %s was served %d times", id, n)
		}
	}

	// The second put may have left a row. LoadInbox must return it with Seen set.
	for _, r := range x.inbox(Noon, s.Shard) {
		if !r.Seen {
			x.Errorf("request %s waits although it was served", r.Message.RequestID)
		}
	}
}
