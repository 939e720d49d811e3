package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

func (in *claimInput) proposal() bool { return true }

// Claim tells the lane that the board proposes to give a task to a worker.
func (l *Lane) Claim(now model.Time, ref model.TaskRef, id queue.WorkerID, name string) {
	// The lane makes no claims in a shard that it gives up. The board forgets the tasks of the
	// shard when the shard is gone.
	if e := l.taskEntry(&ref); e != nil && !e.shard.draining {
		l.take(now, e, &claimInput{newProposal(e, &ref), id, name})
	}
}

// taskEntry finds the entry of the run of a task. It returns nil if the lane does not own the run.
func (l *Lane) taskEntry(ref *model.TaskRef) *entry {
	if l.dead != nil {
		return nil
	}
	if e := l.entry(ref.Address); e != nil && !e.shard.freeing {
		return e
	}
	return nil
}

// apply records the claim, if the board still proposes it and the task is free.
func (in *claimInput) apply(l *Lane, now model.Time, e *entry) {
	if e.run() != in.run || e.x == nil {
		l.applyToEndedRun(now, e, in)
		return
	}

	// Since the proposal, the lane may have reported the task to the board again. In that case
	// another worker may have the task, with the permits that were meant for this claim.
	var d taskDecision
	if l.cfg.Board.HasProposal(in.worker, model.TaskRef{Address: e.address, Run: in.run, ID: in.id}) {
		var ok bool
		if d.Decision, ok = core.Claim(e.x, in.id, in.name, now); ok {
			task := e.x.Task(in.id)
			e.tasks.posted.set(in.id, posting{held: true, claim: task.Claim, worker: in.worker})
			l.cfg.Board.Hold(now, l.item(e, e.x, task), task.Claim, in.worker, in.name)
		} else {
			l.repost(now, e, in.id)
		}
	}
	l.recordTask(now, e, in, &d)
}

// applyToEndedRun finishes an input about a task of a run that is not the current one. The lane
// keeps the input until all writes for the address are durable.
func (l *Lane) applyToEndedRun(now model.Time, e *entry, in input) {
	l.record(e, in, &core.Decision{})
	if r, ok := in.(*reportInput); ok {
		err := fault.New(fault.NotOwned, "the run of %s has ended", r.report.Ref.TaskRef)
		l.afterCommit(e, effect{kind: effSettled, entry: e, report: r, err: err})
	}
	l.postTasks(now, e, queue.Neither)
	l.maybeDrop(e)
}

// taskDecision is a decision about a task.
type taskDecision struct {
	core.Decision
	// what the end of the claim says about the outside system that the task calls, for the breaker
	how queue.Outcome
}

// recordTask records a decision about a task.
func (l *Lane) recordTask(now model.Time, e *entry, in input, d *taskDecision) {
	run, refusal := e.run(), d.Refusal()
	b := l.record(e, in, &d.Decision)
	if r, ok := in.(*reportInput); ok {
		l.afterCommit(e, effect{kind: effSettled, entry: e, report: r, err: refusal})
	}
	if d.Close != nil {
		b.effects = append(b.effects, effect{kind: effClosed, entry: e, run: run, outcome: d.Close})
	}
	l.postChanges(now, e, &d.Decision, d.how)
	l.maybeDrop(e)
}

// Report tells the lane how a claim ended. As soon as the end of the claim is durable, the lane
// tells the worker so.
func (l *Lane) Report(now model.Time, id queue.WorkerID, r *model.TaskReport) {
	e := l.taskEntry(&r.Ref.TaskRef)
	if e == nil {
		l.settle(id, r.Ref, ErrNotOwner)
		return
	}
	l.take(now, e, &reportInput{taskInput: newTaskInput(e, &r.Ref.TaskRef), worker: id, report: r})
}

func (in *reportInput) size() int { return inputBytes + in.report.Output.Size() }

func (in *reportInput) refuse(l *Lane, err error) { l.settle(in.worker, in.report.Ref, err) }

// If the run no longer remembers the claim, ready also reads the fate of the claim, which says how
// the claim ended.
func (in *reportInput) ready(l *Lane, e *entry) bool {
	if e.quarantine.why != nil {
		return true
	}
	if !l.ensureKnown(e) {
		return false
	}
	if in.fate == nil && e.needsFate(&in.report.Ref) {
		if !e.dirty() { // a batch in flight may have ended the claim
			l.loadFate(e, in, &in.report.Ref)
		}
		return false
	}
	return true
}

