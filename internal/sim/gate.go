package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	limits "github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// What keeps tasks back, in some seeds: limits, breakers, paused queues. What must hold: nobody begins without having been let through, once for each beginning (G1); of a limit
// there are never more holders than it has permits, and no more begin in a time than its rate allows (G2); so many failures open a breaker and fewer do not (E33), nothing passes one
// that is open, paused or held by a Retry-After (E34), and no more probes one that is half-open (E35); nothing of a paused queue begins (G3). And whoever is kept back comes to
// his turn: everything ends, and then nobody holds anything.

// In most of these seeds all nodes share limits and breakers, as they do in production where several processes have the store (pages, share). In the others each has its own, as the one has that has a
// store alone: what is checked of limits and breakers here, beside share.go, holds for each node by itself.

// keeper is the gate of a node as its board asks it, as engine/flow/gatekeeper.go has it, with somebody who watches.
type keeper struct {
	b *board
	g *gate.Gate
	// book is what all nodes share of limits, permits whose permit a claim uses then, and granted the probes that this node was given and has not used. Nil where each node has its own.
	book *limits.Book
	permits
	granted map[rule.BreakerID]breaker.Permit
	knew    map[model.ClaimRef]bool // claims that the board has been told of
	// let are the tasks that were let through and not given back.
	let map[model.TaskRef]*pass
	// passes counts how often a task was let through and has not begun since; under is by which set it was last.
	passes map[model.TaskRef]int
	under  map[model.TaskRef]int
	sets   []*rule.Set // that the board has gone by
	rates  map[rule.Resource]*tokens
	seen   map[rule.BreakerID]*watched
}

// pass is a task that was let through.
type pass struct {
	spec    *model.TaskSpec
	input   *model.Payload
	found   bool // its claim was found, and it holds whatever it holds
	breaker rule.BreakerID
	era     int  // of the breaker; 0 for one that counts for nothing
	probe   bool // through a half-open breaker
	lease   model.Time

	// Where nodes share limits and breakers: when it began, the limits of which it has a permit, its probe, and whether it was given back.
	since   int64
	permits []rule.Resource
	permit  breaker.Permit
	given   bool
}

// tokens is what a rate allows, as a bucket of a very simple kind.
type tokens struct {
	level float64
	at    model.Time
}

// watched is what a breaker must be like, as far as this node has been told.
type watched struct {
	era      int // changes with its state
	state    breaker.State
	since    model.Time
	barred   model.Time // nothing passes before
	failures []model.Time
	before   int // failures in a state that was taken over, some of which may still count
}

func newKeeper(b *board) *keeper {
	k := &keeper{
		b: b, let: map[model.TaskRef]*pass{}, passes: map[model.TaskRef]int{}, under: map[model.TaskRef]int{},
		rates: map[rule.Resource]*tokens{}, seen: map[rule.BreakerID]*watched{},
		permits: newPermits(), granted: map[rule.BreakerID]breaker.Permit{}, knew: map[model.ClaimRef]bool{},
	}
	if b.inc.p.s.shared {
		k.book = limits.New(b.inc.place())
		k.g = k.book.Gate
	} else {
		k.g = gate.New(0, nil)
	}
	return k
}

func (k *keeper) item(it *queue.Item) gate.Item {
	p, _ := it.Note.(*gate.Plan)
	return gate.Item{Ref: it.Ref, Spec: it.Spec, Input: it.Input, Plan: p}
}

func (k *keeper) rules() *rule.Set { return k.sets[len(k.sets)-1] }

