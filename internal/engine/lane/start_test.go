package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// parkedRig returns a lane that was restarted, with executions that no worker holds and that are
// not in memory.
func parkedRig(t *testing.T, keys ...string) *rig {
	t.Helper()
	r := newRig(t)
	r.join(1)
	for _, k := range keys {
		r.startRun(key(k))
		r.release(key(k), "s")
	}
	r.settle()
	r.restart()
	r.settle()
	r.join(1)
	return r
}

// The lane writes a start without reading its address. If the address has a run, the lane applies
// the start again to that run, with all inputs that waited behind it.
func TestStartMeetsOpenRun(t *testing.T) {
	t.Parallel()
	r := parkedRig(t, "a")
	old := r.current(key("a")).Start.Run
	r.start(key("a"), "start")
	r.signal(key("a"), "s1", "signal 1")
	r.send(model.Message{Kind: model.MessageStart, To: key("a"), Input: model.Payload{Data: []byte("other")}}, "other input")
	r.send(model.Message{Kind: model.MessageStart, To: key("a"), With: []model.Event{{Name: "s2"}}}, "with")
	r.flush()
	if len(r.loads) > 0 || r.commit == nil || !r.commit.Starts[0].IfAbsent {
		t.Fatalf("the start was not written without a look: %+v, %+v", r.loads, r.commit)
	}

	r.settle()
	for _, token := range []any{"start", "with"} {
		r.wantAnswer(token, "")
		if a := r.answers[token].Answer; a.Run != old || !a.Existing {
			t.Errorf("%v = %+v, want the existing %s", token, a, old)
		}
	}

	r.wantAnswer("signal 1", "")
	r.wantAnswer("other input", "conflict")
	r.wantEvents(key("a"), "signal_received s1", "signal_received s2")
	if r.holder(key("a")) == 0 {
		t.Error("no worker holds the run")
	}
	if r.l.PendingBytes() != 0 {
		t.Errorf("%d bytes are held by nothing", r.l.PendingBytes())
	}
}

func TestStartMeetsClosedRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	old := r.startRun(key("a"))
	r.turn(key("a"), model.Turn{Close: done()})
	r.settle()
	r.restart()
	r.settle()
	r.join(1)
	r.start(key("a"), "again")
	r.send(model.Message{Kind: model.MessageStart, To: key("a"), Reuse: model.ReuseAlways}, "anew")
	r.signal(key("a"), "s", "signal")
	r.settle()
	if a := r.answers["again"]; a.Err != nil || a.Answer.Run != old || a.Answer.Status != model.Completed {
		t.Errorf("a start of a closed execution = %+v, want %s, completed", a, old)
	}
	r.wantAnswer("anew", "")
	fresh := r.answers["anew"].Answer.Run
	if row := r.current(key("a")); fresh == old || row.Start.Run != fresh {
		t.Errorf("a start that may reuse the key = %s, current is %s", fresh, row.Start.Run)
	}
	r.wantAnswer("signal", "")
	r.wantEvents(key("a"), "signal_received s")
}

// Several starts of one key arrive before the first is committed. They begin one run, and each
// start gets one answer.
func TestManyStartsOfOneKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)

	for i := range 10 {
		r.start(key("a"), i)
		if i%3 == 0 {
			r.flush()
		}
	}

	r.settle()
	run := r.current(key("a")).Start.Run
	existing := 0
	for i := range 10 {
		r.wantAnswer(i, "")
		if a := r.answers[i].Answer; a.Run != run {
			t.Errorf("start %d = %s, want %s", i, a.Run, run)
		} else if a.Existing {
			existing++
		}
	}

	if existing != 9 {
		t.Errorf("%d of 10 starts found an existing run, want 9", existing)
	}
}

// A run closes, and a new run uses its key in the same batch.
func TestContinueAndReuseInOneBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	first := r.startRun(a)
	r.signal(a, "s", "signal")
	r.settle()
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Continued, Input: model.Payload{Data: []byte("2")}}})
	r.signal(a, "t", "late signal") // for the next run, in the same batch
	r.settle()
	r.wantAnswer("late signal", "")
	row := r.current(a)
	if row.Start.Previous != first || len(row.Start.Carried) != 1 {
		t.Fatalf("next run = %+v", row.Start)
	}

	r.wantEvents(a, "signal_received s", "signal_received t")
	if h := r.held[row.Start.Run]; h == nil || len(h.events) != 2 || len(r.held) != 1 {
		t.Fatalf("the next run was not handed over whole: %+v", r.held)
	}
	r.turn(a, model.Turn{Close: done()})
	r.send(model.Message{Kind: model.MessageStart, To: a, Reuse: model.ReuseAlways, Input: model.Payload{Data: []byte("3")}}, "anew")
	r.settle()
	r.wantAnswer("anew", "")
	if row := r.current(a); row.Start.Run != r.answers["anew"].Answer.Run || string(row.Start.Input.Data) != "3" {
		t.Errorf("current run = %+v", row.Start)
	}
}

// The lane refuses a start before it has read the address. The refusal says nothing about the
// address.
func TestRefusedStartOfAnUnknownAddress(t *testing.T) {
	t.Parallel()
	r := parkedRig(t, "a")
	many := make([]model.Event, 10_001)
	r.send(model.Message{Kind: model.MessageStart, To: key("a"), With: many}, "too many")
	r.signal(key("a"), "s", "signal")
	r.settle()
	r.wantAnswer("too many", "exhausted")
	r.wantAnswer("signal", "")
	r.wantEvents(key("a"), "signal_received s")
}
