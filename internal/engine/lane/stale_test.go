package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A worker that reports while the batch that takes its run away is on its way is told at once that it holds it no more. Should that batch be refused, it has let go all the
// same: the run is handed over anew, and not taken to be where it was.
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
			r.began(a)
			r.began(b)
			r.signal(a, "s", "signal")
			r.flush()
			r.order(model.MessageTerminate, a, "terminated")
			r.signal(b, "s", "another") // so that the batch has halves
			report(r, a)
			r.wantHolder(a, 0)
			r.commitNow()
			r.fail(store.Refused)
			r.settle()
			r.wantAnswer("terminated", "")
			r.wantStatus(a, model.Terminated)
		})
	}
}

// A report that names a run and the hand-over of another takes neither from its worker: the eviction that is on its way is told all the same.
func TestReportOfAnotherHandOver(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, b := key("a"), key("b")
	run, other := r.began(a), r.began(b)
	gen := r.held[run].gen
	r.order(model.MessageTerminate, a, "terminated")
	r.l.Turn(r.now, 1, &model.Turn{Run: other, Generation: gen})
	r.take()
	r.settle()
	r.wantHolder(a, 0)
	r.wantHolder(b, 1)
}
