package lane

import (
	"cmp"
	"slices"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Board knows who executes which task next. It belongs to the node; lanes tell it of the tasks of their runs. What it says is no more than
// a proposal: the lane decides, and nobody gets a task before its claim is committed.
type Board interface {
	// Reserve finds a worker for a task that is about to be committed, and keeps a slot for it.
	Reserve(now model.Time, it *queue.Item) (id queue.WorkerID, name string, ok bool)
	// Add tells of a task that waits.
	Add(now model.Time, it queue.Item)
	// Proposed reports whether the board still proposes that a worker has a task.
	Proposed(id queue.WorkerID, ref model.TaskRef) bool
	// Overdue reports whether the board still says that a deadline of a claim has passed.
	Overdue(claim model.ClaimRef) bool
	// Held tells of a task that is claimed by a worker, as the history names it; it is nobody here when id is 0.
	Held(now model.Time, it queue.Item, claim int64, id queue.WorkerID, worker string)
	// Remove tells that a task is neither any more.
	Remove(now model.Time, ref model.TaskRef, how queue.Outcome)
	// Forget is Remove for a task that leaves memory, because its run does, or is owned by somebody else now. Whoever executes it goes on.
	Forget(now model.Time, ref model.TaskRef)
	// RetryAfter tells what the other side of a claimed task has said: that it is not to be called before a time.
	RetryAfter(now model.Time, it *queue.Item, until model.Time)
	// Find is the worker that a history names, 0 when it is not here, and whether it has been handed the claim.
	Find(name string, claim model.ClaimRef) (id queue.WorkerID, has bool)
	// Elsewhere reports that the worker is with another node which is alive: its report comes by mail.
	Elsewhere(name string) bool
	// Dropped reports that the node of a worker, which is alive, has said that it does not have the claim: nobody will ever report it.
	Dropped(name string, claim model.ClaimRef) bool
	// Explain says why a task does not move, or that it is being executed.
	Explain(ref model.TaskRef) (model.Reason, bool)
}

// posted is what the board has been told of a task.
type posted struct {
	held    bool
	claim   int64
	visible model.Time
	worker  queue.WorkerID
	warned  bool // the worker has been told that it should come to an end
}

// postings are what the board has been told of the tasks of a run. Most runs with tasks have one, and stand alone: that needs no map.
type postings struct {
	id   string // of the only one; empty when there is none, or many is used
	one  posted
	many map[string]posted // nil until there is a second one
}

func (p *postings) len() int {
	if p.id != "" {
		return 1
	}
	return len(p.many)
}

func (p *postings) get(id string) (posted, bool) {
	if p.id != "" {
		return p.one, p.id == id
	}
	t, ok := p.many[id]
	return t, ok
}

func (p *postings) set(id string, t posted) {
	switch {
	case p.id == id || p.len() == 0 && p.many == nil:
		p.id, p.one = id, t
		return
	case p.many == nil:
		p.many = map[string]posted{p.id: p.one}
		p.id, p.one = "", posted{}
	}
	p.many[id] = t
}

func (p *postings) remove(id string) {
	if p.id == id {
		p.id, p.one = "", posted{}
		return
	}
	delete(p.many, id)
}

// ids are the tasks, in an order that does not depend on chance. The given slice is used for them.
func (p *postings) ids(spare []string) []string {
	if p.id != "" {
		return append(spare, p.id)
	}
	for id := range p.many {
		spare = append(spare, id)
	}
	slices.Sort(spare)
	return spare
}

// question is the task that the board is asked to find a worker for.
type question struct{ queue.Item }

// taskInput is an input that concerns a task of a run.
type taskInput struct {
	id     string
	worker queue.WorkerID
	name   string            // of the worker, of inClaim
	report *model.TaskReport // of inReport
	held   bool              // of inExpire: what the board thought
	claim  int64
	what   string

	progress model.Payload // of inProgress, and of a claim that is handed over
}

// Claim hands in that a worker is to have a task.
func (l *Lane) Claim(now model.Time, ref model.TaskRef, id queue.WorkerID, name string) {
	l.taskInput(now, ref, inClaim, taskInput{id: ref.ID, worker: id, name: name})
}

// Report hands in how a claim ended. The worker is told when that is durable.
func (l *Lane) Report(now model.Time, id queue.WorkerID, r *model.TaskReport) {
	if !l.taskInput(now, r.Ref.TaskRef, inReport, taskInput{id: r.Ref.ID, worker: id, report: r}) {
		l.settled(id, r.Ref, ErrNotOwner)
	}
}

// Expire hands in that a deadline of a task has passed, as the board sees it.
func (l *Lane) Expire(now model.Time, ref model.TaskRef, held bool, claim int64, what string) {
	l.taskInput(now, ref, inExpire, taskInput{id: ref.ID, held: held, claim: claim, what: what})
}

// taskInput takes an input that concerns a task. It reports false when the run is not ours.
func (l *Lane) taskInput(now model.Time, ref model.TaskRef, kind inputKind, t taskInput) bool {
	if l.dead != nil {
		return false
	}
	e := l.entry(ref.Address)
	if e == nil || e.shard.freeing {
		return false
	}
	if e.shard.draining && kind == inClaim {
		return true // the board hears of it when the shard goes
	}
	l.take(now, e, taskInputOf(e, ref.Run, kind, t))
	return true
}

// taskInputOf is an input that concerns a task, in one piece of memory.
func taskInputOf(e *entry, run model.RunID, kind inputKind, t taskInput) *input {
	both := &struct {
		in   input
		task taskInput
	}{input{kind: kind, address: e.address, run: run}, t}
	both.in.task = &both.task
	return &both.in
}

// expireAgain has the board look again whether a deadline has passed: the decision was undone, and meanwhile the worker may have been heard.
func (l *Lane) expireAgain(now model.Time, e *entry, in *input) {
	l.notExpired(now, e, in)
	l.done(in)
	l.maybeDrop(e)
}

// notExpired has the deadlines of a task run on of which one was reported that came to nothing. The board reports each once.
func (l *Lane) notExpired(now model.Time, e *entry, in *input) {
	p, _ := e.tasks.get(in.task.id)
	if t := taskOf(e, in.task.id); e.run() == in.run && t != nil && t.Held && p.held && p.claim == t.Claim {
		l.cfg.Board.Held(now, l.item(e, e.x, t), p.claim, p.worker, t.Worker)
	} else {
		l.repost(now, e, in.task.id)
	}
}

func (l *Lane) applyTask(now model.Time, e *entry, in *input) {
	t := in.task
	if in.fate != nil && in.fate.Reported {
		l.record(e, in, &core.Decision{})
		l.afterCommit(e, effect{kind: effSettled, entry: e, task: t})
		l.maybeDrop(e)
		return
	}
	if e.x == nil || e.x.Start.Run != in.run {
		l.record(e, in, &core.Decision{}) // it is kept until that is durable
		if in.kind == inReport {
			l.afterCommit(e, effect{kind: effSettled, entry: e, task: t, err: fault.New(fault.NotOwned, "the run of %s has ended", t.report.Ref.TaskRef)})
		}
		l.postTasks(now, e, queue.Neither)
		l.maybeDrop(e)
		return
	}
	var d core.Decision
	how := queue.Neither
	switch in.kind {
	case inClaim:
		if !l.cfg.Board.Proposed(t.worker, model.TaskRef{Address: e.address, Run: in.run, ID: t.id}) {
			break // the board has been told of the task anew since, and somebody else may have what this claim was let through with
		}
		var ok bool
		if d, ok = core.Claim(e.x, t.id, t.name, now); ok {
			task := e.x.Task(t.id)
			e.tasks.set(t.id, posted{held: true, claim: task.Claim, worker: t.worker})
			l.cfg.Board.Held(now, l.item(e, e.x, task), task.Claim, t.worker, t.name)
		} else {
			l.repost(now, e, t.id)
		}
	case inReport:
		how = l.reported(now, e, t.report)
		d = core.Report(e.x, t.report, now, l.cfg.Limits)
	default:
		ref := model.ClaimRef{TaskRef: model.TaskRef{Address: e.address, Run: e.run(), ID: t.id}, Claim: t.claim}
		if t.what == model.TimeoutSilence && !l.cfg.Board.Overdue(ref) {
			break // the claim was undone and made again under the same number since, and whoever has it now may have been heard
		}
		if task := e.x.Task(t.id); t.what == model.FailureLost && task != nil && task.Held && l.cfg.Board.Elsewhere(task.Worker) {
			if task.Claim == t.claim && l.cfg.Board.Dropped(task.Worker, ref) {
				d = core.Report(e.x, &model.TaskReport{Ref: ref, Returned: true}, now, l.cfg.Limits) // it never began
			} else {
				l.cfg.Board.Held(now, l.item(e, e.x, task), task.Claim, 0, task.Worker) // it is waited for once more
			}
			break
		}
		if d = core.Expire(e.x, t.id, t.held, t.claim, t.what, now, l.cfg.Limits); d.Writes() {
			how = expired(t.what)
		} else {
			l.notExpired(now, e, in)
		}
	}
	run, refusal := e.run(), d.Refused()
	g := l.record(e, in, &d)
	if in.kind == inReport {
		l.afterCommit(e, effect{kind: effSettled, entry: e, task: t, err: refusal})
	}
	if d.Close != nil {
		g.effects = append(g.effects, effect{kind: effClosed, entry: e, run: run, outcome: d.Close})
	}
	l.postChanges(now, e, &d, how)
	l.maybeDrop(e)
}

// reported notes that the worker itself ends its claim, so that it is not to be stopped, and returns what that tells about the other side.
func (l *Lane) reported(now model.Time, e *entry, r *model.TaskReport) queue.Outcome {
	p, ok := e.tasks.get(r.Ref.ID)
	if !ok || !p.held || p.claim != r.Ref.Claim {
		return queue.Neither
	}
	how := outcomeOf(e.x, r)
	p.worker = 0
	e.tasks.set(r.Ref.ID, p)
	if task := e.x.Task(r.Ref.ID); task != nil && how == queue.Failed && r.RetryAfter > 0 {
		it := l.item(e, e.x, task)
		l.cfg.Board.RetryAfter(now, &it, now.Add(r.RetryAfter))
	}
	return how
}

// Attach hands in that a worker which has joined since has a claim. If it is not the worker's any more, that is told.
func (l *Lane) Attach(now model.Time, ref model.ClaimRef, id queue.WorkerID) {
	l.taskInput(now, ref.TaskRef, inAttach, taskInput{id: ref.ID, claim: ref.Claim, worker: id})
}

func (l *Lane) applyAttach(now model.Time, e *entry, in *input) {
	t := in.task
	task := taskOf(e, t.id)
	switch p, ok := e.tasks.get(t.id); {
	case e.x == nil || e.run() != in.run || task == nil || !task.Held || task.Claim != t.claim:
		l.afterCommit(e, effect{kind: effStop, entry: e, run: in.run, task: &taskInput{id: t.id, worker: t.worker, claim: t.claim}})
	case ok && p.held && p.claim == t.claim && p.worker != t.worker:
		p.worker, p.warned = t.worker, false
		e.tasks.set(t.id, p)
		l.cfg.Board.Held(now, l.item(e, e.x, task), p.claim, p.worker, task.Worker)
		l.postTask(now, e, task) // which warns it if it should come to an end
	}
	l.done(in)
	l.maybeDrop(e)
}

// expired is what a deadline tells about the other side: that it took too long, if the worker was there all the time.
func expired(what string) queue.Outcome {
	if what == model.TimeoutToClose || what == model.TimeoutTotal {
		return queue.Failed
	}
	return queue.Neither
}

// outcomeOf is what a report tells about the other side. The failure of a task that was told to end tells nothing.
func outcomeOf(x *core.Execution, r *model.TaskReport) queue.Outcome {
	switch {
	case r.Returned || r.Failure != nil && x.Alone() && x.Canceling != 0:
		return queue.Neither
	case r.Failure == nil:
		return queue.Succeeded
	}
	return queue.Failed
}

// afterCommit has something told once everything that the entry has in batches is durable.
func (l *Lane) afterCommit(e *entry, f effect) {
	if b := l.batchOf(e); b != nil {
		b.effects = append(b.effects, f)
		return
	}
	l.tellTask(&f)
}

// tellTask tells a worker what became of a claim.
func (l *Lane) tellTask(f *effect) {
	switch f.kind {
	case effSettled:
		l.settled(f.task.worker, f.task.report.Ref, f.err)
	case effStop:
		ref := model.ClaimRef{TaskRef: model.TaskRef{Address: f.entry.address, Run: f.run, ID: f.task.id}, Claim: f.task.claim}
		l.out.TaskCalls = append(l.out.TaskCalls, TaskCall{Kind: TaskStop, Worker: f.task.worker, Ref: ref, Canceled: f.canceled})
	default:
	}
}

func (l *Lane) settled(id queue.WorkerID, ref model.ClaimRef, err error) {
	l.out.TaskCalls = append(l.out.TaskCalls, TaskCall{Kind: TaskSettled, Worker: id, Ref: ref, Err: err})
}

// executes adds that tasks are handed over whose claims are in the decision.
func (l *Lane) executes(b *building, e *entry, d *core.Decision) {
	if e.tasks.len() == 0 {
		return
	}
	add := func(run model.RunID, id string, claim int64) {
		p, _ := e.tasks.get(id)
		b.effects = append(b.effects, effect{kind: effExecute, entry: e, run: run, task: &taskInput{id: id, claim: claim, worker: p.worker}})
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

// handOver gives a task to the worker whose claim is durable now. If there were claims before, what was reported then is read first.
func (l *Lane) handOver(e *entry, f *effect) {
	if e.x == nil || e.run() != f.run {
		return
	}
	if t := e.x.Task(f.task.id); t != nil && t.Again {
		e.handing++
		l.loads.add(&Load{Kind: LoadProgress, Shard: e.shard.id, Address: e.address, Run: f.run, Task: t.ID, entry: e, task: f.task})
		return
	}
	l.execute(e, f.run, f.task)
}

// loadedProgress hands over the task whose progress was read. If the run has been forgotten meanwhile, that is read again first: nobody else
// would hand it over, and perhaps nobody else asks for the run.
func (l *Lane) loadedProgress(ld *Load, r LoadResult) {
	e := ld.entry
	ld.task.progress = progressOf(r.Data)
	if !e.known && e.poison == nil {
		e.unhanded = append(e.unhanded, ld)
		if !e.loading {
			l.load(e)
		}
		return
	}
	e.handing--
	l.execute(e, ld.Run, ld.task)
}

// handOverAgain hands over what waited for the run to be read again.
func (l *Lane) handOverAgain(e *entry) {
	for _, ld := range e.unhanded {
		e.handing--
		l.execute(e, ld.Run, ld.task)
	}
	e.unhanded = nil
}

func progressOf(data []store.TaskDatum) model.Payload {
	for i := range data {
		if data[i].IsProgress() {
			return data[i].Value
		}
	}
	return model.Payload{}
}

// execute tells the worker, unless the claim has ended before it began; then the board knows.
func (l *Lane) execute(e *entry, run model.RunID, claim *taskInput) {
	if e.x == nil || e.run() != run {
		return
	}
	t := e.x.Task(claim.id)
	if t == nil || !t.Held || t.Claim != claim.claim {
		return
	}
	ref := model.ClaimRef{TaskRef: model.TaskRef{Address: e.address, Run: run, ID: t.ID}, Claim: t.Claim}
	if l.cfg.Board != nil && l.cfg.Board.Overdue(ref) {
		return // its commit took longer than the attempt has time: it is about to time out
	}
	if t.Spec.ToClose > 0 && l.now > t.Since.Add(t.Spec.ToClose) {
		// The board has not looked yet, or a time-out of the claim was undone and the board has been
		// told of the claim again. Another task may have the permit of the claim by now.
		return
	}
	c := model.Claim{
		Ref:  ref,
		Spec: t.Spec, Input: t.Input, Attempt: t.Attempt, Scheduled: t.Scheduled, Visible: t.Visible, Claimed: t.Since, Identity: e.x.Start.Identity,
		Trace: cmp.Or(t.Spec.Trace, e.x.Start.Trace), Progress: claim.progress, Canceled: e.x.Alone() && e.x.Canceling != 0,
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

// assign has tasks that a decision brings into being begin in the same commit, on workers that wait for them.
func (l *Lane) assign(now model.Time, e *entry, x *core.Execution, d *core.Decision) {
	if l.cfg.Board == nil || e.shard.draining || x.Paused != nil {
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
		if e.tasksOf != x.Start.Run {
			l.unpost(now, e)
			e.tasksOf = x.Start.Run
		}
		e.tasks.set(t.ID, posted{held: true, claim: claim, worker: id})
		l.cfg.Board.Held(now, *it, claim, id, name)
		return name
	})
}

func (l *Lane) item(e *entry, x *core.Execution, t *core.Task) queue.Item {
	it := queue.Item{
		Ref:  model.TaskRef{Address: e.address, Run: x.Start.Run, ID: t.ID},
		Lane: l.cfg.Ref.Lane, Spec: t.Spec, Attempt: t.Attempt, Scheduled: t.Scheduled, Visible: t.Visible, Claimed: t.Since,
	}
	if x.Alone() {
		it.Input = &x.Start.Input
	} else {
		in := t.Input // tasks of a run change their places
		it.Input = &in
	}
	return it
}

// postTasks tells the board how the tasks of the entry stand, as far as it does not know. The board may know what is not committed yet: nothing that it
// proposes can overtake that. how is what came of a claim that has ended.
func (l *Lane) postTasks(now model.Time, e *entry, how queue.Outcome) {
	e.posted = false
	if l.cfg.Board == nil || e.gone || !e.known || e.poison != nil {
		return
	}
	var few [1]string
	for _, id := range e.tasks.ids(few[:0]) {
		if p, _ := e.tasks.get(id); e.tasksOf != e.run() || e.outdated(id, p) {
			l.unpostOne(now, e, id, p, how)
		}
	}
	if e.x == nil || e.shard.gone {
		return
	}
	e.tasksOf, e.posted = e.run(), true
	for _, t := range e.x.Tasks() {
		l.postTask(now, e, t)
	}
}

// postChanges is postTasks behind a decision: only the tasks that it is about are looked at, if the board knew how all stood before it. A run may have thousands of them.
func (l *Lane) postChanges(now model.Time, e *entry, d *core.Decision, how queue.Outcome) {
	if !e.posted || e.tasksOf != e.run() || d.Start != nil || d.Close != nil || len(d.Deletes) > 0 || slices.ContainsFunc(d.Events, concernsAllTasks) {
		l.postTasks(now, e, how)
		return
	}
	for i := range d.Events {
		l.postAgain(now, e, d.Events[i].ID, how)
	}
}

// concernsAllTasks reports whether an event may change what each task of its run waits for.
func concernsAllTasks(e model.Event) bool {
	return e.Kind == model.EventPaused || e.Kind == model.EventResumed || e.Kind == model.EventCancelRequest
}

// postAgain tells the board how one task stands.
func (l *Lane) postAgain(now model.Time, e *entry, id string, how queue.Outcome) {
	if p, ok := e.tasks.get(id); ok && e.outdated(id, p) {
		l.unpostOne(now, e, id, p, how)
	}
	if t := taskOf(e, id); t != nil {
		l.postTask(now, e, t)
	}
}

// outdated reports whether the board has been told something of a task that is not so any more.
func (e *entry) outdated(id string, p posted) bool {
	t := taskOf(e, id)
	return t == nil || t.Held != p.held || t.Claim != p.claim || (!t.Held && (t.Visible != p.visible || !e.x.Claimable(t) || e.shard.draining))
}

// postTask tells the board of a task, if it does not know it.
func (l *Lane) postTask(now model.Time, e *entry, t *core.Task) {
	x := e.x
	p, ok := e.tasks.get(t.ID)
	switch {
	case ok:
		if p.worker != 0 && !p.warned && x.Alone() && x.Canceling != 0 {
			p.warned = true
			e.tasks.set(t.ID, p)
			l.stop(e, t.ID, p, true)
		}
	case t.Held:
		it := l.item(e, x, t)
		id, has := l.cfg.Board.Find(t.Worker, model.ClaimRef{TaskRef: it.Ref, Claim: t.Claim})
		e.tasks.set(t.ID, posted{held: true, claim: t.Claim, worker: id})
		l.cfg.Board.Held(now, it, t.Claim, id, t.Worker)
		switch {
		case id != 0 && !has: // the claim was read, so it is durable, and something came in between before it was told
			l.handOver(e, &effect{run: e.run(), task: &taskInput{id: t.ID, claim: t.Claim, worker: id}})
		case id != 0:
			l.postTask(now, e, t) // warns the worker if it should come to an end: the owner before may not have
		case id == 0 && !e.shard.draining && !l.cfg.Board.Elsewhere(t.Worker):
			l.lost(e, t)
		}
	case x.Claimable(t) && !e.shard.draining:
		e.tasks.set(t.ID, posted{visible: t.Visible})
		l.cfg.Board.Add(now, l.item(e, x, t))
	}
}

// lost lets the attempt of a worker that is gone fail, behind whatever waits for the entry.
func (l *Lane) lost(e *entry, t *core.Task) {
	in := taskInputOf(e, e.run(), inExpire, taskInput{id: t.ID, held: true, claim: t.Claim, what: model.FailureLost})
	l.hold(in)
	e.backlog = append(e.backlog, in)
	l.schedule(e)
}

// forsaken lets claims of an entry be lost whose worker is nowhere, before its shard goes: the next owner would wait for a worker of this node as long as the node lives.
func (l *Lane) forsaken(e *entry) (some bool) {
	if l.cfg.Board == nil || !e.known || e.x == nil || e.poison != nil || e.tasksOf != e.run() {
		return false
	}
	for _, t := range e.x.Tasks() {
		if p, ok := e.tasks.get(t.ID); ok && t.Held && p.held && p.worker == 0 && p.claim == t.Claim && !l.cfg.Board.Elsewhere(t.Worker) {
			l.lost(e, t)
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

// repost has the board told of a task again that it proposed something for which cannot be.
func (l *Lane) repost(now model.Time, e *entry, id string) {
	if p, ok := e.tasks.get(id); ok && !p.held {
		l.unpostOne(now, e, id, p, queue.Neither)
		if e.posted && e.tasksOf == e.run() {
			l.postAgain(now, e, id, queue.Neither) // at once: an entry without tasks on the board may be dropped
		} else {
			l.postTasks(now, e, queue.Neither)
		}
	}
}

func (l *Lane) unpostOne(now model.Time, e *entry, id string, p posted, how queue.Outcome) {
	l.cfg.Board.Remove(now, model.TaskRef{Address: e.address, Run: e.tasksOf, ID: id}, how)
	e.tasks.remove(id)
	delete(e.written, id) // the next claim reads it
	if p.held && p.worker != 0 {
		l.stop(e, id, p, false)
	}
}

// stop tells a worker that nobody waits for what it does, once that is durable.
func (l *Lane) stop(e *entry, id string, p posted, canceled bool) {
	l.afterCommit(e, effect{kind: effStop, entry: e, run: e.tasksOf, task: &taskInput{id: id, worker: p.worker, claim: p.claim}, canceled: canceled})
}

// unpost has the board forget the tasks of an entry that leaves memory.
func (l *Lane) unpost(now model.Time, e *entry) {
	for _, id := range e.tasks.ids(nil) {
		l.cfg.Board.Forget(now, model.TaskRef{Address: e.address, Run: e.tasksOf, ID: id})
	}
	e.tasks, e.posted = postings{}, false
}

// executing reports whether somebody of this node executes a task of the run.
func (e *entry) executing() bool {
	at := func(p posted) bool { return p.held && p.worker != 0 }
	for _, p := range e.tasks.many {
		if at(p) {
			return true
		}
	}
	return at(e.tasks.one)
}

// deadTask is a task that failed for good as people find it.
func deadTask(a model.Address, d *core.DeadTask) model.DeadTask {
	t := &d.Task
	dead := model.DeadTask{
		Address: a, Spec: *t.Spec, Input: t.Input, Scheduled: t.Scheduled, At: d.At, Attempts: t.Attempt, LeftOut: t.Dropped,
		Failure: d.Failure, Fingerprint: d.Failure.Fingerprint(),
	}
	for i := range t.Failures {
		f := &t.Failures[i]
		dead.Add(model.FailedAttempt{Attempt: f.Attempt, At: f.At, Worker: f.Worker, Failure: *f.Failure})
	}
	return dead
}

// Progress hands in how far a claim is. It is kept beside the history, the last one of each task, and the next attempt begins with it.
func (l *Lane) Progress(now model.Time, ref model.ClaimRef, p model.Payload) {
	l.taskInput(now, ref.TaskRef, inProgress, taskInput{id: ref.ID, claim: ref.Claim, progress: p})
}

func (l *Lane) applyProgress(e *entry, in *input) {
	t := in.task
	if e.x == nil || e.run() != in.run {
		l.done(in)
		l.maybeDrop(e)
		return
	}
	if task := e.x.Task(t.id); task == nil || !task.Held || task.Claim != t.claim {
		l.done(in)
		l.maybeDrop(e)
		return
	}
	b := l.open
	l.touch(b, e)
	b.putDatum(store.TaskDatum{RunKey: e.key(), Task: t.id, Value: t.progress})
	b.inputs = append(b.inputs, in)
}

// explainTasks is what a run with open tasks waits for: where its code waits for a task, what that waits for. Nil when the board has nothing to say.
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
	return core.TaskReasons(e.waits, tasks, why)
}

// TaskCallKind says which method of a task worker to call.
type TaskCallKind uint8

// Kinds of calls to task workers.
const (
	TaskExecute TaskCallKind = iota + 1
	TaskStop
	TaskSettled
)

// TaskCall is a call to a task worker.
type TaskCall struct {
	Kind     TaskCallKind
	Worker   queue.WorkerID
	Ref      model.ClaimRef
	Claim    *model.Claim
	Canceled bool // of TaskStop: it may still report
	Err      error
}
