package perdure

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Entity is the typed name of a stateful entity: a value of type S for every key, which only its operations change. It needs no start: the first operation of
// a key finds the zero value of S. Operations of one key run one at a time; those of different keys run beside each other.
type Entity[S any] struct{ callee }

// NewEntity names a stateful entity; its operations are defined on it (NewOperation, NewView). Give it to Open where its code is to run.
func NewEntity[S any](name string, opts ...EntityOption) *Entity[S] {
	e := &Entity[S]{callee{kind: entityKind, name: name, at: callerPosition()}}
	e.apply(opts)
	return e
}

func (e *Entity[S]) define(r *registry) {
	d := e.definition()
	d.types = []typeOf{typeFor[S]("state of entity " + e.name)}
	d.state = stateCode[S](e.name)
	r.entity(d)
}

// Ref is the address of one entity, for locks.
func (e *Entity[S]) Ref(key string) EntityRef { return EntityRef{e.name, key} }

// Get reads the committed state of a key; exists is false when it has none. It waits neither for operations nor for locks, and needs nobody that has the code. From a workflow
// it is a step.
func (e *Entity[S]) Get(c Caller, key string) (state S, exists bool, err error) {
	from := c.caller()
	to := model.Address{Tenant: model.DefaultTenant, Type: entityKind.prefix + e.name, Key: key}
	if err := entityKind.check(e.name, key); err != nil {
		return state, false, public(err)
	}
	p, exists, err := from.entity(to)
	if err != nil || !exists {
		return state, false, remote(err)
	}
	state, err = decode[S](from, "state of entity", e.name, p)
	return state, err == nil, public(err)
}

// stateCode reads and writes the state of an entity.
func stateCode[S any](name string) func(*host) *entity.State {
	const kind = "state of entity"
	return func(h *host) *entity.State {
		return &entity.State{
			New: func() any { return new(S) },
			Open: func(ctx context.Context, p model.Payload) (model.Payload, error) {
				if p.Encoding == model.JSON {
					return p, nil
				}
				return h.open(ctx, patient, kind, name, p)
			},
			Decode: func(p model.Payload) (any, error) {
				s, err := unmarshal[S](h, kind, name, p)
				return &s, err
			},
			Encode: func(state any) (model.Payload, error) { return encodeFor(h, kind, name, *state.(*S)) },
			Seal: func(ctx context.Context, p model.Payload) (model.Payload, error) {
				return h.seal(ctx, patient, kind, name, p)
			},
		}
	}
}

// calleeKind is entity or service.
type calleeKind struct {
	word   string
	words  string
	prefix string // of the types of their addresses
	call   string // what is called of one, for people
}

var (
	entityKind  = &calleeKind{"entity", "entities", model.EntityPrefix, "operation"}
	serviceKind = &calleeKind{"service", "services", model.ServicePrefix, "RPC"}
)

// maxCallee bounds the names of entities and services, in bytes: together with the prefix they are the types of addresses.
const maxCallee = maxName - len(model.ServicePrefix)

// checkName says what is wrong with the name of one.
func (k *calleeKind) checkName(name string) error {
	if !textFits(name, maxCallee) {
		return checkText("the name of "+k.word, name, maxCallee)
	}
	return noSlash(k.word, name)
}

// check says what is wrong with the address of one.
func (k *calleeKind) check(name, key string) error {
	if err := k.checkName(name); err != nil {
		return err
	}
	if !textFits(key, maxKey) {
		return checkText("the key of "+k.word+" "+name, key, maxKey)
	}
	return nil
}

// callee is what an Entity and a Service have in common.
type callee struct {
	kind *calleeKind
	name string
	opts entityOptions
	at   string

	mu    sync.Mutex
	calls []callDefinition // grows while a program defines them, and is read by Open
}

func (e *callee) apply(opts []EntityOption) {
	for _, o := range opts {
		o.applyEntity(&e.opts)
	}
}

// add defines something that can be called.
func (e *callee) add(c callDefinition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, c)
}

