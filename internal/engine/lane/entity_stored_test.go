package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The lane stores a call of a service before a worker runs it, unless the call is brief. This holds
// for callers of this process too. The commit of the answer removes the row.
func TestServiceCallIsStoredFirst(t *testing.T) {
	t.Parallel()
	a := echo("a")
	r := newRig(t)
	r.joinEntities(1)
	r.operation(a, "echo", "1", "first")
	r.operation(a, "echo", "2", "second", oneWay)

	for r.commit == nil {
		r.read()
		r.flush()
	}

	if len(r.operations) != 0 {
		t.Fatalf("%d calls are made before their rows are there", len(r.operations))
	}
	r.settle()
	if len(r.operations) != 2 || len(r.mailbox(a)) != 2 {
		t.Fatalf("%d calls are made, %d are stored, want both", len(r.operations), len(r.mailbox(a)))
	}

	r.wantSilence("first")
	r.work()
	r.wantOutput("first", "1")
	r.wantAnswer("second", "")
	if n := len(r.mailbox(a)); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// The next owner runs a stored call that has no answer yet.
func TestServiceCallOutlivesItsOwner(t *testing.T) {
	t.Parallel()
	a := echo("a")
	r := newRig(t)
	r.joinEntities(1)
	r.operation(a, "echo", "1", "first", func(m *model.Message) { m.RequestID = "req-1" })
	r.settle()
	if len(r.operations) != 1 {
		t.Fatalf("%d calls are made, want one", len(r.operations))
	}

	r.operations = nil // the process dies in the body
	r.restart()
	r.settle()
	r.joinEntities(1)
	r.work()
	if got := r.rememberedAnswer(store.RequestKey{Shard: a.Shard(shards), Address: a, ID: "req-1"}); got == nil || string(got.Output.Data) != "1" {
		t.Errorf("the call was answered %+v after the restart, want 1", got)
	}
}

// If a second call has the request id of a first call, the lane refuses the second call. The first
// call still starts only after its row is stored.
func TestRefusedServiceCallBeginsNothing(t *testing.T) {
	t.Parallel()
	a := echo("a")
	under := func(m *model.Message) { m.RequestID = "req-1" }
	r := newRig(t)
	r.joinEntities(1)
	r.operation(a, "echo", "1", "first", under)

	for r.commit == nil {
		r.read()
		r.flush()
	}

	r.operation(a, "echo", "2", "other", under)
	r.read()
	r.flush()
	if len(r.operations) != 0 {
		t.Fatal("a call is made before its row is there")
	}
	r.work()
	r.wantMisused("other", `call "echo"`)
	r.wantOutput("first", "1")
}
