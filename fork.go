package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/api"
)

// Fork starts another execution of the workflow, under another key, with the history of a run up to
// a chosen place. The engine does not execute the steps in that part again; the code continues
// after them. The source run does not change, whether it is open or closed. Steps of the fork have
// idempotency keys of their own.
//
//	app.Executions().Fork(ctx, order, perdure.RawKey("what-if"), perdure.BeforeStep("charge"))
func (x Executions) Fork(ctx context.Context, from Target, key Key, opts ...PastOption) (next Ref, err error) {
	defer publish(&err)
	o, err := x.app.pastOf(ctx, from, append([]PastOption{key}, opts...))
	if err != nil {
		return Ref{}, err
	}
	return refOfReply(x.app.host.backend.Fork(ctx, o.request))
}

// Retry continues an execution that failed, was cancelled or was terminated. It starts a new run of
// the key. If the execution has received a cancel request, the new run keeps the history before
// that request. Otherwise it keeps the history before the last step, child or entity call that
// failed, and makes that call again. A repeated step has the same idempotency key. If no call
// failed, the new run keeps the whole history, so that a corrected build can continue it. From then
// on, Result returns the outcome of the new run. Retry returns ErrConflict while the execution is
// open and when it has completed.
func (x Executions) Retry(ctx context.Context, t Target, opts ...PastOption) (next Ref, err error) {
	defer publish(&err)
	o, err := x.app.pastOf(ctx, t, opts)
	if err != nil {
		return Ref{}, err
	}
	return refOfReply(x.app.host.backend.Retry(ctx, o.request))
}

// Reset replaces the current run of an execution, open or closed, with a new run that starts at an
// earlier place of its history. The new run executes the steps after that place again, with new
// idempotency keys.
func (x Executions) Reset(ctx context.Context, t Target, opts ...PastOption) (next Ref, err error) {
	defer publish(&err)
	o, err := x.app.pastOf(ctx, t, opts)
	if err != nil {
		return Ref{}, err
	}
	return refOfReply(x.app.host.backend.Reset(ctx, o.request))
}

// PastOption is an option of Fork, Retry, Reset and Import: BeforeStep, AfterPosition, SetResult,
// Key, Reuse or RequestID. BeforeStep and AfterPosition say how much history the new run keeps.
// Without them, a fork keeps the whole history or, with SetResult, the part up to the edited
// result. Reset needs BeforeStep or AfterPosition. Import always stores the whole history and uses
// only Key, Reuse and RequestID.
type PastOption interface{ applyPast(*pastOptions) }

// BeforeStep keeps the events before the first event of the step, activity or child of that name.
//
// The name may also be the name of an operation or RPC that the code calls, or of a signal or
// update that the code sends. "entity.operation" distinguishes operations of several entities. If a
// step has the same name, BeforeStep selects the step. "lock" selects the first lock.
func BeforeStep(name string) PastOption {
	return pastOption(func(o *pastOptions) { o.request.Before = name })
}

// AfterPosition keeps the events up to and including the event at position n of the history.
func AfterPosition(n int64) PastOption {
	return pastOption(func(o *pastOptions) { o.request.After, o.request.Placed = n, true })
}

// SetResult replaces the outcome of the first step, activity or child of that name, completed or
// failed, with the result v. As for BeforeStep, the name may also be the name of a call.
func SetResult[T any](step string, v T) PastOption {
	return pastOption(func(o *pastOptions) {
		o.edits = append(o.edits, func(ctx context.Context, h *host) (api.Edit, error) {
			p, err := encode(h, "result of step", step, v)
			if err == nil {
				p, err = h.seal(ctx, brief, "result of step", step, p)
			}
			return api.Edit{Step: step, Output: p}, err
		})
	})
}

type pastOptions struct {
	request api.PastRequest
	key     Key
	keyed   bool
	edits   []func(context.Context, *host) (api.Edit, error)
}

type pastOption func(*pastOptions)

func (f pastOption) applyPast(o *pastOptions) { f(o) }

func (r Reuse) applyPast(o *pastOptions) {
	var s startOptions
	r.applyStart(&s)
	o.request.Reuse = s.reuse
}

func (a *App) pastOf(ctx context.Context, t Target, opts []PastOption) (*pastOptions, error) {
	o := &pastOptions{}
	for _, opt := range opts {
		opt.applyPast(o)
	}
	if o.keyed && o.key.err != nil {
		return o, o.key.err
	}

	for _, edit := range o.edits {
		e, err := edit(ctx, a.host)
		if err != nil {
			return o, err
		}
		o.request.Edits = append(o.request.Edits, e)
	}

	o.request.Key = o.key.id
	var err error
	if t != nil {
		o.request.Source, err = t.target().api(a.host)
	}

	return o, err
}

func refOfReply(r api.PastReply, err error) (Ref, error) {
	if err != nil {
		return Ref{}, err
	}
	return Ref{Workflow: r.Address.Type, Key: r.Address.Key}, nil
}