// applyPoisoned keeps the report until the quarantine is over. If there is no room for the report,
// or if the shard is about to move, the worker's session has to deliver the report again. The
// permits of the claim become free immediately, because its worker is done, and tasks of other runs
// must not wait for the end of the quarantine.
func (in *reportInput) applyPoisoned(l *Lane, now model.Time, e *entry) {
	if l.cfg.Board != nil {
		l.cfg.Board.Release(now, in.worker, in.report)
	}
	switch {
	case e.shard.draining:
		in.refuse(l, ErrNotOwner)
	case l.keep(e, in):
		return
	default:
		in.refuse(l, ErrLater)
	}
	l.finishInput(in)
}

// apply records how the claim ended, and tells the worker after the commit.
func (in *reportInput) apply(l *Lane, now model.Time, e *entry) {
	if e.hasUnknownClaim(in.fate, &in.report.Ref) {
		l.confirm(e)
	}
	switch {
	case in.fate != nil && in.fate.Reported: // a repetition gets the same answer
		l.record(e, in, &core.Decision{})
		l.afterCommit(e, effect{kind: effSettled, entry: e, report: in})
		l.maybeDrop(e)
	case e.x == nil || e.run() != in.run:
		l.applyToEndedRun(now, e, in)
	default:
		d := taskDecision{how: l.noteReport(now, e, in.report)}
		d.Decision = core.Report(e.x, in.report, now, l.cfg.Limits)
		l.recordTask(now, e, in, &d)
	}
}

// noteReport notes that the worker has ended its claim itself, so that the lane does not tell the
// worker to stop. It returns what the report says about the outside system that the task calls.
func (l *Lane) noteReport(now model.Time, e *entry, r *model.TaskReport) queue.Outcome {
	p, ok := e.tasks.posted.get(r.Ref.ID)
	if !ok || !p.held || p.claim != r.Ref.Claim || !e.isClaimOf(&r.Ref, r.By) {
		return queue.Neither
	}
	how := outcomeOf(e.x, r)
	p.worker = 0
	e.tasks.posted.set(r.Ref.ID, p)
	if task := e.x.Task(r.Ref.ID); task != nil && how == queue.Failed && r.RetryAfter > 0 {
		it := l.item(e, e.x, task)
		l.cfg.Board.RetryAfter(now, &it, now.Add(r.RetryAfter))
	}
	return how
}

// outcomeOf returns what a report says about the outside system that the task calls. The failure of
// a cancelled task says nothing about that system.
func outcomeOf(x *core.Execution, r *model.TaskReport) queue.Outcome {
	switch {
	case r.Returned || r.Failure != nil && x.Alone() && x.Canceling != 0:
		return queue.Neither
	case r.Failure == nil:
		return queue.Succeeded
	}
	return queue.Failed
}

func (in *expiryInput) proposal() bool { return true }

// Expire tells the lane that a deadline of a task has passed, as the board sees it. The parameter
// held says whether the task was claimed as far as the board knew, and the parameter what names the
// deadline.
func (l *Lane) Expire(now model.Time, ref model.ClaimRef, held bool, what string) {
	if e := l.taskEntry(&ref.TaskRef); e != nil {
		l.take(now, e, &expiryInput{newProposal(e, &ref.TaskRef), held, ref.Claim, what})
	}
}

// ready delays a time-out of an attempt until the claim of the attempt is durable. No worker starts
// the attempt before that. Without the delay, attempts would time out in memory while the store is
// away, and the board would propose the task again each time. So the task would use up all its
// attempts although no worker ever had it.
func (in *expiryInput) ready(l *Lane, e *entry) bool {
	early := e.dirty() && (in.what == model.TimeoutSilence || in.what == model.TimeoutToClose)
	return !early && l.ensureKnown(e)
}

// apply ends the attempt if its deadline has really passed.
func (in *expiryInput) apply(l *Lane, now model.Time, e *entry) {
	if e.x == nil || e.run() != in.run {
		l.applyToEndedRun(now, e, in)
		return
	}
	d := l.expireTask(now, e, in)
	l.recordTask(now, e, in, &d)
}

