package lane_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// ledger is an entity whose state is the list of the calls that it has run.
func ledger(k string) model.Address {
	return model.Address{Tenant: "default", Type: "entity:ledger", Key: k}
}

func echo(k string) model.Address {
	return model.Address{Tenant: "default", Type: "service:echo", Key: k}
}

// joinEntities adds a worker that has the code of ledgers and echoes.
func (r *rig) joinEntities(w lane.WorkerID) {
	r.l.JoinEntities(r.now, w, echoOffer(), r.slotsOf(w))
	r.take()
}

// echoOffer is what the workers of entities offer.
func echoOffer() model.EntityOffer {
	return model.EntityOffer{Tenant: "default", Types: []model.EntityType{
		{Type: "entity:ledger", Views: []string{"read"}}, {Type: "service:echo", Concurrency: 2},
	}}
}

// operation calls an operation of an entity. The answer comes with the token.
//
//arch:parameters a call of an operation is one line in many tests
func (r *rig) operation(a model.Address, name, input string, token any, change ...func(*model.Message)) {
	m := model.Message{Kind: model.MessageCall, To: a, Name: name, Input: model.TextPayload(input), RequestID: fmt.Sprint("call ", token)}
	for _, f := range change {
		f(&m)
	}
	r.l.Deliver(r.now, &m, m.RequestID == fmt.Sprint("call ", token), token)
	r.take()
}

func oneWay(m *model.Message) { m.OneWay = true }
func brief(m *model.Message)  { m.Brief, m.RequestID = true, "" }

// serve lets workers finish their calls, at most the given number of hand-overs.
func (r *rig) serve(most int) {
	r.t.Helper()
	for len(r.operations) > 0 && most > 0 {
		o := r.operations[0]
		r.operations = r.operations[1:]
		most--
		res := operateResult(&o.Operations)
		r.l.FinishCalls(r.now, o.Worker, &res)
		r.take()
	}
}

// operateResult returns what the code of the entities answers to calls. "add" adds its input to the
// state, "fail" fails, "delete" deletes the state, "pass to" makes a one-way call, and "read" is a
// view.
func operateResult(o *model.Operations) model.Operated {
	res := model.Operated{Entity: o.Entity, Generation: o.Generation, State: o.State, Exists: o.Exists}
	for _, c := range o.Calls {
		in := string(c.Input.Data)
		var out model.OperationResult
		verb, rest, _ := strings.Cut(c.Name, " ")
		switch verb {
		case "add", "pass":
			res.State, res.Exists, res.Changed = model.TextPayload(string(res.State.Data)+in+";"), true, true
			out.Output = res.State
			if verb == "pass" {
				out.Messages = []model.Message{{Kind: model.MessageCall, To: ledger(rest), Name: "add", Input: model.TextPayload(in + "'"), OneWay: true}}
			}
		case "delete":
			res.State, res.Exists, res.Changed = model.Payload{}, false, true
		case "fail":
			out.Failure = &model.Failure{Message: in}
		case "read", "echo":
			out.Output = model.TextPayload(string(res.State.Data) + in)
		}

		res.Results = append(res.Results, out)
	}

	return res
}

// work settles everything, with workers that run all calls that they get.
func (r *rig) work() {
	r.t.Helper()
	r.settle()
	for range 1000 {
		if len(r.operations) == 0 {
			return
		}
		r.serve(1)
		r.settle()
	}
	r.t.Fatal("calls come without end")
}

// storedState returns the state of a ledger in the store.
func (r *rig) storedState(a model.Address) string {
	r.t.Helper()
	got, err := r.st.LoadEntity(r.t.Context(), store.EntityKey{Shard: a.Shard(shards), Address: a}, 10_000, 1<<30)
	if err != nil {
		r.t.Fatal(err)
	}
	if got.Entity == nil {
		return ""
	}
	return string(got.Entity.State.Data)
}

func (r *rig) mailbox(a model.Address) []model.MailboxItem {
	r.t.Helper()
	got, err := r.st.LoadEntity(r.t.Context(), store.EntityKey{Shard: a.Shard(shards), Address: a}, 10_000, 1<<30)
	if err != nil {
		r.t.Fatal(err)
	}
	return got.Mailbox
}

func (r *rig) wantState(a model.Address, want string) {
	r.t.Helper()
	if got := r.storedState(a); got != want {
		r.t.Errorf("%s is %q, want %q", a, got, want)
	}
}

