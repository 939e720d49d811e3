package lane_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// An operator removes a quarantined run by force. The lane does not read the rows of the run, and
// its key is free afterwards. Before that, the operator tried to end the run. The lane refused, and
// its error named the command that removes the run.
func TestForcedDelete(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, other := key("bad"), key("good")
	r.timersIn(a, 10)
	r.timersIn(other, 10)
	run := r.current(a).Start.Run
	r.restart()

	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if ld.Kind == lane.LoadRun && ld.Address == a && r.current(a) != nil {
			return &lane.LoadResult{Err: fault.New(fault.Corrupt, "event 3 of it cannot be decoded")}
		}
		return nil
	}

	r.join(1)
	r.settle()
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageTerminate, To: a, RequestID: "t"}, true, "terminate")
	r.settle()
	if err := r.answers["terminate"].Err; !fault.Is(err, fault.Blocked) || !strings.Contains(err.Error(), "--force") {
		t.Errorf("terminate: %v", err)
	}
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, Runs: []model.RunID{run}, Force: true}, true, "remove")
	r.settle()
	r.wantAnswer("remove", "")
	if r.current(a) != nil {
		t.Error("it is still there")
	}
	r.start(a, "again")
	r.settle()
	r.wantAnswer("again", "")
	if x := r.current(a); x == nil || x.Start.Run == run {
		t.Errorf("the key is not free: %+v", x)
	}
	if r.l.PendingBytes() != 0 {
		t.Errorf("%d bytes are held by nothing", r.l.PendingBytes())
	}
}

// The store refuses a removal by force. The operator gets an answer, and everything else continues.
func TestForcedDeleteIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, other := key("bad"), key("good")
	run := r.startRun(a)

	r.refuse = func(b *store.Batch) error {
		if len(b.Removes) > 0 {
			return store.Errorf(store.Refused, "commit", "injected")
		}
		return nil
	}

	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, Runs: []model.RunID{run}, Force: true}, true, "remove")
	r.settle()
	if err := r.answers["remove"].Err; !fault.Is(err, fault.Blocked) {
		t.Errorf("the answer is %v", err)
	}
	r.start(other, "start")
	r.settle()
	r.wantAnswer("start", "")
	r.refuse = nil
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, Runs: []model.RunID{run}, Force: true}, true, "remove again")
	r.settle()
	r.wantAnswer("remove again", "")
	if r.current(a) != nil {
		t.Error("it is still there")
	}
}

// A removal by force of an earlier run does not affect the current run: the worker keeps the
// current run, and the callers that wait for this run continue to wait.
func TestForcedDeleteOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	old := r.startRun(a)
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.l.Run(r.now, &model.Message{Kind: model.MessageStart, To: a, Reuse: model.ReuseAlways}, false, "run")
	r.settle()
	r.wantHolder(a, 1)
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, Runs: []model.RunID{old}, Force: true}, true, "remove")
	r.settle()
	r.wantAnswer("remove", "")
	if got, ok := r.answers["run"]; ok {
		t.Errorf("the caller that waits for the current run gets %+v", got)
	}
	r.wantHolder(a, 1)
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	if got := r.answers["run"]; got.Result == nil || got.Result.Outcome.Status != model.Completed {
		t.Errorf("the caller that waits for the current run gets %+v", got)
	}
}

// The lane does not know the current run of a quarantined address. When the operator removes
// another run of the address, the lane reads the current run again. That run continues, and its
// waiters ask again.
func TestForcedDeleteBesideAnUnknownRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	old := r.startRun(a)
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.l.Run(r.now, &model.Message{Kind: model.MessageStart, To: a, Reuse: model.ReuseAlways}, false, "run")
	r.settle()

	r.refuse = func(b *store.Batch) error {
		if len(b.Events) > 0 {
			return store.Errorf(store.Refused, "commit", "injected")
		}
		return nil
	}

	r.signal(a, "s", "signal")
	r.settle()
	r.wantHolder(a, 0)
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, ToRun: old, Runs: []model.RunID{old}, Force: true}, true, "remove")
	r.settle()
	r.wantAnswer("remove", "")
	r.wantHolder(a, 1)
	if got := r.answers["run"]; !errors.Is(got.Err, lane.ErrNotOwner) || !got.Begun || got.Answer.Run.IsZero() || got.Answer.Run == old {
		t.Errorf("the caller that waits for the current run gets %+v", got)
	}
}

