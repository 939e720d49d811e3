package lane_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
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
