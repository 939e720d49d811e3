package workload

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// In some simulations the store refuses rows of an address until everything else has ended. All
// other executions must continue and end during that time, except for executions that wait for a
// refused address. After that the store accepts the rows again, and everything must end.

// sickenForGood makes the rows of an address unwritable until everything else has ended.
func (s *Workload) sickenForGood() {
	a := s.SickAddress()
	// A task that executes now will report to a run that cannot store the report.
	if busy := s.executed(); s.Chance(0.5) && len(busy) > 0 {
		a = kernel.OneOf(s, busy...)
	}
	s.Ledger.Address(a).Sick = true
	s.Disk.Lasting[a] = true
	s.Hurt(scenario.FaultLastingPoison)
	if s.Tracing {
		s.Logf("store    lasting poison: %s", a)
	}
}

// executed returns the addresses of the runs whose tasks are executing now.
func (s *Workload) executed() (list []model.Address) {
	for _, p := range s.Procs {
		if p == nil {
			continue
		}
		for _, h := range p.Hands {
			for _, ref := range h.Refs() {
				list = append(list, ref.Address)
			}
		}
	}
	return list
}

// neighboursEnd waits until everything has ended, except executions that wait for a refused address
// or for the late upgrade. After that the store accepts all rows again, and all processes are
// upgraded.
func (s *Workload) neighboursEnd() {
	if len(s.Disk.Lasting) == 0 && !s.Plan.LateUpgrade {
		return
	}
	ended := false
	var look func()

	look = func() {
		if ended = s.others() == ""; !ended {
			s.After(20*kernel.Millisecond, nil, look)
		}
	}

	s.After(0, nil, look)
	s.RunUntil(s.Now+s.Plan.Patience, func() bool { return ended })
	if !ended {
		s.DumpIf()
		s.Fail("I14: rows of %v are refused, and their neighbours are stuck for %d s: %s", s.refusedKeys(), s.Plan.Patience/kernel.Second, s.others())
	}

	s.Did(scenario.OpNeighbours)
	if s.Tracing {
		s.Logf("store    the lasting poison ends")
	}
	clear(s.Disk.Lasting)
	s.upgradeAll()
}

func (s *Workload) refusedKeys() (keys []string) {
	for a := range s.Disk.Lasting {
		keys = append(keys, a.Key)
	}
	slices.Sort(keys)
	return keys
}

// others describes something that has not ended although it does not wait for a refused address. It
// returns an empty string if there is nothing.
func (s *Workload) others() string {
	waits := s.waitsForRefused()
	for _, r := range s.Ledger.Order {
		if r.Open() && !waits[r.Address.Name] {
			return fmt.Sprintf("run %s of %s is open", scenario.Short(r.ID), r.Address.Name)
		}
	}

	for _, row := range s.Ledger.Inbox {
		if !waits[row.Message.To] {
			return fmt.Sprintf("a request to %s waits", row.Message.To)
		}
	}

	for k, c := range s.Ledger.Pairs {
		if c.Next < int64(len(c.Rows)) {
			return fmt.Sprintf("messages from shard %d to shard %d: %d of %d consumed", k[1], k[0], c.Next, len(c.Rows))
		}
	}

	for _, n := range s.Ledger.HoldingOrder {
		if len(n.Box) > 0 && !waits[n.Address.Name] {
			return fmt.Sprintf("%d items wait for %s", len(n.Box), n.Address.Name)
		}
	}

	behind := map[int]bool{} // users that wait for a refused address
	for _, o := range s.Ops {
		switch {
		case o.Done:
		case waits[o.Message.To]:
			behind[o.User] = true
		default:
			return o.String() + " has not ended"
		}
	}

	for _, u := range s.users {
		if u.busy && !behind[u.index] {
			return fmt.Sprintf("user %d is not done", u.index)
		}
	}

	return s.heldByOthers(waits)
}

// heldByOthers describes something that a worker still holds although its address does not wait for
// a refused address, or says that a node is away. It returns an empty string if there is nothing.
func (s *Workload) heldByOthers(waits map[model.Address]bool) string {
	for _, p := range s.Procs {
		if p == nil || p.Inc == nil {
			return "a node is away"
		}

		for _, w := range p.Workers {
			for id := range w.Held {
				if r := s.Ledger.Runs[id]; r == nil || !waits[r.Address.Name] {
					return fmt.Sprintf("worker %d of %s holds %s", w.ID, p.Name(), scenario.Short(id))
				}
			}
		}

		for _, h := range p.Hands {
			for _, ref := range h.Refs() {
				if !waits[ref.Address] {
					return fmt.Sprintf("%s executes claim %d of %s", h.Offer.Name, ref.Claim, scenario.Short(ref.Run))
				}
			}
			for ref := range h.Reported {
				if !waits[ref.Address] {
					return fmt.Sprintf("%s has reported claim %d of %s, and hears nothing", h.Offer.Name, ref.Claim, scenario.Short(ref.Run))
				}
			}
		}
	}

	return ""
}

// waitsForRefused returns the addresses that may wait. These are the addresses whose rows are
// refused or cannot be read before an upgrade, and the addresses that wait for such addresses.
func (s *Workload) waitsForRefused() map[model.Address]bool {
	waits := map[model.Address]bool{}
	for a := range s.Disk.Lasting {
		waits[a] = true
	}
	for a := range s.NewEvents {
		waits[a] = true
	}

	for _, row := range s.Ledger.Inbox {
		if s.Plan.LateUpgrade && s.IsNew(&row.Message) {
			waits[row.Message.To], waits[row.Message.From.Address] = true, true
		}
	}

	for grown := true; grown; {
		grown = false
		note := func(a model.Address) {
			if !waits[a] {
				waits[a], grown = true, true
			}
		}
		for _, r := range s.Ledger.Order {
			if !r.Open() || waits[r.Address.Name] || r.Start.Task != nil {
				continue
			}
			if slices.ContainsFunc(s.Needs(r), func(a model.Address) bool { return waits[a] }) {
				note(r.Address.Name)
			}
		}

		for _, n := range s.Ledger.HoldingOrder {
			if waits[n.Row.Holder.Address] {
				note(n.Address.Name)
			}
		}
	}

	return waits
}