// Calls run in order. The lane hands over calls that wait at the same time together. Each caller
// gets its answer when the effect of its call is durable.
func TestEntityCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	r.operation(a, "add", "1", "one")
	r.settle()
	r.operation(a, "add", "2", "two")
	r.operation(a, "fail", "no", "three")
	r.operation(a, "add", "4", "four")
	r.settle()
	if len(r.operations) != 1 {
		t.Fatalf("%d hand-overs of one entity at once", len(r.operations))
	}

	r.serve(1)
	r.wantSilence("one")
	r.settle()
	r.wantOutput("one", "1;")
	if n := len(r.operations[0].Operations.Calls); n != 3 {
		t.Errorf("%d calls are made together, want 3", n)
	}
	before := r.commits
	r.work()
	if r.commits != before+1 {
		t.Errorf("three calls took %d commits", r.commits-before)
	}
	r.wantOutput("two", "1;2;")
	if f := r.answers["three"].Answer.Failure; f == nil || f.Message != "no" {
		t.Errorf("three is answered %+v", r.answers["three"])
	}
	r.wantOutput("four", "1;2;4;")
	r.wantState(a, "1;2;4;")
	if n := len(r.mailbox(a)); n != 0 {
		t.Errorf("%d items are left", n)
	}
	r.operation(a, "delete", "", "five")
	r.work()
	r.wantState(a, "")
	r.operation(a, "add", "6", "six")
	r.work()
	r.wantOutput("six", "6;")
	r.pass(2 * time.Minute)
	if n := r.l.Entries(); n != 0 {
		t.Errorf("%d entries are left in memory after a while", n)
	}
	r.operation(a, "add", "7", "seven")
	r.work()
	r.wantOutput("seven", "6;7;")
}

// A request that is repeated with the same id is the same call, whenever it comes.
func TestEntityRequestRepeated(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	same := func(m *model.Message) { m.RequestID = "same" }
	r.operation(a, "add", "1", "first", same)
	r.settle()
	r.operation(a, "add", "1", "while it is made", same)
	r.settle()
	r.serve(1)
	r.operation(a, "add", "1", "before the commit", same)
	r.flush()
	r.operation(a, "add", "1", "in flight", same)
	r.work()
	r.operation(a, "add", "1", "after", same)
	r.work()
	r.restart()
	r.settle()
	r.joinEntities(2)
	r.operation(a, "add", "1", "later", same)
	r.work()
	for _, token := range []string{"first", "while it is made", "before the commit", "in flight", "after", "later"} {
		r.wantOutput(token, "1;")
	}
	r.wantState(a, "1;")
}

// If no worker has the code of an entity, the calls of the entity wait, and the lane says why.
func TestEntityWithoutWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("a")
	r.operation(a, "add", "1", "one")
	r.operation(a, "add", "2", "two", oneWay)
	r.operation(a, "read", "", "read", brief)
	r.settle()
	r.wantSilence("one", "read")
	r.wantAnswer("two", "")
	reasons, ok := r.l.Explain(a)
	if !ok || len(reasons) != 1 || reasons[0].Code != model.WaitWorker || reasons[0].String() != "waits for a worker that offers entity ledger" {
		t.Errorf("reasons %v", reasons)
	}
	r.joinEntities(1)
	r.work()
	r.wantOutput("one", "1;")
	r.wantOutput("read", "")
	r.wantState(a, "1;2;")
	r.operation(a, "add", "3", "three")
	r.settle()
	r.leave(1) // without a report about its calls
	r.operations = nil
	r.joinEntities(2)
	r.work()
	r.wantOutput("three", "1;2;3;")
}

// The caller of a one-way call gets its answer when the call is stored. The call runs at the node
// that owns the entity at that time.
func TestEntityOneWay(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a, b := ledger("a"), ledger("b")
	r.operation(a, "pass b", "1", "one", oneWay)
	r.settle()
	r.wantAnswer("one", "")
	if n := len(r.mailbox(a)); n != 1 {
		t.Fatalf("%d items", n)
	}

	r.crashFenced()
	r.settle()
	r.joinEntities(1)
	r.settle()
	r.serve(1)
	r.flush()
	r.landUnheard() // the messages are durable, and no lane knows that
	r.crashFenced()
	r.operations = nil
	r.settle()
	r.joinEntities(1)
	r.work()
	r.wantState(a, "1;")
	r.wantState(b, "1';")
	if n := len(r.mailbox(a)) + len(r.mailbox(b)); n != 0 {
		t.Errorf("%d items are left", n)
	}
}

// Views run on the durable state, at the same time as operations that change the entity.
func TestEntityViews(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	r.operation(a, "add", "1", "one")
	r.work()
	r.operation(a, "add", "2", "two")
	r.settle()

	r.operation(a, "read", "!", "view", brief)
	r.operation(a, "read", "?", "asked as a call")
	r.settle()
	writes := r.operations[0]
	r.operations = r.operations[1:]
	r.serve(10)
	r.settle()
	r.wantOutput("view", "1;!")
	r.wantOutput("asked as a call", "1;?")

	r.operations = append(r.operations, writes)
	r.serve(1)
	r.operation(a, "read", "", "not durable yet", brief)
	r.serve(10)
	r.wantOutput("not durable yet", "1;")
	r.work()
	r.operation(a, "read", "", "durable", brief)

	r.work()
	r.wantOutput("durable", "1;2;")
}

