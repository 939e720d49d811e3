package model_test

import (
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// FuzzDecode checks that any bytes in a row are read or refused, without a panic, and that what was
// read is stored again without loss.
func FuzzDecode(f *testing.F) {
	for _, s := range samples() {
		f.Add(uint8(model.EventStepCompleted), s.encode())
	}
	f.Add(uint8(0), []byte{})
	f.Add(uint8(model.LastEventKind)+1, []byte{0xa0})
	f.Add(uint8(model.EventClosed), []byte{0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})

	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		if e, err := model.DecodeEvent(3, 4, model.EventKind(kind), body); err == nil {
			checkAgain(t, &e, model.AppendEvent, func(b []byte) (model.Event, error) { return model.DecodeEvent(3, 4, e.Kind, b) })
		}
		if m, err := model.DecodeMessage(body); err == nil {
			checkAgain(t, &m, model.AppendMessage, model.DecodeMessage)
		}
		if s, err := model.DecodeStart(model.Address{Key: "k"}, model.RunID{1}, 2, body); err == nil {
			checkAgain(t, &s, model.AppendStart, func(b []byte) (model.Start, error) { return model.DecodeStart(s.Address, s.Run, s.At, b) })
		}
		if o, err := model.DecodeOutcome(model.Status(kind), 5, body); err == nil {
			checkAgain(t, &o, model.AppendOutcome, func(b []byte) (model.Outcome, error) { return model.DecodeOutcome(o.Status, o.At, b) })
		}

		if rs, err := model.DecodeReasons(body); err == nil {
			encode := func(dst []byte, rs *[]model.Reason) []byte { return model.AppendReasons(dst, *rs) }
			checkAgain(t, &rs, encode, model.DecodeReasons)
		}

		if a, err := model.DecodeAnswer(body); err == nil {
			checkAgain(t, &a, model.AppendAnswer, model.DecodeAnswer)
		}
	})
}

func checkAgain[T any](t *testing.T, v *T, encode func([]byte, *T) []byte, decode func([]byte) (T, error)) {
	t.Helper()
	back, err := decode(encode(nil, v))
	if err != nil {
		t.Fatalf("%T was stored and cannot be read: %v", *v, err)
	}
	if diff := asStored(back, *v); diff != "" {
		t.Fatalf("%T changed (-stored +read):\n%s", *v, diff)
	}
}

func FuzzParseRunID(f *testing.F) {
	f.Add("run_00000000000000000000000000")
	f.Add("run_\n0000000000000000000000000")
	f.Add("node_00000000000000000000000004")
	f.Fuzz(func(t *testing.T, text string) {
		if id, err := model.ParseRunID(text); err == nil && id.String() != text {
			t.Fatalf("%q was read as %s", text, id)
		}
	})
}
