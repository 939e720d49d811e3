package lane

import (
	"cmp"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

const (
	operationsPerHand = 64      // calls of an entity in one hand-over
	operationBytes    = 4 << 20 // bytes of calls in one hand-over, roughly
	defaultMailbox    = 10_000
	mailboxPage       = 1000
)

// acceptEntity handles the result of reading an entity: the entity is in memory from now on.
func (l *Lane) acceptEntity(now model.Time, ld *Load, r LoadResult) {
	e := ld.entry
	if ld.version != e.version {
		if e.reading.active {
			l.loads.add(ld)
		}
		return
	}
	e.reading.active, e.reading.due = false, false
	if r.Err != nil {
		l.quarantine(now, e, model.Unreadable(r.Err))
		return
	}

	if !e.known {
		a := e.actor
		a.entity = core.NewEntity(e.address, r.Entity.Entity, r.Entity.Mailbox)
		a.entity.Floor = e.shard.tokens.last
		a.entity.Keep(a.kept)
		l.suspect(e)
		a.durable, a.kept, e.known = a.entity.Row, nil, true
		a.entity.Mark(l.viewTest(e))
		l.settleEntity(now, e)
		l.setAsideDamaged(now, e, r.Entity.Mailbox)
	}

	l.operate(now, e)
	if len(e.backlog.inputs) > 0 {
		l.schedule(e)
	} else {
		l.maybeDrop(e)
	}
}

// acceptMailboxes dispatches entities of newly acquired shards that have a non-empty mailbox, and
// reads the next page.
func (l *Lane) acceptMailboxes(now model.Time, ld *Load, r LoadResult) {
	for _, k := range r.Mailboxes {
		if l.passOver(k.Shard, k.Address, "a mailbox") {
			continue
		}
		if e := l.entry(k.Address); e != nil && !l.keepForHolder(e, model.RunID{}) {
			l.dispatch(now, e)
		}
	}

	if n := len(r.Mailboxes); n == ld.Limit {
		l.loads.add(&Load{Kind: LoadMailboxes, Shards: ld.Shards, Behind: r.Mailboxes[n-1], Limit: ld.Limit, begun: ld.begun})
		return
	}

	for _, id := range ld.Shards {
		if sh := l.shards[id]; sh != nil && sh.tenure == ld.begun {
			sh.mailListed = true
		}
	}

	l.endEarly(now)
}

// JoinEntities adds a worker that has the code of entities. The worker gets calls that waited for
// this code.
func (l *Lane) JoinEntities(now model.Time, id WorkerID, o model.EntityOffer, s Capacity) {
	l.workers.add(id, s)
	for i := range o.Types {
		t := &o.Types[i]
		l.offer(now, kind{o.Tenant, t.Type}, offer{id: id, entity: t})
	}
	l.meet(now, id, o.Held)
	l.HandOut(now, id)
}

// entityType returns how the workers here define the type of an entry. It returns nil if no worker
// has its code.
func (l *Lane) entityType(e *entry) *model.EntityType {
	if offers := l.workers.offersOf(kind{e.address.Tenant, e.address.Type}); len(offers) > 0 {
		return offers[len(offers)-1].entity // the last worker to join: its code is the newest
	}
	return nil
}

// viewTest returns a function that reports which calls of an entry are views, which change nothing.
// A call is a view only if all builds of the connected workers say so, because any of these workers
// may get the call. If a build runs the call as an operation, and the lane hands it over as a view,
// the change would be lost.
func (l *Lane) viewTest(e *entry) func(name string) bool {
	offers := l.workers.offersOf(kind{e.address.Tenant, e.address.Type})
	return func(name string) bool {
		return len(offers) > 0 && !slices.ContainsFunc(offers, func(o offer) bool { return !slices.Contains(o.entity.Views, name) })
	}
}

// applyToEntity decides what a message does to an entity.
func (l *Lane) applyToEntity(now model.Time, e *entry, in *messageInput) {
	m := in.origin.message
	remote := in.origin.isRelied()
	a := core.Arrival{Tag: in.origin.token, Room: defaultMailbox}
	if t := l.entityType(e); t != nil {
		a.Room, a.Bytes = cmp.Or(t.Mailbox, defaultMailbox), t.MailboxBytes
		a.Life, a.StateVersion = core.Life{TTL: t.TTL, Idle: t.IdleTTL}, t.StateVersion
	}
	a.View = m.Kind == model.MessageCall && m.Section == "" && l.viewTest(e)(m.Name)
	a.Stored = remote || m.OneWay && !m.Brief // the sender relies on the lane to keep the call

	// Decide how safe the call must be: whether it is stored, and which commit it waits for.
	if e.address.Stateless() && !m.Brief && !remote {
		// The call runs at least once, so it starts after its row is stored. A remote call is
		// already in the store.
		a.Stored, a.Held = true, true
	}
	if m.Brief && remote {
		if a.View {
			view := *m
			view.Brief = false // the next owner may run the view too
			m = &view
		}
		// The call runs at most once, so it starts after the row that brought the call is
		// deleted.
		a.Held = m.Brief
	}
	// A passed operation may run ahead of the commit that stores its call (see ahead.go). A view
	// and a call of a service may not: they do not wait for the calls before them.
	mayRunAhead := !a.View && !e.address.Stateless()
	if m.Kind == model.MessageCall && (in.origin.passed && (!mayRunAhead || l.isLeft(m.From, e.shard)) || remote && l.isWary(now, e.shard)) {
		a.Held, a.Early = true, true
	}

	// Refuse a call for which there is no room.
	if !a.View {
		a.Stalled = l.whyStalled(now, e, in)
	}
	if err := l.noRoomFor(e, in.origin.message, a.Stored); err != nil {
		in.refuse(l, err)
		l.finishInput(in)
		l.operate(now, e)
		return
	}

	in.noteDropped(e, m)
	row := &e.actor.entity.Row
	wasLocked, epoch := row.Locked(), row.Epoch
	d := e.actor.entity.Deliver(m, a, now)
	// The lock may have gone to the next section in the line, and that section may release it in
	// the same batch.
	isFreed := wasLocked && (!row.Locked() || row.Epoch != epoch) && !in.origin.remote()
	if d.Answer.Failure != nil {
		in.drops = nil // the call stays
	} else if in.drops != nil {
		defer l.tellDropped(e, in.drops)
	}
	if m.Kind == model.MessageMailbox && m.Name == model.MailboxInterrupt && d.Answer.Failure == nil {
		l.interrupt(e, m)
	}

	if d.Pending && !d.HasWrites() && !remote {
		// The call waits in memory, and so does its caller. The call is not an input of a batch, so
		// it is still there when the store refuses a batch.
		l.expect(e, &in.origin)
		l.finishInput(in)
	} else if b := l.record(e, in, &d); b != nil && a.Held && d.Answer.Failure == nil {
		b.effects = append(b.effects, effect{kind: effBegin, entry: e, message: in})
	} else if isFreed {
		e.pending.freed = b
	} else if remote && len(d.Mailbox) > 0 && e.pending.stored == 0 {
		e.pending.stored = d.Mailbox[0].Seq
	}
	l.operate(now, e)
}

// endFreeing starts calls that waited for the commit of the batch that released the lock.
func (l *Lane) endFreeing(now model.Time, e *entry, b *building) {
	if e.pending.freed == b {
		e.pending.freed = nil
		l.operate(now, e)
	}
}

// beginCall starts a call that waited until its row in the mailbox was stored: a call that runs at
// least once, a brief call of another process, a call that another address of this lane has sent,
// or a call that the lane is wary of (see isWary). If the lane has dropped the entity since, the
// row is found when the entity is read again.
func (l *Lane) beginCall(now model.Time, e *entry, m *model.Message) {
	if a := e.actor; a.entity != nil {
		a.entity.Begin(m)
		l.operate(now, e)
	}
}

// settleEntity gives the lock of an entity to the next section in the line. Usually the message or
// the result that ends the call in front does so. settleEntity is for a call in front that existed
// only in memory and is gone. settleEntity also answers calls that no worker may run.
func (l *Lane) settleEntity(now model.Time, e *entry) {
	if !e.shard.draining && e.actor.entity.NeedsSettle() { // else the next owner settles it
		l.take(now, e, &settleInput{inputBase{address: &e.address}})
	}
}

func (in *settleInput) apply(l *Lane, now model.Time, e *entry) {
	d := e.actor.entity.Settle(now)
	l.record(e, in, &d)
	l.operate(now, e)
}

// operate hands calls to workers, if the calls may run and workers have free slots.
func (l *Lane) operate(now model.Time, e *entry) {
	l.handOutCalls(now, e)
	l.refuseStuck(now, e)
	l.endClaim(e)
	if e.known {
		e.reading.seat.leave() // no call needs the slot
	}
}

func (l *Lane) handOutCalls(now model.Time, e *entry) {
	l.budget.weighMail(e)
	if l.dead != nil || e.shard.draining || e.quarantine.why != nil || e.pending.removing || l.recovery.careful() || l.reunion.awaits(e.address) || l.isEarly(e) || e.isOutlived() {
		return
	}
	if !e.known {
		if l.workers.freed.worker != 0 {
			e.reading.seat = l.workers.freed.move() // for the calls that the lane reads now
		}
		l.loadSoon(e)
		return
	}

	a := e.actor
	if a.entity.MailCount() == 0 {
		l.workers.unstrand(e)
		l.restUntil(now, e)
		return
	}
	l.resting.remove(e)
	if l.keepCalls(e) {
		return
	}

	t := l.entityType(e)
	if t == nil {
		if slices.ContainsFunc(a.entity.Mail(), func(it *core.Item) bool { return it.Message.Kind == model.MessageCall }) {
			l.strand(e, noWorker(e))
		}
		return
	}

	// Views run on the committed state, at the same time as operations.
	for !l.isLanding(e) && a.entity.HasViews(l.viewTest(e)) {
		s, ok := l.seatForCalls(e, &a.durable)
		if !ok {
			return
		}
		l.handOverCalls(now, s, e, a.entity.Views(l.viewTest(e)), &a.durable)
	}

	// Operations of an entity run in order; operations of a service run in parallel. An operation
	// that waited for a lock must not begin before the release of the lock is durable.
	if e.pending.freed != nil {
		return
	}
	most := operationsPerHand
	if e.address.Stateless() {
		most = 1
	}
	for most > 1 || t.Concurrency == 0 || len(a.jobs) < t.Concurrency {
		if !a.entity.HasNext() {
			l.accuse(now, e)
			return
		}
		s, ok := l.seatForCalls(e, &a.entity.Row)
		if !ok {
			return
		}
		l.handOverCalls(now, s, e, a.entity.Next(most, operationBytes), &a.entity.Row)
	}
}

// isLanding reports whether a change of the entity is in flight to the store. Other callers may
// have read the change in the store already, and a later view must not show an older state. So
// views wait until the result of the commit is known.
func (l *Lane) isLanding(e *entry) bool {
	if l.flight == nil {
		return false
	}
	_, ok := l.flight.changed[e]
	return ok
}

// makeViews runs views that waited for a commit.
func (l *Lane) makeViews(now model.Time, e *entry) {
	if e.known && e.actor.entity.WaitsForView() {
		l.operate(now, e)
	}
}

// handOverCalls gives calls to the worker that the slot s belongs to.
//
//arch:parameters who makes which calls on which row
func (l *Lane) handOverCalls(now model.Time, s seat, e *entry, items []*core.Item, on *model.Entity) {
	j := &job{gen: l.workers.nextGen(), worker: s.worker, seat: s, entry: e, items: items, version: on.Version, since: now}
	l.jobs[j.gen] = j
	e.actor.jobs = append(e.actor.jobs, j)
	l.runsAhead(j)
	if e.wait.worker {
		l.workers.unstrand(e) // the entity waited for code that can read an earlier state of it
	}
	state, exists := on.State, on.Exists && !on.Expired(now)
	if !exists {
		state = model.Payload{}
	}
	if t := l.entityType(e); on.Expires != 0 || t != nil && (t.TTL > 0 || t.IdleTTL > 0 || t.Log > 0) {
		hand := core.HandOver{Fresh: on.Exists && !exists}
		if t != nil {
			hand.Life, hand.Log, hand.LogInputs = core.Life{TTL: t.TTL, Idle: t.IdleTTL}, t.Log, t.LogInputs
		}
		core.Attach(items, hand)
	}

	calls := make([]model.OperationCall, len(items))
	for i, it := range items {
		calls[i] = model.OperationCall{Name: it.Message.Name, Input: it.Message.Input, Trace: it.Message.Trace, Number: l.callNumber(it)}
	}
	l.out.Operate = append(l.out.Operate, OperateCall{s.worker, model.Operations{
		Entity: e.address, Generation: j.gen, State: state, Exists: exists, Calls: calls, Now: now,
	}})
}

// forgetEntity drops the state of an entity. The lane reads it again, and keeps calls that exist
// only in memory.
func (l *Lane) forgetEntity(e *entry) {
	a := e.actor
	for _, j := range slices.Clone(a.jobs) {
		l.forgetJob(j)
	}
	l.dropResults(e, nil) // the calls of these results ran on the forgotten state

	if a.entity == nil {
		return
	}

	var lost []*core.Item
	for _, it := range a.entity.Mail() {
		switch {
		case it.Seq != 0: // the lane reads the call again
		case it.HasBegun() && it.Once():
			lost = append(lost, it)
		default:
			a.kept = append(a.kept, it)
		}
	}

	a.entity = nil
	l.refuseInterrupted(e, lost)
	l.budget.weighMail(e)
}

// abandon gives up calls of an entity that exist only in memory. Their callers get an error. If a
// call has not started, its caller can ask another owner.
func (l *Lane) abandon(e *entry, why error) {
	a := e.actor
	for _, j := range slices.Clone(a.jobs) {
		l.forgetJob(j)
		for _, it := range j.items {
			l.refuseCall(it, e.address, why, true)
		}
	}
	l.dropResults(e, why)

	kept, entity := a.kept, a.entity
	// Clear these fields first, because informing a caller removes its call from the mailbox.
	a.kept, a.entity = nil, nil
	for _, it := range kept {
		l.refuseCall(it, e.address, why, it.HasBegun())
	}
	if entity != nil {
		for _, it := range entity.Mail() {
			if !it.HasBegun() { // otherwise its job was refused above
				l.refuseCall(it, e.address, why, false)
			}
		}
	}

	e.known = false
	e.version++
	l.budget.weighMail(e)
}

// refuseCall tells the caller of a call that exists only in memory why the call does not run. If
// the call has begun and runs at most once, the caller gets ErrInterrupted instead.
func (l *Lane) refuseCall(it *core.Item, to model.Address, why error, begun bool) {
	if it.Seq != 0 {
		return
	}
	if begun && it.Once() {
		why = ErrInterrupted
	}
	if id := it.Message.RequestID; id != "" {
		l.waiters.reply(&l.out, to, id, Answer{Err: why})
	} else {
		l.reply(to, true, Answer{Token: it.Tag, Err: why})
	}
}

// refuseInterrupted tells the callers of at-most-once calls that the calls may or may not have run.
func (l *Lane) refuseInterrupted(e *entry, lost []*core.Item) {
	for _, it := range lost {
		l.refuseCall(it, e.address, ErrInterrupted, true)
	}
}

// returnJobs gives the calls of a worker that is gone to other workers. If the worker outlives this
// owner, the calls of the entity wait for the next owner, because the worker may still run them. If
// the worker has disappeared, the lane counts that for each call that it had (see loss.go).
func (l *Lane) returnJobs(now model.Time, id WorkerID, died *death) {
	for _, gen := range slices.Sorted(maps.Keys(l.forgotten)) {
		l.finishForgotten(gen, id)
	}

	for _, e := range l.sortedEntries(func(e *entry) bool { return e.isEntity() && len(e.actor.jobs) > 0 }) {
		var losses []core.Loss
		for _, j := range slices.Clone(e.actor.jobs) {
			if j.worker != id {
				continue
			}
			l.removeJob(j)
			e.callsOutlived = e.callsOutlived || l.outlive() && !j.isView()
			if !died.mayBeOf(j) {
				l.refuseInterrupted(e, e.actor.entity.Return(j.items))
				continue
			}
			gone, lost := e.actor.entity.Lose(j.items)
			l.refuseInterrupted(e, gone)
			losses = append(losses, lost...)
		}
		l.countLosses(now, e, losses)
		l.settleEntity(now, e)
		l.operate(now, e)
		l.maybeDrop(e)
	}
}

// explainEntity returns what the callers of an entity wait for.
func (l *Lane) explainEntity(e *entry) ([]model.Reason, bool) {
	a := e.actor
	if a.entity == nil || a.entity.MailCount() == 0 {
		return nil, false
	}
	if e.wait.worker || e.wait.slot {
		return e.wait.reasons, true
	}
	row := &a.entity.Row
	out := slices.ContainsFunc(a.entity.Mail(), func(it *core.Item) bool { return core.LockedOut(row, it.Message) })
	r := core.EntityReason(row, out)
	if i := slices.IndexFunc(a.jobs, func(j *job) bool { return !j.isView() }); i >= 0 && r.Code == model.WaitMailbox {
		r.Detail += ", " + a.jobs[i].items[0].Message.Name + " since " + a.jobs[i].since.String()
	}
	return []model.Reason{r}, true
}
