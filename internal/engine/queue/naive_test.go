package queue

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// naive is the simplest possible board: it has only lists, and sorts them whenever it needs them.
type naive struct {
	gate    Admitter
	weights map[string]int
	grace   time.Duration
	tasks   []*naiveTask
	workers []*naiveWorker
	closed  map[string]model.Time   // groups that the gate holds back, and when to ask it again
	paused  map[siteName]bool       //
	classes map[string]*naiveShares // by offer
	seq     uint64
}

type naiveTask struct {
	Item
	state  string // delayed, waiting, expired, reserved, matched, held, late, reported
	worker WorkerID
	claim  int64
	beat   model.Time
}

type naiveWorker struct {
	id     WorkerID
	offer  model.TaskOffer
	served uint64
}

// naiveShares holds the virtual clocks of workers with one offer: by priority, tenant, queue and
// key.
type naiveShares map[int]*naiveLevel

type naiveLevel struct {
	clock   int64
	tenants map[string]*naiveTenant
}

type naiveTenant struct {
	share
	clock int64
	keys  map[keyName]*share
}

func newNaive(gate Admitter, weights map[string]int, grace time.Duration) *naive {
	return &naive{gate: gate, weights: weights, grace: grace, closed: map[string]model.Time{}, paused: map[siteName]bool{}, classes: map[string]*naiveShares{}}
}

func (n *naive) tick() uint64 { n.seq++; return n.seq }

func (n *naive) find(ref model.TaskRef) *naiveTask {
	for _, t := range n.tasks {
		if t.Ref == ref {
			return t
		}
	}
	return nil
}

func (n *naive) worker(id WorkerID) *naiveWorker {
	for _, w := range n.workers {
		if w.id == id {
			return w
		}
	}
	return nil
}

func (n *naive) load(id WorkerID) int {
	load := 0
	for _, t := range n.tasks {
		if t.worker == id {
			load++
		}
	}
	return load
}

func (w *naiveWorker) class() string {
	return fmt.Sprintf("%q", []any{sortedNames(w.offer.Tenants), sortedNames(w.offer.Queues), sortedNames(w.offer.Kinds)})
}

func (w *naiveWorker) covers(it *Item) bool {
	return slices.Contains(w.offer.Tenants, it.Ref.Address.Tenant) && slices.Contains(w.offer.Queues, it.Spec.Queue) && model.Executes(w.offer.Kinds, it.Spec.Kind)
}

func compareItems(a, b *Item) int {
	return cmp.Or(cmp.Compare(a.Visible, b.Visible), a.Ref.Run.Compare(b.Ref.Run), cmp.Compare(a.Ref.ID, b.Ref.ID))
}

// waitingCount counts the tasks that wait for workers of an offer.
func (n *naive) waitingCount(w *naiveWorker, like func(*Item) bool) int {
	count := 0
	for _, t := range n.tasks {
		if t.state == "waiting" && w.covers(&t.Item) && like(&t.Item) {
			count++
		}
	}
	return count
}

// offers returns one worker of each offer, in the order in which they joined.
func (n *naive) offers() []*naiveWorker {
	var out []*naiveWorker
	seen := map[string]bool{}
	for _, w := range n.workers {
		if !seen[w.class()] {
			seen[w.class()] = true
			out = append(out, w)
		}
	}
	return out
}

func (n *naive) wait(t *naiveTask) {
	for _, w := range n.offers() {
		n.enter(w, &t.Item)
	}
	t.state = "waiting"
}

// enter gives a tenant or key without waiting tasks a place in the order of an offer.
func (n *naive) enter(w *naiveWorker, it *Item) {
	if !w.covers(it) {
		return
	}
	shares := *n.classes[w.class()]

	lv := shares[it.Spec.Priority]
	if lv == nil {
		lv = &naiveLevel{tenants: map[string]*naiveTenant{}}
		shares[it.Spec.Priority] = lv
	}

	tenant, name := lv.tenant(it)
	if n.waitingCount(w, sameTenant(it)) == 0 {
		*tenant = naiveTenant{share: share{lv.clock + strideOf(n.weights[it.Ref.Address.Tenant]), n.tick()}, keys: map[keyName]*share{}}
	}
	if n.waitingCount(w, sameKey(it)) == 0 {
		*tenant.key(name) = share{tenant.clock + strideOf(it.Spec.Weight), n.tick()}
	}
}

