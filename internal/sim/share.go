package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	limits "github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/model"
)

// What must hold for limits and breakers that all nodes share, when nodes die, are late, or do not
// know whether their writes landed:
//
//   - Over all nodes, a limit never has more holders than permits (D1). This holds for the tasks
//     that nodes have let through and still count, including tasks of dead nodes, and for running
//     bodies. Tasks never start faster than its rate allows.
//   - No permit is lost (D2): every task gets its turn. When everything has ended, pages name no
//     dead node, no node wants or holds anything, and each node has what its lease says. When all
//     nodes have left, nothing is leased.
//   - A breaker opens only if enough calls have failed, each counted once (E33). It never has more
//     probes in flight than allowed, and one task uses each (E35).
//
// While users change the numbers, nodes use different ones for a moment, and pages use the numbers
// of the last writer. The checks use the largest numbers that any node has used.

// most returns how many tasks may hold a limit, by any rule that a node has used.
func (s *Sim) most(r rule.Resource) (most int) {
	for _, set := range s.sets {
		if n, ok := set.Numbers(r); ok {
			most = max(most, n.Concurrency)
		}
	}
	return most
}

// steady returns the numbers of a limit if they have never changed.
func (s *Sim) steady(r rule.Resource) (n limit.Numbers, ok bool) {
	for i, set := range s.sets {
		m, ok := set.Numbers(r)
		if !ok || i > 0 && m != n {
			return n, false
		}
		n = m
	}
	return n, true
}

// permitsOf returns the limits that a task needs a permit of.
func permitsOf(set *rule.Set, spec *model.TaskSpec, in *model.Payload) (list []rule.Resource) {
	for _, u := range set.Resolve(tenant, spec, in) {
		if u.Numbers.Concurrency > 0 {
			list = append(list, u.Resource)
		}
	}
	return list
}

// counting returns the keeper of the current life of a process if that life has a lease, otherwise
// nil. A node that others have fenced can no longer make claims, whatever it lets through.
func (p *proc) counting() *keeper {
	if p == nil || p.inc == nil || p.inc.ended || !p.s.ledger.nodes[p.inc.self.ID].alive {
		return nil
	}
	return p.inc.board.keeper
}

// takenBy lists the holders of a limit: tasks that a live node has let through, and claims of dead
// nodes that their workers received.
func (s *Sim) takenBy(r rule.Resource) (list []string) {
	lives := map[model.NodeID]bool{}
	for _, p := range s.procs {
		if k := p.counting(); k != nil {
			lives[p.inc.self.ID] = true
			for ref, x := range k.let {
				if slices.Contains(x.permits, r) {
					list = append(list, fmt.Sprintf("%s on %s", ref, p.inc.name()))
				}
			}
		}
	}

	for _, run := range s.ledger.order {
		// rows that cannot be read or written hold nothing: the node cannot tell when they end
		if !run.open() || run.address.sick {
			continue
		}
		for id, t := range run.tasks {
			ref := run.ref(id, t.claim)
			if t.held && !t.over && !lives[t.node] && slices.Contains(s.claims[ref].permits, r) && s.claims[ref].begun && len(s.reports[ref]) == 0 && !s.givenUp(run, ref) {
				list = append(list, fmt.Sprintf("claim %d of %s by %s", t.claim, ref.TaskRef, s.ledger.name(t.node)))
			}
		}
	}

	slices.Sort(list)
	return list
}

// givenUp reports whether the owner of a run has decided that a claim of a dead node has ended.
// That decision may not be durable yet.
func (s *Sim) givenUp(r *run, ref model.ClaimRef) bool {
	m := s.ledger.nodes[s.ledger.owner[r.address.shard]]
	if m == nil || m.inc == nil || m.inc.p.counting() != m.inc.board.keeper {
		return false
	}
	k := m.inc.board.keeper
	p := k.let[ref.TaskRef]
	if p == nil {
		return k.knew[ref]
	}
	return !p.found // the gate let the task through again
}

