package perdure

// EntityCtx is what an entity or service handler may do: send, never wait.
type EntityCtx struct{ x *int }

func (EntityCtx) sender() {}

// Key is the address the handler runs for.
func (EntityCtx) Key() string { return "" }

// Exists tells whether the state existed before this operation.
func (EntityCtx) Exists() bool { return true }

// Delete removes the state when the operation succeeds.
func (EntityCtx) Delete() {}

// Entity is the typed name of a stateful entity.
type Entity[S any] struct{ name string }

// NewEntity names a stateful entity; its operations are defined on it.
func NewEntity[S any](name string, opts ...EntityOption) *Entity[S] { return &Entity[S]{name} }

func (e *Entity[S]) define(*registry) error { return nil }

// Ref is the address of one entity, for locks.
func (e *Entity[S]) Ref(key string) EntityRef { return EntityRef{e.name, key} }

// Get reads committed state; it never waits behind operations.
func (e *Entity[S]) Get(c Caller, key string) (state S, exists bool, err error) { return }

// EntityRef is the address of an entity.
type EntityRef struct{ Type, Key string }

// LockSet is a set of entities; order does not matter.
type LockSet []EntityRef

// Operation is the typed name of an operation of a stateful entity.
type Operation[I, O any] struct{ name string }

// NewOperation defines an operation; it runs alone and commits state, reply and messages together.
func NewOperation[S, I, O any](e *Entity[S], name string, fn func(EntityCtx, *S, I) (O, error)) *Operation[I, O] {
	return &Operation[I, O]{name}
}

// NewView defines a read-only operation; it gets a copy and runs beside others.
func NewView[S, I, O any](e *Entity[S], name string, fn func(S, I) (O, error)) *Operation[I, O] {
	return &Operation[I, O]{name}
}

// DeclareOperation names an operation whose code is elsewhere.
func DeclareOperation[I, O any](entity, name string) *Operation[I, O] { return &Operation[I, O]{name} }

// Call runs the operation and waits for its reply.
func (o *Operation[I, O]) Call(c Caller, key string, in I, opts ...CallOption) (O, error) {
	var r O
	return r, nil
}

// Go runs the operation as a step.
func (o *Operation[I, O]) Go(ctx WorkflowCtx, key string, in I, opts ...CallOption) *Future[O] {
	return nil
}

// Send runs the operation later and drops its reply.
func (o *Operation[I, O]) Send(s Sender, key string, in I, opts ...CallOption) error { return nil }

// Service is the name of a stateless addressable handler.
type Service struct{ name string }

// NewService names a service; its RPCs are defined on it.
func NewService(name string, opts ...EntityOption) *Service { return &Service{name} }

func (s *Service) define(*registry) error { return nil }

// RPC is the typed name of a method of a service.
type RPC[I, O any] struct{ name string }

// NewRPC defines an RPC of a service.
func NewRPC[I, O any](s *Service, name string, fn func(EntityCtx, I) (O, error), opts ...RPCOption) *RPC[I, O] {
	return &RPC[I, O]{name}
}

// DeclareRPC names an RPC whose code is elsewhere.
func DeclareRPC[I, O any](service, name string, opts ...RPCOption) *RPC[I, O] {
	return &RPC[I, O]{name}
}

// Call waits for the reply.
func (r *RPC[I, O]) Call(c Caller, key string, in I, opts ...CallOption) (O, error) {
	var o O
	return o, nil
}

// Send does not wait.
func (r *RPC[I, O]) Send(s Sender, key string, in I, opts ...CallOption) error { return nil }
