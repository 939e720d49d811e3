package lane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Many messages wait for a quarantined address. The lane puts them off for different times. Suppose
// that the lane tried all messages again after one quarantine, and that this took longer than a
// quarantine. Then the lane would have time for nothing else.
func TestManyMessagesArePutOffForLonger(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxPutOff, c.QuarantineFor = 2, time.Minute })
	r.join(1)
	from, bad := in(0, 0), in(1, 0)
	r.startRun(from)
	r.startRun(bad)
	r.refuse = poison("poison")
	turn := model.Turn{}
	for i := range 6 {
		turn.Commands = append(turn.Commands, signalTo(bad, fmt.Sprint("m", i), "poison"))
	}
	r.turn(from, turn)
	r.settle()

	rows, _, err := r.st.LoadInbox(t.Context(), []model.ShardID{1}, model.MaxTime-1, 10, 1<<20)
	if err != nil || len(rows) != 6 {
		t.Fatalf("put off: %+v, %v, want 6 messages", rows, err)
	}
	for i, want := range []time.Duration{1, 2, 2, 3, 3, 4} {
		if got := rows[i].NotBefore.Sub(r.now); got != want*time.Minute {
			t.Errorf("message %d is put off for %s, want %d min", i, got, want)
		}
	}

	// All of them arrive in the end.
	r.refuse = nil
	r.now = r.now.Add(4*time.Minute + 1)
	r.l.MailWaits()
	r.settle()
	if got := len(r.events(bad)); got != 6 {
		t.Errorf("%d signals have come, want 6", got)
	}
}

// The board proposes two claims at the same time, and the store refuses the row of one of them. The
// claims have no effect when the lane applies the batch again, so the board proposes both again.
// They must not be in one batch every time.
func TestClaimsBesidePoison(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.send(theTask("bad"), "bad")
	r.send(theTask("good"), "good")
	r.settle()
	bad := r.current(taskAt("bad")).Start.Run
	r.refuse = func(batch *store.Batch) error {
		if slices.ContainsFunc(batch.Events, func(e store.EventRow) bool { return e.Run == bad }) {
			return store.Errorf(store.Refused, "commit", "poison")
		}
		return nil
	}
	b.Slots(r.now, 1, 2)
	for range 3 {
		b.propose()
		r.settle()
	}

	if got := b.claims(); len(got) != 1 || got[0].Ref.Address != taskAt("good") {
		t.Errorf("handed over are %+v, want the neighbour alone", got)
	}
	if why, ok := r.l.Explain(taskAt("bad")); !ok || why[0].Code != model.WaitPoison {
		t.Errorf("the poison is explained as %v", why)
	}
}

// The store does not take two claims in time. The lane splits the batch, and must not put both
// claims into the next batch.
func TestClaimsThatAreTooMuchTogether(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.send(theTask("a"), "a")
	r.send(theTask("b"), "b")
	r.settle()
	r.refuse = func(batch *store.Batch) error {
		if len(batch.Events) > 1 {
			return store.Errorf(store.Unknown, "commit", "too late")
		}
		return nil
	}
	b.Slots(r.now, 1, 2)
	for range 3 {
		b.propose()
		r.settle()
	}

	if got := b.claims(); len(got) != 2 {
		t.Errorf("handed over are %+v, want both", got)
	}
}

// The store refuses two claims together. After each refusal, the lane gets proposals that are void,
// because it has reported the tasks to the board again. Even so, each of the next claims must be
// alone in its batch.
func TestVoidProposalsAfterARefusal(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.send(theTask("a"), "a")
	r.send(theTask("b"), "b")
	r.settle()
	refusals := 0
	r.refuse = func(batch *store.Batch) error {
		if len(batch.Events) > 1 {
			refusals++
			return store.Errorf(store.Refused, "commit", "two claims are too many")
		}
		return nil
	}
	b.Slots(r.now, 1, 2)
	for range 4 {
		b.propose()
		r.settle()
		for _, name := range []string{"a", "b"} {
			ref := model.TaskRef{Address: taskAt(name), Run: r.current(taskAt(name)).Start.Run, ID: model.TaskStep}
			r.l.Claim(r.now, ref, 1, "void")
		}
		r.settle()
	}

	if got := b.claims(); len(got) != 2 {
		t.Errorf("handed over are %+v, want both", got)
	}
	if refusals != 1 {
		t.Errorf("the store refused %d batches, want 1", refusals)
	}
}

