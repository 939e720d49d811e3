package payload

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"reflect"
	"unicode/utf8"
)

// errText is the error for a value that JSON would change.
var errText = errors.New("a text in it is not valid UTF-8, and JSON would replace the invalid bytes: use []byte for bytes")

// marshalJSON encodes a value as JSON. It refuses texts that are not valid UTF-8: the encoder would
// replace their invalid bytes, and code would later read a different value.
func marshalJSON(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	// The encoder writes this escape for invalid bytes. The escape may also come from elsewhere,
	// for example from a json.RawMessage. So look at the value before refusing it.
	if bytes.Contains(data, []byte(`\ufffd`)) && hasInvalidText(reflect.ValueOf(v)) {
		return nil, errText
	}
	return data, nil
}

// hasInvalidText reports whether a value has a text that is not valid UTF-8. The value has no
// cycles, because the encoder has accepted it.
func hasInvalidText(v reflect.Value) bool {
	if !v.IsValid() {
		return false
	}
	if v.CanInterface() {
		switch m := v.Interface().(type) {
		case json.Marshaler:
			return false // the encoder does not change the JSON of a Marshaler
		case encoding.TextMarshaler:
			if v.Kind() == reflect.Pointer && v.IsNil() {
				return false
			}
			text, err := m.MarshalText()
			return err == nil && !utf8.Valid(text)
		}
	}

	switch v.Kind() {
	case reflect.String:
		return !utf8.ValidString(v.String())
	case reflect.Pointer, reflect.Interface:
		return hasInvalidText(v.Elem())
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return false // base64, or numbers
		}
		for i := range v.Len() {
			if hasInvalidText(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for i := v.MapRange(); i.Next(); {
			if hasInvalidText(i.Key()) || hasInvalidText(i.Value()) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); (f.IsExported() || f.Anonymous) && f.Tag.Get("json") != "-" && hasInvalidText(v.Field(i)) {
				return true
			}
		}
	default:
	}

	return false
}
