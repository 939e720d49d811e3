package payload

import (
	"encoding/json"
	"reflect"
)

// Format turns values into bytes and back. The bytes must be the same whenever a value is encoded:
// steps are recognised by them.
type Format interface {
	// Name is the recorded encoding: letters, digits and hyphens, in lower case.
	Name() string
	// Marshal encodes a value.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes into a pointer. Fields that the type does not know are ignored, so that
	// types may grow and shrink.
	Unmarshal(data []byte, v any) error
}

// TypeChecker is a Format that can tell, before anything is stored, that values of a type would not
// come back as they were.
type TypeChecker interface {
	// CheckType says why, nil when they would.
	CheckType(t reflect.Type) error
}

// Formats that every app can read.
var (
	JSON    Format = jsonFormat{}
	Msgpack Format = msgpackFormat{}
)

type jsonFormat struct{}

func (jsonFormat) Name() string                       { return "json" }
func (jsonFormat) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonFormat) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
