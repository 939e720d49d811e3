package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// joinBuild adds a worker with a build of the ledger that has these views.
func (r *rig) joinBuild(w lane.WorkerID, views ...string) {
	r.l.JoinEntities(r.now, w, model.EntityOffer{Tenant: "default", Types: []model.EntityType{{Type: "entity:ledger", Views: views}}}, r.slotsOf(w))
	r.take()
}

// A function that is a view in one build and an operation in another is an operation. So its
// changes are never lost, whichever build runs it.
func TestViewThatIsAnOperationElsewhere(t *testing.T) {
	t.Parallel()
	a := ledger("a")
	t.Run("at the same time", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.joinBuild(1)
		r.joinBuild(2, "add")
		for i, token := range []string{"one", "two", "three", "four"} {
			r.operation(a, "add", token, token, func(m *model.Message) {
				if i%2 == 0 {
					brief(m)
				}
			})
			r.work()
		}
		r.wantState(a, "one;two;three;four;")
	})

	t.Run("afterwards", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.joinBuild(1, "add")
		r.operation(a, "add", "1", "one", func(m *model.Message) { m.RequestID = "same" })
		r.settle()
		r.leave(1)
		r.operations = nil
		r.joinBuild(2)
		r.work()
		r.wantOutput("one", "1;")
		r.wantState(a, "1;")
		r.operation(a, "add", "1", "again", func(m *model.Message) { m.RequestID = "same" })
		r.work()
		r.wantOutput("again", "1;")
		r.wantState(a, "1;")
	})

	t.Run("while a refused batch is dealt with", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.joinBuild(1, "add")
		r.operation(a, "pass c", "1", "one")
		r.operation(ledger("b"), "pass c", "2", "two")
		r.settle()
		r.operation(a, "add", "3", "view")
		view := r.operations[len(r.operations)-1]
		r.operations = r.operations[:len(r.operations)-1]
		r.serve(10)
		r.flush()
		r.fail(store.Refused)
		r.joinBuild(2)
		r.work()
		r.operations = append(r.operations, view)
		r.work() // the result of the view comes too late
		r.wantOutput("view", "1;3;")
		r.wantState(a, "1;3;")
	})
}

// If a caller calls a view as an operation, it gets the answer when the result is stored. A lane
// that no longer owns the entity cannot store the result, so it cannot return an old state.
func TestViewCalledAsAnOperationProvesOwnership(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	a := ledger("a")
	r.operation(a, "add", "1", "one")
	r.work()
	r.operation(a, "read", "", "two")
	r.settle()
	r.fence() // and another node changes the state
	r.serve(1)
	r.settle()
	if r.answers["two"].Err == nil {
		t.Errorf("it hears %+v", r.answers["two"])
	}
}
