package perdure

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

type typeOf struct {
	what string
	typ  reflect.Type
}

func typeFor[T any](what string) typeOf { return typeOf{what, reflect.TypeFor[T]()} }

var (
	jsonMarshaler   = reflect.TypeFor[json.Marshaler]()
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// hasOwnForm reports whether a type encodes and decodes itself. It returns an error for a type that
// does only one of the two.
func hasOwnForm(t reflect.Type) (bool, error) {
	p := reflect.PointerTo(t)
	writes := p.Implements(jsonMarshaler) || p.Implements(textMarshaler)
	reads := p.Implements(jsonUnmarshaler) || p.Implements(textUnmarshaler)
	switch {
	case writes && !reads && t.Kind() != reflect.Interface:
		return false, fmt.Errorf("%s encodes itself but cannot decode itself", t)
	case reads && !writes:
		return false, fmt.Errorf("%s decodes itself but cannot encode itself", t)
	}
	return writes && reads, nil
}

// encodable says why values of a type cannot be stored as JSON and read back; nil when they can.
func encodable(t reflect.Type, seen []reflect.Type) error {
	if slices.Contains(seen, t) {
		return nil
	}
	if own, err := hasOwnForm(t); own || err != nil {
		return err
	}

	seen = append(seen, t)
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("%s cannot be encoded", t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("interface %s can be encoded but not decoded", t)
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return encodable(t.Elem(), seen)
	case reflect.Map:
		if k := t.Key(); k.Kind() != reflect.String && !isInteger(k.Kind()) &&
			!(k.Implements(textMarshaler) && reflect.PointerTo(k).Implements(textUnmarshaler)) {
			return fmt.Errorf("the keys of %s cannot be encoded", t)
		}
		return encodable(t.Elem(), seen)
	case reflect.Struct:
		return encodableFields(t, seen)
	default:
	}
	return nil
}

func encodableFields(t reflect.Type, seen []reflect.Type) error {
	hidden := 0
	for f := range t.Fields() {
		if !f.IsExported() && !f.Anonymous {
			hidden++
			continue
		}
		if f.Tag.Get("json") == "-" {
			continue
		}
		if err := encodable(f.Type, seen); err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
	}

	if hidden > 0 && hidden == t.NumField() && len(seen) == 1 {
		return fmt.Errorf("%s has no exported field, so it would be stored empty", t)
	}
	return nil
}

func isInteger(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uintptr }
