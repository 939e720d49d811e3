package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	limits "github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// counting returns the keeper of the current incarnation of a process. It returns nil if the
// incarnation has no lease. A node without a lease does not matter, because it can no longer make
// claims.
func (p *Proc) counting() *keeper {
	if p == nil || p.Inc == nil || p.Inc.ended || !p.Cluster.Ledger.Nodes[p.Inc.self.ID].Alive {
		return nil
	}
	return p.Inc.board.keeper
}

// takenBy lists the holders of a limit: tasks that a live node has let through, and tasks that
// workers claimed at a node that is dead now.
func (s *Cluster) takenBy(r rule.Resource) (list []string) {
	lives := map[model.NodeID]bool{}
	for _, p := range s.Procs {
		if k := p.counting(); k != nil {
			lives[p.Inc.self.ID] = true
			for ref, x := range k.let {
				if slices.Contains(x.Permits, r) {
					list = append(list, fmt.Sprintf("%s on %s", ref, p.Inc.name()))
				}
			}
		}
	}

	for _, run := range s.Ledger.Order {
		// Claims whose rows cannot be read or written hold nothing, because no node can tell when
		// they end.
		if !run.Open() || run.Address.Sick {
			continue
		}
		for id, t := range run.Tasks {
			ref := run.Ref(id, t.Claim)
			if t.Held && !t.Over && !lives[t.Node] && slices.Contains(s.Claims[ref].Permits, r) && s.Claims[ref].Begun && len(s.Reports[ref]) == 0 && !s.givenUp(run, ref) {
				list = append(list, fmt.Sprintf("claim %d of %s by %s", t.Claim, ref.TaskRef, s.Ledger.Name(t.Node)))
			}
		}
	}

	slices.Sort(list)
	return list
}

// givenUp reports whether the owner of a run has decided that a claim of a dead node has ended.
// That decision may not be durable yet. If the decision is undone, the owner finds the claim again
// and counts it, although another task may have the permit of the claim by now. That is allowed,
// because no worker executes the claim.
func (s *Cluster) givenUp(r *oracle.Run, ref model.ClaimRef) bool {
	if s.Claims[ref].Freed {
		return true
	}
	inc := s.lives[s.Ledger.Owner[r.Address.Shard]]
	if inc == nil || inc.p.counting() != inc.board.keeper {
		return false
	}
	k := inc.board.keeper
	p := k.let[ref.TaskRef]
	if p == nil {
		return k.knew[ref]
	}
	return !p.Found // the gate let the task through again
}

// freeLost records that the owner of a run frees the permits of a claim of a dead node, because it
// has decided that the claim has ended.
func (k *keeper) freeLost(ref model.TaskRef) {
	inc := k.b.inc
	s := inc.p.Cluster
	r := s.Ledger.Runs[ref.Run]
	if r == nil || s.Ledger.Owner[r.Address.Shard] != inc.self.ID || inc.p.counting() != k {
		return
	}
	t := r.Task(ref.ID)
	if t == nil || !t.Held || s.Ledger.Nodes[t.Node].Alive {
		return
	}
	if claim := r.Ref(ref.ID, t.Claim); k.knew[claim] {
		s.Claims[claim].Freed = true
	}
}

// sharedLimits checks the limits of a task that a node has let through: no limit has too many
// holders, and tasks do not start faster than a rate allows.
func (k *keeper) sharedLimits(now model.Time, ref model.TaskRef, uses []rule.Use) {
	s := k.b.inc.p.Cluster
	for _, u := range uses {
		if most := s.Most(u.Resource); u.Numbers.Concurrency > 0 {
			if list := s.takenBy(u.Resource); len(list) > most {
				s.Fail("D1: %s begins on %s, and limit %s has holders %v, at most %d", ref, k.b.inc.name(), u.Resource, list, most)
			}
		}
		if numbers, ok := s.Steady(u.Resource); ok && numbers.Rate > 0 {
			s.Spent(now, ref, u.Resource, numbers)
		}
	}
}

// executing checks that no limit has too many running bodies when another body starts. It counts
// every body whose claim a live node made, even if another node owns the run by now, and also the
// bodies of lost claims. It leaves out bodies on a node that the others have declared dead, because
// the owner has freed their permits. If nodes do not share limits, it counts the bodies of one
// node.
func (s *Cluster) executing(ref model.ClaimRef) {
	for _, res := range s.Claims[ref].Permits {
		counts := func(o model.ClaimRef) bool {
			c := s.Claims[o]
			at := s.Ledger.Nodes[c.At]
			return s.Ledger.Nodes[c.Maker].Alive && (at == nil || at.Alive) && slices.Contains(c.Permits, res) && (s.Has(scenario.SharedGates) || c.Maker == s.Claims[ref].Maker)
		}
		var list []string
		for _, p := range s.Procs {
			if p == nil {
				continue
			}
			for _, h := range p.Hands {
				for _, o := range h.Refs() {
					if counts(o) {
						list = append(list, fmt.Sprintf("claim %d of %s by %s", o.Claim, o.TaskRef, h.Offer.Name))
					}
				}
				for _, o := range h.lingering() {
					if counts(o) && !s.exceeds(s.Claims[o].Maker, o) {
						list = append(list, fmt.Sprintf("lost claim %d of %s by %s", o.Claim, o.TaskRef, h.Offer.Name))
					}
				}
			}
		}

		if most := s.Most(res); len(list) > most {
			s.Fail("D1: claim %d of %s begins, and limit %s is held by %v, at most %d", ref.Claim, ref.TaskRef, res, list, most)
		}
	}
}

