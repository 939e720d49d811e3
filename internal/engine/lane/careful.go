package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// handleRefusal handles a batch that the store will never accept (L3). The lane drops the
// provisional state of all addresses in this batch and in the open batch. Then it applies the
// inputs again in the same order, in halves, until the input that the store refuses is alone in its
// batch.
func (l *Lane) handleRefusal(now model.Time, err error) {
	l.recovery.reset()
	first, single := l.flight.inputs, l.isSingle()
	freed, passed := len(l.flight.frees) > 0, len(l.flight.batch.Passed) > 0
	if len(first) == 0 && freed {
		l.retryFree(now, err)
		return
	}
	if len(first) == 0 && len(l.flight.asides) > 0 { // else the batch only tidies, see Tidy
		l.refuseAside(now, l.flight)
	}

	var run model.RunID // the run of the input, if the input is alone in the batch
	if single {
		run = l.storedRun(first[0])
	} else {
		l.keepApart(first)
	}
	rest := l.undo(now)

	var chunks []chunk
	switch {
	case len(first) == 0:
	case single && (freed || passed):
		// Apply the input once more without freeing a shard and without passing messages on. The
		// store may have refused the freeing, or a change that a passed message made at another
		// address.
		chunks = []chunk{first}
	case single:
		chunks = l.isolate(now, first[0], run, err)
		if others := first[1:]; len(others) > 0 {
			chunks = append(chunks, others)
		}
	default:
		half := len(first) / 2
		chunks = []chunk{first[:half:half], first[half:]}
	}
	l.applyAgain(chunks, rest)
}

// isSingle reports whether all rows in the flight come from one input, which is the first of its
// inputs. If the lane kept the batch for that input, other inputs of the same address may be in the
// batch too, but they write nothing: they only wait for the commit (see record). While the lane
// applies inputs of a refused batch again, it keeps no batch for one input.
func (l *Lane) isSingle() bool {
	return len(l.flight.inputs) == 1 || l.flight.isKept() && !l.recovery.careful()
}

// split handles a batch that the store repeatedly did not take in time and that can no longer land.
// The lane applies its inputs again in halves, because each half needs less time. split returns
// false if the batch cannot be made smaller. In that case the lane must send the batch unchanged.
func (l *Lane) split(now model.Time) bool {
	first := l.flight.inputs
	// The batch moves unreadable messages out of the way: the next batches move one row each.
	if len(first) == 0 && len(l.flight.asides) > 1 {
		l.recovery.reset()
		l.refuseAside(now, l.flight)
		l.applyAgain(nil, l.undo(now))
		return true
	}

	single, passed := l.isSingle(), len(l.flight.batch.Passed) > 0
	if len(first) == 0 || single && !passed {
		return false
	}
	l.recovery.reset()
	l.budget.narrow(l.flight.bytes)
	rest := l.undo(now)
	if single {
		l.applyAgain([]chunk{first}, rest) // this time without passing messages on
		return true
	}
	l.keepApart(first)
	half := halfOf(first)
	l.applyAgain([]chunk{first[:half:half], first[half:]}, rest)

	return true
}

// undo drops the batch in flight, which will never land, and the open batch. It returns the inputs
// of the open batch.
func (l *Lane) undo(now model.Time) (rest chunk) {
	if r := &l.recovery; r.careful() {
		r.chunks = r.chunks[1:] // the first chunk is the batch that was in flight
	}
	rest = l.open.inputs
	l.rollback(now, l.open)
	l.rollback(now, l.flight)
	l.flight, l.open = nil, l.newBuilding()
	l.timers.reset() // timers that the batches stopped are open again
	return rest
}

// applyAgain queues inputs that the lane applies again, in front of the inputs that are already
// queued.
func (l *Lane) applyAgain(chunks []chunk, rest chunk) {
	if len(rest) > 0 {
		chunks = append(chunks, rest)
	}
	// chunks must not be nil, even if it is empty: applyChunks also acts when the last chunk is
	// done.
	l.recovery.chunks = append(append([]chunk{}, chunks...), l.recovery.chunks...)
}

