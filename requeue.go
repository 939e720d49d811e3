package perdure

import (
	"context"
	"iter"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/model"
)

// Requeue gives a dead task another chance: it becomes a task of its own with the options that it had, and with attempts and time-outs that count anew. One that had
// been submitted is a new run of its key; whoever asks for its result from now on hears that of the new run. A step of a workflow is requeued beside it: the workflow has heard of
// the failure and has decided what to do about it, so the result reaches nobody but whoever asks for it. To have the workflow itself go on, use Retry on its execution instead.
//
// However often it is called, there is one new task: a repetition is answered with the first. It keeps the idempotency key that it had, unless it
// gets another input.
func (d DeadTasks) Requeue(ctx context.Context, id string, opts ...RequeueOption) (task Ref, err error) {
	defer publish(&err)
	var o requeueOptions
	for _, opt := range opts {
		opt.applyRequeue(&o)
	}
	if o.request.ID, err = api.ParseDeadID(id); err != nil {
		return Ref{}, err
	}
	if o.input != nil {
		p, err := o.input(ctx, d.app.host)
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

// UndoRequeue takes a requeue back: its task is cancelled, and the dead task is as it was before. It is a conflict when somebody has begun the task; cancel it then.
func (d DeadTasks) UndoRequeue(ctx context.Context, id string) (err error) {
	defer publish(&err)
	key, err := api.ParseDeadID(id)
	if err != nil {
		return err
	}
	return d.app.host.backend.UndoRequeue(ctx, api.UndoRequest{ID: key})
}

// RequeueAll requeues the dead tasks that the query selects and that were not requeued before (unless it says otherwise), those that died last first, and yields each as it is
// done, with As set. An error of one does not stop the others; a zero DeadTask comes with the error that ends it all, such as a canary that failed. They are
// ordinary submissions: queues, priorities, limits and breakers apply to them as to others.
func (d DeadTasks) RequeueAll(ctx context.Context, q DeadQuery, how RequeueMany) iter.Seq2[DeadTask, error] {
	return func(yield func(DeadTask, error) bool) {
		many := batch.Requeue(how)
		if err := many.Check(); err != nil {
			yield(DeadTask{}, err)
			return
		}
		for r := range batch.RequeueAll(ctx, d.app.host.backend, q.request(), many) {
			if !yield(d.requeued(ctx, &r), public(r.Err)) {
				return
			}
		}
	}
}

func (d DeadTasks) requeued(ctx context.Context, r *batch.Requeued) DeadTask {
	if r.Task == nil {
		return DeadTask{}
	}
	out := d.deadOf(ctx, r.Task)
	if to := r.Reply.Address; !to.IsZero() {
		out.As = Ref{Workflow: to.Type, Key: to.Key}
	}
	return out
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

// RequeueOption says how a dead task is requeued; RequestID is one too.
type RequeueOption interface{ applyRequeue(*requeueOptions) }

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

type requeueOptions struct {
	request api.RequeueRequest
	input   func(ctx context.Context, h *host) (model.Payload, error)
}

type requeueOption func(*requeueOptions)

func (f requeueOption) applyRequeue(o *requeueOptions) { f(o) }
