package lane

import (
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Join adds a worker. The worker gets runs that waited for its code, and also blocked runs, because
// its code may be newer.
func (l *Lane) Join(now model.Time, id WorkerID, o model.Offer, s Capacity) {
	l.workers.add(id, s)
	if o.Previews {
		l.workers.previews[id] = true
	}
	for _, name := range o.Workflows {
		l.offer(now, kind{o.Tenant, name}, offer{id: id, version: o.Version, pinned: slices.Contains(o.Pinned, name)})
	}
	l.meet(now, id, o.Held)
	l.HandOut(now, id)
}

// offer adds what a worker can run, and hands over the runs and calls that waited for such a
// worker.
func (l *Lane) offer(now model.Time, k kind, o offer) {
	for _, e := range l.workers.offer(k, o) {
		e.wait.worker = false
		if len(e.wait.refused) > 0 {
			e.wait.joined = o.id
		}
		if e.isEntity() && e.known {
			e.actor.entity.Mark(l.viewTest(e))
			l.settleEntity(now, e)
		}
		l.dispatch(now, e)
		l.maybeDrop(e)
	}
}

// Withdraw starts to take all runs from a worker that wants to leave. The worker gets no new runs,
// and should release the runs that it holds. If there is an event for one of these runs, the lane
// takes the run from the worker immediately.
func (l *Lane) Withdraw(now model.Time, id WorkerID) {
	l.workers.withdraw(id)
	l.workers.leaving[id] = true
	l.leaveLines(now)
}

// leaveLines handles runs and entities that wait for a slot, although no worker offers their kind
// any longer. They wait for a worker instead. If the last worker of a tenant has left, its waiting
// runs and entities go to workers that serve every tenant.
func (l *Lane) leaveLines(now model.Time) {
	for _, e := range l.workers.unservedLines() {
		l.dispatch(now, e)
		l.maybeDrop(e)
	}
	if len(l.workers.lines) == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(l.workers.offered)) {
		l.HandOut(now, id)
	}
}

// Leave removes a worker. Its runs go to other workers, or wait for a worker. If a server stops,
// its workers leave, but outlive it. Then a run whose worker may be running a step waits for the
// next owner, because another worker of this owner would run the step a second time.
func (l *Lane) Leave(now model.Time, id WorkerID) { l.removeWorker(now, id, nil) }

// removeWorker removes a worker. died is nil if the worker has left.
func (l *Lane) removeWorker(now model.Time, id WorkerID, died *death) {
	l.workers.remove(id)
	l.reunion.leave(id)
	for _, e := range l.sortedEntries(func(e *entry) bool { return e.hold.worker == id }) {
		if l.outlive() && e.hold.busy {
			e.outlived = e.hold.run
		}
		l.takeBack(now, e, "the worker left")
	}
	l.returnJobs(now, id, died)
	l.dropRecalls(id)
	l.leaveLines(now)
}

// takeBack takes a run from its worker and finds another worker for it.
func (l *Lane) takeBack(now model.Time, e *entry, why string) {
	l.letGoNow(e, why)
	if !e.known || (e.x != nil && e.x.Open()) {
		l.dispatch(now, e)
	}
	l.maybeDrop(e)
}

// outlive reports whether workers that leave now outlive this owner, because the owner is a server
// that stops.
func (l *Lane) outlive() bool { return l.hurried && l.cfg.Reunion > 0 }

// dispatch gives an open run to a worker. It first reads the history.
func (l *Lane) dispatch(now model.Time, e *entry) {
	if e.isEntity() {
		l.operate(now, e)
		return
	}
	if l.dead != nil || !e.hold.free() || e.reading.history || e.shard.draining || e.quarantine.why != nil || e.isOutlived() || l.reunion.awaits(e.address) {
		return
	}

	// The run that has just started goes to a worker after its commit. But the lane may have
	// assumed that the address had no run. If the store refuses the batch, the lane dispatches the
	// run that the address has (see rollback).
	if e.pending.fresh {
		e.wait.overlooked = true
		return
	}

	// The worker that has the run must first learn that it loses the run.
	if e.eviction.pending {
		e.eviction.wanted = true
		return
	}
	if e.known && (e.x == nil || !e.x.Open() || e.isPaused()) {
		return
	}

	// A task without a workflow has no code: the board finds a worker.
	if e.isTask() {
		if e.known {
			l.postTasks(now, e, queue.Neither)
		} else {
			l.loadSoon(e)
		}
		return
	}

	if e.wait.worker || e.wait.room || e.wait.slot || l.isEarly(e) {
		return // a worker that can continue the run will get it
	}
	s, ok := l.seatToRead(e)
	if !ok {
		if l.cfg.Board != nil && !e.known {
			l.loadSoon(e) // the tasks of the run continue even without its code
		}
		return
	}

	e.reading.beginHistory(s)
	// A read that started earlier lacks later events, so its result must be ignored.
	e.version++
	l.loads.add(&Load{Kind: LoadRun, Shard: e.shard.id, Address: e.address, entry: e})
}

