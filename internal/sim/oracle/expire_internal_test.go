package oracle

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// A state is deleted before it expires. Earlier hand-overs on an account without a state were
// undone. The oracle must find the delete. It must not mistake the end of the state for an expiry,
// although the path with the undone hand-overs is longer, and the oracle prefers long paths.
func TestDeletedStateHasNotExpired(t *testing.T) {
	t.Parallel()
	s := New(scenario.New(6, scenario.Options{}))
	if !s.Has(scenario.Expiring) {
		t.Fatal("states of seed 6 do not expire")
	}
	l, n := s.Ledger, s.Ledger.HoldingOf(scenario.AccountAddress(0))

	operate := func(name string, on model.Operated) (*scenario.Handover, model.Operated) {
		_, d := s.NewDeed(false)
		l.Doings[d.ID] = &doing{name: name, to: n.Address.Name, oneWay: true}
		calls := []model.OperationCall{{Name: name, Input: d.Input()}}
		h, r := s.Operate(&model.Operations{Entity: n.Address.Name, State: on.State, Exists: on.Exists, Calls: calls}, 1)
		l.RecordReport(h)
		return h, r
	}

	_, undone := operate(scenario.DoAdd, model.Operated{})
	operate(scenario.DoDelete, undone)
	before, stored := operate(scenario.DoAdd, model.Operated{})
	before.Committed, n.state = true, before.End
	n.Row = model.Entity{Address: n.Address.Name, Version: 1, Exists: true, State: stored.State, Expires: s.FairTime() + 1000}
	deletes, _ := operate(scenario.DoDelete, stored)

	path, ok := l.pathTo(n, &traces{answers: map[uint64]model.Answer{}}, &model.Entity{}, nil)
	if !ok || len(path) != 1 || path[0] != deletes {
		t.Errorf("found %v: a path of %d hand-overs, want the one that deletes the state", ok, len(path))
	}
}
