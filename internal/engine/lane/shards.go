package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	runnablePage    = 1000
	maxFreeRefusals = 10 // with the pauses between the attempts, about three seconds
)

// Acquire tells the lane which shards it owns from now on. The lane starts to serve their runs. If
// another process owned some of the shards last, the caller then calls Meet for each worker that
// holds something in them.
func (l *Lane) Acquire(now model.Time, shards []store.AcquiredShard) {
	if l.dead != nil || len(shards) == 0 {
		return
	}
	l.tenure++
	l.eras.end()
	ids := make([]model.ShardID, 0, len(shards))
	for _, s := range shards {
		sh := &shard{
			id: s.Shard, tenure: l.tenure, since: now, received: s.Received, sent: s.Sent, crashed: s.Crashed, foreign: s.Foreign, handed: s.Handed, entries: map[*entry]struct{}{},
			underway: map[model.ShardID]int{},
			tokens:   tokens{last: s.Tokens, reserved: s.Tokens},
		}
		if sh.received == nil {
			sh.received = map[model.ShardID]int64{}
		}
		if sh.sent == nil {
			sh.sent = map[model.ShardID]int64{}
		}
		l.shards[s.Shard] = sh
		ids = append(ids, s.Shard)
		if s.Foreign {
			l.reunion.forgetHolders(s.Shard, l.cfg.Layout)
		}
	}

	if d := max(l.cfg.Reunion, l.cfg.AskFor); d > 0 && slices.ContainsFunc(shards, func(s store.AcquiredShard) bool { return s.Foreign && !s.Handed }) {
		l.reunion.Begin(now, d)
	}
	if d := l.cfg.AskFor; d > 0 && slices.ContainsFunc(shards, func(s store.AcquiredShard) bool { return s.Foreign && s.Handed }) {
		l.reunion.asking = max(l.reunion.asking, now.Add(d))
	}
	slices.Sort(ids)
	l.loads.add(&Load{Kind: LoadRunnable, Shards: ids, Limit: runnablePage, begun: l.tenure})
	l.loads.add(&Load{Kind: LoadMailboxes, Shards: ids, Limit: mailboxPage, begun: l.tenure})
	l.timers.reset()
	l.MailWaits()
}

// GiveUp starts to hand over shards. The shards take no new work, their runs stop between two
// steps, and the last commit frees them.
func (l *Lane) GiveUp(now model.Time, shards []model.ShardID) {
	if l.dead != nil {
		return
	}
	for _, id := range shards {
		sh := l.shards[id]
		if sh == nil || sh.draining {
			continue
		}
		sh.draining, sh.until = true, now.Add(l.cfg.DrainWait)
		l.draining++
		l.failWaiters(id)
		l.timers.dropShard(id)
		l.mail.clearShard(id)

		for _, e := range sh.sortedEntries() {
			l.refuseBacklog(e)
			if e.isEntity() {
				l.abandon(e, ErrNotOwner)
			}
			l.refuseReports(e)
			l.askAgain(e)
			l.postTasks(now, e, queue.Neither) // no worker may start a task now
			if !e.hold.busy {
				l.letGoNow(e, "the shard moves")
			}
		}
	}
}

// refuseBacklog refuses the waiting inputs of an address whose shard the lane gives up. It does not
// refuse turns and reports, because they are facts. It does not refuse data that claims write,
// because the reports of these claims follow, and after a report the data could no longer be
// written. It also does not refuse the loss of a worker. Until the lane records the loss, the claim
// takes permits here, and the next owner would first have to find out that the worker is lost.
func (l *Lane) refuseBacklog(e *entry) {
	kept := e.backlog.inputs[:0]
	for _, in := range e.backlog.inputs {
		if isFact(in) {
			kept = append(kept, in)
			continue
		}
		in.refuse(l, ErrNotOwner)
		l.budget.unhold(in)
		l.retention.finish(in)
		if from := in.source(); from != nil {
			l.mail.untake(from.inbox)
		}
	}
	clear(e.backlog.inputs[len(kept):])
	e.backlog.inputs = kept
}

// isFact reports whether an input is a fact that only this lane can record.
func isFact(in input) bool {
	switch in := in.(type) {
	case *turnInput, *reportInput:
		return true
	case *messageInput:
		return in.isWrite()
	case *expiryInput:
		return in.what == model.FailureLost
	default:
		return false
	}
}

// refuseReports refuses the reports that waited for the end of a quarantine, so that the workers
// send them to the next owner.
func (l *Lane) refuseReports(e *entry) {
	for _, in := range e.quarantine.reports {
		in.refuse(l, ErrNotOwner)
		l.finishInput(in)
	}
	e.quarantine.reports = nil
}

