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

// What keeps tasks back, in some seeds: limits, breakers, paused queues. What must hold: nobody begins without having been let through, once for each beginning (G1); of a limit
// there are never more holders than it has permits, and no more begin in a time than its rate allows (G2); so many failures open a breaker and fewer do not (E33), nothing passes one
// that is open, paused or held by a Retry-After (E34), and no more probes one that is half-open (E35); nothing of a paused queue begins (G3). And whoever is kept back comes to
// his turn: everything ends, and then nobody holds anything.

// In most of these seeds all nodes share limits and breakers, as they do in production where several processes have the store (flow, share). In the others each has its own, as the one has that has a
// store alone: what is checked of limits and breakers here, beside share.go, holds for each node by itself.

// keeper is the gatekeeper of a node, that of production, with somebody who watches: he sees what the board asks and is told, and how the gate stands afterwards.
type keeper struct {
	b *board
	g *flow.Gatekeeper

	knew map[model.ClaimRef]bool // claims that the board has been told of
	// let are the tasks that were let through and not given back; kept are those of them that hold on although the board has given them up, and how they ended by then.
	let  map[model.TaskRef]*pass
	kept map[model.TaskRef]queue.Outcome
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
	failed  bool // an attempt has, and its worker goes on to hold what it needs
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
	p := b.inc.p
	k := &keeper{
		b: b, let: map[model.TaskRef]*pass{}, kept: map[model.TaskRef]queue.Outcome{}, passes: map[model.TaskRef]int{}, under: map[model.TaskRef]int{},
		rates: map[rule.Resource]*tokens{}, seen: map[rule.BreakerID]*watched{}, knew: map[model.ClaimRef]bool{},
	}
	var book *limits.Book
	if p.s.shared {
		book = limits.New(b.inc.place())
	}
	k.g = flow.NewGatekeeper(book, func(id queue.WorkerID, claim model.ClaimRef) (executes, reported bool) {
		if i := slices.IndexFunc(p.hands, func(h *hand) bool { return h.id == id }); i >= 0 {
			h := p.hands[i]
			return h.held[claim] != nil, h.reported[claim] != nil
		}
		return false, false
	})
	return k
}

func (k *keeper) rules() *rule.Set { return k.sets[len(k.sets)-1] }

// Take is for the board; see queue.Gate.
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
	delete(k.kept, it.Ref)
	k.g.Hold(now, it)
	k.holds(it)
}

// holds notes that a claim was found which holds what it needs.
func (k *keeper) holds(it *queue.Item) (news bool) {
	if k.let[it.Ref] != nil || !k.g.Holds(it.Ref) {
		return false
	}
	k.logf("finds that %s holds what it needs", it.Ref)
	k.let[it.Ref] = &pass{spec: it.Spec, input: it.Input, found: true}
	k.b.inc.p.s.did(opHeldAnyhow)
	return true
}

// Give is for the board. A claim may go on to hold what it holds.
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

// given notes that a task has been given up, which holds nothing then, or goes on to hold it for its worker.
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

// settled tells that a worker of the process is done with a claim, and that this is durable or of no interest to anybody.
func (k *keeper) settled(now model.Time, ref model.ClaimRef, how queue.Outcome) bool {
	if !k.g.Settled(now, ref, how) {
		return false
	}
	k.given(ref.TaskRef, how)
	return true
}

// Group is for the board.
func (k *keeper) Group(it *queue.Item) string { return k.g.Group(it) }

// retryAfter is what the other side of a task has said.
func (k *keeper) retryAfter(now model.Time, it *queue.Item, until model.Time) {
	k.g.RetryAfter(now, it, until)
	if id, config := k.rules().Breaker(tenant, it.Spec); !id.IsZero() {
		w := k.watch(id)
		w.barred = max(w.barred, min(until, now.Add(config.MaxRetryAfter)))
		k.b.inc.p.s.did(opRetryAfter)
	}
}

// configured notes that tasks pass by other settings from now on.
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

// ruled notes that tasks pass by other rules from now on.
func (k *keeper) ruled(now model.Time, set *rule.Set) {
	var old *rule.Set
	if len(k.sets) > 0 {
		old = k.rules()
	}
	k.sets = append(k.sets, set)
	k.b.inc.p.s.sets = append(k.b.inc.p.s.sets, set)
	clear(k.rates) // the share of a token that has accrued is kept, which is less than what is allowed here
	for id, w := range k.seen {
		if old.BreakerConfig(id) != set.BreakerConfig(id) {
			w.failures, w.before, w.barred = nil, 0, 0 // what is counted begins anew, and an open one stays so for as long as it now would
			k.observe(now, id)
		}
	}
}

// adopted notes that a breaker stands as it is stored; where nodes share it, with what this one has not told yet.
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

// changed notes what has become of the gate when somebody else than the board has had to do with it.
func (k *keeper) changed(now model.Time) {
	for _, id := range k.b.inc.p.told {
		k.adopted(now, id, nil)
	}
	k.b.inc.p.told = nil
	if k.find() {
		k.b.inc.p.s.did(opInherited)
	}
}

// find notes which claims hold something that did not before.
func (k *keeper) find() (any bool) {
	k.b.b.Taken(func(it *queue.Item) { any = k.holds(it) || any })
	return any
}

// breakerOf reads a breaker as it is stored, with the numbers of today.
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
	if k.g.Book != nil {
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
// of addresses with rows that cannot be written. A batch that is refused or split may turn the order of a report and the next claim round: nobody executes the first then.
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
