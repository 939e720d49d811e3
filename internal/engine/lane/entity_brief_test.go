package lane_test

import (
	"errors"
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The caller of a brief one-way call gets one answer, when the lane takes the call. A brief call is
// a call that runs at most once.
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

// A brief call runs at most once: a worker that leaves without a report may have run it.
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

// A brief call does not run again even if the store refuses another row of the same service.
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

// A waiter gets one error when the node is fenced, even if the result has arrived and is not
// applied yet.
func TestBriefCallWhenTheLaneDies(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := echo("a")
	r.operation(a, "echo", "1", "one", brief)
	r.settle()
	r.operation(a, "echo", "2", "two", func(m *model.Message) { m.RequestID = "is looked up" })
	r.serve(1) // the result waits behind the second call
	r.l.Die(errInjected)
	r.take()
	if got := r.answers["one"].Err; !errors.Is(got, lane.ErrInterrupted) {
		t.Errorf("its caller hears %v", got)
	}
}

// Another process sends a brief call, and it is unknown whether the call ran. The process gets an
// error, whatever happened to the owner, because no later owner would answer the call.
func TestBriefCallOfAnotherProcessIsAnswered(t *testing.T) {
	t.Parallel()
	a := echo("a")
	call := model.Message{Kind: model.MessageCall, To: a, Name: "echo", Input: model.TextPayload("x"), Brief: true}

	begun := func(r *rig) { r.settle() }
	for name, c := range map[string]struct {
		first, then func(r *rig)
		made        bool // the call runs in the end, because no worker can have started it before
	}{
		"dies while it is made": {begun, func(r *rig) { r.crashFenced(); r.operations = nil }, false},
		"dies with its row in the inbox": {
			func(r *rig) {
				for r.commit == nil {
					r.read()
				}
				if len(r.operations) > 0 {
					r.t.Error("it is begun before its request is consumed")
				}
			},
			func(r *rig) { r.crashFenced() }, true,
		},
		"moves while it is made": {begun, func(r *rig) {
			r.giveUp(0, 1, 2, 3)
			r.operations = nil
			r.settle()
			r.acquire(0, 1, 2, 3)
		}, false},
		"moves while its row is written": {
			func(r *rig) {
				for r.commit == nil {
					r.read()
				}
			},
			func(r *rig) {
				r.giveUp(0, 1, 2, 3)
				r.settle()
				r.acquire(0, 1, 2, 3)
			}, false,
		},
		"its worker leaves": {begun, func(r *rig) { r.leave(1); r.operations = nil }, false},
		"a refused batch": {begun, func(r *rig) {
			r.operation(a, "echo", "stored", "stored", oneWay)
			r.operation(ledger("b"), "add", "1", "another", oneWay)
			r.flush()
			r.fail(store.Refused)
			r.operations = nil
		}, false},
		"its worker gives it back": {begun, func(r *rig) {
			o := r.operations[0]
			r.operations = nil
			r.l.FinishCalls(r.now, o.Worker, &model.Operated{Entity: a, Generation: o.Operations.Generation})
			r.take()
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.joinEntities(1)
			r.operation(ledger("b"), "add", "0", "zero")
			r.work()
			key := r.post(call, "brief")
			c.first(r)
			c.then(r)
			r.settle()
			r.joinEntities(2)
			r.work()

			switch got := r.rememberedAnswer(key); {
			case got == nil:
				t.Error("the caller got no outcome")
			case c.made != (got.Failure == nil) || got.Failure != nil && got.Failure.Message != core.Interrupted:
				t.Errorf("it is told %+v", got)
			}

			if n := len(r.mailbox(a)) + r.inboxCount(); n != 0 {
				t.Errorf("%d rows are left", n)
			}
		})
	}
}

// A view that another process calls changes nothing, so it may run again.
func TestViewOfAnotherProcessIsMadeAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	key := r.post(model.Message{Kind: model.MessageCall, To: ledger("a"), Name: "read", Input: model.TextPayload("?"), Brief: true}, "view")
	r.settle()
	r.crashFenced()
	r.operations = nil
	r.settle()
	r.joinEntities(1)
	r.work()
	if got := r.rememberedAnswer(key); got == nil || string(got.Output.Data) != "?" {
		t.Errorf("it is told %+v", got)
	}
}
