package payload_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/payload"
)

type inner struct {
	Text  string `json:"text,omitempty"`
	Bytes []byte
	Maybe *int64
}

type outer struct {
	inner
	Number  int64 `json:"n"`
	Float   float64
	Yes     bool
	At      time.Time
	Counts  map[string]int
	Numbers map[int]string
	Any     map[string]any
	List    []inner
	Addr    netip.Addr
	Big     *big.Int
	Hidden  string   `json:"-"`
	Skipped chan int `json:"-"`
	Times   []map[string]time.Time
}

func genOuter(t *rapid.T) outer {
	text := rapid.String()
	in := rapid.Custom(func(t *rapid.T) inner {
		i := inner{Text: text.Draw(t, "text"), Bytes: rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")}
		if rapid.Bool().Draw(t, "maybe") {
			n := rapid.Int64().Draw(t, "n")
			i.Maybe = &n
		}
		return i
	})

	return outer{
		inner: in.Draw(t, "inner"), Number: rapid.Int64().Draw(t, "number"), Float: rapid.Float64().Draw(t, "float"), Yes: rapid.Bool().Draw(t, "yes"),
		At:     time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC(),
		Times:  []map[string]time.Time{{"t": time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "t"), 0).UTC()}},
		Counts: rapid.MapOf(text, rapid.Int()).Draw(t, "counts"), Numbers: rapid.MapOf(rapid.Int(), text).Draw(t, "numbers"),
		Any:  map[string]any{"a": text.Draw(t, "any"), "b": map[string]any{"x": true, "y": []any{"z", nil}}},
		List: rapid.SliceOfN(in, 0, 3).Draw(t, "list"), Addr: netip.AddrFrom4([4]byte{1, 2, 3, 4}), Big: big.NewInt(rapid.Int64().Draw(t, "big")),
	}
}

// Every format reads back what it has written. It writes equal values as equal bytes, although Go
// iterates over maps in random order.
func TestFormatsRoundTrip(t *testing.T) {
	t.Parallel()
	for _, f := range []payload.Format{payload.JSON, payload.Msgpack} {
		t.Run(f.Name(), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				in := genOuter(t)
				data, err := f.Marshal(in)
				if err != nil {
					t.Fatal(err)
				}

				for range 5 {
					if again, err := f.Marshal(in); err != nil || !bytes.Equal(again, data) {
						t.Fatalf("the same value is written as\n%x\nand\n%x (%v)", data, again, err)
					}
				}

				var out outer
				if err := f.Unmarshal(data, &out); err != nil {
					t.Fatal(err)
				}
				if !out.At.Equal(in.At) || out.At.Location() != time.UTC || len(out.Times) == 1 && out.Times[0]["t"].Location() != time.UTC {
					t.Fatalf("time %s came back as %s, %v", in.At, out.At, out.Times)
				}

				if diff := cmp.Diff(in, out, cmpopts.EquateEmpty(), cmp.AllowUnexported(outer{}, big.Int{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmpopts.EquateNaNs()); diff != "" {
					t.Fatal(diff)
				}
			})
		})
	}
}

// Types may gain and lose fields in every format, and a field has the same name in all formats.
func TestFormatsIgnoreUnknownFields(t *testing.T) {
	t.Parallel()
	type small struct {
		N int `json:"n"`
	}

	for _, f := range []payload.Format{payload.JSON, payload.Msgpack} {
		data, err := f.Marshal(outer{Number: 7})
		if err != nil {
			t.Fatal(err)
		}
		var s small
		if err := f.Unmarshal(data, &s); err != nil || s.N != 7 {
			t.Errorf("%s: %+v, %v", f.Name(), s, err)
		}
		if bytes.Contains(data, []byte("Hidden")) || bytes.Contains(data, []byte("Number\"")) {
			t.Errorf("%s: tags are not heeded: %q", f.Name(), data)
		}
	}
}

