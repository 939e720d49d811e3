package cluster

import (
	"context"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// Dump adds the state of all lanes to the trace.
func (s *Cluster) Dump() {
	for _, p := range s.Procs {
		if p != nil && p.Inc != nil {
			for _, sh := range p.Inc.Shells {
				s.Logf("lane %d of %s: %d operations and %d results of the store wait; %s", sh.index, p.Inc.name(), len(sh.ops), len(sh.results), sh.Lane)
			}
		}
	}
}

// Explain returns why a task waits, according to the boards.
func (s *Cluster) Explain(r *oracle.Run, id string) (text string) {
	for _, p := range s.Procs {
		if p != nil && p.Inc != nil {
			if why, ok := p.Inc.board.Explain(r.Ref(id, 0).TaskRef); ok {
				text += fmt.Sprintf("; on %s it waits for %+v", p.Inc.name(), why)
			}
		}
	}
	return text
}

// Holding names a lane that still has bytes or executions in memory, or says that a node is away.
// It returns an empty string if all nodes are up and their lanes hold nothing.
func (s *Cluster) Holding() string {
	for _, p := range s.Procs {
		if p == nil || p.Inc == nil {
			return "a node is away"
		}
		for _, sh := range p.Inc.Shells {
			if n := sh.Lane.PendingBytes(); n != 0 {
				return fmt.Sprintf("lane %d of %s holds %d bytes", sh.index, p.Inc.name(), n)
			}
			u := sh.Lane.Usage()
			if s.Has(scenario.Entities) {
				u.Entries = 0 // entities stay in memory for a while
			}
			if u != (lane.Usage{}) {
				return fmt.Sprintf("lane %d of %s has %+v in memory", sh.index, p.Inc.name(), u)
			}
		}
	}

	return ""
}

// CheckEnd compares the store with the ledger of the oracle, which is the expected content of the
// store, and compares both with the answers that users got.
func (s *Cluster) CheckEnd() {
	s.SweepAll()
	for _, r := range s.Ledger.Order {
		if r.Deleted != 0 {
			s.CheckDeleted(r)
		} else {
			s.CheckRun(r)
		}
		if r.Start.Task == nil {
			s.CheckProgram(r)
		}
	}

	s.CheckOps()
	s.CheckSends()
	s.CheckHoldings()
	s.checkBoards()
	s.CheckDead()
	all := make([]model.ShardID, s.Plan.Shards)
	for i := range all {
		all[i] = model.ShardID(i)
	}
	timers, _ := s.Disk.Mem.LoadTimers(context.Background(), all, store.TimerMark{}, model.MaxTime, 10)
	if len(timers) > 0 {
		s.Fail("I8: timer %q of %s is left", timers[0].ID, scenario.Short(timers[0].Run))
	}
	messages, _, _ := s.Disk.Mem.LoadMessages(context.Background(), all, 10, 1<<30)
	inbox, _, _ := s.Disk.Mem.LoadInbox(context.Background(), all, model.MaxTime, 10, 1<<30)
	runnable, _ := s.Disk.Mem.LoadRunnable(context.Background(), all, store.RunKey{}, 10)
	if len(messages)+len(inbox)+len(runnable) > 0 {
		s.Fail("E42: %d messages, %d requests, %d runnable runs are left", len(messages), len(inbox), len(runnable))
	}
}

// LeaveAll shuts all nodes down cleanly, and checks that nothing is left of them.
func (s *Cluster) LeaveAll() {
	down := func() bool {
		for _, p := range s.Procs {
			if p != nil {
				return false
			}
		}
		return true
	}

	s.Leaving = true
	var last []*incarnation
	for _, p := range s.Procs {
		if p == nil {
			continue // the process was leaving when the faults ended, and was not started again
		}
		last = append(last, p.Inc)
		s.At(s.Now, p.Process, p.Leave)
	}

	s.RunUntil(s.Now+20*kernel.Second, down)
	if !down() {
		if s.Tracing {
			s.Dump()
		}
		s.Fail("a node has not ended 20 s after it began to leave")
	}

	v, err := s.Disk.Mem.Members(context.Background())
	if err != nil {
		s.Fail("members: %v", err)
	}

	for _, o := range v.Owners {
		if m := s.Ledger.Nodes[o.Node]; m != nil && m.Alive && slices.ContainsFunc(last, func(inc *incarnation) bool { return inc == s.lives[o.Node] && !inc.lost }) {
			s.Fail("shard %d still belongs to %s", o.Shard, s.Ledger.Name(o.Node))
		}
	}

	s.checkLeft(last)
	s.Stats.Seeds, s.Stats.Events = 1, s.Steps
}
