package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// awaitFrom has another node wait. Its callers come and go without a word, so the lane forgets it after a while.
func (l *Lane) awaitFrom(a model.Address, w waiter) {
	w.until = l.now.Add(awaitFor)
	if i := slices.IndexFunc(l.waiters[a], func(o waiter) bool { return o.node == w.node && o.run == w.run && o.reply == w.reply }); i >= 0 {
		l.waiters[a][i].until = w.until
		return
	}
	l.sweepWaiters()
	l.waiters[a] = append(l.waiters[a], w)
}

// sweepWaiters forgets nodes whose time is over. It looks when there are twice as many addresses as were left the last time.
func (l *Lane) sweepWaiters() {
	if len(l.waiters) < l.awaited {
		return
	}
	for a, ws := range l.waiters {
		left := slices.DeleteFunc(ws, func(w waiter) bool { return w.until != 0 && w.until <= l.now })
		if len(left) == 0 {
			delete(l.waiters, a)
		} else {
			l.waiters[a] = left
		}
	}
	l.awaited = max(2*len(l.waiters), fewestAsk)
}

// Await registers a caller that wants to hear the end of an execution; Forget takes it back. Unless it reports sure, the run is not in
// memory, and may have ended before: the caller must look at the store afterwards.
func (l *Lane) Await(a model.Address, run model.RunID, token any) (sure bool, err error) {
	if l.dead != nil {
		return false, l.dead
	}
	if !l.Owns(a.Shard(l.cfg.Shards)) {
		return false, ErrNotOwner
	}
	e := l.entries[a]
	sure = e != nil && e.known && e.x != nil && e.x.Open() && !e.pending.starting && (run.IsZero() || run == e.x.Start.Run)
	if sure && !e.pending.open && !e.pending.flight {
		if err := core.LimitReached(a, e.x.Blocked); err != nil {
			return false, err
		}
	}
	l.waiters[a] = append(l.waiters[a], waiter{token: token, run: run})
	return sure, nil
}

// reachLimit has those who wait for a run hear that it has reached a limit, once that is committed. Nothing is to be committed when it
// was so before.
func (l *Lane) reachLimit(g *building, e *entry, why *model.Reason) {
	err := core.LimitReached(e.address, why)
	if g == nil {
		l.tellLimit(e.address, err)
		return
	}
	g.effects = append(g.effects, effect{kind: effLimit, entry: e, err: err})
}

// tellLimit tells those who wait for the end of a run, or for an answer of its code, why neither comes. Other nodes look again when they
// are hinted at.
func (l *Lane) tellLimit(a model.Address, err error) {
	kept := slices.DeleteFunc(l.waiters[a], func(w waiter) bool {
		switch {
		case w.early:
			return false
		case w.node.IsZero():
			l.answer(Answer{Token: w.token, Err: err})
		default:
			l.out.Hints = append(l.out.Hints, Hint{Node: w.node, Address: a, Run: w.run})
		}
		return true
	})
	if len(kept) == 0 {
		delete(l.waiters, a)
	} else {
		l.waiters[a] = kept
	}
}

// Forget takes an Await back, or the wait for an answer of the code.
func (l *Lane) Forget(a model.Address, token any) {
	l.forgetWaiter(a, token)
	if e := l.entries[a]; e != nil {
		l.unaskAll(e, token)
	}
}

// forgetWaiter has a caller wait no longer.
func (l *Lane) forgetWaiter(a model.Address, token any) {
	request := ""
	ws := slices.DeleteFunc(l.waiters[a], func(w waiter) bool {
		if w.token != token {
			return false
		}
		request = w.reply
		return true
	})
	if len(ws) == 0 {
		delete(l.waiters, a)
	} else {
		l.waiters[a] = ws
	}
	if e := l.entries[a]; e != nil {
		shared := request != "" && slices.ContainsFunc(ws, func(w waiter) bool { return w.reply == request })
		if e.isEntity() && e.actor.entity != nil && !shared && e.actor.entity.Forget(token, request) {
			l.settleDue(l.now, e)
			l.operate(l.now, e) // perhaps nothing waits for it any more
		}
	}
}

