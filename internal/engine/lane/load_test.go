package lane_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The lane repeats failed reads after a pause, and nothing is lost.
func TestReadsFail(t *testing.T) {
	t.Parallel()
	for _, kind := range []lane.LoadKind{lane.LoadRun, lane.LoadReply, lane.LoadRunnable, lane.LoadTimers, lane.LoadMail} {
		r := newRig(t)
		r.join(1)
		a := key("a")
		r.timersIn(a, 40)
		r.signal(a, "s", "signal")
		r.settle()
		r.restart()
		failures := 0

		r.reads = func(ld *lane.Load) *lane.LoadResult {
			if ld.Kind != kind || failures >= 5 {
				return nil
			}
			failures++
			return &lane.LoadResult{Err: store.Errorf(store.Away, "read", "injected")}
		}

		r.settle()
		r.join(1)
		row := store.InboxRow{Shard: a.Shard(shards), ID: r.newRun(), Message: model.Message{Kind: model.MessageSignal, To: a, Name: "inbox"}}
		if err := r.st.PutInbox(t.Context(), []store.InboxRow{row}); err != nil {
			t.Fatal(err)
		}
		r.l.MailWaits()
		r.send(request(a, "u", "req-1"), "request")
		r.settle()
		r.pass(10 * time.Second)
		if failures != 5 {
			t.Errorf("kind %d: %d failures, want 5", kind, failures)
		}
		r.wantAnswer("request", "")
		r.pass(60 * time.Second)
		got := r.events(a)
		if len(got) != 4 || r.holder(a) != 1 {
			t.Errorf("kind %d: history %q, held by %d; want both signals, the inbox and the timer", kind, got, r.holder(a))
		}
	}
}

// Stored data that cannot be decoded quarantines its own address and no other.
func TestCorruptRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	bad, good := key("bad"), key("good")
	r.timersIn(bad, 10)
	r.timersIn(good, 10)
	r.restart()

	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if ld.Kind == lane.LoadRun && ld.Address == bad {
			return &lane.LoadResult{Err: fault.New(fault.Corrupt, "event 3 of it cannot be decoded")}
		}
		return nil
	}

	r.join(1)
	r.settle()
	r.signal(bad, "s", "bad")
	r.signal(good, "s", "good")
	r.settle()
	r.wantAnswer("bad", "blocked")
	r.wantAnswer("good", "")
	r.pass(20 * time.Second)
	r.wantEvents(good, "signal_received s", "timer_fired t10")
	if why, ok := r.l.Explain(bad); !ok || why[0].Code != model.WaitCorrupt || r.holder(bad) != 0 {
		t.Errorf("explained as %v, held by %d", why, r.holder(bad))
	}

	// The data is repaired, and the lane finds that out by itself.
	r.reads = nil
	r.pass(61 * time.Second)
	r.wantEvents(bad, "timer_fired t10")
	if r.holder(bad) != 1 {
		t.Error("the repaired run is not taken up")
	}
}

// The address of a start already has a run with an unreadable row. The lane refuses the start with
// this reason. No other input of the batch is affected, whether the commit or the verification
// finds the row.
func TestStartMeetsAnUnreadableRun(t *testing.T) {
	t.Parallel()
	for _, unseen := range []bool{false, true} {
		r := newRig(t)
		r.join(1)
		bad, good := key("bad"), key("good")

		r.reads = func(ld *lane.Load) *lane.LoadResult {
			if ld.Kind == lane.LoadRun && ld.Address == bad {
				return &lane.LoadResult{Err: fault.New(fault.Corrupt, "its outcome cannot be decoded")}
			}
			return nil
		}

		r.start(bad, "bad")
		r.start(good, "good")
		r.flush()

		// The first of the two starts finds an existing run. The store of this test does not have
		// that run, so the test reports it itself.
		batch := *r.commit
		if len(batch.Starts) != 2 || batch.Starts[0].Start.Address != bad {
			t.Fatalf("the batch starts %+v", batch.Starts)
		}
		batch.Starts = batch.Starts[1:]
		unread := store.Unread(bad.Shard(shards), bad, errors.New("its outcome cannot be decoded"))
		r.commit = &batch
		r.landUnheard()

		if unseen {
			r.l.FinishCommit(r.now, store.Committed{}, store.Errorf(store.Unknown, "commit", "the answer is lost"))
			r.flush()
			r.refenceNow()
			r.verify = nil
			r.l.FinishVerify(r.now, []*store.Execution{&unread, r.current(good)}, nil)
		} else {
			r.l.FinishCommit(r.now, store.Committed{Existing: []store.ExistingStart{{Index: 0, Execution: unread}}}, nil)
		}

		r.settle()
		r.wantAnswer("bad", "blocked")
		r.wantAnswer("good", "")
		if r.holder(good) != 1 || r.holder(bad) != 0 {
			t.Errorf("held by %d and %d", r.holder(good), r.holder(bad))
		}
		r.signal(good, "s", "signal")
		r.settle()
		r.wantAnswer("signal", "")
	}
}