func (lv *naiveLevel) tenant(it *Item) (*naiveTenant, keyName) {
	t := lv.tenants[it.Ref.Address.Tenant]
	if t == nil {
		t = &naiveTenant{keys: map[keyName]*share{}}
		lv.tenants[it.Ref.Address.Tenant] = t
	}
	return t, keyName{it.Spec.Queue, it.Spec.Fair}
}

func (t *naiveTenant) key(name keyName) *share {
	k := t.keys[name]
	if k == nil {
		k = &share{}
		t.keys[name] = k
	}
	return k
}

func sameLevel(it *Item) func(*Item) bool {
	return func(o *Item) bool { return o.Spec.Priority == it.Spec.Priority }
}

func sameTenant(it *Item) func(*Item) bool {
	return func(o *Item) bool {
		return o.Spec.Priority == it.Spec.Priority && o.Ref.Address.Tenant == it.Ref.Address.Tenant
	}
}

func sameKey(it *Item) func(*Item) bool {
	return func(o *Item) bool {
		return sameTenant(it)(o) && o.Spec.Queue == it.Spec.Queue && o.Spec.Fair == it.Spec.Fair
	}
}

// leave takes a task out of its state. If no task of a priority waits, its clock is dropped.
func (n *naive) leave(t *naiveTask) {
	was := t.state
	t.state = ""
	if was != "waiting" {
		return
	}

	for _, w := range n.offers() {
		shares := *n.classes[w.class()]
		lv := shares[t.Spec.Priority]
		if !w.covers(&t.Item) || lv == nil {
			continue
		}
		if n.waitingCount(w, sameLevel(&t.Item)) == 0 {
			delete(shares, t.Spec.Priority)
		}
	}

	if !slices.ContainsFunc(n.tasks, func(o *naiveTask) bool { return o.state == "waiting" && n.group(&o.Item) == n.group(&t.Item) }) {
		delete(n.closed, n.group(&t.Item))
	}
}

func (n *naive) group(it *Item) string { return n.gate.Group(it) }

func (n *naive) charge(w *naiveWorker, it *Item) {
	lv := (*n.classes[w.class()])[it.Spec.Priority]
	if lv == nil {
		return
	}
	if n.waitingCount(w, sameTenant(it)) == 0 {
		return
	}

	t, name := lv.tenant(it)
	lv.clock = max(lv.clock, t.time)
	t.share = share{lv.clock + strideOf(n.weights[it.Ref.Address.Tenant]), n.tick()}
	if n.waitingCount(w, sameKey(it)) == 0 {
		return
	}
	k := t.key(name)
	t.clock = max(t.clock, k.time)
	*k = share{t.clock + strideOf(it.Spec.Weight), n.tick()}
}

func (n *naive) advance(now model.Time) {
	slices.SortFunc(n.tasks, func(a, b *naiveTask) int { return compareItems(&a.Item, &b.Item) })
	for _, t := range n.tasks {
		if t.state == "delayed" && t.Visible <= now {
			n.wait(t)
		}
	}
	for name, again := range n.closed {
		if again != 0 && again <= now {
			delete(n.closed, name)
		}
	}
}

func (n *naive) take(now model.Time, it *Item, known bool) bool {
	ok, _, again := n.gate.Take(now, it)
	if !ok && known {
		if again != 0 {
			again = max(again, now+1)
		}
		n.closed[n.group(it)] = again
	}
	return ok
}

func isTaken(state string) bool {
	return slices.Contains([]string{"reserved", "matched", "held", "late", "reported"}, state)
}

func (n *naive) release(now model.Time, t *naiveTask, how Outcome) {
	was := t.state
	t.worker = 0
	n.leave(t)
	if isTaken(was) {
		n.gate.Give(now, &t.Item, how)
		delete(n.closed, n.group(&t.Item))
	}
}

func (n *naive) drop(t *naiveTask) {
	n.tasks = slices.DeleteFunc(n.tasks, func(o *naiveTask) bool { return o == t })
}

