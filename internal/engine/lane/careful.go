package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// handleRefusal handles a batch that the store will never accept (L3). The lane drops the
// provisional state of everything in it and in the open batch. It applies the inputs again in the
// same order, in halves, so that the input that the store refuses stands alone in the end.
func (l *Lane) handleRefusal(now model.Time, err error) {
	l.recovery.reset()
	first, freed := l.flight.inputs, len(l.flight.frees) > 0
	if len(first) == 0 && freed {
		l.retryFree(now, err)
		return
	}
	if len(first) == 0 {
		l.refuseAside(now, l.flight)
	}

	rest := l.undo(now)
	if len(first) > 1 {
		l.apart = proposals(first) + proposals(rest)
	}

	var chunks []chunk
	switch {
	case len(first) == 0:
	case len(first) == 1 && freed:
		chunks = []chunk{first} // perhaps it is the freeing of a shard that was refused
	case len(first) == 1:
		chunks = l.isolate(now, first[0], err)
	default:
		half := len(first) / 2
		chunks = []chunk{first[:half:half], first[half:]}
	}
	l.applyAgain(chunks, rest)
}

// proposals counts inputs that the board has asked for. When the lane drops a batch, it tells the
// board anew how its tasks stand. So a proposal in the batch has no effect when the lane applies it
// again, and the board makes it once more.
func proposals(inputs []input) (n int) {
	for _, in := range inputs {
		if in.proposal() {
			n++
		}
	}
	return n
}

// staysApart reports whether a proposal has to wait for the next batch. Proposals of a refused
// batch have no effect when the lane applies them again in halves, so the halves never show which
// of them is the poison. The board would make all of them at once again. So the next ones go one
// per batch.
func (l *Lane) staysApart(in input) bool {
	return l.apart > 0 && l.open.proposals > 0 && len(l.open.inputs) > 0 && in.proposal()
}

// split handles a batch that the store repeatedly did not take in time and that can no longer land.
// The lane applies its inputs again in halves, and each half needs less time. split reports false
// when the batch has a single input and must be sent as it is.
func (l *Lane) split(now model.Time) bool {
	first := l.flight.inputs
	// It moves what cannot be read: the next ones move one row each.
	if len(first) == 0 && len(l.flight.asides) > 1 {
		l.recovery.reset()
		l.refuseAside(now, l.flight)
		l.applyAgain(nil, l.undo(now))
		return true
	}

	if len(first) < 2 {
		return false
	}
	l.recovery.reset()
	l.budget.narrow(l.flight.bytes)
	rest := l.undo(now)
	l.apart = proposals(first) + proposals(rest)
	half := halfOf(first)
	l.applyAgain([]chunk{first[:half:half], first[half:]}, rest)

	return true
}

// undo drops the batch in flight, which will never land, and the open batch. It returns the inputs
// of the open batch.
func (l *Lane) undo(now model.Time) (rest chunk) {
	if r := &l.recovery; r.careful() {
		r.chunks = r.chunks[1:] // it is what was in flight
	}
	rest = l.open.inputs
	l.rollback(now, l.open)
	l.rollback(now, l.flight)
	l.flight, l.open = nil, l.newBuilding()
	l.timers.reset() // what the batches stopped is open again
	return rest
}

// applyAgain queues inputs to be applied again, before inputs that are queued already.
func (l *Lane) applyAgain(chunks []chunk, rest chunk) {
	if len(rest) > 0 {
		chunks = append(chunks, rest)
	}
	// Not nil, because the end of the chunks has something to do, see applyChunks.
	l.recovery.chunks = append(append([]chunk{}, chunks...), l.recovery.chunks...)
}

// rollback drops the provisional state that a batch left in memory.
func (l *Lane) rollback(now model.Time, b *building) {
	var unheld []*entry
	for _, e := range b.entries {
		e.pending.undo()
		if e.reading.events != nil {
			e.reading.endHistory() // what it waited for does not come
			unheld = append(unheld, e)
		} else if e.wait.overlooked {
			unheld = append(unheld, e)
		}
		l.forget(e)
		e.tasks.unwarn()
	}

	// Workers that were to lose a run keep it.
	for i := range slices.Backward(b.effects) { // the last worker that had a run has it again
		switch f := &b.effects[i]; {
		case f.kind == effEvict && f.moot:
			f.entry.eviction.cancel()
			unheld = append(unheld, f.entry)
		case f.kind == effEvict || f.kind == effBlocked:
			l.holdAgain(f.entry, &f.call)
		}
	}
	for _, e := range unheld {
		l.dispatch(now, e) // unless the worker that had it has it again
	}

	// Answers are no longer on their way to the store, and cursors go back to what is committed.
	for i := range b.batch.Requests {
		delete(l.requests, b.batch.Requests[i].RequestKey)
		if e := l.entries[b.batch.Requests[i].Address]; e != nil {
			e.remembered-- // what was looked up before is right again
		}
	}
	for _, p := range b.pairs {
		l.mail.rollback(p)
	}
	for _, s := range b.frees {
		s.freeing, s.alone = false, true // in case that this is what is refused
	}
}

