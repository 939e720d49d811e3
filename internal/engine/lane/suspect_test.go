package lane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// crash ends the process together with the calls that its workers run, and starts the next
// incarnation.
func (r *rig) crash() {
	r.t.Helper()
	r.operations, r.crashed = nil, true
	r.crashFenced()
	r.joinEntities(1)
}

// note runs the lane until it commits something. After a crash, the first commit is the note that
// calls are about to run.
func (r *rig) note() {
	r.t.Helper()
	r.flush()
	for r.commit == nil {
		if len(r.loads) == 0 {
			r.t.Fatal("the lane neither reads nor commits")
		}
		r.read()
	}
}

// runningInputs returns the inputs of the calls that workers have.
func (r *rig) runningInputs() (inputs []string) {
	for i := range r.operations {
		for _, c := range r.operations[i].Operations.Calls {
			inputs = append(inputs, string(c.Input.Data))
		}
	}
	slices.Sort(inputs)
	return inputs
}

// deaths returns the marks of each call in a mailbox, in order: how many processes died with the
// call, and how many of them died while the call ran alone.
func (r *rig) deaths(a model.Address) string {
	r.t.Helper()
	var out []string
	for _, it := range r.mailbox(a) {
		out = append(out, fmt.Sprintf("%s:%d.%d", it.Message.Input.Data, it.Message.Deaths, it.Message.Lone))
	}
	return strings.Join(out, " ")
}

func (r *rig) wantMaking(want ...string) {
	r.t.Helper()
	if got := r.runningInputs(); !slices.Equal(got, want) {
		r.t.Fatalf("workers make %q, want %q", got, want)
	}
}

func (r *rig) wantDeaths(a model.Address, want string) {
	r.t.Helper()
	if got := r.deaths(a); got != want {
		r.t.Fatalf("counted at %s: %q, want %q", a, got, want)
	}
}

// makeUntil finishes calls one after the other until a worker has the given call. It checks that no
// two calls run at the same time.
func (r *rig) makeUntil(input string) {
	r.t.Helper()
	r.settle()
	for range 100 {
		now := r.runningInputs()
		if len(now) != 1 {
			r.t.Fatalf("workers make %q, want one call at a time", now)
		}
		if now[0] == input {
			return
		}
		r.serve(1)
		r.settle()
	}
	r.t.Fatalf("%s is never made", input)
}

func (r *rig) deadCalls() (rows []store.InboxRow) {
	r.t.Helper()
	rows, err := r.st.LoadDeadLetters(r.t.Context(), model.RunID{}, 100)
	if err != nil {
		r.t.Fatal(err)
	}
	return rows
}

// newSuspects lets the process crash while workers have calls of two ledgers. The ledgers are on
// different shards of the lane.
func newSuspects(t *testing.T) (r *rig, a, b model.Address) {
	t.Helper()
	r = newRig(t)
	r.joinEntities(1)
	a, b = ledger("a"), ledger("b")
	for i := 0; b.Shard(shards) == a.Shard(shards); i++ {
		b = ledger(fmt.Sprint("b", i))
	}
	for _, in := range []string{"1", "bomb", "3"} {
		r.operation(a, "add", in, "a"+in, oneWay)
	}
	r.operation(b, "add", "9", "b9", oneWay)
	r.settle()
	r.crash()
	return r, a, b
}

// After a crash, the lane stores a note about the calls that it finds before a worker runs them.
// Then they run one at a time.
func TestSuspectsAreCountedFirst(t *testing.T) {
	t.Parallel()
	r, a, b := newSuspects(t)
	r.note()
	r.wantMaking()
	r.wantDeaths(a, "1:0.0 bomb:0.0 3:0.0")
	r.makeUntil("bomb")
	r.wantDeaths(a, "bomb:1.1 3:0.0")

	for len(r.operations) > 0 {
		if got := r.runningInputs(); len(got) != 1 {
			t.Fatalf("workers make %q, want one call at a time", got)
		}
		r.serve(1)
		r.settle()
	}

	r.wantState(a, "1;bomb;3;")
	r.wantState(b, "9;")
	if len(r.mailbox(a))+len(r.deadCalls()) != 0 {
		t.Errorf("left: %s, %v", r.deaths(a), r.deadCalls())
	}
}