// entity returns the row of an entity, or nil.
func (r *rig) entity(a model.Address) *model.Entity {
	r.t.Helper()
	got, err := r.st.LoadEntity(r.t.Context(), store.EntityKey{Shard: a.Shard(shards), Address: a}, 1, 1)
	if err != nil {
		r.t.Fatal(err)
	}
	return got.Entity
}

// unreadable makes reads of an entity's row fail until the row is deleted.
func (r *rig) unreadable(a model.Address) {
	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if ld.Kind == lane.LoadEntity && ld.Address == a && r.entity(a) != nil {
			return &lane.LoadResult{Err: fault.New(fault.Corrupt, "its row cannot be decoded")}
		}
		return nil
	}
}

// An operator removes an entity with an unreadable row by force. A section that waits for its lock
// gets an error, a one-way call becomes a dead letter, and the next holder gets a larger token.
func TestForcedDeleteOfAnEntity(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Watched = true })
	r.join(1)
	r.joinEntities(1)
	a, other := ledger("bad"), ledger("good")
	r.operation(a, "add", "1", "one")
	r.operation(other, "add", "1", "other")
	r.work()
	for _, run := range []string{"holder", "waiter"} {
		r.start(key(run), run)
		r.settle()
		r.lock(run, a)
	}
	r.operation(a, "add", "2", "one way", oneWay)
	r.settle()
	before := r.entity(a)
	if !before.Locked() || len(r.mailbox(a)) != 2 {
		t.Fatalf("%+v, %d items wait", before, len(r.mailbox(a)))
	}

	r.restart()
	r.unreadable(a)
	r.join(1)
	r.joinEntities(1)
	r.settle()
	r.operation(a, "add", "3", "blocked")
	r.settle()
	r.wantAnswer("blocked", "blocked")
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageUnlock, To: a, RequestID: "u"}, true, "unlock")
	r.settle()
	if err := r.answers["unlock"].Err; !fault.Is(err, fault.Blocked) || !strings.Contains(err.Error(), "perdure entity delete --force") {
		t.Errorf("unlock: %v, want a refusal that names the command to remove it", err)
	}

	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, Force: true, RequestID: "d"}, true, "remove")
	r.operation(a, "add", "4", "behind it")
	r.work()
	r.wantAnswer("remove", "")
	r.wantOutput("behind it", "4;")
	if n := len(r.mailbox(a)); n != 0 {
		t.Errorf("%d items still wait", n)
	}
	if got := r.deadLetters(); len(got) != 1 || string(got[0].Message.Input.Data) != "2" {
		t.Errorf("dead letters: %+v, want the one-way call", got)
	}
	var refusal *model.Failure
	for _, e := range r.history(key("waiter"), r.current(key("waiter")).Start.Run) {
		if e.Kind == model.EventAnswered && e.ID == "section" {
			refusal = e.Failure
		}
	}
	if refusal == nil || !strings.Contains(refusal.Message, "operator") {
		t.Errorf("the section that waits for the lock heard %+v", refusal)
	}

	r.unlock("holder") // the run no longer has the lock
	r.start(key("next"), "next")
	r.settle()
	r.lock("next", a)
	if after := r.entity(a); !after.Locked() || after.Epoch <= before.Epoch {
		t.Errorf("the next holder: %+v, want a token above %d", after, before.Epoch)
	}
	r.operation(other, "add", "2", "goes on")
	r.work()
	r.wantOutput("goes on", "1;2;")
	if r.l.PendingBytes() != 0 {
		t.Errorf("%d bytes are held by nothing", r.l.PendingBytes())
	}
}

