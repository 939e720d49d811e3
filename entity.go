package perdure

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/model"
)

// Entity is the typed name of a stateful entity: a value of type S for every key, which only its
// operations change. A program does not create an entity: the first operation of a key gets the
// zero value of S. Operations of one key run one at a time; operations of different keys run in
// parallel.
type Entity[S any] struct{ callee }

// NewEntity names a stateful entity. NewOperation and NewView define its operations. Pass the
// entity to Open where its code should run.
func NewEntity[S any](name string, opts ...EntityOption) *Entity[S] {
	e := &Entity[S]{callee{kind: entityKind, name: name, at: callerPosition()}}
	e.apply(opts)
	return e
}

// Ref returns the address of one entity, for locks and for operators.
func (e *Entity[S]) Ref(key string) EntityRef { return EntityRef{e.name, key} }

// Get returns the committed state of a key; exists is false when the key has no state. It does not
// wait for operations or locks, and works even if no process has the code. From a workflow it is a
// step.
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
	version := p.StateVersion()
	if p = p.Bare(); p.Encoding != model.JSON {
		if p, err = from.open(stateKind, e.name, p); err != nil {
			return state, false, err
		}
	}
	state, err = readState[S](from.host(), e.name, &e.opts, p.WithStateVersion(version))
	return state, err == nil, err
}

func (e *Entity[S]) define(r *registry) {
	d := e.definition()
	d.types = []typeOf{typeFor[S]("state of entity " + e.name)}
	for _, m := range e.opts.migrations {
		d.types = append(d.types, typeOf{fmt.Sprintf("version %d of the state of entity %s", m.from, e.name), m.old})
	}
	d.state = stateCode[S](e.name, &d.opts)
	r.entity(d)
}

// stateCode returns the functions that read and write the state of an entity. An encoded state
// includes its version, so that a migrated state differs from the stored state.
func stateCode[S any](name string, o *entityOptions) func(*host) *entity.State {
	return func(h *host) *entity.State {
		return &entity.State{
			New: func() any { return new(S) },
			Open: func(ctx context.Context, p model.Payload) (model.Payload, error) {
				bare := p.Bare()
				if bare.Encoding == model.JSON {
					return p, nil
				}
				plain, err := h.open(ctx, patient, stateKind, name, bare)
				return plain.WithStateVersion(p.StateVersion()), err
			},
			Decode: func(p model.Payload) (any, error) {
				s, err := readState[S](h, name, o, p)
				return &s, err
			},
			Encode: func(state any) (model.Payload, error) {
				p, err := encodeFor(h, stateKind, name, *state.(*S))
				return p.WithStateVersion(o.version()), err
			},
			Seal: func(ctx context.Context, p model.Payload) (model.Payload, error) {
				sealed, err := h.seal(ctx, patient, stateKind, name, p.Bare())
				return sealed.WithStateVersion(p.StateVersion()), err
			},
		}
	}
}

// calleeKind is entity or service.
type calleeKind struct {
	word   string
	words  string
	prefix string // of the types in its addresses
	call   string // the word for one of its functions
}

var (
	entityKind  = &calleeKind{"entity", "entities", model.EntityPrefix, "operation"}
	serviceKind = &calleeKind{"service", "services", model.ServicePrefix, "RPC"}
)

// maxCallee is the longest name of an entity or a service, in bytes. The prefix and the name
// together are the type in an address.
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
	calls []callDefinition // grows with each definition; Open reads it
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
