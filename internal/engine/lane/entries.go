package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// entry finds or creates the entry of an address. It returns nil if this lane does not own the
// shard.
func (l *Lane) entry(a model.Address) *entry {
	if e, ok := l.entries[a]; ok {
		return e
	}
	sh, ok := l.shards[l.cfg.Layout.Shard(a)]
	if !ok {
		return nil
	}
	e := &entry{address: a, shard: sh}
	if a.IsEntity() {
		e.actor = &actor{}
	}
	l.entries[a] = e
	sh.entries[e] = struct{}{}
	return e
}

// setRun makes x the current run of the entry.
func (l *Lane) setRun(e *entry, x *core.Execution) {
	e.x, e.known, e.reading.bare, e.wait.paused = x, true, false, nil
	e.tasks.forget()
}

// forget drops the state of the run, which the lane reads again. Batches in flight are not
// affected.
func (l *Lane) forget(e *entry) {
	e.x, e.known = nil, false
	e.pending.forget()
	e.tasks.forget()
	e.wait.overlooked = false
	e.version++
	if e.isEntity() {
		l.forgetEntity(e)
	}
}

// maybeDrop drops an idle entry. During the recovery of a refused batch it drops nothing, because
// the lane may be about to apply an input to the entry again.
func (l *Lane) maybeDrop(e *entry) {
	if l.recovery.careful() || e.dirty() || !e.hold.free() || e.reading.history || e.reading.active || len(e.backlog.inputs) > 0 || e.backlog.queued || e.quarantine.why != nil ||
		e.pending.resuming > 0 || // a worker gets the run after that commit
		e.tasks.posted.len() > 0 || e.hasRecall() ||
		e.isOutlived() && !e.shard.draining {
		return
	}
	if e.wait.worker || e.wait.room || e.wait.slot {
		l.slim(e)
		return
	}
	if e.isEntity() && e.actor.mustStay() {
		return
	}
	l.askAgain(e) // no worker would answer these questions
	l.drop(e)
}

// drop lets an entry leave memory. The board forgets its tasks.
func (l *Lane) drop(e *entry) {
	if !e.gone {
		l.rememberOurs(e)
		delete(l.entries, e.address)
		e.gone = true
	}
	delete(e.shard.entries, e)
	if e.isEntity() {
		l.resting.remove(e)
		l.budget.weighMail(e)
	}
	if e.tasks.posted.len() > 0 {
		l.unpost(l.now, e)
	}
}

// sortedEntries lists entries in a deterministic order.
func (l *Lane) sortedEntries(want func(*entry) bool) []*entry {
	var found []*entry
	for _, e := range l.entries {
		if want(e) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, compareEntries)
	return found
}

// HasShard reports whether the lane serves the shard.
func (l *Lane) HasShard(s model.ShardID) bool {
	sh, ok := l.shards[s]
	return ok && !sh.draining
}

// isWaitingFor reports whether the shard is being given up and waits for claims to end. Until these
// claims end, the lane still takes data that they write.
func (l *Lane) isWaitingFor(s model.ShardID) bool {
	sh, ok := l.shards[s]
	return ok && sh.draining && !sh.freeing
}

// shardIDs lists shards in order.
func (l *Lane) shardIDs(want func(*shard) bool) []model.ShardID {
	var ids []model.ShardID
	for id, s := range l.shards {
		if want(s) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// servedShards lists the shards that the lane serves.
func (l *Lane) servedShards() []model.ShardID {
	return l.shardIDs(func(s *shard) bool { return !s.draining })
}
