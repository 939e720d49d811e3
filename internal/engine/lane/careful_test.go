package lane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// L3: one input is poison: the store always refuses its rows. The lane gets the poison among inputs
// of all kinds for a hundred other addresses. All other inputs commit exactly once, and only the
// address of the poison is quarantined.
func TestPoisonAmongNeighbours(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	const n = 100
	name := func(i int) model.Address { return key(fmt.Sprint("n", i)) }
	target := in(2, 0)
	r.startRun(target)
	for i := range n {
		if i%5 != 0 {
			r.startRun(name(i))
		}
	}
	bad := key("bad")
	r.startRun(bad)
	r.refuse = poison("poison")
	inputs := func(i int) {
		a := name(i)
		switch i % 5 {
		case 0:
			r.start(a, i)
		case 1:
			r.signal(a, "s", i)
		case 2:
			r.turn(a, commandTurn(step("x"), signalTo(target, fmt.Sprint("m", i), fmt.Sprint("from ", i))))
		case 3:
			r.turn(a, model.Turn{Commands: []model.Command{step("x")}, Close: done()})
		case 4:
			r.release(a, "nothing")
		}
	}
	for i := range n {
		if i == 40 {
			r.turn(bad, steps("poison"))
		}
		inputs(i)
		if i == 70 {
			r.flush() // the first part is in flight, the rest fills the next batch
		}
	}
	if r.commit == nil {
		t.Fatal("nothing is in flight")
	}
	r.settle()

	for i := range n {
		a := name(i)
		switch i % 5 {
		case 0:
			r.wantAnswer(i, "")
			if r.holder(a) == 0 {
				t.Errorf("%s was not activated", a.Key)
			}
		case 1:
			r.wantAnswer(i, "")
			r.wantEvents(a, "signal_received s")
		case 2:
			r.wantEvents(a, "step_completed x", fmt.Sprint("sent m", i), fmt.Sprint("answered m", i))
		case 3:
			r.wantEvents(a, "step_completed x")
			if row := r.current(a); row.Outcome.Status != model.Completed || r.holder(a) != 0 {
				t.Errorf("%s is %s, held by %d; want it completed", a.Key, row.Outcome.Status, r.holder(a))
			}
		case 4:
			if row := r.current(a); !row.Parked || r.holder(a) != 0 {
				t.Errorf("%s: parked %v, held by %d; want it released", a.Key, row.Parked, r.holder(a))
			}
		}
	}
	var want []string
	for i := 2; i < n; i += 5 {
		want = append(want, fmt.Sprint("signal_received from ", i))
	}
	if got := r.events(target); !slices.Equal(sorted(got), sorted(want)) {
		t.Errorf("messages that arrived: %q, want each once: %q", got, want)
	}
	r.wantEvents(bad)
	if row := r.current(bad); row.Blocked == nil || row.Blocked.Code != model.WaitPoison || r.holder(bad) != 0 {
		t.Errorf("the run with the poison is blocked by %v, held by %d; want it quarantined", row.Blocked, r.holder(bad))
	}
	if why, ok := r.l.Explain(bad); !ok || why[0].Code != model.WaitPoison {
		t.Errorf("explained as %v", why)
	}
	if r.l.Full() || r.l.PendingBytes() != 0 || !r.l.Idle() {
		t.Errorf("full %v, %d bytes held, idle %v; want the lane at rest", r.l.Full(), r.l.PendingBytes(), r.l.Idle())
	}
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// After a refusal, the lane applies the inputs of the refused batch again. New inputs have to wait
// during this time. The lane applies them afterwards, in order.
func TestInputsDuringIsolation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, b, bad := key("a"), key("b"), key("bad")

	for _, x := range []model.Address{a, b, bad} {
		r.startRun(x)
	}
	r.refuse = poison("poison")
	r.signal(a, "1", "a1")
	r.turn(bad, steps("poison"))
	r.signal(b, "1", "b1")
	r.flush()
	r.commitNow() // the store refuses the batch
	if !r.l.Full() {
		t.Error("the lane accepts inputs while it looks for the refused input")
	}

	r.signal(a, "2", "a2")
	r.start(key("new"), "new")
	r.turn(b, steps("x")) // the worker reports before it can know about the refusal
	r.settle()

	for _, token := range []any{"a1", "b1", "a2", "new"} {
		r.wantAnswer(token, "")
	}
	r.wantEvents(a, "signal_received 1", "signal_received 2")
	r.wantEvents(b, "signal_received 1", "step_completed x")
	if r.holder(a) == 0 || r.holder(b) == 0 || r.holder(key("new")) == 0 {
		t.Error("a run beside the poison lost its worker")
	}
}

