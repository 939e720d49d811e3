package lane_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A quarantined run is removed by force, without its rows being read: its key is free, and whoever asked to end it before heard of the way out.
func TestForcedDelete(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, other := key("bad"), key("good")
	r.timersIn(a, 10)
	r.timersIn(other, 10)
	run := r.current(a).Start.Run
	r.restart()
	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if ld.Kind == lane.LoadRun && ld.Address == a && r.current(a) != nil {
			return &lane.LoadResult{Err: fault.New(fault.Corrupt, "event 3 of it cannot be decoded")}
		}
		return nil
	}
	r.join(1)
	r.settle()
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageTerminate, To: a, RequestID: "t"}, true, "terminate")
	r.settle()
	if err := r.answers["terminate"].Err; !fault.Is(err, fault.Blocked) || !strings.Contains(err.Error(), "--force") {
		t.Errorf("terminate: %v", err)
	}
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, Runs: []model.RunID{run}, Force: true}, true, "remove")
	r.settle()
	r.wantAnswer("remove", "")
	if r.current(a) != nil {
		t.Error("it is still there")
	}
	r.start(a, "again")
	r.settle()
	r.wantAnswer("again", "")
	if x := r.current(a); x == nil || x.Start.Run == run {
		t.Errorf("the key is not free: %+v", x)
	}
	if r.l.Held() != 0 {
		t.Errorf("%d bytes are held by nothing", r.l.Held())
	}
}

// A removal by force that the store refuses is answered, and everything else goes on.
func TestForcedDeleteIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, other := key("bad"), key("good")
	run := r.began(a)
	r.refuse = func(b *store.Batch) error {
		if len(b.Removes) > 0 {
			return store.Errorf(store.Refused, "commit", "injected")
		}
		return nil
	}
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, Runs: []model.RunID{run}, Force: true}, true, "remove")
	r.settle()
	if err := r.answers["remove"].Err; !fault.Is(err, fault.Blocked) {
		t.Errorf("the answer is %v", err)
	}
	r.start(other, "start")
	r.settle()
	r.wantAnswer("start", "")
	r.refuse = nil
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, Runs: []model.RunID{run}, Force: true}, true, "remove again")
	r.settle()
	r.wantAnswer("remove again", "")
	if r.current(a) != nil {
		t.Error("it is still there")
	}
}

// A removal by force of an earlier run leaves the current one alone: its worker keeps it, and who waits for it goes on waiting.
func TestForcedDeleteOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	old := r.began(a)
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.l.Run(r.now, &model.Message{Kind: model.MessageStart, To: a, Reuse: model.ReuseAlways}, false, "run")
	r.settle()
	r.wantHolder(a, 1)
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, Runs: []model.RunID{old}, Force: true}, true, "remove")
	r.settle()
	r.wantAnswer("remove", "")
	if got, ok := r.answers["run"]; ok {
		t.Errorf("whoever waits for the current run hears %+v", got)
	}
	r.wantHolder(a, 1)
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	if got := r.answers["run"]; got.Result == nil || got.Result.Outcome.Status != model.Completed {
		t.Errorf("whoever waits for the current run hears %+v", got)
	}
}

// Nobody knows the current run of a quarantined address. When another run is removed, the current one is read again and goes on, and
// who waits for it asks again.
func TestForcedDeleteBesideAnUnknownRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	old := r.began(a)
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.l.Run(r.now, &model.Message{Kind: model.MessageStart, To: a, Reuse: model.ReuseAlways}, false, "run")
	r.settle()
	r.refuse = func(b *store.Batch) error {
		if len(b.Events) > 0 {
			return store.Errorf(store.Refused, "commit", "injected")
		}
		return nil
	}
	r.signal(a, "s", "signal")
	r.settle()
	r.wantHolder(a, 0)
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageDelete, To: a, ToRun: old, Runs: []model.RunID{old}, Force: true}, true, "remove")
	r.settle()
	r.wantAnswer("remove", "")
	r.wantHolder(a, 1)
	if got := r.answers["run"]; !errors.Is(got.Err, lane.ErrNotOwner) || !got.Begun {
		t.Errorf("whoever waits for the current run hears %+v", got)
	}
}
