package oracle

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// Beat is the last heartbeat of a claim that a board has received.
type Beat struct {
	Node model.NodeID
	At   model.Time
}

// claimed is a claim that is, or was, in a history.
type claimed struct {
	Worker   string
	Maker    model.NodeID
	At       model.NodeID    // the node whose worker has received the claim
	Permits  []rule.Resource // the limits whose permits the claim holds, if nodes share limits
	Begun    bool            // the worker has received the claim
	Late     bool            // its time is over, and another task has its permit
	reported bool            // a report has ended the claim
	Told     int64           // when the worker first reported; 0 if it has not reported
	unsure   bool            // a report may have ended the claim: its task was being canceled
	// Freed says that an owner of the run has decided that the claim is lost with its node, and has
	// freed its permits. Other tasks may have these permits since, even if the owner has undone the
	// decision.
	Freed bool
}

// errandState is the state of a task according to its history.
type errandState struct {
	spec      *model.TaskSpec
	Input     model.Payload
	scheduled model.Time
	visible   model.Time
	Attempt   int
	failed    int // failed attempts and time-outs
	lost      int // how many workers in a row have left with the task
	Held      bool
	Claim     int64
	worker    string
	since     model.Time
	Over      bool
	inherited bool // the task comes from a past
	Node      model.NodeID
	tenure    int // how many owners the shard had had when the task was claimed
}

func (t *errandState) hold(attempt int, claim int64, worker string, at model.Time) {
	t.Attempt, t.Held, t.Claim, t.worker, t.since = attempt, true, claim, worker, at
}

func (t *errandState) letGo(visible model.Time) {
	t.Held, t.Claim, t.worker, t.visible = false, 0, "", visible
}

// Ref names a claim of a task of the run.
func (r *Run) Ref(id string, claim int64) model.ClaimRef {
	return model.ClaimRef{TaskRef: model.TaskRef{Address: r.Address.Name, Run: r.ID, ID: id}, Claim: claim}
}

// Task returns a task of the run, or nil.
func (r *Run) Task(id string) *errandState { return r.Tasks[id] }

func (r *Run) schedule(id string, spec *model.TaskSpec, in model.Payload, at model.Time) *errandState {
	if r.Tasks == nil {
		r.Tasks = map[string]*errandState{}
	}
	t := &errandState{spec: spec, Input: in, scheduled: at, visible: at.Add(spec.Delay)}
	r.Tasks[id] = t
	return t
}

// startTask records a task without a workflow.
func (l *ledger) startTask(b *store.Batch, r *Run) {
	t := r.schedule(model.TaskStep, r.Start.Task, r.Start.Input, r.Start.At)
	l.made++
	l.s.Did(scenario.OpSubmitted)
	if w := r.Start.Worker; w != "" {
		l.s.Did(scenario.OpReserved)
		l.claim(b, r, model.TaskStep, t, 1, 0, w, r.Start.At)
	}
}

// claim checks that a worker may start an attempt (E16, E19, E20).
//
//arch:parameters the fields of a claim event, which workflows and lone tasks store differently
func (l *ledger) claim(b *store.Batch, r *Run, id string, t *errandState, attempt int, claim int64, worker string, at model.Time) {
	name, _, node := scenario.SplitWorker(worker)
	h, limit := l.s.TaskWorkers[name], t.spec.Retry.MaxAttempts
	switch {
	case t.Over || t.Held || r.Paused:
		l.Fail("E16: %s of %s is claimed: over %v, held by %s, paused %v", id, r.ID, t.Over, t.worker, r.Paused)
	case attempt != t.Attempt+1 || limit > 0 && attempt > limit:
		l.Fail("E19: attempt %d of %s of %s after attempt %d of at most %d", attempt, id, r.ID, t.Attempt, limit)
	case at < t.visible:
		l.Fail("E20: %s of %s is claimed before its time", id, r.ID)
	case h == nil || node != b.Lane.Node.String():
		l.Fail("E20: %s of %s is claimed by %s, who is not a worker of %s", id, r.ID, worker, l.Name(b.Lane.Node))
	case !model.Executes(h.Offers().Kinds, t.spec.Kind) || !slices.Contains(h.Offers().Queues, t.spec.Queue):
		l.Fail("E20: %s of %s (%s, %s) is claimed by %s, who does not offer that", id, r.ID, t.spec.Kind, t.spec.Queue, worker)
	}

	t.hold(attempt, claim, worker, at)
	l.s.Claims[r.Ref(id, claim)] = &claimed{Worker: worker, Maker: b.Lane.Node}
	l.begins(b, r, id, t)
	l.s.Did(scenario.OpClaimed)
}