// While an address is quarantined, the lane refuses requests of clients to this address, with a
// reason. It puts messages off, and keeps timers without firing them. After a while, the lane tries
// the address again.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	bad, sender := in(0, 0), in(1, 0)
	r.startRun(bad)
	r.startRun(sender)
	r.turn(bad, commandTurn(timer("t", r.now.Add(10*time.Second))))
	r.settle()
	r.refuse = poison("poison")
	r.turn(bad, steps("poison"))
	r.settle()

	r.signal(bad, "s", "client")
	r.settle()
	r.wantAnswer("client", "blocked")
	r.turn(sender, commandTurn(signalTo(bad, "m1", "one"), signalTo(sender, "m2", "echo"), signalTo(bad, "m3", "two")))
	r.settle()
	r.wantEvents(sender, "sent m1", "sent m2", "sent m3", "signal_received echo", "answered m2")
	r.wantEvents(bad)
	r.pass(30 * time.Second)
	r.wantEvents(bad)
	if r.timers(bad) != 1 {
		t.Error("the timer of a quarantined run is gone")
	}
	inbox, _, err := r.st.LoadInbox(t.Context(), []model.ShardID{0}, model.MaxTime, 10, 1<<30)
	if err != nil || len(inbox) != 2 {
		t.Fatalf("put off: %+v, %v, want both messages", inbox, err)
	}

	// The quarantine ends by itself, without further input.
	r.refuse = nil
	r.pass(31 * time.Second)
	if r.holder(bad) == 0 {
		t.Fatal("the run is not tried again after its quarantine")
	}
	if got := r.events(bad); !slices.Contains(got, "timer_fired t") {
		t.Errorf("after the quarantine: %q, want the timer to have fired", got)
	}
	r.pass(time.Minute)
	r.l.MailWaits() // as after a poll
	r.settle()
	if got := r.events(bad); !slices.Equal(got, []string{"timer_fired t", "signal_received one", "signal_received two"}) {
		t.Errorf("after the quarantine: %q, want timer and both messages, in order", got)
	}
	r.signal(bad, "s", "client again")
	r.turn(bad, steps("x"))
	r.settle()
	r.wantAnswer("client again", "")
	if row := r.current(bad); row.Blocked != nil {
		t.Errorf("still blocked by %v", row.Blocked)
	}
}

// A signal names no run. When the store refuses a signal, the row of the current run says so until
// the run continues.
func TestRefusedSignalMarksItsRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	bad, fresh := key("bad"), key("poison")
	r.startRun(bad)
	r.refuse = poison("poison")
	r.signal(bad, "poison", "client")
	r.start(fresh, "start") // the new run has no row yet, so no row can have the reason
	r.settle()
	r.wantAnswer("client", "blocked")
	r.wantAnswer("start", "blocked")
	if row := r.current(bad); row.Blocked == nil || row.Blocked.Code != model.WaitPoison {
		t.Errorf("the row says %v, want that the run is quarantined", row.Blocked)
	}

	r.refuse = nil
	r.pass(2 * time.Minute)
	r.turn(bad, steps("x"))
	r.settle()
	if row := r.current(bad); row.Blocked != nil {
		t.Errorf("still blocked by %v", row.Blocked)
	}
	r.wantEvents(bad, "step_completed x")
}

// besidePoison returns a rig with a worker that holds the runs a and bad. The store refuses every
// batch that has a step with the name poison.
func besidePoison(t *testing.T) (r *rig, a, bad model.Address) {
	t.Helper()
	r = newRig(t)
	r.join(1)
	a, bad = key("a"), key("bad")
	r.startRun(a)
	r.startRun(bad)
	r.refuse = poison("poison")
	return r, a, bad
}

