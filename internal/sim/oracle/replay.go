package oracle

import (
	"context"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// SweepAll removes from the store everything that may be removed.
func (s *Oracle) SweepAll() {
	for i := range s.Plan.Shards {
		if _, err := s.Store.Sweep(context.Background(), store.SweepRequest{Shards: []model.ShardID{model.ShardID(i)}, Limit: 1 << 20}); err != nil {
			s.Fail("sweep: %v", err)
		}
	}
}

// Replay runs the program of a run over its history.
func (s *Oracle) Replay(r *Run) scenario.Machine {
	m := s.NewMachine(&r.Start)
	m.Hide(r.Events)
	for i := range r.Events {
		m.Feed(&r.Events[i])
	}
	if m.Broken != nil {
		s.Fail("I13: history of %s (%s): %v", scenario.Short(r.ID), r.Address.Name.Key, m.Broken)
	}
	return m
}

// Needs returns the addresses that the current block of a run depends on.
func (s *Oracle) Needs(r *Run) (list []model.Address) {
	m := s.Replay(r)
	if m.End != nil || m.PC == scenario.CleanupBlock {
		return nil
	}

	b := &m.Program.Blocks[m.PC]
	switch b.Kind { //nolint:exhaustive // the other blocks wait for no execution
	case scenario.BlockChild:
		list = append(list, b.ChildOf(m.Start, m.PC))
	case scenario.BlockWatch, scenario.BlockSend, scenario.BlockCall:
		list = append(list, b.Target)
	case scenario.BlockOperate, scenario.BlockTell:
		list = append(list, b.Targets[0])
	case scenario.BlockSection:
		list = append(append(list, b.Locks...), b.Targets[:]...)
	}

	for i := range r.Events { // a copied run waits for the child of the run that it was copied from
		if block, _, ok := scenario.ParseAsk(r.Events[i].ID); ok && block == m.PC && !r.Events[i].Target.IsZero() {
			list = append(list, r.Events[i].Target)
		}
	}

	return list
}
