package lane_test

import (
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// When the entity moves, every caller whose call exists only in memory gets an answer. This
// includes callers that wait behind others.
func TestEntityMovesWithBriefCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	r.operation(a, "add", "1", "begun", brief)
	r.settle()
	for _, token := range []string{"two", "three", "four"} {
		r.operation(a, "add", token, token, brief)
	}
	r.giveUp(0, 1, 2, 3)
	r.settle()

	for _, token := range []string{"two", "three", "four"} {
		if got := r.answers[token].Err; !errors.Is(got, lane.ErrNotOwner) {
			t.Errorf("%s hears %v", token, got)
		}
	}

	if got := r.answers["begun"].Err; !errors.Is(got, lane.ErrInterrupted) {
		t.Errorf("the call that had begun hears %v", got)
	}
}

// A call waits only in memory when the same request arrives through another process. The lane
// stores the call, because the row of the request in the inbox is gone, and no process would ask
// again.
func TestEntityRequestRepeatedElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("a")
	same := model.Message{Kind: model.MessageCall, To: a, Name: "add", Input: model.TextPayload("1")}
	r.operation(a, "add", "1", "here", func(m *model.Message) { m.RequestID = "same" })
	r.settle()
	key := r.post(same, "same")
	r.settle()
	if n := r.inboxCount(); n != 0 {
		t.Fatalf("%d requests wait", n)
	}

	r.crashFenced()
	r.settle()
	r.joinEntities(1)
	r.work()
	if got := r.rememberedAnswer(key); got == nil || string(got.Output.Data) != "1;" {
		t.Errorf("the other process finds %+v", got)
	}
	r.wantState(a, "1;")
}

// A brief call of another process runs at most once: no worker starts the call before its row in
// the inbox is gone.
func TestBriefCallOfAnotherProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	key := r.post(model.Message{Kind: model.MessageCall, To: a, Name: "add", Input: model.TextPayload("1"), Brief: true}, "brief")
	for r.commit == nil {
		r.read()
	}
	r.fail(store.Refused)
	r.settle()
	if len(r.operations) > 0 {
		t.Fatal("it is made while its row is there")
	}

	r.pass(r.cfg.QuarantineFor + 2*time.Minute)
	r.l.MailWaits()
	r.settle()
	if len(r.operations) != 1 || r.inboxCount() != 0 {
		t.Fatalf("%d hand-overs, %d rows", len(r.operations), r.inboxCount())
	}
	r.work()
	r.wantState(a, "1;")
	if got := r.rememberedAnswer(key); got == nil || string(got.Output.Data) != "1;" {
		t.Errorf("the other process finds %+v", got)
	}
	r.post(model.Message{Kind: model.MessageCall, To: a, Name: "add", Input: model.TextPayload("2"), Brief: true}, "lost")
	r.settle()
	r.crashFenced() // while the call runs: no worker runs it again
	r.operations = nil
	r.settle()
	r.joinEntities(1)
	r.work()
	r.wantState(a, "1;")
}

// An operation sends a message with a request id that was served before. The message changes
// nothing, and does not delay the messages behind it on the same channel.
func TestEntitySendsARequestAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a, b := ledger("a"), ledger("b")

	sends := func(token string, ms ...model.Message) {
		r.operation(a, "fail", "", token)
		r.settle()
		o := r.operations[0]
		r.operations = r.operations[1:]
		res := model.Operated{Entity: a, Generation: o.Operations.Generation, Results: []model.OperationResult{{Messages: ms}}}
		r.l.FinishCalls(r.now, o.Worker, &res)
		r.take()
		r.work()
		r.wantAnswer(token, "")
	}

	call := func(in, request string) model.Message {
		return model.Message{Kind: model.MessageCall, To: b, Name: "add", Input: model.TextPayload(in), OneWay: true, RequestID: request, Keep: true}
	}
	sends("first", call("1", "same"))
	r.wantState(b, "1;")
	sends("again", call("1", "same"), call("2", ""))
	r.wantState(b, "1;2;")
	r.startRun(key("x"))
	signal := model.Message{Kind: model.MessageSignal, To: key("x"), Name: "s", RequestID: "same", Keep: true}
	sends("signal", signal)
	sends("signal again", signal)
	r.wantEvents(key("x"), "signal_received s")
	if n := r.inboxCount(); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// A lock that waited behind a call is granted when the call is lost with its owner, although no
// further input comes.
func TestLockBehindACallThatIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := ledger("a")
	r.startRun(key("run"))
	r.operation(a, "add", "1", "nobody has the code")
	r.settle()
	r.lock("run", a)
	if n := len(r.mailbox(a)); n != 1 {
		t.Fatalf("%d items wait, want the lock", n)
	}

	r.crashFenced()
	r.settle()
	got, err := r.st.LoadEntity(t.Context(), store.EntityKey{Shard: a.Shard(shards), Address: a}, 10, 1<<20)
	if err != nil || got.Entity == nil || got.Entity.Holder.Address != key("run") || len(got.Mailbox) > 0 {
		t.Errorf("the entity is %+v, %d items wait, %v", got.Entity, len(got.Mailbox), err)
	}
}

// When the lane gives up a shard, it refuses the inputs that wait for an entity of the shard, and
// forgets everything about these inputs. It does this even while a lock waits for its turn.
func TestEntityMovesWhileALockWaits(t *testing.T) {
	t.Parallel()
	for _, repeated := range []string{"another", "first"} {
		r := newRig(t)
		r.join(1)
		a := ledger("a")
		r.startRun(key("run"))

		ask := func(request, token string) {
			r.l.Deliver(r.now, &model.Message{Kind: model.MessageCall, To: a, Name: "add", Input: model.TextPayload("1"), RequestID: request}, false, token)
			r.take()
		}

		ask("first", "in memory")
		r.settle()
		r.lock("run", a)
		// The request may have been served before. The call waits until the lane has looked for an
		// answer.
		ask(repeated, "waits")
		r.giveUp(0, 1, 2, 3)
		r.settle()
		r.pass(r.cfg.DrainWait * 2)
		r.settle()

		for _, token := range []string{"in memory", "waits"} {
			if got := r.answers[token].Err; !errors.Is(got, lane.ErrNotOwner) {
				t.Errorf("%s hears %v", token, got)
			}
		}

		if n := r.l.PendingBytes(); n != 0 {
			t.Errorf("%d bytes are held by nothing (the request that waits is %s)", n, repeated)
		}
	}
}

// When a report is finished, the lane subtracts as many bytes as it had added, even if it has
// removed parts of the report that are not allowed.
func TestImproperReportLeavesNoBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	r.operation(a, "add", "1", "one")
	r.settle()
	o := r.operations[0]
	r.operations = nil
	res := operateResult(&o.Operations)
	res.Results[0].Output = model.TextPayload("much to say")
	res.Results[0].Messages = []model.Message{{Kind: model.MessageGrant, To: key("x")}}
	r.l.FinishCalls(r.now, o.Worker, &res)
	r.take()
	r.work()
	if f := r.answers["one"].Answer.Failure; f == nil {
		t.Error("a call that sends a grant succeeds")
	}
	if n := r.l.PendingBytes(); n != 0 {
		t.Errorf("%d bytes are held by nothing", n)
	}
}
