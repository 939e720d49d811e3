package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// FinishCommit tells the lane the result of a commit.
func (l *Lane) FinishCommit(now model.Time, res store.Committed, err error) {
	l.now = now
	if l.dead != nil || l.flight == nil {
		return
	}
	if err == nil {
		l.finishBatch(now, res)
		return
	}

	r := &l.recovery
	r.attempts++
	switch store.ClassOf(err) {
	case store.Retryable:
		// The store also returns this class for a batch that takes too long. Without a split, such
		// a batch would fail every time.
		if r.broken++; r.broken >= brokenTries {
			r.addPatience()
			if l.split(now) {
				return
			}
		}
		r.stage, r.at = stageResend, 0
		if r.attempts > 3 {
			r.at = now.Add(backoff(r.attempts - 3))
		}
	case store.Away: // a smaller batch would not be stored either
		l.retryLater(now, stageResend, err)
	case store.Unknown:
		r.stage, r.at = stageRefence, 0
	case store.Refused:
		l.handleRefusal(now, err)
	case store.Fenced:
		l.die(err)
	}
}

// recover continues the recovery of a failed commit when its time has come.
func (l *Lane) recover(now model.Time) {
	l.loads.ripen(now)
	r := &l.recovery
	if r.at > now || l.dead != nil {
		return
	}

	switch r.stage {
	case stageResend:
		r.stage, r.at = stageNone, 0
		l.flight.batch.Lane, l.flight.batch.Patience = l.cfg.Ref, r.patience
		l.out.Commit = &l.flight.batch
	case stageRefence:
		r.stage, r.at = stageRefencing, 0
		ref := l.cfg.Ref
		l.out.Refence = &ref
	case stageNone, stageRefencing, stageVerifying:
		l.applyChunks(now)
	}
}

// FinishRefence tells the lane the result of moving the fence. From now on an unknown commit can
// have no effect. landed is the number of the last batch that had an effect before the fence moved
// (L4).
func (l *Lane) FinishRefence(now model.Time, epoch, landed int64, err error) {
	if l.dead != nil || l.recovery.stage != stageRefencing {
		return
	}

	r := &l.recovery
	switch {
	case err != nil && store.ClassOf(err) == store.Fenced:
		l.die(err)
	case err != nil:
		// The lane repeats the request, because it does not know whether the fence has moved. If
		// the first request has moved the fence and only its answer was lost, the lane has fenced
		// itself with its own new epoch. The repeated request then fails, and the node starts over.
		r.attempts++
		l.retryLater(now, stageRefence, err)
	case landed == l.flight.batch.Number:
		l.cfg.Ref.Epoch = epoch
		l.verify(now)
	case landed == l.flight.batch.Number-1:
		l.cfg.Ref.Epoch = epoch
		r.addPatience() // the batch may have been too large for its time
		if r.lost++; r.lost < lostTries || !l.split(now) {
			r.stage, r.at = stageResend, 0
		}
	default:
		l.die(fault.New(fault.Internal, "the fence of lane %d is at batch %d, but batch %d is in flight", l.cfg.Ref.Lane, landed, l.flight.batch.Number))
	}
}

// verify asks the store which starts met an existing run, in a batch that landed although its
// commit got no answer.
func (l *Lane) verify(now model.Time) {
	for _, s := range l.flight.batch.Starts {
		if s.IfAbsent {
			l.out.Verify = append(l.out.Verify, s)
		}
	}
	if len(l.out.Verify) == 0 {
		l.finishBatch(now, store.Committed{})
		return
	}
	l.recovery.stage = stageVerifying
}

// FinishVerify tells the lane the current runs of the addresses in Verify, in the same order.
func (l *Lane) FinishVerify(now model.Time, rows []*store.Execution, err error) {
	if l.dead != nil || l.recovery.stage != stageVerifying {
		return
	}
	if err != nil {
		l.recovery.attempts++
		l.recovery.stage, l.recovery.at = stageRefence, now.Add(backoff(l.recovery.attempts))
		return
	}

	// A start whose address has another run was not written.
	var res store.Committed
	n := 0
	for i, s := range l.flight.batch.Starts {
		if !s.IfAbsent {
			continue
		}
		if row := rows[n]; row != nil && row.Start.Run != s.Start.Run {
			res.Existing = append(res.Existing, store.ExistingStart{Index: i, Execution: *row})
		}
		n++
	}
	l.finishBatch(now, res)
}