// The lane also removes an entity that is in memory while workers run calls of this entity. The
// results of these calls change nothing.
func TestForcedDeleteOfABusyEntity(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Watched = true })
	r.joinEntities(1)
	a := ledger("busy")
	r.operation(a, "add", "1", "one")
	r.work()
	r.operation(a, "add", "2", "in memory")
	r.operation(a, "add", "3", "stored", oneWay)
	r.settle()
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, Force: true, RequestID: "d"}, true, "remove")
	r.work()
	r.wantAnswer("remove", "")
	r.wantAnswer("in memory", "not_found")
	if n := r.entity(a); n != nil || len(r.mailbox(a)) != 0 || len(r.deadLetters()) != 1 {
		t.Errorf("%+v, %d items and %d dead letters are left, want one letter and nothing else", n, len(r.mailbox(a)), len(r.deadLetters()))
	}
	r.operation(a, "add", "4", "again")
	r.work()
	r.wantOutput("again", "4;")
}

// entityFingerprint returns the fingerprint of the row of an entity.
func (r *rig) entityFingerprint(a model.Address) []byte {
	r.t.Helper()
	var print store.Fingerprint
	err := r.st.ReadRaw(r.t.Context(), a.Shard(shards), a, model.RunID{}, func(row store.RawRow) error {
		print.Add(row)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return print.Sum()
}

// The lane does not remove an entity that has changed since the operator exported it, because
// neither the export nor the store would have the change. The same holds for an entity that did not
// exist at the time of the export.
func TestForcedDeleteOfAnEntityThatChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("busy")

	remove := func(token string, exported []byte, want string) {
		t.Helper()
		r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, Force: true, Exported: exported}, true, token)
		r.work()
		r.wantAnswer(token, want)
	}

	none := r.entityFingerprint(a)
	r.operation(a, "add", "1", "one")
	r.work()
	remove("after the first", none, "conflict")
	first := r.entityFingerprint(a)
	r.operation(a, "add", "2", "two")
	r.work()
	r.operation(a, "add", "3", "three")
	r.settle() // a worker has this call and continues
	remove("after the second", first, "conflict")
	r.wantState(a, "1;2;3;")
	r.restart() // the new owner has not read the entity
	r.joinEntities(1)
	remove("late", []byte("other"), "conflict")
	r.wantState(a, "1;2;3;")
	remove("now", r.entityFingerprint(a), "")
	if n := r.entity(a); n != nil {
		t.Errorf("%+v is left", n)
	}
}

// If the store refuses a removal, the operator gets one refusal, and can request the removal again.
func TestForcedDeleteRefused(t *testing.T) {
	t.Parallel()
	for _, a := range []model.Address{key("run"), ledger("entity")} {
		t.Run(a.Type, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			r.joinEntities(1)
			m := model.Message{Kind: model.MessageDelete, To: a, Force: true}

			if a.IsEntity() {
				r.operation(a, "add", "1", "one")
				r.work()
			} else {
				r.start(a, "one")
				r.settle()
				m.Runs = []model.RunID{r.current(a).Start.Run}
			}

			first, second := m, m
			r.l.Deliver(r.now, &first, true, "first")
			for r.flush(); r.commit == nil; {
				r.read()
			}
			r.fail(store.Refused)
			r.settle()
			r.wantAnswer("first", "blocked")
			r.l.Deliver(r.now, &second, true, "second")
			r.settle()
			r.wantAnswer("second", "")
			if r.current(a) != nil || a.IsEntity() && r.entity(a) != nil {
				t.Error("it is still there")
			}
		})
	}
}

// newQuarantined returns a rig with a run whose events cannot be decoded. repair makes them
// readable again.
func newQuarantined(t *testing.T) (r *rig, a model.Address, repair func()) {
	t.Helper()
	r, a = newRig(t), key("bad")
	r.join(1)
	r.start(a, "one")
	r.settle()
	r.restart()
	damaged := true
	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if damaged && ld.Kind == lane.LoadRun && ld.Address == a {
			return &lane.LoadResult{Err: fault.New(fault.Corrupt, "event 3 of it cannot be decoded")}
		}
		return nil
	}
	r.join(1)
	r.settle()

	return r, a, func() { damaged = false }
}

