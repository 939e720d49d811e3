package perdure

import (
	"context"
	"iter"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/model"
)

// Requeue schedules a dead task again, as a task of its own. The new task has the options of the
// old task, except for its Delay. Its attempts and timeouts start again. A submitted task gets a
// new run of its key, and Result returns the outcome of that run from then on. If the dead task was
// a step of a workflow, the new task is independent of the workflow, which has already handled the
// failure. The workflow does not get the result of the new task. A caller has to ask for it. To
// continue the workflow itself, use [Executions.Retry].
//
// Without RequeueAgain, Requeue creates one new task, no matter how often it is called. Later calls
// return that task. The exception is a later call with an input that differs from the input of that
// task, or that cannot be compared with it: such a call returns ErrConflict. The new task has the
// idempotency key of the old task, unless WithInput changes the input.
func (d DeadTasks) Requeue(ctx context.Context, id string, opts ...RequeueOption) (task Ref, err error) {
	defer publish(&err)
	var o requeueOptions
	for _, opt := range opts {
		opt.applyRequeue(&o)
	}
	if o.request.ID, err = api.ParseDeadID(d.app.host.tenant, id); err != nil {
		return Ref{}, err
	}

	if o.input != nil {
		p, err := o.input(ctx, d.app.host, o.request.ID)
		if err != nil {
			return Ref{}, err
		}
		o.request.Input = &p
	}

	reply, err := d.app.host.backend.Requeue(ctx, o.request)
	if err != nil {
		return Ref{}, err
	}
	return Ref{Workflow: reply.Address.Type, Key: reply.Address.Key}, nil
}

// UndoRequeue cancels the requeued task and restores the dead task. If a worker has already started
// the requeued task, UndoRequeue returns ErrConflict. In that case, cancel the requeued task.
func (d DeadTasks) UndoRequeue(ctx context.Context, id string) (err error) {
	defer publish(&err)
	key, err := api.ParseDeadID(d.app.host.tenant, id)
	if err != nil {
		return err
	}
	return d.app.host.backend.UndoRequeue(ctx, api.UndoRequest{ID: key})
}

// RequeueAll requeues the dead tasks that the query selects, the newest first. It yields each of
// them. If the requeue of a task succeeded, its DeadTask.As is set. RequeueAll leaves out tasks
// that were requeued before, unless the query says otherwise. An error of one task does not stop
// the others. If an error ends the whole call, such as a canary that failed, RequeueAll yields that
// error with a zero DeadTask. Queues, priorities, limits and breakers apply to requeued tasks as to
// all other tasks.
func (d DeadTasks) RequeueAll(ctx context.Context, q DeadQuery, how RequeueMany) iter.Seq2[DeadTask, error] {
	return func(yield func(DeadTask, error) bool) {
		many := batch.Requeue(how)
		if err := many.Check(); err != nil {
			yield(DeadTask{}, err)
			return
		}
		for r := range batch.RequeueAll(ctx, d.app.host.backend, q.request(d.app.host.tenant), many) {
			if !yield(d.deadTaskOf(ctx, &r), public(r.Err)) {
				return
			}
		}
	}
}

func (d DeadTasks) deadTaskOf(ctx context.Context, r *batch.Requeued) DeadTask {
	if r.Task == nil {
		return DeadTask{}
	}
	out := d.deadOf(ctx, r.Task)
	if to := r.Reply.Address; !to.IsZero() {
		out.As = Ref{Workflow: to.Type, Key: to.Key}
	}
	return out
}

// RequeueMany says how RequeueAll proceeds. The zero value requeues all tasks as fast as it can.
type RequeueMany struct {
	// Canary requeues one task first and waits until it ends. If that task does not complete,
	// RequeueAll requeues nothing else.
	Canary bool
	// Rate is the largest number of tasks to requeue per second. 0 means no limit.
	Rate float64
	// DryRun changes nothing and yields the tasks that RequeueAll would requeue.
	DryRun bool
}

// RequeueOption says how a dead task is requeued: WithInput, RequeueAgain or RequestID.
type RequeueOption interface{ applyRequeue(*requeueOptions) }

// WithInput requeues a dead task with another input. Such a task has another idempotency key,
// because it makes another request to the outside world.
func WithInput[I any](in I) RequeueOption {
	return requeueOption(func(o *requeueOptions) {
		o.input = func(ctx context.Context, h *host, of api.DeadID) (model.Payload, error) {
			p, err := encode(h, "input of", "a dead task", in)
			if err == nil {
				p, err = h.sealRequeued(ctx, of, p)
			}
			return p, err
		}
	})
}

// RequeueAgain also requeues a task that was requeued before, if the earlier requeued task has
// ended.
func RequeueAgain() RequeueOption {
	return requeueOption(func(o *requeueOptions) { o.request.Again = true })
}

type requeueOptions struct {
	request api.RequeueRequest
	input   func(ctx context.Context, h *host, of api.DeadID) (model.Payload, error)
}

type requeueOption func(*requeueOptions)

func (f requeueOption) applyRequeue(o *requeueOptions) { f(o) }