// The commit of a claim takes longer than the task may last. The board has found that out before
// the claim is durable, and the task is about to time out. No worker may start the task.
func TestClaimThatIsOverdueIsNotHandedOver(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	a := taskAt("t")
	r.send(theTask("t", func(s *model.TaskSpec) { s.Total = 10 * time.Second }), "t")
	r.settle()
	b.Slots(r.now, 1, 1)
	b.propose()
	r.flush()
	if r.commit == nil {
		t.Fatal("the claim is not on its way to the store")
	}

	r.now = r.now.Add(11 * time.Second)
	due := b.TakeDue(r.now) // the lane gets the time-out after the commit
	r.settle()
	r.l.Expire(r.now, model.ClaimRef{TaskRef: due[0].Ref, Claim: due[0].Claim}, true, due[0].Kind.String())
	r.settle()
	if got := b.claims(); len(got) != 0 {
		t.Errorf("handed over is %+v, whose time was up", got)
	}
	r.wantEvents(a, "task_claimed task")
	r.wantStatus(a, model.Failed)
	b.wantSlots(0)
}

// There are two cases. In the first case, the commit of a claim takes longer than the attempt may
// last or its worker may be silent, and the board has not looked at its deadlines since. In the
// second case, the lane has undone the time-out of a claim together with its batch. No worker may
// start the attempt, and the attempt times out when the board looks at its deadlines.
func TestClaimThatHasNoTimeLeftIsNotHandedOver(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*model.TaskSpec){
		"to close": func(s *model.TaskSpec) { s.ToClose = 10 * time.Second },
		"silence":  func(s *model.TaskSpec) { s.Silence = 10 * time.Second },
	} {
		r, b := newBench(t, 0)
		r.send(theTask("t", change), "t")
		r.settle()
		b.Slots(r.now, 1, 1)
		b.propose()
		r.flush()
		if r.commit == nil {
			t.Fatalf("%s: the claim is not on its way to the store", name)
		}

		r.now = r.now.Add(11 * time.Second)
		r.settle()
		if got := b.claims(); len(got) != 0 {
			t.Errorf("%s: handed over is %+v, whose time was up", name, got)
		}
		due := b.TakeDue(r.now)
		if len(due) != 1 {
			t.Fatalf("%s: due is %+v, want the claim", name, due)
		}
		r.l.Expire(r.now, model.ClaimRef{TaskRef: due[0].Ref, Claim: due[0].Claim}, true, due[0].Kind.String())
		r.settle()
		r.wantEvents(taskAt("t"), "task_claimed task", "task_timed_out task")
	}
}

// The store is away when a worker claims a task, for much longer than the worker may be silent. The
// claim does not time out before it is durable. Otherwise the board would propose the task again
// and again, each claim would time out in memory, and the task would use up its attempts without a
// worker.
func TestClaimThatIsNotStoredDoesNotTimeOut(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.send(theTask("t", func(s *model.TaskSpec) { s.Silence = 10 * time.Second }), "t")
	r.settle()
	b.Slots(r.now, 1, 1)
	b.propose()
	r.flush()
	for range 20 {
		r.now = r.now.Add(11 * time.Second)
		b.propose()
		r.flush()
		if r.commit != nil {
			r.fail(store.Away)
		}
	}
	if held := r.l.PendingBytes(); held > 1024 {
		t.Errorf("the lane holds %d bytes, want those of the claim and its time-out", held)
	}

	r.pass(time.Minute)
	r.wantEvents(taskAt("t"), "task_claimed task", "task_timed_out task")
	b.propose()
	r.settle()
	if c := b.one(); c.Attempt != 2 {
		t.Errorf("attempt %d begins, want 2", c.Attempt)
	}
}
