package sim

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
	"github.com/perdure/perdure/internal/store"
)

// In some seeds limits, breakers and paused queues hold tasks back. What must hold: no task starts
// without a pass, one for each start (G1). A limit never has more holders than permits, and tasks
// never start faster than its rate allows (G2). The configured number of failures opens a breaker,
// and fewer do not (E33). No task passes a breaker that is open, paused or held by a Retry-After
// (E34), and a half-open breaker has a limited number of probes (E35). No task of a paused queue
// starts (G3). Every task that is held back gets its turn: everything ends, and in the end no task
// holds anything.

// In most of these seeds all nodes share limits and breakers, as in production when several
// processes use the store (flow, share). In the others each node has its own, as in production when
// one process uses the store. The checks of limits and breakers in this file hold for each node
// separately; share.go checks all nodes together.

// keeper is the production gate of the board of a node, with an observer. The observer sees the
// questions of the board, the answers, and the state of the gate afterwards.
type keeper struct {
	b *board
	g *flow.BoardGate

	knew map[model.ClaimRef]bool // claims that the board knows
	// let has the tasks that have a pass. kept has the tasks that still hold something although the
	// board has given them up, with their outcome.
	let  map[model.TaskRef]*pass
	kept map[model.TaskRef]queue.Outcome
	// passes counts how often a task got a pass since it last started. under is the rule set of
	// its last pass.
	passes map[model.TaskRef]int
	under  map[model.TaskRef]int
	sets   []*rule.Set // that the board has used
	rates  map[rule.Resource]*tokens
	seen   map[rule.BreakerID]*watched
}

// pass is a task that the gate has let through.
type pass struct {
	spec    *model.TaskSpec
	input   *model.Payload
	found   bool // the claim existed before, and holds what it holds
	breaker rule.BreakerID
	era     int  // of the breaker; 0 if the outcome does not count
	probe   bool // through a half-open breaker
	lease   model.Time

	// These are for nodes that share limits and breakers: when the task started, the limits that it
	// has permits of, its probe, and whether it has been given back.
	since   int64
	permits []rule.Resource
	permit  breaker.Permit
	given   bool
	failed  bool // an attempt has failed, and its worker still holds what it needs
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
	before   int // failures in an adopted state; some of them may still count
}

func newKeeper(b *board) *keeper {
	p := b.inc.p
	k := &keeper{
		b: b, let: map[model.TaskRef]*pass{}, kept: map[model.TaskRef]queue.Outcome{}, passes: map[model.TaskRef]int{}, under: map[model.TaskRef]int{},
		rates: map[rule.Resource]*tokens{}, seen: map[rule.BreakerID]*watched{}, knew: map[model.ClaimRef]bool{},
	}

	var book *limits.Book
	if p.s.shared {
		book = limits.New(b.inc.place())
	}

	k.g = flow.NewBoardGate(book, func(id queue.WorkerID, claim model.ClaimRef) (executes, reported bool) {
		if i := slices.IndexFunc(p.hands, func(h *hand) bool { return h.id == id }); i >= 0 {
			h := p.hands[i]
			return h.held[claim] != nil, h.reported[claim] != nil
		}
		return false, false
	})

	return k
}

func (k *keeper) rules() *rule.Set { return k.sets[len(k.sets)-1] }

// Take implements queue.Admitter.
func (k *keeper) Take(now model.Time, it *queue.Item) (ok bool, why model.Reason, again model.Time) {
	_, goesOn := k.kept[it.Ref]
	delete(k.kept, it.Ref)
	ok, why, again = k.g.Take(now, it)
	if ok {
		k.logf("lets %s through", it.Ref)
	}

	switch {
	case !ok:
		k.refused(why)
	case k.let[it.Ref] == nil:
		k.passed(now, it)
	case goesOn:
		k.passes[it.Ref]++
		k.under[it.Ref] = len(k.sets) - 1
	}

	return ok, why, again
}

func (k *keeper) logf(format string, args ...any) {
	if s := k.b.inc.p.s; s.opts.Trace {
		s.logf("%s %s", k.b.inc.name(), fmt.Sprintf(format, args...))
	}
}

func (k *keeper) refused(why model.Reason) {
	s := k.b.inc.p.s
	switch {
	case why.Code == model.WaitBreaker:
		s.did(opBarred)
	case strings.Contains(why.Detail, "no limit"):
		s.did(opLimitMissing)
	default:
		s.did(opLimited)
	}
}

