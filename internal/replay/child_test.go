package replay_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

func TestChildren(t *testing.T) {
	bubble(t, func(e *engine, x replay.Ctx) (string, error) {
		one, err := x.StartChild(replay.Child{Workflow: "kid", Input: payload("1")})
		if err != nil {
			return "", err
		}
		two, _ := x.StartChild(replay.Child{Workflow: "kid", Input: payload("1")})
		named, _ := x.StartChild(replay.Child{Workflow: "kid", Key: "k", Keyed: true, Policy: model.AbandonChild})
		f := x.Outcome(one, model.RunID{})
		if err := x.Get(f); err != nil {
			return "", err
		}
		g := x.Outcome(two, model.RunID{})
		_ = x.Cancel(g)
		return say(one != two, named.Key, string(f.Payload().Data), x.Get(g), x.Get(x.Outcome(named, model.RunID{}))), nil
	}, func(e *engine) {
		e.settle()
		if len(e.children) != 3 {
			t.Fatalf("children %v", e.children)
		}
		e.closeChild(e.events[0].ID, "v")
		e.settle()
		e.inject(model.Event{Kind: model.EventChildClosed, ID: e.events[2].ID, Status: model.Canceled})
		e.settle()
		e.wantClosed(t, model.Completed, "true k v canceled execution kid/k ended as canceled")
		if !strings.Contains(e.kinds(), "withdrawn kid") {
			t.Errorf("history %s", e.kinds())
		}
	})
}

// TestBranchesDoNotShiftEachOther checks that a parallel branch of the code keeps its records when
// another branch gets a further step.
func TestBranchesDoNotShiftEachOther(t *testing.T) {
	branch := func(extra bool) program {
		return func(e *engine, x replay.Ctx) error {
			var fs []*replay.Future
			for i := range 2 {
				fs = append(fs, x.Go(func(y replay.Ctx) (any, error) {
					if _, err := e.step(y, "s"); err != nil {
						return nil, err
					}
					if extra && i == 0 {
						if _, err := e.step(y, "s"); err != nil {
							return nil, err
						}
					}
					return nil, y.Get(y.Next("never"))
				}))
			}
			return x.All(fs)
		}
	}

	synctest.Test(t, func(t *testing.T) {
		history := record(t, branch(false))
		e := newEngine(nil)
		e.auto = true
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) { return payload(""), branch(true)(e, x) }
		e.events = history
		e.activate(-1)
		e.settle()
		e.stop()
		if len(e.ran) != 1 || e.blocked != nil || e.events[2].ID != "1/s1:s#1" {
			t.Errorf("ran %v, blocked %v, recorded %s", e.ran, e.blocked, dump(e.events))
		}
	})
}
