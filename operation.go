package perdure

import (
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Operation is the typed name of an operation of a stateful entity.
type Operation[I, O any] struct{ to callTarget }

// NewOperation defines an operation. No other operation of the key runs at the same time. The
// engine commits the new state, the reply and the messages of the operation together, exactly once.
// If the operation returns an error or panics, the state does not change and the engine sends no
// messages. The entity exists after its first successful operation.
//
// An operation that a crash interrupts may run again, so effects outside the entity may happen more
// than once. A call from ordinary code of the process that owns the key exists only in memory: it
// is lost if the process dies. A call from ordinary code of another process goes to the next owner
// of the key if the owner dies, as long as its caller waits. A Send that has returned, and a call
// from a workflow or an entity, is stored and survives a crash.
func NewOperation[S, I, O any](e *Entity[S], name string, fn func(EntityCtx, *S, I) (O, error)) *Operation[I, O] {
	if e == nil {
		return &Operation[I, O]{orphan(entityKind, name, callerPosition())}
	}
	e.add(operation(e, name, fn, callerPosition()))
	return &Operation[I, O]{callTarget{kind: entityKind, of: e.name, name: name, owner: e}}
}

// NewView defines an operation that changes nothing. It gets a copy of the committed state, does
// not wait for operations or locks, and runs in parallel with other calls.
func NewView[S, I, O any](e *Entity[S], name string, fn func(S, I) (O, error)) *Operation[I, O] {
	if e == nil {
		return &Operation[I, O]{orphan(entityKind, name, callerPosition())}
	}
	c := callDefinition{name: name, at: callerPosition(), view: true, types: callTypes[I, O](entityKind, e.name, name)}
	if fn != nil {
		c.handler = func(h *host) entity.Handler {
			return entity.Handler{View: true, Run: func(c *entity.Call, state any) (model.Payload, error) {
				return serve(EntityCtx{c, h}, entityKind, func(_ EntityCtx, in I) (O, error) { return fn(*state.(*S), in) })
			}}
		}
	}
	e.add(c)
	return &Operation[I, O]{callTarget{kind: entityKind, of: e.name, name: name, owner: e, view: true, brief: true}}
}

// DeclareOperation names an operation whose code is elsewhere, or is bound later.
func DeclareOperation[I, O any](entity, name string) *Operation[I, O] {
	return &Operation[I, O]{callTarget{kind: entityKind, of: entity, name: name}}
}

// BindOperation joins a declared operation with its code. Use it if operations refer to each other.
func BindOperation[S, I, O any](e *Entity[S], op *Operation[I, O], fn func(EntityCtx, *S, I) (O, error)) Binding {
	b := callBinding{asked: op.to, call: callDefinition{name: op.to.name, at: callerPosition()}}
	if e != nil {
		b.to, b.name, b.call = e, e.name, operation(e, op.to.name, fn, b.call.at)
	}
	return Binding{b}
}

// Call runs the operation and waits for its reply. Calls with the same RequestID are one call. From
// a workflow, the call is a step: the journal makes the call happen once, so the call accepts no
// RequestID. The call waits while no process has the code of the entity.
func (o *Operation[I, O]) Call(c Caller, key string, in I, opts ...CallOption) (O, error) {
	return invoke[I, O](c, invocation{&o.to, key, opts}, in)
}

// Go runs the operation as a step and returns a future of its reply. When the scope of ctx ends,
// the workflow no longer waits for the reply, but the operation may still run.
func (o *Operation[I, O]) Go(ctx WorkflowCtx, key string, in I, opts ...CallOption) *Future[O] {
	so := callOptions(opts)
	r, err := callRequest(ctx.host(), &o.to, key, in)
	if err != nil {
		return failedFuture[O](err)
	}
	r.RequestID = so.requestID
	m := callMessage(r)
	if err := ctx.answerable(&m); err != nil {
		return failedFuture[O](err)
	}
	return payloadFuture[O]("output of "+o.to.kind.call, o.to.name, ctx.x.SendFuture(m, so.key, ctx.sealer(&m)))
}

// Send asks for the operation and does not wait for the reply. It returns when the call is stored,
// so the call is not lost. If the process that serves the entity lacks the operation, the call
// becomes a dead letter (App.DeadLetters).
func (o *Operation[I, O]) Send(s Sender, key string, in I, opts ...CallOption) error {
	return invokeLater(s, invocation{&o.to, key, opts}, in)
}

// operation returns the definition of an operation for its entity.
func operation[S, I, O any](e *Entity[S], name string, fn func(EntityCtx, *S, I) (O, error), at string) callDefinition {
	c := callDefinition{name: name, at: at, types: callTypes[I, O](entityKind, e.name, name)}
	if fn != nil {
		c.handler = func(h *host) entity.Handler {
			return entity.Handler{Run: func(c *entity.Call, state any) (model.Payload, error) {
				return serve(EntityCtx{c, h}, entityKind, func(ctx EntityCtx, in I) (O, error) { return fn(ctx, state.(*S), in) })
			}}
		}
	}
	return c
}

func callTypes[I, O any](k *calleeKind, of, name string) []typeOf {
	what := k.call + " " + name + " of " + k.word + " " + of
	return []typeOf{typeFor[I]("input of " + what), typeFor[O]("output of " + what)}
}

// serve decodes the input of a call, runs its code and encodes the reply.
func serve[I, O any](ctx EntityCtx, k *calleeKind, fn func(EntityCtx, I) (O, error)) (model.Payload, error) {
	if _, _, streams := ctx.c.Input.CutStream(); streams {
		return model.Payload{}, fault.New(fault.Invalid, "%s of %s does not return a stream: use Call", ctx.c.Name, ctx.c.Entity)
	}
	in, err := decode[I](ctx, "input of "+k.call, ctx.c.Name, ctx.c.Input)
	if err != nil {
		of := strings.TrimPrefix(ctx.c.Entity.Type, k.prefix)
		return model.Payload{}, entity.Unmade(fault.New(fault.KindOf(err), "%s %q: %w", of, ctx.c.Entity.Key, err))
	}
	out, err := fn(ctx, in)
	if err != nil {
		return model.Payload{}, err
	}
	return result(ctx.c.Context(), ctx.h, "output of "+k.call, ctx.c.Name, out)
}

// callTarget names the operation, view or RPC that a call runs. It does not include the key.
type callTarget struct {
	kind  *calleeKind
	of    string // name of the entity or service
	name  string
	view  bool       // a view, which changes nothing
	brief bool       // the engine keeps a call of ordinary code in memory only
	owner Definition // the entity or service; nil if the call is only declared
	wrong error      // what is wrong with the definition of the call
}

// orphan returns the target of a call whose entity or service is nil.
func orphan(k *calleeKind, name, at string) callTarget {
	return callTarget{kind: k, name: name, wrong: fault.New(fault.Invalid, "%s %s has no %s: it is nil (%s)", k.call, name, k.word, at)}
}

// callRequest turns a call into a request.
func callRequest[I any](h *host, t *callTarget, key string, in I) (r *api.CallRequest, err error) {
	if t.wrong != nil {
		return nil, t.wrong
	}
	if err := t.kind.check(t.of, key); err != nil {
		return nil, err
	}
	if err := checkName(t.kind.call, t.name); err != nil {
		return nil, err
	}
	r = &api.CallRequest{
		Address: model.Address{Tenant: h.tenant, Type: t.kind.prefix + t.of, Key: key}, Name: t.name, Brief: t.brief,
	}
	r.Input, err = encode(h, "input of "+t.kind.call, t.name, in)
	return r, err
}

// invocation says what to call, with which key and options. The input is an argument of its own
// because its type is a type parameter.
type invocation struct {
	target *callTarget
	key    string
	opts   []CallOption
}

// invoke sends a call and waits for the reply.
func invoke[I, O any](c Caller, call invocation, in I) (out O, err error) {
	defer publish(&err)
	t := call.target
	from, o := c.caller(), callOptions(call.opts)
	r, err := callRequest(from.host(), t, call.key, in)
	if err != nil {
		return out, err
	}
	r.RequestID, r.View = o.requestID, t.view

	p, err := from.invoke(r, o)
	if err != nil {
		return out, err
	}
	return decode[O](from, "output of "+t.kind.call, t.name, p)
}

// invokeLater sends a call and does not wait for the reply.
func invokeLater[I any](s Sender, call invocation, in I) error {
	out, o := s.sender(), callOptions(call.opts)
	r, err := callRequest(out.host(), call.target, call.key, in)
	if err != nil {
		return err
	}
	r.RequestID, r.OneWay = o.requestID, true
	return remote(out.send(r, o))
}