// sharedLimits checks that a task that a node has let through does not exceed a limit.
func (k *keeper) sharedLimits(now model.Time, ref model.TaskRef, uses []rule.Use) {
	s := k.b.inc.p.s
	for _, u := range uses {
		if most := s.most(u.Resource); u.Numbers.Concurrency > 0 {
			if list := s.takenBy(u.Resource); len(list) > most {
				s.fail("D1: %s begins on %s, and limit %s has holders %v, at most %d", ref, k.b.inc.name(), u.Resource, list, most)
			}
		}
		if numbers, ok := s.steady(u.Resource); ok && numbers.Rate > 0 {
			s.spent(now, ref, u.Resource, numbers)
		}
	}
}

// spent checks that tasks do not start faster than a rate allows, in any interval.
func (s *Sim) spent(now model.Time, ref model.TaskRef, r rule.Resource, n limit.Numbers) {
	s.behind = max(s.behind, int64(s.storeTime()-now)) // the clock of the node that lets it through
	at := s.began[r]
	at = append(at, s.now)
	for i := range at {
		stretch := s.now - at[i] + s.lag()
		if most := float64(max(n.Burst, 1)) + float64(stretch)*float64(n.Rate)/float64(n.Per.Microseconds()); float64(len(at)-i) > most+1e-6 {
			s.fail("D1: %s begins at %s, and with it %d of limit %s in %d µs: %s", ref, now, len(at)-i, r, stretch, n)
		}
	}
	s.began[r] = at
}

// lag is the largest difference between clocks of nodes that has mattered so far, including forward
// corrections.
func (s *Sim) lag() int64 { return s.behind + 2*s.skew() }

// executing checks that a body that starts does not exceed a limit. The bodies of all workers count
// if a live node made their claims, also if other nodes own the runs by now.
func (s *Sim) executing(ref model.ClaimRef) {
	for _, res := range s.claims[ref].permits {
		var list []string
		for _, p := range s.procs {
			if p == nil {
				continue
			}
			for _, h := range p.hands {
				for _, o := range h.refs() {
					if c := s.claims[o]; s.ledger.nodes[c.maker].alive && slices.Contains(c.permits, res) && !s.decided(c.maker, s.claims[ref].maker, o) {
						list = append(list, fmt.Sprintf("claim %d of %s by %s", o.Claim, o.TaskRef, h.offer.Name))
					}
				}
			}
		}

		if most := s.most(res); len(list) > most {
			s.fail("D1: claim %d of %s begins, and limit %s is held by %v, at most %d", ref.Claim, ref.TaskRef, res, list, most)
		}
	}
}

// decided reports whether the node of a claim has decided that the claim has ended, and the same
// node has made the claim that starts. One lane of a node may stop a body after another lane has
// started the next one, as a worker may need a moment to stop.
func (s *Sim) decided(maker, next model.NodeID, ref model.ClaimRef) bool {
	return maker == next && s.ledger.nodes[maker].inc.board.keeper.let[ref.TaskRef] == nil
}

// sharedBreaker is what all nodes together have done with a breaker.
type sharedBreaker struct {
	state breaker.State
	// since when it is closed: the last time that another state was stored
	closed int64
	failed []int64 // the start times of failed calls
	probes []*pass
}

func (s *Sim) breaker(id rule.BreakerID) *sharedBreaker {
	x := s.breakers[id]
	if x == nil {
		x = &sharedBreaker{closed: -1}
		s.breakers[id] = x
	}
	return x
}

// breakerStored checks a breaker that opens: enough calls have failed, and none is counted twice.
func (s *Sim) breakerStored(name string, row []byte) {
	o, err := breaker.Decode(row)
	if err != nil {
		s.fail("breaker %s: %v", name, err)
	}

	st, x := o.Status(s.storeTime()), s.breaker(rule.BreakerID{Tenant: tenant, Name: name})
	if st.State == breaker.Open && x.state != breaker.Open && strings.Contains(st.Why, "failures in") {
		failures := 0
		for _, at := range x.failed {
			if at >= x.closed {
				failures++
			}
		}
		if failures < st.Config.Failures {
			s.fail("E33: breaker %s opens, because of %s, and %d calls have failed since it was closed, of %d", name, st.Why, failures, st.Config.Failures)
		}
		s.did(opOpened)
	}

	if x.state == breaker.HalfOpen && st.State == breaker.Closed {
		s.did(opRecovered)
	}

	if x.state = st.State; x.state != breaker.Closed {
		x.closed = s.now
	} else { // the node that closed it acted on that before it was stored
		x.closed = min(x.closed, int64(st.Since)-epoch-s.lag())
	}
}

