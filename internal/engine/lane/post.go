package lane

import (
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// assign lets tasks start in the commit that creates them, if workers are free. It does nothing
// while the lane applies the inputs of a refused batch again. If that batch ended another claim,
// the claim is open again, but the board no longer knows it. So its worker and its permits seem to
// be free until the lane has applied the end of the claim again. The board proposes the task later.
func (l *Lane) assign(now model.Time, e *entry, x *core.Execution, d *core.Decision) {
	if l.cfg.Board == nil || e.shard.draining || x.Paused != nil || l.recovery.careful() {
		return
	}

	core.Assign(x, d, func(t *core.Task, claim int64) string {
		if t.Visible > now {
			return ""
		}
		it := &l.question.Item
		*it = l.item(e, x, t)
		id, name, ok := l.cfg.Board.Reserve(now, it)
		if !ok {
			return ""
		}

		if e.tasks.run != x.Start.Run {
			l.unpost(now, e)
			e.tasks.run = x.Start.Run
		}

		e.tasks.posted.set(t.ID, posting{held: true, claim: claim, worker: id})
		l.cfg.Board.Hold(now, *it, claim, id, name)
		return name
	})
}

// item returns a task as the board sees it.
func (l *Lane) item(e *entry, x *core.Execution, t *core.Task) queue.Item {
	it := queue.Item{
		Ref:  model.TaskRef{Address: e.address, Run: x.Start.Run, ID: t.ID},
		Lane: l.cfg.Ref.Lane, Spec: t.Spec, Attempt: t.Attempt, Scheduled: t.Scheduled, Visible: t.Visible, Claimed: t.Since,
	}
	if x.Alone() {
		it.Input = &x.Start.Input
	} else {
		in := t.Input // a copy, because tasks of a run move in memory
		it.Input = &in
	}
	return it
}

// postTasks tells the board about each task of the entry whose state the board does not know yet.
// The board may learn a state that is not committed yet, because its proposals cannot overtake the
// commit. If a claim has ended, the parameter how is what its end says about the outside system
// that the task calls.
func (l *Lane) postTasks(now model.Time, e *entry, how queue.Outcome) {
	e.tasks.complete = false
	if l.cfg.Board == nil || e.gone || !e.known || e.quarantine.why != nil {
		return
	}

	var few [1]string
	for _, id := range e.tasks.posted.ids(few[:0]) {
		if p, _ := e.tasks.posted.get(id); e.tasks.run != e.run() || e.isOutdated(id, p) {
			l.unpostOne(now, e, id, how)
		}
	}

	if e.x == nil || e.shard.gone {
		return
	}
	e.tasks.run, e.tasks.complete = e.run(), true
	for _, t := range e.x.Tasks() {
		l.postTask(now, e, t)
	}
}

// postChanges does the same as postTasks, after a decision. If the board knew all tasks before, the
// lane looks only at the tasks of the decision, because a run may have thousands of tasks.
func (l *Lane) postChanges(now model.Time, e *entry, d *core.Decision, how queue.Outcome) {
	if !e.tasks.complete || e.tasks.run != e.run() || d.Start != nil || d.Close != nil || len(d.Deletes) > 0 || slices.ContainsFunc(d.Events, isForAllTasks) {
		l.postTasks(now, e, how)
		return
	}
	for i := range d.Events {
		l.postAgain(now, e, d.Events[i].ID, how)
	}
}

// postAgain tells the board the state of one task.
func (l *Lane) postAgain(now model.Time, e *entry, id string, how queue.Outcome) {
	if p, ok := e.tasks.posted.get(id); ok && e.isOutdated(id, p) {
		l.unpostOne(now, e, id, how)
	}
	if t := taskOf(e, id); t != nil {
		l.postTask(now, e, t)
	}
}

// isOutdated reports whether the board has an old state of a task.
func (e *entry) isOutdated(id string, p posting) bool {
	t := taskOf(e, id)
	return t == nil || t.Held != p.held || t.Claim != p.claim || (!t.Held && (t.Visible != p.visible || !e.x.Claimable(t) || e.shard.draining))
}

// postTask tells the board about a task that the board does not know. If the board knows the task,
// postTask only warns the worker of a canceled task.
func (l *Lane) postTask(now model.Time, e *entry, t *core.Task) {
	x := e.x
	p, ok := e.tasks.posted.get(t.ID)

	switch {
	case ok:
		if p.worker != 0 && !p.warned && x.Alone() && x.Canceling != 0 {
			p.warned = true
			e.tasks.posted.set(t.ID, p)
			l.stop(e, t.ID, p, true)
		}
	case t.Held:
		it := l.item(e, x, t)
		id, has := l.cfg.Board.Find(t.Worker, model.ClaimRef{TaskRef: it.Ref, Claim: t.Claim})
		e.tasks.posted.set(t.ID, posting{held: true, claim: t.Claim, worker: id})
		l.cfg.Board.Hold(now, it, t.Claim, id, t.Worker)
		switch {
		case id != 0 && !has:
			// The lane has read the claim from the store, so the claim is durable, but the worker
			// does not have it yet.
			l.handOver(e, &effect{run: e.run(), task: &handover{id: t.ID, claim: t.Claim, worker: id}})
		case id != 0:
			// This warns the worker if its task is canceled, which the last owner may not have
			// done.
			l.postTask(now, e, t)
		case id == 0 && !e.shard.draining && !l.cfg.Board.Elsewhere(t.Worker):
			l.loseClaim(e, t)
		}
	case x.Claimable(t) && !e.shard.draining:
		e.tasks.posted.set(t.ID, posting{visible: t.Visible})
		l.cfg.Board.Add(now, l.item(e, x, t))
	}
}

// loseClaim lets an attempt fail because its worker is gone. The failure waits behind the other
// inputs of the entry.
func (l *Lane) loseClaim(e *entry, t *core.Task) {
	in := &expiryInput{newProposal(e, &model.TaskRef{Address: e.address, Run: e.run(), ID: t.ID}), true, t.Claim, model.FailureLost}
	l.budget.hold(in)
	e.backlog.inputs = append(e.backlog.inputs, in)
	l.schedule(e)
}

// loseForsaken ends claims of an entry whose worker is gone, before the shard moves. Otherwise the
// next owner would wait for a worker of this node for as long as the node lives.
func (l *Lane) loseForsaken(e *entry) (some bool) {
	if l.cfg.Board == nil || !e.known || e.x == nil || e.quarantine.why != nil || e.tasks.run != e.run() {
		return false
	}
	for _, t := range e.x.Tasks() {
		if p, ok := e.tasks.posted.get(t.ID); ok && t.Held && p.held && p.worker == 0 && p.claim == t.Claim && !l.cfg.Board.Elsewhere(t.Worker) {
			l.loseClaim(e, t)
			some = true
		}
	}
	return some
}

func taskOf(e *entry, id string) *core.Task {
	if e.x == nil || e.shard.gone {
		return nil
	}
	return e.x.Task(id)
}

// repost tells the board about a task again after the board proposed something impossible.
func (l *Lane) repost(now model.Time, e *entry, id string) {
	if p, ok := e.tasks.posted.get(id); ok && !p.held {
		l.unpostOne(now, e, id, queue.Neither)
		if e.tasks.complete && e.tasks.run == e.run() {
			// The lane tells the board immediately, because an entry without tasks on the board may
			// leave memory.
			l.postAgain(now, e, id, queue.Neither)
		} else {
			l.postTasks(now, e, queue.Neither)
		}
	}
}

// unpostOne removes a task from the board, and stops the worker that executes it.
func (l *Lane) unpostOne(now model.Time, e *entry, id string, how queue.Outcome) {
	p, _ := e.tasks.posted.get(id)
	l.cfg.Board.Remove(now, model.TaskRef{Address: e.address, Run: e.tasks.run, ID: id}, how)
	e.tasks.posted.remove(id)
	delete(e.tasks.written, id) // the lane reads the data again for the next claim
	if p.held && p.worker != 0 {
		l.withhold(model.ClaimRef{TaskRef: model.TaskRef{Address: e.address, Run: e.tasks.run, ID: id}, Claim: p.claim})
		l.stop(e, id, p, false)
	}
}

// withhold takes back a hand-over that has not left the lane, because the claim has ended in the
// meantime. Its permits are free, so its code must not start. If the end is undone, the lane reads
// the run again, and hands the claim over.
func (l *Lane) withhold(claim model.ClaimRef) {
	l.out.TaskCalls = slices.DeleteFunc(l.out.TaskCalls, func(c TaskCall) bool { return c.Kind == TaskExecute && c.Ref == claim })
}

// stop tells a worker that its result is no longer needed. The worker gets this after the commit.
func (l *Lane) stop(e *entry, id string, p posting, canceled bool) {
	l.afterCommit(e, effect{kind: effStop, entry: e, run: e.tasks.run, task: &handover{id: id, worker: p.worker, claim: p.claim}, canceled: canceled})
}

// unpost makes the board forget the tasks of an entry, for example because the entry leaves memory.
// Workers that execute these tasks continue. A worker that has not got its claim does not get it
// now, because the board frees the permits of the claim. The lane that reads the run again hands
// the claim over.
func (l *Lane) unpost(now model.Time, e *entry) {
	for _, id := range e.tasks.posted.ids(nil) {
		ref := model.TaskRef{Address: e.address, Run: e.tasks.run, ID: id}
		if p, _ := e.tasks.posted.get(id); p.held && p.worker != 0 {
			l.withhold(model.ClaimRef{TaskRef: ref, Claim: p.claim})
		}
		l.cfg.Board.Forget(now, ref)
	}
	e.tasks.posted, e.tasks.complete = postings{}, false
}

// explainTasks returns what a run with open tasks waits for. If the code of the run waits for a
// task, explainTasks returns what the task waits for. It returns nil if the board has no reason.
func (l *Lane) explainTasks(e *entry) []model.Reason {
	if l.cfg.Board == nil || !e.known || e.x == nil || len(e.x.Tasks()) == 0 {
		return nil
	}
	tasks := e.x.Tasks()

	why := func(t *core.Task) (model.Reason, bool) {
		r, ok := l.cfg.Board.Explain(model.TaskRef{Address: e.address, Run: e.run(), ID: t.ID})
		if r.Code == model.WaitRetry {
			r.Detail = core.LastError(t)
		}
		return r, ok
	}

	if e.x.Alone() {
		if r, ok := why(tasks[0]); ok {
			return []model.Reason{r}
		}
		return nil
	}

	return core.TaskReasons(e.wait.reasons, tasks, why)
}
