package perdure

import (
	"context"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/model"
)

// DeadTask is a task that failed for good: its attempts are spent, or its error was not worth another one. Whoever waited for it has heard so. It is kept, with
// every attempt's error and with its input, until it is purged or three months old; it may be requeued. (What transactions sent and the engine refused is a DeadLetter.)
type DeadTask struct {
	ID       string // names it in calls
	Activity string
	Queue    string
	// Of is the execution that the task was a step of or, when it had been submitted, its own, with the run.
	Of        Ref
	Scheduled time.Time
	Died      time.Time
	Attempts  int
	Err       error // that it died of
	// Fingerprint is what it has in common with others: a digest of the error without numbers, ids and quoted parts.
	Fingerprint string
	// Requeued is how often it was requeued; As and RequeuedAt tell of the last time. They are zero after an undo.
	Requeued   int
	As         Ref
	RequeuedAt time.Time

	// What follows is of App.DeadTask only; lists leave it out.

	// Failed are the attempts that failed, the first and the last ones; LeftOut is how many lie between them.
	Failed  []FailedAttempt
	LeftOut int
	// Input is JSON, or nil when this app cannot decode it; InputIs tells how it is stored.
	Input   []byte
	InputIs string
}

// FailedAttempt is an attempt of a task that failed.
type FailedAttempt struct {
	Number int
	At     time.Time
	Worker string // as in Event; empty when nobody had begun it
	Err    error
}

// DeadQuery selects dead tasks: all conditions must hold, those that are zero always do.
type DeadQuery struct {
	Activities  []string // any of these
	Queues      []string // any of these
	Fingerprint string
	// From and To is when they died: from From until before To.
	From, To time.Time
	// Requeued selects those that were requeued, or those that were not; nil for both.
	Requeued *bool
}

func (q *DeadQuery) request() api.DeadRequest {
	r := api.DeadRequest{Tenant: model.DefaultTenant, Activities: q.Activities, Queues: q.Queues, Fingerprint: q.Fingerprint, Requeued: q.Requeued}
	if !q.From.IsZero() {
		r.From = model.TimeOf(q.From)
	}
	if !q.To.IsZero() {
		r.To = model.TimeOf(q.To)
	}
	return r
}

// DeadGroup is dead tasks of one activity that failed in the same way.
type DeadGroup struct {
	Activity    string
	Fingerprint string // for DeadQuery
	Count       int64
	First, Last time.Time
	Message     string // of the last one
}

func (a *App) deadOf(ctx context.Context, d *api.DeadTask) DeadTask {
	b := &d.Body
	out := DeadTask{
		ID: d.ID.String(), Activity: b.Spec.Kind, Queue: b.Spec.Queue, Of: Ref{Workflow: b.Address.Type, Key: b.Address.Key, Run: d.ID.Run.String()},
		Scheduled: b.Scheduled.Std(), Died: b.At.Std(), Attempts: b.Attempts, Fingerprint: b.Fingerprint, Requeued: int(d.Requeued), LeftOut: b.LeftOut,
	}
	if b.Failure != nil {
		out.Err = remote(b.Failure)
	}
	if q := b.Requeued; !q.IsZero() {
		out.As, out.RequeuedAt = Ref{Workflow: q.Address.Type, Key: q.Address.Key, Run: q.Run.String()}, q.At.Std()
	}
	for i := range b.Failed {
		f := &b.Failed[i]
		out.Failed = append(out.Failed, FailedAttempt{Number: f.Attempt, At: f.At.Std(), Worker: f.Worker, Err: remote(&f.Failure)})
	}
	if b.Input.Size() > 0 {
		out.Input, out.InputIs = a.host.show(ctx, b.Input)
	}
	return out
}

// DeadTasks lists tasks that failed for good, those that died last first.
func (a *App) DeadTasks(ctx context.Context, q DeadQuery) iter.Seq2[DeadTask, error] {
	return func(yield func(DeadTask, error) bool) {
		for r := q.request(); ; {
			page, err := a.host.backend.ListDead(ctx, r)
			if err != nil {
				yield(DeadTask{}, public(err))
				return
			}
			for i := range page.Tasks {
				if !yield(a.deadOf(ctx, &page.Tasks[i]), nil) {
					return
				}
			}
			if r.Cursor = page.Cursor; r.Cursor == "" {
				return
			}
		}
	}
}

// DeadGroups tells what dead tasks have in common: by activity and kind of error, the largest groups first, at most a thousand.
func (a *App) DeadGroups(ctx context.Context, q DeadQuery) ([]DeadGroup, error) {
	r := q.request()
	r.Limit = maxGroups
	found, err := a.host.backend.GroupDead(ctx, r)
	groups := make([]DeadGroup, len(found))
	for i, g := range found {
		groups[i] = DeadGroup{Activity: g.Activity, Fingerprint: g.Fingerprint, Count: g.Count, First: g.First.Std(), Last: g.Last.Std(), Message: g.Message}
	}
	return groups, public(err)
}

const maxGroups = 1000

