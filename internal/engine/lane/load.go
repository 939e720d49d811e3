package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// issueReads adds waiting reads to the output, as many as may be in flight.
func (l *Lane) issueReads() {
	l.issueWaiting()
	l.callUp()
}

// issueWaiting adds waiting reads to the output. The lane does not read a run for a worker while
// there is no room for the run.
func (l *Lane) issueWaiting() {
	q := &l.loads
	for len(q.waiting) > 0 && len(q.flying) < l.cfg.MaxLoads {
		ld := q.next()
		e := ld.entry
		if e != nil && e.gone {
			continue
		}
		if ld.Kind == LoadRun && e.reading.history && !e.shard.draining {
			if !l.room.free() && !l.queueUp(e) {
				continue
			}
			if e.reading.history {
				l.room.reserve(e, max(e.hold.weight, l.room.guess(e)))
			}
		}
		ld.tenure = l.tenure
		l.out.Loads = append(l.out.Loads, *q.send(ld))
	}
}

// FinishLoad tells the lane the result of a read.
func (l *Lane) FinishLoad(now model.Time, id uint64, r LoadResult) {
	l.now = now
	ld := l.loads.flying[id]
	if ld == nil || l.dead != nil {
		return
	}
	delete(l.loads.flying, id)
	if e := ld.entry; e != nil && ld.Kind == LoadRun {
		l.room.weigh(e) // returns the room that was reserved for the run
	}
	if ld.entry != nil && ld.entry.gone {
		return
	}

	// Repeat a failed read later.
	if !store.Whole(r.Err) && (!fault.Is(r.Err, fault.Corrupt) || !ld.isSurvivable()) {
		ld.attempts++
		ld.at = now.Add(backoff(ld.attempts))
		l.loads.delayed = append(l.loads.delayed, ld)
		return
	}

	switch ld.Kind {
	case LoadRun:
		l.acceptRun(now, ld, r)
	case LoadReply:
		l.acceptReply(ld, r)
	case LoadRunnable:
		l.acceptRunnable(now, ld, r)
	case LoadTimers:
		l.acceptTimers(ld, r)
	case LoadMail:
		l.acceptMail(now, ld, r)
	case LoadProgress:
		l.acceptProgress(ld, r)
	case LoadExpired:
		l.acceptExpired(ld, r.Expired)
	case LoadDeadTask:
		l.acceptDeadTask(ld, r)
	case LoadFate:
		l.acceptFate(ld, r)
	case LoadWritten:
		l.acceptWritten(ld, r)
	case LoadEntity:
		l.acceptEntity(now, ld, r)
	case LoadMailbox:
		l.acceptMailbox(ld, r)
	case LoadMailboxes:
		l.acceptMailboxes(now, ld, r)
	}
}

// acceptRun puts a run that the lane has read into memory. If the lane has read it for a worker,
// the worker gets the run.
func (l *Lane) acceptRun(now model.Time, ld *Load, r LoadResult) {
	e := ld.entry
	if ld.version != e.version {
		if e.reading.active || e.reading.history {
			l.loads.add(ld)
		}
		return
	}

	e.reading.active, e.reading.due, l.room.tried = false, false, false
	if !e.known && r.Err == nil {
		x, err := recoverRun(r)
		if err != nil {
			r.Err = err
		} else {
			l.setRun(e, x)
			l.postTasks(now, e, queue.Neither)
			l.handOverAgain(e)
		}
	}

	if r.Err != nil {
		e.reading.endHistory()
		l.quarantine(now, e, model.Unreadable(r.Err))
		return
	}

	l.keepPaused(e, r.Execution)
	switch {
	case !e.reading.history:
	case r.Execution != nil && r.Execution.Start.Run == e.run():
		l.activateLoaded(now, e, r.Events)
	default:
		// There is no open run, or another lane has continued it. In the second case this lane will
		// soon learn that it is fenced.
		e.reading.endHistory()
		l.askAgain(e)
	}

	if len(e.backlog.inputs) > 0 {
		l.schedule(e)
	} else {
		l.maybeDrop(e)
	}
}

// recoverRun builds the state of a run from its rows. It returns nil if the address has no run. A
// closed run needs only the start and the outcome.
func recoverRun(r LoadResult) (*core.Execution, error) {
	row := r.Execution
	if row == nil {
		return nil, nil
	}
	if row.Outcome.Status.Closed() {
		return &core.Execution{Start: row.Start, Outcome: row.Outcome}, nil
	}

	timers := make([]core.Timer, len(r.Timers))
	for i, t := range r.Timers {
		timers[i] = core.Timer{ID: t.ID, Due: t.Due}
	}
	x, err := core.Recover(row.Start, row.Outcome, r.Events, timers)
	if err != nil {
		return nil, err
	}

	x.Parked, x.Blocked = row.Parked, row.Blocked
	if x.Parked && x.Withheld() == nil {
		x.MarkAllSeen()
	}
	return x, nil
}