// rollback drops the provisional state that a batch left in memory.
func (l *Lane) rollback(now model.Time, b *building) {
	var unheld []*entry
	for _, e := range b.entries {
		e.pending.undo()
		if e.reading.events != nil {
			e.reading.endHistory() // the read waited for a commit that does not happen
			unheld = append(unheld, e)
		} else if e.wait.overlooked {
			unheld = append(unheld, e)
		}
		l.forget(e)
		e.tasks.unwarn()
		e.hold.untold = nil
		if e.hold.hasPreview() {
			e.hold.preview.spoiled = true
		}
	}

	// Workers that were about to lose a run keep it. The loop goes backwards, so that the
	// worker that had the run most recently gets it.
	for i := range slices.Backward(b.effects) {
		switch f := &b.effects[i]; {
		case f.kind == effEvict && f.moot:
			f.entry.eviction.cancel()
			f.call.Reason = staleReport
			l.out.Calls = append(l.out.Calls, f.call)
			unheld = append(unheld, f.entry)
		case f.kind == effEvict || f.kind == effBlocked:
			l.holdAgain(f.entry, &f.call)
		}
	}
	for _, e := range unheld {
		l.dispatch(now, e) // does nothing if the last worker has the run again
	}

	// The messages and answers are no longer in flight, and the cursors go back to their committed
	// positions.
	l.arrive(b)
	for i := range b.batch.Requests {
		// The count of remembered answers does not go back. Otherwise the count would reach the
		// same value again with another answer, and an old lookup would seem valid.
		delete(l.requests, b.batch.Requests[i].RequestKey)
	}
	for _, p := range b.pairs {
		l.mail.rollback(p)
	}
	for _, s := range b.frees {
		s.freeing, s.alone = false, true // the freeing itself may be what the store refuses
	}
}

// holdAgain gives a run back to the worker that was about to lose it. The worker has not noticed
// anything. The lane applies the turn of the worker again.
func (l *Lane) holdAgain(e *entry, c *Call) {
	s := e.eviction.seat.move()
	e.eviction.cancel()
	// The reason why the run is blocked is not stored. The lane applies the turn again, which
	// decides whether the run is blocked.
	l.workers.unstrand(e)

	if e.hold.free() && !e.reading.history && l.workers.here[c.Worker] {
		if s.worker == 0 {
			s = l.workers.keepSeat(c.Worker)
		}
		e.hold.giveBack(c, s.move())
		l.runs[c.Run] = e
		// The lane has dropped the state of the run, which would show a new pause. So it looks for
		// the pause in the events that the worker missed.
		if e.hold.withheld || l.mustLeave(e) || hasKind(e.eviction.missed, model.EventPaused) {
			e.hold.withheld = true
		} else {
			l.tell(e, e.eviction.missed)
			l.askAll(e) // queries that arrived after the worker had given up the run
		}
	} else if c.Kind == CallEvict {
		c.Reason = "what it reported could not be stored"
		l.out.Calls = append(l.out.Calls, *c)
	}
	s.leave()
}

// storedRun returns the run that an applied input is about. An input that names no run, such as a
// message, is about the current run of the address. The result is zero if the store has no row of
// the run that can be marked.
func (l *Lane) storedRun(in input) model.RunID {
	b := in.base()
	if !b.run.IsZero() {
		return b.run
	}
	e := l.entry(*b.address)
	if e == nil || e.pending.fresh || e.pending.starting || l.isStarting(e.run()) {
		return model.RunID{}
	}
	if e.x == nil || e.x.Outcome.Status.Closed() {
		return model.RunID{} // the store keeps a closed run as it is
	}
	return e.run()
}

// isStarting reports whether a batch that is not committed starts the run.
func (l *Lane) isStarting(run model.RunID) bool {
	for _, b := range [...]*building{l.flight, l.open} {
		if b == nil {
			continue
		}
		if slices.ContainsFunc(b.batch.Starts, func(s store.StartRow) bool { return s.Start.Run == run }) {
			return true
		}
	}
	return false
}

