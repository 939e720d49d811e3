package lane_test

import (
	"testing"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// A task of a shard that is taken up goes on although somebody repeats the request that submitted it just then: the answer to that is remembered, and
// nobody else asks for the run.
func TestTaskIsTakenUpWhileItsRequestIsRepeated(t *testing.T) {
	t.Parallel()
	r, b := newBench(t, 0)
	m := theTask("t")
	m.RequestID, m.Reuse = "req", model.ReuseAlways
	r.send(m, "first")
	r.settle()
	if _, err := r.st.FenceNode(t.Context(), r.cfg.Ref.Node, r.cfg.Ref.Epoch, true); err != nil {
		t.Fatal(err)
	}
	b.Board = queue.New(queue.Config{})
	b.Join(r.now, 1, model.TaskOffer{Name: "w", Tenants: []string{"default"}, Queues: []string{"q"}, Kinds: []string{"k"}, Slots: 1})
	r.register(model.NodeID{15: 2})
	r.acquire(0, 1, 2, 3)
	r.send(m, "again")
	r.settle()
	r.wantAnswer("again", "")
	b.propose()
	r.settle()
	b.report(b.one())
	r.settle()
	if got := r.current(taskAt("t")).Outcome.Status; got != model.Completed {
		t.Errorf("the task is %s", got)
	}
}
