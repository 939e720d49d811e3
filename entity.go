package perdure

import (
	"context"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/model"
)

// Entity is the typed name of a stateful entity: a value of type S for every key, which only its
// operations change. It needs no start: the first operation of a key gets the zero value of S.
// Operations of one key run one at a time; operations of different keys run in parallel.
type Entity[S any] struct{ callee }

// NewEntity names a stateful entity. NewOperation and NewView define its operations. Pass the
// entity to Open where its code should run.
func NewEntity[S any](name string, opts ...EntityOption) *Entity[S] {
	e := &Entity[S]{callee{kind: entityKind, name: name, at: callerPosition()}}
	e.apply(opts)
	return e
}

// Ref is the address of one entity, for locks.
func (e *Entity[S]) Ref(key string) EntityRef { return EntityRef{e.name, key} }

// Get returns the committed state of a key; exists is false when it has none. It does not wait for
// operations or locks, and no process needs to have the code. From a workflow it is a step.
func (e *Entity[S]) Get(c Caller, key string) (state S, exists bool, err error) {
	defer publish(&err)
	from := c.caller()
	to := model.Address{Tenant: from.host().tenant, Type: entityKind.prefix + e.name, Key: key}
	if err := entityKind.check(e.name, key); err != nil {
		return state, false, err
	}
	p, exists, err := from.entity(to)
	if err != nil || !exists {
		return state, false, err
	}
	state, err = decode[S](from, "state of entity", e.name, p)
	return state, err == nil, err
}

func (e *Entity[S]) define(r *registry) {
	d := e.definition()
	d.types = []typeOf{typeFor[S]("state of entity " + e.name)}
	d.state = stateCode[S](e.name)
	r.entity(d)
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
	prefix string // of the types of its addresses
	call   string // what people call one of its functions
}

var (
	entityKind  = &calleeKind{"entity", "entities", model.EntityPrefix, "operation"}
	serviceKind = &calleeKind{"service", "services", model.ServicePrefix, "RPC"}
)

// maxCallee bounds the names of entities and services, in bytes: together with the prefix they are
// the types of addresses.
const maxCallee = maxName - len(model.ServicePrefix)

// checkName reports what is wrong with a name.
func (k *calleeKind) checkName(name string) error {
	if !textFits(name, maxCallee) {
		return checkText("the name of "+k.word, name, maxCallee)
	}
	return noSlash(k.word, name)
}

// check reports what is wrong with an address.
func (k *calleeKind) check(name, key string) error {
	if err := k.checkName(name); err != nil {
		return err
	}
	if !textFits(key, maxKey) {
		return checkText("the key of "+k.word+" "+name, key, maxKey)
	}
	return nil
}

// callee is the common part of Entity and Service.
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

// add defines a function that can be called.
func (e *callee) add(c callDefinition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, c)
}

// definition returns the functions defined so far.
func (e *callee) definition() entityDefinition {
	e.mu.Lock()
	defer e.mu.Unlock()
	return entityDefinition{kind: e.kind, name: e.name, opts: e.opts, at: e.at, calls: slices.Clone(e.calls)}
}