// definition is what is defined so far.
func (e *callee) definition() entityDefinition {
	e.mu.Lock()
	defer e.mu.Unlock()
	return entityDefinition{kind: e.kind, name: e.name, opts: e.opts, at: e.at, calls: slices.Clone(e.calls)}
}

// ---- options

type (
	// EntityOption configures an entity or a service.
	EntityOption interface{ applyEntity(*entityOptions) }
	// RPCOption configures one RPC of a service.
	RPCOption interface{ applyRPC(*callTarget) }
)

type entityOptions struct {
	concurrency, mailbox *int
	idle, limit          *time.Duration
}

type entityOption func(*entityOptions)

func (f entityOption) applyEntity(o *entityOptions) { f(o) }

// Concurrency is how many calls of one service and key may overlap: 1 without it, and any number when n is 0. It is not for entities, whose operations never overlap.
func Concurrency(n int) EntityOption {
	return entityOption(func(o *entityOptions) { o.concurrency = &n })
}

// MaxIdle is for how long a key that nobody calls stays in memory.
func MaxIdle(d time.Duration) EntityOption {
	return entityOption(func(o *entityOptions) { o.idle = &d })
}

// MailboxSize is how many calls of one key may wait beside the one that runs; further ones are refused with ErrExhausted.
func MailboxSize(n int) EntityOption { return entityOption(func(o *entityOptions) { o.mailbox = &n }) }

// defaultOperationTimeout is how long an operation or a view of an entity may take without OperationTimeout. RPCs of services have no limit without it.
const defaultOperationTimeout = time.Minute

// OperationTimeout is how long one operation, view or RPC may take. Its context ends then. When its code does not return within another second, the caller gets an error of
// kind ErrTimeout, nothing is changed or sent, the next call of the key is made, and what the code still does is dropped.
func OperationTimeout(d time.Duration) EntityOption {
	return entityOption(func(o *entityOptions) { o.limit = &d })
}

type persistedOption struct{}

func (persistedOption) applyRPC(t *callTarget) { t.brief = false }

// Persisted stores calls of an RPC before they are made, whoever makes them, and remembers their answers: they survive a crash, are made at least once, and a RequestID makes a
// repeated one the same call. That costs a commit before the call and one behind it. Without it a call is kept in memory only and made at most once.
func Persisted() RPCOption { return persistedOption{} }

// check says what is wrong with options.
func (o *entityOptions) check(wrong func(format string, args ...any), k *calleeKind) {
	if n := o.concurrency; n != nil {
		switch {
		case k == entityKind:
			wrong("Concurrency is for services: operations of an entity never overlap")
		case *n < 0:
			wrong("Concurrency(%d) is below zero", *n)
		}
	}
	if n := o.mailbox; n != nil && *n < 1 {
		wrong("MailboxSize(%d) has no room for a call", *n)
	}
	if d := o.idle; d != nil && *d <= 0 {
		wrong("MaxIdle(%s): nothing can be called in no time", *d)
	}
	if d := o.limit; d != nil && (*d < time.Millisecond || *d > maxTaskTime) {
		wrong("OperationTimeout(%s) must be at least a millisecond and at most 100 years", *d)
	}
}

// ---- definitions

// entityDefinition is an entity or a service as Open gets it.
type entityDefinition struct {
	kind  *calleeKind
	name  string
	opts  entityOptions
	at    string
	types []typeOf
	state func(*host) *entity.State // nil for services
	calls []callDefinition
}

func (d *entityDefinition) typ() string { return d.kind.prefix + d.name }

// callDefinition is an operation, a view or an RPC with its code.
type callDefinition struct {
	name    string
	at      string
	view    bool
	types   []typeOf
	handler func(*host) entity.Handler // nil without code
}

