package model_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

func TestAppendWritesWhatTheTagsSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, m, s, o := genBody.Draw(t, "event"), genMessage.Draw(t, "message"), genStart.Draw(t, "start"), genOutcome.Draw(t, "outcome")
		a, rs := genAnswer.Draw(t, "answer"), rapid.SliceOfN(genReason, 0, 4).Draw(t, "reasons")
		d, p := genDead.Draw(t, "dead"), genPayload.Draw(t, "payload")

		before := []byte("before")
		for _, c := range []struct {
			value any
			got   []byte
		}{
			{&e, model.AppendEvent(before, &e)},
			{&m, model.AppendMessage(before, &m)},
			{&s, model.AppendStart(before, &s)},
			{&o, model.AppendOutcome(before, &o)},
			{&a, model.AppendAnswer(before, &a)},
			{rs, model.AppendReasons(before, rs)},
			{&d, model.AppendDeadTask(before, &d)},
			{&p, model.AppendPayload(before, &p)},
		} {
			want, err := model.MarshalByTags(c.value)
			if err != nil {
				t.Fatal(err)
			}
			got, ok := bytes.CutPrefix(c.got, before)
			if !ok {
				t.Fatalf("%#v\nreplaces what stood before it: %x", c.value, c.got)
			}
			if got, err = model.Sorted(got); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%#v\nis written as %x\nand should be  %x", c.value, got, want)
			}
		}
	})
}

func TestEventRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e := genBody.Draw(t, "event")
		e.Seq, e.At = genInt.Draw(t, "seq"), genTime.Draw(t, "at")
		for e.Kind = model.EventStarted; e.Kind <= model.LastEventKind; e.Kind++ {
			if !e.Kind.Known() {
				continue
			}
			body := model.AppendEvent(nil, &e)
			back, err := model.DecodeEvent(e.Seq, e.At, e.Kind, body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := asStored(back, e); diff != "" {
				t.Fatalf("%s changed by the codec (-stored +read):\n%s", e.Kind, diff)
			}
		}
	})
}

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := genMessage.Draw(t, "message")
		body := model.AppendMessage(nil, &m)
		back, err := model.DecodeMessage(body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := asStored(back, m); diff != "" {
			t.Fatalf("changed by the codec (-stored +read):\n%s", diff)
		}
	})
}

func TestStartRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := genStart.Draw(t, "start")
		body := model.AppendStart(nil, &s)
		back, err := model.DecodeStart(s.Address, s.Run, s.At, body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := asStored(back, s); diff != "" {
			t.Fatalf("changed by the codec (-stored +read):\n%s", diff)
		}
	})
}

func TestOutcomeRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := genOutcome.Draw(t, "outcome")
		body := model.AppendOutcome(nil, &o)
		back, err := model.DecodeOutcome(o.Status, o.At, body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := asStored(back, o); diff != "" {
			t.Fatalf("changed by the codec (-stored +read):\n%s", diff)
		}
	})
}

func TestReasonsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rs := rapid.SliceOfN(genReason, 0, 4).Draw(t, "reasons")
		body := model.AppendReasons(nil, rs)
		back, err := model.DecodeReasons(body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := asStored(back, rs); diff != "" {
			t.Fatalf("changed by the codec (-stored +read):\n%s", diff)
		}
	})
	if rs, err := model.DecodeReasons(nil); rs != nil || err != nil {
		t.Errorf("no body = %v, %v", rs, err)
	}
}

func TestAnswerRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := genAnswer.Draw(t, "answer")
		body := model.AppendAnswer(nil, &a)
		back, err := model.DecodeAnswer(body)
		if err != nil {
			t.Fatal(err)
		}
		if diff := asStored(back, a); diff != "" {
			t.Fatalf("changed by the codec (-stored +read):\n%s", diff)
		}
	})
}

// Values of user code may be large, and errors may be any bytes. Once accepted, they must stay
// readable.
func TestHugeValuesRoundTrip(t *testing.T) {
	t.Parallel()
	huge := model.Payload{Data: bytes.Repeat([]byte{0, 0xff, 'x'}, 1<<20), Encoding: strings.Repeat("e\x00", 1<<10)}
	fail := &model.Failure{Message: strings.Repeat("\xff\x00", 1<<20), Stack: strings.Repeat("at main.go:1\n", 1<<14)}
	e := model.Event{Seq: 1 << 62, At: model.MaxTime, Kind: model.EventStepFailed, ID: strings.Repeat("|", 1<<16), Input: huge, Output: huge, Failure: fail}
	body := model.AppendEvent(nil, &e)
	back, err := model.DecodeEvent(e.Seq, e.At, e.Kind, body)
	if err != nil || asStored(back, e) != "" {
		t.Errorf("a huge event did not come back (%v)", err)
	}
	s := model.Start{Input: huge, Origin: huge.Digest()}
	for i := range 20_000 { // twice the default limit of signals
		s.Carried = append(s.Carried, model.Event{Seq: int64(i + 1), Kind: model.EventSignalReceived, Name: "s", Input: model.Payload{Data: fmt.Append(nil, i)}})
	}
	body = model.AppendStart(nil, &s)
	again, err := model.DecodeStart(s.Address, s.Run, s.At, body)
	if err != nil || asStored(again, s) != "" {
		t.Errorf("a start with many signals did not come back (%v)", err)
	}
}