// isolate quarantines the address of the one input that the store refuses. It stores the reason in
// the row of the run, where operators see it.
func (l *Lane) isolate(now model.Time, in input, run model.RunID, err error) []chunk {
	switch in.(type) {
	case *quarantineInput:
		l.finishInput(in) // the store does not even accept the reason, so only memory has it
		return nil
	case *removalInput:
		// The input removes old runs. The lane drops it and quarantines no address: nothing is
		// lost, because the lane finds the old runs again later.
		l.retention.more = false
		l.finishInput(in)
		return nil
	}

	e := l.entry(*in.base().address)
	if e == nil {
		l.finishInput(in)
		return nil
	}
	why := model.Reason{Code: model.WaitPoison, Detail: err.Error()}
	l.quarantine(now, e, why)
	if m, ok := in.(*messageInput); ok {
		// A quarantined address still accepts a removal by force. If this message is such a
		// removal, the lane must refuse it, because the store would refuse it again.
		m.barred = true
	}

	// The lane applies the input once more. Because of the quarantine, the lane now answers the
	// input with an error, or puts the input off if it is a message of another shard or process. A
	// second input, the note, stores the reason.
	chunks := []chunk{{in}}
	if !run.IsZero() && !e.isEntity() { // for a timer of an entity, run is not the id of a run
		note := &quarantineInput{inputBase{address: in.base().address, run: run}, &why}
		l.budget.hold(note)
		chunks = append(chunks, chunk{note})
	}
	return chunks
}

// applyChunks applies the next chunk once the lane has read everything that the chunk touches.
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
			r.chunks = r.chunks[1:] // the chunk wrote nothing
		}
	}

	// All chunks are applied. Work that waited for that continues.
	if !r.careful() {
		if r.chunks == nil {
			return
		}
		r.chunks = nil
		// The lane has dropped the messages that came after the refused batches. It reads them
		// again.
		l.MailWaits()

		for _, e := range l.sortedEntries(func(*entry) bool { return true }) {
			l.takeSpoiled(now, e)
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

// readForChunk reports whether the lane has read everything that an input touches. If not, it
// starts the read.
func (l *Lane) readForChunk(in input) bool {
	e := l.entry(*in.base().address)
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

// applyChunk applies inputs of a refused batch again. Three kinds of requests go back to the
// backlog of their address instead:
//   - A request whose id is also the id of another input: that input may have been applied in the
//     meantime.
//   - A request that must wait until the start of its run is committed (see early).
//   - A request about a dead task. The lane must read the dead task again.
func (l *Lane) applyChunk(now model.Time, c chunk) {
	var unsure []*messageInput
	for _, in := range c {
		e := l.entry(*in.base().address)
		if e == nil {
			in.refuse(l, ErrNotOwner)
			l.finishInput(in)
			continue
		}

		switch in := in.(type) {
		case *messageInput:
			if l.mustWaitAgain(e, in) {
				in.deadTask, in.lone = nil, true // the lane reads the dead task again
				unsure = append(unsure, in)
				continue
			}
		case *expiryInput:
			if e.quarantine.why == nil {
				l.expireAgain(now, e, in)
				continue
			}
		}
		l.apply(now, e, in)
	}

	// The requests go to the front of the backlog, in their order.
	for _, in := range slices.Backward(unsure) {
		e := l.entry(*in.address)
		e.backlog.inputs = slices.Insert(e.backlog.inputs, 0, input(in))
	}
}

// mustWaitAgain reports whether a request of a refused batch goes back to the backlog, see
// applyChunk. If its address is quarantined, this is only true for an order that the lane refuses
// as soon as it knows that the order has not been served. Otherwise the lane would put the order
// off, apply it after the quarantine, and the store would refuse it again, forever.
func (l *Lane) mustWaitAgain(e *entry, in *messageInput) bool {
	unsure := in.once() && !in.sure(l, e)
	if e.quarantine.why != nil {
		return unsure && in.isOrder() && !in.isForced() && !in.refusedOnce
	}
	return unsure || in.early(e) || in.isDeadTaskOrder()
}

// nextChunk moves on to the next chunk.
func (l *Lane) nextChunk() {
	if l.recovery.careful() {
		l.recovery.chunks = l.recovery.chunks[1:]
	}
}

// failCareful drops the inputs of refused batches, and calls fail for each of them.
func (l *Lane) failCareful(fail func(input)) {
	for _, c := range l.recovery.chunks {
		for _, in := range c {
			fail(in)
		}
	}
	l.recovery.chunks = nil
}
