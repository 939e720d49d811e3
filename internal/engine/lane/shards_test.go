package lane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The lane gives up a shard. It takes no new work for the shard, takes idle runs from their
// workers, and frees the shard with the last commit.
func TestGiveUpIdleShard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	gone, stays := in(1, 0), in(2, 0)
	r.startRun(gone)
	r.startRun(stays)
	waits := model.Turn{Commands: []model.Command{timer("t", r.now.Add(time.Second))}, Waits: []model.Reason{{Code: model.WaitTimer}}}
	r.turn(gone, waits)
	r.turn(stays, waits)
	r.settle()
	if _, err := r.l.Await(gone, model.RunID{}, "await"); err != nil {
		t.Fatal(err)
	}

	r.giveUp(1)
	r.wantAnswer("await", "unavailable")
	if r.l.HasShard(1) || !r.l.HasShard(2) || !slices.Equal(r.l.Shards(), []model.ShardID{0, 1, 2, 3}) {
		t.Error("a shard that is given up is still served")
	}
	r.signal(gone, "s", "late")
	r.wantAnswer("late", "unavailable")
	if _, err := r.l.Await(gone, model.RunID{}, "late await"); err == nil {
		t.Error("an await was taken")
	}
	r.settle()
	if !slices.Equal(r.freed, []model.ShardID{1}) || r.holder(gone) != 0 || r.holder(stays) == 0 {
		t.Fatalf("freed %v, held by %d and %d", r.freed, r.holder(gone), r.holder(stays))
	}

	view, err := r.st.Members(t.Context())
	if err != nil || !view.Owners[1].Node.IsZero() || view.Owners[2].Node.IsZero() {
		t.Errorf("owners = %+v, %v", view.Owners, err)
	}
	r.pass(5 * time.Second)
	r.wantEvents(gone)
	r.wantEvents(stays, "timer_fired t")

	// The shard comes back, and everything continues.
	r.acquire(1)
	r.settle()
	r.wantEvents(gone, "timer_fired t")
	if r.holder(gone) == 0 {
		t.Error("no worker holds the run after the shard came back")
	}
}

// The lane waits for a busy run. It commits the turn of the run, and the run stops between two
// steps.
func TestGiveUpBusyShard(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := in(1, 0)
	run := r.startRun(a)
	r.giveUp(1)
	r.settle()
	if len(r.freed) != 0 || r.holder(a) != 1 {
		t.Fatalf("freed %v, held by %d; want the running step to be waited for", r.freed, r.holder(a))
	}

	r.turn(a, steps("x"))
	r.settle()
	if r.holder(a) != 0 || !slices.Equal(r.freed, []model.ShardID{1}) {
		t.Fatalf("freed %v, held by %d; want it freed after the step", r.freed, r.holder(a))
	}
	if got := r.history(a, run); len(got) != 1 || got[0].ID != "x" {
		t.Errorf("history = %+v, want the outcome of the step", got)
	}

	// The worker does not know yet that it has lost the run, and reports another turn.
	r.l.Turn(r.now, 1, &model.Turn{Run: run, Generation: 1, Seen: 1})
	r.take()
	if last := r.calls[len(r.calls)-1]; last.Kind != lane.CallEvict || last.Run != run {
		t.Errorf("a late turn = %+v, want an eviction", last)
	}
}

// The lane waits only for a limited time for a step that does not end.
func TestGiveUpWaitsOnlySoLong(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.DrainWait = 5 * time.Second })
	r.join(1)
	a := in(1, 0)
	r.startRun(a)
	r.giveUp(1)
	r.pass(4 * time.Second)
	if len(r.freed) != 0 {
		t.Fatal("freed too early")
	}
	r.pass(2 * time.Second)
	if len(r.freed) != 1 || r.holder(a) != 0 {
		t.Fatalf("freed %v, held by %d", r.freed, r.holder(a))
	}
}