// drainShards frees shards that have no work in flight.
func (l *Lane) drainShards(now model.Time) {
	if l.draining == 0 || l.recovery.careful() {
		return
	}
	for _, id := range l.shardIDs(func(s *shard) bool { return s.draining && !s.freeing }) {
		sh := l.shards[id]
		rest := true
		for _, e := range sh.sortedEntries() {
			switch {
			case e.dirty() || e.reading.active || len(e.backlog.inputs) > 0 || e.tasks.handing > 0:
				// Claims that are being handed over must reach their workers before the shard
				// moves.
				rest = false
			case (e.hold.busy || e.tasks.isExecuting()) && now < sh.until:
				rest = false
			case l.loseForsaken(e):
				rest = false
			case !e.hold.free():
				l.letGoNow(e, "the shard moves")
			}
		}

		// Once the wait is over, drainWake returns no time for the shard, because the remaining
		// commits and reads end by themselves.
		if now >= sh.until {
			sh.until = 0
		}

		if now >= sh.again {
			sh.again = 0
		}
		switch {
		case !rest || sh.again != 0:
		case !sh.alone:
			sh.freeing = true
			l.open.frees = append(l.open.frees, sh)
		case l.flight == nil && !l.recovery.busy():
			l.freeAlone(now, sh)
		}
	}
}

// freeAlone sends a batch that only frees one shard. It overtakes the open batch.
func (l *Lane) freeAlone(now model.Time, sh *shard) {
	sh.freeing = true
	l.send(now, &building{frees: []*shard{sh}})
}

// retryFree handles a refused batch that only frees shards. There is no input to isolate and no
// state to drop, and other runs of the lane must not suffer, so the lane continues. It tries each
// shard again in a batch of its own. But until a shard is freed, no node serves it. If the lane
// cannot free a shard for seconds, the node starts over. That raises the fence of the node, so that
// another node can take the shard although it was not freed.
func (l *Lane) retryFree(now model.Time, err error) {
	frees := l.flight.frees
	l.flight = nil
	for _, sh := range frees {
		sh.freeing = false
		if !sh.alone {
			sh.alone = true
			continue
		}
		if sh.refusals++; sh.refusals == maxFreeRefusals {
			l.die(fault.New(fault.Internal, "shard %d cannot be freed: %w", sh.id, err))
			return
		}
		sh.again = now.Add(backoff(sh.refusals))
	}
}

// drainWake returns when the lane stops waiting for a shard, or tries again to free one.
func (l *Lane) drainWake() model.Time {
	var t model.Time
	if l.recovery.careful() {
		return t
	}
	if l.draining == 0 {
		return t
	}
	for _, s := range l.shards {
		for _, at := range [...]model.Time{s.until, s.again} {
			if s.draining && !s.freeing && at != 0 && (t == 0 || at < t) {
				t = at
			}
		}
	}
	return t
}

// dropShard forgets a shard that another node may own now.
func (l *Lane) dropShard(sh *shard) {
	sh.gone = true
	for _, e := range sh.sortedEntries() { // slots become free in the same order every time
		delete(l.entries, e.address)
		e.gone = true
		if e.isEntity() {
			l.resting.remove(e)
			l.budget.weighMail(e)
		}
		l.workers.unstrand(e)
		e.reading.endHistory()
		l.unpost(l.now, e)
		l.askAgain(e) // a query may have come while the lane was giving up the shard
	}

	l.mail.dropShard(sh.id)
	l.reunion.dropShard(sh.id, l.cfg.Layout)
	delete(l.shards, sh.id)
	l.draining--
	l.out.Freed = append(l.out.Freed, sh.id)
}

// KnownShards lists the shards in which the lane has read all runs with tasks, so that the board
// knows all claims in them.
func (l *Lane) KnownShards() []model.ShardID {
	if l.dead != nil {
		return nil
	}
	return l.shardIDs(func(s *shard) bool {
		if !s.listed || s.draining {
			return false
		}
		for e := range s.entries {
			// If a start only assumes that its address is unused, the lane has not read the
			// address.
			if e.pending.starting || !e.isEntity() && !e.known && (e.reading.active || e.reading.history) {
				return false
			}
		}
		return true
	})
}

// Shards lists the shards that the lane holds, including shards that it is giving up.
func (l *Lane) Shards() []model.ShardID { return l.shardIDs(func(*shard) bool { return true }) }
