package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// stage is how far the lane is in dealing with a commit that did not succeed.
type stage uint8

const (
	stageNone      stage = iota
	stageResend          // send the same batch again at the given time
	stageRefence         // move the fence at the given time
	stageRefencing       // waiting for the fence
	stageVerifying       // waiting for a look at what the starts of a landed batch met
)

// recovery is how a failed commit is being dealt with.
type recovery struct {
	stage    stage
	at       model.Time // when to go on; zero for as soon as possible
	attempts int
	lost     int     // commits of the batch in flight whose outcome was unknown, and that did not land
	broken   int     // commits of it that the store broke off
	patience int     // see store.Batch
	chunks   []chunk // see careful.go
}

const (
	lostTries    = 2 // lost commits of a batch before it is split
	brokenTries  = 6 // broken commits of a batch before it is split
	mostPatience = 6
)

// over notes that the batch in flight has been dealt with. What is left of it needs as much time.
func (r *recovery) over() {
	r.stage, r.at, r.attempts, r.lost, r.broken = stageNone, 0, 0, 0, 0
}

// wait gives the next commit more time.
func (r *recovery) wait() { r.patience = min(r.patience+1, mostPatience) }

// busy reports whether the batch in flight is being dealt with, so that nothing else may be sealed.
func (r *recovery) busy() bool { return r.stage != stageNone }

// Committed hands in the result of a commit.
func (l *Lane) Committed(now model.Time, res store.Committed, err error) {
	l.now = now
	if l.dead != nil || l.flight == nil {
		return
	}
	if err == nil {
		l.landed(now, res)
		return
	}
	r := &l.recovery
	r.attempts++
	switch store.ClassOf(err) {
	case store.Retryable:
		// The store gives up on a batch that takes it too long with this class as well, and would do so for ever.
		if r.broken++; r.broken >= brokenTries {
			r.wait()
			if l.split(now) {
				return
			}
		}
		r.stage, r.at = stageResend, 0
		if r.attempts > 3 {
			r.at = now.Add(backoff(r.attempts - 3))
		}
	case store.Away: // whatever its size: a smaller batch would not be stored either
		l.away(now, stageResend, err)
	case store.Unknown:
		r.stage, r.at = stageRefence, 0
	case store.Refused:
		l.refused(now, err)
	case store.Fenced:
		l.die(err)
	}
}

// recover goes on with a failed commit when its time has come.
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
		l.carefulStep(now)
	}
}

// Refenced hands in the result of moving the fence: the orphan of an unknown commit can do nothing any more, and
// landed tells whether it did (L4).
func (l *Lane) Refenced(now model.Time, epoch, landed int64, err error) {
	if l.dead != nil || l.recovery.stage != stageRefencing {
		return
	}
	r := &l.recovery
	switch {
	case err != nil && store.ClassOf(err) == store.Fenced:
		l.die(err)
	case err != nil:
		// Whether or not the fence has moved: asking again moves it once more. The epoch is only raised by a fence that
		// stands at ours, so an unknown outcome leaves us fenced by ourselves; the node then starts over.
		r.attempts++
		l.away(now, stageRefence, err)
	case landed == l.flight.batch.Number:
		l.cfg.Ref.Epoch = epoch
		l.verify(now)
	case landed == l.flight.batch.Number-1:
		l.cfg.Ref.Epoch = epoch
		r.wait() // perhaps it was too large for its time
		if r.lost++; r.lost < lostTries || !l.split(now) {
			r.stage, r.at = stageResend, 0
		}
	default:
		l.die(fault.New(fault.Internal, "fence of lane %d stands at batch %d while %d is in flight", l.cfg.Ref.Lane, landed, l.flight.batch.Number))
	}
}

// verify finds out which starts of a batch that landed unseen met an existing run.
func (l *Lane) verify(now model.Time) {
	for _, s := range l.flight.batch.Starts {
		if s.IfAbsent {
			l.out.Verify = append(l.out.Verify, s)
		}
	}
	if len(l.out.Verify) == 0 {
		l.landed(now, store.Committed{})
		return
	}
	l.recovery.stage = stageVerifying
}

