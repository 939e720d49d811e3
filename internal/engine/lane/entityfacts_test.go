package lane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// factLine returns a fact about an entity as a line of text.
func factLine(f *lane.Fact) string {
	took := f.Took().Round(time.Second)
	switch f.Kind {
	case lane.FactCall:
		if f.Outcome == lane.Refused {
			return fmt.Sprintf("%s refused: %s", f.Name, f.Failure.Kind)
		}
		return fmt.Sprintf("%s %d after %s, handed over after %s", f.Name, f.Outcome, took, f.Handed.Sub(f.Since).Round(time.Second))
	case lane.FactHandOver:
		return fmt.Sprintf("%d made in %s", f.N, took)
	case lane.FactLocked:
		return fmt.Sprintf("locked after %s", took)
	default:
		return fmt.Sprintf("%s after %s", f.Word, took)
	}
}

// wantEntityFacts compares the facts reported since the last time, in any order.
func (r *rig) wantEntityFacts(want ...string) {
	r.t.Helper()
	got := r.entityFacts
	r.entityFacts = nil
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("facts (-want +told):\n%s", diff)
	}
}

// lock lets a run ask for the lock of an entity. unlock ends the section of the run.
func (r *rig) lock(run string, a model.Address) {
	r.turn(key(run), model.Turn{Commands: []model.Command{{Kind: model.CommandLock, Event: model.Event{Kind: model.EventLockAsked, ID: "section", Locks: []model.Address{a}}}}})
	r.settle()
}

func (r *rig) unlock(run string) {
	r.turn(key(run), model.Turn{Commands: []model.Command{{Kind: model.CommandUnlock, Event: model.Event{Kind: model.EventUnlocked, ID: "end", Section: "section"}}}})
	r.settle()
}

// The lane reports each call once, when its effect is durable. The report has the operation, the
// outcome, the time that the call waited, and the time that a worker took for the call.
func TestFactsOfCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Watched = true })
	r.joinEntities(1)
	a, b := ledger("a"), ledger("b")
	r.operation(a, "add", "1", "one")
	r.operation(b, "fail", "", "of b")
	r.settle()

	r.pass(2 * time.Second)
	r.operation(a, "add", "2", "two")
	r.operation(a, "fail", "", "three")
	r.operation(a, "read", "", "view", brief)
	r.settle()
	r.wantEntityFacts()
	last := len(r.operations) - 1

	r.operations[0], r.operations[last] = r.operations[last], r.operations[0] // the view first
	r.serve(1)
	r.wantEntityFacts("read 1 after 0s, handed over after 0s", "1 made in 0s")
	r.pass(time.Second)
	r.serve(2)
	r.flush()
	r.wantEntityFacts() // not durable yet

	r.fail(store.Refused)
	r.settle()
	r.wantEntityFacts("add 1 after 3s, handed over after 0s", "1 made in 3s", "fail 3 after 3s, handed over after 0s", "1 made in 3s")
	r.pass(time.Second)
	// The first hand-over ran on a state that the store refused, so the lane drops its result.
	r.serve(2)
	r.flush()
	r.landUnheard()

	r.l.FinishCommit(r.now, store.Committed{}, store.Errorf(store.Unknown, "commit", "the answer was lost"))
	r.flush()
	r.settle()
	r.wantEntityFacts("add 1 after 2s, handed over after 1s", "fail 3 after 2s, handed over after 1s", "2 made in 1s")
	r.operation(a, "add", "4", "four", func(m *model.Message) {
		m.From, m.Section = model.Link{Address: key("holder"), Run: model.RunID{1}, ID: "step"}, "section"
	})
	r.settle()
	r.wantEntityFacts("add refused: conflict")
}

// The facts about a lock say how long a section waited for the lock, how long it had the lock, and
// why it lost the lock.
func TestFactsOfLocks(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Watched = true })
	r.join(1)
	a := ledger("a")

	for _, k := range []string{"one", "two", "three"} {
		r.startRun(key(k))
	}
	states := func() lane.EntityStates { return r.l.States().Entities[a.Type] }
	r.lock("one", a)
	r.wantEntityFacts("locked after 0s")
	r.pass(5 * time.Second)
	r.lock("two", a)
	r.lock("three", a)

	r.operation(a, "add", "1", "waits", oneWay)
	r.settle()
	r.wantEntityFacts()
	if got, want := states(), (lane.EntityStates{Loaded: 1, Calls: 1, Locked: 1, Waiters: 2}); got != want {
		t.Errorf("states %+v, want %+v", got, want)
	}
	r.pass(time.Second)
	r.unlock("one")
	r.wantEntityFacts("locked after 1s", "released after 6s")

	r.pass(time.Second)
	r.l.Deliver(r.now, &model.Message{Kind: model.MessageUnlock, To: a}, true, "an operator")
	r.take()
	r.settle()
	r.wantEntityFacts("taken after 1s", "locked after 2s")
	r.unlock("two") // section two has already lost the lock
	r.wantEntityFacts()

	r.turn(key("three"), model.Turn{Close: &model.Close{Status: model.Failed, Failure: &model.Failure{Message: "no"}}})
	r.settle()
	r.wantEntityFacts("released after 0s")
	if got, want := states(), (lane.EntityStates{Loaded: 1, Calls: 1}); got != want {
		t.Errorf("states %+v, want %+v", got, want)
	}
}
