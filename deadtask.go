package perdure

import (
	"context"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/model"
)

// DeadTasks lists, requeues and purges tasks that failed permanently.
type DeadTasks struct{ app *App }

// DeadTasks operates the tasks that failed permanently.
func (a *App) DeadTasks() DeadTasks { return DeadTasks{a} }

// List returns tasks that failed permanently, the newest first. It leaves out inputs and attempts;
// Describe returns them.
func (d DeadTasks) List(ctx context.Context, q DeadQuery) iter.Seq2[DeadTask, error] {
	r := q.request(d.app.host.tenant)
	show := func(dead *api.DeadTask) DeadTask { return d.deadOf(ctx, dead) }
	return pages(show, func(cursor string) ([]api.DeadTask, string, error) {
		r.Cursor = cursor
		page, err := d.app.host.backend.ListDead(ctx, r)
		return page.Tasks, page.Cursor, err
	})
}

// Groups counts dead tasks by activity and kind of error, the largest groups first, at most a
// thousand.
func (d DeadTasks) Groups(ctx context.Context, q DeadQuery) ([]DeadGroup, error) {
	r := q.request(d.app.host.tenant)
	r.Limit = maxGroups
	found, err := d.app.host.backend.GroupDead(ctx, r)
	groups := make([]DeadGroup, len(found))
	for i, g := range found {
		groups[i] = DeadGroup{Activity: g.Activity, Fingerprint: g.Fingerprint, Count: g.Count, First: g.First.Std(), Last: g.Last.Std(), Message: g.Message}
	}
	return groups, public(err)
}

const maxGroups = 1000

// Describe returns one dead task with its attempts and its input.
func (d DeadTasks) Describe(ctx context.Context, id string) (task DeadTask, err error) {
	defer publish(&err)
	key, err := api.ParseDeadID(d.app.host.tenant, id)
	if err != nil {
		return DeadTask{}, err
	}
	found, err := d.app.host.backend.ShowDead(ctx, key)
	if err != nil {
		return DeadTask{}, err
	}
	return d.deadOf(ctx, &found), nil
}

// Purge removes the dead tasks that the query selects and yields each of them. If the requeued task
// of a dead task is still open, Purge keeps the dead task and yields it with an error.
func (d DeadTasks) Purge(ctx context.Context, q DeadQuery) iter.Seq2[DeadTask, error] {
	return func(yield func(DeadTask, error) bool) {
		for r := range batch.PurgeAll(ctx, d.app.host.backend, q.request(d.app.host.tenant), false) {
			if !yield(d.deadTaskOf(ctx, &r), public(r.Err)) {
				return
			}
		}
	}
}

// DeadTask is a task that failed permanently, for example because it has no attempts left or
// because its error was permanent. The caller that waited for it has received the error. The engine
// keeps a dead task, with its input and the errors of its attempts, for 90 days
// (embedded.Config.KeepDead) or until an operator purges it. An operator can requeue it. A message
// that the engine refused is a DeadLetter instead.
type DeadTask struct {
	ID       string // for Describe, Requeue and UndoRequeue
	Activity string
	Queue    string
	// Of is the execution that the task was a step of, with its run. For a submitted task it is the
	// execution of the task itself.
	Of        Ref
	Scheduled time.Time
	Died      time.Time
	Attempts  int
	Err       error // the final error
	// Fingerprint is a digest of the error without its numbers, ids and quoted parts. Tasks that
	// failed in the same way have the same fingerprint.
	Fingerprint string
	// Requeued counts how often the task was requeued. The field As has the last task that a
	// requeue created, and RequeuedAt is when the requeue created it. UndoRequeue sets both to
	// zero.
	Requeued   int
	As         Ref
	RequeuedAt time.Time

	// Only DeadTasks.Describe fills the fields below; lists leave them out.

	// Failed are the first and the last failed attempts. LeftOut counts the attempts between them.
	Failed  []FailedAttempt
	LeftOut int
	// Input is JSON, or nil when this app cannot decode it. InputIs says how it is stored.
	Input   []byte
	InputIs string
}

// FailedAttempt is a failed attempt of a task.
type FailedAttempt struct {
	Number int
	At     time.Time
	Worker string // as in Event.Worker; empty if no worker had started the attempt
	Err    error
}

// DeadGroup describes the dead tasks of one activity that failed in the same way.
type DeadGroup struct {
	Activity    string
	Fingerprint string // for DeadQuery
	Count       int64
	First, Last time.Time
	Message     string // of the newest task
}

// DeadQuery selects dead tasks. All conditions must hold; a zero field sets no condition.
type DeadQuery struct {
	Activities  []string // any of these
	Queues      []string // any of these
	Fingerprint string
	// From and To select tasks that failed permanently at or after From and before To.
	From, To time.Time
	// Requeued selects tasks that were requeued (true) or were not (false); nil selects both.
	Requeued *bool
}

func (q *DeadQuery) request(tenant string) api.DeadRequest {
	r := api.DeadRequest{Tenant: tenant, Activities: q.Activities, Queues: q.Queues, Fingerprint: q.Fingerprint, Requeued: q.Requeued}
	if !q.From.IsZero() {
		r.From = model.TimeOf(q.From)
	}
	if !q.To.IsZero() {
		r.To = model.TimeOf(q.To)
	}
	return r
}

func (d DeadTasks) deadOf(ctx context.Context, dead *api.DeadTask) DeadTask {
	b := &dead.Body
	out := DeadTask{
		ID: dead.ID.String(), Activity: b.Spec.Kind, Queue: b.Spec.Queue, Of: Ref{Workflow: b.Address.Type, Key: b.Address.Key, Run: dead.ID.Run.String()},
		Scheduled: b.Scheduled.Std(), Died: b.At.Std(), Attempts: b.Attempts, Fingerprint: b.Fingerprint, Requeued: int(dead.Requeued), LeftOut: b.LeftOut,
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
		out.Input, out.InputIs = d.app.host.show(ctx, b.Input)
	}
	return out
}
