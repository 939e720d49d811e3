package lane_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// wantMisused checks that the lane refused a request because its id belongs to another request.
func (r *rig) wantMisused(token any, words ...string) {
	r.t.Helper()
	r.wantAnswer(token, fault.Conflict.String())
	if a := r.answers[token]; a.Err != nil {
		for _, w := range words {
			if !strings.Contains(a.Err.Error(), w) {
				r.t.Errorf("%q does not say %s", a.Err, w)
			}
		}
	}
}

func wantWords(t testing.TB, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q does not say %s", text, w)
		}
	}
}

// storedRefusal returns the refusal that the owner stored for the inbox row of another process, or
// nil.
func (r *rig) storedRefusal(a model.Address, row model.RunID) *model.Answer {
	r.t.Helper()
	return r.rememberedAnswer(store.RequestKey{Shard: a.Shard(shards), Address: a, ID: model.RefusedIDs + row.String()})
}

// putRow puts a request of another process into the inbox, without a notice to the lane.
func (r *rig) putRow(m model.Message) model.RunID {
	r.t.Helper()
	m.Node = guest
	row := store.InboxRow{Shard: m.To.Shard(shards), ID: r.newRun(), Message: m}
	if err := r.st.PutInbox(r.t.Context(), []store.InboxRow{row}); err != nil {
		r.t.Fatal(err)
	}
	return row.ID
}

// secondComes names the moments at which the second request may come. Each function does what must
// happen before that moment.
var secondComes = map[string]func(r *rig, a model.Address){
	"in the same batch":             func(*rig, model.Address) {},
	"while the first is in flight":  func(r *rig, _ model.Address) { r.read(); r.flush() },
	"after the first":               func(r *rig, _ model.Address) { r.settle() },
	"after the run left the memory": func(r *rig, a model.Address) { r.settle(); r.release(a, "s"); r.settle() },
	"after a restart":               func(r *rig, _ model.Address) { r.settle(); r.restart(); r.settle(); r.join(1) },
}

// A request id belongs to one kind, one name and one input. The lane refuses another request with
// the same id, whenever and from wherever it comes. A repetition of the first request still gets
// its answer.
func TestMisusedRequestID(t *testing.T) {
	t.Parallel()
	a := key("a")
	with := func(m model.Message, input string) model.Message {
		m.Input = model.TextPayload(input)
		return m
	}

	signal := request(a, "s", "req-1")
	cases := map[string]struct {
		first, second model.Message
		events        string
		words         []string
	}{
		"another name":  {signal, request(a, "t", "req-1"), "signal_received s", []string{`"req-1"`, a.String(), `signal "s"`, `signal "t"`}},
		"another input": {with(signal, "1"), with(signal, "2"), "signal_received s", []string{`"req-1"`, `signal "s"`, "another input"}},
		"another kind":  {signal, model.Message{Kind: model.MessageSettle, To: a, Name: "s", RequestID: "req-1"}, "signal_received s", []string{`signal "s"`, `settle "s"`}},
		"another failure": {
			model.Message{Kind: model.MessageSettle, To: a, Name: "p", RequestID: "req-1"},
			model.Message{Kind: model.MessageSettle, To: a, Name: "p", RequestID: "req-1", Failure: &model.Failure{Message: "no"}},
			"promise_settled p", nil,
		},
		"resume after pause": {
			model.Message{Kind: model.MessagePause, To: a, RequestID: "req-1"}, model.Message{Kind: model.MessageResume, To: a, RequestID: "req-1"}, "paused", []string{"pause", "resume"},
		},
		"terminate after cancel": {
			model.Message{Kind: model.MessageCancel, To: a, RequestID: "req-1"}, model.Message{Kind: model.MessageTerminate, To: a, RequestID: "req-1"}, "cancel_requested", nil,
		},
		"another signal with a start": {
			model.Message{Kind: model.MessageStart, To: a, RequestID: "req-1", With: []model.Event{{Name: "s"}}},
			model.Message{Kind: model.MessageStart, To: a, RequestID: "req-1", With: []model.Event{{Name: "t"}}},
			"signal_received s", nil,
		},
	}
	for name, c := range cases {
		for when, between := range secondComes {
			for _, remote := range []bool{false, true} {
				how := "directly"
				if remote {
					how = "from another process"
				}

				t.Run(name+", "+when+", "+how, func(t *testing.T) {
					t.Parallel()
					r := newRig(t)
					r.join(1)
					r.startRun(a)
					r.send(c.first, "first")
					between(r, a)

					if remote {
						row := r.putRow(c.second)
						r.l.MailWaits()
						r.settle()
						if got := r.storedRefusal(a, row); got == nil && r.inboxCount() == 0 {
							if first := r.rememberedAnswer(store.RequestKey{Shard: a.Shard(shards), Address: a, ID: "req-1"}); first == nil {
								t.Error("the engine has not refused the second request, and does not remember the first one, so the sender cannot compare them")
							}
						} else if got == nil || got.Failure == nil || got.Failure.Type != model.FailureMisused {
							t.Errorf("the second request was answered %+v", got)
						}
					} else {
						r.send(c.second, "second")
						r.settle()
						r.wantMisused("second", c.words...)
					}

					r.send(c.first, "first again")
					r.settle()
					r.wantAnswer("first", "")
					r.wantAnswer("first again", "")
					r.wantEvents(a, c.events)
					if n := r.inboxCount(); n != 0 {
						t.Errorf("%d requests are left in the inbox", n)
					}
				})
			}
		}
	}
}