// Verified hands in the current runs of the addresses that Verify named, in the same order.
func (l *Lane) Verified(now model.Time, rows []*store.Execution, err error) {
	if l.dead != nil || l.recovery.stage != stageVerifying {
		return
	}
	if err != nil {
		l.recovery.attempts++
		l.recovery.stage, l.recovery.at = stageRefence, now.Add(backoff(l.recovery.attempts))
		return
	}
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
	l.landed(now, res)
}

// landed goes on after a batch has been committed.
func (l *Lane) landed(now model.Time, res store.Committed) {
	l.recovery.over()
	l.farewells = 0
	b := l.flight
	l.widen(b)
	for _, x := range res.Existing {
		l.startMetRun(now, b, x)
	}
	l.committed(now, b)
	l.carefulLanded()
	if r := &l.recovery; !r.careful() && r.patience > 0 {
		r.patience-- // little by little: the path is as slow as it was
	}
}

// startMetRun takes back a start that found its address in use: nothing of it was written. The input is applied again, now
// that we know there is a run.
func (l *Lane) startMetRun(now model.Time, b *building, x store.ExistingStart) {
	run := b.batch.Starts[x.Index].Start.Run
	e := l.entries[b.batch.Starts[x.Index].Start.Address]
	b.effects = deleteEffects(b.effects, run)
	b.untold(run)
	for _, in := range b.inputs {
		if in.kind == inMessage && in.message.Kind == model.MessageStart && in.address == e.address {
			again := *in
			again.checked, again.held, again.kept = true, 0, false
			e.backlog = append([]*input{&again}, e.backlog...)
			l.hold(&again)
		}
	}
	l.forget(e)
	l.unpost(now, e)
	if x.Execution.Outcome.Status.Closed() {
		l.setRun(e, &core.Execution{Start: x.Execution.Start, Outcome: x.Execution.Outcome})
	} else if !x.Execution.Parked {
		l.dispatch(now, e) // whoever found it runnable meanwhile was told that it had gone on
	}
}

// deleteEffects removes the activation of a run that was not started and the answer to whoever asked for it.
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

// die ends the lane: it is not the owner of anything any more (L5). Whoever waits is told to ask again, of whoever is; with the same request
// id, because what was in flight may have landed.
func (l *Lane) die(err error) {
	l.end(fault.New(fault.Unavailable, "this node lost its lease: %w", err), "the node lost its lease")
}

// end ends the lane. Workers hear why.
func (l *Lane) end(dead error, why string) {
	l.dead = dead
	l.out = Output{Dead: l.dead, Calls: l.out.Calls, TaskCalls: l.out.TaskCalls, Answers: l.out.Answers, Facts: l.out.Facts}
	fail := func(in *input) {
		l.unstored.add(in)
		if in.kind == inReport {
			l.settled(in.task.worker, in.task.report.Ref, ErrNotOwner)
		}
		l.reply(in.address, in.awaits, Answer{Token: in.token, Err: ErrNotOwner})
		l.unheard(in, ErrNotOwner)
	}
	for _, b := range [...]*building{l.flight, l.open} {
		if b == nil {
			continue
		}
		for _, in := range b.inputs {
			fail(in)
		}
		for i := range b.effects {
			if f := &b.effects[i]; f.kind == effEvict && !f.heard {
				// whether or not it is true any more: nobody else will tell the worker
				f.call.Reason = why
				l.out.Calls = append(l.out.Calls, f.call)
			}
		}
	}
	for _, e := range l.sorted(func(*entry) bool { return true }) {
		if e.isEntity() {
			l.abandon(e, ErrNotOwner) // with the results in its backlog
		}
		for _, in := range e.backlog {
			fail(in)
		}
		l.refuseReports(e)
		l.letGoNow(e, why)
		l.askAgain(e)
	}
	if l.flight != nil {
		l.carefulLanded() // the first chunk is what is in flight
	}
	l.failCareful(fail)
	l.failWaiters()
	l.failWatchers()
}

// Die tells the lane that its node has been fenced.
func (l *Lane) Die(err error) {
	if l.dead == nil {
		l.die(err)
	}
}
