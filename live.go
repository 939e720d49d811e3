package perdure

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// keepFrom is a size in bytes. If an encoded result has at least this size, decoding it costs more
// than keeping the value.
const keepFrom = 256

// keep lets a step return the value that its body has just returned, so that the SDK need not
// decode the bytes that it has just encoded. A replay decodes the recorded bytes. Both ways must
// give the same value: see isExact.
func keep[T any](h *host, s *replay.Step, v T, p model.Payload) {
	if h.plain && len(p.Data) >= keepFrom && isExact(reflect.TypeFor[T]()) {
		s.Kept.Store(&replay.Kept{Value: v, Data: p.Data})
	}
}

// kept returns the kept value if the recorded outcome of the step is the encoding of that value. It
// compares the addresses of the bytes, because an abandoned attempt may have kept another value
// since.
func kept[T any](s *replay.Step, p model.Payload) (v T, ok bool) {
	k := s.Kept.Load()
	if k == nil || p.Encoding != model.JSON || len(k.Data) != len(p.Data) || &k.Data[0] != &p.Data[0] {
		return v, false
	}
	v, ok = k.Value.(T)
	return v, ok
}

var jsonNumber = reflect.TypeFor[json.Number]()

// exactTypes remembers the results of isExact.
var exactTypes sync.Map // reflect.Type to bool

// isExact reports whether a type is exact. A value of an exact type equals the value that is
// decoded from its JSON, and shares no memory that other code could change. Strings, numbers,
// booleans, and structs of such fields are exact.
func isExact(t reflect.Type) bool {
	if known, ok := exactTypes.Load(t); ok {
		return known.(bool)
	}
	exact := checkExact(t)
	exactTypes.Store(t, exact)
	return exact
}

func checkExact(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	if slices.ContainsFunc([]reflect.Type{jsonMarshaler, jsonUnmarshaler, textMarshaler, textUnmarshaler}, p.Implements) {
		return false
	}

	switch k := t.Kind(); {
	case t == jsonNumber:
		return false // an empty Number is encoded as 0
	case k == reflect.String || k == reflect.Bool || k == reflect.Float32 || k == reflect.Float64 || isInteger(k):
		return true
	case k != reflect.Struct:
		return false
	}

	names := map[string]bool{}
	for f := range t.Fields() {
		tag, tagged := f.Tag.Lookup("json")
		name := strings.ToLower(f.Name)
		if !f.IsExported() || f.Anonymous || tagged && !isName(tag) || !checkExact(f.Type) {
			return false
		}
		if tagged {
			name = strings.ToLower(tag)
		}
		if names[name] { // JSON may omit or confuse two fields of the same name
			return false
		}
		names[name] = true
	}
	return true
}

// isName reports whether the tag of a field is only a simple name.
func isName(tag string) bool {
	for _, c := range []byte(tag) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return tag != ""
}
