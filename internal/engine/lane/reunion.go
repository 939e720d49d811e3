package lane

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// reunion is the time after a server has taken over shards, in which the workers of the last owner
// come back. A worker outlives its server, and may still run steps of runs and calls of entities
// that it held. Another worker would run these steps and calls a second time. So the lane reserves
// these runs and entities for the worker that held them. Identifiers use the word keep for this:
// the lane keeps a run for its holder. A worker says with its offer what it holds. When the time is
// over, any worker gets the runs and entities that no worker has asked for.
//
// The reunion does not end before the lane has read which runs and entities the last owner left.
// Until then the lane must remember what the workers have said.
//
// Shards that were handed over (store.AcquiredShard.Handed) have a shorter reunion: it ends when
// all live nodes have said what their workers hold. For other shards, the reunion ends early when
// each remote worker that the last owners have named has come back or has left (FinishReunion).
type reunion struct {
	ReunionTime
	asking model.Time // until when the lane waits for the other nodes; zero when it does not
	// waiting has the runs and entities that the last owner left and that no worker has asked for
	// yet. For an entity, the run is zero.
	waiting map[model.Address]model.RunID
	// holders has the workers that hold a run or an entity which the lane has not handed over
	// since. Some of these entries stay after the reunion, until the worker leaves: see endReunion.
	holders map[holdable]holder
	// returned has the runs that the lane has handed over to a worker because the worker held them,
	// with the time at which the last owner had given them to this worker.
	returned map[holdable]model.Time
	// early has the addresses whose runs and entities the lane hands over later, because it has not
	// read yet whether the last owner left them.
	early map[model.Address]bool
	// ours has the open runs that have left memory, and that this lane itself had started or handed
	// over. No worker of the last owner holds them.
	ours map[holdable]bool
}

// holdable is a run or, with a zero run, an entity.
type holdable struct {
	address model.Address
	run     model.RunID
}

// holder is a worker that says that it holds a run or an entity. given says when the last owner had
// handed it over to the worker.
//
// Several workers may say that they hold the same run: an owner gives a run to another worker if
// the first one has been silent for too long, and the first one does not know that. The worker with
// the latest hand-over may be running the next steps, so only this worker may continue the run. The
// order of the hand-overs is that of their times. Owners follow the clock of the store, and between
// two hand-overs of a run to different workers an owner has waited for the end of a session or of a
// lease, which takes much longer than the clocks of two owners differ. Only a jump of the store's
// clock can reverse the order, and then the wrong worker gets the run. The generations do not show
// the order: an owner counts them from the epoch of its registration, and a shard may move to an
// owner that registered earlier.
type holder struct {
	id    WorkerID
	given model.Time
}

// maxOurs bounds the size of reunion.ours. If there are more such runs, the lane reserves the rest
// of them needlessly until the reunion ends.
const maxOurs = 100_000

func newReunion() reunion {
	return reunion{
		waiting: map[model.Address]model.RunID{}, holders: map[holdable]holder{}, early: map[model.Address]bool{},
		returned: map[holdable]model.Time{}, ours: map[holdable]bool{},
	}
}

// lasts reports whether the lane still waits for the workers of the last owner.
func (r *reunion) lasts() bool { return r.until != 0 }

// reunionWake returns when the reunion ends. It returns zero if nothing waits for that time.
func (l *Lane) reunionWake() model.Time {
	r := &l.reunion
	wake := r.until
	if r.asking != 0 && (wake == 0 || r.asking < wake) {
		wake = r.asking
	}
	if len(r.waiting)+len(r.holders)+len(r.early) == 0 || wake <= l.now && !l.hasReadForeign() {
		return 0
	}
	return wake
}

// keeps reports whether the lane reserves the runs and entities of a shard for the workers that
// held them under the last owner.
func (l *Lane) keeps(sh *shard) bool {
	if sh.handed {
		return l.reunion.asking != 0
	}
	return l.reunion.lasts()
}