// The lane refuses a start with a signal if its id belongs to a start without a signal. Otherwise
// the signal would be lost.
func TestSignalWithStartUnderTheIDOfAStart(t *testing.T) {
	t.Parallel()
	a := key("a")
	r := newRig(t)
	r.join(1)
	r.send(model.Message{Kind: model.MessageStart, To: a, RequestID: "req-1"}, "first")
	r.settle()
	r.send(model.Message{Kind: model.MessageStart, To: a, RequestID: "req-1", With: []model.Event{{Name: "s"}}}, "second")
	r.send(model.Message{Kind: model.MessageStart, To: a, RequestID: "req-1"}, "first again")
	r.settle()
	r.wantAnswer("first", "")
	r.wantAnswer("first again", "")
	r.wantMisused("second", `"req-1"`)
	r.wantEvents(a)
}

// An unanswered update owns its request id: the lane refuses another update with the id
// immediately, and the refusal does not replace the answer.
func TestMisusedRequestIDOfAnUpdate(t *testing.T) {
	t.Parallel()
	a := key("a")
	first := model.Message{Kind: model.MessageUpdate, To: a, Name: "u", Input: model.TextPayload("1"), RequestID: "req-1"}
	second := first
	second.Input = model.TextPayload("2")

	for when, between := range secondComes {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			r.startRun(a)
			r.send(first, "first")
			between(r, a)
			r.send(second, "second")
			row := r.putRow(second)
			r.l.MailWaits()
			r.settle()
			r.wantMisused("second", `"req-1"`, `update "u"`)
			if got := r.storedRefusal(a, row); got == nil || got.Failure == nil || got.Failure.Kind != fault.Conflict.String() {
				t.Errorf("the request of another process was answered %+v, want a conflict", got)
			}
			r.wantHint(a)
			r.send(first, "first again")
			r.settle()
			r.turn(a, model.Turn{Commands: []model.Command{replyCommand(1, "yes")}})
			r.settle()
			r.wantOutput("first again", "yes")
			r.wantEvents(a, "update_received u", "update_answered answer yes")
			r.send(second, "late")
			r.settle()
			r.wantMisused("late", `update "u"`, "another input")
		})
	}
}

