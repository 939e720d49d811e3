package lane_test

import (
	"errors"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A brief call that nobody waits for is answered once, when it is taken.
func TestBriefOneWayIsAnsweredOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := echo("a")
	r.operation(a, "echo", "1", "made", brief, oneWay)
	r.work()
	r.wantAnswer("made", "")
	r.operation(a, "echo", "1", "moves", brief, oneWay)
	r.settle()
	r.giveUp(0, 1, 2, 3)
	r.settle()
	r.wantAnswer("moves", "")
}

// A brief call is made at most once: a worker that leaves without a word may have made it.
func TestBriefCallIsNotMadeAgainWhenItsWorkerLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := echo("a")
	for _, token := range []string{"one", "two", "three"} {
		r.operation(a, "echo", token, token, brief)
	}
	r.settle()
	r.leave(1)
	r.operations = nil
	r.joinEntities(2)
	r.work()
	for _, token := range []string{"one", "two"} {
		if got := r.answers[token].Err; !errors.Is(got, lane.ErrInterrupted) {
			t.Errorf("%s hears %v", token, got)
		}
	}
	r.wantOutput("three", "three")
}

// Nor is it made again when something else of its service could not be stored.
func TestBriefCallIsNotMadeAgainAfterARefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := echo("a")
	r.operation(ledger("b"), "add", "0", "zero")
	r.work()
	r.operation(a, "echo", "one", "one", brief)
	r.operation(a, "echo", "two", "two", brief)
	r.operation(a, "echo", "three", "three", brief)
	r.settle()
	r.operation(a, "echo", "stored", "stored", oneWay)
	r.operation(ledger("b"), "add", "1", "another", oneWay)
	r.flush()
	r.fail(store.Refused)
	r.operations = nil
	r.work()
	for _, token := range []string{"one", "two"} {
		if got := r.answers[token].Err; !errors.Is(got, lane.ErrInterrupted) {
			t.Errorf("%s hears %v", token, got)
		}
	}
	r.wantOutput("three", "three")
	if n := len(r.mailbox(a)); n != 0 {
		t.Errorf("%d items are left", n)
	}
}

// Whoever waits is told once that the node is fenced, also when the result has come and has not been applied.
func TestBriefCallWhenTheLaneDies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := echo("a")
	r.operation(a, "echo", "1", "one", brief)
	r.settle()
	r.operation(a, "echo", "2", "two", func(m *model.Message) { m.RequestID = "is looked up" })
	r.serve(1) // the result waits behind it
	r.l.Die(errInjected)
	r.take()
	if got := r.answers["one"].Err; !errors.Is(got, lane.ErrInterrupted) {
		t.Errorf("its caller hears %v", got)
	}
}