// DeadTask is one dead task, with its attempts and its input.
func (a *App) DeadTask(ctx context.Context, id string) (DeadTask, error) {
	key, err := api.ParseDeadID(id)
	if err != nil {
		return DeadTask{}, public(err)
	}
	d, err := a.host.backend.ShowDead(ctx, key)
	if err != nil {
		return DeadTask{}, public(err)
	}
	return a.deadOf(ctx, &d), nil
}

// RequeueOption says how a dead task is requeued; RequestID is one too.
type RequeueOption interface{ applyRequeue(*requeueOptions) }

type requeueOptions struct {
	request api.RequeueRequest
	input   func(ctx context.Context, h *host) (model.Payload, error)
}

type requeueOption func(*requeueOptions)

func (f requeueOption) applyRequeue(o *requeueOptions) { f(o) }

func (r requestID) applyRequeue(o *requeueOptions) { o.request.RequestID = string(r) }

// WithInput requeues a dead task with another input. It is another request to the world outside then, so its idempotency key is another one too.
func WithInput[I any](in I) RequeueOption {
	return requeueOption(func(o *requeueOptions) {
		o.input = func(ctx context.Context, h *host) (model.Payload, error) {
			p, err := encode(h, "input of", "a dead task", in)
			if err == nil {
				p, err = h.seal(ctx, brief, "input of", "a dead task", p)
			}
			return p, err
		}
	})
}

// RequeueAgain also requeues what was requeued before, if the task of that has ended.
func RequeueAgain() RequeueOption {
	return requeueOption(func(o *requeueOptions) { o.request.Again = true })
}

// Requeue gives a dead task another chance: it becomes a task of its own with the options that it had, and with attempts and time-outs that count anew. One that had
// been submitted is a new run of its key; whoever asks for its result from now on hears that of the new run. A step of a workflow is requeued beside it: the workflow has heard of
// the failure and has decided what to do about it, so the result reaches nobody but whoever asks for it. To have the workflow itself go on, use Retry on its execution instead.
//
// However often it is called, there is one new task: a repetition is answered with the first. It keeps the idempotency key that it had, unless it
// gets another input.
func (a *App) Requeue(ctx context.Context, id string, opts ...RequeueOption) (Ref, error) {
	var o requeueOptions
	for _, opt := range opts {
		opt.applyRequeue(&o)
	}
	var err error
	if o.request.ID, err = api.ParseDeadID(id); err != nil {
		return Ref{}, public(err)
	}
	if o.input != nil {
		p, err := o.input(ctx, a.host)
		if err != nil {
			return Ref{}, public(err)
		}
		o.request.Input = &p
	}
	reply, err := a.host.backend.Requeue(ctx, o.request)
	if err != nil {
		return Ref{}, public(err)
	}
	return Ref{Workflow: reply.Address.Type, Key: reply.Address.Key}, nil
}

// UndoRequeue takes a requeue back: its task is cancelled, and the dead task is as it was before. It is a conflict when somebody has begun the task; cancel it then.
func (a *App) UndoRequeue(ctx context.Context, id string) error {
	key, err := api.ParseDeadID(id)
	if err != nil {
		return public(err)
	}
	return public(a.host.backend.UndoRequeue(ctx, api.UndoRequest{ID: key}))
}

// RequeueMany is how RequeueAll goes about it.
type RequeueMany struct {
	// Canary requeues one first and waits for its end. Unless it completes, nothing else is requeued.
	Canary bool
	// Rate is how many are requeued in a second, at most; 0 for no limit.
	Rate float64
	// DryRun changes nothing and yields what would be requeued.
	DryRun bool
}

// RequeueAll requeues the dead tasks that the query selects and that were not requeued before (unless it says otherwise), those that died last first, and yields each as it is
// done, with As set. An error of one does not stop the others; a zero DeadTask comes with the error that ends it all, such as a canary that failed. They are
// ordinary submissions: queues, priorities, limits and breakers apply to them as to others.
func (a *App) RequeueAll(ctx context.Context, q DeadQuery, how RequeueMany) iter.Seq2[DeadTask, error] {
	return func(yield func(DeadTask, error) bool) {
		many := batch.Requeue(how)
		if err := many.Check(); err != nil {
			yield(DeadTask{}, public(err))
			return
		}
		for r := range batch.RequeueAll(ctx, a.host.backend, q.request(), many) {
			if !yield(a.requeued(ctx, &r), public(r.Err)) {
				return
			}
		}
	}
}

func (a *App) requeued(ctx context.Context, r *batch.Requeued) DeadTask {
	if r.Task == nil {
		return DeadTask{}
	}
	d := a.deadOf(ctx, r.Task)
	if to := r.Reply.Address; !to.IsZero() {
		d.As = Ref{Workflow: to.Type, Key: to.Key}
	}
	return d
}

// PurgeDead removes the dead tasks that the query selects and yields each as it is done. Those whose requeued task is open stay, with an error.
func (a *App) PurgeDead(ctx context.Context, q DeadQuery) iter.Seq2[DeadTask, error] {
	return func(yield func(DeadTask, error) bool) {
		for r := range batch.PurgeAll(ctx, a.host.backend, q.request(), false) {
			if !yield(a.requeued(ctx, &r), public(r.Err)) {
				return
			}
		}
	}
}
