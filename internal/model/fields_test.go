package model_test

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// fill sets every field, so that a test notices a new field that the encoder lacks. The generators
// in gen_test.go would not notice it, because they are written by hand too.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for _, f := range v.Fields() {
			fill(f)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	default:
		panic(v.Type().String())
	}
}

func TestAppendKnowsEveryField(t *testing.T) {
	t.Parallel()
	var (
		e  model.Event
		m  model.Message
		s  model.Start
		o  model.Outcome
		a  model.Answer
		rs []model.Reason
		d  model.DeadTask
		p  model.Payload
	)
	for _, v := range []any{&e, &m, &s, &o, &a, &rs, &d, &p} {
		fill(reflect.ValueOf(v).Elem())
	}

	for _, c := range []struct {
		value any
		got   []byte
	}{
		{&e, model.AppendEvent(nil, &e)},
		{&m, model.AppendMessage(nil, &m)},
		{&s, model.AppendStart(nil, &s)},
		{&o, model.AppendOutcome(nil, &o)},
		{&a, model.AppendAnswer(nil, &a)},
		{rs, model.AppendReasons(nil, rs)},
		{&d, model.AppendDeadTask(nil, &d)},
		{&p, model.AppendPayload(nil, &p)},
	} {
		want, err := model.MarshalByTags(c.value)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := model.Sorted(c.got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%T\nis written as %x\nand should be  %x", c.value, got, want)
		}
	}
}
