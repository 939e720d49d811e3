package perdure

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// entityDefinition is the definition of an entity or a service, as an app collects it when it
// opens.
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

// offer describes the entity or service to the engine.
func (d *entityDefinition) offer() model.EntityType {
	t := model.EntityType{Type: d.typ(), Concurrency: 1}
	if n := d.opts.concurrency; n != nil {
		t.Concurrency = *n
	}
	if n := d.opts.mailbox; n != nil {
		t.Mailbox = *n
	}
	if n := d.opts.mailboxBytes; n != nil {
		t.MailboxBytes = *n
	}
	if idle := d.opts.idle; idle != nil {
		t.Idle = *idle
	}

	if ttl := d.opts.ttl; ttl != nil {
		t.TTL = *ttl
	}
	if ttl := d.opts.idleTTL; ttl != nil {
		t.IdleTTL = *ttl
	}

	if v := d.opts.stateVersion; v != nil {
		t.StateVersion = *v
	}
	if n := d.opts.log; n != nil {
		t.Log, t.LogInputs = *n, d.opts.logInputs
	}

	for i := range d.calls {
		if c := &d.calls[i]; c.view {
			t.Views = append(t.Views, c.name)
		}
	}

	slices.Sort(t.Views)
	return t
}

// code returns the code that executes calls of the entity or service.
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

// checkEntity reports what is wrong with an entity or a service, after all definitions are read.
func (r *registry) checkEntity(d *entityDefinition) {
	if err := d.kind.checkName(d.name); err != nil {
		r.wrong("%w (%s)", err, d.at)
	}
	if strings.HasPrefix(d.name, model.ReservedPrefix) {
		r.wrong("the name of %s %s begins with %s, which is reserved for Perdure: give it another name (%s)", d.kind.word, d.name, model.ReservedPrefix, d.at)
	}
	r.checkTypes(d.at, d.types)
	wrong := func(format string, args ...any) {
		r.wrong("%s %s: %w (%s)", d.kind.word, d.name, fault.New(fault.Invalid, format, args...), d.at)
	}
	d.opts.check(wrong, d.kind)
	var state reflect.Type
	if d.kind == entityKind {
		state = d.types[0].typ
	}
	d.opts.checkMigrations(wrong, d.kind, state)
	if len(d.calls) == 0 {
		r.wrong("%s %s has no %s: define one, or pass it only where its code is (%s)", d.kind.word, d.name, d.kind.call, d.at)
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

// callBinding joins code with an operation or RPC that was declared without code.
type callBinding struct {
	asked callTarget // what was declared
	call  callDefinition

	// to is the entity that the operation is bound to. It is nil for an RPC, which finds its
	// service by name.
	to   Definition
	name string // the name of that entity
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

// joinBound adds bound operations and RPCs to the entities and services that they belong to. A
// service that is known only through a bound RPC has no options.
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