// The lane refuses an order of another process for a quarantined address immediately, each request
// once. If the process gives the order again later, it takes effect.
func TestOrdersForWhatIsQuarantined(t *testing.T) {
	t.Parallel()
	r, a, repair := newQuarantined(t)
	order := func(id string) {
		r.putRow(model.Message{Kind: model.MessageTerminate, To: a, RequestID: id})
	}
	order("first")
	order("first") // from a caller that repeats the order before it gets an answer
	r.l.MailWaits()
	r.settle()
	answer := r.rememberedAnswer(store.RequestKey{Shard: a.Shard(shards), Address: a, ID: "first"})
	if answer == nil || answer.Failure == nil || !strings.Contains(answer.Failure.Message, "perdure workflow delete --force") {
		t.Fatalf("the order is answered %+v, want a refusal that names the command to remove it", answer)
	}
	if x := r.current(a); x.Outcome.Status.Closed() {
		t.Error("it was carried out")
	}

	repair()
	r.pass(2 * time.Minute)
	order("second")
	r.l.MailWaits()
	r.settle()
	r.wantStatus(a, model.Terminated)
}

// The store refuses an order of another process, and the lane quarantines the run because of that.
// The order gets an answer at the same moment. Otherwise the lane would try it again after each
// quarantine, the store would refuse it each time, and the caller would wait forever.
func TestOrderThatTheStoreRefuses(t *testing.T) {
	t.Parallel()
	for _, kind := range []model.MessageKind{model.MessageCancel, model.MessageTerminate} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			a := key("bad")
			r.startRun(a)
			r.refuse = func(b *store.Batch) error {
				if len(b.Events)+len(b.Closes) > 0 {
					return store.Errorf(store.Refused, "commit", "nothing of a run")
				}
				return nil
			}

			r.putRow(model.Message{Kind: kind, To: a, RequestID: "order"})
			r.l.MailWaits()
			r.settle()
			answer := r.rememberedAnswer(store.RequestKey{Shard: a.Shard(shards), Address: a, ID: "order"})
			if answer == nil || answer.Failure == nil || !strings.Contains(answer.Failure.Message, "nothing of a run") {
				t.Errorf("the order is answered %+v, want a refusal with the reason", answer)
			}
			if n := r.l.States().Quarantined; n != 1 {
				t.Errorf("%d addresses are quarantined, want 1", n)
			}
		})
	}
}

// The lane also refuses other requests of other processes for a quarantined address immediately. It
// does not remember the refusal under the id of the request. If the same request comes again later,
// it takes effect, once.
func TestRequestsForWhatIsQuarantined(t *testing.T) {
	t.Parallel()
	r, a, repair := newQuarantined(t)

	signal := model.Message{Kind: model.MessageSignal, To: a, Name: "s", RequestID: "signal"}
	for _, m := range []model.Message{
		signal,
		{Kind: model.MessageSettle, To: a, Name: "p", RequestID: "promise"},
		{Kind: model.MessagePause, To: a, RequestID: "pause"},
	} {
		id := r.putRow(m)
		r.l.MailWaits()
		r.settle()
		k := store.RequestKey{Shard: a.Shard(shards), Address: a, ID: model.RefusedIDs + id.String()}
		if answer := r.rememberedAnswer(k); answer == nil || answer.Failure == nil || answer.Failure.Kind != fault.Blocked.String() || !strings.Contains(answer.Failure.Message, "cannot be decoded") {
			t.Errorf("the %s is answered %+v, want a refusal with the reason", m.Kind, answer)
		}
		k.ID = m.RequestID
		if answer := r.rememberedAnswer(k); answer != nil {
			t.Errorf("the refusal of the %s is remembered under its id", m.Kind)
		}
	}

	repair()
	r.pass(2 * time.Minute)
	for range 2 {
		r.putRow(signal)
		r.l.MailWaits()
		r.settle()
	}
	signals := 0
	for _, e := range r.history(a, r.current(a).Start.Run) {
		if e.Kind == model.EventSignalReceived {
			signals++
		}
	}
	if signals != 1 {
		t.Errorf("the signal took effect %d times", signals)
	}
}

