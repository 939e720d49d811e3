package lane

import (
	"errors"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// apply decides what an input does, and writes the decision into the open batch. If the decision
// sends messages within the lane, apply also writes what these messages do.
func (l *Lane) apply(now model.Time, e *entry, in input) {
	l.applyOne(now, e, in)
	l.passOn(now)
}

func (l *Lane) applyOne(now model.Time, e *entry, in input) {
	if e.quarantine.why != nil {
		in.applyPoisoned(l, now, e)
		return
	}
	l.applyWatched(now, e, in)
}

// applyWatched applies an input, also to a quarantined address. If the lane reports facts, it first
// takes a snapshot of the address, because facts compare the state before and after the decision.
func (l *Lane) applyWatched(now model.Time, e *entry, in input) {
	if l.cfg.Watched {
		l.snapshot.take(e, in)
	}
	in.apply(l, now, e)
}

// apply gives the message to the code that handles its kind.
func (in *messageInput) apply(l *Lane, now model.Time, e *entry) {
	m := in.origin.message
	switch {
	case in.isForced():
		l.applyForced(now, e, in)
	case in.origin.isRepeated():
		l.skip(e, in)
	case e.isEntity():
		l.applyToEntity(now, e, in)
	case m.Kind == model.MessageQuery:
		l.applyQuery(now, e, in)
	case m.Kind == model.MessageWrite:
		l.applyWrite(now, e, in)
	default:
		l.applyMessage(now, e, in)
	}
}

// applyMessage decides about a message for a run.
func (l *Lane) applyMessage(now model.Time, e *entry, in *messageInput) {
	l.addTrace(in.origin.message)

	// If the lane has not read the address, it assumes that the address has no run. The commit
	// shows whether that is true.
	assumed := !e.known
	how := queue.Neither
	if r := in.origin.message.Report; in.is(model.MessageReport) && e.x != nil && e.run() == r.Ref.Run {
		how = l.noteReport(now, e, r)
	}
	if ref := in.report(); ref != nil && e.hasUnknownClaim(in.fate, ref) {
		l.confirm(e)
	}
	x, d := l.decide(now, e, in)

	// After a decision that starts or removes a run, x is the current run of the address. If core
	// refused a start before the lane has read the address, x says nothing about the current run.
	if d.Start != nil || len(d.Deletes) > 0 {
		l.setRun(e, x)
	}
	if d.Start != nil && x.Alone() {
		l.assign(now, e, x, &d)
	}

	b := l.record(e, in, &d)
	switch {
	case d.Start != nil:
		row := &b.batch.Starts[len(b.batch.Starts)-1]
		row.IfAbsent = assumed
		e.pending.starting, e.pending.fresh = assumed, x.Open()
		e.ours = e.run()
		if d.Close != nil && x.Open() {
			l.giveWay(b, e, &d)
		}
	case d.Close != nil:
		l.terminate(b, e, d.Close)
	}
	l.postChanges(now, e, &d, how)
}

// terminate handles a run that ends without a turn of its worker, for example because an operator
// has terminated it: the lane takes the run from its worker.
func (l *Lane) terminate(b *building, e *entry, o *model.Outcome) {
	why := "ended"
	if o.Failure != nil {
		why = o.Failure.Message
	}
	b.effects = append(b.effects, effect{kind: effClosed, entry: e, run: e.run(), outcome: o})
	l.letGo(b, e, why)
	l.stopReading(e)
	l.workers.unstrand(e)
	l.askAgain(e) // a caller that asks again after the commit learns that the run is closed
}

// giveWay handles a reset. The worker of the run that the reset ends loses this run after the
// commit. Then a worker gets the next run.
func (l *Lane) giveWay(b *building, e *entry, d *core.Decision) {
	b.effects = append(b.effects, effect{kind: effClosed, entry: e, run: d.Closed, outcome: d.Close})
	l.letGo(b, e, "reset")
	l.askAgain(e)
	l.stopReading(e)
	l.workers.unstrand(e)
	b.effects = append(b.effects, effect{kind: effActivate, entry: e, run: e.run()})
}

// stopReading gives up reading the history of a run that is over. The next run of the address has
// its own history.
func (l *Lane) stopReading(e *entry) {
	if e.reading.history {
		e.reading.endHistory()
		e.version++
	}
}

// apply stores an answer that is known already.
func (in *answerInput) apply(l *Lane, _ model.Time, e *entry) {
	if in.origin.isRepeated() {
		l.skip(e, in)
		return
	}
	d := core.Decision{Answer: *in.answer}
	if from := in.origin.message.From; from.ID != "" {
		d.Messages = []model.Message{{
			Kind: model.MessageAnswer, To: from.Address, ToRun: from.Run, ID: from.ID, Input: in.answer.Output, Failure: in.answer.Failure,
		}}
	}
	l.record(e, in, &d)
}

// newRunFor returns the id for the run that a message may start. It draws an id only for messages
// that can start a run, because a simulation records each id that the lane draws.
func (l *Lane) newRunFor(m *model.Message) model.RunID {
	switch {
	case !m.Fresh.IsZero():
		return m.Fresh
	case m.Kind == model.MessageStart, m.Kind == model.MessageRequeue && m.DeadTask.Do == model.DeadTaskRequeue:
		return l.cfg.NewRun()
	}
	return model.RunID{}
}

// decide asks core what a message does.
func (l *Lane) decide(now model.Time, e *entry, in *messageInput) (*core.Execution, core.Decision) {
	m := in.origin.message
	if in.isReported() {
		// The store says that the report was counted before, so the worker gets the same answer as
		// before.
		return e.x, core.Decision{Answer: model.Answer{Run: m.ToRun, Status: in.fate.Status}}
	}

	if !in.isDeadTaskOrder() {
		if d, busy := e.refuseBusy(m); busy {
			return e.x, d
		}
		return core.Deliver(e.x, m, now, l.newRunFor(m), l.cfg.Limits)
	}

	var dead *core.StoredDeadTask
	if in.deadTask != nil {
		if err := in.deadTask.err; err != nil {
			if o := m.DeadTask; o.Do == model.DeadTaskPurge && o.Damaged && fault.Is(err, fault.Corrupt) && !errors.Is(err, model.ErrNewer) {
				return e.x, core.PurgeDamaged(o)
			}
			return e.x, core.Decision{Answer: model.Answer{Failure: &model.Failure{Kind: fault.KindOf(err).String(), Message: err.Error()}}}
		}
		dead = in.deadTask.row
	}

	return core.DeliverDeadTaskOrder(e.x, m, dead, now, l.newRunFor(m))
}

func (b *inputBase) apply(*Lane, model.Time, *entry) {}

func (b *inputBase) applyPoisoned(l *Lane, _ model.Time, _ *entry) { l.finishInput(b) }

func (b *inputBase) refuse(*Lane, error) {}

func (in *messageInput) refuse(l *Lane, err error) { in.origin.refuse(l, *in.address, err) }

func (in *answerInput) refuse(l *Lane, err error) { in.origin.refuse(l, *in.address, err) }

// refuse answers the caller of the message with an error.
func (s *source) refuse(l *Lane, to model.Address, err error) {
	l.reply(to, s.awaits, Answer{Token: s.token, Err: err})
}
