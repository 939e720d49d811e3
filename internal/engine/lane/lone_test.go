package lane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// proposeWith passes the proposals of the board to the lane. In the same round, starts of
// executions arrive, so that they can be in the same batch.
func (b *bench) proposeWith(starts ...string) {
	b.r.t.Helper()
	b.propose()
	for _, name := range starts {
		b.r.start(key(name), name)
	}
	b.r.settle()
}

// L3: the store refuses each batch with the claim of a certain task, and other inputs arrive
// together with this claim in every round. The lane finds the claim and quarantines its address.
func TestPoisonClaimInABusyLane(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.send(theTask("bad"), "bad")
	r.settle()
	refusals := 0
	r.refuse = func(batch *store.Batch) error {
		if len(batch.Events) > 0 {
			refusals++
			return store.Errorf(store.Refused, "commit", "poison")
		}
		return nil
	}
	b.Slots(r.now, 1, 1)
	for i := range 5 {
		b.proposeWith(fmt.Sprint(i))
		r.wantAnswer(fmt.Sprint(i), "")
	}

	if why, ok := r.l.Explain(taskAt("bad")); !ok || why[0].Code != model.WaitPoison {
		t.Errorf("the poison is explained as %v", why)
	}
	if refusals != 2 {
		t.Errorf("the store refused %d batches, want 2: one with other inputs, and one with the claim alone", refusals)
	}
}

// The store refuses a claim. In every round, while the batch of this claim is in flight, a request
// for the same task arrives. The request changes nothing and gets its answer after the commit. The
// lane still finds the claim and quarantines its address.
func TestPoisonClaimBesideARequestThatWritesNothing(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.send(theTask("bad"), "bad")
	r.settle()
	refusals := 0
	r.refuse = func(batch *store.Batch) error {
		if len(batch.Events) > 0 {
			refusals++
			return store.Errorf(store.Refused, "commit", "poison")
		}
		return nil
	}
	b.Slots(r.now, 1, 1)
	for i := range 5 {
		b.propose()
		r.flush()
		r.send(theTask("bad"), i) // finds the existing task
		r.settle()
	}

	if why, ok := r.l.Explain(taskAt("bad")); !ok || why[0].Code != model.WaitPoison {
		t.Errorf("the poison is explained as %v", why)
	}
	if refusals != 2 {
		t.Errorf("the store refused %d batches, want 2", refusals)
	}
	for i := range 5 {
		if _, answered := r.answers[i]; !answered {
			t.Errorf("request %d got no answer", i)
		}
	}
}

// In every round there are two claims and two starts, and the store takes only batches with one
// row. Although it also refuses the half with both starts, the lane hands over both claims.
func TestClaimsAndStartsThatAreTooMuchTogether(t *testing.T) {
	t.Parallel()
	for _, class := range []store.Class{store.Refused, store.Unknown} {
		r, b := newBench(t, 0)
		r.send(theTask("a"), "a")
		r.send(theTask("b"), "b")
		r.settle()
		r.refuse = func(batch *store.Batch) error {
			if batch.Rows() > 1 {
				return store.Errorf(class, "commit", "too much")
			}
			return nil
		}
		b.Slots(r.now, 1, 2)
		for i := range 5 {
			b.proposeWith(fmt.Sprint("m", i), fmt.Sprint("n", i))
			r.wantAnswer(fmt.Sprint("m", i), "")
			r.wantAnswer(fmt.Sprint("n", i), "")
		}
		if got := b.claims(); len(got) != 2 {
			t.Errorf("%s: handed over are %+v, want both", class, got)
		}
	}
}

// refusedTogether returns a lane with tasks. The store has refused the claims of these tasks once,
// because they were in one batch. So the next claims need batches of their own.
func refusedTogether(t *testing.T, tasks int) (*rig, *bench) {
	t.Helper()
	r, b := newBench(t, 0)
	for i := range tasks {
		r.send(theTask(fmt.Sprint(i)), fmt.Sprint("task ", i))
	}
	r.settle()
	r.refuse = func(batch *store.Batch) error {
		if len(batch.Events) > 1 {
			return store.Errorf(store.Refused, "commit", "two claims are too many")
		}
		return nil
	}
	b.Slots(r.now, 1, tasks)
	b.propose()
	r.settle()
	if got := b.claims(); len(got) != 0 {
		t.Fatalf("handed over are %+v, want none after a refusal", got)
	}
	return r, b
}