// A worker reports a run as blocked. The batch with this report also has a poison row of another
// run. The lane stores the block anyway.
func TestBlockBesidePoison(t *testing.T) {
	t.Parallel()
	r, a, bad := besidePoison(t)
	r.turn(bad, steps("poison"))
	r.block(a)
	r.settle()
	r.wantBlocked(a)
	if got, ok := r.l.Explain(a); r.holder(a) != 0 || !ok || got[0] != mismatch {
		t.Errorf("held by %d, explained as %v", r.holder(a), got)
	}
}

// A worker reports a run as blocked, and the next worker takes the run and ends it. Then the store
// refuses the batch in flight because of another run, and the lane undoes all these turns. The lane
// applies the turns of the last worker again.
func TestBlockedRunTakenUpBesidePoison(t *testing.T) {
	t.Parallel()
	r, a, bad := besidePoison(t)
	r.turn(bad, steps("poison"))
	r.flush() // the batch is in flight
	r.block(a)
	r.join(2)
	r.flush()
	r.read()
	end := steps("s")
	end.Close = done()
	r.turn(a, end)
	r.commitNow() // the store refuses the batch
	r.settle()
	r.wantEvents(a, "step_completed s")
	if row := r.current(a); row.Outcome.Status != model.Completed {
		t.Errorf("the end is lost: %s, blocked by %v", row.Outcome.Status, row.Blocked)
	}
}

// A run is stored as blocked, and the next worker takes the run and ends it. All workers leave
// before the store refuses the batch in flight and the lane undoes that turn. The worker that joins
// afterwards gets the run.
func TestBlockedRunWhoseNextWorkerLeft(t *testing.T) {
	t.Parallel()
	r, a, bad := besidePoison(t)
	r.block(a)
	r.settle()
	r.join(2)
	r.settle()
	r.turn(bad, steps("poison"))
	r.flush() // the batch is in flight
	end := steps("s")
	end.Close = done()
	r.turn(a, end)
	for _, w := range []lane.WorkerID{1, 2} {
		r.leave(w)
	}
	r.commitNow() // the store refuses the batch
	r.settle()
	r.join(3)
	r.settle()
	r.wantHolder(a, 3)
}

// The store refuses the row that says that a run is blocked, so the run is quarantined. After the
// quarantine the lane tries the run again, even if no worker joins.
func TestBlockThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, turn := range map[string]model.Turn{
		"reported": {Blocked: &mismatch},
		"found":    {Commands: []model.Command{{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Ref: 9}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			a := key("a")
			run := r.startRun(a)

			block := func() {
				r.turn(a, turn)
				delete(r.held, run)
				r.settle()
			}

			r.refuse = func(b *store.Batch) error {
				if slices.ContainsFunc(b.Marks, func(m store.MarkRow) bool { return m.Blocked != nil && m.Blocked.Code == model.WaitMismatch }) {
					return store.Errorf(store.Refused, "commit", "no room for the reason")
				}
				return nil
			}

			block()
			if why, ok := r.l.Explain(a); !ok || why[0].Code != model.WaitPoison {
				t.Errorf("explained as %v, want the quarantine", why)
			}
			r.refuse = nil
			r.pass(61 * time.Second)
			if r.holder(a) == 0 {
				t.Fatal("the run is not tried again")
			}

			block()
			if row := r.current(a); row.Blocked == nil || row.Blocked.Code != model.WaitMismatch {
				t.Errorf("stored as blocked by %v", row.Blocked)
			}
		})
	}
}

// A blocked run is quarantined for another reason. After the quarantine the lane hands the run to a
// worker again. The worker reports the block again, so the store has the right reason again.
func TestBlockedRunAfterQuarantine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startBlocked(a)
	r.refuse = poison("poison")
	r.signal(a, "poison", "signal")
	r.settle()
	r.wantAnswer("signal", "blocked")
	r.refuse = nil
	r.pass(61 * time.Second)
	if r.holder(a) == 0 {
		t.Fatal("the run is not tried again")
	}

	r.block(a)
	r.settle()
	r.wantBlocked(a)
}

