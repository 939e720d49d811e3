package lane

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// reunion is the time after a server has taken over shards, in which the workers of the last owner
// come back. A worker outlives the server, and may still run steps of the runs and calls of the
// entities that it held. So the lane keeps these for it: another worker would run them a second
// time. A worker says with its offer what it holds. When the time is over, any worker gets the
// rest.
//
// The reunion does not end before the lane has read what the last owner left: until then it must
// remember who holds it.
type reunion struct {
	ReunionTime
	// What the last owner left and no worker has asked for yet. Entities have no run.
	waiting map[model.Address]model.RunID
	// Workers that hold what the lane has not given out since.
	holders map[model.HeldRun]WorkerID
	// What is to be given out, and the lane has not read yet whether the last owner left it.
	early map[model.Address]bool
}

func newReunion() reunion {
	return reunion{waiting: map[model.Address]model.RunID{}, holders: map[model.HeldRun]WorkerID{}, early: map[model.Address]bool{}}
}

// lasts reports whether what the last owner left is kept for its workers.
func (r *reunion) lasts() bool { return r.until != 0 }

// reunionWake returns when the reunion ends; zero when nothing depends on the time.
func (l *Lane) reunionWake() model.Time {
	r := &l.reunion
	if len(r.waiting)+len(r.holders)+len(r.early) == 0 || r.until <= l.now && !l.hasReadForeign() {
		return 0
	}
	return r.until
}

// hasReadForeign reports whether the lane has read what the last owners of its shards left.
func (l *Lane) hasReadForeign() bool {
	for _, sh := range l.shards {
		if sh.foreign && !sh.draining && !(sh.listed && sh.mailListed) {
			return false
		}
	}
	return true
}

// awaits reports whether an address is kept for the worker that holds it.
func (r *reunion) awaits(a model.Address) bool {
	_, ok := r.waiting[a]
	return ok
}

// leave forgets what a worker said that it holds.
func (r *reunion) leave(id WorkerID) {
	for h, w := range r.holders {
		if w == id {
			delete(r.holders, h)
		}
	}
}

// dropShard forgets what belongs to another owner now.
func (r *reunion) dropShard(s model.ShardID, shards int) {
	elsewhere := func(a model.Address) bool { return a.Shard(shards) == s }
	maps.DeleteFunc(r.waiting, func(a model.Address, _ model.RunID) bool { return elsewhere(a) })
	maps.DeleteFunc(r.early, func(a model.Address, _ bool) bool { return elsewhere(a) })
}

// keepForHolder keeps what the last owner left at an address for the worker that held it. It
// returns false when any worker may have it: its holder is here, or the reunion is over.
func (l *Lane) keepForHolder(e *entry, run model.RunID) bool {
	r := &l.reunion
	e.listed = true
	delete(r.early, e.address)
	if !r.lasts() || !l.hasHolder(e) {
		return false
	}
	if _, here := r.holders[model.HeldRun{Address: e.address, Run: run}]; here {
		return false
	}
	r.waiting[e.address] = run
	return true
}

// hasHolder reports whether a remote worker may hold what is at an address. The server itself runs
// the built-in workflows, and the board finds workers for tasks.
func (l *Lane) hasHolder(e *entry) bool {
	return e.shard.foreign && !e.isTask() && !model.IsBuiltIn(e.address.Type)
}

// isEarly reports whether the lane must first read what the last owner left: a worker may hold the
// run or the entity to which there is news. The news waits until then.
func (l *Lane) isEarly(e *entry) bool {
	read := e.shard.listed
	if e.isEntity() {
		read = e.shard.mailListed
	}
	if read || e.listed || !l.reunion.lasts() || !l.hasHolder(e) {
		return false
	}
	l.reunion.early[e.address] = true
	return true
}

// endEarly gives out what waited until the lane had read what the last owner of some shards left.
func (l *Lane) endEarly(now model.Time) {
	var due []model.Address
	for a := range l.reunion.early {
		if sh := l.shards[a.Shard(l.cfg.Shards)]; sh != nil && (a.IsEntity() && sh.mailListed || !a.IsEntity() && sh.listed) {
			due = append(due, a)
		}
	}
	l.giveOut(now, due)
}

// giveOut gives out what was kept.
func (l *Lane) giveOut(now model.Time, due []model.Address) {
	slices.SortFunc(due, compareAddresses)
	for _, a := range due {
		l.endWait(now, a)
	}
}

// keepUnlisted keeps a run for its holder that the lane has found before it has listed what the
// last owner left, because of an input for the run. A parked run needs no holder: no body of it
// runs.
func (l *Lane) keepUnlisted(e *entry, row *store.Execution) {
	if !e.shard.listed && row != nil && !row.Parked && !row.Outcome.Status.Closed() {
		l.keepForHolder(e, row.Start.Run)
	}
	if l.reunion.awaits(e.address) {
		e.reading.endHistory()
	}
}

// meet notes what a worker that has joined holds, and gives it what waited for it.
func (l *Lane) meet(now model.Time, id WorkerID, held []model.HeldRun) {
	l.reunion.Joined(now, l.cfg.Reunion)
	for _, h := range held {
		owned := l.shards[h.Address.Shard(l.cfg.Shards)] != nil
		if l.runs[h.Run] != nil || owned && !l.reunion.lasts() {
			continue // another worker has it by now, or may have it
		}
		l.reunion.holders[h] = id
		if run, waits := l.reunion.waiting[h.Address]; waits && run == h.Run {
			l.endWait(now, h.Address)
		}
	}
}

// endWait gives out what waited for its worker.
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

// endReunion gives out what no worker has come back for in time.
func (l *Lane) endReunion(now model.Time) {
	r := &l.reunion
	if r.until == 0 || now < r.until || !l.hasReadForeign() {
		return
	}
	r.ReunionTime = ReunionTime{}
	late := slices.AppendSeq(slices.Collect(maps.Keys(r.waiting)), maps.Keys(r.early))
	l.giveOut(now, late)
	clear(r.holders)
}

// pickFor chooses a worker for a run: the one that holds it from before, if that is here. The lane
// forgets the holder when the run is given out, which may be later.
func (l *Lane) pickFor(e *entry) WorkerID {
	id, held := l.reunion.holders[model.HeldRun{Address: e.address, Run: e.run()}]
	if held && l.workers.canServe(id, e.kind(), e.x.Pin) {
		return id
	}
	return l.workers.pick(e.kind(), e.x.Pin)
}

// callNumber identifies a call for a worker that gets it again from the next server. A call that is
// not in the mailbox yet comes again from its sender, so its own identity counts, if it has one.
func (l *Lane) callNumber(it *core.Item) int64 {
	m := it.Message
	if l.cfg.Reunion == 0 || m.From.ID == "" && m.RequestID == "" {
		return it.Seq
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s\x00%s", m.From.Address.Path(), m.From.Run, m.From.ID, m.RequestID))
	return int64(binary.BigEndian.Uint64(sum[:8])>>1) | 1
}

// pickForCalls chooses a worker for calls of an entity in the same way. An entity may have several
// hand-overs, so its holder stays until the end of the reunion.
func (l *Lane) pickForCalls(e *entry) WorkerID {
	k := kind{e.address.Tenant, e.address.Type}
	if id, held := l.reunion.holders[model.HeldRun{Address: e.address}]; held && l.reunion.until != 0 && l.workers.canServe(id, k, "") {
		return id
	}
	return l.workers.pick(k, "")
}