// A request id belongs to one call of an entity while the call waits, while it runs, and after it
// has run.
func TestMisusedRequestIDOfACall(t *testing.T) {
	t.Parallel()
	a := ledger("a")
	under := func(m *model.Message) { m.RequestID = "req-1" }
	for when, between := range map[string]func(r *rig){
		"while it is being read":         func(*rig) {},
		"while the first is being made":  func(r *rig) { r.settle() },
		"while its result is on its way": func(r *rig) { r.settle(); r.serve(1) },
		"after it was made":              func(r *rig) { r.work() },
		"after a restart":                func(r *rig) { r.work(); r.restart(); r.settle(); r.joinEntities(1) },
	} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.joinEntities(1)
			r.operation(a, "add", "5", "first", under)
			between(r)
			r.operation(a, "delete", "", "other name", under)
			r.operation(a, "add", "3", "other input", under)

			r.operation(a, "add", "5", "one way", under, oneWay)
			r.operation(a, "add", "5", "again", under)
			row := r.putRow(model.Message{Kind: model.MessageCall, To: a, Name: "add", Input: model.TextPayload("3"), RequestID: "req-1"})
			r.l.MailWaits()
			r.work()
			r.wantOutput("first", "5;")
			r.wantOutput("again", "5;")
			r.wantMisused("other name", `"req-1"`, `call "add"`, `call "delete"`)
			r.wantMisused("other input", "another input")
			r.wantMisused("one way")
			r.wantState(a, "5;")
			if got := r.storedRefusal(a, row); got == nil && r.rememberedAnswer(store.RequestKey{Shard: a.Shard(shards), Address: a, ID: "req-1"}) == nil {
				t.Error("the call of another process was not refused")
			}
			if n := r.inboxCount(); n != 0 {
				t.Errorf("%d requests are left in the inbox", n)
			}
		})
	}
}

// The lane compares an inbox row whose request id is remembered with the request that used the id.
// A different request with Keep becomes a dead letter. A repetition is not refused.
func TestMisusedRequestIDInTheInbox(t *testing.T) {
	t.Parallel()
	a := key("a")
	r := newRig(t)
	r.join(1)
	r.startRun(a)
	same := request(a, "s", "req-1")
	same.Keep = true
	other := request(a, "t", "req-1")
	other.Keep = true
	// The test puts this row before the answer to the first request is stored. After that, the
	// store would not take the row.
	r.putRow(other)
	again := r.putRow(same)
	r.send(request(a, "s", "req-1"), "first")
	r.settle()
	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, "signal_received s")
	letters, err := r.st.LoadDeadLetters(t.Context(), model.RunID{}, 10)
	if err != nil || len(letters) != 1 || letters[0].Message.Name != "t" {
		t.Fatalf("dead letters: %+v, %v, want the signal t", letters, err)
	}

	wantWords(t, letters[0].Message.ID, `"req-1"`, `signal "s"`)
	if got := r.storedRefusal(a, again); got != nil {
		t.Errorf("the repetition was refused: %+v", got)
	}
	if n := r.inboxCount(); n != 0 {
		t.Errorf("%d requests are left in the inbox", n)
	}
}

// Answers of an older build do not say which request they belong to. As before, the lane treats
// every request with the id of such an answer as a repetition.
func TestRequestIDOfAnOlderBuild(t *testing.T) {
	t.Parallel()
	a := key("a")
	r := newRig(t)
	r.join(1)
	r.startRun(a)
	r.send(request(a, "x", "req-1"), "first")
	r.settle()
	k := store.RequestKey{Shard: a.Shard(shards), Address: a, ID: "req-1"}
	if got := r.rememberedAnswer(k); got == nil || got.For == nil || got.For.Name != "x" {
		t.Fatalf("remembered %+v, want the name of the request that it answers", got)
	}

	sealed := request(a, "y", "req-2")
	// an older client sends no checksum with an encrypted input
	sealed.Input = model.Payload{Data: []byte("nonce 1"), Encoding: "json+aes"}
	r.send(sealed, "sealed")
	r.settle()
	sealed.Input = model.Payload{Data: []byte("nonce 2"), Encoding: "json+aes"}
	r.send(sealed, "sealed again")
	summed := sealed
	summed.Input = sealed.Input.WithSum([]byte("sum"))
	r.send(summed, "with a sum")
	r.settle()
	r.wantAnswer("sealed again", "")
	r.wantAnswer("with a sum", "")
	r.wantEvents(a, "signal_received x", "signal_received y")
}