// A worker makes the same refused turn after each quarantine. Each time, the run is quarantined
// again, and the worker loses the run.
func TestQuarantineAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	bad := key("bad")
	r.startRun(bad)
	r.refuse = poison("poison")

	for range 3 {
		r.turn(bad, steps("poison"))
		r.settle()
		if r.holder(bad) != 0 {
			t.Fatal("the worker keeps a quarantined run")
		}
		r.pass(61 * time.Second)
		if r.holder(bad) == 0 {
			t.Fatal("the run is not tried again")
		}
	}

	r.wantEvents(bad)
}

// A message is itself the poison. The address of the message is quarantined, and the lane puts off
// all messages to this address. Later messages from the same shard to other addresses take effect.
func TestPoisonMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	from, bad, good := in(0, 0), in(1, 0), in(1, 1)
	for _, a := range []model.Address{from, bad, good} {
		r.startRun(a)
	}
	r.refuse = poison("poison")
	r.turn(from, commandTurn(
		signalTo(good, "m1", "one"), signalTo(bad, "m2", "poison"), signalTo(good, "m3", "three"), signalTo(bad, "m4", "four"),
	))
	r.settle()
	r.wantEvents(good, "signal_received one", "signal_received three")
	r.wantEvents(bad)
	if r.holder(good) == 0 || r.holder(bad) != 0 {
		t.Errorf("the good run is held by %d, the quarantined run by %d; want only the good run held", r.holder(good), r.holder(bad))
	}
	left, _, err := r.st.LoadMessages(t.Context(), []model.ShardID{1}, 10, 1<<30)
	if err != nil || len(left) != 0 {
		t.Errorf("messages that are not consumed: %+v, %v, want none", left, err)
	}

	// The next incarnation of the node finds the messages that were put off.
	r.refuse = nil
	r.restart()
	r.join(1)
	r.now = r.now.Add(2 * time.Minute)
	r.l.MailWaits()
	r.settle()
	r.wantEvents(bad, "signal_received poison", "signal_received four")
}

// When the store refuses a start, the caller of the start gets the reason, and the address is
// quarantined. After the quarantine, other callers can start a run at this address.
func TestPoisonStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.refuse = poison("bad")
	r.start(key("a"), "a")
	r.start(key("bad"), "bad")
	r.signal(key("bad"), "s", "behind it")
	r.start(key("b"), "b")
	r.settle()
	r.wantAnswer("a", "")
	r.wantAnswer("b", "")
	r.wantAnswer("bad", "blocked")
	r.wantAnswer("behind it", "blocked")
	r.refuse = nil
	r.pass(61 * time.Second)
	r.start(key("bad"), "again")
	r.settle()
	r.wantAnswer("again", "")
}

// refuseFree returns a function that refuses batches that free the shard. Each refusal takes one
// from times, and at 0 the function refuses nothing more. shared counts the refused batches that
// had other rows too.
func refuseFree(id model.ShardID, times *int) (refuse func(b *store.Batch) error, shared *int) {
	shared = new(int)
	return func(b *store.Batch) error {
		if *times == 0 || !slices.Contains(b.Free, id) {
			return nil
		}
		*times--
		if len(b.Free) > 1 || b.Rows() > 1 {
			*shared++
		}
		return store.Errorf(store.Refused, "commit", "shard %d cannot be freed", id)
	}, shared
}

