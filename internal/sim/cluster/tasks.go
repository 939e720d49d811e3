package cluster

import (
	"fmt"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// checkTaskCall checks a call to a task worker: no worker receives a claim that is not durable.
func (sh *shell) checkTaskCall(c *lane.TaskCall, gone bool) {
	s := sh.s
	s.Mix(9, uint64(c.Kind), uint64(c.Worker), uint64(c.Ref.Claim))
	known, r := s.Claims[c.Ref], s.Ledger.Runs[c.Ref.Run]

	switch c.Kind {
	case lane.TaskExecute:
		if known == nil {
			s.Fail("L2: a worker gets claim %d of %s, which is not in the store", c.Ref.Claim, c.Ref.TaskRef)
		}
		t := r.Task(c.Ref.ID)
		if name, _, _ := scenario.SplitWorker(known.Worker); !gone && !sh.inc.board.named(c.Worker, name) || !t.Input.Equal(c.Claim.Input) {
			s.Fail("E16: claim %d of %s is that of %s, and another one gets it", c.Ref.Claim, c.Ref.TaskRef, known.Worker)
		}
		if t.Held && t.Claim == c.Ref.Claim && t.Attempt != c.Claim.Attempt {
			s.Fail("E19: claim %d of %s is attempt %d, and handed over as %d", c.Ref.Claim, c.Ref.TaskRef, t.Attempt, c.Claim.Attempt)
		}
	case lane.TaskStop:
		// The check leaves out guests, because they receive the call only if the owner still
		// serves. It also leaves out workers that have left, because they do not receive the call.
		if g := sh.inc.board.guests[c.Worker]; g == nil && !gone && !c.Canceled && s.Current(c.Ref) {
			s.Fail("E26: claim %d of %s is to be stopped, and it is the current one", c.Ref.Claim, c.Ref.TaskRef)
		}
		if c.Canceled && (r == nil || !r.Cancel) {
			s.Fail("L2: a worker hears that %s is canceled, which is not in the store", c.Ref.TaskRef)
		}
	case lane.TaskSettled:
	}
}

// Away describes a worker that is not yet back home, or returns an empty string. Slots of such a
// worker are lent, or claims of other owners use them, or the node that made its claim still counts
// permits for the claim. That node learns from the next poll that the worker is done.
func (s *Cluster) Away() string {
	for _, p := range s.Procs {
		if p == nil {
			continue
		}
		for _, h := range p.Hands {
			if n := h.abroad.Slots(); n != 0 {
				return fmt.Sprintf("%d slots of %s", n, h.Offer.Name)
			}
		}
		if p.Inc != nil && p.Inc.purse != nil && len(p.Inc.purse.KeptFor()) > 0 && p.counting() != nil {
			return "permits that " + p.Inc.name() + " counts"
		}
	}
	return ""
}

// checkBoards checks that the boards are empty when every task has ended.
func (s *Cluster) checkBoards() {
	if what := s.Away(); what != "" {
		s.Fail("E43: everything has ended, and %s are lent, or taken by other owners", what)
	}
	for _, p := range s.Procs {
		// a node without a lease has not noticed yet that it was fenced
		if p.Inc.board == nil || !s.Ledger.Nodes[p.Inc.self.ID].Alive {
			continue
		}
		if what := p.Inc.board.left(); what != "" {
			s.Fail("E43: everything has ended, and the board of %s has %s", p.Inc.name(), what)
		}
	}
}
