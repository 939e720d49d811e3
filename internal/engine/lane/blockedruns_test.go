package lane_test

import (
	"fmt"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
)

// Runs are blocked because the code of the only worker does not fit. Another worker joins while the
// first one is still here. All runs go to the new worker.
func TestBlockedRunsGoToTheWorkerThatJoins(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	for i := range 8 {
		r.startBlocked(key(fmt.Sprint(i)))
	}
	r.join(2)
	r.settle()
	for i := range 8 {
		r.wantHolder(key(fmt.Sprint(i)), 2)
	}
}

// Many workers have code that does not fit, and only a few of them have tried the run. When another
// worker joins, it gets the run before those that have not tried it.
func TestBlockedRunGoesToTheNewestWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := key("a")
	const old = 12
	for w := range lane.WorkerID(old) {
		r.join(w + 1)
	}
	r.startRun(a)
	tries := 0
	for ; r.holder(a) != 0; tries++ {
		r.block(a)
		r.settle()
	}
	if tries != 4 {
		t.Errorf("%d workers have tried the run, want 4", tries)
	}
	r.join(old + 1)
	r.settle()
	r.wantHolder(a, old+1)
}

// A worker blocks a run. The other workers get the run, each of them once. When all of them have
// blocked it, the run waits for a worker that joins.
func TestBlockedRunTriesEveryWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.join(2)
	a := key("a")
	r.startRun(a)
	first := r.holder(a)
	r.block(a)
	r.settle()
	r.wantHolder(a, 3-first)
	r.block(a)
	r.settle()
	r.wantHolder(a, 0)

	r.leave(3 - first) // this changes nothing for the run
	r.settle()
	r.wantHolder(a, 0)
	r.join(3)
	r.settle()
	r.wantHolder(a, 3)

	// A run that has continued may go to any worker again.
	r.turn(a, steps("s"))
	r.settle()
	r.leave(3)
	r.settle()
	r.wantHolder(a, first)
}
