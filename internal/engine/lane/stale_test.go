package lane_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A worker reports a turn while the batch that takes its run away is in flight. When the batch is
// finished, the worker learns that it no longer holds the run. It loses the run even if the store
// refuses the batch, because the lane has dropped the turn. In that case the lane hands over the
// run again.
func TestStaleWorkerBeforeARefusal(t *testing.T) {
	t.Parallel()
	for name, report := range map[string]func(r *rig, a model.Address){
		"turn":    func(r *rig, a model.Address) { r.turn(a, steps("one")) },
		"release": func(r *rig, a model.Address) { r.release(a, "s") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			a, b := key("a"), key("b")
			r.startRun(a)
			r.startRun(b)
			r.signal(a, "s", "signal")
			r.flush()
			r.order(model.MessageTerminate, a, "terminated")
			r.signal(b, "s", "another") // so that the lane can apply the batch again in halves

			gen := r.held[r.current(a).Start.Run].gen
			report(r, a)
			r.wantHolder(a, 1)
			r.commitNow()
			r.fail(store.Refused)
			if h := r.held[r.current(a).Start.Run]; h != nil && h.gen == gen {
				t.Error("the worker still has the run in the generation of its lost report")
			}

			r.settle()
			r.wantAnswer("terminated", "")
			r.wantStatus(a, model.Terminated)
		})
	}
}

// A turn names a run, but has the generation of the hand-over of another run. The lane takes no run
// from its worker because of this turn, and the eviction that is in flight still reaches the
// worker.
func TestReportOfAnotherHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, b := key("a"), key("b")
	run, other := r.startRun(a), r.startRun(b)
	gen := r.held[run].gen
	r.order(model.MessageTerminate, a, "terminated")
	r.l.Turn(r.now, 1, &model.Turn{Run: other, Generation: gen})
	r.take()
	r.settle()
	r.wantHolder(a, 0)
	r.wantHolder(b, 1)
}

// The board reports that a worker is silent while its claim is on its way to the store. The store
// refuses that batch because of another run, and the worker gets the task again, with the same
// claim number. Now the worker sends heartbeats. The earlier report of the board is not about this
// claim (E32).
func TestSilenceOfAClaimThatWasUndone(t *testing.T) {
	t.Parallel()
	for _, beats := range []bool{true, false} {
		r, b := newBench(t, 0)
		r.join(1)
		r.startRun(key("bad"))
		r.send(theTask("t", func(s *model.TaskSpec) { s.Silence = time.Second }), "t")
		r.settle()
		r.refuse = poison("poison")
		r.turn(key("bad"), steps("poison"))
		b.Slots(r.now, 1, 1)
		b.propose()
		r.flush()
		r.now = r.now.Add(2 * time.Second)
		due := b.TakeDue(r.now)
		if len(due) != 1 || due[0].Kind != queue.DueSilence {
			t.Fatalf("the board reports %+v", due)
		}

		r.settle()
		b.propose()
		r.settle()
		c := b.one()
		if c.Ref.Claim != due[0].Claim {
			t.Fatalf("claim %d after %d", c.Ref.Claim, due[0].Claim)
		}
		r.now = r.now.Add(900 * time.Millisecond)
		if beats && !b.Beat(r.now, 1, c.Ref) {
			t.Fatal("the claim is not held")
		}
		r.now = r.now.Add(500 * time.Millisecond)
		r.l.Expire(r.now, model.ClaimRef{TaskRef: due[0].Ref, Claim: due[0].Claim}, true, due[0].Kind.String())
		b.propose()
		r.settle()
		want := []string{"task_claimed task"}
		if !beats {
			want = append(want, "task_timed_out task")
		}
		r.wantEvents(taskAt("t"), want...)
	}
}

// A worker claims a task and is lost. The lane undoes the claim with its batch, and another worker
// claims the task with the same claim number. Only then does the lane apply the loss of the first
// worker. It does not end the claim of the second worker.
func TestLossOfAClaimThatWasMadeAgain(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	r.send(theTask("t"), "t")
	r.settle()
	b.Slots(r.now, 1, 1)
	b.propose()
	r.flush()
	ref := model.TaskRef{Address: taskAt("t"), Run: r.current(taskAt("t")).Start.Run, ID: model.TaskStep}
	lost := func() {
		r.l.Expire(r.now, model.ClaimRef{TaskRef: ref, Claim: 1}, true, model.FailureLost)
		r.settle()
	}
	lost()
	if c := b.one(); c.Ref.Claim != 1 {
		t.Errorf("claim %d is handed over, want 1", c.Ref.Claim)
	}
	r.wantEvents(taskAt("t"), "task_claimed task")

	b.Leave(r.now, 1)
	b.left = true
	lost()
	r.wantEvents(taskAt("t"), "task_claimed task", "attempt_failed task")
}
