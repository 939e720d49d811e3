package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The sender of an update gets the answer of the code once the answer is durable. Whenever the
// sender repeats the request, it gets the same answer.
func TestUpdate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.update(a, "req-1", "first")
	r.settle()

	r.update(a, "req-1", "pending")
	r.settle()
	r.wantSilence("first", "pending")
	r.turn(a, commandTurn(replyCommand(1, "42")))
	r.update(a, "req-1", "before the commit")
	r.flush()
	r.update(a, "req-1", "while it is in flight")
	r.wantSilence("first", "pending", "before the commit", "while it is in flight")
	r.settle()

	r.update(a, "req-1", "after")
	r.settle()
	r.release(a, "s")
	r.settle()
	r.update(a, "req-1", "unloaded")
	r.settle()

	for _, token := range []any{"first", "pending", "before the commit", "while it is in flight", "after", "unloaded"} {
		r.wantOutput(token, "42")
	}
	r.wantEvents(a, "update_received u", "update_answered answer 42")
}

// The owner may die at any moment. A caller that asks the next owner with the same id gets the same
// answer, or waits for it.
func TestUpdateOverTakeover(t *testing.T) {
	t.Parallel()
	a := key("a")
	for name, before := range map[string]func(r *rig){
		"before it is durable": func(r *rig) { r.update(a, "req-1", "first") },
		"while it is pending":  func(r *rig) { r.update(a, "req-1", "first"); r.settle() },
		"before the answer is": func(r *rig) {
			r.update(a, "req-1", "first")
			r.settle()
			r.turn(a, commandTurn(replyCommand(1, "42")))
		},
		"when the answer is, untold": func(r *rig) {
			r.update(a, "req-1", "first")
			r.settle()
			r.turn(a, commandTurn(replyCommand(1, "42")))
			r.flush()
			r.landUnheard()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			r.startRun(a)
			before(r)
			r.l.Die(store.Errorf(store.Fenced, "commit", "fenced"))
			r.take()
			r.wantAnswer("first", "unavailable")
			if n := r.l.Waiters(); n != 0 {
				t.Errorf("%d waiters are left", n)
			}
			r.restart()
			r.settle()
			r.join(1)
			r.update(a, "req-1", "second")
			r.settle()

			if _, told := r.answers["second"]; !told {
				r.turn(a, commandTurn(replyCommand(1, "42")))
				r.settle()
			}

			r.wantOutput("second", "42")
			r.wantEvents(a, "update_received u", "update_answered answer 42")
		})
	}
}

// An answer that the store refuses does not reach the caller. When the quarantine is over, the code
// gives the answer again.
func TestUpdateWithPoison(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, b := key("a"), key("b")
	r.startRun(a)
	r.startRun(b)
	r.update(a, "req-1", "a")
	r.update(b, "req-1", "b")
	r.settle()
	r.refuse = poison("answer bad")
	r.turn(a, commandTurn(replyCommand(1, "bad")))
	r.turn(b, commandTurn(replyCommand(1, "good")))
	r.settle()
	r.wantOutput("b", "good")
	r.wantSilence("a")
	r.refuse = nil
	r.pass(r.cfg.QuarantineFor + 2*60_000_000_000)
	r.turn(a, commandTurn(replyCommand(1, "better")))
	r.settle()
	r.wantOutput("a", "better")
	r.wantEvents(a, "update_received u", "update_answered answer better")
}

// If the store refuses an update, the lane refuses it, and the sender no longer waits.
func TestPoisonedUpdate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.refuse = poison("u")
	r.update(a, "req-1", "a")
	r.settle()
	r.wantAnswer("a", "blocked")
	if n := r.l.Waiters(); n != 0 {
		t.Errorf("%d waiters are left", n)
	}
}

// moments names the moments in the life of an update at which the tests interfere.
var moments = map[string]func(r *rig){
	"not durable": func(*rig) {}, "in flight": func(r *rig) { r.read(); r.flush() }, "pending": func(r *rig) { r.settle() },
}

// When the shard moves, waiting callers learn that they must ask the next owner.
func TestUpdateOfMovingShard(t *testing.T) {
	t.Parallel()
	a := key("a")
	for name, when := range moments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			r.startRun(a)
			r.rest(a)
			r.update(a, "req-1", "a")
			when(r)
			r.giveUp(a.Shard(shards))
			r.settle()
			r.pass(10_000_000_000)
			r.wantAnswer("a", "unavailable")
			r.wantEmpty()
		})
	}
}

// Whenever a caller gives up, the lane keeps nothing of its wait.
func TestForgottenUpdate(t *testing.T) {
	t.Parallel()
	a := key("a")
	for name, when := range moments {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			r.startRun(a)
			r.update(a, "req-1", "gone")
			when(r)
			r.l.Forget(a, "gone")
			r.settle()
			if n := r.l.Waiters(); n != 0 {
				t.Errorf("%d waiters are left", n)
			}

			r.update(a, "req-1", "again")
			r.settle()
			r.turn(a, model.Turn{Commands: []model.Command{replyCommand(1, "42")}, Waits: []model.Reason{{Code: model.WaitSignal}}})
			r.settle()
			r.wantOutput("again", "42")
			r.wantSilence("gone")
			r.release(a, "s")
			r.settle()
			r.wantEmpty()
		})
	}
}

