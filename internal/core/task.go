package core

import (
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// maxLost is how many claims of a task in a row may end because their worker disappears. The last
// of them ends the task too, because the code of the task may kill every worker that executes it.
const maxLost = 3

// maxEnded bounds how many ended claims a run remembers. With these claims, the run gives a
// repeated report the same answer as the first report. For older claims, the owner reads the store;
// see Fate.
const maxEnded = 64

// attemptBytes estimates the bytes of the events of an attempt, without the bytes of its outcome.
const attemptBytes = 512

// keptAttempts is how many failed attempts of a task are kept for operators. Half of them are the
// first failed attempts, and half of them the last.
const keptAttempts = 100

// Task is an open task of a run: a step that a worker of a queue executes.
type Task struct {
	ID        string
	Spec      *model.TaskSpec
	Input     model.Payload
	Scheduled model.Time
	// Visible is when the next attempt may begin.
	Visible model.Time
	// Attempt is how many attempts have begun, not counting attempts that a worker gave back.
	Attempt int
	// Held says that an attempt is in progress. Claim is the position of the event that recorded
	// its start, Worker is the worker that makes the attempt, and Since is when the attempt began.
	Held   bool
	Claim  int64
	Worker string
	Since  model.Time
	// Again says that there was a claim before, even if the worker gave it back.
	Again bool
	// Failures are the first and the last failed attempts. Dropped is how many are missing between
	// them.
	Failures []model.Event
	Dropped  int

	lost int // claims in a row whose worker disappeared
}

// endedClaim is a claim that a report has ended.
type endedClaim struct {
	id    string
	claim int64
}

// fewTasks is the largest number of tasks that needs no index.
const fewTasks = 16

// Tasks returns the open tasks, in the order in which they were scheduled. The caller must not
// change them.
func (x *Execution) Tasks() []*Task { return x.tasks }

// Task finds an open task, or nil.
func (x *Execution) Task(id string) *Task {
	if x.taskOf != nil {
		return x.taskOf[id]
	}
	for _, t := range x.tasks {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// addTask adds an open task behind all others.
func (x *Execution) addTask(t *Task) {
	x.tasks = append(x.tasks, t)
	switch {
	case x.taskOf != nil:
		x.taskOf[t.ID] = t
	case len(x.tasks) > fewTasks:
		x.taskOf = make(map[string]*Task, 2*len(x.tasks))
		for _, t := range x.tasks {
			x.taskOf[t.ID] = t
		}
	}
}

// dropTask removes an open task.
func (x *Execution) dropTask(t *Task) {
	i := slices.Index(x.tasks, t)
	x.tasks = slices.Delete(x.tasks, i, i+1)
	delete(x.taskOf, t.ID)
}

// dropTasks removes all open tasks.
func (x *Execution) dropTasks() { x.tasks, x.taskOf = nil, nil }

// Alone reports whether the run is a task that stands alone, without a workflow.
func (x *Execution) Alone() bool { return x.Start.Task != nil }

// Claimable reports whether a worker may begin an attempt of the task, now or when it becomes
// visible.
func (x *Execution) Claimable(t *Task) bool { return x.Open() && x.Paused == nil && !t.Held }

// openTask adds a scheduled task to the state. If worker is not empty, that worker has claimed the
// task already.
func (x *Execution) openTask(t *Task, worker string, claim int64) {
	t.Visible = t.Scheduled.Add(max(t.Spec.Delay, 0))
	if worker != "" {
		t.hold(1, claim, worker, t.Scheduled)
	}
	x.addTask(t)
}

// hold notes that a worker has claimed the task.
func (t *Task) hold(attempt int, claim int64, worker string, at model.Time) {
	t.Attempt, t.Held, t.Claim, t.Worker, t.Since = attempt, true, claim, worker, at
}

// endClaim ends the claim. The next attempt may begin at the given time.
func (t *Task) endClaim(visible model.Time) {
	t.Held, t.Claim, t.Worker, t.Since, t.Visible, t.Again = false, 0, "", 0, visible, true
}

// noteFailure keeps a failed attempt. When there are too many, it drops the oldest attempt of the
// last half.
func (t *Task) noteFailure(e *model.Event) {
	if len(t.Failures) < keptAttempts {
		t.Failures = append(t.Failures, *e)
		return
	}
	const half = keptAttempts / 2
	t.Failures = slices.Concat(t.Failures[:half], t.Failures[half+1:], []model.Event{*e})
	t.Dropped++
}

// noteTask folds an event into its task, if it has one.
func (x *Execution) noteTask(e *model.Event) {
	if e.Kind == model.EventTaskScheduled {
		x.openTask(&Task{ID: e.ID, Spec: e.Task, Input: e.Input, Scheduled: e.At}, e.Worker, e.Seq)
		return
	}

	t := x.Task(e.ID)
	if t == nil {
		return // a step that needs no queue
	}

	switch {
	case e.Kind == model.EventTaskClaimed:
		t.hold(e.Attempt, e.Seq, e.Worker, e.At)
		return
	case e.Kind == model.EventTaskReturned:
		t.Attempt--
		x.rememberEnded(t.ID, t.Claim)
		t.endClaim(e.Due)
		return
	case t.Held && byReport(e):
		x.rememberEnded(t.ID, t.Claim)
	}

	if f := e.Failure; f != nil {
		t.noteFailure(e)
		if f.Type == model.FailureLost && !byReport(e) {
			t.lost++
		} else {
			t.lost = 0
		}
	}

	if e.Kind == model.EventAttemptFailed || (e.Kind == model.EventTaskTimedOut && e.Due != 0) {
		t.endClaim(e.Due)
		return
	}

	x.dropTask(t)
}

// byReport reports whether an event that ends a claim records a report of the worker. Otherwise the
// engine took the claim away from the worker, and ignores a later report of that worker. The
// failure in the event does not show the difference: an activity may return, as its own failure,
// the failure of another task whose worker was lost.
func byReport(e *model.Event) bool {
	switch e.Kind {
	case model.EventStepCompleted, model.EventAttemptFailed, model.EventStepFailed:
		return e.Status != model.Terminated
	default:
		return false
	}
}

// rememberEnded remembers that a report has ended a claim.
func (x *Execution) rememberEnded(id string, claim int64) {
	if len(x.endedClaims) >= maxEnded {
		x.endedClaims = slices.Delete(x.endedClaims, 0, 1)
	}
	x.endedClaims = append(x.endedClaims, endedClaim{id, claim})
}

// schedule opens a task, unless the step has opened it before.
func (x *Execution) schedule(d *Decision, e model.Event, now model.Time) {
	if x.Task(e.ID) != nil {
		return
	}
	e.Kind, e.Worker = model.EventTaskScheduled, ""
	x.append(d, now, e)
}

// Assign gives new tasks of a decision to workers immediately, so that the claim is part of the
// same commit. find names the worker for a task. If it returns an empty name, the task waits.
func Assign(x *Execution, d *Decision, find func(t *Task, claim int64) (worker string)) {
	if d.Start != nil && d.Start.Task != nil {
		t := x.tasks[0]
		if w := find(t, 0); w != "" {
			x.Start.Worker, d.Start.Worker = w, w
			t.hold(1, 0, w, t.Scheduled)
		}
		return
	}

	first, next := len(d.Events), len(x.tasks) // new tasks are the last ones
	for i := len(d.Events) - 1; i >= 0 && next > 0; i-- {
		if e := &d.Events[i]; e.Kind == model.EventTaskScheduled && x.tasks[next-1].ID == e.ID {
			first, next = i, next-1
		}
	}

	for i := first; i < len(d.Events); i++ {
		e := &d.Events[i]
		if e.Kind != model.EventTaskScheduled || next == len(x.tasks) || x.tasks[next].ID != e.ID {
			continue // another event, or a task that the same turn has withdrawn
		}
		t := x.tasks[next]
		next++
		if e.Worker = find(t, e.Seq); e.Worker != "" {
			t.hold(1, e.Seq, e.Worker, e.At)
		}
	}
}

// Claim gives a task to a worker. It reports false when the task can no longer be claimed. It does
// not check the limit of the history, because a worker that cannot claim a task would try again
// forever. failAttempt checks the limit instead, when an attempt has failed.
func Claim(x *Execution, id, worker string, now model.Time) (Decision, bool) {
	var d Decision
	t := x.Task(id)
	if t == nil || !x.Claimable(t) || t.Visible > now {
		return d, false
	}
	x.append(&d, now, model.Event{Kind: model.EventTaskClaimed, ID: id, Attempt: t.Attempt + 1, Worker: worker})
	return d, true
}

// Report applies the end of a claim. It answers a repeated report like the first one. If the engine
// has taken the claim away from the worker, Report refuses the report with NotOwned. Neither report
// writes anything.
func Report(x *Execution, r *model.TaskReport, now model.Time, lim Limits) Decision {
	var d Decision
	d.Answer.Run, d.Answer.Status = x.Start.Run, x.Outcome.Status
	t := x.Task(r.Ref.ID)

	switch {
	case x.hasEnded(r.Ref.ID, r.Ref.Claim):
		return d
	case t == nil || !t.Held || t.Claim != r.Ref.Claim:
		d.refuse(fault.NotOwned, fmt.Sprintf("claim %d of %s is no longer held", r.Ref.Claim, r.Ref.TaskRef))
		return d
	case !model.SpeaksFor(r.By, t.Worker):
		d.refuse(fault.NotOwned, fmt.Sprintf("another worker has claim %d of %s", r.Ref.Claim, r.Ref.TaskRef))
		return d
	}

	switch f := r.Failure.Bounded(); {
	case r.Returned && x.isCramped(0, lim):
		x.fail(&d, t, verdict{kind: model.EventStepFailed, failure: x.tooLong()}, now)
	case r.Returned && !x.isCanceling():
		x.append(&d, now, model.Event{Kind: model.EventTaskReturned, ID: t.ID, Worker: t.Worker, Due: now.Add(max(r.After, 0))})
	case f == nil && !r.Returned:
		x.complete(&d, t, r.Output, moment{now, lim})
	default:
		v := verdict{kind: model.EventAttemptFailed, failure: f, notBefore: now.Add(max(r.RetryAfter, 0))}
		x.failAttempt(&d, t, v, moment{now, lim})
	}

	return d
}

// hasEnded reports whether a report has ended the claim.
func (x *Execution) hasEnded(id string, claim int64) bool {
	if !x.Open() && x.Alone() && id == model.TaskStep {
		// A terminated run has no claim in its outcome.
		return x.Outcome.Status != model.Terminated && x.Outcome.Seen == claim
	}
	return slices.Contains(x.endedClaims, endedClaim{id, claim})
}

// Expiry is a time-out of a task, or the loss of its worker. The field What is the type of the
// failure, for example model.TimeoutToStart or model.FailureLost. Held and Claim are the state of
// the task when the caller looked at it.
type Expiry struct {
	ID    string
	Held  bool
	Claim int64
	What  string
}

// Expire ends an attempt, or the whole task, because a time-out has passed or its worker
// disappeared. It does nothing if the state of the task has changed since the caller looked.
func Expire(x *Execution, due Expiry, now model.Time, lim Limits) Decision {
	var d Decision
	t, what := x.Task(due.ID), due.What
	if t == nil || !x.Open() || !t.isExpired(what, now) {
		return d
	}
	if what != model.TimeoutTotal && (t.Held != due.Held || t.Claim != due.Claim) {
		return d
	}

	f := &model.Failure{Kind: model.FailureTimeout, Type: what, Message: t.timeoutText(what)}
	switch what {
	case model.TimeoutToStart, model.TimeoutTotal:
		x.fail(&d, t, engineVerdict(model.EventTaskTimedOut, f), now)
	case model.FailureSpent:
		f.Kind, f.Message = "", fmt.Sprintf("all %d attempts are spent", t.Attempt)
		x.fail(&d, t, engineVerdict(model.EventStepFailed, f), now)
	case model.FailureLost:
		f.Kind, f.Message = fault.Unavailable.String(), fmt.Sprintf("worker %s disappeared during attempt %d", t.Worker, t.Attempt)
		if t.lost+1 < maxLost {
			x.failAttempt(&d, t, engineVerdict(model.EventAttemptFailed, f), moment{now, lim})
			break
		}
		f.Type, f.Message = model.FailurePoison, fmt.Sprintf("%d workers in a row disappeared during it: %s", maxLost, f.Message)
		x.fail(&d, t, engineVerdict(model.EventStepFailed, f), now)
	default:
		v := engineVerdict(model.EventTaskTimedOut, f)
		v.notBefore = now
		x.failAttempt(&d, t, v, moment{now, lim})
	}

	if d.Close != nil {
		d.Close.Seen = -1 // no report ended the run
	}
	return d
}

// isExpired reports whether a time-out has passed.
func (t *Task) isExpired(what string, now model.Time) bool {
	switch what {
	case model.TimeoutToStart:
		return !t.Held && t.Spec.ToStart > 0 && now > t.Visible.Add(t.Spec.ToStart)
	case model.TimeoutTotal:
		return t.Spec.Total > 0 && now > t.Scheduled.Add(t.Spec.Total)
	case model.TimeoutToClose:
		return t.Held && t.Spec.ToClose > 0 && now > t.Since.Add(t.Spec.ToClose)
	case model.TimeoutSilence: // only the caller knows the last heartbeat
		return t.Held && t.Spec.Silence > 0 && now > t.Since.Add(t.Spec.Silence)
	case model.FailureLost:
		return t.Held
	case model.FailureSpent:
		return !t.Held && t.Spec.Retry.MaxAttempts > 0 && t.Attempt >= t.Spec.Retry.MaxAttempts
	}
	return false
}

// timeoutText describes a time-out.
func (t *Task) timeoutText(what string) string {
	switch what {
	case model.TimeoutToStart:
		return fmt.Sprintf("no worker began it within %s", t.Spec.ToStart)
	case model.TimeoutTotal:
		return fmt.Sprintf("it did not end within %s", t.Spec.Total)
	case model.TimeoutToClose:
		return fmt.Sprintf("attempt %d took longer than %s", t.Attempt, t.Spec.ToClose)
	}
	return fmt.Sprintf("attempt %d was silent for longer than %s", t.Attempt, t.Spec.Silence)
}

// complete ends a task with an output.
func (x *Execution) complete(d *Decision, t *Task, out model.Payload, at moment) {
	if x.Alone() {
		x.endAlone(d, t, model.Outcome{Status: model.Completed, Output: out, At: at.now})
		return
	}
	e := model.Event{Kind: model.EventStepCompleted, ID: t.ID, Name: t.Spec.Kind, Attempt: t.Attempt, Output: out, Ref: t.Claim, Worker: t.Worker}
	if size := e.Size(); x.wouldExceed(size, at.lim) {
		x.fail(d, t, verdict{kind: model.EventStepFailed, failure: x.noRoom(size, at.lim)}, at.now)
		return
	}
	x.append(d, at.now, e)
}

// verdict is the end of an attempt: the kind of its event, and the failure.
type verdict struct {
	kind    model.EventKind
	failure *model.Failure
	// The field by is Terminated when the engine ended the attempt, and zero when the worker
	// reported its end.
	by model.Status
	// notBefore is the earliest time of the next attempt. Zero means immediately, whatever the
	// retry policy says.
	notBefore model.Time
}

// moment is the time of a decision and the limits that hold for it.
type moment struct {
	now model.Time
	lim Limits
}

// engineVerdict returns a verdict of the engine, without a report.
func engineVerdict(kind model.EventKind, f *model.Failure) verdict {
	return verdict{kind: kind, failure: f, by: model.Terminated}
}

// event returns the event that records the verdict.
func (v *verdict) event(t *Task) model.Event {
	return model.Event{Kind: v.kind, ID: t.ID, Name: t.Spec.Kind, Attempt: t.Attempt, Failure: v.failure, Status: v.by, Ref: t.Claim, Worker: t.Worker}
}

// failAttempt ends an attempt. It ends the task as well, unless the retry policy allows another
// attempt.
func (x *Execution) failAttempt(d *Decision, t *Task, v verdict, at moment) {
	now, lim := at.now, at.lim
	if x.isCanceling() {
		x.fail(d, t, v, now)
		return
	}

	if x.wouldExceed(v.failure.Size(), lim) {
		// Many open tasks must not fill the history with stack traces.
		v.failure = v.failure.Brief()
	}

	if !t.Spec.Retry.Worth(t.Attempt, v.failure) {
		if v.kind == model.EventAttemptFailed {
			v.kind = model.EventStepFailed
		}
		x.fail(d, t, v, now)
		return
	}

	if x.isCramped(v.failure.Size(), lim) {
		long := *x.tooLong()
		long.Message += ": " + v.failure.Message
		v.kind, v.failure = model.EventStepFailed, long.Brief()
		x.fail(d, t, v, now)
		return
	}

	// Another attempt follows.
	e := v.event(t)
	e.Due = max(now, 1)
	if v.notBefore != 0 {
		e.Due = max(now.Add(t.Spec.Retry.Pause(t.Attempt, x.taskJitter(t))), v.notBefore, 1)
	}
	x.append(d, now, e)
}

// isCramped reports whether the history has no room for another attempt. size estimates the bytes
// of the event that ends the current attempt.
func (x *Execution) isCramped(size int, lim Limits) bool {
	return x.Next+2 > lim.Events || x.wouldExceed(size+attemptBytes, lim)
}

// tooLong returns why a task has no further attempt although its policy would allow one.
func (x *Execution) tooLong() *model.Failure {
	return &model.Failure{
		Kind: fault.Exhausted.String(), Type: model.FailureHistory, Message: fmt.Sprintf("the history of %s has no room for another attempt", x.Start.Run),
	}
}

// fail ends a task permanently: the step that scheduled it gets the failure, and operators find the
// task among the dead tasks. A task that was asked to stop ends as cancelled instead.
func (x *Execution) fail(d *Decision, t *Task, v verdict, now model.Time) {
	f := v.failure
	if x.isCanceling() {
		x.endAlone(d, t, model.Outcome{Status: model.Canceled, Failure: canceledFailure(f), At: now})
		return
	}

	// Keep the task with its attempts for operators.
	e := v.event(t)
	e.At = max(now, x.Last)
	dead, spec := *t, *t.Spec
	if spec.Same == nil {
		spec.Same = &model.TaskOrigin{Run: x.Start.IdentityRun(), Step: t.ID}
	}
	dead.Spec = &spec
	dead.Failures = slices.Clone(t.Failures)
	dead.noteFailure(&e)
	d.Dead = append(d.Dead, DeadTask{Task: dead, Failure: f, At: e.At})

	if x.Alone() {
		x.endAlone(d, t, model.Outcome{Status: model.Failed, Failure: f, At: now})
		return
	}

	x.append(d, now, e)
}

// endAlone ends the run of a task. The outcome remembers the claim whose report led to it, so that
// a repeated report is recognised.
func (x *Execution) endAlone(d *Decision, t *Task, o model.Outcome) {
	o.At, o.Seen = max(o.At, x.Last), -1
	if t.Held {
		o.Seen = t.Claim
	}
	x.end(d, o, nil)
	d.Answer = model.Answer{Run: x.Start.Run, Status: o.Status}
}

// cancelAlone applies a cancel request to the run of a task. If no worker executes the task, the
// run ends immediately. Otherwise the worker receives the request and decides.
func (x *Execution) cancelAlone(d *Decision, m *model.Message, now model.Time) {
	if t := x.Task(model.TaskStep); t != nil && !t.Held {
		x.endAlone(d, t, model.Outcome{Status: model.Canceled, Failure: canceledFailure(m.Failure), At: now})
		return
	}
	x.append(d, now, model.Event{Kind: model.EventCancelRequest, Failure: m.Failure, RequestID: m.RequestID})
}

// isCanceling reports whether a task that stands alone has been asked to stop.
func (x *Execution) isCanceling() bool { return x.Alone() && x.Canceling != 0 }

// canceledFailure returns the failure of a task that was cancelled for the given reason.
func canceledFailure(f *model.Failure) *model.Failure {
	c := model.Failure{Kind: model.FailureCanceled, Message: "canceled"}
	if f != nil && f.Message != "" {
		c.Message = f.Message
	}
	return &c
}

// taskJitter returns the random number for the jitter of the next pause. It differs for each
// attempt of each task, and every node computes the same number.
func (x *Execution) taskJitter(t *Task) float64 { return jitterOf(x.Start.Run, t.ID, t.Attempt) }

// jitterOf returns a number between -1 and 1 that depends only on its parameters.
func jitterOf(run model.RunID, id string, attempt int) float64 {
	h := fnv.New64a()
	_, _ = h.Write(run[:])
	_, _ = h.Write([]byte(id))
	_, _ = h.Write([]byte{byte(attempt), byte(attempt >> 8), byte(attempt >> 16), byte(attempt >> 24)})
	n := h.Sum64()
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	return float64(n)/math.MaxUint64*2 - 1
}

// DeadTask is a task that has failed permanently, with its attempts.
type DeadTask struct {
	Task    Task
	Failure *model.Failure
	At      model.Time
}