// exceeds reports whether a lost claim had no permits when its worker was told so, because the next
// attempt of its task had taken them over.
func (s *Cluster) exceeds(maker model.NodeID, ref model.ClaimRef) bool {
	p := s.lives[maker].board.keeper.let[ref.Lingering()]
	return p != nil && p.Found
}

// checkProbe checks a task that passes a breaker that is not closed: the task has a probe that no
// other task has, and there are not too many probes.
func (k *keeper) checkProbe(now model.Time, ref model.TaskRef, id rule.BreakerID, p *oracle.Pass) {
	s := k.b.inc.p.Cluster
	if k.observe(now, id); k.watch(id).state == breaker.Closed {
		return
	}
	permit := k.g.BreakerPermit(ref)
	if permit.Probe == 0 || permit.Lease <= now {
		s.Fail("E35: %s passes breaker %s on %s, which is %s, without a probe", ref, id, k.b.inc.name(), k.watch(id).state)
	}
	s.Did(scenario.OpProbe)
	p.Permit = permit
	x, most, under := s.Breaker(id), 0, 1
	for _, set := range s.Sets {
		most = max(most, set.BreakerConfig(id).Probes)
	}

	for _, o := range x.Probes {
		if o.Permit.Generation == permit.Generation && o.Permit.Probe == permit.Probe {
			s.Fail("E35: %s passes breaker %s on %s with probe %d, which another task has used", ref, id, k.b.inc.name(), permit.Probe)
		}
		if o.Permit.Generation == permit.Generation && !o.Given && o.Permit.Lease > s.StoreTime()+model.Time(s.Lag()) {
			under++
		}
	}

	// The clock of a node may be slow. So the node may use a probe whose lease has ended, while
	// another node already has the next probe.
	if under > most && permit.Lease > s.StoreTime() {
		s.Fail("E35: %d probes of breaker %s are under way, at most %d", under, id, most)
	}
	x.Probes = append(x.Probes, p)
}

// unsettled describes permits of shared limits that nodes still hold or want after everything has
// ended.
func (s *Cluster) unsettled() string {
	places := map[limit.Place]*keeper{}
	for _, p := range s.Procs {
		k := p.counting()
		if k == nil {
			return "a node is away"
		}
		places[p.Inc.place()] = k
		if what := k.b.left(); what != "" {
			return p.Name() + " has " + what
		}
		for id := range k.g.Orphans() {
			return fmt.Sprintf("%s counts what worker %d executes", p.Name(), id)
		}
	}

	list, err := s.Disk.Mem.ListSettings(context.Background(), "", "")
	if err != nil {
		s.Fail("settings: %v", err)
	}
	leased := map[limit.Place]map[rule.Resource]int{}

	soles := map[int]bool{}
	for i := range list {
		x := &list[i]
		if x.Kind == scenario.SettingFound {
			return "a node still looks for claims of dead nodes"
		}
		entries, sole, err := limits.Read(x.Body)
		if err != nil {
			s.Fail("page %s: %v", x.Name, err)
		}

		if sole != 0 {
			n, err := strconv.Atoi(x.Name)
			if err != nil {
				s.Fail("page %s: %v", x.Name, err)
			}
			soles[n] = true
			if places[sole] == nil {
				return "page " + x.Name + " belongs to a node that no longer exists"
			}
		}

		for _, e := range entries {
			for _, l := range e.Leases {
				if places[l.Place] == nil {
					return "a node that no longer exists has permits of " + e.Resource.String()
				}
				if l.Over > 0 || l.Want > 0 {
					return fmt.Sprintf("place %d wants permits of %s, or holds it without one: %+v", l.Place, e.Resource, e.Leases)
				}
				if leased[l.Place] == nil {
					leased[l.Place] = map[rule.Resource]int{}
				}
				leased[l.Place][e.Resource] = l.Permits
			}
		}
	}

	for place, k := range places {
		for _, l := range k.g.Limits() {
			if n := leased[place][l.Resource]; n != l.Block && !soles[limits.PageOf(l.Resource)] {
				return fmt.Sprintf("%s believes in %d permits of %s, and its lease says %d", k.b.inc.name(), l.Block, l.Resource, n)
			}
			delete(leased[place], l.Resource)
		}
		for r, n := range leased[place] {
			if n > 0 {
				return fmt.Sprintf("%s has %d permits of %s and does not know of them", k.b.inc.name(), n, r)
			}
		}
	}

	return ""
}

// checkLeft checks that nodes that have left cleanly have given everything back.
func (s *Cluster) checkLeft(last []*incarnation) {
	if !s.Has(scenario.SharedGates) {
		return
	}
	list, err := s.Disk.Mem.ListSettings(context.Background(), "", scenario.SettingPage)
	if err != nil {
		s.Fail("settings: %v", err)
	}

	left := func(place limit.Place) bool {
		return slices.ContainsFunc(last, func(inc *incarnation) bool { return !inc.lost && inc.place() == place })
	}
	for i := range list {
		if s.WasSettingDamaged(&list[i]) {
			continue // no operator has restored the setting yet, and no node may overwrite it
		}
		entries, sole, err := limits.Read(list[i].Body)
		if err != nil || left(sole) {
			s.Fail("D2: all nodes have left, and page %s is that of place %d: %v", list[i].Name, sole, err)
		}
		for _, e := range entries {
			for _, l := range e.Leases {
				if left(l.Place) {
					s.Fail("D2: all nodes have left, and limit %s is leased: %+v", e.Resource, e.Leases)
				}
			}
		}
	}
}
