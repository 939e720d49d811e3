package lane_test

import (
	"fmt"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// lookUps counts how often the lane reads remembered answers.
func (r *rig) lookUps() *int {
	n := 0
	r.reads = func(ld *lane.Load) *lane.LoadResult {
		if ld.Kind == lane.LoadReply {
			n++
		}
		return nil
	}
	return &n
}

// sendOften sends a request several times and expects that each copy gets the answer.
func (r *rig) sendOften(m model.Message, times int) {
	r.t.Helper()
	for i := range times {
		token := fmt.Sprintf("%s, copy %d at %d", m.RequestID, i, r.ids)
		r.send(m, token)
		if i > 0 {
			r.settle()
			r.wantAnswer(token, "")
		}
	}
}

// The lane does not read the store for an id that a client has drawn in the current era. Copies of
// the request change nothing, neither during the commit of the first one nor later.
func TestDrawnIDIsServedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	n := r.lookUps()
	r.send(request(a, "s", model.DrawnID("1", r.l.Era())), "first")
	r.settle()
	r.wantAnswer("first", "")
	if *n != 0 {
		t.Errorf("%d reads for a new id", *n)
	}

	r.sendOften(request(a, "s", model.DrawnID("1", r.l.Era())), 3)
	r.sendOften(request(a, "t", model.DrawnID("2", r.l.Era())), 3)
	r.wantEvents(a, "signal_received s", "signal_received t")
	if *n == 0 {
		t.Error("the lane did not look for the answer to a repeated request")
	}
}

// The lane looks up ids that belong to neither of the last two eras.
func TestOtherDrawnIDsAreLookedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	era := r.l.Era()
	for i, id := range []string{model.DrawnID("1", ""), model.DrawnID("2", "other"), "3." + era, model.DrawnID("4", "")} {
		n := r.lookUps()
		r.send(request(a, "s", id), id)
		r.settle()
		r.wantAnswer(id, "")
		if *n != 1 {
			t.Errorf("id %d, %q: %d reads, want 1", i, id, *n)
		}
	}
}

// A lane that has acquired a shard looks up ids of earlier eras: another owner may have served
// them.
func TestAcquiredShardEndsEras(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := key("a")
	r.startRun(a)
	era := r.l.Era()
	r.giveUp(a.Shard(shards))
	r.settle()
	r.acquire(a.Shard(shards))
	r.settle()
	if r.l.Era() == era {
		t.Error("the era goes on")
	}

	for era, want := range map[string]int{era: 1, r.l.Era(): 0} {
		n := r.lookUps()
		r.send(request(a, "s", model.DrawnID("1", era)), era)
		r.settle()
		r.wantAnswer(era, "")
		if *n != want {
			t.Errorf("era %q: %d reads, want %d", era, *n, want)
		}
	}
}

// A lane keeps a bounded number of ids. An id of the last two eras is new if the lane has not
// served it. The lane looks up older ids in the store.
func TestErasHaveABound(t *testing.T) {
	t.Parallel()
	const most = 100
	draw := 0
	x := lane.NewEras(most, func() model.RunID { draw++; return model.RunID{15: byte(draw)} })
	first := x.Current()
	early, late := model.DrawnID("early", first), model.DrawnID("late", first)
	serve := func() {
		for i := range most {
			x.Serve(model.DrawnID(fmt.Sprint(i), x.Current()))
		}
	}

	x.Serve(early)
	serve()
	if x.IsNew(early) || !x.IsNew(late) || x.Current() == first {
		t.Errorf("in the second era %q: early %v, late %v", x.Current(), x.IsNew(early), x.IsNew(late))
	}
	serve()
	if x.IsNew(early) || x.IsNew(late) {
		t.Errorf("in the third era: early %v, late %v", x.IsNew(early), x.IsNew(late))
	}
	if n := x.Kept(); n > 2*most {
		t.Errorf("keeps %d ids", n)
	}
}

// An id contains the name of an era only if a client has drawn the id.
func TestEraOfAnID(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"": "", "x.era": "", "~": "", "~x": "", "~x.": "", "~x.era": "era", model.CallIDs + "~x.era": "era", model.UpdateIDs + "x.era": "",
		model.RefusedIDs + "x.era": "",
	} {
		if got := model.EraOf(id); got != want {
			t.Errorf("%q: era %q, want %q", id, got, want)
		}
	}
}