// A caller repeats a request, and the remembered answer cannot be decoded. The caller gets an
// error, and the lane does not serve the request a second time.
func TestCorruptReply(t *testing.T) {
	t.Parallel()
	for _, c := range []lane.LoadResult{
		{Err: fault.New(fault.Corrupt, "the answer cannot be decoded")},
		{Reply: &store.Reply{Body: []byte{0xff}}},
	} {
		r := newRig(t)
		r.join(1)
		a := key("a")
		r.startRun(a)
		r.send(request(a, "u", "req-1"), "first")
		r.settle()
		r.restart()
		r.join(1)

		r.reads = func(ld *lane.Load) *lane.LoadResult {
			if ld.Kind == lane.LoadReply {
				return &c
			}
			return nil
		}

		r.send(request(a, "u", "req-1"), "again")
		r.settle()
		r.wantAnswer("again", "corrupt")
		r.reads = nil
		r.signal(a, "s", "other")
		r.settle()
		r.wantAnswer("other", "")
		r.wantEvents(a, "signal_received u", "signal_received s")
	}
}

// A history with a hole is corrupt, whatever the store says.
func TestHistoryWithAHole(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.turn(a, steps("x", "y", "z"))
	r.settle()
	r.restart()

	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if ld.Kind != lane.LoadRun {
			return nil
		}
		events := r.history(a, r.current(a).Start.Run)
		return &lane.LoadResult{Execution: r.current(a), Events: []model.Event{events[0], events[2]}}
	}

	r.join(1)
	r.settle()
	if why, ok := r.l.Explain(a); !ok || why[0].Code != model.WaitCorrupt || r.holder(a) != 0 {
		t.Errorf("explained as %v, held by %d; want it quarantined", why, r.holder(a))
	}
}

// If the lane drops the state of a run after the read of the run, the result of the read is out of
// date. The lane reads again.
func TestReadIsOutOfDate(t *testing.T) {
	t.Parallel()
	r, a, bad := besidePoison(t)
	run := r.current(a).Start.Run
	r.leave(1)
	r.settle()
	r.join(2) // the lane reads both histories for the new worker
	r.flush()
	var old []lane.Load

	var results []lane.LoadResult
	for _, ld := range r.loads {
		old = append(old, ld)
		// the test reads now, and hands in the results later
		results = append(results, lane.LoadResult{Execution: r.current(ld.Address)})
	}

	r.loads = nil
	r.signal(a, "s", "signal")
	r.flush()
	r.commitNow()

	// Then the store refuses a batch with both runs, so that the lane drops their states.
	r.signal(a, "t", "signal 2")
	r.signal(bad, "poison", "poison")
	r.flush()
	r.commitNow()
	for i, ld := range old {
		r.l.FinishLoad(r.now, ld.ID, results[i])
	}
	r.settle()
	r.wantAnswer("signal", "")
	r.wantAnswer("signal 2", "")
	r.wantAnswer("poison", "blocked")
	r.wantEvents(a, "signal_received s", "signal_received t")
	if h := r.held[run]; h == nil || len(h.events) != 2 {
		t.Errorf("held as %+v", h)
	}
}

// The lane ignores results of reads that it did not ask for, or that come twice.
func TestUnknownReads(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.signal(a, "s", "signal")
	r.flush()
	ld := r.loads[0]
	r.loads = nil
	r.l.FinishLoad(r.now, 12345, lane.LoadResult{})
	r.l.FinishLoad(r.now, ld.ID, lane.LoadResult{})
	r.l.FinishLoad(r.now, ld.ID, lane.LoadResult{Execution: &store.Execution{}})
	r.settle()
	r.wantAnswer("signal", "not_found")
}