// Take is for the board; see queue.Gate.
func (k *keeper) Take(now model.Time, it *queue.Item) (ok bool, why model.Reason, again model.Time) {
	goesOn := k.resumes(it.Ref)
	g := k.item(it)
	ok, why, again = k.g.Take(now, &g)
	it.Note = g.Plan
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

// passed checks that a task may begin.
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
		if k.book != nil {
			continue
		}
		if n := u.Numbers.Concurrency; n > 0 && k.holders(u.Resource) > n {
			s.fail("G2: %s begins on %s, and limit %s has %d holders there, at most %d", it.Ref, k.b.inc.name(), u.Resource, k.holders(u.Resource), n)
		}
		if u.Numbers.Rate > 0 {
			k.spend(now, it.Ref, u)
		}
	}
	if k.book != nil {
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
	if k.book != nil {
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

// holders are the tasks that were let through and share a resource, by the rules of now.
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

// Hold is for the board.
func (k *keeper) Hold(now model.Time, it *queue.Item) {
	if k.book != nil && k.elsewhere(it.Ref) {
		return
	}
	k.logf("finds that %s holds what it needs", it.Ref)
	g := k.item(it)
	k.g.Hold(now, &g)
	it.Note = g.Plan
	if k.let[it.Ref] == nil {
		k.let[it.Ref] = &pass{spec: it.Spec, input: it.Input, found: true}
		k.b.inc.p.s.did(opHeldAnyhow)
	}
}

// Give is for the board. A permit that others share is free when it is durable that the claim has ended, and not before.
func (k *keeper) Give(now model.Time, it *queue.Item, how queue.Outcome) {
	if k.book == nil || !k.keeps(it, how) {
		k.give(now, it, how)
	}
}

func (k *keeper) give(now model.Time, it *queue.Item, how queue.Outcome) {
	k.logf("gives back what %s holds", it.Ref)
	s, p := k.b.inc.p.s, k.let[it.Ref]
	delete(k.let, it.Ref)
	g := k.item(it)
	outcome := [...]breaker.Outcome{queue.Neither: breaker.Neither, queue.Succeeded: breaker.Succeeded, queue.Failed: breaker.Failed}[how]
	if p == nil || p.breaker.IsZero() || k.book != nil {
		if p != nil && !p.breaker.IsZero() {
			p.ended(s, how == queue.Failed)
		}
		k.g.Give(now, &g, outcome)
		return
	}
	w, config := k.watch(p.breaker), k.rules().BreakerConfig(p.breaker)
	counts := p.era == w.era && w.state == breaker.Closed
	if counts && how == queue.Failed {
		w.failures = append(slices.DeleteFunc(w.failures, func(t model.Time) bool { return t <= now.Add(-config.Window) }), now)
	}
	failed := len(w.failures)
	must := counts && how == queue.Failed && failed >= config.Failures
	may := counts && how == queue.Failed && failed+w.before >= config.Failures
	k.g.Give(now, &g, outcome)
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

// Group is for the board.
func (k *keeper) Group(it *queue.Item) string {
	g := k.item(it)
	name := k.g.Group(&g)
	it.Note = g.Plan
	return name
}

// retryAfter is what the other side of a task has said.
func (k *keeper) retryAfter(now model.Time, it *queue.Item, until model.Time) {
	g := k.item(it)
	k.g.RetryAfter(now, &g, until)
	if id, config := k.rules().Breaker(tenant, it.Spec); !id.IsZero() {
		w := k.watch(id)
		w.barred = max(w.barred, min(until, now.Add(config.MaxRetryAfter)))
		k.b.inc.p.s.did(opRetryAfter)
	}
}

// setRules has tasks pass by other rules from now on.
func (k *keeper) setRules(now model.Time, set *rule.Set) {
	var old *rule.Set
	if len(k.sets) > 0 {
		old = k.rules()
	}
	k.sets = append(k.sets, set)
	k.b.inc.p.s.sets = append(k.b.inc.p.s.sets, set)
	k.g.SetRules(now, set)
	clear(k.rates) // the share of a token that has accrued is kept, which is less than what is allowed here
	for id, w := range k.seen {
		if old.BreakerConfig(id) != set.BreakerConfig(id) {
			w.failures, w.before, w.barred = nil, 0, 0 // what is counted begins anew, and an open one stays so for as long as it now would
			k.observe(now, id)
		}
	}
}

// adopt has breakers stand as somebody else has stored.
func (k *keeper) adopt(now model.Time, states map[string][]byte) {
	s := k.b.inc.p.s
	for _, name := range slices.Sorted(maps.Keys(states)) {
		id := rule.BreakerID{Tenant: tenant, Name: name}
		if k.book != nil {
			k.adoptShared(now, id, states[name])
			continue
		}
		if err := k.g.Adopt(now, id, states[name]); err != nil {
			s.fail("breaker %s: %v", name, err)
		}
		w := k.watch(id)
		w.era++
		w.barred, w.failures, w.before = 0, nil, 0
		if row := states[name]; row != nil {
			w.barred = s.breakerOf(row, now, k.rules().BreakerConfig(id)).Status(now).Until
		}
		k.observe(now, id)
		w.before = int(k.status(now, id).Failures)
		s.did(opAdopted)
	}
}

// watch is what is known of a breaker.
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

// observe notes how a breaker stands: calls of another state count for nothing.
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

// begins checks that whoever begins has been let through, and notes it for limited.
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
	if k.book != nil {
		l.s.claims[r.ref(id, t.claim)].permits = permitsOf(k.sets[k.under[ref]], t.spec, &t.input)
		return
	}
	l.begun = append(l.begun, begun{r, t, ref})
}

// begun is a task that somebody begins in the batch that is being applied.
type begun struct {
	r   *run
	t   *errandState
	ref model.TaskRef
}

// limited checks that no limit of those that begin in a batch has too many holders by what is durable.
func (l *ledger) limited(b *store.Batch) {
	for _, x := range l.begun {
		if !x.t.held || x.t.over || !x.r.open() {
			continue
		}
		k := l.nodes[b.Lane.Node].inc.board.keeper
		sets := k.sets[k.under[x.ref]:]
		for _, u := range sets[0].Resolve(tenant, x.t.spec, &x.t.input) {
			most := 0 // by the rules of any time since
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

// holding counts who holds a limit of a node by what is durable. The node counts as it has decided, and what one of its lanes has decided may be
// stored before what another one has: only those of the lane count here. Nor do those that it does not know any more, or not as they are: of shards that have moved or are about to, and
// of addresses with rows that cannot be written.
func (l *ledger) holding(b *store.Batch, sets []*rule.Set, res rule.Resource) (n int) {
	for _, r := range l.order {
		if !r.open() {
			continue
		}
		shard := r.address.shard
		_, moving := l.nodes[b.Lane.Node].inc.shells[b.Lane.Lane].moving[shard]
		for _, t := range r.tasks {
			here := t.node == b.Lane.Node && t.tenure == l.tenure[shard] && int(shard)%l.s.plan.lanes == b.Lane.Lane && !moving && !r.address.sick
			if t.held && !t.over && here && !slices.ContainsFunc(sets, func(s *rule.Set) bool { return !uses(s, t.spec, &t.input, res) }) {
				n++
			}
		}
	}
	return n
}