// strand lets a run wait for a worker that can continue it. The run does not fail, however long it
// waits.
func (l *Lane) strand(e *entry, why model.Reason) {
	e.wait.reasons = []model.Reason{why}
	l.workers.strand(e)
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

// activateFresh gives a run that has just started to a worker, without reading its history.
func (l *Lane) activateFresh(now model.Time, e *entry, run model.RunID) {
	if e.run() == run {
		e.pending.starting, e.pending.fresh, e.wait.overlooked = false, false, false
	}
	if len(e.backlog.inputs) > 0 {
		l.schedule(e)
	}

	if l.dead != nil || e.run() != run || !e.hold.free() || e.reading.history || e.shard.draining || e.isPaused() || !e.x.Open() || e.isTask() {
		return
	}

	if e.wait.slot {
		return // an earlier run of the address waits in the line, and this run takes its place
	}
	s, ok := l.seatFor(e, e.x.Pin)
	if !ok {
		return
	}

	if !l.room.free() {
		s.leave()
		loading := e.reading.active // a read of an answer may be in flight
		l.queueUp(e)
		e.reading.active = loading // the new run has no tasks to read
		return
	}
	l.activate(now, e, s, e.x.Start.Carried)
}

// activate gives a run with its events to a worker, in a new generation. The worker then answers
// queries that waited for it.
func (l *Lane) activate(now model.Time, e *entry, s seat, events []model.Event) {
	e.hold.give(s, l.workers.nextGen(), e.run(), len(events))
	e.hold.given = now
	e.hold.preview.takes = l.cfg.AheadWait > 0 && l.workers.previews[s.worker]
	e.reading.endHistory()
	e.wait.joined = 0
	l.runs[e.run()] = e
	e.ours, e.claimed = e.run(), false
	l.noteReturn(e, s.worker)
	e.wait.reasons = l.inTurn
	l.room.weigh(e)
	l.out.Calls = append(l.out.Calls, Call{
		Kind: CallActivate, Worker: s.worker, Run: e.run(), Generation: e.hold.gen,
		Activation: &model.Activation{
			Start: &e.x.Start, Generation: e.hold.gen, Events: events, Now: now, Begun: e.x.Parked || len(e.x.Timers()) > 0,
			Limits: model.HistoryLimits{Events: l.cfg.Limits.Events, Bytes: l.cfg.Limits.Bytes},
		},
	})
	l.askAll(e)
}

// activateLoaded gives a run whose history has been read to a worker.
func (l *Lane) activateLoaded(now model.Time, e *entry, events []model.Event) {
	tail := e.reading.tail
	s := e.reading.seat.move()
	e.reading.endHistory()
	if e.x == nil || !e.x.Open() || e.isPaused() || !e.hold.free() || e.shard.draining || e.quarantine.why != nil || e.isOutlived() {
		s.leave()
		l.askAgain(e)
		return
	}

	if l.mayRetryElsewhere(now, e) && l.keepForHolder(e, e.run()) {
		s.leave()
		l.askAgain(e)
		return
	}
	s, ok := l.seatForHolder(e, s, events)
	if !ok {
		return
	}

	// The worker gets the history that the lane has read, and the events that it has committed
	// since.
	all := slices.Concat(e.x.Start.Carried, events)
	for _, t := range tail {
		if t.Seq == int64(len(all))+1 {
			all = append(all, t)
		}
	}
	if int64(len(all)) < e.x.Next-1 {
		// Outcomes of steps are in flight to the store. A worker that did not know these outcomes
		// would run the steps again.
		e.reading.beginHistory(s)
		e.reading.tail, e.reading.events = tail, &events
		return
	}
	l.activate(now, e, s, all)
}

// deliver sends committed events to the worker that holds the run, or finds a worker for the run.
func (l *Lane) deliver(now model.Time, e *entry, run model.RunID, events []model.Event) {
	resumed := hasKind(events, model.EventResumed)
	if resumed {
		e.pending.endResume()
	}
	e.eviction.miss(run, events)

	switch {
	case e.run() != run:
	case !e.hold.free() && e.hold.preview.spoiled:
		if !l.recovery.careful() { // otherwise it leaves its worker at the end of the recovery
			l.takeSpoiled(now, e)
		}
	case !e.hold.free() && e.hold.busy && !e.hold.hasPreview() && (e.hold.withheld || l.mustLeave(e)):
		// The run stops here, between two steps. The lane sends the worker no further events, so
		// the worker starts no step. The worker may finish the step that it is running (see
		// noteTurn).
		e.hold.withheld = true
	case !e.hold.free() && e.shard.draining:
		l.letGoNow(e, "the shard moves")
	case !e.hold.free() && (e.hold.withheld || l.mustLeave(e)):
		l.takeBack(now, e, l.whyLeave(e))
	case !e.hold.free() && e.hold.wakes(events) && !l.wake(e):
		l.moveOn(now, e)
	case !e.hold.free():
		l.tell(e, events)
	case e.reading.history:
		e.reading.tail = append(e.reading.tail, events...)
		if e.reading.events != nil {
			l.activateLoaded(now, e, *e.reading.events)
		}
	case e.isTask() || !slices.ContainsFunc(events, isForCode):
	case hasKind(events, model.EventSignalDropped):
		l.workers.unstrand(e) // the dropped signal may be what blocked the code
		l.dispatch(now, e)
	case e.x.Blocked == nil || resumed:
		// A worker that can continue a blocked run may have joined while the run was paused.
		l.dispatch(now, e)
	}
}

// tell sends events to the worker, unless the worker got them with the activation. If the worker
// has a preview of events, tell says that they are durable.
func (l *Lane) tell(e *entry, events []model.Event) {
	if len(events) == 0 || e.hold.preview.spoiled {
		return // a spoiled run leaves its worker, see takeSpoiled
	}
	e.hold.notePreview(events)
	if events = e.hold.tell(events); len(events) > 0 {
		l.out.Calls = append(l.out.Calls, Call{Kind: CallDeliver, Worker: e.hold.worker, Run: e.hold.run, Generation: e.hold.gen, Events: events})
	}
}

// mustLeave reports whether the run must leave its worker as soon as the worker runs no step.
func (l *Lane) mustLeave(e *entry) bool {
	return e.shard.draining || l.workers.leaving[e.hold.worker] || e.isPaused()
}

// whyLeave returns why a run leaves its worker.
func (l *Lane) whyLeave(e *entry) string {
	switch {
	case e.known && e.x != nil && e.x.Withheld() != nil:
		return e.x.Withheld().String()
	case l.workers.leaving[e.hold.worker]:
		return "the worker leaves"
	}
	return "what it waits for came while it was paused"
}

// wakeForRetry lets a worker run a step again, because the back-off of the step is over.
func (l *Lane) wakeForRetry(now model.Time, e *entry, run model.RunID, step string) {
	switch {
	case e.run() != run:
	case !e.hold.free() && e.hold.preview.spoiled: // see takeSpoiled
	case !e.hold.free() && e.hold.busy && !e.hold.hasPreview() && (e.hold.withheld || l.mustLeave(e)):
		e.hold.withheld = true // the next worker finds that the back-off is over
	case !e.hold.free() && (e.hold.withheld || l.mustLeave(e)):
		l.takeBack(now, e, l.whyLeave(e))
	case !e.hold.free() && !l.wake(e):
		l.moveOn(now, e)
	case !e.hold.free():
		e.hold.retry(step)
		l.out.Calls = append(l.out.Calls, Call{Kind: CallRetry, Worker: e.hold.worker, Run: run, Generation: e.hold.gen, ID: step})
	case e.x.Blocked == nil:
		l.dispatch(now, e)
	}
}

// letGo takes the run from its worker once the batch is committed, or immediately if there is no
// batch.
func (l *Lane) letGo(b *building, e *entry, why string) {
	if e.hold.free() {
		return
	}
	call := Call{
		Kind: CallEvict, Worker: e.hold.worker, Run: e.hold.run, Generation: e.hold.gen, Reason: why,
		Moves: l.dead != nil || e.shard.draining, Runs: e.hold.busy, Address: e.address, Given: e.hold.given,
	}
	if b == nil {
		l.out.Calls = append(l.out.Calls, call)
	} else {
		e.eviction.begin(e.hold.run, e.hold.seat.move())
		b.effects = append(b.effects, effect{kind: effEvict, entry: e, call: call})
	}
	l.letGoQuietly(e)
}

func (l *Lane) letGoNow(e *entry, why string) { l.letGo(nil, e, why) }

// letGoQuietly takes the run from a worker that already knows that it loses the run.
func (l *Lane) letGoQuietly(e *entry) {
	l.awaitNoTurn(e)
	delete(l.runs, e.hold.run)
	e.hold.take()
	l.room.weigh(e)
}

// Explain returns why the current run of an address does not move. ok is false when the lane knows
// only what the store knows.
func (l *Lane) Explain(a model.Address) (reasons []model.Reason, ok bool) {
	e := l.entries[a]
	// While the lane gives up a shard, the shard may already have another owner.
	if e == nil || l.dead != nil || e.shard.draining {
		return nil, false
	}
	switch {
	case e.quarantine.why != nil:
		return []model.Reason{*e.quarantine.why}, true
	case e.isEntity():
		return l.explainEntity(e)
	case e.known && e.x != nil && e.x.Withheld() != nil:
		return []model.Reason{*e.x.Withheld()}, true
	case e.wait.paused != nil:
		return []model.Reason{*e.wait.paused}, true
	case e.known && e.x != nil && e.x.Blocked != nil && e.hold.free() && !e.wait.worker && !e.wait.slot:
		// In all other cases the reasons that the worker gave say more than the stored one.
		return []model.Reason{*e.x.Blocked}, true
	}

	reasons = l.explainTasks(e)
	if len(reasons) == 0 {
		reasons = e.wait.reasons
	}
	if e.known && e.x != nil && len(reasons) > 0 {
		reasons = e.x.WithWarning(reasons, l.cfg.Limits)
	}
	return reasons, len(reasons) > 0
}
