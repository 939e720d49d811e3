package lane

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// publish makes the changes of a committed batch known to the rest of the lane, and informs
// workers, callers and other lanes (L2).
func (l *Lane) publish(now model.Time, b *building) {
	l.number = b.batch.Number
	l.flight = nil
	l.raiseTokens(b.batch.Tokens)
	l.reportFacts(b, true)
	for _, in := range b.inputs {
		if from := in.source(); from != nil && !from.inbox.IsZero() {
			l.mail.finish(from.inbox)
		}
	}

	l.joinAgain(b)
	l.letInputsGo(b)
	l.finishAside(b)

	// Positions of messages, cursors and timers are durable.
	l.arrive(b)
	for i := range b.batch.Messages {
		row := &b.batch.Messages[i]
		l.shards[row.From].sent[row.To] = row.Seq
	}
	for _, p := range b.pairs {
		p.committed = p.sealed
		if sh := l.shards[p.to]; sh != nil {
			sh.received[p.from] = p.committed
		}
	}
	for i := range b.batch.Timers {
		l.timers.add(&b.batch.Timers[i])
	}
	for i := range b.batch.Requests {
		delete(l.requests, b.batch.Requests[i].RequestKey)
	}

	// There may be room now for mail that was left in the store.
	if l.mail.more && len(b.batch.Inbox)+len(b.batch.Deferred)+len(b.batch.Cursors)+len(b.batch.Free) > 0 {
		l.mail.more = false
		l.MailWaits()
	}

	// Now callers and workers learn the results.
	for _, e := range b.entries {
		e.pending.flight = false
		l.finishRemoval(e)
	}
	l.run(now, b)
	if len(l.watchers.at) > 0 {
		for _, e := range b.entries {
			l.watchers.tell(&l.out, now, e.address)
		}
	}

	for _, s := range b.frees {
		l.dropShard(s)
	}
	l.post(b.batch.Messages)
	l.reuse(b)
}

// run runs the effects of a batch, in order.
func (l *Lane) run(now model.Time, b *building) {
	l.room.tried = false
	for i := range b.effects {
		f := &b.effects[i]
		switch f.kind {
		case effAnswer:
			f.answer.Committed = true
			l.reply(f.entry.address, f.awaits, f.answer)
			if f.step != "" {
				l.acked.add(f.entry, f.step)
			}
		case effAwait:
			l.await(f.entry, f.answer.Token, f.run)
			if f.step != "" {
				l.acked.add(f.entry, f.step)
			}
		case effDeliver:
			l.deliver(now, f.entry, f.run, f.events)
		case effActivate:
			l.activateFresh(now, f.entry, f.run)
		case effClosed:
			l.waiters.end(&l.out, f.entry.address, f.run, f.outcome)
		case effEvict:
			l.out.Calls = append(l.out.Calls, f.call)
			if f.entry.eviction.finish() {
				l.dispatch(now, f.entry)
			}
		case effWaits:
			l.noteTurn(now, f.entry, f.turn)
		case effRetry:
			l.wakeForRetry(now, f.entry, f.run, f.step)
		case effBegins:
			f.entry.pending.endResume()
			if f.entry.run() == f.run {
				l.dispatch(now, f.entry)
			}
		case effExpect:
			l.expect(f.entry, &f.message.origin)
		case effReply:
			f.answer.Committed = true
			if l.waiters.reply(&l.out, f.entry.address, f.step, f.answer) {
				l.acked.add(f.entry, f.step)
			}
		case effExecute:
			l.handOver(f.entry, f)
		case effStop, effSettled:
			l.tellTask(f)
		case effBegin:
			l.beginCall(now, f.entry, f.message.origin.message)
		case effNoted:
			l.runNoted(now, f.entry)
		case effEntity:
			f.entry.actor.commit(f.change)
		case effGone:
			l.tellGone(now, f.entry, f.again)
		case effBlocked, effTaken:
			l.answerTurn(f.call.Worker, f.call.Run, f.call.Generation)
			if f.kind == effBlocked {
				l.tryUntried(now, f.entry)
			}
		case effLimit:
			l.waiters.stop(&l.out, f.entry.address, f.err)
		case effHint:
			l.out.Hints = append(l.out.Hints, f.hint)
		}
	}

	// Entries that waited for the commit continue, or leave memory.
	for _, e := range b.entries {
		l.confirmPreview(e)
		if e.isEntity() {
			l.endFreeing(now, e, b)
			l.makeViews(now, e)
		}
		l.maybeDrop(e)
		if len(e.backlog.inputs) > 0 {
			l.schedule(e)
		}
	}
}

// letInputsGo forgets the inputs of a batch that is finished.
func (l *Lane) letInputsGo(b *building) {
	for _, in := range b.inputs {
		l.budget.unhold(in)
		if r, ok := in.(*removalInput); ok {
			l.retention.removed += len(r.runs)
		}
		l.retention.finish(in)
	}
	clear(b.inputs)
	b.inputs = b.inputs[:0]
}

// raiseTokens notes the marks of a batch that has landed.
func (l *Lane) raiseTokens(rows []store.TokenMark) {
	for _, row := range rows {
		if sh := l.shards[row.Shard]; sh != nil {
			sh.tokens.reserved = max(sh.tokens.reserved, row.Mark)
		}
	}
}
