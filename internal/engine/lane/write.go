package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// write turns a decision into rows of the batch, and into effects that run after the commit. The
// effects run in the order in which write adds them.
func (l *Lane) write(b *building, e *entry, in input, d *core.Decision) {
	m, _ := in.(*messageInput)
	key := e.key()
	if d.Close != nil {
		// A continued run closes under its own id, not under that of the next run.
		key.Run = d.Closed
	}
	b.bytes += decisionSize(d)
	place := b.place()

	// Write the rows of runs: removals, starts, ends.
	l.writeDeletes(b, e, m, d)
	if d.Start != nil {
		l.writeStart(b, e, d)
	}
	if d.Close != nil {
		if keep := l.cfg.TenantRetention[e.address.Tenant]; keep > 0 && d.Close.Leaves == 0 {
			d.Close.Leaves = d.Close.At.Add(keep)
		}
		b.batch.Closes = append(b.batch.Closes, store.CloseRow{RunKey: key, Outcome: *d.Close})
		e.pending.mark = nil
	}
	if d.Mark != nil {
		e.pending.mark = d.Mark // seal writes the last mark of a batch
	}

	// Write the history and its effects: the worker gets the events, and tasks are handed over.
	l.writeEvents(b, e, key, d)
	l.handOverClaims(b, e, d)
	for i := range d.Dead {
		b.batch.Dead = append(b.batch.Dead, store.DeadRow{
			DeadKey: store.DeadKey{RunKey: key, Task: d.Dead[i].Task.ID}, Body: deadTask(e.address, &d.Dead[i]),
		})
	}
	if c := d.DeadTask; c != nil {
		b.changeDeadTask(e.shard.id, c)
	}
	b.noteWritten(place, e, key.Run, d)
	l.writeTimers(b, e, key, d)
	if e.isEntity() {
		l.writeEntity(b, e, d)
	}

	// Send the messages to other addresses. passOn delivers them or writes them.
	for i := range d.Messages {
		b.send(e.shard, &d.Messages[i])
	}

	// The same commit consumes the input itself and remembers its answer.
	if from := in.source(); from != nil {
		l.writeConsumed(b, e, in, d)
	}
	for i := range d.Replies {
		r := &d.Replies[i]
		l.remember(b, e, r.RequestID, useFor(&r.Answer, r.For))
		b.effects = append(b.effects, effect{kind: effReply, entry: e, step: r.RequestID, answer: Answer{Answer: r.Answer, Err: core.RefusalOf(r.Answer)}})
	}
}

// writeDeletes removes runs or an entity. A removal by force ignores the contents of the rows.
func (l *Lane) writeDeletes(b *building, e *entry, m *messageInput, d *core.Decision) {
	forced := m != nil && m.isForced()
	for _, run := range d.Deletes {
		if key := (store.RunKey{Shard: e.shard.id, Run: run}); forced {
			b.batch.Removes = append(b.batch.Removes, key)
		} else {
			b.batch.Deletes = append(b.batch.Deletes, key)
		}
	}
	if d.Erased {
		// Only the row says whether the entity has a timer, and the row may be unreadable.
		b.batch.StopAll = append(b.batch.StopAll, store.RunKey{Shard: e.shard.id, Run: e.address.TimerRun()})
		b.batch.EntityRemoves = append(b.batch.EntityRemoves, store.EntityKey{Shard: e.shard.id, Address: e.address})
	}
}

// writeStart writes a new run. After the commit a worker gets the run, unless the same decision has
// ended it.
func (l *Lane) writeStart(b *building, e *entry, d *core.Decision) {
	l.mail.noteStart(e.address)
	b.batch.Starts = append(b.batch.Starts, store.StartRow{Shard: e.shard.id, Start: *d.Start, Replaces: d.Replaces})
	b.relabel(store.RunKey{Shard: e.shard.id, Run: d.Start.Run}, d.Start.Carried)
	if d.Close == nil {
		b.effects = append(b.effects, effect{kind: effActivate, entry: e, run: d.Start.Run})
	}
	if d.Close == nil || d.Closed != d.Start.Run {
		l.writeBirth(b, e, d.Start)
	}
}

