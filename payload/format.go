package payload

import (
	"encoding/json"
	"reflect"
)

// Format turns values into bytes and back. Equal values must have equal bytes, because Perdure
// recognises steps by the bytes of their inputs.
type Format interface {
	// Name is the recorded encoding. It consists of lower-case letters, digits and hyphens.
	Name() string
	// Marshal encodes a value.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes into a pointer. It ignores fields that the type does not have, so that
	// types may gain and lose fields.
	Unmarshal(data []byte, v any) error
}

// TypeChecker is a Format that can tell, before anything is stored, that values of a type could not
// be read back unchanged.
type TypeChecker interface {
	// CheckType says why values of the type could not be read back unchanged. It returns nil if
	// they can.
	CheckType(t reflect.Type) error
}

// Formats that every app can read.
var (
	JSON    Format = jsonFormat{}
	Msgpack Format = msgpackFormat{}
)

type jsonFormat struct{}

func (jsonFormat) Name() string { return "json" }

func (jsonFormat) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case string:
		return quote(v)
	case []byte:
		return quoteBytes(v), nil
	}
	return marshalJSON(v)
}

// Unmarshal reads texts and bytes itself, because encoding/json reads them several times.
func (jsonFormat) Unmarshal(data []byte, v any) error {
	switch v := v.(type) {
	case *string:
		if s, ok := unquote(data); ok {
			*v = s
			return nil
		}
	case *[]byte:
		if b, ok := unquoteBytes(data); ok {
			*v = b
			return nil
		}
	}
	return json.Unmarshal(data, v)
}