// A shard has more suspects than may run alone. The other suspects first run together. They run
// alone only if the owner that ran them together dies too.
func TestManySuspects(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	many, few := ledger("a"), ledger("b")
	for i := 0; many.Shard(shards) != few.Shard(shards); i++ {
		few = ledger(fmt.Sprint("b", i))
	}
	for i := range 64 {
		r.operation(many, "add", fmt.Sprint("m", i), fmt.Sprint("m", i), oneWay)
	}
	for i := range 3 {
		r.operation(few, "add", fmt.Sprint("f", i), fmt.Sprint("f", i), oneWay)
	}
	r.settle()
	r.crash()

	r.settle()
	r.wantDeaths(few, "f0:1.0 f1:1.0 f2:1.0")
	r.wantMaking("f0", "f1", "f2", "m0")
	r.crash()

	r.makeUntil("f0")
	r.wantDeaths(few, "f0:2.1 f1:1.0 f2:1.0")
	r.crash()
	r.work()
	if got := r.deadCalls(); len(got) != 0 {
		t.Errorf("set aside after one lone death: %v", got)
	}
	r.wantState(few, "f0;f1;f2;")
}

// An outside cause kills the process again and again, and each time another call runs alone. So one
// death while a call ran alone does not make the call guilty.
func TestNobodyIsSetAsideByOneLoneDeath(t *testing.T) {
	t.Parallel()
	r, a, b := newSuspects(t)
	for _, in := range []string{"1", "bomb", "3"} {
		r.makeUntil(in)
		r.crash()
	}
	r.work()
	r.wantState(a, "1;bomb;3;")
	r.wantState(b, "9;")
	if got := r.deadCalls(); len(got) != 0 {
		t.Errorf("set aside: %v", got)
	}
}

// An owner gives up its shards in an orderly way while it runs a call alone. The next owner does
// not count this as a death of the call.
func TestOrderlyEndIsNoLoneDeath(t *testing.T) {
	t.Parallel()
	r, a, _ := newSuspects(t)
	for range 3 {
		r.makeUntil("1")
		r.wantDeaths(a, "1:1.1 bomb:0.0 3:0.0")
		r.operations, r.crashed = nil, false
		r.restart()
		r.joinEntities(1)
		r.settle()
		r.wantDeaths(a, "1:0.0 bomb:0.0 3:0.0")
		r.wantMaking("1", "3", "bomb")
		r.crash()
	}

	r.makeUntil("1")
	if got := r.deadCalls(); len(got) != 0 {
		t.Errorf("set aside: %v", got)
	}
}

// After an orderly end the lane counts no death.
func TestNoSuspectsAfterAnOrderlyEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	r.operation(a, "add", "1", "one", oneWay)
	r.settle()
	r.operations = nil
	r.restart()
	r.joinEntities(1)
	r.settle()
	r.wantDeaths(a, "1:0.0")
	r.wantMaking("1")
}

// After a crash the lane stores a note about the calls that it finds, and runs these calls one at a
// time. Two processes die while one of the calls runs alone. The lane answers that call and keeps
// it as a dead letter. The other calls continue.
func TestCallThatEndsItsProcess(t *testing.T) {
	t.Parallel()
	r, a, b := newSuspects(t)
	r.makeUntil("bomb")
	r.wantDeaths(a, "bomb:1.1 3:0.0")
	r.crash()

	r.makeUntil("bomb")
	r.wantDeaths(a, "bomb:2.2 3:0.0")
	c := ledger("c")
	r.operation(c, "add", "new", "new") // this call has killed no process
	r.settle()
	r.wantMaking("bomb", "new")
	r.operations = slices.DeleteFunc(r.operations, func(o lane.OperateCall) bool { return string(o.Operations.Calls[0].Input.Data) == "bomb" })
	r.serve(1)
	r.settle()
	r.wantOutput("new", "new;")
	r.crash()

	r.work()
	if n := r.handed["bomb"]; n != 2 { // the first process died while it ran the call before this one
		t.Errorf("the call is made %d times, want two", n)
	}
	r.wantState(a, "1;3;")
	r.wantState(b, "9;")
	dead := r.deadCalls()
	if len(dead) != 1 || string(dead[0].Message.Input.Data) != "bomb" || !strings.Contains(dead[0].Message.ID, "3 processes died while add of") {
		t.Errorf("dead letters %+v", dead)
	}
}

