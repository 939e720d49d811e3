package perdure

import (
	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/model"
)

// Service is the name of a handler without state. Each call of a service has a key. All calls of
// one key run in one process at a time, and at most Concurrency of them overlap. The engine does
// not store a call of ordinary code unless its RPC is Persisted. It stores every call of a
// workflow, an entity or a transaction.
type Service struct{ callee }

// NewService names a service. NewRPC defines its RPCs. Pass the service to Open where its code
// should run.
func NewService(name string, opts ...EntityOption) *Service {
	s := &Service{callee{kind: serviceKind, name: name, at: callerPosition()}}
	s.apply(opts)
	return s
}

func (s *Service) define(r *registry) { r.entity(s.definition()) }

// RPC is the typed name of a method of a service.
type RPC[I, O any] struct{ to callTarget }

// RPCOption configures one RPC of a service: Persisted.
type RPCOption interface{ applyRPC(*callTarget) }

// NewRPC defines an RPC of a service. Unless the RPC is Persisted, a call runs at most once: if the
// process that runs the call dies, the call is lost and its caller gets an error.
func NewRPC[I, O any](s *Service, name string, fn func(EntityCtx, I) (O, error), opts ...RPCOption) *RPC[I, O] {
	if s == nil {
		return &RPC[I, O]{orphan(serviceKind, name, callerPosition())}
	}
	s.add(method(s.name, name, fn, callerPosition()))
	r := DeclareRPC[I, O](s.name, name, opts...)
	r.to.owner = s
	return r
}

// DeclareRPC names an RPC whose code is elsewhere or is bound later. Calls through this declaration
// are Persisted only if opts says so, no matter what the options of NewRPC are.
func DeclareRPC[I, O any](service, name string, opts ...RPCOption) *RPC[I, O] {
	r := &RPC[I, O]{callTarget{kind: serviceKind, of: service, name: name, brief: true}}
	for _, o := range opts {
		o.applyRPC(&r.to)
	}
	return r
}

// Bind joins a declared RPC with its code. Pass the Binding to Open. You need not pass the service
// itself, unless it has options.
func (r *RPC[I, O]) Bind(fn func(EntityCtx, I) (O, error)) Binding {
	return Binding{callBinding{asked: r.to, call: method(r.to.of, r.to.name, fn, callerPosition())}}
}

// Call calls the RPC and waits for the reply. From a workflow, the call is a step, and the engine
// treats the RPC as Persisted.
func (r *RPC[I, O]) Call(c Caller, key string, in I, opts ...CallOption) (O, error) {
	return invoke[I, O](c, invocation{&r.to, key, opts}, in)
}

// Send calls the RPC and does not wait for the reply. If the RPC is Persisted, or the sender is a
// workflow, an entity or a transaction, Send stores the call before it returns.
func (r *RPC[I, O]) Send(s Sender, key string, in I, opts ...CallOption) error {
	return invokeLater(s, invocation{&r.to, key, opts}, in)
}

type persistedOption struct{}

func (persistedOption) applyRPC(t *callTarget) { t.brief = false }

// Persisted makes the engine store every call of an RPC before the call runs, and remember its
// answer. Such a call survives a crash and runs at least once. A repetition with the same RequestID
// is the same call. This costs a commit before the call and one after it. Without Persisted, the
// engine keeps a call of ordinary code in memory only, and the call runs at most once.
func Persisted() RPCOption { return persistedOption{} }

// method returns the definition of an RPC for its service.
func method[I, O any](service, name string, fn func(EntityCtx, I) (O, error), at string) callDefinition {
	c := callDefinition{name: name, at: at, types: callTypes[I, O](serviceKind, service, name)}
	if fn != nil {
		c.handler = func(h *host) entity.Handler {
			return entity.Handler{Run: func(c *entity.Call, _ any) (model.Payload, error) { return serve(EntityCtx{c, h}, serviceKind, fn) }}
		}
	}
	return c
}