// The store refuses a batch because the batch frees a certain shard. The batch also frees another
// shard, and has an input of a third shard. The lane tries again to free the refused shard, in
// batches that have nothing else. The other shard and the input are not affected.
func TestFreeingIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := in(0, 0)
	r.startRun(a)
	times := 3
	var shared *int

	r.refuse, shared = refuseFree(1, &times)
	r.signal(a, "1", "in flight")
	r.flush()
	r.signal(a, "2", "beside it")
	r.giveUp(1, 2)
	r.settle()
	r.signal(a, "3", "meanwhile")
	r.settle()

	r.pass(time.Second)
	for _, token := range []string{"in flight", "beside it", "meanwhile"} {
		r.wantAnswer(token, "")
	}
	r.wantEvents(a, receivedNames(1, 3)...)
	if r.dead != nil || r.holder(a) == 0 {
		t.Errorf("dead %v, the run of another shard is held by %d; want that run unaffected", r.dead, r.holder(a))
	}
	slices.Sort(r.freed)
	if !slices.Equal(r.freed, []model.ShardID{1, 2}) || times != 0 || *shared > 1 {
		t.Errorf("freed %v, %d refusals left, %d refused batches had other rows; want shards 1 and 2 freed, 0 left, at most 1 with other rows", r.freed, times, *shared)
	}
	if r.l.PendingBytes() != 0 {
		t.Errorf("%d bytes are pending although no input waits", r.l.PendingBytes())
	}
}

// If a node gives up a shard, and the store never frees it, no node would serve the shard. So the
// lane dies after a while. Then the node starts over, and other nodes take its shards.
func TestFreeingIsRefusedForEver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	times := 1_000
	r.refuse, _ = refuseFree(1, &times)
	r.giveUp(1)
	r.pass(2 * time.Second)
	if r.dead != nil {
		t.Fatalf("dead after %d refusals: %v", 1_000-times, r.dead)
	}
	r.pass(10 * time.Second)
	if r.dead == nil || times < 900 {
		t.Errorf("dead %v after %d refusals", r.dead, 1_000-times)
	}
}

// One batch has several inputs that the store refuses. The lane commits all the others.
func TestManyPoisons(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	for i := range 20 {
		r.startRun(key(fmt.Sprint(i)))
	}
	r.refuse = poison("poison")

	for i := range 20 {
		id := "x"
		if i%7 == 3 {
			id = "poison"
		}
		r.turn(key(fmt.Sprint(i)), steps(id))
	}

	r.settle()
	for i := range 20 {
		if i%7 == 3 {
			r.wantEvents(key(fmt.Sprint(i)))
		} else {
			r.wantEvents(key(fmt.Sprint(i)), "step_completed x")
		}
	}
}

// The worker of a run leaves while the lane applies the inputs of the run again.
func TestWorkerLeavesDuringIsolation(t *testing.T) {
	t.Parallel()
	for _, closing := range []bool{false, true} {
		r, a, bad := besidePoison(t)
		turn := steps("x")
		if closing {
			turn.Close = done()
		}
		r.turn(a, turn)
		r.turn(bad, steps("poison"))
		r.flush()
		r.commitNow() // the store refuses the batch
		r.leave(1)
		r.join(2)
		r.settle()

		// Either the lane has committed the result of the worker, or the step runs again. So a
		// worker has the run, or the run is closed.
		row := r.current(a)
		if row.Outcome.Status == model.Running && r.holder(a) != 2 {
			t.Errorf("closing %v: the run is open and held by %d, want 2", closing, r.holder(a))
		}
		if h := r.held[row.Start.Run]; h != nil && len(h.events) != len(r.events(a)) {
			t.Errorf("closing %v: the new worker knows %d of %d events", closing, len(h.events), len(r.events(a)))
		}
	}
}

// A refused batch changes no timers. The lane applies the turn of the other run again, so this run
// gets its new timer, which fires. The quarantined run keeps its old timer.
func TestTimersOfARefusedBatch(t *testing.T) {
	t.Parallel()
	r, a, bad := besidePoison(t)
	r.turn(a, commandTurn(timer("old", r.now.Add(5*time.Second))))
	r.turn(bad, commandTurn(timer("old", r.now.Add(5*time.Second))))
	r.settle()
	r.turn(a, commandTurn(stop("old"), timer("new", r.now.Add(6*time.Second))))
	r.turn(bad, commandTurn(stop("old"), timer("new", r.now.Add(6*time.Second)), step("poison")))
	r.settle()
	r.pass(10 * time.Second)
	r.wantEvents(a, "timer_fired new")
	r.refuse = nil
	r.pass(time.Minute)
	r.wantEvents(bad, "timer_fired old")
}

