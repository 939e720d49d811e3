package payload

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// msgpackFormat uses the same field names and tags as encoding/json. It stores bytes and times in
// the types that msgpack has for them. Times are read back in UTC.
type msgpackFormat struct{}

func (msgpackFormat) Name() string { return "msgpack" }

func (msgpackFormat) Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.SetCustomStructTag("json")
	enc.UseCompactInts(true)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	if !mapHolders.may(reflect.TypeOf(v)) {
		return buf.Bytes(), nil
	}
	return sortMaps(buf.Bytes())
}

func (msgpackFormat) Unmarshal(data []byte, v any) error {
	r := bytes.NewReader(data)
	dec := msgpack.NewDecoder(r)
	dec.SetCustomStructTag("json")
	dec.UseLooseInterfaceDecoding(true)
	if err := dec.Decode(v); err != nil {
		return err
	}
	if r.Len() > 0 {
		return fmt.Errorf("%d bytes follow the value", r.Len())
	}
	inUTC(reflect.ValueOf(v))
	return nil
}

// inUTC converts all times in v to UTC. The decoder uses the zone of the machine, and code that is
// replayed on another machine must see the same values.
func inUTC(v reflect.Value) {
	// Skip a value that cannot hold a time, and an unexported field.
	if !v.IsValid() || !timeHolders.may(v.Type()) || !v.CanInterface() && v.Kind() != reflect.Struct {
		return
	}

	switch v.Kind() {
	case reflect.Pointer:
		inUTC(v.Elem())
	case reflect.Interface:
		if t, ok := reflect.TypeAssert[time.Time](v); ok && v.CanSet() {
			v.Set(reflect.ValueOf(t.UTC()))
			return
		}
		inUTC(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			inUTC(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			e := reflect.New(v.Type().Elem()).Elem() // values in a map cannot be set
			e.Set(v.MapIndex(k))
			inUTC(e)
			v.SetMapIndex(k, e)
		}
	case reflect.Struct:
		if v.Type() == timeType {
			if v.CanSet() {
				v.Set(reflect.ValueOf(v.Interface().(time.Time).UTC()))
			}
			return
		}
		for _, f := range v.Fields() {
			inUTC(f)
		}
	default:
	}
}

// sortMaps orders the entries of all maps by key, because the encoder writes the entries in the
// random order of iteration.
func sortMaps(data []byte) ([]byte, error) {
	dec := msgpack.NewDecoder(bytes.NewReader(data))
	code, err := dec.PeekCode()
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)

	switch {
	case msgpcode.IsFixedMap(code) || code == msgpcode.Map16 || code == msgpcode.Map32:
		n, err := dec.DecodeMapLen()
		if err != nil {
			return nil, err
		}
		entries := make([][2][]byte, n)
		for i := range entries {
			if entries[i][0], err = nextSorted(dec); err != nil {
				return nil, err
			}
			if entries[i][1], err = nextSorted(dec); err != nil {
				return nil, err
			}
		}
		slices.SortFunc(entries, func(a, b [2][]byte) int { return bytes.Compare(a[0], b[0]) })
		if err := enc.EncodeMapLen(n); err != nil {
			return nil, err
		}
		for _, e := range entries {
			buf.Write(e[0])
			buf.Write(e[1])
		}
	case msgpcode.IsFixedArray(code) || code == msgpcode.Array16 || code == msgpcode.Array32:
		n, err := dec.DecodeArrayLen()
		if err != nil {
			return nil, err
		}
		if err := enc.EncodeArrayLen(n); err != nil {
			return nil, err
		}
		for range n {
			e, err := nextSorted(dec)
			if err != nil {
				return nil, err
			}
			buf.Write(e)
		}
	default:
		return data, nil
	}

	if _, err := dec.PeekCode(); !errors.Is(err, io.EOF) {
		return nil, errors.New("a value is followed by another")
	}
	return buf.Bytes(), nil
}

func nextSorted(dec *msgpack.Decoder) ([]byte, error) {
	raw, err := dec.DecodeRaw()
	if err != nil {
		return nil, err
	}
	return sortMaps(raw)
}

// holders remembers which types can contain a certain kind of value, at any depth.
type holders struct {
	is    func(reflect.Type) bool
	known sync.Map // reflect.Type to bool
}

var (
	// A type that encodes itself may write a map, and an interface may contain a map.
	mapHolders = holders{is: func(t reflect.Type) bool {
		p := reflect.PointerTo(t)
		return t.Kind() == reflect.Map || t.Kind() == reflect.Interface || p.Implements(customEncoder) || p.Implements(msgpackMarshaler)
	}}
	timeHolders = holders{is: func(t reflect.Type) bool { return t == timeType || t.Kind() == reflect.Interface }}
	timeType    = reflect.TypeFor[time.Time]()
)

// may reports whether a value of the type can contain the kind of value that h looks for.
func (h *holders) may(t reflect.Type) bool {
	if t == nil {
		return false
	}
	if known, ok := h.known.Load(t); ok {
		return known.(bool)
	}
	may := h.search(t, nil)
	h.known.Store(t, may)
	return may
}

// search looks into the parts of a type. seen has the types whose parts search is looking at,
// because a type may contain itself.
func (h *holders) search(t reflect.Type, seen []reflect.Type) bool {
	if slices.Contains(seen, t) {
		return false
	}
	if h.is(t) {
		return true
	}
	seen = append(seen, t)

	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return h.search(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if h.search(f.Type, seen) {
				return true
			}
		}
	default:
	}

	return false
}

var (
	jsonMarshaler    = reflect.TypeFor[json.Marshaler]()
	customEncoder    = reflect.TypeFor[msgpack.CustomEncoder]()
	msgpackMarshaler = reflect.TypeFor[msgpack.Marshaler]()
	binaryMarshaler  = reflect.TypeFor[encoding.BinaryMarshaler]()
	textMarshaler    = reflect.TypeFor[encoding.TextMarshaler]()
)

// CheckType refuses types that can encode themselves only as JSON. Such types often have unexported
// fields, which msgpack would lose.
func (f msgpackFormat) CheckType(t reflect.Type) error { return f.check(t, nil) }

func (f msgpackFormat) check(t reflect.Type, seen []reflect.Type) error {
	if slices.Contains(seen, t) {
		return nil
	}
	seen = append(seen, t)
	p := reflect.PointerTo(t)

	switch {
	case p.Implements(customEncoder), p.Implements(msgpackMarshaler), p.Implements(binaryMarshaler), p.Implements(textMarshaler):
		return nil
	case t.Kind() != reflect.Interface && p.Implements(jsonMarshaler):
		return fmt.Errorf("%s encodes itself as JSON only: give it MarshalText or MarshalBinary too, or store it as JSON", t)
	}

	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return f.check(t.Elem(), seen)
	case reflect.Map:
		if err := f.check(t.Key(), seen); err != nil {
			return err
		}
		return f.check(t.Elem(), seen)
	case reflect.Struct:
		for field := range t.Fields() {
			if !field.IsExported() && !field.Anonymous || field.Tag.Get("json") == "-" {
				continue
			}
			if err := f.check(field.Type, seen); err != nil {
				return fmt.Errorf("field %s: %w", field.Name, err)
			}
		}
	default:
	}

	return nil
}