// expireTask decides what a passed deadline does.
func (l *Lane) expireTask(now model.Time, e *entry, in *expiryInput) (d taskDecision) {
	ref := model.ClaimRef{TaskRef: model.TaskRef{Address: e.address, Run: e.run(), ID: in.id}, Claim: in.claim}

	// After a rollback the lane uses the same claim number again, and the worker of the new claim
	// may have sent a heartbeat. So the lane asks the board once more.
	if in.what == model.TimeoutSilence && !l.cfg.Board.Overdue(ref) {
		return d
	}

	task := e.x.Task(in.id)
	if in.what == model.FailureLost && task != nil && task.Held && task.Claim == in.claim && l.isHere(e, task, ref) {
		l.resumeDeadlines(now, e, in)
		return d
	}

	// The worker belongs to another live node, or it is a remote worker that may come back. So its
	// claim is not lost yet. A report from another node comes as a message.
	if in.what == model.FailureLost && task != nil && task.Held && l.cfg.Board.Elsewhere(task.Worker) {
		// the worker never got the claim
		if task.Claim == in.claim && l.cfg.Board.IsDropped(task.Worker, ref) {
			d.Decision = core.Report(e.x, &model.TaskReport{Ref: ref, Returned: true}, now, l.cfg.Limits)
			return d
		}
		// Wait for another period.
		l.cfg.Board.Hold(now, l.item(e, e.x, task), task.Claim, 0, task.Worker)
		return d
	}

	d.Decision = core.Expire(e.x, core.Expiry{ID: in.id, Held: in.held, Claim: in.claim, What: in.what}, now, l.cfg.Limits)
	if d.HasWrites() {
		d.how = outcomeOfExpiry(in.what)
	} else {
		l.resumeDeadlines(now, e, in)
	}
	return d
}

// isHere reports whether the worker that has a claim is on the board. If the lane has undone the
// claim of a lost worker, another worker may have a new claim with the same number. So isHere
// compares the workers too.
func (l *Lane) isHere(e *entry, t *core.Task, ref model.ClaimRef) bool {
	p, ok := e.tasks.posted.get(t.ID)
	if !ok || !p.held || p.claim != t.Claim || p.worker == 0 {
		return false
	}
	id, _ := l.cfg.Board.Find(t.Worker, ref)
	return id == p.worker
}

// outcomeOfExpiry returns what a passed deadline says about the outside system that the task calls.
// If the attempt took too long, the system counts as failed. If the worker was silent or lost,
// nothing is known about the system.
func outcomeOfExpiry(what string) queue.Outcome {
	if what == model.TimeoutToClose || what == model.TimeoutTotal {
		return queue.Failed
	}
	return queue.Neither
}

// expireAgain lets the board check again whether a deadline has passed. The decision was rolled
// back, and the worker may have sent a heartbeat since.
func (l *Lane) expireAgain(now model.Time, e *entry, in *expiryInput) {
	l.resumeDeadlines(now, e, in)
	l.skip(e, in)
}

// resumeDeadlines restarts the deadlines of a task after the board reported a deadline that had no
// effect. This is necessary because the board reports each deadline only once.
func (l *Lane) resumeDeadlines(now model.Time, e *entry, in *expiryInput) {
	p, _ := e.tasks.posted.get(in.id)
	if t := taskOf(e, in.id); e.run() == in.run && t != nil && t.Held && p.held && p.claim == t.Claim {
		l.cfg.Board.Hold(now, l.item(e, e.x, t), p.claim, p.worker, t.Worker)
	} else {
		l.repost(now, e, in.id)
	}
}

// Attach tells the lane that a worker that has just joined executes a claim. If the worker no
// longer has the claim, the lane tells the worker to stop. The parameter by is the name of a remote
// worker; see model.SpeaksFor.
func (l *Lane) Attach(now model.Time, ref model.ClaimRef, id queue.WorkerID, by string) {
	l.attach(now, ref, attachInput{worker: id, by: by, has: true})
}

