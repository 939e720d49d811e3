package service

import (
	"context"
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// someRuns is a store that has some runs.
type someRuns struct {
	store.Store

	runs map[model.RunID]model.Address
}

func (b someRuns) LoadExecution(_ context.Context, _ model.ShardID, _ model.Address, run model.RunID) (*store.Execution, error) {
	if a, ok := b.runs[run]; ok {
		return &store.Execution{Start: model.Start{Address: a, Run: run}}, nil
	}
	return nil, nil
}

// Each requeue of a step of a workflow has its own address. A client that repeats an old requeue
// gets the address of the run that it had begun, even if that run was deleted. Answers of older
// builds do not say which requeue they are about. In that case a client whose run was deleted gets
// the address of the last requeue.
func TestAddressOfARequeuedStep(t *testing.T) {
	t.Parallel()
	row := &store.DeadRow{
		DeadKey: store.DeadKey{RunKey: store.RunKey{Run: model.RunID{1}}, Task: "0/s3:pay"},
		Body:    model.DeadTask{Address: model.Address{Tenant: "t", Type: "flow", Key: "k"}, Spec: model.TaskSpec{Kind: "pay", Queue: "q"}},
	}
	d := deadTask(row)
	at := func(n int64) model.Address { return d.Ref().RequeueAddress("pay", n) }
	first, second, last, undone, gone := model.RunID{11}, model.RunID{12}, model.RunID{13}, model.RunID{14}, model.RunID{15}
	s := New(nil, someRuns{memory.New(memory.Options{}), map[model.RunID]model.Address{first: at(1), second: at(2), last: at(3), undone: at(4)}}, Limits{})

	check := func(what string, run model.RunID, n int64) {
		t.Helper()
		if a, err := s.requeuedTo(t.Context(), row, &model.Answer{Run: run}); err != nil || a != at(n) {
			t.Errorf("%s: %s, %v; want %s", what, a, err, at(n))
		}
		for n := range int64(4) {
			if a, err := s.requeuedTo(t.Context(), row, &model.Answer{Run: gone, Requeue: n + 1}); err != nil || a != at(n+1) {
				t.Errorf("%s: requeue %d, whose run was deleted: %s, %v; want %s", what, n+1, a, err, at(n+1))
			}
		}
	}
	row.Requeued, row.Body.Requeued = 3, model.Requeue{At: 1, Address: at(3), Run: last}
	check("the last requeue", last, 3)
	check("the requeue before", second, 2)
	check("the first requeue", first, 1)
	check("a requeue whose run was deleted", gone, 3)
	row.Body.Requeued = model.Requeue{} // the fourth requeue was undone
	check("an undone requeue", undone, 4)
	check("the requeue before an undone one", last, 3)
}