// The lane consumes the row of an update of another process when it accepts the update. When the
// code has answered, the lane remembers the answer and sends the node a hint.
func TestUpdateByInbox(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	k := r.post(model.Message{Kind: model.MessageUpdate, To: a, Name: "u"}, "req-1")
	r.settle()
	if n := r.inboxCount(); n != 0 || r.rememberedAnswer(k) != nil || len(r.hints) != 0 {
		t.Errorf("%d rows are left, the answer is %v, hints %v", n, r.rememberedAnswer(k), r.hints)
	}

	// the sender repeats it, because it got no answer in time
	r.post(model.Message{Kind: model.MessageUpdate, To: a, Name: "u"}, "req-1")
	r.settle()
	r.turn(a, model.Turn{Commands: []model.Command{replyCommand(1, "42")}, Waits: []model.Reason{{Code: model.WaitSignal}}})
	r.settle()
	if ans := r.rememberedAnswer(k); ans == nil || string(ans.Output.Data) != "42" {
		t.Errorf("the answer is %+v", ans)
	}
	r.wantHint(a)
	if len(r.hints) != 1 {
		t.Errorf("the node is told %d times", len(r.hints))
	}
	r.post(model.Message{Kind: model.MessageUpdate, To: a, Name: "u"}, "req-1")
	r.settle()
	r.wantEvents(a, "update_received u", "update_answered answer 42")
	r.release(a, "s")
	r.settle()
	if n := r.inboxCount(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	r.wantEmpty()
}

// When a run ends, the same commit refuses its open updates. When a run continues as new, the next
// run answers them.
func TestUpdateAtTheEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.update(a, "begun", "begun")
	r.update(a, "waits", "waits")
	r.settle()

	r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued, Begun: []int64{1}}})
	r.settle()
	r.wantAnswer("begun", "conflict")
	r.wantSilence("waits")
	r.turn(a, commandTurn(replyCommand(1, "42")))
	r.settle()
	r.wantOutput("waits", "42")

	r.update(a, "late", "late")
	r.settle()
	r.order(model.MessageTerminate, a, "terminate")
	r.settle()
	r.wantAnswer("late", "conflict")
	r.update(a, "late", "late again")
	r.update(a, "later", "later")
	r.settle()
	r.wantAnswer("late again", "conflict")
	r.wantAnswer("later", "conflict")
	r.wantEmpty()
}

// A workflow sends a signal with a request id that was used before. The lane consumes the signal
// once, and the signal has no effect. The sender gets the first answer.
func TestRepeatedRequestOfWorkflow(t *testing.T) {
	t.Parallel()
	for _, quarantined := range []bool{false, true} {
		r := newRig(t)
		r.join(1)
		a, b := in(0, 0), in(1, 0)
		r.startRun(a)
		r.startRun(b)

		if quarantined {
			r.refuse = poison("bad")
			r.turn(b, steps("bad"))
			r.settle()
			r.refuse = nil
		} else {
			r.send(request(b, "s", "req-1"), "client")
			r.settle()
			r.wantAnswer("client", "")
		}

		send := signalTo(b, "send", "s")
		send.Message.RequestID = "req-1"
		r.turn(a, commandTurn(send))
		r.settle()

		if quarantined {
			r.pass(59_000_000_000)
			r.wantEvents(a, "sent send")
			r.pass(2_000_000_000)
			r.send(request(b, "s", "req-1"), "client")
			r.settle()
			r.l.MailWaits()
			r.settle()
			r.wantAnswer("client", "")
		}

		r.wantEvents(a, "sent send", "answered send")
		r.wantEvents(b, "signal_received s")
		left, _, err := r.st.LoadMessages(t.Context(), []model.ShardID{0, 1, 2, 3}, 100, 1<<30)
		if err != nil || len(left) != 0 || r.inboxCount() != 0 {
			t.Errorf("messages left: %+v, %v, and %d requests", left, err, r.inboxCount())
		}
	}
}

// The sender of an update to a certain run repeats the update when the next run already has it. The
// sender waits for the same answer. The lane must not refuse the repetition: it would remember the
// refusal under the request id, and could no longer store the answer.
func TestUpdateOfARunThatWentOn(t *testing.T) {
	t.Parallel()
	for name, goOn := range map[string]func(r *rig, a model.Address){
		"continued as new": func(r *rig, a model.Address) {
			r.turn(a, model.Turn{Seen: 1, Close: &model.Close{Status: model.Continued}})
		},
		"reset": func(r *rig, a model.Address) { r.reset(a, 1, "reset") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			a := key("a")
			run := r.startRun(a)
			m := model.Message{Kind: model.MessageUpdate, To: a, ToRun: run, Name: "u", RequestID: "req-1"}
			r.send(m, "first")
			r.settle()
			goOn(r, a)
			r.settle()

			r.send(m, "again")
			r.post(m, "req-1")
			r.settle()
			r.wantSilence("first", "again")
			r.turn(a, model.Turn{Seen: 1, Commands: []model.Command{replyCommand(1, "42")}})
			r.settle()
			r.wantOutput("first", "42")
			r.wantOutput("again", "42")
		})
	}
}