// holdAgain gives a run back to the worker that was to lose it and has not heard of that. The lane
// applies its turn again.
func (l *Lane) holdAgain(e *entry, c *Call) {
	e.eviction.cancel()
	// The reason why it was blocked is not stored. The turn is applied again and blocks it, or not.
	l.workers.unstrand(e)

	if e.hold.free() && !e.reading.history && l.workers.here[c.Worker] {
		e.hold.giveBack(c)
		l.runs[c.Run] = e
		// The lane does not know whether the run is paused before it has read it again, but the
		// events that the worker missed say so.
		if e.hold.withheld || l.mustLeave(e) || hasKind(e.eviction.missed, model.EventPaused) {
			e.hold.withheld = true
		} else {
			l.tell(e, e.eviction.missed)
			l.askAll(e) // that came after it had let go
		}
	} else if c.Kind == CallEvict {
		c.Reason = "what it reported could not be stored"
		l.out.Calls = append(l.out.Calls, *c)
	}
}

// isolate quarantines the address of the one input that the store refuses, and stores the reason
// where operators see it.
func (l *Lane) isolate(now model.Time, in input, err error) []chunk {
	switch in.(type) {
	case *quarantineInput:
		l.done(in) // not even the reason can be stored; memory has it
		return nil
	case *removalInput:
		// Nothing is lost, and no address has to suffer. The runs are found again later, not at
		// once.
		l.retention.more = false
		l.done(in)
		return nil
	}

	e := l.entry(in.base().address)
	if e == nil {
		l.done(in)
		return nil
	}
	why := model.Reason{Code: model.WaitPoison, Detail: err.Error()}
	l.quarantine(now, e, why)
	if m, ok := in.(*messageInput); ok {
		// The quarantine refuses a removal by force as well, because the store would refuse it
		// again.
		m.barred = true
	}

	// The quarantine refuses the input, or puts a message off, which is a write. The note makes the
	// reason visible in the store.
	chunks := []chunk{{in}}
	if b := in.base(); !b.run.IsZero() {
		note := &quarantineInput{inputBase{address: b.address, run: b.run}, &why}
		l.budget.hold(note)
		chunks = append(chunks, chunk{note})
	}
	return chunks
}

// applyChunks applies the next chunk once everything that it touches has been read again.
func (l *Lane) applyChunks(now model.Time) {
	r := &l.recovery
	for r.careful() && l.flight == nil && !r.busy() {
		waiting := false
		for _, in := range r.chunks[0] {
			if !l.readForChunk(in) {
				waiting = true
			}
		}

		if waiting {
			return
		}

		l.applyChunk(now, r.chunks[0])
		l.seal(now)
		if l.flight == nil {
			r.chunks = r.chunks[1:] // nothing to write after all
		}
	}

	// All chunks are applied. What has waited for that goes on.
	if !r.careful() {
		if r.chunks == nil {
			return
		}
		r.chunks = nil
		l.MailWaits() // what was queued behind the kept messages was dropped

		for _, e := range l.sorted(func(*entry) bool { return true }) {
			if e.isEntity() {
				l.operate(now, e)
			}
			if len(e.backlog.inputs) > 0 {
				l.schedule(e)
			} else {
				l.maybeDrop(e)
			}
		}

		l.serveBacklog(now)
		l.seal(now)
	}
}

// readForChunk reports whether everything that an input touches has been read again, and reads it
// if not.
func (l *Lane) readForChunk(in input) bool {
	e := l.entry(in.base().address)
	if _, note := in.(*quarantineInput); note || e == nil || e.quarantine.why != nil {
		return true
	}
	m, isMessage := in.(*messageInput)
	switch {
	case e.known && !(isMessage && e.unread(m)):
		return true
	case e.reading.active:
	case !e.known:
		l.load(e)
	default:
		l.loadWritten(e, m)
	}
	return false
}

