package lane

import (
	"cmp"
	"time"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// afterCommit runs an effect once everything that the entry has in batches is durable.
func (l *Lane) afterCommit(e *entry, f effect) {
	if b := l.batchOf(e); b != nil {
		b.effects = append(b.effects, f)
		return
	}
	l.tellTask(&f)
}

// confirm lets the answers about an entry wait for a commit, even if there is nothing to write. The
// lane calls it when it is about to deny a claim that it has never seen. Another node may have
// fenced this one, may own the shard now, and may have made the claim. In that case the commit
// fails, and the worker keeps its report for that node.
func (l *Lane) confirm(e *entry) {
	l.touch(l.open, e)
	l.open.confirms = true
}

// tellTask tells a worker what became of a claim.
func (l *Lane) tellTask(f *effect) {
	switch f.kind {
	case effSettled:
		f.report.refuse(l, f.err)
	case effStop:
		ref := model.ClaimRef{TaskRef: model.TaskRef{Address: f.entry.address, Run: f.run, ID: f.task.id}, Claim: f.task.claim}
		l.out.TaskCalls = append(l.out.TaskCalls, TaskCall{Kind: TaskStop, Worker: f.task.worker, Ref: ref, Canceled: f.canceled})
	default:
	}
}

// settle tells a worker that its report is accepted, or why it is not.
func (l *Lane) settle(id queue.WorkerID, ref model.ClaimRef, err error) {
	l.out.TaskCalls = append(l.out.TaskCalls, TaskCall{Kind: TaskSettled, Worker: id, Ref: ref, Err: err})
}

// handOverClaims adds effects that hand over the tasks whose claims are in the decision.
func (l *Lane) handOverClaims(b *building, e *entry, d *core.Decision) {
	if e.tasks.posted.len() == 0 {
		return
	}
	add := func(run model.RunID, id string, claim int64) {
		p, _ := e.tasks.posted.get(id)
		b.effects = append(b.effects, effect{kind: effExecute, entry: e, run: run, task: &handover{id: id, claim: claim, worker: p.worker}})
	}
	if d.Start != nil && d.Start.Worker != "" {
		add(d.Start.Run, model.TaskStep, 0)
	}
	for i := range d.Events {
		if ev := &d.Events[i]; ev.Kind == model.EventTaskClaimed || ev.Kind == model.EventTaskScheduled && ev.Worker != "" {
			add(e.run(), ev.ID, ev.Seq)
		}
	}
}

// handOver gives a task to the worker whose claim is durable now. If the task had earlier claims,
// the lane first reads the last progress of these claims.
func (l *Lane) handOver(e *entry, f *effect) {
	if e.x == nil || e.run() != f.run {
		return
	}
	if t := e.x.Task(f.task.id); t != nil && t.Again {
		e.tasks.handing++
		l.loads.add(&Load{Kind: LoadProgress, Shard: e.shard.id, Address: e.address, Run: f.run, Task: t.ID, entry: e, task: f.task})
		return
	}
	l.execute(e, f.run, f.task)
}

// acceptProgress gives a task to its worker after the lane has read the progress of the task. If
// the lane has dropped the state of the run since, it first reads the run again, because nothing
// else would hand over the task.
func (l *Lane) acceptProgress(ld *Load, r LoadResult) {
	e := ld.entry
	ld.task.progress = progressOf(r.Data)
	if !e.known && e.quarantine.why == nil {
		e.tasks.unhanded = append(e.tasks.unhanded, ld)
		if !e.reading.active {
			l.load(e)
		}
		return
	}
	e.tasks.handing--
	l.execute(e, ld.Run, ld.task)
}

// handOverAgain hands over the tasks that waited until the run was read again.
func (l *Lane) handOverAgain(e *entry) {
	for _, ld := range e.tasks.unhanded {
		e.tasks.handing--
		l.execute(e, ld.Run, ld.task)
	}
	e.tasks.unhanded = nil
}

// progressOf finds the last progress among the data of a task.
func progressOf(data []store.TaskDatum) model.Payload {
	for i := range data {
		if data[i].IsProgress() {
			return data[i].Value
		}
	}
	return model.Payload{}
}

// execute gives the claim to the worker. If the claim has ended before the worker could get it,
// execute does nothing, because the board already knows about the end.
func (l *Lane) execute(e *entry, run model.RunID, claim *handover) {
	if e.x == nil || e.run() != run {
		return
	}
	t := e.x.Task(claim.id)
	if t == nil || !t.Held || t.Claim != claim.claim {
		return
	}

	ref := model.ClaimRef{TaskRef: model.TaskRef{Address: e.address, Run: run, ID: t.ID}, Claim: t.Claim}
	if l.cfg.Board != nil && l.cfg.Board.Overdue(ref) {
		return // the commit took longer than the attempt may take: the attempt is about to time out
	}
	if l.isLate(t.Since, t.Spec.ToClose) || l.isLate(t.Since, t.Spec.Silence) {
		// The claim is overdue. Either the board has not noticed this yet, or the lane has rolled
		// back a time-out of the claim and the board has the claim again. Another task may have the
		// permit of the claim by now.
		return
	}
	c := model.Claim{
		Ref:  ref,
		Spec: t.Spec, Input: t.Input, Attempt: t.Attempt, Scheduled: t.Scheduled, Visible: t.Visible, Claimed: t.Since, Identity: e.x.Start.Identity,
		Trace: cmp.Or(t.Spec.Trace, e.x.Start.Trace), Progress: claim.progress, Canceled: e.x.Alone() && e.x.Canceling != 0,
		Parent: e.x.Start.Parent,
	}

	if t.Spec.ToClose > 0 {
		c.Deadline = t.Since.Add(t.Spec.ToClose)
	}
	if c.Identity.IsZero() {
		c.Identity = run
	}
	if same := t.Spec.Same; same != nil {
		c.Identity, c.Step = same.Run, same.Step
	}
	l.out.TaskCalls = append(l.out.TaskCalls, TaskCall{Kind: TaskExecute, Worker: claim.worker, Ref: c.Ref, Claim: &c})
}

// isLate reports whether a time-out that began at the given time has passed. A zero time-out never
// passes.
func (l *Lane) isLate(since model.Time, timeout time.Duration) bool {
	return timeout > 0 && l.now > since.Add(timeout)
}
