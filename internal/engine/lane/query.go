package lane

import (
	"maps"
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// applyQuery asks the code of a run, and first gives the run to a worker if necessary. A parked run
// stays parked.
func (l *Lane) applyQuery(now model.Time, e *entry, in *messageInput) {
	refused := l.cannotAsk(e, in)
	if refused != nil {
		f := &model.Failure{Kind: fault.KindOf(refused).String(), Message: refused.Error()}
		l.record(e, in, &core.Decision{Answer: model.Answer{Run: e.run(), Failure: f}})
		return
	}

	q := l.questions.add(e, &in.origin)
	l.budget.unhold(in)
	if run := l.endedRun(e, q.message); !run.IsZero() {
		q.recaller, q.recalls = l.recaller(e), run
		l.recall(q)
		return
	}

	switch {
	case e.hold.free() || l.mustLeave(e) || e.hold.withheld:
		l.dispatch(now, e) // does nothing if the run is already on its way to a worker
	default:
		l.ask(q)
	}
}

// cannotAsk returns why the code of a run cannot answer, or nil if it can.
func (l *Lane) cannotAsk(e *entry, in *messageInput) error {
	x, m := e.x, in.origin.message
	switch {
	case x == nil:
		return fault.New(fault.NotFound, "execution %s does not exist", m.To)
	case !l.endedRun(e, m).IsZero():
		if l.recaller(e) == 0 {
			return fault.New(fault.Unavailable, "execution %s has ended (%s), and no worker of its owner has the code to replay it: %s", m.To, x.Outcome.Status, noWorker(e))
		}
	case x.Paused == nil && x.Withheld() != nil:
		return fault.New(fault.Blocked, "execution %s %s: its code cannot be asked before that time", m.To, x.Withheld())
	case x.Paused != nil:
		return fault.New(fault.Blocked, "execution %s %s: its code cannot be asked until it is resumed", m.To, x.Paused)
	case x.Blocked != nil && e.hold.free() && !e.reading.history:
		if err := core.LimitReached(m.To, x.Blocked); err != nil {
			return err
		}
		return fault.New(fault.Blocked, "execution %s %s", m.To, x.Blocked)
	case e.hold.free() && e.wait.worker:
		return fault.New(fault.Unavailable, "execution %s %s", m.To, noWorker(e))
	}

	switch {
	case len(e.queries) >= l.cfg.MaxBacklog:
		return fault.New(fault.Exhausted, "%d queries of %s have not been answered, which is the limit", len(e.queries), m.To)
	case !in.origin.inbox.IsZero() && l.questions.foreign.full(m, l.mailBytes()):
		return fault.New(fault.Exhausted, "%d queries of other processes with %d bytes have not been answered, which is the limit", l.questions.foreign.count, l.questions.foreign.bytes)
	}
	return nil
}

// ask sends the question to the worker that holds the run.
func (l *Lane) ask(q *query) {
	l.out.Calls = append(l.out.Calls, Call{
		Kind: CallQuery, Worker: q.entry.hold.worker, Run: q.entry.hold.run, Generation: q.entry.hold.gen,
		Query: &model.Query{ID: q.id, Name: q.message.Name, Input: q.message.Input},
	})
}

// askAll sends the questions about an open run to the worker that has it now.
func (l *Lane) askAll(e *entry) {
	for _, q := range e.queries {
		if q.recaller == 0 {
			l.ask(q)
		}
	}
}

// endedRun returns the run that a query is about if that run has ended: the current run after its
// end, or an earlier run.
func (l *Lane) endedRun(e *entry, m *model.Message) model.RunID {
	switch {
	case !m.ToRun.IsZero() && m.ToRun != e.run():
		return m.ToRun
	case !e.x.Open():
		return e.run()
	}
	return model.RunID{}
}

// recaller chooses the worker that replays a run that has ended. It returns 0 if no worker has the
// code.
func (l *Lane) recaller(e *entry) WorkerID {
	return l.workers.pick(kind{e.address.Tenant, e.address.Type}, e.x.Pin)
}

// recall lets a worker read the history of a run that has ended, replay it and answer.
func (l *Lane) recall(q *query) {
	l.out.Calls = append(l.out.Calls, Call{
		Kind: CallRecall, Worker: q.recaller, Run: q.recalls, Generation: l.workers.nextGen(), Address: q.entry.address,
		Query: &model.Query{ID: q.id, Name: q.message.Name, Input: q.message.Input},
	})
}

// dropRecalls gives up the replays of a worker that has left: the callers ask again.
func (l *Lane) dropRecalls(id WorkerID) {
	for _, n := range slices.Sorted(maps.Keys(l.questions.open)) {
		if q := l.questions.open[n]; q != nil && q.recaller == id {
			l.askAgain(q.entry)
			l.maybeDrop(q.entry)
		}
	}
}

// QueryAnswer is the code's answer to a query.
type QueryAnswer struct {
	Run        model.RunID
	Generation uint64 // of the hand-over; ignored for a run that has ended
	ID         uint64 // of the query
	Output     model.Payload
	Failure    *model.Failure
}

// AnswerQuery tells the lane the code's answer to a query. The lane drops an answer that no caller
// waits for.
func (l *Lane) AnswerQuery(now model.Time, w WorkerID, got QueryAnswer) {
	q := l.questions.open[got.ID]
	if q == nil || l.dead != nil || !q.isAnsweredBy(w, got.Run, got.Generation) {
		return
	}
	l.dropQuery(q)
	a := model.Answer{Run: got.Run, Status: model.Running, Output: got.Output, Failure: got.Failure.Bounded()}
	if q.inbox.IsZero() {
		l.answer(Answer{Token: q.token, Answer: a, Err: core.RefusalOf(a)})
		l.maybeDrop(q.entry)
		return
	}
	l.take(now, q.entry, &answerInput{inputBase: inputBase{address: &q.entry.address}, origin: source{message: q.message, inbox: q.inbox}, answer: &a})
}

func (l *Lane) dropQuery(q *query) {
	l.questions.remove(q)
	l.room.tried = false
}

// dropQueries forgets the queries of a caller that no longer waits, including queries that the code
// has not got yet.
func (l *Lane) dropQueries(e *entry, token any) {
	recalled := e.hasRecall()
	for _, q := range slices.Clone(e.queries) {
		if q.token == token {
			l.dropQuery(q)
		}
	}

	e.backlog.inputs = slices.DeleteFunc(e.backlog.inputs, func(in input) bool {
		if m, ok := in.(*messageInput); !ok || m.origin.token != token || !m.is(model.MessageQuery) {
			return false
		}
		l.finishInput(in)
		return true
	})

	if recalled {
		l.maybeDrop(e)
	}
}

// askAgain gives up the queries of an entry: the callers must ask again, perhaps another owner.
func (l *Lane) askAgain(e *entry) {
	if l.dead != nil || e.shard.draining {
		l.refuseQueries(e, ErrNotOwner)
	} else {
		l.refuseQueries(e, ErrAskAgain)
	}
}

// refuseQueries ends the queries of an entry with an error. Queries of other processes are still in
// the store, and the lane reads them again.
func (l *Lane) refuseQueries(e *entry, err error) {
	for _, q := range slices.Clone(e.queries) {
		l.dropQuery(q)
		if q.inbox.IsZero() {
			l.answer(Answer{Token: q.token, Err: err})
			continue
		}
		l.mail.untake(q.inbox)
		if !e.shard.draining {
			l.MailWaits()
		}
	}
}