// finishBatch continues after the commit of a batch.
func (l *Lane) finishBatch(now model.Time, res store.Committed) {
	l.recovery.reset()
	l.farewells = 0
	b := l.flight
	l.budget.widen(b, l.cfg.MaxBatchBytes)
	if l.cfg.WantsChanges != nil && l.cfg.WantsChanges() {
		l.reportChanges(b, res)
	}
	for _, x := range res.Existing {
		l.startMetRun(now, b, x)
	}
	l.publish(now, b)
	l.nextChunk()
	if r := &l.recovery; !r.careful() && r.patience > 0 {
		r.patience-- // step by step, because the store may still be slow
	}
}

// startMetRun undoes a start whose address already had a run. The store has not written the start.
// Now that the lane knows about the run, it applies the input again.
func (l *Lane) startMetRun(now model.Time, b *building, x store.ExistingStart) {
	run := b.batch.Starts[x.Index].Start.Run
	e := l.entries[b.batch.Starts[x.Index].Start.Address]
	b.effects = deleteEffects(b.effects, run)
	b.dropFacts(run)

	for _, in := range b.inputs {
		if m, ok := in.(*messageInput); ok && m.is(model.MessageStart) && *m.address == e.address {
			again := *m
			again.lookup.checked, again.held, again.kept = true, 0, false
			e.backlog.inputs = append([]input{&again}, e.backlog.inputs...)
			l.budget.hold(&again)
		}
	}

	l.forget(e)
	l.unpost(now, e)
	if x.Execution.Outcome.Status.Closed() {
		l.setRun(e, &core.Execution{Start: x.Execution.Start, Outcome: x.Execution.Outcome})
	} else if !x.Execution.Parked {
		l.dispatch(now, e) // the lane skipped a dispatch while the entry waited for the commit
	}
}

// deleteEffects removes the activation of a run that did not start, the hand-over of its task, and
// the answer to the caller of the start.
func deleteEffects(fs []effect, run model.RunID) []effect {
	kept := fs[:0]
	for _, f := range fs {
		switch {
		case (f.kind == effActivate || f.kind == effExecute) && f.run == run:
		case (f.kind == effAnswer || f.kind == effAwait) && f.answer.Answer.Run == run && !f.answer.Answer.Existing:
		default:
			kept = append(kept, f)
		}
	}
	return kept
}

// die ends the lane, which no longer owns anything (L5). Callers get ErrNotOwner and ask the new
// owner with the same request id, because the batch in flight may have landed.
func (l *Lane) die(err error) {
	l.end(fault.New(fault.Unavailable, "this node lost its lease: %w", err), "the node lost its lease")
}

// end ends the lane. Workers get the reason.
func (l *Lane) end(dead error, why string) {
	l.dead = dead
	l.out = Output{Dead: l.dead, Calls: l.out.Calls, TaskCalls: l.out.TaskCalls, Answers: l.out.Answers, Facts: l.out.Facts, Changes: l.out.Changes}

	// This part is for inputs in batches, and for evictions that would follow their commits.
	fail := func(in input) {
		l.unstored.add(in)
		in.refuse(l, ErrNotOwner)
	}
	for _, b := range [...]*building{l.flight, l.open} {
		if b == nil {
			continue
		}
		for _, in := range b.inputs {
			fail(in)
		}
		for i := range b.effects {
			if f := &b.effects[i]; f.kind == effEvict || f.kind == effBlocked {
				f.call.Kind, f.call.Reason, f.call.Moves = CallEvict, why, true
				l.out.Calls = append(l.out.Calls, f.call)
			}
		}
	}

	// This part is for inputs that wait, and for runs that workers hold.
	for _, e := range l.sortedEntries(func(*entry) bool { return true }) {
		if e.isEntity() {
			l.abandon(e, ErrNotOwner) // also drops the results in its backlog
		}
		for _, in := range e.backlog.inputs {
			fail(in)
		}
		for _, in := range e.quarantine.reports {
			l.unstored.add(in)
		}
		l.refuseReports(e)
		l.letGoNow(e, why)
		l.askAgain(e)
	}

	// This part is for inputs of refused batches, and for callers that wait for the end of a run.
	if l.flight != nil {
		l.nextChunk() // the first chunk is the batch in flight
	}
	l.failCareful(fail)
	l.failWaiters()
}

// Die tells the lane that its node has been fenced.
func (l *Lane) Die(err error) {
	if l.dead == nil {
		l.die(err)
	}
}
