package lane_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A requeue shares a batch with a row that the store refuses. The lane reads the dead task again
// and applies the requeue again. A second requeue behind it gets the run that the first one
// started.
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

	deadTask := func() *store.DeadRow {
		row, err := r.st.LoadDead(t.Context(), store.DeadKey{RunKey: store.RunKey{Shard: a.Shard(shards), Run: old}, Task: model.TaskStep})
		if err != nil || row == nil {
			t.Fatalf("the dead task: %+v, %v", row, err)
		}
		return row
	}
	if n := deadTask().Requeued; n != 0 {
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

	// The lane first reads the dead task. The test sends the poison when the lane is about to apply
	// the requeue.
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
		t.Error("nothing was refused: the test proves nothing")
	}
	row, now := deadTask(), r.current(a).Start.Run
	if row.Requeued != 1 || row.Body.Requeued.Run != now || now == old {
		t.Errorf("requeued %d times as %s, the run is %s", row.Requeued, row.Body.Requeued.Run, now)
	}
	if got := r.answers["second"].Answer; !got.Existing || got.Run != now {
		t.Errorf("the second one gets %+v", got)
	}
}

// The lane gives up the shard while it reads a dead task for a request. It still handles a fact
// that arrived behind the request. Otherwise it could never free the shard.
func TestDrainWhileDeadTaskIsRead(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 2)
	r.join(1)
	a := key("wf")
	run := r.startRun(a)
	r.turn(a, commandTurn(taskCommand("t")))
	r.settle()
	c := b.one()
	r.send(model.Message{Kind: model.MessageRequeue, To: a, DeadTask: &model.DeadTaskOrder{
		Do: model.DeadTaskRequeue, Ref: model.TaskRef{Address: a, Run: run, ID: "another"},
	}}, "requeue")
	r.flush()
	if len(r.loads) != 1 || r.loads[0].Kind != lane.LoadDeadTask {
		t.Fatalf("reads %+v, want the dead task", r.loads)
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

// An operator removes an unreadable dead task with an address that names only the shard. The lane
// accepts such a removal only for a dead task that it cannot read, and accepts no other order for
// an unreadable dead task.
func TestPurgeOfADamagedDeadTask(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := model.Address{Tenant: model.DefaultTenant, Type: model.TaskPrefix + "work", Key: "a"}
	r.send(model.Message{Kind: model.MessageStart, To: a, Task: &model.TaskSpec{Kind: "work", Queue: "q", ToStart: time.Second}}, "start")
	r.settle()
	ref := model.TaskRef{Address: a, Run: r.current(a).Start.Run, ID: model.TaskStep}
	r.now = r.now.Add(time.Minute)
	r.l.Expire(r.now, model.ClaimRef{TaskRef: ref}, false, model.TimeoutToStart)
	r.settle()

	other := model.Address{Tenant: model.DefaultTenant, Type: model.TaskPrefix + "damaged"}
	for i := 0; other.Key == "" || other.Shard(shards) != a.Shard(shards); i++ {
		other.Key = strconv.Itoa(i)
	}
	ref.Address = other
	dead := func() bool {
		row, err := r.st.LoadDead(t.Context(), store.DeadKey{RunKey: store.RunKey{Shard: a.Shard(shards), Run: ref.Run}, Task: ref.ID})
		if err != nil {
			t.Fatal(err)
		}
		return row != nil
	}
	order := func(what string, o model.DeadTaskOrder, bad error) error {
		t.Helper()
		o.Ref = ref
		r.reads = func(ld *lane.Load) *lane.LoadResult {
			if ld.Kind != lane.LoadDeadTask || bad == nil {
				return nil
			}
			return &lane.LoadResult{Err: bad}
		}
		r.send(model.Message{Kind: model.MessageRequeue, To: other, DeadTask: &o}, what)
		r.settle()
		a, told := r.answers[what]
		if !told {
			t.Fatalf("%s is not answered", what)
		}
		return a.Err
	}

	bad, newer := error(fault.New(fault.Corrupt, "no dead task")), error(fault.New(fault.Corrupt, "%w", model.ErrNewer))
	for _, c := range []struct {
		what string
		o    model.DeadTaskOrder
		err  error
		want fault.Kind
	}{
		{"a removal of one that can be read", model.DeadTaskOrder{Do: model.DeadTaskPurge, Damaged: true}, nil, fault.Conflict},
		{"a removal by someone who believes to have read it", model.DeadTaskOrder{Do: model.DeadTaskPurge}, bad, fault.Corrupt},
		{"a removal of one of a newer build", model.DeadTaskOrder{Do: model.DeadTaskPurge, Damaged: true}, newer, fault.Corrupt},
		{"a requeue", model.DeadTaskOrder{Do: model.DeadTaskRequeue, Damaged: true}, bad, fault.Corrupt},
	} {
		if err := order(c.what, c.o, c.err); fault.KindOf(err) != c.want || !dead() {
			t.Errorf("%s: %v, still there: %t", c.what, err, dead())
		}
	}
	if err := order("the removal", model.DeadTaskOrder{Do: model.DeadTaskPurge, Damaged: true}, bad); err != nil || dead() {
		t.Errorf("the removal: %v, still there: %t", err, dead())
	}
}
