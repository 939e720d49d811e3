package lane_test

import (
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// startDelayed starts an execution whose code begins in a minute, and which times out an hour
// later.
func (r *rig) startDelayed(k string, token any) {
	r.send(model.Message{Kind: model.MessageStart, To: key(k), Terms: &model.Terms{Delay: time.Minute, Timeout: time.Hour}}, token)
}

// allTimers counts the timers of all runs, including timers whose run does not exist.
func (r *rig) allTimers() int {
	var all []model.ShardID
	for s := range model.ShardID(shards) {
		all = append(all, s)
	}
	ts, err := r.st.LoadTimers(r.t.Context(), all, store.TimerMark{}, model.MaxTime, 100)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(ts)
}

// A start whose key is in use leaves no timers behind.
func TestDelayedStartOfATakenKey(t *testing.T) {
	t.Parallel()
	r := parkedRig(t, "a")
	r.startDelayed("a", "start")
	r.settle()
	r.wantAnswer("start", "")
	if a := r.answers["start"].Answer; !a.Existing {
		t.Errorf("answered %+v, want the existing run", a)
	}
	if n := r.allTimers(); n != 0 {
		t.Errorf("%d timers are stored for a run that does not exist", n)
	}
}

// While an execution waits for its start time, no worker has it. It starts at that time, on the
// node that owns it by then, with the messages that arrived before.
func TestDelayedStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.startDelayed("a", "start")
	r.settle()
	r.wantAnswer("start", "")
	r.signal(key("a"), "s", "signal")
	r.settle()
	r.wantHolder(key("a"), 0)
	if x := r.current(key("a")); !x.Parked || len(x.Waits) != 1 || x.Waits[0].Code != model.WaitStart || x.Waits[0].Until != x.Start.Begins {
		t.Fatalf("stored as %+v", x)
	}

	r.restart()
	r.settle()
	r.join(1)
	r.settle()
	r.wantHolder(key("a"), 0)
	if why, ok := r.l.Explain(key("a")); ok && why[0].Code != model.WaitStart {
		t.Errorf("explained as %v", why)
	}
	r.pass(time.Minute)
	r.settle()
	r.wantHolder(key("a"), 1)
	r.wantEvents(key("a"), "signal_received s")
	if n := r.allTimers(); n != 1 {
		t.Errorf("%d timers are open, want the time-out", n)
	}
	r.restart()
	r.settle()
	r.join(1)
	r.settle()
	r.wantHolder(key("a"), 1)
	r.pass(time.Hour)
	r.settle()
	r.wantStatus(key("a"), model.Failed)
	r.wantHolder(key("a"), 0)
	if x := r.current(key("a")); !x.Outcome.TimedOut() || r.allTimers() != 0 {
		t.Errorf("ended as %+v with %d timers", x.Outcome, r.allTimers())
	}
}

// The start time comes while an earlier event of the run is on its way to the store. No worker gets
// the run before the store knows that the run has begun. Otherwise the next owner would believe
// that the code has not run, and a cancel would end the run without a clean-up.
func TestDelayedStartIsStoredFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.startDelayed("a", "start")
	r.settle()
	r.signal(key("a"), "s", "signal")
	r.flush()
	r.read()
	r.now = r.now.Add(time.Minute)
	r.flush()
	r.read() // the start time comes
	r.commitNow()
	if r.commit == nil || len(r.commit.StopTimers) != 1 {
		t.Fatalf("the lane commits %+v, want the start time", r.commit)
	}

	r.read()
	r.wantHolder(key("a"), 0)
	r.settle()
	r.wantHolder(key("a"), 1)
	r.wantEvents(key("a"), "signal_received s")
}

// A cancel that comes with the start ends the run, even if a commit fails in between.
func TestDelayedStartIsCanceledAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.startDelayed("a", "start")
	r.send(model.Message{Kind: model.MessageCancel, To: key("a"), Failure: &model.Failure{Message: "no"}}, "cancel")
	r.settle()
	r.wantAnswer("start", "")
	r.wantAnswer("cancel", "")
	r.wantStatus(key("a"), model.Canceled)
	if n := r.allTimers(); n != 0 {
		t.Errorf("%d timers are left", n)
	}
}

// When a run fails, the next attempt starts in the same commit.
func TestNextAttempt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.send(model.Message{Kind: model.MessageStart, To: key("a"), Input: model.Payload{Data: []byte("1")}, Terms: &model.Terms{Retry: &model.Retry{MaxAttempts: 2, Initial: time.Minute}}}, "start")
	r.settle()
	first := r.current(key("a")).Start.Run

	fails := func() {
		r.turn(key("a"), model.Turn{Close: &model.Close{Status: model.Failed, Failure: &model.Failure{Message: "oh"}}})
		r.settle()
	}

	commits := r.commits
	fails()
	x := r.current(key("a"))
	if x.Start.Run == first || x.Start.Attempt != 2 || x.Start.Previous != first || string(x.Start.Input.Data) != "1" || !x.Parked || r.commits != commits+1 {
		t.Fatalf("the next attempt is %+v, after %d commits", x, r.commits-commits)
	}
	r.wantHolder(key("a"), 0)
	r.restart()
	r.settle()
	r.join(1)
	r.pass(time.Minute)
	r.settle()
	r.wantHolder(key("a"), 1)
	fails()
	r.wantStatus(key("a"), model.Failed)
	if n := r.runsOf(key("a")); n != 2 || r.allTimers() != 0 {
		t.Errorf("%d runs and %d timers", n, r.allTimers())
	}
}
