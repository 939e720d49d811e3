package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	limits "github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/oracle"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// In some seeds limits, breakers and paused queues hold tasks back. The simulator checks these
// rules: no task starts without a pass of the gate, and every start needs its own pass (G1). A
// limit never has more holders than permits, and tasks never start faster than its rate allows
// (G2). The configured number of failures opens a breaker, and fewer failures do not open it (E33).
// No task passes a breaker that is open, paused or held by a Retry-After (E34), and a half-open
// breaker has a limited number of probes (E35). No task of a paused queue starts (G3). Every task
// that is held back gets its turn: everything ends, and in the end no task holds anything.

// In most of these seeds all nodes share limits and breakers, as in production when several
// processes use the store (flow, share). In the other seeds each node has its own limits and
// breakers, as in production when one process uses the store. The checks of limits and breakers in
// this file hold for each node separately; share.go checks all nodes together.

// keeper is the production gate of the board of a node, with an observer. The observer sees the
// questions of the board, the answers, and the state of the gate afterwards.
type keeper struct {
	*oracle.Admissions

	b *board
	g *flow.BoardGate

	knew map[model.ClaimRef]bool // claims that the board knows
	// let has the tasks that have a pass. kept has the tasks that still hold permits although the
	// board has given these tasks up, with their outcomes.
	let   map[model.TaskRef]*oracle.Pass
	kept  map[model.TaskRef]queue.Outcome
	rates map[rule.Resource]*tokens
	seen  map[rule.BreakerID]*watched
	// asked is the first unsettled report that the gate has asked for during the current call of
	// Give.
	asked *model.TaskReport
}

// tokens is a simple token bucket that models a rate.
type tokens struct {
	level float64
	at    model.Time
}

// watched is the expected state of a breaker, according to what this node has seen.
type watched struct {
	era      int // changes with its state
	state    breaker.State
	since    model.Time
	barred   model.Time // nothing passes before this time
	failures []model.Time
	before   int // failures in an adopted state; the breaker may still count some
	// clock is the latest time that the breaker has seen. It may be ahead of the clock of the node:
	// a node whose clock is ahead may have used the breaker before. The times of a breaker never go
	// back, so the breaker uses this time until the clock of the node has caught up.
	clock model.Time
}

// tick returns the time that the breaker uses when the clock of the node shows now.
func (w *watched) tick(now model.Time) model.Time {
	w.clock = max(w.clock, now)
	return w.clock
}

func newKeeper(b *board) *keeper {
	p := b.inc.p
	k := &keeper{
		Admissions: &oracle.Admissions{Passes: map[model.TaskRef]int{}, Under: map[model.TaskRef]int{}},
		b:          b, let: map[model.TaskRef]*oracle.Pass{}, kept: map[model.TaskRef]queue.Outcome{},
		rates: map[rule.Resource]*tokens{}, seen: map[rule.BreakerID]*watched{}, knew: map[model.ClaimRef]bool{},
	}

	var book *limits.Book
	if p.Cluster.Has(scenario.SharedGates) {
		book = limits.New(b.inc.place())
	}

	k.g = flow.NewBoardGate(book, func(id queue.WorkerID, claim model.ClaimRef) (executes bool, report *model.TaskReport) {
		if i := slices.IndexFunc(p.Hands, func(h *hand) bool { return h.id == id }); i >= 0 {
			h := p.Hands[i]
			if k.asked == nil {
				k.asked = h.Reported[claim]
			}
			return h.Held[claim] != nil || h.Lingers[claim], h.Reported[claim]
		}
		if g := b.guests[id]; g != nil {
			return g.held[claim], nil
		}
		return false, nil
	})

	k.g.Lent = func(id queue.WorkerID) bool { return b.guests[id] != nil }
	return k
}

func (k *keeper) rules() *rule.Set { return k.Sets[len(k.Sets)-1] }