// The lane commits everything that touches the shard before it frees the shard. It refuses waiting
// inputs.
func TestGiveUpWhileCommitting(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := in(1, 0), in(1, 1)
	r.startRun(a)
	r.signal(a, "1", "in flight")
	r.flush()
	r.signal(a, "2", "open")
	r.signal(b, "3", "waits for a read")
	r.giveUp(1)
	r.flush()
	if len(r.commit.Free) != 0 {
		t.Fatal("freed together with what is in flight")
	}

	for r.commit != nil {
		free := slices.Contains(r.commit.Free, 1)
		events := slices.ContainsFunc(r.commit.Events, func(e store.EventRow) bool { return e.Shard == 1 })
		if free && events {
			t.Fatal("the batch that frees the shard writes to it")
		}
		r.commitNow()
	}

	r.settle()
	r.wantAnswer("in flight", "")
	r.wantAnswer("open", "")
	r.wantAnswer("waits for a read", "unavailable")
	if len(r.freed) != 1 {
		t.Errorf("freed = %v", r.freed)
	}
	if r.l.PendingBytes() != 0 {
		t.Errorf("%d bytes are held by nothing", r.l.PendingBytes())
	}
}

// The store is away while the lane gives up a shard. The lane waits without spinning.
func TestGiveUpWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := in(1, 0)
	r.startRun(a)
	r.signal(a, "1", "signal")
	r.flush()
	r.giveUp(1)

	for range 20 {
		r.fail(store.Away)
		r.now = r.now.Add(time.Second)
		r.flush()
		if r.commit == nil {
			t.Fatal("not sent again")
		}
		if at := r.l.Wake(); at != 0 && at <= r.now {
			t.Fatalf("wants to be woken at %s while a commit is in flight", at)
		}
	}

	r.settle()
	if len(r.freed) != 1 {
		t.Error("not freed")
	}
}

// Messages to a shard that moves away are not lost. When the shard comes back, its channels
// continue at their old positions.
func TestMessagesToAShardThatMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	from, to := in(0, 0), in(1, 0)
	r.startRun(from)
	r.startRun(to)
	r.turn(from, commandTurn(signalTo(to, "m1", "1")))
	r.settle()
	r.turn(from, commandTurn(signalTo(to, "m2", "2")))
	r.flush() // in flight when the shard is given up
	r.giveUp(1)
	r.turn(to, model.Turn{Waits: []model.Reason{{Code: model.WaitNothing}}})
	r.settle()
	r.turn(from, commandTurn(signalTo(to, "m3", "3")))
	r.settle()
	if len(r.freed) != 1 || len(r.mail) == 0 {
		t.Fatalf("freed %v, hints %v", r.freed, r.mail)
	}

	r.wantEvents(to, receivedNames(1, 2)...) // the second took effect in the batch that sent it
	r.acquire(1)
	r.settle()
	r.wantEvents(to, receivedNames(1, 3)...)
	r.turn(from, commandTurn(signalTo(to, "m4", "4")))
	r.settle()
	r.wantEvents(to, receivedNames(1, 4)...)
}

// A shard that has sent messages moves. The next owner continues with the next position.
func TestSenderMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	from, to := in(1, 0), in(0, 0)
	r.startRun(from)
	r.startRun(to)

	for i, m := range []string{"1", "2", "3"} {
		r.turn(from, model.Turn{Commands: []model.Command{signalTo(to, "m"+m, m)}, Waits: []model.Reason{{Code: model.WaitNothing}}})
		r.settle()
		// the code has received the answer
		r.turn(from, model.Turn{Waits: []model.Reason{{Code: model.WaitNothing}}})
		r.settle()
		r.freed = nil
		r.giveUp(1)
		r.settle()
		if len(r.freed) != 1 {
			t.Fatalf("round %d: not freed", i)
		}
		r.acquire(1)
		r.settle()
	}

	r.wantEvents(to, receivedNames(1, 3)...)
}