// isKept reports the same as keeps, for the shard of an address.
func (l *Lane) isKept(a model.Address) bool {
	sh := l.shards[l.cfg.Layout.Shard(a)]
	return sh != nil && l.keeps(sh)
}

// hasReadForeign reports whether the lane has read all lists of runs and entities that the last
// owners of its shards left.
func (l *Lane) hasReadForeign() bool {
	for _, sh := range l.shards {
		if sh.foreign && !sh.draining && !(sh.listed && sh.mailListed) {
			return false
		}
	}
	return true
}

// awaits reports whether the lane reserves an address for the worker that holds its run or entity.
func (r *reunion) awaits(a model.Address) bool {
	_, ok := r.waiting[a]
	return ok
}

// leave forgets what a worker said that it holds.
func (r *reunion) leave(id WorkerID) {
	maps.DeleteFunc(r.holders, func(_ holdable, h holder) bool { return h.id == id })
}

// dropShard forgets the addresses of a shard that has another owner now.
func (r *reunion) dropShard(s model.ShardID, layout model.Layout) {
	elsewhere := func(a model.Address) bool { return layout.Shard(a) == s }
	maps.DeleteFunc(r.waiting, func(a model.Address, _ model.RunID) bool { return elsewhere(a) })
	maps.DeleteFunc(r.early, func(a model.Address, _ bool) bool { return elsewhere(a) })
	maps.DeleteFunc(r.returned, func(h holdable, _ model.Time) bool { return elsewhere(h.address) })
	maps.DeleteFunc(r.ours, func(h holdable, _ bool) bool { return elsewhere(h.address) })
}

// forgetHolders forgets what workers said about a shard before the lane acquired it. The shard had
// another owner since, which may have given the runs and entities to other workers.
func (r *reunion) forgetHolders(s model.ShardID, layout model.Layout) {
	maps.DeleteFunc(r.holders, func(h holdable, _ holder) bool { return layout.Shard(h.address) == s })
}

// isOurs reports whether this lane has started a run or handed it over since the lane acquired the
// shard. If so, no worker of the last owner holds the run.
func (l *Lane) isOurs(e *entry, run model.RunID) bool {
	return e.ours == run && !run.IsZero() || l.reunion.ours[holdable{e.address, run}]
}

// rememberOurs notes that the run of an entry that leaves memory is ours.
func (l *Lane) rememberOurs(e *entry) {
	if l.keeps(e.shard) && e.x != nil && e.x.Open() && e.ours == e.run() && len(l.reunion.ours) < maxOurs {
		l.reunion.ours[holdable{e.address, e.ours}] = true
	}
}

// keepForHolder reserves a run or an entity, which the last owner left, for the worker that held
// it. It returns false if the lane may hand over the run or the entity now, for example because
// that worker is here or the reunion is over.
func (l *Lane) keepForHolder(e *entry, run model.RunID) bool {
	r := &l.reunion
	e.listed = true
	if !l.keeps(e.shard) || !l.hasHolder(e) || l.isOurs(e, run) {
		return false
	}
	if _, here := r.holders[holdable{e.address, run}]; here {
		e.claimed = true
		return false
	}
	delete(r.early, e.address) // endWait hands over the run or entity of the address
	r.waiting[e.address] = run
	return true
}

// keepCalls reserves an entity that has calls, until the live nodes have said what their workers
// hold. If a worker holds the entity, this worker gets its next calls, even if they come later.
//
// The list of mailboxes does not show that a worker may hold the entity, because a call for which a
// client waits is only in memory. The last owner has refused such a call when it gave up the shard.
// So the client sends it to this lane while the worker still runs it. A client does not repeat a
// call of a service that is only in memory.
func (l *Lane) keepCalls(e *entry) bool {
	if !e.shard.foreign || e.claimed || e.address.Stateless() {
		return false
	}
	if _, here := l.reunion.holders[holdable{address: e.address}]; here {
		e.claimed = true
		return false
	}
	return l.isAsking(e.shard) && l.keepForHolder(e, model.RunID{})
}