func (n *naive) add(now model.Time, it Item) {
	n.advance(now)
	if t := n.find(it.Ref); t != nil {
		n.release(now, t, Neither)
		n.drop(t)
	}
	t := &naiveTask{Item: it}
	n.tasks = append(n.tasks, t)
	switch {
	case it.spent():
		t.state = "expired"
	case it.Visible > now:
		t.state = "delayed"
	default:
		n.wait(t)
	}
}

// couldTake returns the waiting tasks that could start on a worker.
func (n *naive) couldTake(w *naiveWorker) []*naiveTask {
	var out []*naiveTask
	for _, t := range n.tasks {
		_, closed := n.closed[n.group(&t.Item)]
		if t.state == "waiting" && w.covers(&t.Item) && !closed && !n.paused[siteName{t.Ref.Address.Tenant, t.Spec.Queue}] {
			out = append(out, t)
		}
	}

	shares := *n.classes[w.class()]
	slices.SortFunc(out, func(a, b *naiveTask) int {
		if a.Spec.Priority != b.Spec.Priority {
			return cmp.Compare(b.Spec.Priority, a.Spec.Priority)
		}
		lv := shares[a.Spec.Priority]
		ta, ka := lv.tenant(&a.Item)
		tb, kb := lv.tenant(&b.Item)
		x, y := ta.key(ka), tb.key(kb)
		return cmp.Or(cmp.Compare(ta.time, tb.time), cmp.Compare(ta.seq, tb.seq), cmp.Compare(x.time, y.time), cmp.Compare(x.seq, y.seq), compareItems(&a.Item, &b.Item))
	})

	return out
}

// byFree returns the workers with free slots. The workers with the most free slots come first.
func (n *naive) byFree() []*naiveWorker {
	free := slices.DeleteFunc(slices.Clone(n.workers), func(w *naiveWorker) bool { return w.offer.Slots <= n.load(w.id) })
	slices.SortFunc(free, func(a, b *naiveWorker) int {
		return cmp.Or(cmp.Compare(b.offer.Slots-n.load(b.id), a.offer.Slots-n.load(a.id)), cmp.Compare(a.served, b.served), cmp.Compare(a.id, b.id))
	})
	return free
}

func (n *naive) match(now model.Time) []Match {
	n.advance(now)
	var out []Match
	for {
		var w *naiveWorker
		var t *naiveTask
		for _, o := range n.byFree() {
			if could := n.couldTake(o); len(could) > 0 && (t == nil || could[0].Spec.Priority > t.Spec.Priority) {
				w, t = o, could[0]
			}
		}

		if t == nil {
			return out
		}
		if !n.take(now, &t.Item, true) {
			continue
		}
		n.charge(w, &t.Item)
		n.leave(t)
		t.state, t.worker, w.served = "matched", w.id, n.tick()
		out = append(out, Match{Ref: t.Ref, Lane: t.Lane, Worker: w.id})
	}
}

func (n *naive) reserve(now model.Time, it *Item) (WorkerID, bool) {
	n.advance(now)
	_, closed := n.closed[n.group(it)]
	if it.Visible > now || it.spent() || n.find(it.Ref) != nil || closed || n.paused[siteName{it.Ref.Address.Tenant, it.Spec.Queue}] {
		return 0, false
	}

	for _, w := range n.byFree() {
		if !w.covers(it) {
			continue
		}
		if could := n.couldTake(w); len(could) > 0 && could[0].Spec.Priority >= it.Spec.Priority {
			return 0, false
		}
		known := slices.ContainsFunc(n.tasks, func(t *naiveTask) bool { return t.state == "waiting" && n.group(&t.Item) == n.group(it) })
		if !n.take(now, it, known) {
			return 0, false
		}
		n.charge(w, it)
		w.served = n.tick()
		n.tasks = append(n.tasks, &naiveTask{Item: *it, state: "reserved", worker: w.id})
		return w.id, true
	}

	return 0, false
}

func (n *naive) unreserve(now model.Time, ref model.TaskRef) {
	n.advance(now)
	t := n.find(ref)
	if t == nil || (t.state != "reserved" && t.state != "matched") {
		return
	}
	back := t.state == "matched"
	n.release(now, t, Neither)
	if back {
		n.wait(t)
	} else {
		n.drop(t)
	}
}

