package lane_test

import (
	"errors"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// elsewhere is the token of a caller of another node.
type elsewhere string

func (elsewhere) IsForwarded() {}

// stopping is a rig of a server that is about to stop, with a worker that has calls of a service
// and of an entity.
func stopping(t *testing.T) *rig {
	r := newRig(t, withReunion)
	r.joinEntities(1)
	r.operation(echo("a"), "echo", "one", "first", brief)
	r.operation(echo("a"), "echo", "two", "second", brief)
	r.operation(ledger("a"), "add", "3", "add")
	r.settle()
	if len(r.operations) != 3 {
		t.Fatalf("the worker has %d hand-overs, want 3", len(r.operations))
	}
	return r
}

// wantErr checks which error the caller with a token got.
func (r *rig) wantErr(token any, want error) {
	r.t.Helper()
	if got := r.answers[token].Err; !errors.Is(got, want) {
		r.t.Errorf("the caller of %v got %v, want %v", token, got, want)
	}
}

// A server stops and its workers leave. A brief call that no worker has begun gets an answer at
// once: no worker can begin it before the shard moves. Its caller may make it again.
func TestBriefCallsThatHaveNotBegunWhenTheServerStops(t *testing.T) {
	t.Parallel()
	r := stopping(t)
	r.operation(echo("a"), "echo", "three", "waits for its turn", brief)
	r.operation(ledger("a"), "add", "4", "waits behind an operation", brief)
	r.operation(model.Address{Tenant: "default", Type: "service:nobody", Key: "k"}, "do", "", "has no code", brief)
	r.operation(echo("a"), "echo", "four", elsewhere("forwarded"), brief)
	r.settle()
	r.wantSilence("waits for its turn", "waits behind an operation", "has no code")

	r.l.Hurry()
	r.take()
	r.wantErr("has no code", lane.ErrStopping)
	r.wantSilence("waits for its turn", "waits behind an operation")
	r.leave(1)
	r.operations = nil
	r.wantErr("first", lane.ErrInterrupted)
	r.wantErr("second", lane.ErrInterrupted)
	r.wantErr("waits for its turn", lane.ErrStopping)
	r.wantErr("waits behind an operation", lane.ErrStopping)

	r.operation(echo("a"), "echo", "five", "late", brief)
	r.operation(ledger("b"), "add", "5", "late for an entity", brief)
	r.settle()
	r.wantErr("late", lane.ErrStopping)
	r.wantErr("late for an entity", lane.ErrStopping)

	// Another node can wait for the move of the shard, and then asks the next owner.
	r.wantSilence("add", elsewhere("forwarded"))
	r.giveUp(0, 1, 2, 3)
	r.settle()
	r.wantErr(elsewhere("forwarded"), lane.ErrNotOwner)
}

// A server stops while a worker of another node works for it. That worker gets the brief calls that
// it can begin.
func TestBriefCallsGoToAWorkerOfAnotherNodeWhenTheServerStops(t *testing.T) {
	t.Parallel()
	r := stopping(t)
	r.l.JoinEntitiesAway(r.now, 2, model.EntityOffer{Tenant: "default", Types: []model.EntityType{
		{Type: "entity:ledger", Views: []string{"read"}}, {Type: "service:echo", Concurrency: 2},
	}}, r.slotsOf(2))
	r.take()
	r.operation(ledger("a"), "add", "4", "waits behind an operation", brief)
	r.settle()
	r.l.Hurry()
	r.leave(1)
	r.operations = nil
	r.operation(echo("b"), "echo", "four", "late", brief)
	r.operation(ledger("b"), "add", "5", "late for an entity", brief)
	r.work()
	r.wantErr("waits behind an operation", lane.ErrStopping)
	r.wantOutput("late", "four")
	r.wantOutput("late for an entity", "5;")
}

// A node that stops and whose workers do not outlive it keeps its brief calls for the workers that
// it still has.
func TestBriefCallsOfANodeThatIsNoServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	r.l.Hurry()
	r.leave(1)
	r.operation(echo("a"), "echo", "one", "first", brief)
	r.settle()
	r.wantSilence("first")
}

// A server stops before the workers of the last owner have come back. A brief call of an entity
// that such a worker holds does not wait for the end of the reunion, because these workers cannot
// join this server.
func TestBriefCallsDuringAReunionWhenTheServerStops(t *testing.T) {
	t.Parallel()
	r := newRig(t, withReunion)
	r.joinEntities(1)
	r.operation(ledger("a"), "add", "1", "stored", oneWay)
	r.settle()
	r.crashFenced()
	r.operations = nil
	r.settle()
	r.joinEntities(2)
	r.operation(ledger("a"), "add", "2", "waits", brief)
	r.settle()
	r.wantSilence("waits")
	r.l.Hurry()
	r.take()
	r.wantErr("waits", lane.ErrStopping)
}

// A section waits for the lock of an entity behind a brief call that the stop of the server ends.
// The section gets the lock before the server has stopped.
func TestLockBehindABriefCallThatHasNotBegunWhenTheServerStops(t *testing.T) {
	t.Parallel()
	r := newRig(t, withReunion)
	r.join(1)
	from := in(0, 0)
	r.startRun(from)
	r.operation(ledger("a"), "add", "1", "no code", brief)
	r.settle()
	r.turn(from, commandTurn(lockOf("s", "a")))
	r.settle()
	r.wantSilence("no code")
	r.wantEvents(from, "lock_asked s")

	r.l.Hurry()
	r.settle()
	r.wantErr("no code", lane.ErrStopping)
	r.wantEvents(from, "lock_asked s", "lock_granted s")
}
