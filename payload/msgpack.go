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
	return inUTC(reflect.ValueOf(v))
}

// inUTC converts all times in v to UTC, in the keys of maps too. The decoder uses the zone of the
// machine, and code that is replayed on another machine must see the same values.
func inUTC(v reflect.Value) error {
	// Skip a value that cannot hold a time. Also skip an unexported field, unless it is a struct:
	// an embedded struct may have exported fields.
	if !v.IsValid() || !timeHolders.may(v.Type()) || !v.CanInterface() && v.Kind() != reflect.Struct {
		return nil
	}

	switch v.Kind() {
	case reflect.Pointer:
		return inUTC(v.Elem())
	case reflect.Interface:
		if t, ok := reflect.TypeAssert[time.Time](v); ok && v.CanSet() {
			v.Set(reflect.ValueOf(t.UTC()))
			return nil
		}
		return inUTC(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := inUTC(v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		return entriesInUTC(v)
	case reflect.Struct:
		if v.Type() == timeType {
			if v.CanSet() {
				v.Set(reflect.ValueOf(v.Interface().(time.Time).UTC()))
			}
			return nil
		}
		for _, f := range v.Fields() {
			if err := inUTC(f); err != nil {
				return err
			}
		}
	default:
	}

	return nil
}

// entriesInUTC converts the times in the keys and values of a map. If the type of the keys encodes
// times with their zones, two keys may become equal. entriesInUTC refuses such a map, because it
// would lose one of the two entries, and not always the same one.
func entriesInUTC(m reflect.Value) error {
	if m.Len() == 0 {
		return nil
	}

	// Entries of a map cannot be set, so convert copies.
	t := m.Type()
	converted := reflect.MakeMapWithSize(t, m.Len())
	for it := m.MapRange(); it.Next(); {
		k, e := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		k.SetIterKey(it)
		e.SetIterValue(it)
		if err := errors.Join(inUTC(k), inUTC(e)); err != nil {
			return err
		}
		converted.SetMapIndex(k, e)
	}
	if converted.Len() < m.Len() {
		return fmt.Errorf("two keys of a map (%s) are the same in UTC", t)
	}

	// Keep the map itself, because v may be a copy that cannot be set.
	m.Clear()
	for it := converted.MapRange(); it.Next(); {
		m.SetMapIndex(it.Key(), it.Value())
	}
	return nil
}

// sortMaps orders the entries of all maps by key, because the encoder writes the entries in the
// random order of iteration. It refuses a map with two keys that have the same bytes, such as the
// same instant in two zones, because the decoder would drop one of them.
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
		for i := range entries {
			if i > 0 && bytes.Equal(entries[i-1][0], entries[i][0]) {
				return nil, fmt.Errorf("two keys of a map have the same bytes %x: they may be the same time in different zones", entries[i][0])
			}
		}
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
	case reflect.Map:
		return h.search(t.Key(), seen) || h.search(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
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
