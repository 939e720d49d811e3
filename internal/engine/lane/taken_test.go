package lane_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// While the lane acquires a shard, a caller repeats the request that submitted a task there. The
// caller gets the remembered answer, and the lane does not read the run for it. No other input
// makes the lane read the run either. The task continues anyway.
func TestTaskIsTakenUpWhileItsRequestIsRepeated(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	m := theTask("t")
	m.RequestID, m.Reuse = "req", model.ReuseAlways
	r.send(m, "first")
	r.settle()
	b.restart()
	r.send(m, "again")
	r.settle()
	r.wantAnswer("again", "")
	b.propose()
	r.settle()
	b.report(b.one())
	r.settle()
	r.wantStatus(taskAt("t"), model.Completed)
}

// A claim is stored, and its worker leaves before it gets the claim, so the claim is lost. A
// refused batch undoes that loss while the lane gives up the shard. Now no worker has the claim,
// and the next owner would wait for a worker of this node. So the lane records the loss before the
// shard moves.
func TestShardIsNotFreedWithAForsakenClaim(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.join(1)
	a := taskAt("t")
	shard, bad := a.Shard(shards), key("bad")
	for i := 0; bad.Shard(shards) == shard; i++ {
		bad = key(fmt.Sprint("bad", i))
	}
	r.startRun(bad)
	r.send(theTask("t"), "t")
	r.settle()
	ref := model.TaskRef{Address: a, Run: r.current(a).Start.Run, ID: model.TaskStep}
	b.Slots(r.now, 1, 1)
	b.propose()
	r.flush()
	if r.commit == nil || len(r.commit.Events) != 1 {
		t.Fatal("the claim is not on its way")
	}

	b.Leave(r.now, 1)
	b.left = true
	r.l.Expire(r.now, model.ClaimRef{TaskRef: ref, Claim: 1}, true, model.FailureLost)
	r.turn(bad, steps("poison"))
	r.giveUp(shard)
	r.refuse = poison("poison")
	r.commitNow()
	r.settle()
	if len(b.claims()) != 0 {
		t.Fatal("a worker is told of a claim that has ended")
	}

	if !slices.Equal(r.freed, []model.ShardID{shard}) {
		t.Errorf("freed %v", r.freed)
	}
	if events := r.history(a, ref.Run); len(events) != 2 || events[1].Kind != model.EventAttemptFailed || events[1].Failure.Type != model.FailureLost {
		t.Errorf("history %+v: the claim has no worker, but stays", events)
	}
}

// The lane has read the history of a run for a worker, and the history waits for an event in
// flight. Then an operator terminates the run, and another run starts. A worker immediately gets
// the new run with its own history.
func TestTerminatedWhileItsHistoryWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.turn(a, steps("one"))
	r.settle()
	r.join(2)
	r.signal(a, "s", "signal")
	r.flush()
	if r.commit == nil {
		t.Fatal("the signal is not on its way")
	}

	b := r.commit
	r.l.Leave(r.now, 1)
	r.flush()
	r.read()
	r.order(model.MessageTerminate, a, "terminate")
	r.send(model.Message{Kind: model.MessageStart, To: a, Reuse: model.ReuseAlways}, "start")
	r.flush()
	r.read()
	if r.commit != b || len(b.Events) != 1 {
		t.Fatalf("the signal is not on its way any more: %+v", r.commit)
	}

	r.settle()
	r.wantAnswer("start", "")
	run := r.current(a).Start.Run
	if h := r.held[run]; h == nil || len(h.events) != 0 {
		t.Fatalf("the run that began is handed over as %+v", h)
	}
	r.signal(a, "s", "another")
	r.settle()
	if h := r.held[run]; h == nil || len(h.events) != 1 || h.events[0].Kind != model.EventSignalReceived {
		t.Errorf("the worker has %+v", h)
	}
}
