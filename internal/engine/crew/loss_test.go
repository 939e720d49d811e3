package crew

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// callHand is a worker of entities. It keeps its calls.
type callHand struct{ got chan uint64 }

func (h callHand) Operate(o model.Operations) { h.got <- o.Generation }

// late returns the hand-overs that have come since the test has looked at the first one.
func (h callHand) late() (generations []uint64) {
	for len(h.got) > 0 {
		generations = append(generations, <-h.got)
	}
	return generations
}

// The owner learns whether a worker of another node has left or has disappeared with its calls. A
// host that is about to stop has not died.
func TestOwnerLearnsHowAWorkerEnds(t *testing.T) {
	t.Parallel()
	alive := func(alive, stopping bool) func(model.NodeID) (bool, bool) {
		return func(model.NodeID) (bool, bool) { return alive, stopping }
	}
	lose := func(unseen func(w *EntityHands, got uint64) []uint64) func(*HostSide, *OwnerSide, *EntityHands, uint64) {
		return func(h *HostSide, _ *OwnerSide, w *EntityHands, got uint64) {
			now, cancel := context.WithCancel(context.Background())
			cancel()
			h.Withdraw(now, w)
			h.Lose(w, func() []uint64 { return unseen(w, got) })
		}
	}
	for what, c := range map[string]struct {
		end  func(h *HostSide, o *OwnerSide, w *EntityHands, got uint64)
		want string
	}{
		"the worker leaves":              {func(h *HostSide, _ *OwnerSide, w *EntityHands, _ uint64) { h.Leave(w) }, "left"},
		"the worker disappears":          {lose(func(*EntityHands, uint64) []uint64 { return nil }), "lost []"},
		"the worker never got its calls": {lose(func(_ *EntityHands, got uint64) []uint64 { return []uint64{got, 3} }), "lost [77]"},
		"another call is on its way":     {lose(func(w *EntityHands, _ uint64) []uint64 { return w.worker.(callHand).late() }), "lost [88]"},
		"the node of the worker dies":    {func(_ *HostSide, o *OwnerSide, _ *EntityHands, _ uint64) { o.SetAlive(alive(false, false)) }, "lost []"},
		"the node of the worker has stopped": {func(_ *HostSide, o *OwnerSide, _ *EntityHands, _ uint64) {
			o.SetAlive(alive(true, true))
			o.SetAlive(alive(false, false))
		}, "left"},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var o office
				worker := callHand{make(chan uint64, 9)}
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
				operate := func(generation uint64) {
					joined().Operate(model.Operations{Entity: model.Address{Tenant: "default", Type: "entity:e", Key: "k"}, Generation: generation})
				}
				operate(77)
				at.mu.Lock()
				// Another hand-over leaves before the owner hears that the worker is gone.
				at.withdraw = func(*guest) { operate(88) }
				at.mu.Unlock()
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

// A node with workers dies, and the owner of an entity hands over calls until it notices that. The
// calls that it has not sent do not count. The first one may have arrived, so it counts.
func TestCallsThatWereNeverSentToADeadNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o office
		worker := newCaller()
		host, owner := nodeID(1), nodeID(2)
		var at place
		h, _ := o.add(t, host, nil, func() []Hands { return []Hands{worker.hands} })
		o.add(t, owner, &at, func() []Hands { return nil })
		h.SetMembers(viewWith(owner, "other"))
		until(t, "the worker joins", func() bool { return at.worker() != nil })
		time.Sleep(time.Second)
		o.mu.Lock()
		o.fate = func(to model.NodeID, _ []byte) fate {
			if to == host {
				return lostQuestion
			}
			return arrives
		}
		o.mu.Unlock()

		for generation := range uint64(3) {
			at.worker().Operate(callsOf("entity:e", 77+generation, 1))
			time.Sleep(time.Second)
		}
		o.nodes[owner].Owner.SetAlive(func(model.NodeID) (alive, stopping bool) { return false, false })
		until(t, "the worker ends", func() bool { at.mu.Lock(); defer at.mu.Unlock(); return len(at.ends) > 0 })
		at.mu.Lock()
		defer at.mu.Unlock()
		if !slices.Equal(at.ends, []string{"lost [78 79]"}) {
			t.Errorf("the owner sees %q", at.ends)
		}
	})
}