// After one page of runnable runs, the lane reads the next page.
func TestManyRunnableRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const n = 2100
	for i := range n {
		r.start(key(fmt.Sprint(i)), i)
	}
	r.settle()
	r.restart()
	r.join(1)
	r.settle()
	if len(r.held) != n {
		t.Errorf("%d of %d runs were taken up", len(r.held), n)
	}
}

// No worker offers the workflow when the shard is acquired: the runs wait, and the lane says why.
func TestRunnableWithoutWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := key("a")
	r.startRun(a)
	r.restart()
	r.settle()
	if why, ok := r.l.Explain(a); !ok || why[0].Code != model.WaitWorker || why[0].Name != "wf" {
		t.Errorf("explained as %v", why)
	}
	r.join(1, "another")
	r.settle()
	r.wantHolder(a, 0) // the worker does not offer the workflow
	r.join(2, "wf")
	r.settle()
	r.wantHolder(a, 2)
}

// park lets a worker hold a run that waits for a signal.
func (r *rig) park(a model.Address) model.RunID {
	r.t.Helper()
	run := r.startRun(a)
	r.turn(a, model.Turn{Waits: []model.Reason{{Code: model.WaitSignal, Name: "go"}}})
	r.settle()
	return run
}

// wantMoved checks that the shard is freed, no worker holds the run, and its history is complete.
func (r *rig) wantMoved(a model.Address, events ...string) {
	r.t.Helper()
	if len(r.freed) != 1 || r.holder(a) != 0 {
		r.t.Errorf("freed %v, held by %d; want it freed", r.freed, r.holder(a))
	}
	r.wantEvents(a, events...)
}

// wantKept checks that the shard is not freed, because a step may be running.
func (r *rig) wantKept(a model.Address) {
	r.t.Helper()
	if len(r.freed) != 0 || r.holder(a) == 0 {
		r.t.Fatalf("freed %v, held by %d; want the step to be waited for", r.freed, r.holder(a))
	}
}

// The worker of a run got new events and may have started a step. The lane waits for the step as
// for any other.
func TestGiveUpWaitsForWhoWasHandedNews(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := in(1, 0)
	r.park(a)
	r.signal(a, "go", "signal")
	r.settle()
	r.giveUp(1)
	r.pass(4 * time.Second)
	r.wantKept(a)
	r.turn(a, steps("x"))
	r.settle()
	r.wantMoved(a, "signal_received go", "step_completed x")
}

// The worker says that it has started no step after the new events, so the lane need not wait.
func TestGiveUpWaitsForNoStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := in(1, 0)
	r.park(a)
	r.signal(a, "another", "signal")
	r.settle()
	r.giveUp(1)
	r.settle()
	r.wantKept(a)
	r.turn(a, model.Turn{Waits: []model.Reason{{Code: model.WaitSignal, Name: "go"}}})
	r.settle()
	r.wantMoved(a, "signal_received another")
}

// Several steps run at the same time. The lane waits for all of them, whatever arrives, and no new
// step starts.
func TestGiveUpWaitsForEveryStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := in(1, 0)
	r.startRun(a)
	r.turn(a, model.Turn{Running: true, Waits: []model.Reason{{Code: model.WaitStep, Name: "x"}, {Code: model.WaitStep, Name: "y"}}})
	r.signal(a, "go", "signal") // committed while the lane gives up the shard
	r.flush()
	r.giveUp(1)
	r.settle()
	r.wantKept(a)
	first := steps("x")
	first.Running = true
	r.turn(a, first)
	r.settle()
	r.wantKept(a)
	r.turn(a, steps("y"))
	r.settle()
	r.wantMoved(a, "signal_received go", "step_completed x", "step_completed y")

	for _, c := range r.calls {
		if c.Kind == lane.CallDeliver {
			t.Errorf("%v was delivered: the worker could begin another step", c.Events)
		}
	}
}

