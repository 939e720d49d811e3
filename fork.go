package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/api"
)

// Fork begins another execution of the workflow, under another key, with the past of a run: what it has done counts as done, and the code goes
// on from there. The source, open or closed, is not changed. Steps of the fork have idempotency keys of their own.
func (x Executions) Fork(ctx context.Context, from Target, key Key, opts ...PastOption) (next Ref, err error) {
	defer publish(&err)
	o, err := x.app.pastOf(ctx, from, append([]PastOption{key}, opts...))
	if err != nil {
		return Ref{}, err
	}
	return begun(x.app.host.backend.Fork(ctx, o.request))
}

// Retry goes on with an execution that failed, was cancelled or terminated: a new run of its key begins before its last failed step, which is made
// again with the idempotency key that it had. When no step has failed, all of its past is kept, for a corrected build to go on with. Whoever asks
// for the result from now on hears that of the new run. It is a conflict while the execution is open, and when it has completed.
func (x Executions) Retry(ctx context.Context, t Target, opts ...PastOption) (next Ref, err error) {
	defer publish(&err)
	o, err := x.app.pastOf(ctx, t, opts)
	if err != nil {
		return Ref{}, err
	}
	return begun(x.app.host.backend.Retry(ctx, o.request))
}

// Reset has the current run of an execution, open or closed, give way to a new one that begins from an earlier place of its history. Steps behind
// that place are made again, with idempotency keys of their own.
func (x Executions) Reset(ctx context.Context, t Target, opts ...PastOption) (next Ref, err error) {
	defer publish(&err)
	o, err := x.app.pastOf(ctx, t, opts)
	if err != nil {
		return Ref{}, err
	}
	return begun(x.app.host.backend.Reset(ctx, o.request))
}

// PastOption says where a fork or reset begins, and with what; Key, Reuse and RequestID are some too. Without a place, the whole past is
// kept, or as much of it as leads up to an edited result.
type PastOption interface{ applyPast(*pastOptions) }

// BeforeStep keeps what stands before the first event of the step, activity or child of that name.
//
// Calls of entities and services, and signals and updates that the code sends, have the name of the operation, RPC,
// signal or update, or "entity.operation" where several entities have it. A step of the same name comes first. "lock" is
// the first lock.
func BeforeStep(name string) PastOption {
	return pastOption(func(o *pastOptions) { o.request.Before = name })
}

// AfterPosition keeps the events up to and with a position of the history.
func AfterPosition(n int64) PastOption {
	return pastOption(func(o *pastOptions) { o.request.After, o.request.Placed = n, true })
}

// SetResult gives the first step, activity or child of that name another result, whether it had completed or failed. The
// name may also be that of a call of an entity or service, as for BeforeStep.
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
		o.request.Source, err = t.target().api()
	}
	return o, err
}

func begun(r api.PastReply, err error) (Ref, error) {
	if err != nil {
		return Ref{}, err
	}
	return Ref{Workflow: r.Address.Type, Key: r.Address.Key}, nil
}