// taskFact checks and records an event of a task. It returns false if the event does not concern a
// task.
func (l *ledger) taskFact(b *store.Batch, r *Run, e *model.Event) bool {
	t := r.Task(e.ID)
	if e.Kind == model.EventTaskScheduled {
		if t != nil {
			l.Fail("E8: %s of %s is scheduled twice", e.ID, r.ID)
		}
		t = r.schedule(e.ID, e.Task, e.Input, e.At)
		l.made++
		l.s.Did(scenario.OpScheduled)
		if e.Worker != "" {
			l.s.Did(scenario.OpReserved)
			l.claim(b, r, e.ID, t, 1, e.Seq, e.Worker, e.At)
		}
		return true
	}

	if t == nil {
		return false
	}
	if t.Over && e.Kind != model.EventWithdrawn { // the program may not know that the task is over
		l.Fail("E9: %s of %s: a %s after its end", e.ID, r.ID, e.Kind)
	}

	switch e.Kind {
	case model.EventTaskClaimed:
		l.claim(b, r, e.ID, t, e.Attempt, e.Seq, e.Worker, e.At)
	case model.EventTaskReturned:
		if ref := r.Ref(e.ID, t.Claim); l.s.Dropped[ref] && len(l.s.Reports[ref]) == 0 {
			l.checkLost(b, r, e.ID, t)
			l.s.Did(scenario.OpDropped)
		} else {
			l.reportedBy(r, e.ID, t, func(o *model.TaskReport) bool { return o.Returned })
		}
		t.Attempt--
		t.letGo(e.Due)
		l.s.Did(scenario.OpReturned)
	case model.EventStepCompleted:
		l.sameClaim(r, e, t)
		l.reportedBy(r, e.ID, t, func(o *model.TaskReport) bool { return !o.Returned && o.Failure == nil && o.Output.Equal(e.Output) })
		l.ends(t, endCompleted)
		l.s.Did(scenario.OpTaskCompleted)
	case model.EventWithdrawn:
		l.ends(t, endCalledOff)
		l.s.Did(scenario.OpTaskWithdrawn)
	case model.EventAttemptFailed, model.EventStepFailed, model.EventTaskTimedOut:
		l.sameClaim(r, e, t)
		l.taskFailed(b, r, e.ID, t, e.Failure, e.At)
		final := e.Kind == model.EventStepFailed || e.TimedOutForGood()
		if limit := t.spec.Retry.MaxAttempts; !final && (limit > 0 && t.Attempt >= limit || e.Failure.Permanent) {
			l.Fail("E24: attempt %d of %s of %s is to be repeated", t.Attempt, e.ID, r.ID)
		}
		if final {
			l.ends(t, endDead)
			l.dies(r, e.ID)
		} else {
			t.letGo(e.Due)
		}
	default:
		l.Fail("E9: %s of %s: a %s of a task", e.ID, r.ID, e.Kind)
	}

	return true
}

func (l *ledger) sameClaim(r *Run, e *model.Event, t *errandState) {
	if e.Ref != t.Claim || e.Worker != t.worker || e.Attempt != t.Attempt {
		l.Fail("E17: %s of %s: a %s of claim %d, which is %d", e.ID, r.ID, e.Kind, e.Ref, t.Claim)
	}
}

// reportedBy checks that the holder of the claim has sent the report (E17).
func (l *ledger) reportedBy(r *Run, id string, t *errandState, said func(*model.TaskReport) bool) {
	if !t.Held {
		l.Fail("E17: %s of %s ends by a report, although no worker has it", id, r.ID)
	}
	ref := r.Ref(id, t.Claim)
	if !slices.ContainsFunc(l.s.Reports[ref], said) {
		l.Fail("E17: %s of %s ends by a report that claim %d has not made", id, r.ID, t.Claim)
	}
	l.s.Claims[ref].reported = true
}

