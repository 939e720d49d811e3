package lane_test

import (
	"slices"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// settleBackward does the same as settle, but it finishes the last read first. After each step the
// board makes its proposals.
func (b *bench) settleBackward() {
	b.r.t.Helper()
	r := b.r
	for range 10_000 {
		switch n := len(r.loads); {
		case n > 0:
			ld := r.loads[n-1]
			r.loads = r.loads[:n-1]
			r.readOne(ld)
		case r.commit != nil:
			r.commitNow()
		case r.refence != nil:
			r.refenceNow()
		default:
			return
		}
		b.propose()
		r.flush()
	}
	r.t.Fatal("the lane does not come to rest")
}

// A user ends a task that a worker executes, and the waiting task gets its permit in the same
// batch. The store does not take the batch. The lane stores the claim of the waiting task only
// after the end of the first task, or together with it.
func TestPermitOfAnEndThatIsUndone(t *testing.T) {
	t.Parallel()
	for _, class := range []store.Class{store.Refused, store.Unknown} {
		r, b, g := newTurnstile(t)
		r.send(theTask("first"), "first")
		r.settle()
		b.Slots(r.now, 1, 2)
		b.propose()
		r.settle()
		if c := b.one(); c.Ref.Address != taskAt("first") {
			t.Fatalf("%s: %s begins, want the first task", class, c.Ref.TaskRef)
		}
		r.join(1)
		wf := key("wf")
		r.startRun(wf)
		r.turn(wf, commandTurn(taskCommand("second")))
		r.settle()

		together, ended := 0, false
		r.refuse = func(batch *store.Batch) error {
			claims := slices.ContainsFunc(batch.Events, func(e store.EventRow) bool { return e.Event.Kind == model.EventTaskClaimed })
			if len(batch.Closes) > 0 && claims {
				together++
				return store.Errorf(class, "commit", "too much")
			}
			ended = ended || len(batch.Closes) > 0
			if claims && !ended {
				t.Errorf("%s: the claim of the second task is stored before the end of the first", class)
			}
			return nil
		}

		r.start(key("other"), "other")
		r.flush() // so that the end and the claim are in one batch
		r.signal(wf, "signal", "signal")
		r.send(model.Message{Kind: model.MessageTerminate, To: taskAt("first"), RequestID: "end"}, "end")
		r.flush()
		r.read() // the lane finds out that the request is no repetition
		r.flush()
		b.propose()
		b.settleBackward()

		if together == 0 {
			t.Errorf("%s: the end and the claim were never in one batch", class)
		}
		if c := b.one(); c.Ref.Address != wf {
			t.Errorf("%s: %s begins, want the second task", class, c.Ref.TaskRef)
		}
		if len(g.in) != 1 {
			t.Errorf("%s: %d tasks have the permit", class, len(g.in))
		}
		b.wantSlots(1)
	}
}
