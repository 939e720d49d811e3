package lane_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

func (r *rig) joinVersion(w lane.WorkerID, version string) {
	r.l.Join(r.now, w, model.Offer{Tenant: "default", Workflows: []string{"wf"}, Pinned: []string{"wf"}, Version: version}, r.slotsOf(w))
	r.take()
}

// pinTo is the turn of a worker that binds the run to its version.
func pinTo(version string) model.Turn {
	return model.Turn{
		Commands: []model.Command{{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventPinned, ID: "pin", Name: version}}},
		Waits:    []model.Reason{{Code: model.WaitSignal, Name: "s"}},
	}
}

// A pinned run goes only to workers of its version. This holds among several workers, after a
// restart, and when such a worker comes later. While there is no such worker, the lane gives this
// as the reason why the run waits.
func TestPin(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinVersion(1, "one")
	a := key("a")
	r.startRun(a)
	r.turn(a, pinTo("one"))
	r.settle()
	r.joinVersion(2, "two")
	r.joinVersion(3, "one")

	for range 4 { // both workers in turn
		r.release(a, "s")
		r.settle()
		r.signal(a, "s", r.newRun())
		r.settle()
		if w := r.holder(a); w != 1 && w != 3 {
			t.Fatalf("held by %d", w)
		}
		r.rest(a)
	}

	r.leave(1)
	r.settle()
	if w := r.holder(a); w != 3 && w != 0 {
		t.Fatalf("held by %d", w)
	}
	r.restart()
	r.joinVersion(2, "two")
	r.signal(a, "s", "signal")
	r.settle()
	if w := r.holder(a); w != 0 {
		t.Fatalf("held by %d, which has another version", w)
	}

	if why, ok := r.l.Explain(a); !ok || why[0].Code != model.WaitWorker || !strings.Contains(why[0].String(), "version one of workflow wf") {
		t.Errorf("explained as %v", why)
	}
	r.joinVersion(4, "three")
	r.settle()
	if w := r.holder(a); w != 0 {
		t.Fatalf("held by %d, which has another version", w)
	}

	r.joinVersion(5, "one")
	r.settle()
	if w := r.holder(a); w != 5 {
		t.Fatalf("held by %d, want 5", w)
	}

	// The next run may start on any version.
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued}})
	r.leave(5)
	r.settle()
	if w := r.holder(a); w != 2 && w != 4 {
		t.Errorf("the next run is held by %d", w)
	}
}