// HandOverAgain tells the lane that a worker has just joined and does not know a claim that the
// history gives to it. The last owner died before it handed the claim over, so the lane does that
// now.
func (l *Lane) HandOverAgain(now model.Time, ref model.ClaimRef, id queue.WorkerID, by string) {
	l.attach(now, ref, attachInput{worker: id, by: by})
}

func (l *Lane) attach(now model.Time, ref model.ClaimRef, in attachInput) {
	if e := l.taskEntry(&ref.TaskRef); e != nil {
		in.taskInput, in.claim = newTaskInput(e, &ref.TaskRef), ref.Claim
		l.take(now, e, &in)
	}
}

// apply connects the claim with its worker, or tells the worker to stop.
func (in *attachInput) apply(l *Lane, now model.Time, e *entry) {
	task := taskOf(e, in.id)
	switch p, ok := e.tasks.posted.get(in.id); {
	case e.x == nil || e.run() != in.run || task == nil || !task.Held || task.Claim != in.claim || !model.SpeaksFor(in.by, task.Worker):
		if in.has {
			l.stopUnknown(e, in)
			return
		}
	case ok && p.held && p.claim == in.claim && p.worker != in.worker:
		p.worker, p.warned = in.worker, false
		e.tasks.posted.set(in.id, p)
		l.cfg.Board.Hold(now, l.item(e, e.x, task), p.claim, p.worker, task.Worker)
		if !in.has {
			l.handOver(e, &effect{run: e.run(), task: &handover{id: task.ID, claim: task.Claim, worker: in.worker}})
		}
		l.postTask(now, e, task) // this warns the worker if its task is canceled
	}

	l.skip(e, in)
}

// Detach tells the lane that the worker of a claim has left, still executes the claim, and may come
// back. If the shard moves, the lane does not wait for this claim to end. If the worker does not
// come back in time, the claim is lost.
func (l *Lane) Detach(now model.Time, ref model.ClaimRef) {
	e := l.entries[ref.Address]
	if l.dead != nil || e == nil || e.shard.freeing {
		return // the lane does not have the claim, or is about to free its shard
	}
	p, ok := e.tasks.posted.get(ref.ID)
	task := taskOf(e, ref.ID)
	if !ok || !p.held || p.claim != ref.Claim || task == nil || !task.Held || task.Claim != ref.Claim {
		return
	}
	p.worker = 0
	e.tasks.posted.set(ref.ID, p)
	l.cfg.Board.Hold(now, l.item(e, e.x, task), p.claim, 0, task.Worker)
}

// stopUnknown tells a worker to stop a claim that the worker does not have according to the
// history.
func (l *Lane) stopUnknown(e *entry, in *attachInput) {
	if !e.hasPassed(in.run, in.claim) {
		l.confirm(e)
	}
	l.afterCommit(e, effect{kind: effStop, entry: e, run: in.run, task: &handover{id: in.id, worker: in.worker, claim: in.claim}})
	// The lane keeps the input, so that the worker gets the stop even if the store refuses the
	// batch.
	l.record(e, in, &core.Decision{})
}

// Progress tells the lane how far the worker of a claim is. The lane stores the last progress of
// each task next to the history, and the next attempt starts with it. The parameter by is as in
// Attach.
func (l *Lane) Progress(now model.Time, ref model.ClaimRef, by string, p model.Payload) {
	if e := l.taskEntry(&ref.TaskRef); e != nil {
		l.take(now, e, &progressInput{newTaskInput(e, &ref.TaskRef), ref.Claim, by, p})
	}
}

func (in *progressInput) size() int { return inputBytes + in.progress.Size() }

// apply stores the progress, if the claim still holds the task.
func (in *progressInput) apply(l *Lane, _ model.Time, e *entry) {
	ref := model.ClaimRef{TaskRef: model.TaskRef{Address: e.address, Run: in.run, ID: in.id}, Claim: in.claim}
	if !e.isClaimOf(&ref, in.by) {
		l.skip(e, in)
		return
	}
	b := l.open
	l.touch(b, e)
	b.putDatum(store.TaskDatum{RunKey: e.key(), Task: in.id, Value: in.progress})
	b.inputs = append(b.inputs, in)
}

func (in *reportInput) setFate(f *core.Fate) { in.fate = f }

func (in *messageInput) setFate(f *core.Fate) { in.fate = f }
