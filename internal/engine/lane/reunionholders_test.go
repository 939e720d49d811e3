package lane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// Two workers say that they hold the same run: the last owner had given the run to one of them, and
// later to the other one. The worker that got the run later keeps it, whichever comes back first.
func TestReunionPrefersTheLastHolder(t *testing.T) {
	t.Parallel()
	older := func(h model.HeldRun) model.HeldRun { h.Given = 100; return h }
	later := func(h model.HeldRun) model.HeldRun { h.Given = 101; return h }

	for name, c := range map[string]struct {
		comes func(r *rig, a model.Address, h model.HeldRun)
		want  lane.WorkerID
	}{
		"the older one comes first": {func(r *rig, a model.Address, h model.HeldRun) {
			r.rejoin(2, older(h))
			r.settle()
			r.wantHolder(a, 2)
			r.turn(a, model.Turn{Running: true})
			r.rejoin(1, later(h))
			if !slices.ContainsFunc(r.calls, func(c lane.Call) bool { return c.Kind == lane.CallEvict && c.Worker == 2 }) {
				r.t.Error("the worker that got the run earlier does not lose it")
			}
		}, 1},
		"the older one comes first, and the run is being read": {func(r *rig, _ model.Address, h model.HeldRun) {
			r.rejoin(2, older(h))
			r.rejoin(1, later(h))
		}, 1},
		"the older one comes first, and does not say when it got the run": {func(r *rig, _ model.Address, h model.HeldRun) {
			r.rejoin(2, h)
			r.settle()
			r.rejoin(1, later(h))
		}, 1},
		"the later one comes first": {func(r *rig, _ model.Address, h model.HeldRun) {
			r.rejoin(1, later(h))
			r.settle()
			r.rejoin(2, older(h))
		}, 1},
		"the later one comes first, and the run is being read": {func(r *rig, _ model.Address, h model.HeldRun) {
			r.rejoin(1, later(h))
			r.rejoin(2, older(h))
		}, 1},
		"neither says when it got the run": {func(r *rig, _ model.Address, h model.HeldRun) {
			r.rejoin(2, h)
			r.settle()
			r.rejoin(1, h)
		}, 2},
		"the later one comes after the reunion": {func(r *rig, a model.Address, h model.HeldRun) {
			r.rejoin(2, older(h))
			r.settle()
			r.turn(a, model.Turn{Running: true})
			r.pass(2 * reunionTime)
			r.rejoin(1, later(h))
		}, 2},
		"the later one has other code": {func(r *rig, _ model.Address, h model.HeldRun) {
			r.rejoin(2, older(h))
			r.settle()
			r.l.Join(r.now, 1, model.Offer{Tenant: "default", Workflows: []string{"other"}, Held: []model.HeldRun{later(h)}}, nil)
		}, 2},
		"the lane has given out the run itself": {func(r *rig, a model.Address, h model.HeldRun) {
			r.rejoin(2, older(h))
			r.settle()
			r.rejoin(3)
			r.l.Leave(r.now, 2)
			r.settle()
			r.wantHolder(a, 3)
			r.rejoin(1, later(h))
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, withReunion)
			a := key("a")
			h := r.dieDuringStep(a)
			r.settle()
			c.comes(r, a, h)
			r.settle()
			r.wantHolder(a, c.want)
			r.pass(10 * time.Second)
			r.wantHolder(a, c.want)
		})
	}
}
