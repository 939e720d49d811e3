package perdure

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/payload"
)

type exactOrder struct {
	Customer string
	Items    int `json:"n_items"`
	Price    float64
	Place    struct{ Street, City string }
	Express  bool
}

// The value that a step keeps in memory equals the value that is decoded from its record.
func TestExactValuesAreReadBackUnchanged(t *testing.T) {
	t.Parallel()
	order := exactOrder{Customer: strings.Repeat("<&> \"\n\u2028é", 40), Items: math.MinInt64, Price: -0.1}
	order.Place.City = "\x7f\x00"
	for _, v := range []any{order, strings.Repeat("ö\t", 200), int64(math.MaxInt64), uint64(math.MaxUint64), float32(math.Pi), math.SmallestNonzeroFloat64, true, time.Minute} {
		typ := reflect.TypeOf(v)
		if !isExact(typ) {
			t.Errorf("%s is not exact", typ)
		}
		data, err := payload.JSON.Marshal(v)
		back := reflect.New(typ)
		if err == nil {
			err = payload.JSON.Unmarshal(data, back.Interface())
		}
		if err != nil || back.Elem().Interface() != v {
			t.Errorf("%+v is read back as %+v: %v", v, back.Elem(), err)
		}
	}
}

// Values of these types may change when they are encoded as JSON and decoded, or share memory that
// the body of a step can change.
func TestOtherTypesAreNotExact(t *testing.T) {
	t.Parallel()

	for _, v := range []any{
		[]byte{},
		[]string{},
		map[string]int{},
		new(int),
		time.Time{},
		json.RawMessage{},
		json.Number(""),
		[1]*int{},
		struct{ hidden int }{},
		struct {
			A int `json:"-"`
		}{},
		struct {
			A int `json:"a,omitempty"`
			B int
		}{},
		struct {
			A int `json:"B"`
			B int
		}{},
		struct{ Ab, AB int }{},
		struct{ exactOrder }{},
		struct{ A any }{},
		struct{ A []int }{},
		struct{ A time.Time }{},
	} {
		if typ := reflect.TypeOf(v); isExact(typ) {
			t.Errorf("%s is exact", typ)
		}
	}
}

// A step returns the kept value only if its outcome is the very slice of bytes to which the value
// was encoded.
func TestKeptValueBelongsToItsBytes(t *testing.T) {
	t.Parallel()
	h, long := &host{plain: true}, strings.Repeat("x", keepFrom)
	p, err := encode(h, "result", "", long)
	if err != nil {
		t.Fatal(err)
	}
	s := new(replay.Step)
	if _, ok := kept[string](s, p); ok {
		t.Error("a step without a body has a value")
	}
	keep(h, s, long, p)
	if v, ok := kept[string](s, p); !ok || v != long {
		t.Errorf("the step returns %q, %v", v, ok)
	}
	other := model.Payload{Data: append([]byte(nil), p.Data...)}
	if _, ok := kept[string](s, other); ok {
		t.Error("the step returns its value for other bytes")
	}
	if keep(h, s, []byte(long), other); s.Kept.Load().Data[1] != 'x' {
		t.Error("the step keeps bytes that may change")
	}
}