// Take implements queue.Admitter.
func (k *keeper) Take(now model.Time, it *queue.Item) (ok bool, why model.Reason, again model.Time) {
	if how, freed := k.g.FreeDone(now, it.Ref); freed {
		k.recordGiven(now, it.Ref, how)
	}
	how, goesOn := k.kept[it.Ref]
	delete(k.kept, it.Ref)
	ok, why, again = k.g.Take(now, it)
	// A lent worker still executes the previous attempt.
	if !ok && goesOn && k.g.IsAdmitted(it.Ref) {
		k.kept[it.Ref] = how
	}
	if ok {
		k.logf("lets %s through", it.Ref)
	}

	switch {
	case !ok:
		k.countRefusal(why)
	case k.let[it.Ref] == nil:
		k.checkPass(now, it)
	case goesOn:
		k.Passes[it.Ref]++
		k.Under[it.Ref] = len(k.Sets) - 1
	}

	return ok, why, again
}

func (k *keeper) logf(format string, args ...any) {
	if s := k.b.inc.p.Cluster; s.Tracing {
		s.Logf("%s %s", k.b.inc.name(), fmt.Sprintf(format, args...))
	}
}

func (k *keeper) countRefusal(why model.Reason) {
	s := k.b.inc.p.Cluster
	switch {
	case why.Code == model.WaitBreaker:
		s.Did(scenario.OpBarred)
	case strings.Contains(why.Detail, "no limit"):
		s.Did(scenario.OpLimitMissing)
	default:
		s.Did(scenario.OpLimited)
	}
}

// checkPass checks that a task may start.
func (k *keeper) checkPass(now model.Time, it *queue.Item) {
	s := k.b.inc.p.Cluster
	p := &oracle.Pass{Spec: it.Spec, Input: it.Input, Since: s.Now}
	k.let[it.Ref] = p
	k.Passes[it.Ref]++
	k.Under[it.Ref] = len(k.Sets) - 1
	if k.b.paused[it.Spec.Queue] {
		s.Fail("G3: %s begins on %s, which has paused queue %s", it.Ref, k.b.inc.name(), it.Spec.Queue)
	}

	uses := k.rules().Resolve(scenario.Tenant, it.Spec, it.Input)
	for _, u := range uses {
		if u.Missing {
			s.Fail("G2: %s begins on %s, and limit %s, which it names, is not there", it.Ref, k.b.inc.name(), u.Resource)
		}
		if k.g.Book != nil {
			continue
		}
		if n := u.Numbers.Concurrency; n > 0 && k.holders(u.Resource) > n {
			s.Fail("G2: %s begins on %s, and limit %s has %d holders there, at most %d", it.Ref, k.b.inc.name(), u.Resource, k.holders(u.Resource), n)
		}
		if u.Numbers.Rate > 0 {
			k.spend(now, it.Ref, u)
		}
	}

	if k.g.Book != nil {
		p.Permits = scenario.PermitsOf(k.rules(), it.Spec, it.Input)
		k.sharedLimits(now, it.Ref, uses)
	}

	id, config := k.rules().Breaker(scenario.Tenant, it.Spec)
	if id.IsZero() {
		return
	}
	w := k.watch(id)
	at := w.tick(now)
	if at < w.barred {
		s.Fail("E34: %s begins on %s at %s, and breaker %s lets nothing pass before %s", it.Ref, k.b.inc.name(), at, id, w.barred)
	}

	if k.g.Book != nil {
		p.Breaker = id
		k.checkProbe(now, it.Ref, id, p)
		return
	}

	k.observe(now, id)
	p.Breaker, p.Era, p.Probe, p.Lease = id, w.era, w.state != breaker.Closed, at.Add(max(it.Spec.ToClose, config.Lease))
	if !p.Probe {
		return
	}
	s.Did(scenario.OpProbe)

	probes := 0
	for _, o := range k.let {
		if o.Breaker == id && o.Probe && o.Era == w.era && at < o.Lease {
			probes++
		}
	}

	if probes > config.Probes {
		s.Fail("E35: %d probes of breaker %s are under way on %s, at most %d", probes, id, k.b.inc.name(), config.Probes)
	}
}

// holders counts the tasks with a pass that share a resource, by the current rules.
func (k *keeper) holders(r rule.Resource) (n int) {
	for _, p := range k.let {
		if scenario.Uses(k.rules(), p.Spec, p.Input, r) {
			n++
		}
	}
	return n
}

