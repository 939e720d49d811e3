package lane_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// joinStates adds a worker that knows states up to a version.
func (r *rig) joinStates(w lane.WorkerID, version int) {
	r.l.JoinEntities(r.now, w, model.EntityOffer{Tenant: "default", Types: []model.EntityType{
		{Type: "entity:ledger", Views: []string{"read"}, StateVersion: version},
	}}, r.slotsOf(w))
	r.take()
}

// serveVersion answers the first hand-over with a state of the given version.
func (r *rig) serveVersion(version int) (by lane.WorkerID) {
	r.t.Helper()
	if len(r.operations) == 0 {
		r.t.Fatal("no worker has calls")
	}
	o := r.operations[0]
	r.operations = r.operations[1:]
	res := operateResult(&o.Operations)
	res.State = res.State.WithStateVersion(version)
	r.l.FinishCalls(r.now, o.Worker, &res)
	r.take()
	r.settle()
	return o.Worker
}

// During a rolling deploy, calls go to workers that know the version of the state. If there is no
// such worker, the calls wait, and the lane says why. They run as soon as such a worker joins.
func TestCallsWaitForStateVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("a")
	r.joinStates(1, 0)
	r.joinStates(2, 2)
	for i := range 4 {
		r.operation(a, "add", "1", i)
		r.settle()
		if by := r.serveVersion(2); i > 0 && by != 2 {
			t.Errorf("call %d went to worker %d, which does not know the version of the state", i, by)
		}
	}

	r.leave(2)
	r.operation(a, "add", "2", "op")
	r.operation(a, "read", "", "view")
	r.operation(ledger("b"), "add", "3", "other")
	r.settle()
	if len(r.operations) != 1 || r.operations[0].Operations.Entity != ledger("b") {
		t.Fatalf("worker 1 has %+v", r.operations)
	}
	why, ok := r.l.Explain(a)
	want := "waits for a worker that offers state version 2 of entity ledger"
	if !ok || len(why) != 1 || why[0].String() != want || why[0].Code != model.WaitWorker {
		t.Errorf("%v, %v", why, ok)
	}

	r.operations = nil
	r.joinStates(3, 3)
	r.settle()
	if len(r.operations) == 0 {
		t.Fatal("the calls still wait")
	}
	for _, o := range r.operations {
		if o.Worker != 3 || o.Operations.State.StateVersion() != 2 {
			t.Errorf("%+v", o)
		}
	}
	if why, ok := r.l.Explain(a); ok && why[0].Code == model.WaitWorker {
		t.Errorf("%v", why)
	}
}

// Calls wait for a worker that knows the version of the state. An edit or a deletion of the state
// ends the wait if a worker knows the version of the new state.
func TestEditKeepsStateVersion(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("a")
	r.joinStates(1, 2)
	r.operation(a, "add", "1", "one")
	r.settle()
	r.serveVersion(2)
	edit := func(id string, token any) {
		m := model.Message{Kind: model.MessageMailbox, Name: model.MailboxEdit, To: a, ID: id, Input: model.TextPayload("edited"), RequestID: "edit " + id}
		r.l.Deliver(r.now, &m, true, token)
		r.take()
		r.settle()
	}
	edit("1", "edit")
	r.operation(a, "add", "2", "two")
	r.settle()
	if o := r.operations; len(o) != 1 || string(o[0].Operations.State.Data) != "edited" || o[0].Operations.State.StateVersion() != 2 {
		t.Fatalf("%+v", o)
	}
}

// The lane passes an interrupt on to the workers that have calls of the entity. The interrupt names
// a call only if the operator has named one.
func TestInterruptGoesToWorkers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	ask := func(id string, token any) {
		r.l.Deliver(r.now, &model.Message{Kind: model.MessageMailbox, Name: model.MailboxInterrupt, To: a, ID: id}, true, token)
		r.take()
		r.settle()
	}
	ask("", "none")
	if len(r.interrupts) > 0 {
		t.Errorf("nothing runs: %+v", r.interrupts)
	}
	r.operation(a, "add", "1", "one")
	r.settle()
	r.operation(a, "add", "2", "waits")
	r.operation(a, "read", "", "view")
	r.settle()
	ask("", "any")
	gen := r.operations[0].Operations.Generation
	want := []lane.InterruptCall{{Worker: 1, Interruption: model.Interruption{Entity: a, Generation: gen, Call: model.AnyCall}}}
	if diff := cmp.Diff(want, r.interrupts); diff != "" {
		t.Error(diff)
	}

	// The calls end with the report of the worker, as always.
	r.work()
	r.wantState(a, "1;2;")
	r.interrupts = nil
	ask("", "late")
	if len(r.interrupts) > 0 {
		t.Errorf("nothing runs any longer: %+v", r.interrupts)
	}
}