// applyChunk applies inputs of a refused batch again. Some of them first go back to their backlog:
// a request that may have been served since, because the same request is among the inputs; one that
// came too early; and one about a dead letter.
func (l *Lane) applyChunk(now model.Time, c chunk) {
	var unsure []*messageInput
	for _, in := range c {
		e := l.entry(in.base().address)
		if e == nil {
			in.refuse(l, ErrNotOwner)
			l.done(in)
			continue
		}

		if e.quarantine.why == nil {
			switch in := in.(type) {
			case *messageInput:
				if in.once() && !in.sure(e) || in.early(e) || in.aboutLetter() {
					in.letter = nil // is read again
					unsure = append(unsure, in)
					continue
				}
			case *expiryInput:
				l.expireAgain(now, e, in)
				continue
			}
		}

		l.apply(now, e, in)
	}

	// In front of what waits, in their order.
	for _, in := range slices.Backward(unsure) {
		e := l.entry(in.address)
		e.backlog.inputs = slices.Insert(e.backlog.inputs, 0, input(in))
	}
}

// nextChunk goes on to the next chunk.
func (l *Lane) nextChunk() {
	if l.recovery.careful() {
		l.recovery.chunks = l.recovery.chunks[1:]
	}
}

// failCareful gives up on the inputs of refused batches.
func (l *Lane) failCareful(fail func(input)) {
	for _, c := range l.recovery.chunks {
		for _, in := range c {
			fail(in)
		}
	}
	l.recovery.chunks = nil
}

// quarantine keeps an address apart whose rows the store refuses or cannot read. The address harms
// no other address, and nothing of it is lost. The lane tries it again after a while, and so does
// the next owner of the shard.
func (l *Lane) quarantine(now model.Time, e *entry, why model.Reason) {
	why = why.Bounded()
	l.reportQuarantine(e, &why)
	if !e.hold.free() {
		l.letGoNow(e, why.String())
	}
	l.forget(e)
	if e.quarantine.why == nil {
		l.quarantined.add(e)
	}

	// No worker and no read goes on with the run.
	e.reading.endHistory()
	l.workers.unstrand(e) // the workers that are here then try it again

	// Callers hear why.
	blocked := fault.New(fault.Blocked, "%s %s", e.address, why)
	l.refuseQueries(e, blocked)
	if e.isEntity() {
		l.abandon(e, blocked)
	}

	// From here on the lane refuses inputs for the address.
	e.quarantine.why, e.quarantine.until = &why, now.Add(l.cfg.QuarantineFor)
	l.unpost(now, e)   // a worker that executes a task of it goes on
	l.handOverAgain(e) // the run is not known: the worker that has a claim is found when it is read
	e.wait.reasons = []model.Reason{why}
	if len(e.backlog.inputs) > 0 {
		l.schedule(e)
	}
}

// cure tries addresses again whose quarantine is over: nothing else may ever ask for them.
func (l *Lane) cure(now model.Time) {
	if l.recovery.careful() {
		return
	}
	for _, e := range l.quarantined.take(now) {
		e.quarantine.why = nil
		l.forget(e)
		l.timers.reset() // timers that came due during the quarantine were left in the store
		l.dispatch(now, e)
		if len(e.quarantine.reports) > 0 {
			e.requeueReports()
			l.schedule(e)
		}
		l.maybeDrop(e)
	}
}

// cureWake is when the lane tries the next quarantined address again.
func (l *Lane) cureWake() model.Time {
	if l.recovery.careful() {
		return 0
	}
	return l.quarantined.wake()
}

func (in *quarantineInput) applyPoisoned(l *Lane, _ model.Time, e *entry) {
	l.touch(l.open, e)
	l.open.batch.Marks = append(l.open.batch.Marks, store.MarkRow{
		RunKey: store.RunKey{Shard: e.shard.id, Run: in.run}, Blocked: in.why,
	})
	l.open.inputs = append(l.open.inputs, in)
}

// applyPoisoned of a message refuses what a caller waits for, also an order that another process
// sent. It puts off other messages. A removal by force goes on: it is what ends the quarantine.
func (in *messageInput) applyPoisoned(l *Lane, now model.Time, e *entry) {
	blocked := e.refusal()
	switch {
	case in.isForced():
		l.applyWatched(now, e, in)
		return
	case in.origin.repeated():
	case in.isOrder() && !in.refusedOnce && (!in.once() || in.sure(e)):
		l.refuseOrder(e, in, wayOut(in.origin.message, blocked))
		return
	case in.origin.remote():
		l.putOff(now, e, in)
		return
	default:
		in.refuse(l, wayOut(in.origin.message, blocked))
	}

	l.done(in)
}

// applyPoisoned puts off an answer for another process or shard, and refuses any other.
func (in *answerInput) applyPoisoned(l *Lane, now model.Time, e *entry) {
	switch {
	case in.origin.repeated():
	case in.origin.remote():
		l.putOff(now, e, in)
		return
	default:
		in.refuse(l, wayOut(in.origin.message, e.refusal()))
	}
	l.done(in)
}