// spend takes a token of a rate.
func (k *keeper) spend(now model.Time, ref model.TaskRef, u rule.Use) {
	burst := float64(max(u.Numbers.Burst, 1))
	t := k.rates[u.Resource]
	if t == nil {
		t = &tokens{level: burst, at: now}
		k.rates[u.Resource] = t
	}
	t.level = min(burst, t.level+float64(now-t.at)*float64(u.Numbers.Rate)/float64(u.Numbers.Per.Microseconds())) - 1
	t.at = now
	if t.level < -1e-6 {
		k.b.inc.p.Cluster.Fail("G2: %s begins on %s, which is more than limit %s allows: %s", ref, k.b.inc.name(), u.Resource, u.Numbers)
	}
}

// Hold implements queue.Admitter.
func (k *keeper) Hold(now model.Time, it *queue.Item, maker string) {
	delete(k.kept, it.Ref)
	k.g.Hold(now, it, maker)
	k.holds(it)
}

// holds records that the task of an existing claim holds the permits that it needs.
func (k *keeper) holds(it *queue.Item) (news bool) {
	if k.let[it.Ref] != nil || !k.g.IsAdmitted(it.Ref) {
		return false
	}
	k.logf("finds that %s holds what it needs", it.Ref)
	k.let[it.Ref] = &oracle.Pass{Spec: it.Spec, Input: it.Input, Found: true}
	k.b.inc.p.Cluster.Did(scenario.OpHeldAnyhow)
	return true
}

// Give implements queue.Admitter. A claim may keep its permits.
func (k *keeper) Give(now model.Time, it *queue.Item, how queue.Outcome) {
	if k.g.Book != nil && how != queue.Forgotten { // the board forgets tasks of shards that move
		k.freeLost(it.Ref)
	}
	k.asked = nil
	k.g.Give(now, it, how)
	if how == queue.Forgotten { // the gate takes the outcome from the report, if there is one
		how = flow.OutcomeOf(k.asked)
	}
	k.recordGiven(now, it.Ref, how)
}

// recordGiven records that the board has given a task up. Either the gate has freed everything that
// the task held, or the task still holds everything because its worker may still run.
func (k *keeper) recordGiven(now model.Time, ref model.TaskRef, how queue.Outcome) {
	s := k.b.inc.p.Cluster
	if k.g.IsAdmitted(ref) {
		if _, known := k.kept[ref]; !known {
			k.logf("goes on to count %s", ref)
			s.Did(scenario.OpOrphan)
		}
		k.kept[ref] = how
		if p := k.let[ref]; p != nil {
			p.Failed = p.Failed || how == queue.Failed
		}
		return
	}

	k.logf("gives back what %s holds", ref)
	if decided := k.kept[ref]; decided == queue.Succeeded || decided == queue.Failed {
		how = decided
	}
	if p := k.let[ref]; p != nil && !p.Breaker.IsZero() {
		if k.g.Book != nil {
			s.PassEnded(p, how == queue.Failed || p.Failed)
		} else {
			k.checkOutcome(now, p, how)
		}
	}
	delete(k.let, ref)
	delete(k.kept, ref)
}

// checkOutcome checks what the breaker of a task has done with the outcome of an attempt.
func (k *keeper) checkOutcome(now model.Time, p *oracle.Pass, how queue.Outcome) {
	s, w, config := k.b.inc.p.Cluster, k.watch(p.Breaker), k.rules().BreakerConfig(p.Breaker)
	counts, at := p.Era == w.era && w.state == breaker.Closed, w.tick(now)
	if counts && how == queue.Failed {
		w.failures = append(slices.DeleteFunc(w.failures, func(t model.Time) bool { return t <= at.Add(-config.Window) }), at)
	}
	failed := len(w.failures)
	must := counts && how == queue.Failed && failed >= config.Failures
	may := counts && how == queue.Failed && failed+w.before >= config.Failures
	was := w.state
	k.observe(now, p.Breaker)

	if opened := was == breaker.Closed && w.state == breaker.Open; opened && !may || must && !opened {
		s.Fail("E33: breaker %s on %s is %s after %d failures in %s, of %d", p.Breaker, k.b.inc.name(), w.state, failed, config.Window, config.Failures)
	} else if opened {
		s.Did(scenario.OpOpened)
	}

	if was == breaker.HalfOpen && w.state == breaker.Closed {
		s.Did(scenario.OpRecovered)
	}
}