// isAsking reports whether the lane waits for what the live nodes say about a shard. A lane that
// waits for remote workers of a dead server waits much longer, and new calls do not wait with it.
func (l *Lane) isAsking(sh *shard) bool {
	return sh.foreign && !sh.answered && (sh.handed || l.cfg.Reunion == 0) && l.keeps(sh)
}

// hasHolder reports whether a remote worker may hold the run or entity of an address. No remote
// worker holds built-in workflows, which the server itself runs, or tasks, for which the board
// finds workers.
func (l *Lane) hasHolder(e *entry) bool {
	return e.shard.foreign && !e.isTask() && !model.IsBuiltIn(e.address.Type)
}

// isEarly reports whether it is too early to hand over the run or the entity of an address, because
// the lane has not read the lists of runs and entities that the last owner left. Before that, the
// lane does not know whether a worker holds the run or the entity.
func (l *Lane) isEarly(e *entry) bool {
	read := e.shard.listed
	if e.isEntity() {
		read = e.shard.mailListed
	}
	if read || e.listed || !l.keeps(e.shard) || !l.hasHolder(e) {
		return false
	}
	l.reunion.early[e.address] = true
	return true
}

// endEarly hands over the runs and entities in early, for shards whose lists the lane has read now.
func (l *Lane) endEarly(now model.Time) {
	var due []model.Address
	for a := range l.reunion.early {
		if sh := l.shards[l.cfg.Layout.Shard(a)]; sh != nil && (a.IsEntity() && sh.mailListed || !a.IsEntity() && sh.listed) {
			due = append(due, a)
		}
	}
	l.giveOut(now, due)
}

// giveOut hands over the runs and entities of these addresses.
func (l *Lane) giveOut(now model.Time, due []model.Address) {
	slices.SortFunc(due, compareAddresses)
	for _, a := range due {
		l.endWait(now, a)
	}
}

// keepPaused reserves a paused run for its holder. Such a run is not in the list of runnable runs.
func (l *Lane) keepPaused(e *entry, row *store.Execution) {
	if row != nil && !row.Outcome.Status.Closed() && e.isPausedElsewhere(row) {
		l.keepForHolder(e, row.Start.Run)
	}
}

// isPausedElsewhere reports whether the last owner may have paused a run while a worker ran a step
// of it. The worker continues the step. Other parked runs need not wait for a holder, because no
// worker runs a step of them.
func (e *entry) isPausedElsewhere(row *store.Execution) bool {
	return row.Parked && e.hold.free() && e.known && e.x != nil && e.x.Paused != nil
}

// retrySkew is how much earlier the last owner may have ended a back-off, because its clock was
// ahead of ours.
const retrySkew = time.Second

// mayRetryElsewhere reports whether the worker that held a parked run may be running a step of it.
// The store does not show that, because the last owner stores nothing when a back-off ends and the
// next attempt begins.
func (l *Lane) mayRetryElsewhere(now model.Time, e *entry) bool {
	return slices.ContainsFunc(e.x.Timers(), func(t core.Timer) bool {
		_, retry := core.RetryOf(t.ID)
		return retry && t.Due <= now.Add(retrySkew)
	})
}

// meet notes what a worker that has joined holds, and gives it the runs and entities that were
// reserved for it.
func (l *Lane) meet(now model.Time, id WorkerID, held []model.HeldRun) {
	if l.cfg.Reunion > 0 {
		l.reunion.Extend(now, l.cfg.Reunion)
	}
	for _, h := range held {
		owned := l.shards[l.cfg.Layout.Shard(h.Address)] != nil
		if owned && !l.isKept(h.Address) {
			continue // another worker may have the run by now
		}
		what, claim := holdable{h.Address, h.Run}, holder{id, h.Given}
		if e := l.runs[h.Run]; e != nil {
			l.replace(now, e, what, claim)
			continue
		}
		if l.reunion.holders[what].given > h.Given {
			continue
		}
		l.reunion.holders[what] = claim
		if run, waits := l.reunion.waiting[h.Address]; waits && run == h.Run {
			if e := l.entry(h.Address); e != nil {
				e.claimed = true
			}
			l.endWait(now, h.Address)
		}
	}
}