// A step that the worker must repeat is running as soon as the worker gets the retry.
func TestGiveUpWaitsForARepeatedStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := in(1, 0)
	r.startRun(a)
	waits := []model.Reason{{Code: model.WaitRetry, Name: "x"}}
	failed := model.Command{Kind: model.CommandRetry, Delay: time.Second, Event: model.Event{ID: "x", Attempt: 1}}
	r.turn(a, model.Turn{Commands: []model.Command{failed}, Waits: waits})
	r.settle()
	r.turn(a, model.Turn{Waits: waits}) // the worker has seen that
	r.pass(time.Second)
	if last := r.calls[len(r.calls)-1]; last.Kind != lane.CallRetry {
		t.Fatalf("last call = %+v, want the worker to be told", last)
	}

	r.turn(a, model.Turn{Waits: waits}) // was in flight when the worker got the retry
	r.giveUp(1)
	r.pass(4 * time.Second)
	r.wantKept(a)
	r.turn(a, steps("x"))
	r.settle()
	r.wantMoved(a, "attempt_failed x", "step_completed x")
}

// A worker that leaves may finish the step that it runs, even if there is a new event for the run.
// After that the run goes to another worker.
func TestLeavingWorkerEndsItsStep(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := in(1, 0)
	r.startRun(a)
	r.l.Withdraw(r.now, 1)
	r.join(2)
	r.signal(a, "go", "signal")
	r.settle()
	r.wantHolder(a, 1) // the worker runs a step
	r.turn(a, steps("x"))
	r.settle()
	r.wantHolder(a, 2)
	r.wantEvents(a, "signal_received go", "step_completed x")
}

// The lane reads requests, then the shard leaves and comes back. The requests are out of date,
// because the owner in between may have served them.
func TestRequestsReadInAnEarlierTenure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := in(1, 0)
	r.startRun(a)
	r.turn(a, model.Turn{Waits: []model.Reason{{Code: model.WaitSignal, Name: "s"}}})
	r.settle()
	row := store.InboxRow{Shard: 1, ID: r.newRun(), Message: model.Message{Kind: model.MessageSignal, To: a, Name: "s"}}
	if err := r.st.PutInbox(t.Context(), []store.InboxRow{row}); err != nil {
		t.Fatal(err)
	}

	r.l.MailWaits()
	r.flush()
	i := slices.IndexFunc(r.loads, func(ld lane.Load) bool { return ld.Kind == lane.LoadMail })
	if i < 0 {
		t.Fatalf("the mail is not read: %+v", r.loads)
	}
	late := r.loads[i]
	r.loads = slices.Delete(r.loads, i, i+1)
	was := engine.Read(t.Context(), r.st, late, r.now)
	if len(was.Inbox) != 1 {
		t.Fatalf("read %+v", was)
	}

	r.giveUp(1)
	r.settle()
	if !slices.Contains(r.freed, 1) {
		t.Fatalf("freed %v", r.freed)
	}

	// Another node has the shard for a while and serves the request.
	other, err := r.st.Register(t.Context(), store.NodeInfo{ID: model.NodeID{0: 9}}, 1, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.st.Acquire(t.Context(), model.NodeID{0: 9}, other.Epoch, []model.ShardID{1}); err != nil {
		t.Fatal(err)
	}

	_, err = r.st.Commit(t.Context(), &store.Batch{
		Lane: store.LaneRef{Node: model.NodeID{0: 9}, Epoch: other.Epoch}, Number: 1, Inbox: []store.InboxKey{{Shard: 1, ID: row.ID}}, Free: []model.ShardID{1},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.acquire(1)
	r.l.FinishLoad(r.now, late.ID, was)

	r.refuse = func(b *store.Batch) error {
		if len(b.Inbox) > 0 {
			t.Errorf("a request that was read in an earlier tenure is served: %+v", b.Inbox)
		}
		return nil
	}

	r.settle()
	r.wantEvents(a)
}