// The caller of a call that ends its process learns why the call no longer runs.
func TestCallerOfACallThatEndsItsProcess(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := echo("a")
	r.operation(a, "echo", "bomb", "first", func(m *model.Message) { m.RequestID = "req-1" })

	for range 3 {
		r.settle()
		r.wantMaking("bomb")
		r.crash()
	}

	r.settle()
	r.wantMaking()
	got := r.rememberedAnswer(store.RequestKey{Shard: a.Shard(shards), Address: a, ID: "req-1"})
	if got == nil || got.Failure == nil || got.Failure.Type != model.FailurePoison {
		t.Errorf("the call is answered %+v", got)
	}
	if len(r.deadCalls()) != 1 || len(r.mailbox(a)) != 0 {
		t.Errorf("%d dead letters, %d rows in the mailbox", len(r.deadCalls()), len(r.mailbox(a)))
	}
}

// If the store does not take a note, the lane writes it again. If only the answer of the commit is
// lost, the note counts once. No call runs before its note is stored.
func TestNoteIsNotStored(t *testing.T) {
	t.Parallel()
	for _, class := range []store.Class{store.Retryable, store.Unknown, store.Refused, store.Away} {
		t.Run(class.String(), func(t *testing.T) {
			t.Parallel()
			r, a, b := newSuspects(t)
			r.note()
			r.fail(class)
			r.wantMaking()
			r.wantDeaths(a, "1:0.0 bomb:0.0 3:0.0")
			r.settle()
			r.pass(time.Minute)
			r.makeUntil("1")
			r.wantDeaths(a, "1:1.1 bomb:0.0 3:0.0")
			r.work()
			r.wantState(a, "1;bomb;3;")
			r.wantState(b, "9;")
		})
	}

	t.Run("answer lost", func(t *testing.T) {
		t.Parallel()
		r, a, b := newSuspects(t)
		r.note()
		r.landUnheard()
		r.l.FinishCommit(r.now, store.Committed{}, store.Errorf(store.Unknown, "commit", "lost"))
		r.flush()
		r.wantMaking()
		r.makeUntil("1")
		r.wantDeaths(a, "1:1.1 bomb:0.0 3:0.0")
		r.work()
		r.wantState(a, "1;bomb;3;")
		r.wantState(b, "9;")
	})
}

// A process dies after it has noted a call and before a worker runs the call. The next owner still
// counts a death, because it sees only the note. But the lane sets the call aside only after a
// second death while the call ran alone.
func TestCrashAfterTheNote(t *testing.T) {
	t.Parallel()
	r, a, b := newSuspects(t)
	r.note()
	r.landUnheard()
	if got := r.deaths(a) + " " + r.deaths(b); strings.Count(got, ":1.1") != 1 {
		t.Fatalf("counted: %s", got)
	}

	r.crash()
	r.makeUntil("bomb")
	r.wantDeaths(a, "bomb:1.1 3:0.0")
	r.work()
	r.wantState(a, "1;bomb;3;")
	r.wantState(b, "9;")
	if got := r.deadCalls(); len(got) != 0 {
		t.Errorf("set aside: %v", got)
	}
}

// The lane gives up a shard while one of its calls runs alone. The call is not lost, and the next
// entity in the line gets its turn.
func TestShardIsGivenUpBesideALoneCall(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprint("answered ", answered), func(t *testing.T) {
			t.Parallel()
			r, a, b := newSuspects(t)
			r.settle()
			first, second := a, b
			if slices.Contains(r.runningInputs(), "9") {
				first, second = b, a
			}
			r.wantDeaths(second, map[model.Address]string{a: "1:0.0 bomb:0.0 3:0.0", b: "9:0.0"}[second])
			r.giveUp(first.Shard(shards))
			if answered {
				r.serve(1)
			}
			held := r.operations
			r.operations = nil
			r.settle()
			r.pass(time.Minute)
			if !slices.Contains(r.freed, first.Shard(shards)) {
				t.Fatalf("shard %d is not free", first.Shard(shards))
			}
			if got := r.runningInputs(); len(got) != 1 {
				t.Errorf("after the shard has left, workers make %q, want the next in line", got)
			}
			r.operations = append(held, r.operations...)
			r.work()
			r.wantState(second, map[model.Address]string{a: "1;bomb;3;", b: "9;"}[second])

			r.crashed = false // the last owner gave up the shard in order
			r.acquire(first.Shard(shards))
			r.work()
			r.wantState(first, map[model.Address]string{a: "1;bomb;3;", b: "9;"}[first])
		})
	}
}

