package lane

import (
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// quarantine isolates an address whose rows the store refuses or cannot read. Other addresses
// continue, and the rows of this address stay as they are. The lane tries the address again after a
// while. So does the next owner of the shard.
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

	// The lane stops reading the history of the run for a worker.
	e.reading.endHistory()
	l.workers.unstrand(e) // after the quarantine, any worker may get the run again

	// Callers get the reason.
	blocked := fault.New(fault.Blocked, "%s %s", e.address, why)
	l.refuseQueries(e, blocked)
	if e.isEntity() {
		l.abandon(e, blocked)
	}

	// From here on the lane refuses inputs for the address, or puts them off.
	e.quarantine.why, e.quarantine.until = &why, now.Add(l.cfg.QuarantineFor)
	l.unpost(now, e) // workers that execute tasks of the run continue
	if l.cfg.Board != nil && !e.isEntity() {
		l.cfg.Board.Quarantine(now, e.address)
	}
	// The lane has dropped the run, so this hands over no claim and only empties the list. The lane
	// finds the workers of these claims when it reads the run again.
	l.handOverAgain(e)
	e.wait.reasons = []model.Reason{why}
	if len(e.backlog.inputs) > 0 {
		l.schedule(e)
	}
}

// cure tries addresses again after their quarantine, because there may never be another input for
// them.
func (l *Lane) cure(now model.Time) {
	if l.recovery.careful() {
		return
	}
	for _, e := range l.quarantined.take(now) {
		e.quarantine.why = nil
		l.forget(e)
		l.timers.reset() // timers that came due during the quarantine stayed in the store
		l.dispatch(now, e)
		if len(e.quarantine.reports) > 0 {
			e.requeueReports()
			l.schedule(e)
		}
		l.maybeDrop(e)
	}
}

// cureWake returns when the lane tries the next quarantined address again.
func (l *Lane) cureWake() model.Time {
	if l.recovery.careful() {
		return 0
	}
	return l.quarantined.wake()
}

func (in *quarantineInput) applyPoisoned(l *Lane, _ model.Time, e *entry) {
	l.touch(l.open, e)
	l.open.mark(e, store.MarkRow{RunKey: store.RunKey{Shard: e.shard.id, Run: in.run}, Blocked: in.why})
	l.open.inputs = append(l.open.inputs, in)
}

// applyPoisoned applies a removal by force, because that ends the quarantine. It refuses a message
// of a client of this process, and an order of another process (see isOrder). It puts off all other
// messages of other processes and shards.
func (in *messageInput) applyPoisoned(l *Lane, now model.Time, e *entry) {
	blocked := e.refusal()
	if in.drops != nil {
		l.refuseCall(in.drops, e.address, blocked, true) // the entity no longer has the call
		in.drops = nil
	}
	switch {
	case in.isForced():
		l.applyWatched(now, e, in)
		return
	case in.origin.isRepeated():
	case in.isOrder() && !in.refusedOnce && (!in.once() || in.sure(l, e)):
		l.refuseOrder(e, in, wayOut(in.origin.message, blocked))
		return
	case in.origin.remote():
		l.putOff(now, e, in)
		return
	default:
		in.refuse(l, wayOut(in.origin.message, blocked))
	}

	l.finishInput(in)
}

// applyPoisoned puts off an answer for another process or shard, and refuses any other answer.
func (in *answerInput) applyPoisoned(l *Lane, now model.Time, e *entry) {
	switch {
	case in.origin.isRepeated():
	case in.origin.remote():
		l.putOff(now, e, in)
		return
	default:
		in.refuse(l, wayOut(in.origin.message, e.refusal()))
	}
	l.finishInput(in)
}
