package lane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// These tests are about the end of a reunion.

// If the worker of a run does not come back, leaves again, or says that it holds another run, any
// worker gets the run when the reunion ends. New runs, and runs that no worker held when the server
// died, do not wait for the end of the reunion.
func TestReunionEnds(t *testing.T) {
	t.Parallel()
	r := newRig(t, withReunion)
	kept, resting := key("kept"), key("resting")
	r.join(1)
	r.startResting(resting)
	h := r.dieDuringStep(kept)

	other := model.HeldRun{Address: kept, Run: model.RunID{9}}
	r.rejoin(1, other, model.HeldRun{Address: key("never"), Run: model.RunID{8}})
	r.settle()
	r.wantHolder(kept, 0)
	r.startRun(key("new"))
	r.wantHolder(key("new"), 1)
	r.signal(resting, "s", "signal")
	r.settle()
	r.wantHolder(resting, 1)

	r.rejoin(3, h)
	r.leave(3) // before the worker has got the history
	r.settle()
	r.pass(reunionTime)
	r.wantHolder(kept, 1)

	// A worker that comes back later does not take the run from its new worker.
	r.rejoin(4, h)
	r.settle()
	r.wantHolder(kept, 1)
}

// The reunion ends as soon as each worker that may hold something has said what it holds. But it
// does not end before the lane has read what the last owner left.
func TestReunionFinishes(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(r *rig, a model.Address, h model.HeldRun) (holder lane.WorkerID){
		"after the runs are read": func(r *rig, a model.Address, _ model.HeldRun) lane.WorkerID {
			r.settle()
			r.wantHolder(a, 0)
			r.l.FinishReunion(r.now)
			r.take()
			return 2
		},
		"before the runs are read": func(r *rig, a model.Address, _ model.HeldRun) lane.WorkerID {
			r.l.FinishReunion(r.now)
			r.take()
			r.wantHolder(a, 0)
			return 2
		},
		"and a worker holds the run": func(r *rig, _ model.Address, h model.HeldRun) lane.WorkerID {
			r.rejoin(1, h)
			r.l.FinishReunion(r.now)
			r.take()
			return 1
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withReunion)
			a := key("a")
			h := r.dieDuringStep(a)
			r.rejoin(2)

			want := do(r, a, h)
			r.settle()
			r.wantHolder(a, want)
			r.startRun(key("new"))
		})
	}
}

// The reunion lasts longer while workers come back, because a thousand workers need more time than
// one. But its length is bounded. Only one wait has no bound: the reunion does not end before the
// lane has read what the last owner left.
func TestReunionLastsWhileWorkersComeBack(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (*rig, model.Address, model.HeldRun) {
		r := newRig(t, withReunion)
		a := key("a")
		return r, a, r.dieDuringStep(a)
	}

	t.Run("the last of many", func(t *testing.T) {
		t.Parallel()
		r, a, h := begin(t)
		for w := lane.WorkerID(2); w < 6; w++ {
			r.pass(reunionTime - time.Second)
			if w%2 == 0 {
				r.rejoin(w)
			} else {
				r.rejoinEntities(w)
			}
			r.wantHolder(a, 0)
		}
		r.pass(reunionTime - time.Second)
		r.rejoin(1, h)
		r.settle()
		r.wantHolder(a, 1)
	})

	t.Run("no worker comes any more", func(t *testing.T) {
		t.Parallel()
		r, a, _ := begin(t)
		r.pass(reunionTime - time.Second)
		r.rejoin(2)
		r.pass(reunionTime - time.Second)
		r.wantHolder(a, 0)
		r.pass(time.Second)
		r.wantHolder(a, 2)
	})

	t.Run("workers come for ever", func(t *testing.T) {
		t.Parallel()
		r, a, _ := begin(t)
		r.rejoin(2)
		begun := r.now
		for w := lane.WorkerID(3); r.holder(a) == 0; w++ {
			r.pass(reunionTime - time.Second)
			r.rejoin(w)
			if r.now.Sub(begun) > time.Minute {
				t.Fatal("the reunion has not ended")
			}
		}
		if took := r.now.Sub(begun); took < 5*reunionTime {
			t.Fatalf("the reunion ended after %s, want at least %s", took, 5*reunionTime)
		}
	})

	t.Run("the list of runs is late", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, withReunion)
		r.join(1)
		var held []model.HeldRun
		for _, name := range []string{"a", "b", "c", "d"} {
			held = append(held, model.HeldRun{Address: key(name), Run: r.startRun(key(name))})
			r.turn(key(name), model.Turn{Running: true})
		}
		r.settle()
		r.crashFenced()

		hideRunnable(r)
		r.rejoin(1, held...)
		r.rejoin(2)
		r.pass(2 * reunionTime)
		for _, h := range held {
			r.wantHolder(h.Address, 0)
		}
		r.reads = nil
		r.pass(2 * reunionTime)
		for _, h := range held {
			r.wantHolder(h.Address, 1)
		}
	})
}

// A worker that has come back gets what it holds, even if the reunion ends at the same moment and
// the lane has not read the run or entity yet.
func TestReunionFinishesDuringReads(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "c", "d"}
	for _, listed := range []bool{false, true} {
		t.Run(fmt.Sprint("runs, listed ", listed), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withReunion)
			r.join(1)
			var held []model.HeldRun
			for _, name := range names {
				held = append(held, model.HeldRun{Address: key(name), Run: r.startRun(key(name))})
				r.turn(key(name), model.Turn{Running: true})
			}
			r.settle()
			r.crashFenced()

			r.rejoin(2)
			if listed {
				r.settle()
			}
			r.rejoin(1, held...)
			r.l.FinishReunion(r.now)
			r.take()
			r.settle()
			for _, name := range names {
				r.wantHolder(key(name), 1)
			}
		})

		t.Run(fmt.Sprint("calls, listed ", listed), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withReunion)
			r.joinEntities(1)
			var held []model.HeldRun
			for _, name := range names {
				held = append(held, model.HeldRun{Address: ledger(name)})
				r.operation(ledger(name), "add", "1", name, oneWay)
			}
			r.settle()
			r.operations = nil
			r.crashFenced()

			r.rejoinEntities(2)
			if listed {
				r.settle()
			}
			r.rejoinEntities(1, held...)
			r.l.FinishReunion(r.now)
			r.take()
			r.settle()
			if len(r.operations) != len(names) || slices.ContainsFunc(r.operations, func(o lane.OperateCall) bool { return o.Worker != 1 }) {
				t.Fatalf("handed over: %+v", r.operations)
			}
		})
	}
}
