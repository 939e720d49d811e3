package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// size returns how many bytes the events and commands of the turn have.
func (in *turnInput) size() int {
	n := inputBytes
	for i := range in.turn.Commands {
		c := &in.turn.Commands[i]
		n += c.Event.Size()
		if c.Message != nil {
			n += c.Message.Size()
		}
	}
	if c := in.turn.Close; c != nil {
		n += c.Output.Size() + c.Input.Size()
	}
	return n
}

func (in *turnInput) applyPoisoned(l *Lane, _ model.Time, e *entry) {
	l.evictPoisoned(e, in.worker, in.turn)
	l.finishInput(in)
}

// apply records the turn. If the turn ended this run, apply gives the next run to a worker.
func (in *turnInput) apply(l *Lane, now model.Time, e *entry) {
	t := in.turn
	if !e.isHeld(t, in.worker) {
		l.applyStaleTurn(now, e, in)
		return
	}
	if e.hold.isSpoiled(t) {
		if t = e.hold.factsOf(t); len(t.Commands) == 0 {
			l.finishInput(in) // the worker loses the run when the turns before this one are stored
			return
		}
	}
	l.endPreview(now, e, t)

	var next model.RunID
	if t.Close != nil && (t.Close.Status == model.Continued || core.MayRepeat(e.x, t.Close)) {
		next = l.cfg.NewRun()
	}
	x, d, err := core.Apply(e.x, t, now, next, l.cfg.Limits)
	if err != nil {
		if !l.tryAnother(now, e, in, err) {
			l.blockOn(e, in, err)
		}
		return
	}
	refused := e.wait.refused
	e.wait.refused = nil
	if d.Close == nil {
		l.assign(now, e, x, &d)
	}

	b := l.record(e, in, &d)
	if d.Diverged {
		// The code ran ahead (see model.Turn), and other events came first. So only the first Ahead
		// commands of the turn are recorded, and the code has to continue from the events after
		// Seen.
		only := *t
		only.Ahead, only.Close, only.Waits = 0, nil, nil
		t = &only
		e.hold.preview.still, e.hold.preview.heard = false, t.Seen
	}
	if b == nil {
		l.noteTurn(now, e, t)
	} else {
		b.effects = append(b.effects, effect{kind: effWaits, entry: e, run: t.Run, turn: t})
	}

	switch {
	case d.Close != nil:
		b.effects = append(b.effects, effect{kind: effClosed, entry: e, run: t.Run, outcome: d.Close})
		l.letGo(b, e, "closed")
		l.askAgain(e)
		if x != e.x { // the code continues in a new run
			l.setRun(e, x)
			e.pending.fresh = true
			b.effects = append(b.effects, effect{kind: effActivate, entry: e, run: x.Start.Run})
		}
	case t.Blocked != nil:
		if b != nil {
			// The worker has given up the run by itself, so the lane need not evict it.
			call := Call{Worker: e.hold.worker, Run: e.hold.run, Generation: e.hold.gen}
			b.effects = append(b.effects, effect{kind: effBlocked, entry: e, call: call})
			e.eviction.missed = nil
		} else {
			l.answerTurn(in.worker, t.Run, t.Generation)
		}
		l.letGoQuietly(e)
		l.strand(e, t.Blocked.Bounded())
		e.wait.refused = l.alsoRefused(refused, in.worker)
		if b == nil {
			l.tryUntried(now, e)
		}
	case len(d.Events) > 0: // the worker gets the events back
	case b == nil:
		l.answerTurn(in.worker, t.Run, t.Generation)
	default:
		b.effects = append(b.effects, effect{kind: effTaken, entry: e, call: Call{Worker: in.worker, Run: t.Run, Generation: t.Generation}})
	}
	l.postChanges(now, e, &d, queue.Neither)
}

// answerTurn tells a worker that its turn is applied. A turn with events needs no such call,
// because the worker gets the events back.
func (l *Lane) answerTurn(w WorkerID, run model.RunID, gen uint64) {
	l.out.Calls = append(l.out.Calls, Call{Kind: CallTaken, Worker: w, Run: run, Generation: gen})
}

// applyStaleTurn handles the turn of a worker that lost the run while the turn waited. If the run
// is open and not parked, the lane hands it to a worker, because the lane may have undone a block
// of the run since.
func (l *Lane) applyStaleTurn(now model.Time, e *entry, in *turnInput) {
	l.finishInput(in)
	l.evictStale(in.worker, in.turn.Run, in.turn.Generation)
	if e.x != nil && e.x.Open() && !e.x.Parked {
		l.dispatch(now, e)
	}
	l.maybeDrop(e)
}

// mostRefused is how many turns of a run in a row the lane refuses before it blocks the run.
const mostRefused = 3

// alsoRefused adds a worker to those that cannot continue a run, and drops workers that have left.
func (l *Lane) alsoRefused(refused []WorkerID, id WorkerID) []WorkerID {
	here := slices.DeleteFunc(refused, func(w WorkerID) bool { return w == id || !l.workers.here[w] })
	return append(here, id)
}

// tryUntried gives a run that its worker has blocked to a worker that has not tried the run since
// it was last continued. The code of that worker may fit, for example because it is newer. If the
// first few workers have blocked the run, the run waits for a worker that joins, because all others
// may have the same code.
func (l *Lane) tryUntried(now model.Time, e *entry) {
	if e.gone || !e.known || e.x == nil || e.x.Blocked == nil || !e.wait.worker || len(e.wait.refused) > mostRefused || !l.workers.hasUntried(e, e.x.Pin) {
		return
	}
	l.workers.unstrand(e)
	l.dispatch(now, e)
}