// linger records that the permits of a task belong to the code of a lost claim from now on. If the
// next attempt of the task has taken over the permits, the code holds further ones, which may be
// too many. That is allowed, so the checks do not count them.
func (k *keeper) linger(now model.Time, claim model.ClaimRef) {
	before := k.let[claim.TaskRef]
	_, kept := k.kept[claim.TaskRef]
	k.g.Linger(now, claim)
	if !k.g.IsAdmitted(claim.Lingering()) {
		return
	}
	p := &oracle.Pass{Found: true, Lingers: true}
	if before != nil {
		p.Spec, p.Input = before.Spec, before.Input
	}
	if it := k.g.LingeringItem(claim); it != nil {
		p.Spec, p.Input = it.Spec, it.Input
	}
	if kept && before != nil && !k.g.IsAdmitted(claim.TaskRef) {
		p.Permits, p.Found = before.Permits, before.Found
		k.recordGiven(now, claim.TaskRef, queue.Neither)
	}
	k.let[claim.Lingering()] = p
}

// settleClaim frees what a claim holds. The board calls it when a worker of the process is done
// with the claim, and the outcome is durable or irrelevant.
func (k *keeper) settleClaim(now model.Time, ref model.ClaimRef, how queue.Outcome) bool {
	if lingers := k.g.IsAdmitted(ref.Lingering()); !k.g.FreeOrphan(now, ref, how) {
		return false
	} else if lingers {
		delete(k.let, ref.Lingering())
		return true
	}
	k.recordGiven(now, ref.TaskRef, how)
	return true
}

// release frees what a claim holds. The board calls it when a worker has reported the end of the
// claim and this node cannot store the end now.
func (k *keeper) release(now model.Time, id queue.WorkerID, r *model.TaskReport) bool {
	if !k.g.FreeReported(now, id, r) {
		return false
	}
	k.recordGiven(now, r.Ref.TaskRef, flow.OutcomeOf(r))
	k.b.inc.p.Cluster.Did(scenario.OpFreedEarly)
	return true
}

// quarantine frees what finished claims at an address hold. The board calls it when the node cannot
// store the end of any claim at the address now.
func (k *keeper) quarantine(now model.Time, a model.Address) (any bool) {
	for _, ref := range k.g.OrphansAt(a) {
		if how, freed := k.g.FreeDone(now, ref); freed {
			k.recordGiven(now, ref, how)
			k.b.inc.p.Cluster.Did(scenario.OpFreedEarly)
			any = true
		}
	}
	return any
}

// letGo frees the permits of tasks that workers of other nodes no longer execute. The board calls
// it when other nodes have reported what their workers execute.
func (k *keeper) letGo(now model.Time) bool {
	if !k.g.LetGo(now) {
		return false
	}
	for _, ref := range slices.SortedFunc(maps.Keys(k.kept), model.TaskRef.Compare) {
		if !k.g.IsAdmitted(ref) {
			k.recordGiven(now, ref, k.kept[ref])
		}
	}
	maps.DeleteFunc(k.let, func(ref model.TaskRef, p *oracle.Pass) bool { return p.Lingers && !k.g.IsAdmitted(ref) })
	return true
}

// Group implements queue.Admitter.
func (k *keeper) Group(it *queue.Item) string { return k.g.Group(it) }

// retryAfter records the Retry-After that an attempt of a task returned.
func (k *keeper) retryAfter(now model.Time, it *queue.Item, until model.Time) {
	k.g.RetryAfter(now, it, until)
	if id, config := k.rules().Breaker(scenario.Tenant, it.Spec); !id.IsZero() {
		w := k.watch(id)
		w.barred = max(w.barred, min(until, now.Add(config.MaxRetryAfter)))
		k.b.inc.p.Cluster.Did(scenario.OpRetryAfter)
	}
}