// The lane refuses a signal for a quarantined run. It has to undo that refusal, because the store
// refuses another row of the batch. By then the quarantine has ended, so the signal takes effect.
// The lane remembers the answer under the request id as usual, and a repetition of the signal has
// no effect.
func TestRefusedRequestThatTakesEffect(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("bad")
	r.start(a, "one")
	r.settle()
	r.restart()
	damaged := true
	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if damaged && ld.Kind == lane.LoadRun && ld.Address == a {
			return &lane.LoadResult{Err: fault.New(fault.Corrupt, "event 3 of it cannot be decoded")}
		}
		return nil
	}
	r.join(1)
	r.settle()

	// The refusal waits behind a commit.
	r.start(key("first"), "first")
	r.flush()
	signal := model.Message{Kind: model.MessageSignal, To: a, Name: "s", RequestID: "signal"}
	id := r.putRow(signal)
	r.l.MailWaits()
	r.flush()
	r.read() // the row
	r.read() // whether the store has an answer for its id
	r.start(key("poison"), "poison")
	r.flush()

	damaged = false
	r.now = r.now.Add(2 * time.Minute)
	r.flush()
	r.refuse = poison("poison")
	r.commitNow()
	if b := r.commit; b == nil || len(b.Inbox) != 1 || len(b.Starts) != 1 {
		t.Fatalf("the refusal and the poisoned start are not in one batch: %+v", b)
	}
	r.settle()
	r.wantEvents(a, "signal_received s")
	k := store.RequestKey{Shard: a.Shard(shards), Address: a, ID: signal.RequestID}
	if answer := r.rememberedAnswer(k); answer == nil || answer.Failure != nil {
		t.Errorf("under the id of the signal there is the answer %+v", answer)
	}
	k.ID = model.RefusedIDs + id.String()
	if answer := r.rememberedAnswer(k); answer != nil {
		t.Errorf("the signal took effect, and its refusal is remembered: %+v", answer)
	}

	r.putRow(signal)
	r.l.MailWaits()
	r.settle()
	r.wantEvents(a, "signal_received s")
}

// Two rows have the same update. The lane puts off the first row, because the run is quarantined.
// After the quarantine it serves the second row, behind another answer. The store refuses the batch
// because of another row. When the lane applies the inputs again, it serves the first row, and must
// notice that the second row is the same request.
func TestRequestsThatChangePlacesWhenAppliedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("bad")
	r.startRun(a)
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.restart()
	damaged := true
	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if damaged && ld.Kind == lane.LoadRun && ld.Address == a {
			return &lane.LoadResult{Err: fault.New(fault.Corrupt, "event 3 of it cannot be decoded")}
		}
		return nil
	}
	r.settle()
	arrives := func(m model.Message) {
		r.putRow(m)
		r.l.MailWaits()
		r.flush()
		for len(r.loads) > 0 {
			r.read()
		}
	}

	// Everything waits behind a commit.
	r.start(key("first"), "first")
	r.flush()
	update := model.Message{Kind: model.MessageUpdate, To: a, Name: "u", RequestID: "update"}
	arrives(update)
	arrives(model.Message{Kind: model.MessageSignal, To: a, Name: "s", RequestID: "signal"})
	damaged = false
	r.now = r.now.Add(2 * time.Minute)
	r.flush()
	arrives(update)
	r.start(key("poison"), "poison")
	r.flush()

	r.refuse = poison("poison")
	r.commitNow()
	if b := r.commit; b == nil || len(b.Inbox) != 2 || len(b.Deferred) != 1 || len(b.Starts) != 1 {
		t.Fatalf("the batch does not have what it should: %+v", b)
	}
	r.settle()
	if len(r.turnedDown) != 0 {
		t.Errorf("the store turned down %v", r.turnedDown)
	}
	k := store.RequestKey{Shard: a.Shard(shards), Address: a, ID: update.RequestID}
	if answer := r.rememberedAnswer(k); answer == nil || answer.Failure == nil {
		t.Errorf("the update to a closed run is answered %+v", answer)
	}
	if n := r.inboxCount(); n != 0 {
		t.Errorf("%d requests still wait", n)
	}
}