// If a node gets a shard back, it does not count its own note as a death.
func TestNoteOfTheSameNode(t *testing.T) {
	t.Parallel()
	r, a, b := newSuspects(t)
	r.makeUntil("1")
	r.wantDeaths(a, "1:1.1 bomb:0.0 3:0.0")
	r.giveUp(0, 1, 2, 3)
	r.operations = nil // their results come too late
	r.settle()
	r.pass(time.Minute)
	if len(r.freed) != shards {
		t.Fatalf("%v are free", r.freed)
	}

	r.acquire(0, 1, 2, 3)
	r.makeUntil("1")
	r.wantDeaths(a, "1:1.1 bomb:0.0 3:0.0")
	r.work()
	r.wantState(a, "1;bomb;3;")
	r.wantState(b, "9;")
}

// A call in the inbox may have killed the owner before the owner committed the call to the mailbox,
// so that nothing in the store says so. The next owner runs such a call only after that commit. If
// it dies too, the owner after it finds the call as a suspect. Without a crash, or some time after
// it, an owner runs calls immediately.
func TestCallFromTheStoreAfterACrash(t *testing.T) {
	t.Parallel()
	a := ledger("a")
	call := func(in string) model.Message {
		return model.Message{Kind: model.MessageCall, To: a, Name: "add", Input: model.TextPayload(in), OneWay: true}
	}

	r := newRig(t)
	r.joinEntities(1)
	r.post(call("bomb"), "bomb")
	r.note()
	r.wantMaking("bomb")

	r.crash()
	r.note()
	r.wantMaking()
	r.settle()
	r.wantMaking("bomb")
	r.wantDeaths(a, "bomb:0.0")

	r.crash()
	r.makeUntil("bomb")
	r.wantDeaths(a, "bomb:1.1")
	r.work()
	r.pass(2 * time.Minute)
	r.post(call("late"), "late")
	r.note()
	r.wantMaking("late")
}

// The store refuses a batch, and the lane reads an entity again. A call that the lane itself has
// stored since the last owner died is no suspect.
func TestCallsOfThisOwnerAreNoSuspects(t *testing.T) {
	t.Parallel()
	r, a, b := newSuspects(t)
	r.work()
	r.operation(a, "add", "new", "new", oneWay)
	r.settle()
	r.wantMaking("new")
	r.operation(a, "add", "newer", "newer", oneWay)
	r.operation(b, "add", "other", "other", oneWay)
	r.flush()
	r.fail(store.Refused)
	r.settle()
	r.wantDeaths(a, "new:0.0 newer:0.0")
	r.work()
	r.wantState(a, "1;bomb;3;new;newer;")
	r.wantState(b, "9;other;")
}

// A shard has as many suspects as may run alone. The lane reads their entity twice, because the
// store refuses a batch. The suspects still run alone.
func TestSuspectsThatAreReadAgainRunAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a, b := ledger("a"), ledger("b")
	for i := 0; a.Shard(shards) != b.Shard(shards); i++ {
		b = ledger(fmt.Sprint("b", i))
	}
	for i := range 32 {
		r.operation(a, "add", fmt.Sprint("a", i), fmt.Sprint("a", i), oneWay)
		r.operation(b, "add", fmt.Sprint("b", i), fmt.Sprint("b", i), oneWay)
	}
	r.settle()
	r.crash()
	r.note()
	r.fail(store.Refused)
	r.settle()
	r.pass(time.Minute)

	made := 0
	for ; len(r.operations) > 0; made++ {
		if got := r.runningInputs(); len(got) != 1 {
			t.Fatalf("workers make %q, want one call at a time", got)
		}
		r.serve(1)
		r.settle()
	}
	if made != 64 {
		t.Errorf("%d calls ran alone, want 64", made)
	}
}
