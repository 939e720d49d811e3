package lane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A requeue that shares a batch with a poison row is applied again, with the letter read again; the
// one behind it hears what it has begun.
func TestRequeueBesidePoison(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := model.Address{Tenant: model.DefaultTenant, Type: model.TaskPrefix + "work", Key: "a"}
	spec := &model.TaskSpec{Kind: "work", Queue: "q", ToStart: time.Second}
	r.send(model.Message{Kind: model.MessageStart, To: a, Task: spec}, "start")
	r.settle()
	old := r.current(a).Start.Run
	ref := model.TaskRef{Address: a, Run: old, ID: model.TaskStep}
	r.now = r.now.Add(time.Minute)
	r.l.Expire(r.now, model.ClaimRef{TaskRef: ref}, false, model.TimeoutToStart)
	r.settle()

	letter := func() *store.DeadRow {
		row, err := r.st.LoadDead(t.Context(), store.DeadKey{RunKey: store.RunKey{Shard: a.Shard(shards), Run: old}, Task: model.TaskStep})
		if err != nil || row == nil {
			t.Fatalf("the letter: %+v, %v", row, err)
		}
		return row
	}
	if n := letter().Requeued; n != 0 {
		t.Fatalf("requeued %d times", n)
	}

	poison := model.Address{Tenant: model.DefaultTenant, Type: "wf", Key: "poison"}
	refused := 0
	r.refuse = func(b *store.Batch) error {
		if slices.ContainsFunc(b.Starts, func(s store.StartRow) bool { return s.Start.Address == poison }) {
			refused++
			return store.Errorf(store.Refused, "commit", "poison")
		}
		return nil
	}

	order := model.Message{Kind: model.MessageRequeue, To: a, DeadTask: &model.DeadTaskOrder{Do: model.DeadTaskRequeue, Ref: ref}}
	first, second := order, order
	first.RequestID, second.RequestID = "1", "2"

	// The letter is read first, so the poison is sent when the requeue is about to be applied.
	r.l.Deliver(r.now, &first, true, "first")
	r.l.Deliver(r.now, &second, true, "second")
	r.flush()

	for len(r.loads) > 0 && r.commit == nil {
		if slices.ContainsFunc(r.loads, func(ld lane.Load) bool { return ld.Task == model.TaskStep }) {
			r.l.Deliver(r.now, &model.Message{Kind: model.MessageStart, To: poison}, true, "poison")
		}
		r.read()
	}

	r.settle()
	r.wantAnswer("first", "")
	r.wantAnswer("second", "")
	if refused == 0 {
		t.Error("nothing was refused: the test tests nothing")
	}
	row, now := letter(), r.current(a).Start.Run
	if row.Requeued != 1 || row.Body.Requeued.Run != now || now == old {
		t.Errorf("requeued %d times as %s, the run is %s", row.Requeued, row.Body.Requeued.Run, now)
	}
	if got := r.answers["second"].Answer; !got.Existing || got.Run != now {
		t.Errorf("the second one hears %+v", got)
	}
}

// The shard is given up while a dead letter is being read for somebody. What has come behind that
// and is a fact is not left lying: the shard would never be freed.
func TestDrainWhileLetterIsRead(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 2)
	r.join(1)
	a := key("wf")
	run := r.began(a)
	r.turn(a, does(taskCommand("t")))
	r.settle()
	c := b.one()
	r.send(model.Message{Kind: model.MessageRequeue, To: a, DeadTask: &model.DeadTaskOrder{
		Do: model.DeadTaskRequeue, Ref: model.TaskRef{Address: a, Run: run, ID: "another"},
	}}, "requeue")
	r.flush()
	if len(r.loads) != 1 || r.loads[0].Kind != lane.LoadDeadTask {
		t.Fatalf("reads %+v, want the letter", r.loads)
	}

	b.report(c)
	r.giveUp(a.Shard(shards))
	r.settle()
	r.pass(time.Minute)
	r.wantAnswer("requeue", "unavailable")
	b.wantSettled(c, "")
	if len(r.freed) != 1 {
		t.Error("the shard is not freed")
	}
}