// passed checks that a task may start.
func (k *keeper) passed(now model.Time, it *queue.Item) {
	s := k.b.inc.p.s
	p := &pass{spec: it.Spec, input: it.Input, since: s.now}
	k.let[it.Ref] = p
	k.passes[it.Ref]++
	k.under[it.Ref] = len(k.sets) - 1
	if k.b.paused[it.Spec.Queue] {
		s.fail("G3: %s begins on %s, which has paused queue %s", it.Ref, k.b.inc.name(), it.Spec.Queue)
	}

	uses := k.rules().Resolve(tenant, it.Spec, it.Input)
	for _, u := range uses {
		if u.Missing {
			s.fail("G2: %s begins on %s, and limit %s, which it names, is not there", it.Ref, k.b.inc.name(), u.Resource)
		}
		if k.g.Book != nil {
			continue
		}
		if n := u.Numbers.Concurrency; n > 0 && k.holders(u.Resource) > n {
			s.fail("G2: %s begins on %s, and limit %s has %d holders there, at most %d", it.Ref, k.b.inc.name(), u.Resource, k.holders(u.Resource), n)
		}
		if u.Numbers.Rate > 0 {
			k.spend(now, it.Ref, u)
		}
	}

	if k.g.Book != nil {
		p.permits = permitsOf(k.rules(), it.Spec, it.Input)
		k.sharedLimits(now, it.Ref, uses)
	}

	id, config := k.rules().Breaker(tenant, it.Spec)
	if id.IsZero() {
		return
	}
	w := k.watch(id)
	if now < w.barred {
		s.fail("E34: %s begins on %s at %s, and breaker %s lets nothing pass before %s", it.Ref, k.b.inc.name(), now, id, w.barred)
	}

	if k.g.Book != nil {
		p.breaker = id
		k.probed(now, it.Ref, id, p)
		return
	}

	k.observe(now, id)
	p.breaker, p.era, p.probe, p.lease = id, w.era, w.state != breaker.Closed, now.Add(max(it.Spec.ToClose, config.Lease))
	if !p.probe {
		return
	}
	s.did(opProbe)

	probes := 0
	for _, o := range k.let {
		if o.breaker == id && o.probe && o.era == w.era && now < o.lease {
			probes++
		}
	}

	if probes > config.Probes {
		s.fail("E35: %d probes of breaker %s are under way on %s, at most %d", probes, id, k.b.inc.name(), config.Probes)
	}
}

// holders counts the tasks with a pass that share a resource, by the current rules.
func (k *keeper) holders(r rule.Resource) (n int) {
	for _, p := range k.let {
		if uses(k.rules(), p.spec, p.input, r) {
			n++
		}
	}
	return n
}

func uses(set *rule.Set, spec *model.TaskSpec, in *model.Payload, r rule.Resource) bool {
	return slices.ContainsFunc(set.Resolve(tenant, spec, in), func(u rule.Use) bool { return u.Resource == r })
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
		k.b.inc.p.s.fail("G2: %s begins on %s, which is more than limit %s allows: %s", ref, k.b.inc.name(), u.Resource, u.Numbers)
	}
}

// Hold implements queue.Gate.
func (k *keeper) Hold(now model.Time, it *queue.Item, maker string) {
	delete(k.kept, it.Ref)
	k.g.Hold(now, it, maker)
	k.holds(it)
}

// holds records an existing claim, which holds what it needs.
func (k *keeper) holds(it *queue.Item) (news bool) {
	if k.let[it.Ref] != nil || !k.g.Holds(it.Ref) {
		return false
	}
	k.logf("finds that %s holds what it needs", it.Ref)
	k.let[it.Ref] = &pass{spec: it.Spec, input: it.Input, found: true}
	k.b.inc.p.s.did(opHeldAnyhow)
	return true
}

// Give implements queue.Gate. A claim may continue to hold what it holds.
func (k *keeper) Give(now model.Time, it *queue.Item, how queue.Outcome) {
	p := k.let[it.Ref]
	if p == nil || p.breaker.IsZero() || k.g.Book != nil {
		k.g.Give(now, it, how)
		k.given(it.Ref, how)
		return
	}

	s, w, config := k.b.inc.p.s, k.watch(p.breaker), k.rules().BreakerConfig(p.breaker)
	counts := p.era == w.era && w.state == breaker.Closed
	if counts && how == queue.Failed {
		w.failures = append(slices.DeleteFunc(w.failures, func(t model.Time) bool { return t <= now.Add(-config.Window) }), now)
	}
	failed := len(w.failures)
	must := counts && how == queue.Failed && failed >= config.Failures
	may := counts && how == queue.Failed && failed+w.before >= config.Failures
	k.g.Give(now, it, how)
	k.given(it.Ref, how)
	was := w.state
	k.observe(now, p.breaker)

	if opened := was == breaker.Closed && w.state == breaker.Open; opened && !may || must && !opened {
		s.fail("E33: breaker %s on %s is %s after %d failures in %s, of %d", p.breaker, k.b.inc.name(), w.state, failed, config.Window, config.Failures)
	} else if opened {
		s.did(opOpened)
	}

	if was == breaker.HalfOpen && w.state == breaker.Closed {
		s.did(opRecovered)
	}
}