// Times in the keys of maps are read back in UTC too, so that a replay in another zone finds the
// same entries.
func TestMsgpackReadsKeysInUTC(t *testing.T) {
	t.Parallel()
	type at struct{ At time.Time }
	type keys struct {
		Plain   map[time.Time]string
		Structs map[at]time.Time
		Arrays  map[[2]time.Time]int
		Any     map[any]bool
		Inner   []map[string]map[time.Time]int
		Floats  map[float64]time.Time
	}

	berlin := time.FixedZone("CET", 3600)
	one, two := time.Date(2026, 11, 15, 1, 2, 3, 4, berlin), time.Date(2026, 11, 16, 1, 2, 3, 4, time.Local)
	data, err := payload.Msgpack.Marshal(keys{
		Plain:   map[time.Time]string{one: "one", two: "two"},
		Structs: map[at]time.Time{{one}: one, {two}: two},
		Arrays:  map[[2]time.Time]int{{one, two}: 12},
		Any:     map[any]bool{one: true, "two": true},
		Inner:   []map[string]map[time.Time]int{{"in": {one: 1}}},
		Floats:  map[float64]time.Time{1.5: one, math.NaN(): two},
	})
	if err != nil {
		t.Fatal(err)
	}

	var got keys
	if err := payload.Msgpack.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	not := got.Floats[1.5]
	if len(got.Floats) != 2 || not.Location() != time.UTC {
		t.Errorf("floats: %v", got.Floats)
	}

	one, two = one.UTC(), two.UTC()
	got.Floats = nil // NaN is not equal to itself
	want := keys{
		Plain:   map[time.Time]string{one: "one", two: "two"},
		Structs: map[at]time.Time{{one}: one, {two}: two},
		Arrays:  map[[2]time.Time]int{{one, two}: 12},
		Any:     map[any]bool{one: true, "two": true},
		Inner:   []map[string]map[time.Time]int{{"in": {one: 1}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// stamp encodes itself with its zone, because it has the methods of time.Time.
type stamp struct{ time.Time }

// Two keys that are the same instant in different zones would become one entry. Msgpack refuses
// them, so no entry is lost.
func TestMsgpackRefusesKeysOfOneInstant(t *testing.T) {
	t.Parallel()
	utc := time.Date(2026, 11, 15, 1, 2, 3, 0, time.UTC)
	berlin := utc.In(time.FixedZone("CET", 3600))
	if data, err := payload.Msgpack.Marshal(map[time.Time]int{utc: 1, berlin: 2}); err == nil || !strings.Contains(err.Error(), "two keys") {
		t.Errorf("written as %x, %v", data, err)
	}

	data, err := payload.Msgpack.Marshal(map[stamp]int{{utc}: 1, {berlin}: 2})
	if err != nil {
		t.Fatal(err)
	}
	var got map[stamp]int
	if err := payload.Msgpack.Unmarshal(data, &got); err == nil || !strings.Contains(err.Error(), "two keys") {
		t.Errorf("read as %v, %v", got, err)
	}
}

func TestMsgpackRefusesRemains(t *testing.T) {
	t.Parallel()
	var n int
	if err := payload.Msgpack.Unmarshal([]byte{1, 2}, &n); err == nil {
		t.Error("bytes behind the value were ignored")
	}
	if err := payload.Msgpack.Unmarshal(nil, &n); err == nil {
		t.Error("nothing was decoded")
	}
}

type jsonOnly struct{ secret string }

func (j jsonOnly) MarshalJSON() ([]byte, error)  { return json.Marshal(j.secret) }
func (j *jsonOnly) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &j.secret) }

type tree struct {
	Left, Right *tree
	Values      map[string][]jsonOnly
}

// A type that can encode itself only as JSON would lose its unexported fields in msgpack. The
// format refuses such a type before anything is stored.
func TestMsgpackChecksTypes(t *testing.T) {
	t.Parallel()
	check := payload.Msgpack.(payload.TypeChecker).CheckType
	for _, v := range []any{1, "", outer{}, []outer{}, &big.Int{}, time.Time{}, struct{ any }{}, map[string]any{}} {
		if err := check(reflect.TypeOf(v)); err != nil {
			t.Errorf("%T: %v", v, err)
		}
	}
	for _, v := range []any{jsonOnly{}, &jsonOnly{}, tree{}, map[string]jsonOnly{}} {
		if err := check(reflect.TypeOf(v)); err == nil || !strings.Contains(err.Error(), "jsonOnly encodes itself as JSON only") {
			t.Errorf("%T: %v", v, err)
		}
	}
}

func FuzzMsgpackUnmarshal(f *testing.F) {
	for _, v := range []any{1, "x", outer{}, map[string]int{"a": 1}} {
		data, err := payload.Msgpack.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var out outer
		_ = payload.Msgpack.Unmarshal(data, &out) // must not panic
		var v any
		if payload.Msgpack.Unmarshal(data, &v) == nil {
			_ = fmt.Sprint(v)
		}
	})
}

type badText struct{}

func (badText) MarshalText() ([]byte, error) { return []byte("a\xff"), nil }

// JSON cannot store text that is not valid UTF-8 unchanged. The format refuses such text, wherever
// it is in the value, and refuses nothing else.
func TestJSONRefusesInvalidText(t *testing.T) {
	t.Parallel()
	const bad = "a\xffb"
	type box struct{ V any }
	for what, v := range map[string]any{
		"text": bad, "field": inner{Text: bad}, "pointer": &inner{Text: bad}, "slice": []string{"", bad}, "key": map[string]int{bad: 1},
		"map": map[string]any{"k": []any{bad}}, "inside": box{box{bad}}, "own form": box{badText{}},
	} {
		if data, err := payload.JSON.Marshal(v); err == nil || !strings.Contains(err.Error(), "not valid UTF-8") {
			t.Errorf("%s: %s, %v", what, data, err)
		}
	}

	for what, v := range map[string]any{
		"bytes": inner{Bytes: []byte(bad)}, "replacement character": "\ufffd", "backslash": `\ufffd`, "raw": json.RawMessage(`"\ufffd"`),
		"raw inside": box{[]any{nil, json.RawMessage(`{"a":"\ufffd"}`), (*inner)(nil)}}, "not stored": struct {
			A string `json:"-"`
			B json.RawMessage
		}{bad, json.RawMessage(`"\ufffd"`)},
	} {
		if _, err := payload.JSON.Marshal(v); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
