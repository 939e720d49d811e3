package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// A caller that waits for an execution gets the end of the last run of its chain. A caller that
// waits for one run gets the end of that run.
func TestAwait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	first := r.startRun(a)

	await := func(run model.RunID, token string, wantSure bool) {
		t.Helper()
		sure, err := r.l.Await(a, run, token)
		if err != nil || sure != wantSure {
			t.Fatalf("%s: sure %v, %v; want %v", token, sure, err, wantSure)
		}
	}

	await(model.RunID{}, "chain", true)
	await(first, "first run", true)
	await(model.RunID{7}, "another run", false)
	await(model.RunID{}, "forgotten", true)
	r.l.Forget(a, "forgotten")
	r.l.Forget(key("nobody"), "forgotten")
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued}})
	r.settle()
	if res := r.answers["first run"].Result; res == nil || res.Run != first || res.Outcome.Status != model.Continued {
		t.Errorf("first run = %+v", r.answers["first run"])
	}
	r.wantSilence("chain", "another run", "forgotten")
	second := r.current(a).Start.Run
	await(second, "second run", true)
	r.turn(a, model.Turn{Close: done()})
	r.settle()

	for _, token := range []string{"chain", "second run"} {
		if res := r.answers[token].Result; res == nil || res.Run != second || res.Outcome.Status != model.Completed {
			t.Errorf("%s = %+v", token, r.answers[token])
		}
	}

	r.wantSilence("another run", "forgotten")
	// The run has ended, or is not in memory: the caller must look at the store.
	await(model.RunID{}, "after", false)
	r.l.Forget(a, "after")
	if _, err := r.l.Await(a, model.RunID{}, "x"); err != nil {
		t.Error(err)
	}
}

// While a start is not committed, Await returns sure == false.
func TestAwaitBeforeTheStartIsDurable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.start(a, "start")
	r.flush()
	if sure, err := r.l.Await(a, model.RunID{}, "await"); sure || err != nil {
		t.Errorf("sure %v, %v", sure, err)
	}
	r.settle()
	r.turn(a, model.Turn{Close: done()})
	r.settle()
	if r.answers["await"].Result == nil {
		t.Errorf("await = %+v", r.answers["await"])
	}
}

func (r *rig) runs(a model.Address, reuse model.ReusePolicy, token any) {
	r.l.Run(r.now, &model.Message{Kind: model.MessageStart, To: a, Reuse: reuse}, false, token)
	r.take()
}

// The caller of Run gets the end of the chain of runs that its start began, not the answer to the
// start.
func TestRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.runs(a, model.ReturnExisting, "run")
	r.runs(a, model.ReturnExisting, "attached")
	r.settle()
	r.wantSilence("run")
	if got := r.answers["attached"]; got.Err != nil || got.Result != nil || !got.Answer.Existing {
		t.Errorf("attached = %+v", got)
	}
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued}})
	r.settle()
	r.wantSilence("run")
	second := r.current(a).Start.Run

	// The end of the chain is in flight when another caller starts the next chain.
	r.turn(a, model.Turn{Close: done()})
	r.flush()
	r.runs(a, model.ReuseAlways, "next")
	r.settle()
	if res := r.answers["run"].Result; res == nil || res.Run != second {
		t.Errorf("run = %+v", r.answers["run"])
	}
	r.wantSilence("next")
	r.turn(a, model.Turn{Close: done()})
	r.settle()
	if res := r.answers["next"].Result; res == nil || res.Run == second {
		t.Errorf("next = %+v", r.answers["next"])
	}
}

// The lane assumes that the address of a start is unused, but the store has a run there. The caller
// gets that run as the answer.
func TestRunMeetsARun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := key("a")
	r.startRun(a) // no worker holds it, so it leaves memory
	r.join(1)
	r.settle()
	r.release(a, "s")
	r.settle()
	r.runs(a, model.ReturnExisting, "run")
	r.settle()
	if got := r.answers["run"]; got.Err != nil || got.Result != nil || !got.Answer.Existing {
		t.Errorf("run = %+v", got)
	}
}

// The store refuses a batch because of another address, and the lane applies the inputs of the
// batch again in parts. Each caller gets one answer, and waiting callers still wait.
func TestRunBesidePoison(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, bad := key("a"), key("bad")
	r.refuse = poison("bad")
	r.runs(a, model.ReturnExisting, "run")
	r.runs(bad, model.ReturnExisting, "bad")
	r.settle()
	r.wantSilence("run")
	if r.answers["bad"].Err == nil {
		t.Errorf("bad = %+v", r.answers["bad"])
	}
	r.turn(a, model.Turn{Close: done()})
	r.settle()
	if r.answers["run"].Result == nil {
		t.Errorf("run = %+v", r.answers["run"])
	}
}

// If the caller cancels its wait before the start is committed, nothing of the wait is left.
func TestRunForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.runs(a, model.ReturnExisting, "run")
	r.flush()
	r.l.Forget(a, "run")
	r.settle()
	r.turn(a, model.Turn{Close: done()})
	r.settle()
	r.wantSilence("run")
}

// When the shard moves or the lane dies, before or after the commit of the start, each waiter gets
// one answer. It then asks the next owner.
func TestRunWhoseOwnerGoes(t *testing.T) {
	t.Parallel()
	for _, committed := range []bool{false, true} {
		for _, end := range []string{"moves", "dies"} {
			r := newRig(t)
			r.join(1)
			a := key("a")
			r.runs(a, model.ReturnExisting, "run")
			r.flush()
			if committed {
				r.settle()
			}

			if end == "moves" {
				r.giveUp(a.Shard(shards))
				r.settle()
			} else {
				r.l.Die(errInjected)
				r.take()
			}

			if got, ok := r.answers["run"]; !ok || got.Err == nil {
				t.Errorf("%s, committed %v: %+v", end, committed, got)
			}
		}
	}
}

// The callers of another node wait for an execution again and again, each for a moment. The lane
// registers that node once, and sends it one hint.
func TestNodeThatWaitsAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)

	for _, id := range []string{"1", "2", "3"} {
		r.post(model.Message{Kind: model.MessageWatch, To: a}, id)
		r.settle()
	}

	r.hints = nil
	r.turn(a, model.Turn{Close: done()})
	r.settle()
	if len(r.hints) != 1 {
		t.Errorf("the node is told %d times", len(r.hints))
	}
	if r.l.Waiters() != 0 {
		t.Error("a caller still waits")
	}
}