// After a commit has landed, other callers can read its rows in the store before the lane learns
// about the commit. A view that a caller requests at this time runs on the new state, not on the
// old one. So no caller sees the entity go back (L10).
func TestEntityViewsDoNotGoBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	r.operation(a, "add", "1", "one")
	r.work()
	r.operation(a, "add", "2", "two")
	r.operation(a, "add", "3", "three")
	r.settle()
	r.serve(2)
	r.flush()
	res, err := r.land()
	r.wantState(a, "1;2;3;")
	r.operation(a, "read", "", "landed", brief)
	r.serve(10)
	if _, early := r.answers["landed"]; early {
		t.Error("a view was made before the lane knew what had landed")
	}
	r.l.FinishCommit(r.now, res, err)
	r.take()
	r.serve(10)
	r.wantOutput("landed", "1;2;3;")
}

// As many calls of a service run at the same time as its type allows. Brief calls write nothing.
func TestServiceCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := echo("a")
	before := r.commits
	for i := range 5 {
		r.operation(a, "echo", fmt.Sprint(i), i, brief)
	}
	r.settle()
	if n := len(r.operations); n != 2 {
		t.Fatalf("%d overlap, want 2", n)
	}

	r.work()
	for i := range 5 {
		r.wantOutput(i, fmt.Sprint(i))
	}
	if r.commits != before {
		t.Errorf("%d commits", r.commits-before)
	}
	r.operation(a, "echo", "stored", "stored", oneWay)
	r.settle()
	if len(r.mailbox(a)) != 1 {
		t.Error("a persisted call is not stored")
	}
	r.work()
	if len(r.mailbox(a)) != 0 {
		t.Error("a call that was made is still stored")
	}
}

// A lane that no longer owns the entity runs none of its calls. Waiting callers get an error. A
// call that must run at most once and may have started does not run again.
func TestEntityMoves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a, s := ledger("a"), echo("s")
	r.operation(a, "add", "1", "made")
	r.operation(s, "echo", "x", "begun", brief)
	r.settle()
	r.operation(a, "add", "2", "waits")
	r.giveUp(0, 1, 2, 3)
	r.settle()

	for _, token := range []string{"made", "waits"} {
		if got := r.answers[token].Err; !errors.Is(got, lane.ErrNotOwner) {
			t.Errorf("%s hears %v", token, got)
		}
	}

	if got := r.answers["begun"].Err; !errors.Is(got, lane.ErrInterrupted) {
		t.Errorf("a brief call that had begun hears %v", got)
	}
	if len(r.freed) != shards {
		t.Errorf("%d shards are free", len(r.freed))
	}
	r.serve(10)
	r.settle()
	r.wantState(a, "")
}

// A result that the store refuses harms no other entity: the rest of the batch commits, and memory
// matches the store.
func TestEntityWithPoison(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a, b := ledger("a"), ledger("b")
	r.operation(a, "add", "1", "a1")
	r.operation(b, "add", "1", "b1")
	r.work()

	r.refuse = func(batch *store.Batch) error {
		if slices.ContainsFunc(batch.Entities, func(e store.EntityRow) bool { return strings.Contains(string(e.Entity.State.Data), "bad") }) {
			return store.Errorf(store.Refused, "commit", "bad")
		}
		return nil
	}

	r.operation(a, "add", "bad", "a2")
	r.operation(b, "add", "2", "b2")
	r.operation(b, "add", "3", "b3", oneWay)
	r.work()
	r.wantAnswer("a2", "blocked")
	r.wantOutput("b2", "1;2;")
	r.wantState(a, "1;")
	r.wantState(b, "1;2;3;")
	r.refuse = nil
	r.operation(a, "add", "4", "a4")
	r.work()
	r.wantAnswer("a4", "blocked")
	r.pass(r.cfg.QuarantineFor + 2*time.Minute)
	r.operation(a, "add", "5", "a5")
	r.work()
	r.wantOutput("a5", "1;5;")
}

// An entity that was called a moment ago stays in memory, even if the call wrote nothing. The next
// call needs no read.
func TestEntitiesStayInMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)

	for name, a := range map[string]model.Address{"echo": echo("s"), "fail": ledger("f"), "read": ledger("v")} {
		r.operation(a, name, "1", name, brief)
		r.work()
		if n := r.l.Entries(); n != 1 {
			t.Errorf("%d entries are in memory after %s", n, name)
		}
		r.operation(a, name, "2", name+" again", brief)
		if len(r.loads) > 0 {
			t.Errorf("the store is read for %s again", name)
		}
		r.work()
		r.pass(2 * time.Minute)
		if n := r.l.Entries(); n != 0 {
			t.Errorf("%d entries are left after %s", n, name)
		}
	}
}