// The lane dies while it looks for the refused input. Every caller that waits gets one answer.
func TestDeathDuringIsolation(t *testing.T) {
	t.Parallel()
	r, a, bad := besidePoison(t)
	r.signal(a, "s", "kept")
	r.turn(a, model.Turn{Close: done()})
	r.turn(bad, steps("poison"))
	r.flush()
	r.signal(a, "t", "filling")
	r.commitNow() // the store refuses the batch
	r.start(key("c"), "waiting")
	r.l.Die(errInjected)
	r.take()
	for _, token := range []any{"kept", "filling", "waiting"} {
		r.wantAnswer(token, "unavailable")
	}
	if len(r.held) != 0 {
		t.Errorf("the lane is dead, but its worker still has %d runs", len(r.held))
	}
	if r.dead == nil {
		t.Error("the lane is not dead")
	}
}

// A turn stops a timer. The store refuses the batch of this turn, and the worker leaves before the
// lane applies the turn again. So the turn has no effect, and the timer fires.
func TestTimerOfATurnThatCameToNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, bad := key("a"), key("bad")
	r.timersIn(a, 5)
	r.startRun(bad)
	r.refuse = poison("poison")
	r.turn(a, commandTurn(stop("t5")))
	r.turn(bad, steps("poison"))
	r.flush()
	r.commitNow() // the store refuses the batch
	r.leave(1)
	r.settle()
	r.pass(10 * time.Second)
	r.wantEvents(a, "timer_fired t5")
}

// A message waits until the lane has read its address. During this time, the store refuses the
// batch in flight. The lane reads the message from the store a second time, and the message takes
// effect once.
func TestMessageIsHereTwiceAfterARefusal(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	r.join(1)
	slow, quick, bad := in(0, 0), in(0, 1), in(1, 0)
	for _, a := range []model.Address{slow, quick, bad} {
		r.startRun(a)
	}
	r.release(slow, "s")
	r.settle()
	r.l.Messages(f.send(slices.Concat(signals(quick, 1, 1), signals(slow, 1, 1), signals(quick, 2, 2))...))
	r.refuse = poison("poison")
	r.turn(bad, steps("poison"))
	r.flush()
	var held []lane.Load // reads of the slow address, which the test answers late

	hold := func() {
		for _, ld := range r.loads {
			if ld.Kind == lane.LoadRun && ld.Address == slow {
				held = append(held, ld)
			} else {
				r.readOne(ld)
			}
		}
		r.loads = nil
		r.flush()
	}
	for range 20 {
		hold()
		if r.commit != nil {
			r.commitNow()
		}
	}

	if len(held) == 0 {
		t.Fatal("the lane does not read the slow address")
	}
	r.wantEvents(quick, "signal_received 1")
	r.loads = held
	r.settle()
	r.wantEvents(slow, "signal_received 1")
	r.wantEvents(quick, "signal_received 1", "signal_received 2")
	if r.cursor(0, 3) != -1 {
		t.Error("not all messages are consumed")
	}
}

// A turn ends a run, so the worker of the run gets no further events. Then the store refuses the
// batch of this turn because of a row of another address. The worker has the run again, and gets
// the events that it missed.
func TestWorkerHearsWhatItMissed(t *testing.T) {
	t.Parallel()
	r, a, bad := besidePoison(t)
	run := r.current(a).Start.Run
	h := r.held[run]
	r.signal(a, "s", "signal")
	r.flush() // the batch is in flight
	r.turn(a, model.Turn{Commands: []model.Command{step("x")}, Close: done()})
	r.turn(bad, steps("poison"))
	r.settle()
	r.wantAnswer("signal", "")
	if !slices.ContainsFunc(h.events, func(e model.Event) bool { return e.Kind == model.EventSignalReceived }) {
		t.Errorf("the worker got %v, want the signal among them", h.events)
	}
	if row := r.row(run); row.Outcome.Status != model.Completed {
		t.Errorf("the run is %s", row.Outcome.Status)
	}
}
