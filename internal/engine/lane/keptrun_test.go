package lane_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// hideRunnable lets the lane read everything except the list of runs that the last owner left.
func hideRunnable(r *rig) {
	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if ld.Kind != lane.LoadRunnable {
			return nil
		}
		return &lane.LoadResult{Err: store.Errorf(store.Away, "load", "injected")}
	}
}

// A server dies while a worker runs a step. The next server reserves the run for this worker,
// whatever makes the lane read the run first. The worker gets the run back when it joins. If the
// worker does not come back in time, another worker gets the run.
func TestRunIsKeptForItsWorker(t *testing.T) {
	t.Parallel()
	a := key("a")
	for name, begin := range map[string]func(r *rig){
		"a list": func(r *rig) { r.settle() },
		"a signal before the list": func(r *rig) {
			hideRunnable(r)
			r.signal(a, "s", "signal")
			r.settle()
			r.wantAnswer("signal", "")
		},
		"a start before the list": func(r *rig) {
			hideRunnable(r)
			r.start(a, "again")
			r.settle()
			r.wantAnswer("again", "")
		},
		"a start beside the list": func(r *rig) {
			r.start(a, "again")
			r.flush() // the batch assumes that there is no run
			r.read()
			r.settle()
			r.wantAnswer("again", "")
		},
	} {
		for _, returns := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, func(c *lane.Config) { c.Reunion = 5 * time.Second })
				r.join(1)
				r.runsStep(a)
				run := r.current(a).Start.Run
				r.crashFenced()
				r.join(2)
				begin(r)
				r.wantHolder(a, 0)
				r.reads = nil
				r.pass(time.Second)
				r.wantHolder(a, 0)

				want := lane.WorkerID(2)
				if returns {
					want = 3
					r.l.Join(r.now, 3, model.Offer{Tenant: "default", Workflows: []string{"wf"}, Held: []model.HeldRun{{Address: a, Run: run}}}, nil)
					r.take()
				} else {
					r.pass(5 * time.Second)
				}
				r.settle()
				r.wantHolder(a, want)
			})
		}
	}
}