// The lane reads a run for an input. Later it reads the same run for a worker. The first result
// arrives after the second, and does not replace it.
func TestReadsComeInAnotherOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := key("a")
	r.start(a, "start")
	r.settle() // no worker holds it
	r.restart()
	r.join(1)

	// hold does the last read of the run but keeps its result. It hands in the results of all other
	// reads.
	hold := func() (lane.Load, lane.LoadResult) {
		t.Helper()
		last := len(r.loads) - 1
		if last < 0 || r.loads[last].Kind != lane.LoadRun {
			t.Fatalf("the run is not read: %+v", r.loads)
		}
		ld, others := r.loads[last], r.loads[:last]
		r.loads = nil
		res := engine.Read(t.Context(), r.st, ld, r.now)
		for _, o := range others {
			r.readOne(o)
		}
		return ld, res
	}

	r.flush()
	r.read() // this reads the list of runs; then the lane reads the run to hand it over
	r.flush()
	r.signal(a, "one", "one") // the lane reads the run once more, because the signal waits
	r.flush()
	early, stale := hold()
	r.settle()
	if r.holder(a) == 0 {
		t.Fatal("no worker holds the run")
	}

	r.block(a)
	r.settle()
	r.join(2)
	r.flush()
	ld, res := hold()
	r.signal(a, "two", "two")
	r.flush() // on its way to the store
	r.l.FinishLoad(r.now, ld.ID, res)
	r.l.FinishLoad(r.now, early.ID, stale)
	r.take()
	r.settle()
	if r.holder(a) == 0 {
		t.Error("no worker is given the run")
	}
}

// Two reads of a run may be in flight at the same time: one because the run is runnable, and one
// for an input. Before the slower read returns, the lane reads the run, or the next run of the
// address, for another worker. The result of the slower read does not replace this newer result.
func TestReadIsOvertaken(t *testing.T) {
	t.Parallel()
	for _, continued := range []bool{false, true} {
		t.Run(fmt.Sprintf("continued %t", continued), func(t *testing.T) {
			t.Parallel()
			testReadIsOvertaken(t, continued)
		})
	}
}

func testReadIsOvertaken(t *testing.T, continued bool) {
	t.Helper()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.restart()
	r.join(1)
	r.flush()
	var slow lane.Load

	for _, ld := range r.loads {
		if ld.Kind == lane.LoadRunnable {
			r.readOne(ld)
		}
	}

	r.loads = slices.DeleteFunc(r.loads, func(ld lane.Load) bool { return ld.Kind == lane.LoadRunnable })
	r.signal(a, "s", "signal")
	r.flush()

	r.loads = slices.DeleteFunc(r.loads, func(ld lane.Load) bool {
		first := ld.Kind == lane.LoadRun && slow.ID == 0
		if first {
			slow = ld
		}
		return first
	})

	old := engine.Read(t.Context(), r.st, slow, r.now)
	r.settle()
	r.wantAnswer("signal", "")
	if slow.ID == 0 || r.holder(a) != 1 {
		t.Fatalf("read %d, held by %d; want it read twice, and held", slow.ID, r.holder(a))
	}

	if continued {
		r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued}})
		r.settle()
	}

	r.turn(a, steps("x"))
	r.flush()
	if continued {
		r.settle()
	}
	r.join(2)
	r.l.Leave(r.now, 1)
	r.flush()
	if !continued {
		r.read() // for worker 2; x is on its way to the store
	}
	r.l.FinishLoad(r.now, slow.ID, old)
	r.settle()
	r.wantEvents(a, "signal_received s", "step_completed x")
	r.wantHolder(a, 2)
}

// The lane assumes that the address of a start is unused. The new run is in memory when a page of
// runnable runs names another run of the address, which is in the store. The store refuses the
// batch because of another row, so it does not say that the address was in use. The lane has to
// remember that the page named the other run.
func TestRunnableBehindAnAssumedStart(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxHeld = 1 })
	r.join(1)
	a, large := key("a"), key("large")
	r.startRun(a)
	r.restart()
	r.join(1)
	r.flush()

	page := slices.IndexFunc(r.loads, func(ld lane.Load) bool { return ld.Kind == lane.LoadRunnable })
	slow := r.loads[page]
	r.loads = slices.Delete(r.loads, page, page+1)

	r.startRun(large) // takes all room, so that the lane reads no run for a worker
	r.start(a, "again")
	r.start(key("other"), "other")
	r.flush()
	if r.commit == nil || len(r.commit.Starts) != 2 || !r.commit.Starts[0].IfAbsent {
		t.Fatalf("in flight is %+v, want a start that assumes that there is no run", r.commit)
	}

	r.readOne(slow)
	r.fail(store.Refused)
	r.settle()
	r.wantAnswer("again", "")
	r.turn(large, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.wantHolder(a, 1)
}