// recordSettings records that other settings apply from now on.
func (k *keeper) recordSettings(now model.Time, x *flow.Settings) {
	if len(k.Sets) == 0 || x.Rules != k.rules() {
		k.recordRules(now, x.Rules)
	}
	for _, id := range slices.SortedFunc(maps.Keys(x.Breakers), func(a, b rule.BreakerID) int { return strings.Compare(a.Name, b.Name) }) {
		k.recordBreaker(now, id, x.Breakers[id])
	}
	k.b.inc.p.told = nil
	k.find()
}

// recordRules records that other rules apply from now on.
func (k *keeper) recordRules(now model.Time, set *rule.Set) {
	var old *rule.Set
	if len(k.Sets) > 0 {
		old = k.rules()
	}
	k.Sets = append(k.Sets, set)
	k.b.inc.p.Cluster.Sets = append(k.b.inc.p.Cluster.Sets, set)
	// When rules change, the gate keeps the part of a token that has accrued. This check starts
	// with a full bucket instead, which allows more.
	clear(k.rates)
	for id, w := range k.seen {
		if old.BreakerConfig(id) != set.BreakerConfig(id) {
			// The breaker counts from zero again. An open breaker stays open for the time that the
			// new rules say.
			w.failures, w.before, w.barred = nil, 0, 0
			k.observe(now, id)
		}
	}
}

// recordBreaker records that the node has read the stored state of a breaker. If nodes share the
// breaker, the gate adds the calls that this node has not reported yet.
func (k *keeper) recordBreaker(now model.Time, id rule.BreakerID, row []byte) {
	s, w := k.b.inc.p.Cluster, k.watch(id)
	w.barred = 0
	if k.g.Book == nil {
		w.era++
		w.failures, w.before = nil, 0
		if len(row) > 0 { // empty if there is no state, or it cannot be read
			st := s.breakerOf(row, now, k.rules().BreakerConfig(id)).Status(now)
			w.barred, w.clock = st.Until, st.At
		}
	}
	k.observe(now, id)
	if k.g.Book == nil {
		w.before = int(k.status(now, id).Failures)
	}
	s.Did(scenario.OpAdopted)
}

// recordState records the state of the gate after a change that did not come from the board.
func (k *keeper) recordState(now model.Time) {
	for _, id := range k.b.inc.p.told {
		k.recordBreaker(now, id, nil)
	}
	k.b.inc.p.told = nil
	if k.find() {
		k.b.inc.p.Cluster.Did(scenario.OpInherited)
	}
}

// find records claims that hold permits now and held none before.
func (k *keeper) find() (any bool) {
	k.b.b.VisitTaken(func(it *queue.Item) { any = k.holds(it) || any })
	return any
}

// breakerOf decodes a stored breaker, with the current numbers.
func (s *Cluster) breakerOf(row []byte, now model.Time, config breaker.Config) *breaker.Breaker {
	o, err := breaker.Decode(row)
	if err != nil {
		s.Fail("breaker: %v", err)
	}
	if o.Status(now).Config != config {
		o.Configure(now, config)
	}
	return o
}

// watch returns the expected state of a breaker.
func (k *keeper) watch(id rule.BreakerID) *watched {
	w := k.seen[id]
	if w == nil {
		w = &watched{era: 1}
		k.seen[id] = w
	}
	return w
}

func (k *keeper) status(now model.Time, id rule.BreakerID) breaker.Status {
	for _, b := range k.g.Breakers(now) {
		if b.ID == id {
			return b.Status
		}
	}
	return breaker.Status{}
}

// observe records the state of a breaker. The breaker ignores the outcomes of calls that started in
// another state.
func (k *keeper) observe(now model.Time, id rule.BreakerID) {
	w, st := k.watch(id), k.status(now, id)
	if st.State != w.state || st.Since != w.since {
		w.era++
		w.failures, w.before = nil, 0
	}
	w.state, w.since, w.barred = st.State, st.Since, max(w.barred, st.Until)
	if st.State == breaker.Open {
		w.barred = max(w.barred, st.Since.Add(k.rules().BreakerConfig(id).Reset))
	}
}