// taskFailed checks why an attempt, or a task, has failed (E26, E30–E32).
//
//arch:parameters the fields of a failure, which workflows and lone tasks store differently
func (l *ledger) taskFailed(b *store.Batch, r *Run, id string, t *errandState, f *model.Failure, at model.Time) {
	t.failed++
	after := func(from model.Time, d time.Duration) bool { return d > 0 && at > from.Add(d) }
	ok, lost := true, false

	switch f.Type {
	case model.TimeoutToStart:
		ok = !t.Held && after(t.visible, t.spec.ToStart)
		l.s.Did(scenario.OpToStart)
	case model.TimeoutToClose:
		ok = t.Held && after(t.since, t.spec.ToClose)
		l.s.Did(scenario.OpToClose)
	case model.TimeoutTotal:
		ok = after(t.scheduled, t.spec.Total)
		l.s.Did(scenario.OpTotal)
	case model.TimeoutSilence:
		ok = t.Held && after(t.since, t.spec.Silence)
		if last, heard := l.s.Beats[r.Ref(id, t.Claim)]; heard && last.Node == b.Lane.Node && !after(last.At, t.spec.Silence) {
			l.Fail("E32: claim %d of %s of %s was silent, and beat at %s of %s", t.Claim, id, r.ID, last.At, at)
		}
		l.s.Did(scenario.OpSilence)
	case model.FailureLost, model.FailurePoison:
		lost = true
		l.s.Did(scenario.OpLost)
		l.checkLost(b, r, id, t)
		if t.lost+1 >= 3 != (f.Type == model.FailurePoison) {
			l.Fail("E27: %d workers in a row went away with %s of %s: %s", t.lost+1, id, r.ID, f.Type)
		}
		if f.Type == model.FailurePoison {
			l.s.Did(scenario.OpPoison)
		}
	case model.FailureSpent:
		ok = false // no other failure in the simulation uses up attempts
	default:
		l.reportedBy(r, id, t, func(o *model.TaskReport) bool { return o.Failure != nil && o.Failure.Message == f.Message })
		l.s.Did(scenario.OpTaskFailed)
	}

	if !ok {
		l.Fail("E30: %s of %s fails with %s at %s: scheduled %s, visible %s, claimed %s", id, r.ID, f.Type, at, t.scheduled, t.visible, t.since)
	}

	if lost {
		t.lost++
	} else {
		t.lost = 0
	}
}

// checkLost checks a claim that the lane treats as lost or dropped. No live worker may execute the
// claim (E26).
func (l *ledger) checkLost(b *store.Batch, r *Run, id string, t *errandState) {
	if !t.Held {
		l.Fail("E26: %s of %s is lost, although no worker had it", id, r.ID)
	}
	name, node, _ := scenario.SplitWorker(t.worker)
	h := l.s.TaskWorkers[name]
	if !h.Executes(r.Ref(id, t.Claim)) {
		return
	}

	for n, m := range l.Nodes {
		if n.String() == node && m.Alive {
			l.Fail("E26: claim %d of %s of %s is lost, and %s executes it", t.Claim, id, r.ID, t.worker)
		}
	}

	if h.Node() == b.Lane.Node {
		l.Fail("E26: claim %d of %s of %s is lost, and %s of the same process executes it", t.Claim, id, r.ID, t.worker)
	}
}

// dies records that a task has failed permanently. The batch must make it a dead task, which
// deadLetters checks.
func (l *ledger) dies(r *Run, id string) {
	l.dying = append(l.dying, store.DeadKey{RunKey: store.RunKey{Shard: r.Address.Shard, Run: r.ID}, Task: id})
}