// offer is what the engine is told of the entity or service.
func (d *entityDefinition) offer() model.EntityType {
	t := model.EntityType{Type: d.typ(), Concurrency: 1}
	if n := d.opts.concurrency; n != nil {
		t.Concurrency = *n
	}
	if n := d.opts.mailbox; n != nil {
		t.Mailbox = *n
	}
	if idle := d.opts.idle; idle != nil {
		t.Idle = *idle
	}
	for i := range d.calls {
		if c := &d.calls[i]; c.view {
			t.Views = append(t.Views, c.name)
		}
	}
	slices.Sort(t.Views)
	return t
}

// code is what executes calls of the entity or service.
func (d *entityDefinition) code(h *host) entity.Type {
	t := entity.Type{Calls: map[string]entity.Handler{}}
	if d.state != nil {
		t.State = d.state(h)
	}
	limit := time.Duration(0)
	switch {
	case d.opts.limit != nil:
		limit = *d.opts.limit
	case d.kind == entityKind:
		limit = defaultOperationTimeout
	}
	for i := range d.calls {
		handler := d.calls[i].handler(h)
		handler.Limit = limit
		t.Calls[d.calls[i].name] = handler
	}
	return t
}

// entity adds the definition of an entity or a service.
func (r *registry) entity(d entityDefinition) {
	if r.replaced != nil && r.replaced.entities[d.typ()] != nil {
		return
	}
	if old, ok := r.entities[d.typ()]; ok {
		r.wrong("two definitions of %s %s (%s, %s): pass one of them, or give it another name", d.kind.word, d.name, old.at, d.at)
		return
	}
	r.entities[d.typ()] = &d
}

// checkEntity says what is wrong with an entity or a service, once everything of it is known.
func (r *registry) checkEntity(d *entityDefinition) {
	if err := d.kind.checkName(d.name); err != nil {
		r.wrong("%w (%s)", err, d.at)
	}
	r.checkTypes(d.at, d.types)
	d.opts.check(func(format string, args ...any) {
		r.wrong("%s %s: %w (%s)", d.kind.word, d.name, fault.New(fault.Invalid, format, args...), d.at)
	}, d.kind)
	if len(d.calls) == 0 {
		r.wrong("%s %s has no %s: define one, or do not pass it where its code is not (%s)", d.kind.word, d.name, d.kind.call, d.at)
	}
	defined := map[string]string{}
	for i := range d.calls {
		c := &d.calls[i]
		what := d.kind.call + " " + c.name + " of " + d.kind.word + " " + d.name
		if at, twice := defined[c.name]; twice {
			r.wrong("two definitions of %s (%s, %s): pass one of them, or give it another name", what, at, c.at)
		}
		defined[c.name] = c.at
		r.check(d.kind.call, c.name, c.at, c.types)
		if c.handler == nil {
			r.wrong("the function of %s is nil (%s)", what, c.at)
		}
	}
}

// callBinding is the code of an operation or RPC that was declared.
type callBinding struct {
	asked callTarget // what was declared
	call  callDefinition

	to   Definition // the entity that it is bound to; nil for an RPC, which is joined with its service by name
	name string     // of that entity
}

func (b callBinding) define(r *registry) {
	k := b.asked.kind
	switch {
	case k == serviceKind:
	case b.to == nil:
		r.wrong("%s %s is bound to no %s (%s)", k.call, b.asked.name, k.word, b.call.at)
		return
	case b.asked.of != b.name:
		r.wrong("%s %s is declared for %s %s and bound to %s %s (%s)", k.call, b.asked.name, k.word, b.asked.of, k.word, b.name, b.call.at)
		return
	default:
		r.add(b.to)
	}
	r.bound = append(r.bound, b)
}

// joinBound joins what was bound with the entities and services that it belongs to. A service of which only that is known has no options.
func (r *registry) joinBound() {
	for _, b := range r.bound {
		d := entityDefinition{kind: b.asked.kind, name: b.asked.of, at: b.call.at}
		if r.replaced != nil && r.replaced.entities[d.typ()] != nil {
			continue
		}
		if r.entities[d.typ()] == nil {
			r.entities[d.typ()] = &d
		}
		of := r.entities[d.typ()]
		of.calls = append(of.calls, b.call)
	}
	r.bound = nil
}
