package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// Who waits for an execution is told of the end of the chain; who waits for a run, of the end of that run.
func TestAwait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	first := r.began(a)
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
	// A run that has ended, or that is not in memory: the caller must look.
	await(model.RunID{}, "after", false)
	r.l.Forget(a, "after")
	if _, err := r.l.Await(a, model.RunID{}, "x"); err != nil {
		t.Error(err)
	}
}

// A start that is not committed yet: the caller cannot be sure.
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