// endTasks ends the tasks of a run that ends: the task of a standalone run, or the open tasks of a
// workflow run.
func (l *ledger) endTasks(b *store.Batch, r *Run) {
	for _, t := range r.Tasks {
		if r.Start.Task == nil {
			l.ends(t, endCalledOff)
		}
	}

	if r.Start.Task == nil {
		return
	}
	t, o, how := r.Tasks[model.TaskStep], &r.outcome, endCalledOff
	if t.Over {
		l.Fail("E9: the task of %s ends twice", r.ID)
	}

	switch o.Status {
	case model.Completed:
		l.reportedBy(r, model.TaskStep, t, func(p *model.TaskReport) bool { return !p.Returned && p.Failure == nil && p.Output.Equal(o.Output) })
		how = endCompleted
		l.s.Did(scenario.OpTaskCompleted)
	case model.Failed:
		l.taskFailed(b, r, model.TaskStep, t, o.Failure, o.At)
		how = endDead
		l.dies(r, model.TaskStep)
	case model.Canceled:
		if t.Held && !r.Cancel {
			l.Fail("E25: %s is canceled without a request", r.ID)
		}
		if t.Held {
			for _, p := range l.s.Reports[r.Ref(model.TaskStep, t.Claim)] {
				if p.Failure != nil || p.Returned {
					l.s.Claims[r.Ref(model.TaskStep, t.Claim)].unsure = true
				}
			}
		}
		r.Cancel = true
		l.undoes(r)
		l.s.Did(scenario.OpTaskCanceled)
	case model.Terminated:
	default:
		l.Fail("the task of %s ends as %s", r.ID, o.Status)
	}

	l.ends(t, how)
}

// deadLetters checks that a batch makes a dead task of every task that fails permanently in this
// batch, and of no other task (E37).
func (l *ledger) deadLetters(b *store.Batch) {
	if len(b.Dead) != len(l.dying) {
		l.Fail("E37: %d tasks fail finally, and there are %d dead tasks", len(l.dying), len(b.Dead))
	}

	for i := range b.Dead {
		row := &b.Dead[i]
		r := l.Runs[row.Run]
		if !slices.Contains(l.dying, row.DeadKey) {
			l.Fail("E37: a dead task of %s of %s, which has not failed finally", row.Task, row.Run)
		}
		t := r.Task(row.Task)
		if row.Body.Attempts != t.Attempt || len(row.Body.Failed)+row.Body.LeftOut != t.failed {
			l.Fail("E37: the dead task of %s of %s has %d attempts and %d failures, its history %d and %d", row.Task, row.Run, row.Body.Attempts, len(row.Body.Failed), t.Attempt, t.failed)
		}
		l.s.Did(scenario.OpDead)
	}

	l.dying = l.dying[:0]
	l.applyDeadRows(b)
}

// inheritTask records the tasks that a run has from its past.
func (r *Run) inheritTask(e *model.Event) {
	if e.Blank() {
		return
	}
	if e.Kind == model.EventTaskScheduled {
		r.schedule(e.ID, e.Task, e.Input, e.At).inherited = true
		return
	}
	if t := r.Task(e.ID); t != nil {
		t.Over = true // a past leaves out tasks without an outcome
	}
}

// Current reports whether a claim is the current claim of its task, according to the history.
func (s *Oracle) Current(ref model.ClaimRef) bool {
	r := s.Ledger.Runs[ref.Run]
	if r == nil || !r.Open() {
		return false
	}
	t := r.Task(ref.ID)
	return t != nil && !t.Over && t.Held && t.Claim == ref.Claim
}

// CheckSettled checks the answer that a worker gets to its report (E17, E18).
func (s *Oracle) CheckSettled(ref model.ClaimRef, err error) {
	switch known := s.Claims[ref]; {
	case known == nil:
		s.Fail("L2: a worker hears of claim %d of %s, which is not in the store", ref.Claim, ref.TaskRef)
	case err == nil && !known.reported && !known.unsure:
		s.Fail("E17: the report of claim %d of %s counts, and is not in the history", ref.Claim, ref.TaskRef)
	case err != nil && known.reported && s.Ledger.Runs[ref.Run].Deleted == 0:
		// after a delete there is no history
		s.Fail("E18: the report of claim %d of %s is in the history, and its worker hears that it does not count: %v", ref.Claim, ref.TaskRef, err)
	case err != nil && s.Current(ref):
		s.Fail("E17: the report of claim %d of %s does not count, and it is the current one: %v", ref.Claim, ref.TaskRef, err)
	case err != nil && !fault.Is(err, fault.NotOwned) && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Conflict):
		s.Fail("the report of claim %d of %s: %v", ref.Claim, ref.TaskRef, err)
	case err != nil:
		s.Did(scenario.OpReportLate)
	}
}
