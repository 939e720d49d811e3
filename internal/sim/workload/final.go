package workload

import (
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/kernel"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// finished reports whether everything has ended: there is no open run, no waiting user, and no
// message in flight.
func (s *Workload) finished() bool {
	if s.Ledger.Open > 0 || len(s.Ledger.Inbox) > 0 {
		return false
	}

	for _, u := range s.users {
		if u.busy {
			return false
		}
	}

	for _, o := range s.Ops {
		if !o.Done {
			return false
		}
	}

	for _, c := range s.Ledger.Pairs {
		if c.Next < int64(len(c.Rows)) {
			return false
		}
	}

	for _, p := range s.Procs {
		if p == nil || p.Inc == nil {
			return false
		}

		for _, w := range p.Workers {
			if len(w.Held) > 0 {
				return false
			}
		}

		for _, h := range p.Hands {
			if len(h.Held)+len(h.Reported)+len(h.Lingers) > 0 {
				return false
			}
		}

		for _, t := range p.Tellers {
			if len(t.Held) > 0 {
				return false
			}
		}
	}

	for _, n := range s.Ledger.HoldingOrder {
		if len(n.Box) > 0 || n.Expires() {
			return false
		}
	}

	return true
}

// failStuck fails with a list of what has not ended.
func (s *Workload) failStuck() {
	var t strings.Builder
	for _, r := range s.Ledger.Order {
		if r.Open() {
			if r.Start.Task != nil {
				fmt.Fprintf(&t, "\n  task %s of %s is open: %d events, parked %v, blocked %v, %+v%s", scenario.Short(r.ID), r.Address.Name, len(r.Events), r.Parked, r.Blocked, *r.Tasks[model.TaskStep], s.Explain(r, model.TaskStep))
				continue
			}
			m := s.Replay(r)
			fmt.Fprintf(&t, "\n  run %s of %s is open: %d events, parked %v, blocked %v, timers %d, block %d", scenario.Short(r.ID), r.Address.Name, len(r.Events), r.Parked, r.Blocked, len(r.Timers), m.PC)
			if m.End == nil && m.PC < len(m.Program.Blocks) {
				fmt.Fprintf(&t, " (%s)", scenario.BlockNames[m.Program.Blocks[m.PC].Kind])
			}
			for id, k := range r.Tasks {
				if !k.Over {
					fmt.Fprintf(&t, "\n    task %s: %+v%s", id, *k, s.Explain(r, id))
				}
			}
		}
	}

	for _, o := range s.Ops {
		if !o.Done {
			fmt.Fprintf(&t, "\n  %s has not ended", o)
		}
	}

	for k, c := range s.Ledger.Pairs {
		if c.Next < int64(len(c.Rows)) {
			fmt.Fprintf(&t, "\n  messages from shard %d to shard %d: %d of %d consumed", k[1], k[0], c.Next, len(c.Rows))
		}
	}

	for _, n := range s.Ledger.HoldingOrder {
		if len(n.Box) > 0 {
			fmt.Fprintf(&t, "\n  %d items wait for %s, the first is a %s; it is locked by %s of %s", len(n.Box), n.Address.Name, n.Box[0].Message.Kind, n.Row.Holder.ID, scenario.Short(n.Row.Holder.Run))
		}
	}

	for _, n := range s.Ledger.HoldingOrder {
		if n.Expires() {
			fmt.Fprintf(&t, "\n  the state of %s expired at %d and is in the store", n.Address.Name, n.Row.Expires)
		}
	}

	for id := range s.Ledger.Inbox {
		fmt.Fprintf(&t, "\n  request %s waits", scenario.Short(id))
	}

	for _, p := range s.Procs {
		for _, w := range p.Workers {
			for id := range w.Held {
				fmt.Fprintf(&t, "\n  worker %d of %s holds %s", w.ID, p.Name(), scenario.Short(id))
			}
		}
		for _, h := range p.Hands {
			for _, ref := range h.Refs() {
				fmt.Fprintf(&t, "\n  %s executes claim %d of %s", h.Offer.Name, ref.Claim, scenario.Short(ref.Run))
			}
			for ref := range h.Reported {
				fmt.Fprintf(&t, "\n  %s has reported claim %d of %s, and hears nothing", h.Offer.Name, ref.Claim, scenario.Short(ref.Run))
			}
		}
	}

	if s.Tracing {
		s.Dump()
	}
	s.Fail("E42: stuck %d s after everything has healed:%s", s.Plan.Patience/kernel.Second, t.String())
}

// comeToRest waits until lanes hold nothing, and fails if that does not happen. A repeated report
// may wait for the end of a quarantine. A start whose caller has given up may start an execution
// that has to end too.
func (s *Workload) comeToRest() {
	s.RunUntil(s.Now+s.Plan.Patience, func() bool { return s.finished() && s.Holding() == "" && s.Away() == "" && s.Misplaced() == "" })
	if !s.finished() {
		s.failStuck()
	}
	if what := s.Holding(); what != "" {
		s.DumpIf()
		s.Fail("L7: everything has ended, and %s", what)
	}
	if what := s.Misplaced(); what != "" {
		s.DumpIf()
		s.Fail("E47: everything has ended, and %s", what)
	}
}