// probed checks that a task that passes a breaker that is not closed has a probe that no other task
// has, and that there are not too many probes.
func (k *keeper) probed(now model.Time, ref model.TaskRef, id rule.BreakerID, p *pass) {
	s := k.b.inc.p.s
	if k.observe(now, id); k.watch(id).state == breaker.Closed {
		return
	}
	permit := k.g.BreakerPermit(ref)
	if permit.Probe == 0 || permit.Lease <= now {
		s.fail("E35: %s passes breaker %s on %s, which is %s, without a probe", ref, id, k.b.inc.name(), k.watch(id).state)
	}
	s.did(opProbe)
	p.permit = permit
	x, most, under := s.breaker(id), 0, 1
	for _, set := range s.sets {
		most = max(most, set.BreakerConfig(id).Probes)
	}

	for _, o := range x.probes {
		if o.permit.Generation == permit.Generation && o.permit.Probe == permit.Probe {
			s.fail("E35: %s passes breaker %s on %s with probe %d, which another task has used", ref, id, k.b.inc.name(), permit.Probe)
		}
		if o.permit.Generation == permit.Generation && !o.given && o.permit.Lease > s.storeTime()+model.Time(s.lag()) {
			under++
		}
	}

	if under > most {
		s.fail("E35: %d probes of breaker %s are under way, at most %d", under, id, most)
	}
	x.probes = append(x.probes, p)
}

// ended records the end of a call through a breaker.
func (p *pass) ended(s *Sim, failed bool) {
	p.given = true
	if failed {
		x := s.breaker(p.breaker)
		x.failed = append(x.failed, p.since)
	}
}

// unsettled returns what nodes still hold or want of shared limits after everything has ended.
func (s *Sim) unsettled() string {
	places := map[limit.Place]*keeper{}
	for _, p := range s.procs {
		k := p.counting()
		if k == nil {
			return "a node is away"
		}
		places[p.inc.place()] = k
		if what := k.b.left(); what != "" {
			return p.name() + " has " + what
		}
		for id := range k.g.Orphans() {
			return fmt.Sprintf("%s counts what worker %d executes", p.name(), id)
		}
	}

	list, err := s.disk.mem.ListSettings(background, "", "")
	if err != nil {
		s.fail("settings: %v", err)
	}
	leased := map[limit.Place]map[rule.Resource]int{}

	soles := map[int]bool{}
	for i := range list {
		x := &list[i]
		if x.Kind == settingFound {
			return "somebody looks for claims of the dead"
		}
		entries, sole, err := limits.Read(x.Body)
		if err != nil {
			s.fail("page %s: %v", x.Name, err)
		}

		if sole != 0 {
			n, err := strconv.Atoi(x.Name)
			if err != nil {
				s.fail("page %s: %v", x.Name, err)
			}
			soles[n] = true
			if places[sole] == nil {
				return "page " + x.Name + " is that of a node that is no more"
			}
		}

		for _, e := range entries {
			for _, l := range e.Leases {
				if places[l.Place] == nil {
					return "a node that is no more has permits of " + e.Resource.String()
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

// checkLeft checks that nodes that have left in good order have given everything back.
func (s *Sim) checkLeft(last []*incarnation) {
	if !s.shared {
		return
	}
	list, err := s.disk.mem.ListSettings(background, "", settingPage)
	if err != nil {
		s.fail("settings: %v", err)
	}

	left := func(place limit.Place) bool {
		return slices.ContainsFunc(last, func(inc *incarnation) bool { return !inc.lost && inc.place() == place })
	}
	for i := range list {
		entries, sole, err := limits.Read(list[i].Body)
		if err != nil || left(sole) {
			s.fail("D2: all nodes have left, and page %s is that of place %d: %v", list[i].Name, sole, err)
		}
		for _, e := range entries {
			for _, l := range e.Leases {
				if left(l.Place) {
					s.fail("D2: all nodes have left, and limit %s is leased: %+v", e.Resource, e.Leases)
				}
			}
		}
	}
}