func (n *naive) hold(now model.Time, it Item, claim model.ClaimRef, id WorkerID) bool {
	n.advance(now)
	t := n.find(it.Ref)
	if t == nil {
		t = &naiveTask{}
		t.Item = it
		n.tasks = append(n.tasks, t)
	}

	permits := isTaken(t.state)
	n.leave(t)
	t.Item = it
	if t.Claimed == 0 {
		t.Claimed = now
	}
	if !permits {
		n.gate.Hold(now, &t.Item, "")
	}
	here := n.worker(id) != nil
	t.state, t.claim, t.beat, t.worker = "held", claim.Claim, now, 0
	if here {
		t.worker = id
	}

	return here
}

func (n *naive) remove(now model.Time, ref model.TaskRef, how Outcome) {
	n.advance(now)
	if t := n.find(ref); t != nil {
		n.release(now, t, how)
		n.drop(t)
	}
}

func (n *naive) beat(now model.Time, id WorkerID, claim model.ClaimRef) bool {
	n.advance(now)
	t := n.find(claim.TaskRef)
	if t == nil || t.claim != claim.Claim || n.worker(id) == nil {
		return false
	}
	if t.state == "reported" {
		return true
	}
	if t.state != "held" || (t.worker != 0 && t.worker != id) {
		return false
	}
	t.worker, t.beat = id, max(t.beat, now)
	return true
}

func (n *naive) markReported(now model.Time, id WorkerID, claim model.ClaimRef) bool {
	n.advance(now)
	t := n.find(claim.TaskRef)
	if t == nil || t.claim != claim.Claim || t.worker != id || id == 0 || (t.state != "held" && t.state != "late") {
		return false
	}
	t.state, t.worker = "reported", 0
	return true
}

// deadline returns the first deadline of a task, if it has any.
func (n *naive) deadline(t *naiveTask) (model.Time, DueKind) {
	type one struct {
		from model.Time
		d    time.Duration
		kind DueKind
	}

	var all []one
	switch t.state {
	case "expired":
		if t.claim == 0 && t.spent() && t.beat == 0 {
			return 0, DueSpent
		}
	case "delayed", "waiting":
		all = []one{{t.Visible, t.Spec.ToStart, DueToStart}, {t.Scheduled, t.Spec.Total, DueTotal}}
	case "held":
		all = []one{{t.Claimed, t.Spec.ToClose, DueToClose}, {t.Scheduled, t.Spec.Total, DueTotal}}
		if t.worker == 0 {
			all = append(all, one{t.beat, n.grace, DueLost})
		} else {
			all = append(all, one{t.beat, t.Spec.Silence, DueSilence})
		}
	}

	all = slices.DeleteFunc(all, func(o one) bool { return o.d <= 0 })
	if len(all) == 0 {
		return 0, 0
	}
	first := slices.MinFunc(all, func(a, b one) int {
		return cmp.Or(cmp.Compare(a.from.Add(a.d), b.from.Add(b.d)), cmp.Compare(a.kind, b.kind))
	})

	return first.from.Add(first.d), first.kind
}

func (n *naive) takeDue(now model.Time) []Due {
	n.advance(now)
	var out []Due
	late := slices.DeleteFunc(slices.Clone(n.tasks), func(t *naiveTask) bool {
		at, kind := n.deadline(t)
		return kind == 0 || at >= now
	})

	slices.SortFunc(late, func(a, b *naiveTask) int {
		x, _ := n.deadline(a)
		y, _ := n.deadline(b)
		return cmp.Or(cmp.Compare(x, y), compareItems(&a.Item, &b.Item))
	})

	for _, t := range late {
		_, kind := n.deadline(t)
		d := Due{Ref: t.Ref, Lane: t.Lane, Kind: kind}
		if t.state == "held" {
			d.Claim = t.claim
			t.state = "late"
		} else {
			n.leave(t)
			t.state, t.beat = "expired", 1 // 1 records that takeDue has returned the task
		}
		out = append(out, d)
	}

	return out
}