// replace takes a run away from its worker and gives it to another worker that says that it holds
// the run. It does so only if the last owner has given the run to the other worker later. If the
// lane has given out the run itself, no hand-over of the last owner is later.
func (l *Lane) replace(now model.Time, e *entry, what holdable, by holder) {
	given, returned := l.reunion.returned[what]
	if !returned || by.given <= given || by.id == e.hold.worker || e.x == nil || !e.x.Open() || !l.workers.canServe(by.id, e.kind(), e.x.Pin) {
		return
	}
	l.reunion.holders[what] = by
	e.claimed = true
	l.takeBack(now, e, "another worker got the run later")
}

// noteReturn notes that a worker gets a run, and whether it gets the run because it held it.
func (l *Lane) noteReturn(e *entry, to WorkerID) {
	r, what := &l.reunion, holdable{e.address, e.run()}
	h, held := r.holders[what]
	delete(r.holders, what)
	delete(r.returned, what)
	if held && h.id == to && l.keeps(e.shard) {
		r.returned[what] = h.given
	}
}

// endWait hands over the run or entity of an address that the lane had reserved.
func (l *Lane) endWait(now model.Time, a model.Address) {
	delete(l.reunion.waiting, a)
	delete(l.reunion.early, a)
	if e := l.entry(a); e != nil {
		if e.isEntity() && e.known {
			e.actor.entity.Mark(l.viewTest(e)) // workers may have joined since
		}
		l.dispatch(now, e)
		l.maybeDrop(e)
	}
}

// JoinAway does the same as Join, for a worker of another node. Such a worker gets a run only if no
// worker of this node can take the run.
func (l *Lane) JoinAway(now model.Time, id WorkerID, o model.Offer, s Capacity) {
	l.workers.away[id] = true
	l.Join(now, id, o, s)
}

// JoinEntitiesAway does the same as JoinEntities, for a worker of another node.
func (l *Lane) JoinEntitiesAway(now model.Time, id WorkerID, o model.EntityOffer, s Capacity) {
	l.workers.away[id] = true
	l.JoinEntities(now, id, o, s)
}

// Meet tells the lane which runs and entities of former owners a worker holds. The worker has
// joined before.
func (l *Lane) Meet(now model.Time, id WorkerID, held []model.HeldRun) {
	if l.dead == nil && l.workers.here[id] {
		l.meet(now, id, held)
	}
}

// EndReunion tells the lane that all nodes have said what their workers hold. If the last owner
// handed over a shard, any worker may now get its runs and entities. For other shards, a server
// still waits for remote workers that may be on their way.
func (l *Lane) EndReunion(now model.Time) {
	if l.cfg.Reunion == 0 && l.reunion.until > now {
		l.reunion.until = now
	}
	if l.reunion.asking > now {
		l.reunion.asking = now
	}
}

// FinishReunion tells the lane that each worker that may hold something of the last owners,
// including remote workers, has said what it holds. As soon as the lane has read the lists of runs
// and entities, any worker may get the runs and entities that no worker has claimed.
func (l *Lane) FinishReunion(now model.Time) {
	if l.reunion.until > now {
		l.reunion.until = now
	}
	l.EndReunion(now)
}

