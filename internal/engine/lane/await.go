package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Await registers a caller that waits for the end of an execution. Forget cancels the wait. sure
// says whether the lane knows that the run is open. If sure is false, the run may have ended
// already, so the caller must look at the store.
func (l *Lane) Await(a model.Address, run model.RunID, token any) (sure bool, err error) {
	if l.dead != nil {
		return false, l.dead
	}
	if !l.HasShard(l.cfg.Layout.Shard(a)) {
		return false, ErrNotOwner
	}

	e := l.entries[a]
	sure = e != nil && e.known && e.x != nil && e.x.Open() && !e.pending.starting && (run.IsZero() || run == e.x.Start.Run)
	if sure && !e.dirty() {
		if err := core.LimitReached(a, e.x.Blocked); err != nil {
			return false, err
		}
	}
	l.waiters.add(a, waiter{token: token, run: run})
	return sure, nil
}

// Forget cancels the wait of a caller: for the end of an execution (see Await), or for the answer
// to an update, a query or a call of an entity.
func (l *Lane) Forget(a model.Address, token any) {
	l.forgetWaiter(a, token)
	if e := l.entries[a]; e != nil {
		l.dropQueries(e, token)
	}
}

// forgetWaiter removes a waiting caller. A call of an entity need not run if only this caller
// waited for it.
func (l *Lane) forgetWaiter(a model.Address, token any) {
	request, shared := l.waiters.forget(a, token)
	e := l.entries[a]
	if e == nil || !e.isEntity() || e.actor.entity == nil || shared {
		return
	}
	if e.actor.entity.Forget(token, request) {
		l.settleEntity(l.now, e)
		l.operate(l.now, e) // calls that had only this waiter are dropped
	}
}

// await handles a caller whose start has begun a run, or whose update or call was accepted: from
// now on the caller waits for the result. begun is the run of a start, and zero otherwise. If the
// shard moves, the caller must ask the next owner.
func (l *Lane) await(e *entry, token any, begun model.RunID) {
	w := l.waiters.find(e.address, token)
	switch {
	case w == nil: // the caller cancelled the wait before the commit
	case e.shard.draining:
		w.begun = begun
		answer := w.moved(ErrNotOwner)
		answer.Token = token
		l.reply(e.address, true, answer)
	default:
		w.early, w.begun = false, begun
	}
}

// expect lets the sender of an update or a call wait for the answer, which the code gives later.
func (l *Lane) expect(e *entry, from *source) {
	if from.token != nil {
		l.await(e, from.token, model.RunID{})
		return
	}
	// The lane sends a hint to a node that waits. The node also looks at the store by itself, so
	// the lane need not register it while it gives up the shard.
	if node := from.message.Node; !node.IsZero() && !e.shard.draining {
		l.waiters.addNode(l.now, e.address, waiter{node: node, reply: from.message.RequestID})
	}
}

// reachLimit tells the callers that wait for a run that the run has reached a limit, and cannot
// continue. The callers get this answer after the commit of b. If b is nil, an earlier commit has
// recorded it, and the callers get the answer now.
func (l *Lane) reachLimit(b *building, e *entry, why *model.Reason) {
	err := core.LimitReached(e.address, why)
	if b == nil {
		l.waiters.stop(&l.out, e.address, err)
		return
	}
	b.effects = append(b.effects, effect{kind: effLimit, entry: e, err: err})
}

// failWaiters tells all waiters and watchers to ask again elsewhere. With shards, it tells only the
// waiters and watchers of these shards.
func (l *Lane) failWaiters(shards ...model.ShardID) {
	pick := func(a model.Address) bool {
		return len(shards) == 0 || slices.Contains(shards, l.cfg.Layout.Shard(a))
	}
	err := error(ErrNotOwner)
	if l.dead != nil {
		err = fault.New(fault.Unavailable, "%w", l.dead)
	}
	l.waiters.fail(&l.out, pick, err)
	l.watchers.fail(&l.out, l.now, pick)
}

// Watch makes the lane answer the token after the next commit that changes the address. Unwatch
// cancels the watch.
func (l *Lane) Watch(a model.Address, token any) error {
	if sh := l.shards[l.cfg.Layout.Shard(a)]; l.dead != nil || sh == nil || sh.draining {
		return ErrNotOwner
	}
	l.watchers.add(a, watcher{token: token})
	return nil
}

// Unwatch cancels a Watch.
func (l *Lane) Unwatch(a model.Address, token any) { l.watchers.remove(a, token) }