func (n *naive) join(now model.Time, id WorkerID, offer model.TaskOffer) {
	n.advance(now)
	old := n.worker(id)
	w := &naiveWorker{id: id, offer: offer}
	if old != nil {
		w.served = old.served
	}
	n.workers = slices.DeleteFunc(n.workers, func(o *naiveWorker) bool { return o.id == id })
	n.workers = append(n.workers, w)

	if n.classes[w.class()] == nil {
		n.classes[w.class()] = &naiveShares{}
		var all []*naiveTask
		for _, t := range n.tasks { // advance has sorted them
			if t.state == "waiting" {
				t.state = ""
				all = append(all, t)
			}
		}
		for _, t := range all {
			n.enter(w, &t.Item)
			t.state = "waiting"
		}
	}

	n.dropClasses()
}

func (n *naive) dropClasses() {
	for name := range n.classes {
		if !slices.ContainsFunc(n.workers, func(w *naiveWorker) bool { return w.class() == name }) {
			delete(n.classes, name)
		}
	}
}

func (n *naive) leaveWorker(now model.Time, id WorkerID) []model.ClaimRef {
	n.advance(now)
	n.workers = slices.DeleteFunc(n.workers, func(o *naiveWorker) bool { return o.id == id })
	var out []model.ClaimRef
	for _, t := range n.tasks { // advance has sorted them
		if t.worker != id || id == 0 {
			continue
		}
		t.worker = 0
		if t.state == "held" || t.state == "late" {
			out = append(out, model.ClaimRef{TaskRef: t.Ref, Claim: t.claim})
			t.beat = now
		}
	}
	n.dropClasses()
	return out
}

func (n *naive) reopen(now model.Time, groups ...string) {
	n.advance(now)
	if len(groups) == 0 {
		clear(n.closed)
	}
	for _, g := range groups {
		delete(n.closed, g)
	}
}

// wake returns when something changes next if no call comes before.
func (n *naive) wake() model.Time {
	for _, w := range n.byFree() {
		if len(n.couldTake(w)) > 0 {
			return 1
		}
	}

	var all []model.Time
	for _, t := range n.tasks {
		if t.state == "delayed" {
			all = append(all, t.Visible)
		}
		if at, kind := n.deadline(t); kind != 0 {
			all = append(all, at+1)
		}
	}

	for _, again := range n.closed {
		if again != 0 {
			all = append(all, again)
		}
	}

	if len(all) == 0 {
		return 0
	}
	return slices.Min(all)
}

func (n *naive) stats() Stats {
	var out Stats
	sites := map[siteName]*QueueStats{}
	at := func(tenant, queue string) *QueueStats {
		if sites[siteName{tenant, queue}] == nil {
			sites[siteName{tenant, queue}] = &QueueStats{Tenant: tenant, Queue: queue, Paused: n.paused[siteName{tenant, queue}]}
		}
		return sites[siteName{tenant, queue}]
	}
	for name := range n.paused {
		at(name.tenant, name.queue)
	}

	for _, t := range n.tasks {
		q := at(t.Ref.Address.Tenant, t.Spec.Queue)
		switch {
		case t.state == "delayed":
			q.Delayed++
		case t.state == "waiting":
			q.Waiting++
			if q.Oldest == 0 || t.Visible < q.Oldest {
				q.Oldest = t.Visible
			}
		case isTaken(t.state):
			q.Claimed++
		}
	}

	for _, w := range n.workers {
		for _, tenant := range sortedNames(w.offer.Tenants) {
			for _, queue := range sortedNames(w.offer.Queues) {
				at(tenant, queue).Workers++
				at(tenant, queue).Slots += w.offer.Slots
			}
		}
		out.Workers = append(out.Workers, WorkerStats{ID: w.id, Held: n.load(w.id), Slots: w.offer.Slots})
	}

	for _, q := range sites {
		out.Queues = append(out.Queues, *q)
	}
	slices.SortFunc(out.Queues, func(x, y QueueStats) int {
		return compareSites(siteName{x.Tenant, x.Queue}, siteName{y.Tenant, y.Queue})
	})
	slices.SortFunc(out.Workers, func(x, y WorkerStats) int { return cmp.Compare(x.ID, y.ID) })

	return out
}