// endReunion hands over all runs and entities whose worker has not come back in time.
func (l *Lane) endReunion(now model.Time) {
	r := &l.reunion
	asked := r.asking != 0 && now >= r.asking
	over := r.until != 0 && now >= r.until
	if !asked && !over || !l.hasReadForeign() {
		return
	}
	if asked {
		r.asking = 0
	}
	if over {
		r.ReunionTime = ReunionTime{}
	}
	for _, sh := range l.shards {
		sh.answered = sh.answered || !l.keeps(sh)
	}

	late := slices.AppendSeq(slices.Collect(maps.Keys(r.waiting)), maps.Keys(r.early))
	l.giveOut(now, slices.DeleteFunc(late, l.isKept))
	if r.lasts() || r.asking != 0 {
		return
	}
	clear(r.returned)
	clear(r.ours)
	// Holders stay. A worker that has come back may still run a step of a paused run when an
	// operator resumes the run, and a call of an entity when its client sends the call again.
	maps.DeleteFunc(r.holders, func(h holdable, _ holder) bool { return l.shards[l.cfg.Layout.Shard(h.address)] == nil })
}

// seatForHolder returns the slot for a run that has been read. If the worker that held the run
// under the last owner is here, seatForHolder takes a slot of that worker. Otherwise it uses the
// slot that was taken for the read. Without a slot the run waits. The lane forgets the holder when
// it hands over the run, which may be later. After the reunion, seatForHolder still prefers the
// holder in four cases: the holder has come back in time, the shard was handed over, the run was
// paused, or the holder may run an attempt of a step that began after a back-off, which the store
// does not show. In no other case can a run that is handed over after the reunion still have a
// holder.
func (l *Lane) seatForHolder(e *entry, s seat, events []model.Event) (seat, bool) {
	h, held := l.reunion.holders[holdable{e.address, e.run()}]
	held = held && (l.keeps(e.shard) || e.claimed || e.shard.handed || hasKind(events, model.EventPaused) || l.mayRetryElsewhere(l.now, e))
	switch {
	case held && l.workers.canServe(h.id, e.kind(), e.x.Pin) && !l.workers.isRefused(h.id, e, e.x.Pin):
		s.leave()
		return l.workers.keepSeat(h.id), true
	case l.workers.canServe(s.worker, e.kind(), e.x.Pin) && !l.workers.isRefused(s.worker, e, e.x.Pin):
		return s, true
	}
	s.leave() // the worker has left, or does not have the version that the run is pinned to
	return l.seatFor(e, e.x.Pin)
}

// callNumber identifies a call for a worker that gets it again from the next server. A call that is
// not in the mailbox yet has no stored position, and its sender sends it again. So the number is
// made from the id that the sender gave the call, if there is one.
func (l *Lane) callNumber(it *core.Item) int64 {
	m := it.Message
	if l.cfg.Reunion == 0 || m.From.ID == "" && m.RequestID == "" {
		return it.Seq
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s", m.From.Address.Path(), m.From.Run, m.From.ID, m.RequestID))
	return int64(binary.BigEndian.Uint64(sum[:8])>>1) | 1
}

// seatForCalls takes a slot for calls of an entity, as seatForHolder does for a run. An entity may
// have several hand-overs. So the lane remembers its holder until the first hand-over after the
// reunion: see endClaim.
func (l *Lane) seatForCalls(e *entry, on *model.Entity) (seat, bool) {
	pin := statePin(on)
	if h, held := l.reunion.holders[holdable{address: e.address}]; held && (l.keeps(e.shard) || e.claimed) && l.workers.canServe(h.id, e.kind(), pin) {
		return l.workers.keepSeat(h.id), true
	}
	if s := e.reading.seat.move(); l.workers.canServe(s.worker, e.kind(), pin) {
		return s, true
	} else {
		s.leave()
	}
	return l.seatFor(e, pin)
}

// endClaim forgets which worker holds an entity, after the first hand-over of its calls that
// follows the reunion. Views do not count, because operations do not wait for them.
func (l *Lane) endClaim(e *entry) {
	if e.claimed && e.actor != nil && !l.keeps(e.shard) && slices.ContainsFunc(e.actor.jobs, func(j *job) bool { return !j.isView() }) {
		e.claimed = false
		delete(l.reunion.holders, holdable{address: e.address})
	}
}
