package oracle

import (
	"slices"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// Pass is a task that the gate has let through.
type Pass struct {
	Spec    *model.TaskSpec
	Input   *model.Payload
	Found   bool // the claim existed before, and keeps the permits that it held
	Breaker rule.BreakerID
	Era     int  // the era of the breaker; 0 if the breaker ignores the outcome
	Probe   bool // the task has passed a half-open breaker
	Lease   model.Time

	// These are for nodes that share limits and breakers: when the task started, the limits whose
	// permits it holds, its probe, and whether it has given everything back.
	Since   int64
	Permits []rule.Resource
	Permit  breaker.Permit
	Given   bool
	Lingers bool // the claim is lost, and its code still runs
	Failed  bool // an attempt has failed, and its worker still holds its permits
}

// begins checks that a task that starts has a pass. If the nodes do not share their limits, it also
// records the start for checkLimits.
func (l *ledger) begins(b *store.Batch, r *Run, id string, t *errandState) {
	t.Node, t.tenure = b.Lane.Node, l.tenure[r.Address.Shard]
	m := l.Nodes[b.Lane.Node]
	if !l.s.Has(scenario.Gates) || m == nil || m.Life == nil {
		return
	}
	k, ref := m.Life.Gate, r.Ref(id, 0).TaskRef
	if k.Passes[ref] == 0 {
		l.Fail("G1: %s begins on %s, and was not let through", ref, m.Life.Label)
	}
	k.Passes[ref]--
	l.s.Claims[r.Ref(id, t.Claim)].Permits = scenario.PermitsOf(k.Sets[k.Under[ref]], t.spec, &t.Input)
	if !l.s.Has(scenario.SharedGates) {
		l.begun = append(l.begun, begun{r, t, ref})
	}
}

// begun is a task that starts in the batch that is being applied.
type begun struct {
	r   *Run
	t   *errandState
	ref model.TaskRef
}

// checkLimits checks the limits of all tasks that start in a batch. It fails if the durable state
// has more holders of a limit than the limit allows.
func (l *ledger) checkLimits(b *store.Batch) {
	for _, x := range l.begun {
		if !x.t.Held || x.t.Over || !x.r.Open() {
			continue
		}
		k := l.Nodes[b.Lane.Node].Life.Gate

		sets := k.Sets[k.Under[x.ref]:]
		for _, u := range sets[0].Resolve(scenario.Tenant, x.t.spec, &x.t.Input) {
			most := 0 // the largest number that the rules have allowed since the task started
			for _, set := range sets {
				n, ok := set.Numbers(u.Resource)
				if !ok || n.Concurrency == 0 {
					most = 0
					break
				}
				most = max(most, n.Concurrency)
			}
			if n := l.holding(b, sets, u.Resource); most > 0 && n > most {
				l.Fail("G2: %d tasks hold limit %s of %s, at most %d", n, u.Resource, l.Name(b.Lane.Node), most)
			}
		}
	}

	l.begun = l.begun[:0]
}

// holding counts the holders of a limit of a node according to the durable state. The node itself
// counts what its lanes have decided, but the decisions of one lane may reach the store before the
// decisions of another lane. So holding counts only tasks of the lane that commits. It leaves out
// tasks that the lane no longer knows, or knows in another state: tasks of shards that have moved
// or are about to move, and tasks of addresses whose rows cannot be written. After a refused or
// split batch, the lane applies inputs again. Then the claim that got a permit may become durable
// before the report or the time-out of the task that held the permit. So holding also leaves out a
// task whose worker reported, or whose time was up, before the lane last applied inputs again.
func (l *ledger) holding(b *store.Batch, sets []*rule.Set, res rule.Resource) (n int) {
	for _, r := range l.Order {
		if !r.Open() {
			continue
		}
		shard := r.Address.Shard
		sh := l.Nodes[b.Lane.Node].Life.Lanes[b.Lane.Lane]

		_, moving := sh.Moving[shard]
		for id, t := range r.Tasks {
			here := t.Node == b.Lane.Node && t.tenure == l.tenure[shard] && int(shard)%l.s.Plan.Lanes == b.Lane.Lane && !moving && !r.Address.Sick
			if !t.Held || t.Over || !here {
				continue
			}

			ref := r.Ref(id, t.Claim)
			if told := l.s.Claims[ref].Told; told > 0 && told <= sh.Undone {
				continue
			}
			if sh.Undone > 0 && !claims(b, ref) && l.s.outOfTime(ref, t, sh.Clock) {
				continue
			}
			if !slices.ContainsFunc(sets, func(s *rule.Set) bool { return !scenario.Uses(s, t.spec, &t.Input, res) }) {
				n++
			}
		}
	}

	return n
}

// claims reports whether the batch makes a claim. No earlier decision can be about such a claim.
func claims(b *store.Batch, ref model.ClaimRef) bool {
	return starts(b, ref.Run) || slices.ContainsFunc(b.Events, func(e store.EventRow) bool { return e.Run == ref.Run && e.Event.Seq == ref.Claim })
}

// outOfTime reports whether a claim had no time left at the given time, and no worker has begun it.
// In that case the lane may have decided that the claim has timed out, given the permit to another
// task, and then undone the decision about the claim. If a worker begins the claim nevertheless,
// that breaks G2.
func (s *Oracle) outOfTime(ref model.ClaimRef, t *errandState, now model.Time) bool {
	known, closes, silent := s.Claims[ref], t.spec.ToClose, t.spec.Silence
	late := closes > 0 && now > t.since.Add(closes) || silent > 0 && now > t.since.Add(silent)
	if !late || known == nil || known.Begun {
		return false
	}
	known.Late = true
	return true
}
