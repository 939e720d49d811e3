package lane

import (
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// WorkerID names a worker of this process. Zero is nobody.
type WorkerID int

type kind struct{ tenant, workflow string }

// workers knows who offers what.
type workers struct {
	offers map[kind][]offer
	turn   map[kind]int
	gen    uint64
	// unserved are runs that nobody here can continue, by kind.
	unserved map[kind][]*entry
	here     map[WorkerID]bool
	leaving  map[WorkerID]bool
}

// offer is a worker that runs a workflow, and the version of its code.
type offer struct {
	id      WorkerID
	version string
	pinned  bool // it continues only pinned runs of its version

	entity *model.EntityType // what it offers, when that is an entity or a service
}

func newWorkers() workers {
	return workers{offers: map[kind][]offer{}, turn: map[kind]int{}, unserved: map[kind][]*entry{}, here: map[WorkerID]bool{}, leaving: map[WorkerID]bool{}}
}

// pick chooses among the workers that offer the kind, in turn, and have the version that the run is pinned to, or do not care; 0 when there is
// none.
func (w *workers) pick(k kind, pin string) WorkerID {
	offers := w.offers[k]
	for range offers {
		w.turn[k]++
		if o := offers[w.turn[k]%len(offers)]; pin == "" || o.version == pin || !o.pinned {
			return o.id
		}
	}
	return 0
}

// Join adds a worker. Runs that waited for somebody like it are handed over, and so are blocked ones: its code may be newer.
func (l *Lane) Join(now model.Time, id WorkerID, o model.Offer) {
	l.workers.here[id] = true
	for _, name := range o.Workflows {
		l.offer(now, kind{o.Tenant, name}, offer{id: id, version: o.Version, pinned: slices.Contains(o.Pinned, name)})
	}
}

// offer adds what a worker can run, and hands over what has waited for it.
func (l *Lane) offer(now model.Time, k kind, o offer) {
	l.workers.offers[k] = append(l.workers.offers[k], o)
	waiting := l.workers.unserved[k]
	delete(l.workers.unserved, k)
	for _, e := range waiting {
		e.unserved = false
		if e.isEntity() && e.known {
			e.actor.entity.Mark(l.views(e))
			l.settleDue(now, e)
		}
		l.dispatch(now, e)
		l.maybeDrop(e)
	}
}

// Withdraw begins to take everything from a worker that wants to leave: nothing new goes to it, and it is expected to release what it holds.
// A run that gets news is taken back at once.
func (l *Lane) Withdraw(id WorkerID) {
	l.unoffer(id)
	l.workers.leaving[id] = true
}

// Leave removes a worker. What it still holds goes to others or waits for one.
func (l *Lane) Leave(now model.Time, id WorkerID) {
	l.unoffer(id)
	delete(l.workers.leaving, id)
	delete(l.workers.here, id)
	for _, e := range l.sorted(func(e *entry) bool { return e.worker == id }) {
		l.takeBack(now, e, "the worker left")
	}
	l.leaveEntities(now, id)
	l.leaveRecalls(id)
}

func (l *Lane) unoffer(id WorkerID) {
	for k, ids := range l.workers.offers {
		if ids = slices.DeleteFunc(ids, func(o offer) bool { return o.id == id }); len(ids) == 0 {
			delete(l.workers.offers, k)
		} else {
			l.workers.offers[k] = ids
		}
	}
}

// takeBack takes a run from its worker and finds another one.
func (l *Lane) takeBack(now model.Time, e *entry, why string) {
	l.letGoNow(e, why)
	if !e.known || (e.x != nil && e.x.Open()) {
		l.dispatch(now, e)
	}
	l.maybeDrop(e)
}

// sorted lists entries in an order that does not depend on chance.
func (l *Lane) sorted(want func(*entry) bool) []*entry {
	var found []*entry
	for _, e := range l.entries {
		if want(e) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, compareEntries)
	return found
}

// dispatch hands an open run to a worker. Its history is read first.
func (l *Lane) dispatch(now model.Time, e *entry) {
	if e.isEntity() {
		l.operate(now, e)
		return
	}
	if l.dead != nil || e.worker != 0 || e.activating || e.fresh || e.shard.draining || e.poison != nil {
		return
	}
	if e.evicting {
		e.wanted = true
		return
	}
	if e.known && (e.x == nil || !e.x.Open() || e.paused()) {
		return
	}
	if e.isTask() {
		if e.known {
			l.postTasks(now, e, queue.Neither)
		} else {
			l.loadSoon(e)
		}
		return
	}
	if e.unserved || e.inLine {
		return // somebody who can continue it will take it along
	}
	k := kind{e.address.Tenant, e.address.Type}
	if len(l.workers.offers[k]) == 0 {
		l.strand(k, e, noWorker(e))
		if l.cfg.Board != nil && !e.known {
			l.loadSoon(e) // its tasks go on without its code
		}
		return
	}
	e.activating, e.tail = true, nil
	e.version++ // a read that is still on its way from before lacks what came since: it would take the place of this one
	l.loads.add(&Load{Kind: LoadRun, Shard: e.shard.id, Address: e.address, entry: e})
}

// strand lets a run wait for a worker that can continue it. It is never a failure.
func (l *Lane) strand(k kind, e *entry, why model.Reason) {
	e.waits = []model.Reason{why}
	if !e.unserved {
		e.unserved = true
		l.workers.unserved[k] = append(l.workers.unserved[k], e)
	}
	refusal := fault.Unavailable
	if why.Code != model.WaitWorker {
		refusal = fault.Blocked
	}
	err := core.LimitReached(e.address, &why)
	if err == nil {
		err = fault.New(refusal, "execution %s %s", e.address, why)
	}
	l.refuseQueries(e, err)
}

// unstrand has the run wait for nobody any more.
func (l *Lane) unstrand(e *entry) {
	if e.unserved {
		k := kind{e.address.Tenant, e.address.Type}
		l.workers.unserved[k] = slices.DeleteFunc(l.workers.unserved[k], func(x *entry) bool { return x == e })
		e.unserved = false
	}
}

func noWorker(e *entry) model.Reason {
	why := model.Reason{Code: model.WaitWorker, Name: e.address.Type}
	if word, name, ok := strings.Cut(e.address.Type, ":"); ok && e.isEntity() {
		why.Detail, why.Name = word, name
	}
	if e.known && e.x != nil && e.x.Pin != "" {
		why.Detail = "version " + e.x.Pin + " of workflow"
	}
	return why
}

// activateFresh hands over a run that has just begun: there is nothing to read.
func (l *Lane) activateFresh(now model.Time, e *entry, run model.RunID) {
	if e.run() == run {
		e.starting, e.fresh, e.overlooked = false, false, false
	}
	if len(e.backlog) > 0 {
		l.schedule(e)
	}
	if l.dead != nil || e.run() != run || e.worker != 0 || e.activating || e.shard.draining || e.paused() || !e.x.Open() || e.isTask() {
		return
	}
	k := kind{e.address.Tenant, e.address.Type}
	w := l.workers.pick(k, e.x.Pin)
	if w == 0 {
		l.strand(k, e, noWorker(e))
		return
	}
	if !l.hasRoom() {
		loading := e.loading // perhaps an answer is being read
		l.queueUp(e)
		e.loading = loading // it has no tasks that would have to be read
		return
	}
	l.activate(now, e, w, e.x.Start.Carried)
}

func (l *Lane) activate(now model.Time, e *entry, w WorkerID, events []model.Event) {
	l.workers.gen += uint64(l.cfg.Lanes)
	e.worker, e.gen, e.busy, e.activating, e.tail, e.told = w, l.workers.gen, true, false, nil, int64(len(events))
	e.news, e.retrying, e.withheld = e.told, nil, false
	e.held, l.runs[e.run()] = e.run(), e
	e.waits = []model.Reason{{Code: model.WaitTurn}}
	l.weigh(e)
	l.out.Calls = append(l.out.Calls, Call{
		Kind: CallActivate, Worker: w, Run: e.run(), Generation: e.gen,
		Activation: &model.Activation{
			Start: e.x.Start, Generation: e.gen, Events: events, Now: now, Begun: e.x.Parked || len(e.x.Timers()) > 0,
			Limits: model.HistoryLimits{Events: l.cfg.Limits.Events, Bytes: l.cfg.Limits.Bytes},
		},
	})
	l.askAll(e)
}

// activateLoaded hands over a run whose history has been read.
func (l *Lane) activateLoaded(now model.Time, e *entry, events []model.Event) {
	e.activating, e.read = false, nil
	if e.x == nil || !e.x.Open() || e.paused() || e.worker != 0 || e.shard.draining || e.poison != nil {
		e.tail = nil
		l.askAgain(e)
		return
	}
	k := kind{e.address.Tenant, e.address.Type}
	w := l.workers.pick(k, e.x.Pin)
	if w == 0 {
		e.tail = nil
		l.strand(k, e, noWorker(e))
		return
	}
	all := slices.Concat(e.x.Start.Carried, events)
	for _, t := range e.tail {
		if t.Seq == int64(len(all))+1 {
			all = append(all, t)
		}
	}
	if int64(len(all)) < e.x.Next-1 {
		// Outcomes of steps are on their way to the store: a worker that did not know them would run the steps again.
		e.activating, e.read = true, &events
		return
	}
	l.activate(now, e, w, all)
}

// deliver brings committed events to the worker that holds the run, or finds one.
func (l *Lane) deliver(now model.Time, e *entry, run model.RunID, events []model.Event) {
	resumed := hasKind(events, model.EventResumed)
	if resumed && e.resuming > 0 {
		e.resuming--
	}
	if e.evicting && e.leaves == run {
		if e.missed == nil {
			e.missed = slices.Clip(events) // shared: nobody changes events
		} else {
			e.missed = append(e.missed, events...)
		}
	}
	switch {
	case e.run() != run:
	case e.worker != 0 && e.busy && (e.withheld || l.stops(e)):
		// The run stops here, between two steps: told nothing more, the worker begins none, and what it runs may end (see heard).
		e.withheld = true
	case e.worker != 0 && e.shard.draining:
		l.letGoNow(e, "the shard moves")
	case e.worker != 0 && (e.withheld || l.stops(e)):
		l.takeBack(now, e, l.whyStops(e))
	case e.worker != 0:
		l.tell(e, events)
	case e.activating:
		e.tail = append(e.tail, events...)
		if e.read != nil {
			l.activateLoaded(now, e, *e.read)
		}
	case e.isTask() || !slices.ContainsFunc(events, concernsCode):
	case hasKind(events, model.EventSignalDropped):
		l.unstrand(e) // code that was blocked by the signal may go on now
		l.dispatch(now, e)
	case e.x.Blocked == nil || resumed: // whoever can continue a blocked one may have come while it was paused
		l.dispatch(now, e)
	}
}

// concernsCode reports whether an event is more than a note about how a task fares that has not ended.
func concernsCode(e model.Event) bool {
	switch e.Kind {
	case model.EventTaskClaimed, model.EventTaskReturned:
		return false
	case model.EventAttemptFailed:
		return e.Worker == "" // that of a task names who made it
	case model.EventTaskTimedOut:
		return e.Due == 0
	default:
		return true
	}
}

func hasKind(events []model.Event, k model.EventKind) bool {
	return slices.ContainsFunc(events, func(e model.Event) bool { return e.Kind == k })
}

// tell brings events to the worker, unless they came with the activation.
func (l *Lane) tell(e *entry, events []model.Event) {
	for len(events) > 0 && events[0].Seq <= e.told {
		events = events[1:]
	}
	if len(events) > 0 {
		e.told = events[len(events)-1].Seq
		for i := range events {
			if events[i].Kind.News() {
				e.news, e.busy = events[i].Seq, true
			}
		}
		l.out.Calls = append(l.out.Calls, Call{Kind: CallDeliver, Worker: e.worker, Run: e.held, Generation: e.gen, Events: events})
	}
}

// stops reports whether the run is to leave its worker as soon as that runs no step.
func (l *Lane) stops(e *entry) bool {
	return e.shard.draining || l.workers.leaving[e.worker] || e.paused()
}

func (l *Lane) whyStops(e *entry) string {
	switch {
	case e.known && e.x != nil && e.x.Withheld() != nil:
		return e.x.Withheld().String()
	case l.workers.leaving[e.worker]:
		return "the worker leaves"
	}
	return "what it waits for came while it was paused"
}

// wakeForRetry has a step run again whose back-off is over.
func (l *Lane) wakeForRetry(now model.Time, e *entry, run model.RunID, step string) {
	switch {
	case e.run() != run:
	case e.worker != 0 && e.busy && (e.withheld || l.stops(e)):
		e.withheld = true // whoever holds it next finds that the time has come
	case e.worker != 0 && (e.withheld || l.stops(e)):
		l.takeBack(now, e, l.whyStops(e))
	case e.worker != 0:
		e.retrying, e.busy = append(e.retrying, step), true
		l.out.Calls = append(l.out.Calls, Call{Kind: CallRetry, Worker: e.worker, Run: run, Generation: e.gen, ID: step})
	case e.x.Blocked == nil:
		l.dispatch(now, e)
	}
}

// letGo takes the run from its worker once the batch is committed; at once when there is none.
func (l *Lane) letGo(b *building, e *entry, why string) {
	if e.worker == 0 {
		return
	}
	call := Call{Kind: CallEvict, Worker: e.worker, Run: e.held, Generation: e.gen, Reason: why}
	if b == nil {
		l.out.Calls = append(l.out.Calls, call)
	} else {
		e.evicting, e.leaves, e.missed = true, e.held, nil
		b.effects = append(b.effects, effect{kind: effEvict, entry: e, call: call})
	}
	l.letGoQuietly(e)
}

func (l *Lane) letGoNow(e *entry, why string) { l.letGo(nil, e, why) }

// letGoQuietly takes the run from a worker that knows already.
func (l *Lane) letGoQuietly(e *entry) {
	delete(l.runs, e.held)
	e.worker, e.gen, e.busy, e.held = 0, 0, false, model.RunID{}
	l.weigh(e)
}

// Explain says why the current run of an address does not move; ok is false when the lane does not know better than the store.
func (l *Lane) Explain(a model.Address) (reasons []model.Reason, ok bool) {
	e := l.entries[a]
	if e == nil || l.dead != nil || e.shard.draining { // a shard that is given up may have another owner already
		return nil, false
	}
	switch {
	case e.poison != nil:
		return []model.Reason{*e.poison}, true
	case e.isEntity():
		return l.explainEntity(e)
	case e.known && e.x != nil && e.x.Withheld() != nil:
		return []model.Reason{*e.x.Withheld()}, true
	case e.asleep != nil:
		return []model.Reason{*e.asleep}, true
	case e.known && e.x != nil && e.x.Blocked != nil && e.worker == 0 && !e.unserved: // else what it waits for says more
		return []model.Reason{*e.x.Blocked}, true
	}
	reasons = l.explainTasks(e)
	if len(reasons) == 0 {
		reasons = e.waits
	}
	if e.known && e.x != nil && len(reasons) > 0 {
		reasons = e.x.Warned(reasons, l.cfg.Limits)
	}
	return reasons, len(reasons) > 0
}