// acceptReply answers a repeated request with the remembered answer. If there is no such answer,
// the lane applies the request.
func (l *Lane) acceptReply(ld *Load, r LoadResult) {
	e := ld.entry
	e.reading.active = false
	l.loadDue(e)

	in := ld.message
	// Two reads may look for the same answer. So note how many answers the lane had begun to
	// remember for the address when this read began.
	in.lookup.checked, in.lookup.served = true, ld.served

	none := r.Reply == nil && r.Err == nil && !in.lookup.seen
	var misused *model.Failure
	if r.Reply != nil && r.Err == nil {
		misused = misuseOf(in.origin.message, r.Reply)
	}

	switch {
	case none || len(e.backlog.inputs) == 0 || e.backlog.inputs[0] != input(in):
	case misused != nil && in.origin.token == nil:
		e.backlog.inputs[0] = l.answerWith(in, &model.Answer{Failure: misused}, true)
	case in.origin.message.From.ID != "": // a step waits for the answer, and the lane sends it the answer
		e.backlog.inputs[0] = l.answerWith(in, repeatedAnswer(r), false)
	case in.origin.remote():
		// The lane only has to consume the row of the request, or its position in the channel.
		in.origin.message = &model.Message{Kind: model.MessageNothing, To: e.address}
		l.budget.hold(in)
	default:
		e.backlog.inputs = e.backlog.inputs[1:]
		a := Answer{Err: r.Err}
		switch {
		case misused != nil:
			a = Answer{Answer: model.Answer{Failure: misused}}
			a.Err = core.RefusalOf(a.Answer)
		case r.Err == nil:
			a = RememberedAnswer(r.Reply)
		}
		a.Token = in.origin.token
		l.reply(*in.address, in.origin.awaits, a)
		l.finishInput(in)
	}

	if len(e.backlog.inputs) > 0 {
		l.schedule(e)
	} else {
		l.maybeDrop(e)
	}
}

// misuseOf returns why a request may not use the id of a remembered answer. It returns nil if the
// request may use the id.
func misuseOf(m *model.Message, r *store.Reply) *model.Failure {
	a, err := model.DecodeAnswer(r.Body)
	if err != nil {
		return nil // the caller learns that the answer cannot be read
	}
	return core.MisuseOfAnswered(m, &a)
}

// answerWith replaces a message by an input that only gives an answer.
func (l *Lane) answerWith(in *messageInput, a *model.Answer, misused bool) *answerInput {
	l.budget.unhold(in)
	answer := &answerInput{inputBase: in.inputBase, origin: in.origin, answer: a, misused: misused}
	l.budget.hold(answer)
	return answer
}

// repeatedAnswer returns the answer for a step whose request was served before.
func repeatedAnswer(r LoadResult) *model.Answer {
	err := r.Err
	if err == nil && r.Reply == nil {
		return &model.Answer{} // the lane served the request, and has removed the answer since
	}
	if err == nil {
		a := RememberedAnswer(r.Reply)
		if err = a.Err; err == nil || a.Answer.Failure != nil {
			return &a.Answer
		}
	}
	return &model.Answer{Failure: &model.Failure{Kind: fault.KindOf(err).String(), Message: err.Error()}}
}

// RememberedAnswer returns the answer that a request got when it was served.
func RememberedAnswer(r *store.Reply) Answer {
	if d := r.Damaged; d != nil {
		return Answer{Err: fault.New(fault.Corrupt, "the answer to request %q of %s: %s", r.ID, r.Address, d.Why)}
	}
	a, err := model.DecodeAnswer(r.Body)
	if err != nil {
		return Answer{Err: fault.New(fault.Corrupt, "the answer to request %q of %s: %w", r.ID, r.Address, err)}
	}
	return Answer{Answer: a, Err: core.RefusalOf(a)}
}

// acceptRunnable dispatches runs of newly acquired shards, and reads the next page.
func (l *Lane) acceptRunnable(now model.Time, ld *Load, r LoadResult) {
	for _, h := range r.Runnable {
		if l.passOver(h.Shard, h.Address, "a run") {
			continue
		}

		if e := l.entry(h.Address); e != nil {
			if e.known && e.run() != h.Run {
				// The lane knows that the run of the page is no longer the current one. If the
				// address still has rows in a batch, the store may refuse that change. Then the run
				// of the page is current after all, and the lane hands it out (see rollback).
				if e.wait.overlooked = e.dirty(); e.wait.overlooked {
					l.keepForHolder(e, h.Run)
				}
				continue
			}
			if !l.keepForHolder(e, h.Run) {
				l.dispatch(now, e)
			} else if e.known {
				l.maybeDrop(e)
			} else {
				l.loadSoon(e) // the tasks of the run continue even without its code
			}
		}
	}

	if len(r.Runnable) == ld.Limit {
		l.loads.add(&Load{Kind: LoadRunnable, Shards: ld.Shards, After: r.Runnable[len(r.Runnable)-1].RunKey, Limit: ld.Limit, begun: ld.begun})
		return
	}

	for _, id := range ld.Shards {
		if sh := l.shards[id]; sh != nil && sh.tenure == ld.begun {
			sh.listed = true
		}
	}
	l.endEarly(now)
}