// writeEvents appends to the history, and gives the events to the worker after the commit.
func (l *Lane) writeEvents(b *building, e *entry, key store.RunKey, d *core.Decision) {
	if len(d.Events) == 0 {
		return
	}
	for i := range d.Events {
		b.batch.Events = append(b.batch.Events, store.EventRow{RunKey: key, Event: d.Events[i]})
	}
	b.relabel(key, d.Events)
	if hasKind(d.Events, model.EventResumed) {
		e.pending.resuming++
	}
	l.warnLarge(e, d.Events)
	b.effects = append(b.effects, effect{kind: effDeliver, entry: e, run: key.Run, events: d.Events})
	e.hold.noteUntold(key.Run, d.Events)
}

// writeConsumed consumes the message of an input and remembers its answer.
func (l *Lane) writeConsumed(b *building, e *entry, in input, d *core.Decision) {
	from := in.source()
	if from.pair != nil {
		l.mail.consume(from.pair, b, from.seq)
	}
	if f := d.Answer.Failure; f != nil && from.message.Keep && (from.pair != nil || from.passed) {
		l.keepRefused(b, e, from.message, f)
	}
	m, isMessage := in.(*messageInput)
	if !from.inbox.IsZero() {
		l.writeInbox(b, e, in, d)
	} else if isMessage && m.mustRemember(d) {
		l.remember(b, e, from.message.RequestID, useFor(&d.Answer, from.message.Use()))
	}
}

// writeEntity writes the row and the mailbox of an entity.
func (l *Lane) writeEntity(b *building, e *entry, d *core.Decision) {
	if c := d.Entity; c != nil {
		b.changeEntity(e, c)
		b.reserve(e.shard, &c.Entity)
		b.effects = append(b.effects, effect{kind: effEntity, entry: e, change: c})
	}
	b.changeMailbox(store.EntityKey{Shard: e.shard.id, Address: e.address}, d)
}

// writeTimers stops and starts timers. A timer that was started and stopped in the same batch needs
// no write.
func (l *Lane) writeTimers(b *building, e *entry, key store.RunKey, d *core.Decision) {
	if len(d.StopTimers)+len(d.StartTimers) > 0 && e.isEntity() {
		key.Run = e.address.TimerRun()
	}
	for _, id := range d.StopTimers {
		if !b.unstartTimer(key.Run, id) {
			b.batch.StopTimers = append(b.batch.StopTimers, store.TimerKey{RunKey: key, ID: id})
		}
		l.timers.remove(e.address, key.Run, id)
	}
	for _, t := range d.StartTimers {
		row := store.Timer{Shard: e.shard.id, Run: key.Run, ID: t.ID, Due: t.Due, Address: e.address}
		b.batch.Timers = append(b.batch.Timers, row)
	}
	if d.StopAll {
		b.batch.StopAll = append(b.batch.StopAll, key)
	}
}

// writeBirth writes the timers that a run has from its start.
func (l *Lane) writeBirth(b *building, e *entry, s *model.Start) {
	for _, t := range core.BirthTimers(s) {
		b.batch.Timers = append(b.batch.Timers, store.Timer{Shard: e.shard.id, Run: s.Run, ID: t.ID, Due: t.Due, Address: e.address})
	}
}

// changeDeadTask writes the change of a dead task.
func (b *building) changeDeadTask(shard model.ShardID, c *core.DeadTaskChange) {
	key := store.DeadKey{RunKey: store.RunKey{Shard: shard, Run: c.Ref.Run}, Task: c.Ref.ID}
	if c.Purged {
		b.batch.DeadDeletes = append(b.batch.DeadDeletes, key)
		return
	}
	b.batch.DeadMarks = append(b.batch.DeadMarks, store.DeadMark{DeadKey: key, Prev: c.Prev, Next: c.Next, Body: c.Body})
}

// deadTask returns the row of a task that failed permanently, with its failed attempts.
func deadTask(a model.Address, d *core.DeadTask) model.DeadTask {
	t := &d.Task
	dead := model.DeadTask{
		Address: a, Spec: *t.Spec, Input: t.Input, Scheduled: t.Scheduled, At: d.At, Attempts: t.Attempt, LeftOut: t.Dropped,
		Failure: d.Failure, Fingerprint: d.Failure.Fingerprint(),
	}
	for i := range t.Failures {
		f := &t.Failures[i]
		dead.Add(model.FailedAttempt{Attempt: f.Attempt, At: f.At, Worker: f.Worker, Failure: *f.Failure})
	}
	return dead
}
