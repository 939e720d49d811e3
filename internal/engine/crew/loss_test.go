package crew

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/internal/model"
)

// callHand is a worker of entities. It keeps its calls.
type callHand struct{ got chan uint64 }

func (h callHand) Operate(o model.Operations) { h.got <- o.Generation }

// The owner learns whether a worker of another node has left or has disappeared with its calls. A
// host that is about to stop has not died.
func TestOwnerLearnsHowAWorkerEnds(t *testing.T) {
	t.Parallel()
	alive := func(alive, stopping bool) func(model.NodeID) (bool, bool) {
		return func(model.NodeID) (bool, bool) { return alive, stopping }
	}
	for what, c := range map[string]struct {
		end  func(h *HostSide, o *OwnerSide, w *EntityHands, got uint64)
		want string
	}{
		"the worker leaves":              {func(h *HostSide, _ *OwnerSide, w *EntityHands, _ uint64) { h.Leave(w) }, "left"},
		"the worker disappears":          {func(h *HostSide, _ *OwnerSide, w *EntityHands, _ uint64) { h.Lose(w, nil) }, "lost []"},
		"the worker never got its calls": {func(h *HostSide, _ *OwnerSide, w *EntityHands, got uint64) { h.Lose(w, []uint64{got, 3}) }, "lost [77]"},
		"the node of the worker dies":    {func(_ *HostSide, o *OwnerSide, _ *EntityHands, _ uint64) { o.SetAlive(alive(false, false)) }, "lost []"},
		"the node of the worker has stopped": {func(_ *HostSide, o *OwnerSide, _ *EntityHands, _ uint64) {
			o.SetAlive(alive(true, true))
			o.SetAlive(alive(false, false))
		}, "left"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o office
				worker := callHand{make(chan uint64, 1)}
				none := func(model.RunID, uint64) {}
				hands := NewEntityHands(worker, model.EntityOffer{Tenant: "default", Types: []model.EntityType{{Type: "entity:e"}}},
					HandsConfig{Hold: none, Release: none, Slots: func() SharedSlots { return nil }})
				host, owner := nodeID(1), nodeID(2)
				var at place
				h, _ := o.add(t, host, nil, func() []Hands { return []Hands{hands} })
				o.add(t, owner, &at, func() []Hands { return nil })
				h.SetMembers(viewWith(owner, "other"))

				joined := func() CallWorker {
					at.mu.Lock()
					defer at.mu.Unlock()
					if len(at.callers) == 0 {
						return nil
					}
					return at.callers[0]
				}
				until(t, "the worker joins", func() bool { return joined() != nil })
				joined().Operate(model.Operations{Entity: model.Address{Tenant: "default", Type: "entity:e", Key: "k"}, Generation: 77})
				c.end(h, o.nodes[owner].Owner, hands, <-worker.got)
				until(t, "the worker ends", func() bool { at.mu.Lock(); defer at.mu.Unlock(); return len(at.ends) > 0 })
				at.mu.Lock()
				defer at.mu.Unlock()
				if !slices.Equal(at.ends, []string{c.want}) {
					t.Errorf("the owner sees %q, want %q", at.ends, c.want)
				}
			})
		})
	}
}