// given records that the board has given a task up. The task then holds nothing, or still holds
// everything for its worker.
func (k *keeper) given(ref model.TaskRef, how queue.Outcome) {
	s := k.b.inc.p.s
	if k.g.Holds(ref) {
		if _, known := k.kept[ref]; !known {
			k.logf("goes on to count %s", ref)
			s.did(opOrphan)
		}
		k.kept[ref] = how
		if p := k.let[ref]; p != nil {
			p.failed = p.failed || how == queue.Failed
		}
		return
	}

	k.logf("gives back what %s holds", ref)
	if p := k.let[ref]; p != nil && !p.breaker.IsZero() && k.g.Book != nil {
		p.ended(s, how == queue.Failed || p.failed)
	}
	delete(k.let, ref)
	delete(k.kept, ref)
}

// The board calls settled when a worker of the process is done with a claim, and the outcome is
// durable or irrelevant.
func (k *keeper) settled(now model.Time, ref model.ClaimRef, how queue.Outcome) bool {
	if !k.g.FreeOrphan(now, ref, how) {
		return false
	}
	k.given(ref.TaskRef, how)
	return true
}

// Group implements queue.Gate.
func (k *keeper) Group(it *queue.Item) string { return k.g.Group(it) }

// retryAfter records the Retry-After that an attempt of a task returned.
func (k *keeper) retryAfter(now model.Time, it *queue.Item, until model.Time) {
	k.g.RetryAfter(now, it, until)
	if id, config := k.rules().Breaker(tenant, it.Spec); !id.IsZero() {
		w := k.watch(id)
		w.barred = max(w.barred, min(until, now.Add(config.MaxRetryAfter)))
		k.b.inc.p.s.did(opRetryAfter)
	}
}

// configured records that other settings apply from now on.
func (k *keeper) configured(now model.Time, x *flow.Settings) {
	if len(k.sets) == 0 || x.Rules != k.rules() {
		k.ruled(now, x.Rules)
	}
	for _, id := range slices.SortedFunc(maps.Keys(x.Breakers), func(a, b rule.BreakerID) int { return strings.Compare(a.Name, b.Name) }) {
		k.adopted(now, id, x.Breakers[id])
	}
	k.b.inc.p.told = nil
	k.find()
}

// ruled records that other rules apply from now on.
func (k *keeper) ruled(now model.Time, set *rule.Set) {
	var old *rule.Set
	if len(k.sets) > 0 {
		old = k.rules()
	}
	k.sets = append(k.sets, set)
	k.b.inc.p.s.sets = append(k.b.inc.p.s.sets, set)
	// the gate keeps the accrued share of a token, which is less than what this check allows
	clear(k.rates)
	for id, w := range k.seen {
		if old.BreakerConfig(id) != set.BreakerConfig(id) {
			// counting starts again, and an open breaker stays open for the new time
			w.failures, w.before, w.barred = nil, 0, 0
			k.observe(now, id)
		}
	}
}

// adopted records that a breaker has its stored state. If nodes share the breaker, the calls that
// this node has not reported yet are added.
func (k *keeper) adopted(now model.Time, id rule.BreakerID, row []byte) {
	s, w := k.b.inc.p.s, k.watch(id)
	w.barred = 0
	if k.g.Book == nil {
		w.era++
		w.failures, w.before = nil, 0
		if row != nil {
			w.barred = s.breakerOf(row, now, k.rules().BreakerConfig(id)).Status(now).Until
		}
	}
	k.observe(now, id)
	if k.g.Book == nil {
		w.before = int(k.status(now, id).Failures)
	}
	s.did(opAdopted)
}

// changed records the state of the gate after something other than the board has changed it.
func (k *keeper) changed(now model.Time) {
	for _, id := range k.b.inc.p.told {
		k.adopted(now, id, nil)
	}
	k.b.inc.p.told = nil
	if k.find() {
		k.b.inc.p.s.did(opInherited)
	}
}

