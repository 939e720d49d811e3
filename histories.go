package perdure

import (
	"cmp"
	"context"
	"io"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/codec"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// PastOption says where a fork or reset begins, and with what; Key, Reuse and RequestID are some too. Without a place, the whole past is
// kept, or as much of it as leads up to an edited result.
type PastOption interface{ applyPast(*pastOptions) }

type pastOptions struct {
	request api.PastRequest
	key     Key
	keyed   bool
	edits   []func(context.Context, *host) (api.Edit, error)
}

type pastOption func(*pastOptions)

func (f pastOption) applyPast(o *pastOptions) { f(o) }

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

func (k Key) applyPast(o *pastOptions)       { o.key, o.keyed = k, true }
func (r requestID) applyPast(o *pastOptions) { o.request.RequestID = string(r) }

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
		return Ref{}, public(err)
	}
	return Ref{Workflow: r.Address.Type, Key: r.Address.Key}, nil
}

// Fork begins another execution of the workflow, under another key, with the past of a run: what it has done counts as done, and the code goes
// on from there. The source, open or closed, is not changed. Steps of the fork have idempotency keys of their own.
func (a *App) Fork(ctx context.Context, from Target, key Key, opts ...PastOption) (Ref, error) {
	o, err := a.pastOf(ctx, from, append([]PastOption{key}, opts...))
	if err != nil {
		return Ref{}, public(err)
	}
	return begun(a.host.backend.Fork(ctx, o.request))
}

// Retry goes on with an execution that failed, was cancelled or terminated: a new run of its key begins before its last step, child or call
// of an entity that failed, which is made again, a step with the idempotency key that it had. When none has failed, all of its past is kept, for a corrected build to go on with. Whoever asks
// for the result from now on hears that of the new run. It is a conflict while the execution is open, and when it has completed.
func (a *App) Retry(ctx context.Context, t Target, opts ...PastOption) (Ref, error) {
	o, err := a.pastOf(ctx, t, opts)
	if err != nil {
		return Ref{}, public(err)
	}
	return begun(a.host.backend.Retry(ctx, o.request))
}

// Reset has the current run of an execution, open or closed, give way to a new one that begins from an earlier place of its history. Steps behind
// that place are made again, with idempotency keys of their own.
func (a *App) Reset(ctx context.Context, t Target, opts ...PastOption) (Ref, error) {
	o, err := a.pastOf(ctx, t, opts)
	if err != nil {
		return Ref{}, public(err)
	}
	return begun(a.host.backend.Reset(ctx, o.request))
}

// Delete removes a closed execution with all runs of its chain, or one run when the Target names it. It is a conflict while it is open. A start with
// the key begins afresh.
func (a *App) Delete(ctx context.Context, t Target) error {
	to, err := t.target().api()
	if err == nil {
		_, err = a.host.backend.Delete(ctx, api.DeleteRequest{Target: to})
	}
	return public(err)
}

// ForceDelete removes an execution that nothing else can end: one whose rows cannot be read, or whose commits the store refuses. Its rows are written to export first, as they
// stand, as JSON lines (docs/operating.md has the format). Locks that it holds become free, and so does its key. One that can still be ended is terminated first.
// An export that has a method Flush() error, as a bufio.Writer has, is flushed before anything is
// removed.
func (a *App) ForceDelete(ctx context.Context, t Target, export io.Writer) error {
	to, err := t.target().api()
	if err == nil {
		_, err = a.host.backend.Delete(ctx, api.DeleteRequest{Target: to, Force: true, Export: export})
	}
	return public(err)
}

// Export writes the history of a run as JSON lines: see docs/histories.md for the format. An open run is written as far as it has come.
func (a *App) Export(ctx context.Context, t Target, w io.Writer) error {
	to, err := t.target().api()
	if err == nil {
		err = history.Export(ctx, a.host.backend, to, w)
	}
	return public(err)
}

// Import stores a run that Export wrote, under its key or the one that is given. An open run goes on here, with the idempotency keys that it had: let
// it go on in one place only. A closed one is stored with its outcome.
func (a *App) Import(ctx context.Context, r io.Reader, opts ...PastOption) (Ref, error) {
	o, err := a.pastOf(ctx, nil, opts)
	if err != nil {
		return Ref{}, public(err)
	}
	h, err := history.Read(r)
	if err != nil {
		return Ref{}, public(err)
	}
	return begun(a.host.backend.Import(ctx, api.ImportRequest{
		History: *h, Tenant: model.DefaultTenant, Key: o.request.Key, Reuse: o.request.Reuse, RequestID: o.request.RequestID,
	}))
}

// Replay runs today's code against a history that Export wrote, without a store, and executes no step. It returns nil when the code asks for everything
// that is recorded and ends as the run did; otherwise the error, which is ErrBlocked, says what was recorded and what the code does instead. Kept in a
// repository, exported histories tell before a deploy which running executions it would block. For payloads that are not plain JSON, use
// embedded.Config.Replay or perduretest.Config.Replay with the settings of the app.
func Replay(ctx context.Context, r io.Reader, defs ...Definition) error {
	return Attachment{}.Replay(ctx, r, defs...)
}

// Replay is Replay with the payload settings of an app. Programs use embedded.Config.Replay.
func (cfg Attachment) Replay(ctx context.Context, r io.Reader, defs ...Definition) error {
	c, err := codec.New(ctx, codec.Config{Settings: cfg.Payloads, Cluster: cfg.Cluster, MaxPayload: cmp.Or(cfg.MaxPayload, maxReplayed)})
	if err != nil {
		return public(err)
	}
	reg, err := register(defs, c.CheckType)
	if err != nil {
		return err
	}
	h, err := history.Read(r)
	if err != nil {
		return public(err)
	}
	def, ok := reg.workflows[h.Start.Address.Type]
	if !ok {
		return public(fault.New(fault.NotFound, "there is no definition of workflow %s", h.Start.Address.Type))
	}
	host := &host{activities: reg.activities, logger: cmp.Or(cfg.Logger, silent), codec: c, plain: c.Plain(), dry: true}
	host.payloads = payloadTrouble(host.logger)
	return public(replay.Check(ctx, replay.Config{
		Code: map[string]replay.Code{h.Start.Address.Type: def.code}, Host: host, Plain: host.plainInput, Logger: cfg.Logger,
	}, h))
}

// maxReplayed bounds a payload where nobody has said how large it may be.
const maxReplayed = 64 << 20