func TestUnknownKindsAreErrors(t *testing.T) {
	t.Parallel()
	empty := model.AppendEvent(nil, &model.Event{})
	for _, k := range []model.EventKind{0, model.LastEventKind + 1, 100, 255} {
		if _, err := model.DecodeEvent(7, 1, k, empty); err == nil || !strings.Contains(err.Error(), "event 7") {
			t.Errorf("event of kind %d: %v, want an error that names the position", k, err)
		}
		body := model.AppendStart(nil, &model.Start{Carried: []model.Event{{Kind: k}}})
		run := model.RunID{1}
		if _, err := model.DecodeStart(model.Address{}, run, 1, body); err == nil || !strings.Contains(err.Error(), run.String()) {
			t.Errorf("carried event of kind %d: %v, want an error that names the run", k, err)
		}
	}

	for _, k := range []model.MessageKind{0, model.LastMessageKind + 1, 255} {
		body := model.AppendMessage(nil, &model.Message{Kind: k})
		if _, err := model.DecodeMessage(body); err == nil {
			t.Errorf("message of kind %d was read", k)
		}
	}
}

func TestHostileBytesAreErrors(t *testing.T) {
	t.Parallel()

	nested := bytes.Repeat([]byte{0xa1, 0x09}, 1000)
	for name, body := range map[string][]byte{
		"empty":                    {},
		"not CBOR":                 {0xff},
		"a number":                 {0x01},
		"a text":                   {0x61, 'x'},
		"cut short":                {0xa1, 0x01},
		"something behind it":      {0xa0, 0x00},
		"indefinite length":        {0xbf, 0x01, 0x61, 'x', 0xff},
		"the same key twice":       {0xa2, 0x01, 0x61, 'x', 0x01, 0x61, 'y'},
		"array of absurd length":   {0x9b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"map of absurd length":     {0xbb, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"bytes of absurd length":   {0xa1, 0x04, 0xa1, 0x01, 0x5b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"a million small maps":     append([]byte{0x9a, 0x00, 0x10, 0x00, 0x01}, bytes.Repeat([]byte{0xa0}, 1<<20+1)...),
		"nested without end":       append(nested, 0xa0),
		"reserved simple value":    {0xf8, 0x01},
		"wrong type of a field":    {0xa1, 0x01, 0xa1, 0x01, 0xa1, 0x01, 0xa0},
		"number out of its bounds": {0xa1, 0x09, 0x1b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	} {
		for what, err := range decodeAll(model.EventStepCompleted, body) {
			fits := what == "reasons" && name == "empty" || // no reasons: an empty body
				// the other types have no such field and skip it
				name == "number out of its bounds" && what != "event" && what != "message"
			if err == nil && !fits {
				t.Errorf("%s: read as %s", name, what)
			}
		}
	}
}

// decodeAll reads the bytes as every type that is stored.
func decodeAll(kind model.EventKind, body []byte) map[string]error {
	errs := map[string]error{}
	_, errs["event"] = model.DecodeEvent(1, 1, kind, body)
	_, errs["message"] = model.DecodeMessage(body)
	_, errs["start"] = model.DecodeStart(model.Address{}, model.RunID{}, 1, body)
	_, errs["outcome"] = model.DecodeOutcome(model.Completed, 1, body)
	_, errs["reasons"] = model.DecodeReasons(body)
	_, errs["answer"] = model.DecodeAnswer(body)
	_, errs["dead task"] = model.DecodeDeadTask(body)
	_, errs["payload"] = model.DecodePayload(body)
	return errs
}

// A later build may add fields under new keys; this build reads the ones that it knows.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	t.Parallel()
	body := []byte{0xa2, 0x02, 0x61, 'n', 0x18, 0xc8, 0x61, 'x'} // {2: "n", 200: "x"}
	e, err := model.DecodeEvent(1, 1, model.EventSignalReceived, body)
	if err != nil || e.Name != "n" {
		t.Errorf("event with a field of a later build = %+v, %v", e, err)
	}
}

func TestPayload(t *testing.T) {
	t.Parallel()
	a := model.Payload{Data: []byte("x")}
	for _, v := range []struct {
		name string
		b    model.Payload
		same bool
	}{
		{"itself", a, true},
		{"a copy", model.Payload{Data: []byte("x"), Encoding: model.JSON}, true},
		{"other bytes", model.Payload{Data: []byte("y")}, false},
		{"another encoding", model.Payload{Data: []byte("x"), Encoding: "cbor"}, false},
		{"the encoding moved into the bytes", model.Payload{Encoding: "x"}, false},
		{"nothing", model.Payload{}, false},
	} {
		if a.Equal(v.b) != v.same || bytes.Equal(a.Digest(), v.b.Digest()) != v.same {
			t.Errorf("%s: equal %v, digests equal %v, want %v", v.name, a.Equal(v.b), bytes.Equal(a.Digest(), v.b.Digest()), v.same)
		}
	}

	if !(model.Payload{}).Equal(model.Payload{Data: []byte{}}) {
		t.Error("no bytes and empty bytes differ")
	}

	// A chain of runs compares the input of a repeated start with a stored digest.
	if got := fmt.Sprintf("%x", model.Payload{Data: []byte(`{"a":1}`), Encoding: "json"}.Digest()); got != digestGolden {
		t.Errorf("digest = %s, want %s: it is stored and never changes", got, digestGolden)
	}
}

const digestGolden = "ba03a8468995a733997e7785bb2ddf95d25abaca919a038156d7768857aa92db"
