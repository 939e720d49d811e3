package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// FinishCalls tells the lane the results of calls that a worker has run. The lane drops results
// that it no longer waits for.
func (l *Lane) FinishCalls(now model.Time, w WorkerID, r *model.Operated) {
	j := l.jobs[r.Generation]
	if j == nil {
		l.finishForgotten(r.Generation, w)
	}
	if l.dead != nil || j == nil || j.worker != w {
		return
	}
	l.removeJob(j)
	l.noteSpeed(now, j)
	j.result, j.size, j.until = r, r.Size(), now
	l.take(now, j.entry, &resultInput{inputBase{address: &j.entry.address}, j})
}

// forgetJob gives up a hand-over without telling the worker. So the slot stays taken until the
// worker reports.
func (l *Lane) forgetJob(j *job) {
	if s := j.seat.move(); s.slots != nil {
		l.forgotten[j.gen] = s
	}
	l.removeJob(j)
}

// finishForgotten handles the report of a worker about a hand-over that the lane has given up: it
// frees the slot.
func (l *Lane) finishForgotten(gen uint64, w WorkerID) {
	if s := l.forgotten[gen]; s.worker == w {
		delete(l.forgotten, gen)
		s.leave()
	}
}

func (l *Lane) removeJob(j *job) {
	delete(l.jobs, j.gen)
	l.endAhead(j)
	j.seat.leave()
	a := j.entry.actor
	a.jobs = slices.DeleteFunc(a.jobs, func(o *job) bool { return o == j })
}

func (in *resultInput) size() int { return inputBytes + in.job.size }

func (in *resultInput) applyPoisoned(l *Lane, _ model.Time, e *entry) {
	in.refuse(l, e.refusal())
	l.finishInput(in)
}

// refuse tells the callers of these calls that the lane does not record the result.
func (in *resultInput) refuse(l *Lane, err error) {
	for _, it := range in.job.items {
		l.refuseCall(it, *in.address, err, true)
	}
}

// apply records the results of calls.
func (in *resultInput) apply(l *Lane, now model.Time, e *entry) {
	j := in.job
	d, ok := e.actor.entity.Apply(j.items, j.result, j.version, now)
	if !ok {
		// The calls ran on a state that the lane has rolled back since. They run again.
		l.keepUnstored(e, j)
		l.finishInput(in)
		l.operate(now, e)
		return
	}
	if e.actor.entity.Idle() {
		// The entity starts to rest before the lane records the decision. Otherwise an entry
		// without a write would leave memory immediately.
		l.restUntil(now, e)
	}

	made := j.items[:min(len(j.result.Results), len(j.items))]
	if j.isView() && !d.HasWrites() {
		if l.cfg.Watched {
			l.noteFacts(nil, e, in, &d)
		}
		l.finishInput(in)
		for i, it := range made {
			l.answer(j.answerOf(i, it)) // a view without a request id: only its caller waits for it
		}
	} else {
		b := l.record(e, in, &d)

		// Callers without a request id get their answer after the commit, or now if there is
		// nothing to commit.
		for i, it := range made {
			if res := &j.result.Results[i]; res.Unmade && it.Message.OneWay && it.Seq != 0 {
				// The worker could not make the call. The sender already has the answer that the
				// call is stored, so the call becomes a dead letter.
				l.keepRefused(b, e, it.Message, res.Failure)
			}
			switch a := j.answerOf(i, it); {
			case it.Message.RequestID != "" || a.Token == nil:
				// A request is answered by its id, and without a token no caller waits.
			case b == nil:
				l.answer(a)
			default:
				b.effects = append(b.effects, effect{kind: effAnswer, entry: e, answer: a})
			}
		}
	}
	l.operate(now, e)
}

// keepUnstored gives the calls that exist only in a job back to the entity.
func (l *Lane) keepUnstored(e *entry, j *job) {
	var lost []*core.Item
	for _, it := range j.items {
		if it.Seq == 0 && e.actor.entity.Current(it) == nil {
			lost = append(lost, it)
		}
	}
	e.actor.entity.Keep(lost)
}

// dropResults drops results that have arrived but are not applied.
func (l *Lane) dropResults(e *entry, why error) {
	e.backlog.inputs = slices.DeleteFunc(e.backlog.inputs, func(in input) bool {
		if _, ok := in.(*resultInput); !ok {
			return false
		}
		if why != nil {
			in.refuse(l, why)
		}
		l.finishInput(in)
		return true
	})
}