// Each time that the lane sends a batch, inputs for the next batch have already arrived. Claims
// that need batches of their own and all other inputs take turns, so both continue.
func TestLoneClaimsInALaneThatNeverRests(t *testing.T) {
	t.Parallel()
	const tasks = 10
	r, b := refusedTogether(t, tasks)
	var sent strings.Builder // a letter per batch
	r.refuse = func(batch *store.Batch) error {
		switch claims := len(batch.Events); {
		case claims == 0:
			sent.WriteByte('s')
		case claims == 1 && batch.Rows() == 1:
			sent.WriteByte('c')
		default:
			sent.WriteByte('x')
		}
		return nil
	}

	const rounds = 2*tasks + 6
	for i := range rounds {
		r.start(key(fmt.Sprint(i)), i)
		if i == 3 {
			b.propose()
		}
		if r.commit == nil {
			r.flush()
			continue
		}
		r.commitNow()
	}

	if got := sent.String(); strings.Count(got, "c") != tasks || strings.Contains(got, "x") || strings.Contains(got, "cc") {
		t.Errorf("batches: %s, want %d batches with one claim (c), each followed by one with starts (s)", got, tasks)
	}
	if got := b.claims(); len(got) != tasks {
		t.Errorf("%d claims are handed over, want %d", len(got), tasks)
	}
	for i := range rounds - 4 {
		r.wantAnswer(i, "")
	}
	r.settle()
}

// When nothing else happens, the lane sends claims that need batches of their own one after the
// other.
func TestLoneClaimsInAnIdleLane(t *testing.T) {
	t.Parallel()
	r, b := refusedTogether(t, 5)
	before := r.commits
	b.propose()
	r.settle()
	if got := b.claims(); len(got) != 5 || r.commits-before != 5 {
		t.Errorf("%d claims are handed over in %d batches, want 5 in 5", len(got), r.commits-before)
	}
	if !r.l.Idle() {
		t.Error("the lane is not at rest")
	}
}

// A claim needs a batch of its own only until the store has taken one. If the task ends before
// that, the next task at its address has nothing to do with the refusal.
func TestClaimsShareBatchesAgain(t *testing.T) {
	t.Parallel()
	for _, ended := range []bool{false, true} {
		r, b := refusedTogether(t, 3)
		r.refuse = nil
		if ended {
			b.Slots(r.now, 1, 0) // the new tasks do not begin at once
			for i := range 3 {
				r.send(model.Message{Kind: model.MessageTerminate, To: taskAt(fmt.Sprint(i))}, nil)
				m := theTask(fmt.Sprint(i))
				m.Reuse = model.ReuseAlways
				r.send(m, fmt.Sprint("again ", i))
			}
			r.settle()
		} else {
			b.propose()
			r.settle()
			for _, c := range b.claims() {
				b.report(c, failed)
			}
			r.settle()
			r.now = r.now.Add(time.Minute) // the tasks may start again
		}

		b.Slots(r.now, 1, 3)
		before := r.commits
		b.propose()
		r.settle()
		if got := b.claims(); len(got) != 3 || r.commits-before != 1 {
			t.Errorf("ended %v: %d claims are handed over in %d batches, want 3 in one", ended, len(got), r.commits-before)
		}
	}
}

// A claim that needs a batch of its own is in the open batch when the store refuses the batch in
// flight for another reason. When the claim is proposed again, it still needs a batch of its own.
func TestLoneClaimBehindARefusedBatch(t *testing.T) {
	t.Parallel()
	r, b := refusedTogether(t, 2)
	r.refuse = poison("poison")
	r.start(key("poison"), "poison")
	r.start(key("beside"), "beside")
	r.flush()
	b.propose()
	r.settle()
	r.refuse = func(batch *store.Batch) error {
		if len(batch.Events) > 0 && batch.Rows() > 1 {
			t.Errorf("a claim shares a batch of %d rows", batch.Rows())
		}
		return nil
	}
	b.proposeWith("m", "n")
	if got := b.claims(); len(got) != 2 {
		t.Errorf("%d claims are handed over, want 2", len(got))
	}
}