// tryAnother takes a run from a worker whose turn cannot be applied and gives it to another worker,
// because the fault may be only in the first worker. It returns false if no other worker is left to
// try, or if the run has reached a limit, which would stop every worker.
func (l *Lane) tryAnother(now model.Time, e *entry, in *turnInput, err error) bool {
	e.wait.refused = append(e.wait.refused, in.worker)
	if fault.Is(err, fault.Exhausted) || len(e.wait.refused) > mostRefused || !l.workers.hasUntried(e, e.x.Pin) {
		e.wait.refused = nil
		return false
	}
	l.finishInput(in)
	if e.hold.hasPreview() {
		// The worker loses the run when its earlier turns are stored. If the store refuses them,
		// the lane applies them again.
		e.hold.preview.spoiled = true
		return true
	}

	b := l.batchOf(e)
	l.letGo(b, e, "its turn cannot be applied: "+model.Cut(err.Error(), model.MaxReasonText))
	if b != nil {
		// The lane has dropped the turn, so the worker cannot keep the run even if the store
		// refuses the batch.
		b.effects[len(b.effects)-1].moot = true
	}
	l.dispatch(now, e)
	return true
}

// blockOn blocks a run whose turn cannot be applied, and stores the reason. A second attempt would
// fail too.
func (l *Lane) blockOn(e *entry, in *turnInput, err error) {
	why := &model.Reason{Code: model.WaitMismatch, Detail: model.Cut(err.Error(), model.MaxReasonText)}
	if fault.Is(err, fault.Exhausted) {
		why.Code = model.WaitLimit
	}
	blocked := model.Turn{Run: in.turn.Run, Generation: in.turn.Generation, Seen: min(in.turn.Seen, e.x.Next-1), Blocked: why}
	_, d, err := core.Apply(e.x, &blocked, e.x.Last, model.RunID{}, l.cfg.Limits)
	if err != nil {
		l.finishInput(in) // the run has closed since, so there is nothing to block
	} else if b := l.record(e, in, &d); why.Code == model.WaitLimit {
		l.reachLimit(b, e, why)
	}
	l.letGo(l.batchOf(e), e, why.String())
	l.strand(e, *why)
}

func (in *releaseInput) applyPoisoned(l *Lane, _ model.Time, e *entry) {
	l.evictPoisoned(e, in.worker, in.turn)
	l.finishInput(in)
}

// apply lets the worker release the run, if the worker has seen everything that was committed for
// the run.
func (in *releaseInput) apply(l *Lane, now model.Time, e *entry) {
	t := in.turn
	if !e.isHeld(t, in.worker) || e.hold.isSpoiled(t) {
		l.skip(e, in)
		return
	}
	if len(t.Waits) == 0 {
		l.finishInput(in)
		l.takeBack(now, e, "given back")
		return
	}

	d, ok := core.Release(e.x, t.Seen, t.Waits, l.cfg.Limits)
	b := l.record(e, in, &d)
	if !ok && l.mustLeave(e) {
		// The worker gives up the run, so it repeats no step, even if the lane has asked for a
		// retry that the worker has not seen. Such a retry must not keep the run busy, because the
		// run must leave.
		e.hold.retrying = nil
		l.noteTurn(now, e, t)
	}
	if ok {
		e.wait.reasons = model.BoundedReasons(t.Waits)
		l.letGo(b, e, "released")
		if core.RetryDue(e.x, now) || len(e.queries) > 0 {
			l.dispatch(now, e) // the retry or the query came after the worker had sent the release
		}
		l.maybeDrop(e)
	}
}

// isHeld reports whether the worker holds the run in the generation of the turn.
func (e *entry) isHeld(t *model.Turn, w WorkerID) bool {
	return e.x != nil && e.x.Start.Run == t.Run && e.hold.by(w, t.Generation)
}

// evictPoisoned tells a worker that the run it reports on is quarantined.
func (l *Lane) evictPoisoned(e *entry, w WorkerID, t *model.Turn) {
	l.out.Calls = append(l.out.Calls, Call{
		Kind: CallEvict, Worker: w, Run: t.Run, Generation: t.Generation, Reason: e.refusal().Error(),
	})
}

// noteTurn notes what the code waits for and whether it may be running a step. A run that must
// leave its worker leaves when no step runs. Until then the worker starts no further step, because
// the lane does not let it continue.
func (l *Lane) noteTurn(now model.Time, e *entry, t *model.Turn) {
	if e.hold.gen != t.Generation || t.Close != nil || t.Blocked != nil {
		return
	}
	e.hold.hear(t)
	e.hold.busy = e.hold.hasBegun(t) || e.hold.busy
	e.wait.reasons = model.BoundedReasons(t.Waits)
	l.room.weigh(e)
	l.room.tried = false

	// The code continues with the events just committed.
	continues := len(t.Waits) == 0 || hasCode(t.Waits, model.WaitStep)
	switch {
	case e.hold.busy:
	case e.hold.withheld && !e.shard.draining: // drainShards handles a shard that is given up
		l.takeBack(now, e, l.whyLeave(e))
	case !l.mustLeave(e):
		e.hold.busy = continues
	}
	if !e.hold.busy && !continues {
		e.hold.seat.leave()
	}
}
