package lane_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// A task of an acquired shard continues although a caller repeats the request that submitted it at
// that moment: the answer is remembered, and no other input asks for the run.
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

// A claim is stored, and its worker leaves before it gets the claim: the lane counts it as lost. A
// refused batch undoes that loss while the shard is being given up. Now no worker has the claim,
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

// The history of a run has been read for a worker and waits for an event in flight. Then the run is
// terminated, and another one starts: a worker gets the new run with its own history, at once.
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
