package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// chunk is a run of kept inputs that are committed together after a refused batch.
type chunk []*input

// careful reports whether kept inputs of a refused batch are being applied again. Until they are, nothing else is.
func (r *recovery) careful() bool { return len(r.chunks) > 0 }

// refused deals with a batch that the store will never accept (L3). The provisional state of everything in it and in the batch
// that fills is dropped. The kept inputs are applied again in the same order, in halves, so that the poison stands alone in the end.
func (l *Lane) refused(now model.Time, err error) {
	l.recovery.over()
	first, freed := l.flight.inputs, len(l.flight.frees) > 0
	if len(first) == 0 && freed {
		l.freeRefused(now, err)
		return
	}
	if len(first) == 0 {
		l.asideRefused(now, l.flight)
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

// proposal reports whether the board has asked for the input: a claim, or a deadline. When the lane
// drops a batch, it tells the board anew how its tasks stand. So a proposal in the batch has no
// effect when the lane applies it again, and the board makes it once more.
func (in *input) proposal() bool { return in.kind == inClaim || in.kind == inExpire }

func proposals(inputs []*input) (n int) {
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
func (l *Lane) staysApart(in *input) bool {
	return l.apart > 0 && l.open.proposals > 0 && len(l.open.inputs) > 0 && in.proposal()
}

// split deals with a batch that the store did not take in time, again and again, and that cannot
// land. The lane applies its inputs again in halves, and each half needs less time. It reports
// false when the batch has a single input and must be sent as it is.
func (l *Lane) split(now model.Time) bool {
	first := l.flight.inputs
	if len(first) == 0 && len(l.flight.asides) > 1 { // it moves what cannot be read: the next ones move one row each
		l.recovery.over()
		l.asideRefused(now, l.flight)
		l.applyAgain(nil, l.undo(now))
		return true
	}
	if len(first) < 2 {
		return false
	}
	l.recovery.over()
	l.narrow(l.flight.bytes)
	rest := l.undo(now)
	half := half(first)
	l.applyAgain([]chunk{first[:half:half], first[half:]}, rest)
	return true
}

// half is how many inputs have about half of the bytes: at least one, and not all.
func half(inputs []*input) int {
	all := 0
	for _, in := range inputs {
		all += in.held
	}
	n, some := 0, 0
	for n < len(inputs)-1 && (n == 0 || some+inputs[n].held <= all/2) {
		some += inputs[n].held
		n++
	}
	return n
}

// undo drops the batch in flight, which will never land, and the one that fills. It returns the inputs of the latter.
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

// applyAgain has kept inputs applied again, before those that are kept already.
func (l *Lane) applyAgain(chunks []chunk, rest chunk) {
	if len(rest) > 0 {
		chunks = append(chunks, rest)
	}
	l.recovery.chunks = append(append([]chunk{}, chunks...), l.recovery.chunks...) // not nil: its end has something to do, see carefulStep
}

// rollback drops the provisional state that a batch left in memory.
func (l *Lane) rollback(now model.Time, b *building) {
	var unheld []*entry
	for _, e := range b.entries {
		e.inOpen, e.inFlight, e.removing, e.served = false, false, false, 0
		if e.read != nil {
			e.activating, e.read, e.tail = false, nil, nil // what it waited for does not come
			unheld = append(unheld, e)
		} else if e.overlooked {
			unheld = append(unheld, e)
		}
		l.forget(e)
		for _, id := range e.tasks.ids(nil) {
			p, _ := e.tasks.get(id)
			p.warned = false // that a task was canceled has not been told
			e.tasks.set(id, p)
		}
	}

	for i := range slices.Backward(b.effects) { // the last worker of a run has it again
		switch f := &b.effects[i]; {
		case f.kind == effEvict && f.heard:
			f.entry.evicting, f.entry.wanted = false, false
			unheld = append(unheld, f.entry)
		case f.kind == effEvict || f.kind == effBlocked:
			l.holdAgain(f.entry, &f.call)
		}
	}

	for _, e := range unheld {
		l.dispatch(now, e) // unless whoever had it has it again
	}
	for i := range b.batch.Requests {
		delete(l.requests, b.batch.Requests[i].RequestKey)
		if e := l.entries[b.batch.Requests[i].Address]; e != nil {
			e.remembered-- // what was looked up before is right again
		}
	}
	for _, p := range b.pairs {
		p.rollback(l)
	}
	for _, s := range b.frees {
		s.freeing, s.alone = false, true // in case that this is what is refused
	}
}

// holdAgain gives a run back to the worker that was to let go of it and has not heard of it: its turn is applied again.
func (l *Lane) holdAgain(e *entry, c *Call) {
	e.evicting, e.wanted = false, false
	l.unstrand(e) // that it is blocked is not stored: it is, or is not, when the turn is applied again
	if e.worker == 0 && !e.activating && l.workers.here[c.Worker] {
		e.worker, e.gen, e.busy, e.held = c.Worker, c.Generation, true, c.Run
		l.runs[c.Run] = e
		// Whether the run is paused is not known before it is read again: what the worker was not told says it.
		if e.withheld || l.stops(e) || hasKind(e.missed, model.EventPaused) {
			e.withheld = true
		} else {
			l.tell(e, e.missed)
			l.askAll(e) // that came after it had let go
		}
	} else if c.Kind == CallEvict {
		c.Reason = "what it reported could not be stored"
		l.out.Calls = append(l.out.Calls, *c)
	}
}

// isolate quarantines the address of the one input that is refused, and has the reason stored where people can see it.
func (l *Lane) isolate(now model.Time, in *input, err error) []chunk {
	if in.kind == inQuarantine {
		l.done(in) // not even the reason can be stored; memory has it
		return nil
	}
	if in.kind == inExpired { // nothing is lost, and no address is to suffer from it: it is tried again when it is found again, and not at once
		l.retention.more = false
		l.done(in)
		return nil
	}
	e := l.entry(in.address)
	if e == nil {
		l.done(in)
		return nil
	}
	why := model.Reason{Code: model.WaitPoison, Detail: err.Error()}
	l.quarantine(now, e, why)
	in.barred = true        // a removal by force is refused by the quarantine as well: it would be refused by the store again
	chunks := []chunk{{in}} // refused by the quarantine; a message is put off, which is a write
	if !in.run.IsZero() {
		note := &input{kind: inQuarantine, address: in.address, run: in.run, turn: &model.Turn{Blocked: &why}}
		l.hold(note)
		chunks = append(chunks, chunk{note})
	}
	return chunks
}

// carefulStep applies the next chunk once everything it touches has been read again.
func (l *Lane) carefulStep(now model.Time) {
	r := &l.recovery
	for r.careful() && l.flight == nil && !r.busy() {
		waiting := false
		for _, in := range r.chunks[0] {
			e := l.entry(in.address)
			switch {
			case e == nil || e.poison != nil || in.kind == inQuarantine || e.known && !e.unread(in):
				continue
			case e.loading:
			case !e.known:
				l.load(e)
			default:
				l.loadWritten(e, in)
			}
			waiting = true
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
			if len(e.backlog) > 0 {
				l.schedule(e)
			} else {
				l.maybeDrop(e)
			}
		}
		l.serveBacklog(now)
		l.seal(now)
	}
}

// applyChunk applies kept inputs. A request that may have been served meanwhile, because the same one was kept too, is looked up first,
// in its turn; so is one that came too early, or is about a dead letter.
func (l *Lane) applyChunk(now model.Time, c chunk) {
	var unsure []*input
	for _, in := range c {
		e := l.entry(in.address)
		switch {
		case e == nil:
			l.reply(in.address, in.awaits, Answer{Token: in.token, Err: ErrNotOwner})
			l.done(in)
		case e.poison == nil && (in.once() && !e.sure(in) || in.early(e) || in.aboutLetter()):
			in.letter = nil // is read again
			unsure = append(unsure, in)
		case e.poison == nil && in.kind == inExpire:
			l.expireAgain(now, e, in)
		default:
			l.apply(now, e, in)
		}
	}
	for _, in := range slices.Backward(unsure) {
		e := l.entry(in.address)
		e.backlog = slices.Insert(e.backlog, 0, in)
	}
}

// carefulLanded goes on to the next chunk.
func (l *Lane) carefulLanded() {
	if l.recovery.careful() {
		l.recovery.chunks = l.recovery.chunks[1:]
	}
}

func (l *Lane) failCareful(fail func(*input)) {
	for _, c := range l.recovery.chunks {
		for _, in := range c {
			fail(in)
		}
	}
	l.recovery.chunks = nil
}

// quarantine keeps an address apart whose rows the store refuses or cannot read: it harms nobody else, and nothing of it is lost.
// It is tried again after a while, and by whoever owns the shard next.
func (l *Lane) quarantine(now model.Time, e *entry, why model.Reason) {
	why = why.Bounded()
	l.quarantined(e, &why)
	if e.worker != 0 {
		l.letGoNow(e, why.String())
	}
	l.forget(e)
	if e.poison == nil {
		l.sick = append(l.sick, e)
	}
	e.activating, e.tail, e.read = false, nil, nil
	l.unstrand(e) // it is tried again by whoever is here then
	blocked := fault.New(fault.Blocked, "%s %s", e.address, why)
	l.refuseQueries(e, blocked)
	if e.isEntity() {
		l.abandon(e, blocked)
	}
	e.poison, e.poisonUntil = &why, now.Add(l.cfg.QuarantineFor)
	l.unpost(now, e)   // whoever executes a task of it goes on
	l.handOverAgain(e) // which is not known: whoever has it is found when it is read
	e.waits = []model.Reason{why}
	if len(e.backlog) > 0 {
		l.schedule(e)
	}
}

// cure tries those again whose quarantine is over: nobody else may ever ask for them.
func (l *Lane) cure(now model.Time) {
	if len(l.sick) == 0 || l.recovery.careful() {
		return
	}
	kept := l.sick[:0]
	for _, e := range l.sick {
		switch {
		case e.shard.gone:
		case now < e.poisonUntil:
			kept = append(kept, e)
		default:
			e.poison = nil
			l.forget(e)
			l.timers.reset() // those that came due meanwhile were left in the store
			l.dispatch(now, e)
			if len(e.reports) > 0 {
				e.backlog, e.reports = append(e.reports, e.backlog...), nil
				l.schedule(e)
			}
			l.maybeDrop(e)
		}
	}
	clear(l.sick[len(kept):])
	l.sick = kept
}

func (l *Lane) cureWake() model.Time {
	var t model.Time
	if !l.recovery.careful() {
		for _, e := range l.sick {
			if t == 0 || e.poisonUntil < t {
				t = e.poisonUntil
			}
		}
	}
	return t
}

// applyPoisoned deals with an input for a quarantined address: callers are told, also those in
// other processes; other messages are put off, timers
// stay where they are.
func (l *Lane) applyPoisoned(now model.Time, e *entry, in *input) {
	blocked := fault.New(fault.Blocked, "execution %s %s", e.address, e.poison)
	switch {
	case in.kind == inQuarantine:
		l.touch(l.open, e)
		l.open.batch.Marks = append(l.open.batch.Marks, store.MarkRow{
			RunKey: store.RunKey{Shard: e.shard.id, Run: in.run}, Blocked: in.turn.Blocked,
		})
		l.open.inputs = append(l.open.inputs, in)
		return
	case in.kind == inReport && !e.shard.draining:
		if l.keep(e, in) {
			return
		}
		l.settled(in.task.worker, in.task.report.Ref, ErrLater)
	case in.kind == inReport:
		l.settled(in.task.worker, in.task.report.Ref, ErrNotOwner)
	case in.kind == inOperated:
		l.unheard(in, blocked)
	case in.kind == inTurn || in.kind == inRelease:
		l.out.Calls = append(l.out.Calls, Call{
			Kind: CallEvict, Worker: in.worker, Run: in.turn.Run, Generation: in.turn.Generation, Reason: blocked.Error(),
		})
	case in.pair != nil && !in.pair.next(in):
	case in.orders() && !in.told && (!in.once() || e.sure(in)):
		l.refuseOrder(e, in, wayOut(in.message, blocked))
		return
	case in.pair != nil || !in.inbox.IsZero():
		l.putOff(now, e, in)
		return
	default:
		l.reply(in.address, in.awaits, Answer{Token: in.token, Err: wayOut(in.message, blocked)})
	}
	l.done(in)
}