// find records claims that hold something and did not before.
func (k *keeper) find() (any bool) {
	k.b.b.VisitTaken(func(it *queue.Item) { any = k.holds(it) || any })
	return any
}

// breakerOf decodes a stored breaker, with the current numbers.
func (s *Sim) breakerOf(row []byte, now model.Time, config breaker.Config) *breaker.Breaker {
	o, err := breaker.Decode(row)
	if err != nil {
		s.fail("breaker: %v", err)
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

// observe records the state of a breaker. Calls that started in another state do not count.
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

// begins checks that a task that starts has a pass, and records the start for limited.
func (l *ledger) begins(b *store.Batch, r *run, id string, t *errandState) {
	t.node, t.tenure = b.Lane.Node, l.tenure[r.address.shard]
	m := l.nodes[b.Lane.Node]
	if !l.s.gates || m == nil || m.inc == nil {
		return
	}
	k, ref := m.inc.board.keeper, r.ref(id, 0).TaskRef
	if k.passes[ref] == 0 {
		l.fail("G1: %s begins on %s, and was not let through", ref, m.inc.name())
	}
	k.passes[ref]--
	if k.g.Book != nil {
		l.s.claims[r.ref(id, t.claim)].permits = permitsOf(k.sets[k.under[ref]], t.spec, &t.input)
		return
	}
	l.begun = append(l.begun, begun{r, t, ref})
}

// begun is a task that starts in the batch that is being applied.
type begun struct {
	r   *run
	t   *errandState
	ref model.TaskRef
}

// limited checks the limits of all tasks that start in a batch: by durable state, none has too many
// holders.
func (l *ledger) limited(b *store.Batch) {
	for _, x := range l.begun {
		if !x.t.held || x.t.over || !x.r.open() {
			continue
		}
		k := l.nodes[b.Lane.Node].inc.board.keeper

		sets := k.sets[k.under[x.ref]:]
		for _, u := range sets[0].Resolve(tenant, x.t.spec, &x.t.input) {
			most := 0 // by all rules since then
			for _, set := range sets {
				n, ok := set.Numbers(u.Resource)
				if !ok || n.Concurrency == 0 {
					most = 0
					break
				}
				most = max(most, n.Concurrency)
			}
			if n := l.holding(b, sets, u.Resource); most > 0 && n > most {
				l.fail("G2: %d tasks hold limit %s of %s, at most %d", n, u.Resource, l.name(b.Lane.Node), most)
			}
		}
	}

	l.begun = l.begun[:0]
}

// holding counts the holders of a limit of a node by durable state. The node counts by its
// decisions, and the decisions of one lane may be stored before the decisions of another. So only
// tasks of the same lane count here. Tasks that the lane no longer knows, or knows in another
// state, do not count either: tasks of shards that have moved or are about to, and of addresses
// with rows that cannot be written. A batch that is refused or split may exchange the order of a
// report and the next claim. No worker executes the first task then.
func (l *ledger) holding(b *store.Batch, sets []*rule.Set, res rule.Resource) (n int) {
	for _, r := range l.order {
		if !r.open() {
			continue
		}
		shard := r.address.shard
		sh := l.nodes[b.Lane.Node].inc.shells[b.Lane.Lane]

		_, moving := sh.moving[shard]
		for id, t := range r.tasks {
			ref := r.ref(id, t.claim)
			if sh.undone && len(l.s.reports[ref]) > 0 {
				continue
			}
			if sh.undone && l.s.outOfTime(ref, t, l.nodes[b.Lane.Node].inc.p.now()) {
				continue
			}
			here := t.node == b.Lane.Node && t.tenure == l.tenure[shard] && int(shard)%l.s.plan.lanes == b.Lane.Lane && !moving && !r.address.sick
			if t.held && !t.over && here && !slices.ContainsFunc(sets, func(s *rule.Set) bool { return !uses(s, t.spec, &t.input, res) }) {
				n++
			}
		}
	}

	return n
}

// outOfTime reports whether a claim has no time left and no worker has begun it. Its time-out was
// decided and undone, and its permit went to another task meanwhile. A worker that begins it after
// all breaks a promise (G2).
func (s *Sim) outOfTime(ref model.ClaimRef, t *errandState, now model.Time) bool {
	known := s.claims[ref]
	if t.spec.ToClose == 0 || now <= t.since.Add(t.spec.ToClose) || known == nil || known.begun {
		return false
	}
	known.late = true
	return true
}
