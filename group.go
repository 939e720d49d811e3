package perdure

import (
	"cmp"
	"reflect"
	"slices"
	"strings"
)

// GroupOf turns a struct whose exported fields are handles, such as activities that belong
// together, into one definition. It includes the handles in structs inside the struct: embedded, as
// a field, or behind a pointer. It ignores all other fields, so the struct may hold what its
// methods need. Several groups may have the same handle.
//
//	type Payments struct {
//		Charge *perdure.Activity[Order, Receipt]
//		Refund *perdure.Activity[Receipt, perdure.Void]
//		gateway *gateway.Client
//	}
//
// Open fails and names the field if a handle is nil. It also fails if an activity without a queue
// is only declared, unless the program also passes its Bind. A workflow that is only declared may
// have its code in another process.
func GroupOf[S any](group *S) Definition {
	return structGroup{value: reflect.ValueOf(group), at: callerPosition()}
}

type structGroup struct {
	value reflect.Value // pointer to the struct
	at    string
}

func (g structGroup) define(r *registry) {
	t := g.value.Type().Elem()
	name := cmp.Or(t.Name(), t.String())
	switch {
	case t.Kind() != reflect.Struct || !hasHandles(t, nil):
		r.wrong("group %s has no exported field that is a handle, such as *perdure.Activity (%s)", name, g.at)
	case g.value.IsNil():
		r.wrong("group %s is nil (%s)", name, g.at)
	default:
		w := groupWalk{r: r, name: name, at: g.at, seen: map[visit]bool{}}
		w.visitFields(g.value.Elem(), "")
	}
}

// groupWalk goes through the fields of a group.
type groupWalk struct {
	r    *registry
	name string
	at   string
	seen map[visit]bool // stops the walk at cycles of pointers
}

// visit is a struct behind a pointer. It includes the type, because the first field of a struct has
// the same address as the struct.
type visit struct {
	typ     reflect.Type
	address uintptr
}

func (w *groupWalk) visitFields(v reflect.Value, path string) {
	for f, value := range v.Fields() {
		if !f.IsExported() && !f.Anonymous {
			continue
		}
		at := strings.TrimPrefix(path+"."+f.Name, ".")

		switch {
		case isHandle(f.Type):
			w.visitHandle(value, at)
		case !hasHandles(f.Type, nil):
		case f.Type.Kind() == reflect.Struct:
			w.visitFields(value, at)
		case value.IsNil():
			w.r.wrong("group %s: field %s is nil (%s)", w.name, at, w.at)
		default:
			if v := (visit{f.Type, value.Pointer()}); !w.seen[v] {
				w.seen[v] = true
				w.visitFields(value.Elem(), at)
			}
		}
	}
}

func (w *groupWalk) visitHandle(v reflect.Value, path string) {
	if k := v.Kind(); (k == reflect.Pointer || k == reflect.Interface) && v.IsNil() {
		w.r.wrong("group %s: field %s is nil (%s)", w.name, path, w.at)
		return
	}

	if !v.CanInterface() {
		w.r.wrong("group %s: field %s cannot be read: export the type that it is embedded by (%s)", w.name, path, w.at)
		return
	}

	switch h := v.Interface().(type) {
	case invocable:
		w.defineTarget(h.callTarget(), path)
	case declarable:
		if kind, name, declared := h.declaration(); declared {
			if kind == "activity" {
				w.r.needs = append(w.r.needs, need{name, "group " + w.name + ": field " + path, w.at})
			}
			return
		}
		w.r.add(h)
	case Definition:
		w.r.add(h)
	}
}

// invocable is an operation, a stream or an RPC.
type invocable interface{ callTarget() *callTarget }

func (o *Operation[I, O]) callTarget() *callTarget { return &o.to }

func (s *Stream[I, T]) callTarget() *callTarget { return &s.to }

func (r *RPC[I, O]) callTarget() *callTarget { return &r.to }

// defineTarget defines the entity or service of an invocable, if its code is here.
func (w *groupWalk) defineTarget(t *callTarget, path string) {
	switch {
	case t.wrong != nil:
		w.r.wrong("group %s: field %s: %w (%s)", w.name, path, t.wrong, w.at)
	case t.owner != nil:
		w.r.add(t.owner)
	}
}

// declarable is a handle that may have no code.
type declarable interface {
	Definition
	declaration() (kind, name string, only bool)
}

func (a *Activity[I, O]) declaration() (kind, name string, only bool) {
	return "activity", a.name, !a.bound && !a.hasQueue()
}

func (w *Workflow[I, O]) declaration() (kind, name string, only bool) {
	return "workflow", w.name, !w.bound
}

// need is an activity that must have code.
type need struct{ activity, who, at string }

var (
	definitionType = reflect.TypeFor[Definition]()
	messageType    = reflect.TypeFor[namedMessage]()
)

// isHandle reports whether a field of the type is a handle of this package: a definition, or the
// name of a message such as a signal.
func isHandle(t reflect.Type) bool { return t.Implements(definitionType) || t.Implements(messageType) }

// namedMessage is the typed name of a message. It defines nothing, but it must not be nil.
type namedMessage interface{ isNamedMessage() }

func (s *Signal[T]) isNamedMessage() {}

func (p *Promise[T]) isNamedMessage() {}

func (u *Update[I, O]) isNamedMessage() {}

func (q *Query[I, O]) isNamedMessage() {}

func (s *State[T]) isNamedMessage() {}

func (o *Operation[I, O]) isNamedMessage() {}

func (s *Stream[I, T]) isNamedMessage() {}

func (r *RPC[I, O]) isNamedMessage() {}

// hasHandles reports whether a struct, or the struct behind a pointer, contains a handle at any
// depth.
func hasHandles(t reflect.Type, seen []reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	if slices.Contains(seen, t) {
		return false
	}

	seen = append(seen, t)
	for f := range t.Fields() {
		if (f.IsExported() || f.Anonymous) && (isHandle(f.Type) || hasHandles(f.Type, seen)) {
			return true
		}
	}

	return false
}
