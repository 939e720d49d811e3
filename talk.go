package perdure

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Update is the typed name of a validated, durable request to an execution, with an answer.
type Update[I, O any] struct{ name string }

// NewUpdate names an update.
func NewUpdate[I, O any](name string) *Update[I, O] { return &Update[I, O]{name} }

// Handle serves the update: each in a coroutine of its own, in the order in which they came. Validators run first and must not wait; what they refuse
// is answered with their error. Updates that come before Handle wait for it. One whose handler has not ended when the workflow function
// returns or continues as new is refused; WaitUpdates waits for them. Another Handle of the name takes the place of this one.
func (u *Update[I, O]) Handle(ctx WorkflowCtx, fn func(WorkflowCtx, I) (O, error), validate ...func(I) error) {
	if fn == nil {
		panic(fault.New(fault.Invalid, "the handler of update %s is nil", u.name))
	}
	h := ctx.host()
	ctx.x.HandleUpdate(u.name, replay.UpdateHandler{
		Seal: h.sealer("output of update", u.name),
		Serve: func(x replay.Ctx, p model.Payload) (model.Payload, error) {
			ctx := WorkflowCtx{x}
			in, err := decode[I](ctx, "input of update", u.name, p) // whoever sent what cannot be read hears of it
			for _, v := range validate {
				if err == nil {
					err = v(in)
				}
			}
			if err != nil {
				return model.Payload{}, err
			}
			out, err := fn(ctx, in)
			if err != nil {
				return model.Payload{}, err
			}
			return encodeFor(h, "output of update", u.name, out)
		},
	})
}

// Call sends the update and waits for its answer. It is done once, however often it is sent under the same RequestID. From a workflow it is
// a step, which is done once without a RequestID and takes none.
func (u *Update[I, O]) Call(c Caller, to Target, in I, opts ...CallOption) (out O, err error) {
	from := c.caller()
	m, err := message(from.host(), model.MessageUpdate, "update", u.name, to, in)
	if err != nil {
		return out, public(err)
	}
	p, err := from.call(m, callOptions(opts))
	if err != nil {
		return out, remote(err)
	}
	out, err = decode[O](from, "output of update", u.name, p)
	return out, public(err)
}

// message is a message that carries a value.
func message[T any](h *host, kind model.MessageKind, word, name string, to Target, v T) (m model.Message, err error) {
	ref := to.target()
	m = model.Message{Kind: kind, To: ref.address(), Name: name}
	if m.ToRun, err = ref.run(); err != nil {
		return m, err
	}
	if err = checkName(word, name); err != nil {
		return m, err
	}
	m.Input, err = encode(h, word, name, v)
	return m, err
}

// Query is the typed name of a read of what a workflow has in memory, or had at its end.
type Query[I, O any] struct{ name string }

// NewQuery names a query.
func NewQuery[I, O any](name string) *Query[I, O] { return &Query[I, O]{name} }

// Handle answers the query; fn may not wait, and must change nothing.
func (q *Query[I, O]) Handle(ctx WorkflowCtx, fn func(I) (O, error)) {
	if fn == nil {
		panic(fault.New(fault.Invalid, "the handler of query %s is nil", q.name))
	}
	h := ctx.host()
	ctx.x.HandleQuery(q.name, func(p model.Payload) (model.Payload, error) {
		ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
		defer cancel()
		in, err := decode[I](callReader{h, ctx}, "input of query", q.name, p)
		if err != nil {
			return model.Payload{}, err
		}
		out, err := fn(in)
		if err != nil {
			return model.Payload{}, err
		}
		p, err = encodeFor(h, "output of query", q.name, out)
		if err != nil {
			return p, err
		}
		return h.seal(ctx, brief, "output of query", q.name, p)
	})
}

// Ask asks an execution: its code is loaded if need be, and answers from what it has made of its history so far. Of one that
// has ended, the process that owns it replays the history, without executing a step, or this process does when the owner lacks
// the code. It is ErrUnavailable when both lack it, and ErrBlocked when the code does not fit the history any more. A State can be
// read without the code.
func (q *Query[I, O]) Ask(c Client, to Target, in I) (out O, err error) {
	m, err := message(c.host(), model.MessageQuery, "query", q.name, to, in)
	if err == nil {
		m.Input, err = c.host().seal(c.ctx, brief, "query", q.name, m.Input)
	}
	if err != nil {
		return out, public(err)
	}
	p, err := c.host().backend.Query(c.ctx, api.QueryRequest{Target: api.Target{Address: m.To, Run: m.ToRun}, Name: m.Name, Input: m.Input})
	if fault.Is(err, fault.Unavailable) && c.app.worker != nil { // its owner may lack the code that this process has
		if here, ok, why := c.app.worker.AskEnded(c.ctx, m.To, m.ToRun, model.Query{Name: m.Name, Input: m.Input}); ok {
			p, err = here, why
		}
	}
	if err != nil {
		return out, remote(err)
	}
	out, err = decode[O](c, "output of query", q.name, p)
	return out, public(err)
}

// State is the typed name of durable state that an execution shows to the outside. It can be read without a live worker, and it stays when
// the execution continues as new and when it ends.
type State[T any] struct{ name string }

// NewState names the state.
func NewState[T any](name string) *State[T] { return &State[T]{name} }

// Set writes it with the next commit of the execution.
func (s *State[T]) Set(ctx WorkflowCtx, v T) error {
	if err := checkName("state", s.name); err != nil {
		return Permanent(public(err))
	}
	h := ctx.host()
	p, err := encodeFor(h, "value of state", s.name, v)
	if err != nil {
		return err
	}
	return remote(ctx.x.SetState(s.name, p, h.sealer("value of state", s.name)))
}

// Clear removes it with the next commit of the execution.
func (s *State[T]) Clear(ctx WorkflowCtx) error {
	if err := checkName("state", s.name); err != nil {
		return Permanent(public(err))
	}
	return remote(ctx.x.SetState(s.name, model.Payload{}, nil))
}

// Get reads it inside the workflow: what was last set by this run, or carried over from the one before.
func (s *State[T]) Get(ctx WorkflowCtx) (v T, ok bool) {
	p, ok := ctx.x.State(s.name)
	if !ok {
		return v, false
	}
	return recorded[T](ctx, "value of state", s.name, p), true
}

// Read reads the committed value from anywhere.
func (s *State[T]) Read(c Caller, from Target) (v T, ok bool, err error) {
	who := c.caller()
	p, ok, err := who.read(from.target(), s.name)
	if err != nil || !ok {
		return v, false, remote(err)
	}
	v, err = decode[T](who, "value of state", s.name, p)
	return v, err == nil, public(err)
}

// Terminate ends an execution at once, whatever its code says: no clean-up runs. Cancel asks its code to end.
func (a *App) Terminate(ctx context.Context, t Target, reason string) error {
	return a.order(ctx, t, reason, a.host.backend.Terminate)
}

// Pause has nobody continue an execution until Resume. A step that runs may finish; signals, updates and timers are kept for later.
func (a *App) Pause(ctx context.Context, t Target, reason string) error {
	return a.order(ctx, t, reason, a.host.backend.Pause)
}

// Resume undoes Pause.
func (a *App) Resume(ctx context.Context, t Target) error {
	return a.order(ctx, t, "", a.host.backend.Resume)
}

func (a *App) order(ctx context.Context, t Target, reason string, order func(context.Context, api.CancelRequest) error) error {
	to, err := t.target().api()
	if err != nil {
		return public(err)
	}
	return public(order(ctx, api.CancelRequest{Target: to, Reason: reason}))
}