// awaits turns a waiter whose start has begun a run, or whose update was accepted, into one that waits for what comes of it. One that was
// taken back meanwhile stays away; one whose shard moves must ask the next owner.
func (l *Lane) awaits(e *entry, token any, begun bool) {
	ws := l.waiters[e.address]
	i := slices.IndexFunc(ws, func(w waiter) bool { return w.token == token })
	switch {
	case i < 0:
	case e.shard.draining:
		l.reply(e.address, true, Answer{Token: token, Begun: begun, Err: ErrNotOwner})
	default:
		ws[i].early, ws[i].begun = false, begun
	}
}

// tellWaiters tells those who wait for the end of a run, or of the chain it was the last of.
func (l *Lane) tellWaiters(a model.Address, run model.RunID, o *model.Outcome) {
	ws := l.waiters[a]
	if len(ws) == 0 {
		return
	}
	kept := ws[:0]
	for _, w := range ws {
		switch {
		case w.early || w.reply != "" || w.run != run && (!w.run.IsZero() || o.Status == model.Continued):
			kept = append(kept, w)
		case w.node.IsZero():
			l.answer(Answer{Token: w.token, Result: &Result{Run: run, Outcome: *o}})
		default:
			l.out.Hints = append(l.out.Hints, Hint{Node: w.node, Address: a, Run: run})
		}
	}
	if len(kept) == 0 {
		delete(l.waiters, a)
	} else {
		clear(ws[len(kept):])
		l.waiters[a] = kept
	}
}

// expect has whoever sent an update wait for its answer, which the code gives later.
func (l *Lane) expect(e *entry, from *source) {
	if from.token != nil {
		l.awaits(e, from.token, false)
		return
	}
	if node := from.message.Node; !node.IsZero() && !e.shard.draining { // it asks again when it has lost patience
		l.awaitFrom(e.address, waiter{node: node, reply: from.message.RequestID})
	}
}

// tellReply tells those who wait for the answer to a request. It reports whether the only one that can ask for it is among them.
func (l *Lane) tellReply(a model.Address, id string, answer Answer) (last bool) {
	kept := slices.DeleteFunc(l.waiters[a], func(w waiter) bool {
		if w.early || w.reply != id {
			return false
		}
		if w.token != nil {
			answer.Token = w.token
			l.answer(answer)
			last = w.drawn
		} else if !w.node.IsZero() {
			l.out.Hints = append(l.out.Hints, Hint{Node: w.node, Address: a, Run: answer.Answer.Run})
		}
		return true
	})
	if len(kept) == 0 {
		delete(l.waiters, a)
	} else {
		l.waiters[a] = kept
	}

	return last
}

// failWaiters tells everybody who waits to ask again elsewhere; only those of one shard when it is given. Those whose start is not
// committed hear it with the answer to that.
func (l *Lane) failWaiters(shards ...model.ShardID) {
	var gone []model.Address
	for a := range l.waiters {
		if len(shards) == 0 || slices.Contains(shards, a.Shard(l.cfg.Shards)) {
			gone = append(gone, a)
		}
	}
	slices.SortFunc(gone, compareAddresses)
	err := error(ErrNotOwner)
	if l.dead != nil {
		err = fault.New(fault.Unavailable, "%w", l.dead)
	}
	for _, a := range gone {
		kept := l.waiters[a][:0]
		for _, w := range l.waiters[a] {
			switch {
			case w.early:
				kept = append(kept, w)
			case w.reply != "": // its request is stored: sent again under its id, it waits for the same answer
				l.answer(Answer{Token: w.token, Err: ErrNotOwner})
			default:
				l.answer(Answer{Token: w.token, Begun: w.begun, Err: err})
			}
		}
		if len(kept) > 0 {
			l.waiters[a] = kept
		} else {
			delete(l.waiters, a)
		}
	}
}
