package history_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
)

const noon = model.Time(1_767_355_200_000_000)

var (
	genText = rapid.OneOf(
		rapid.SampledFrom([]string{"", "\x00", "a\nb", "\xff\xfe", "<b>&", "\u2028", "äöü", "\U0001f980", `"`}), rapid.StringN(0, 12, -1),
	)
	genData = rapid.OneOf(
		rapid.SampledFrom([][]byte{
			nil, []byte("null"), []byte("1"), []byte(`"x"`), []byte(`{"a":1}`), []byte(`{ "a": 1 }`), []byte("\"<&>\u2028\""), []byte("{}\n"),
			[]byte("\xff"), []byte(`{"a":1,"a":2}`), []byte("1e400"), []byte(`""`),
		}),
		rapid.SliceOfN(rapid.Byte(), 1, 24),
	)
	genPayload = rapid.Custom(func(t *rapid.T) model.Payload {
		return model.Payload{Data: genData.Draw(t, "data"), Encoding: rapid.SampledFrom([]string{"", "", "binary", "\xff"}).Draw(t, "encoding")}
	})
	genRun = rapid.Custom(func(t *rapid.T) (id model.RunID) {
		if rapid.Bool().Draw(t, "some") {
			copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "run"))
		}
		return id
	})
	genAddress = rapid.OneOf(rapid.Just(model.Address{}), rapid.Custom(func(t *rapid.T) model.Address {
		return model.Address{Tenant: genText.Draw(t, "tenant"), Type: genText.Draw(t, "type"), Key: genText.Draw(t, "key")}
	}))
	genLink = rapid.OneOf(rapid.Just(model.Link{}), rapid.Custom(func(t *rapid.T) model.Link {
		return model.Link{Address: genAddress.Draw(t, "address"), Run: genRun.Draw(t, "run"), ID: genText.Draw(t, "id")}
	}))
	genFailure = rapid.OneOf(rapid.Just((*model.Failure)(nil)), rapid.Custom(func(t *rapid.T) *model.Failure {
		return &model.Failure{
			Kind: genText.Draw(t, "kind"), Type: genText.Draw(t, "type"), Message: genText.Draw(t, "message"),
			Stack: genText.Draw(t, "stack"), Permanent: rapid.Bool().Draw(t, "permanent"),
		}
	}))
	genPolicy = rapid.SampledFrom([]model.ParentClosePolicy{model.CancelChild, model.AbandonChild})
	genTime   = rapid.Map(rapid.Int64Range(1, int64(model.MaxTime)), func(n int64) model.Time { return model.Time(n) })
)

var (
	genDuration = rapid.Map(rapid.Int64(), func(n int64) time.Duration { return time.Duration(n) })
	genTexts    = rapid.Map(rapid.SliceOfN(genText, 0, 2), func(s []string) []string {
		if len(s) == 0 {
			return nil
		}
		return s
	})
	genTask = rapid.OneOf(rapid.Just((*model.TaskSpec)(nil)), rapid.Custom(func(t *rapid.T) *model.TaskSpec {
		return &model.TaskSpec{
			Kind: genText.Draw(t, "kind"), Queue: genText.Draw(t, "queue"), Priority: rapid.Int().Draw(t, "priority"), Fair: genText.Draw(t, "fair"),
			Weight: rapid.Int().Draw(t, "weight"), ToStart: genDuration.Draw(t, "to start"), ToClose: genDuration.Draw(t, "to close"), Silence: genDuration.Draw(t, "silence"),
			Total: genDuration.Draw(t, "total"), Delay: genDuration.Draw(t, "delay"), Breaker: genText.Draw(t, "breaker"), Limits: genTexts.Draw(t, "limits"),
			Trace: genText.Draw(t, "trace"),
			Retry: model.Retry{
				MaxAttempts: rapid.IntRange(0, 1).Draw(t, "max attempts"), Initial: genDuration.Draw(t, "initial"), Max: genDuration.Draw(t, "max"),
				Coefficient: rapid.Int64().Draw(t, "coefficient"), Jitter: rapid.Int64().Draw(t, "jitter"), Final: genTexts.Draw(t, "final"),
				Given: rapid.Bool().Draw(t, "given"),
			},
		}
	}))
)

// genHistory generates any valid history.
var genHistory = rapid.Custom(func(t *rapid.T) *model.History {
	h := &model.History{Start: model.Start{
		Address: model.Address{Tenant: "default", Type: "order", Key: "1" + genText.Draw(t, "key")}, Run: model.RunID{1}, At: noon,
		Input: genPayload.Draw(t, "input"), RequestID: genText.Draw(t, "request"), Parent: genLink.Draw(t, "parent"),
		OnParentClose: genPolicy.Draw(t, "policy"), First: genRun.Draw(t, "first"), Previous: genRun.Draw(t, "previous"),
		Origin: rapid.SliceOfN(rapid.Byte(), 0, 32).Draw(t, "origin"), Identity: genRun.Draw(t, "identity"),
		Task: genTask.Draw(t, "task"), Worker: genText.Draw(t, "worker"), Trace: genText.Draw(t, "trace"),
		Attempt: rapid.IntRange(0, 3).Draw(t, "attempt"), Cause: genFailure.Draw(t, "cause"),
	}}

	if rapid.Bool().Draw(t, "has terms") {
		h.Start.Begins, h.Start.Expires = noon+1, noon+2
		h.Start.Terms = &model.Terms{Timeout: genDuration.Draw(t, "timeout"), Retry: &model.Retry{MaxAttempts: 3, Given: true}}
	}

	if rapid.Bool().Draw(t, "has a past") {
		h.Start.Began = noon - 1000
		h.Start.Source = model.Source{Address: genAddress.Draw(t, "source"), Run: genRun.Draw(t, "of"), Position: 3}
		h.Start.Seeds = []model.Seed{{Until: 1, Run: genRun.Draw(t, "seed")}, {Until: 3, Run: model.RunID{2}}}
	}

	at := h.Start.Zero()
	for i := range rapid.IntRange(0, 6).Draw(t, "events") {
		at += model.Time(rapid.IntRange(0, 1000).Draw(t, "later"))
		e := model.Event{
			Seq: int64(i + 1), At: at, Kind: rapid.SampledFrom(eventKinds()).Draw(t, "kind"), ID: genText.Draw(t, "id"), Name: genText.Draw(t, "name"),
			Attempt: rapid.IntRange(0, 9).Draw(t, "attempt"), Input: genPayload.Draw(t, "in"), Output: genPayload.Draw(t, "out"),
			Failure: genFailure.Draw(t, "failure"), Target: genAddress.Draw(t, "target"), Run: genRun.Draw(t, "run"),
			Status:  rapid.SampledFrom([]model.Status{0, model.Completed, model.Failed}).Draw(t, "status"),
			Watcher: genLink.Draw(t, "watcher").Pointer(), RequestID: genText.Draw(t, "request"), Policy: genPolicy.Draw(t, "policy"),
			Position: genText.Draw(t, "position"), Detached: rapid.Bool().Draw(t, "detached"), Due: rapid.OneOf(rapid.Just(model.Time(0)), genTime).Draw(t, "due"),
			Ref: rapid.Int64().Draw(t, "ref"), Task: genTask.Draw(t, "task"), Worker: genText.Draw(t, "worker"),
			Section: genText.Draw(t, "section"), Seen: rapid.Bool().Draw(t, "seen"),
		}
		if e.Kind == model.EventLockAsked {
			e.Locks = rapid.SliceOfN(genAddress, 1, 3).Draw(t, "locks")
		}
		if e.Kind == model.EventSignalTaken || e.Kind == model.EventSignalDropped {
			e.Kind = model.EventSignalReceived
		}
		if e.Kind == model.EventTaskScheduled && e.Task == nil {
			e.Task = &model.TaskSpec{Kind: "render", Queue: "gpu"}
		}
		h.Events = append(h.Events, e)
	}

	if n := len(h.Events); n > 0 && rapid.Bool().Draw(t, "carried") {
		h.Start.Carried = h.Events[:rapid.IntRange(1, n).Draw(t, "n")]
	}
	h.Outcome = model.Outcome{Status: model.Running}

	if rapid.Bool().Draw(t, "closed") {
		h.Outcome = model.Outcome{
			Status: rapid.SampledFrom([]model.Status{model.Completed, model.Failed, model.Canceled, model.Continued}).Draw(t, "status"),
			Output: genPayload.Draw(t, "output"), Failure: genFailure.Draw(t, "failure"), At: at, Seen: int64(len(h.Events)), Next: genRun.Draw(t, "next"),
		}
		if h.Start.Task != nil && rapid.Bool().Draw(t, "without a report") {
			h.Outcome.Seen = -1 // the task timed out, was lost, or was cancelled before a claim
		}
	}

	return h
})

// eventKinds returns the kinds that a file may have.
func eventKinds() (kinds []model.EventKind) {
	for k := model.EventStarted; k <= model.LastEventKind; k++ {
		if k.Known() && k != model.EventStarted && k != model.EventClosed {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func writtenText(t testing.TB, h *model.History) string {
	t.Helper()
	var b bytes.Buffer
	if err := history.Write(&b, h); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWhatIsWrittenIsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := genHistory.Draw(t, "history")
		var b bytes.Buffer
		if err := history.Write(&b, want); err != nil {
			t.Fatal(err)
		}
		text := b.String()
		if n := strings.Count(text, "\n"); n != len(want.Events)+2 {
			t.Fatalf("%d lines for %d events:\n%s", n, len(want.Events), text)
		}

		got, err := history.Read(&b)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("(-written +read)\n%s\n%s", diff, text)
		}
	})
}

func sample() *model.History {
	return &model.History{
		Start: model.Start{
			Address: model.Address{Tenant: "default", Type: "order", Key: "1"}, Run: model.RunID{1}, At: noon, Input: model.Payload{Data: []byte(`{"n":1}`)},
		},
		Events: []model.Event{
			{Seq: 1, At: noon + 1, Kind: model.EventStepCompleted, ID: "/s6:charge", Name: "charge", Attempt: 1, Output: model.Payload{Data: []byte("7")}},
			{Seq: 2, At: noon + 2, Kind: model.EventSignalReceived, Name: "word", Input: model.Payload{Data: []byte{1, 2}, Encoding: "binary"}},
			{Seq: 3, At: noon + 3, Kind: model.EventSignalTaken, ID: "/g4:word", Name: "word", Ref: 2},
		},
		Outcome: model.Outcome{Status: model.Completed, Output: model.Payload{Data: []byte(`"done"`)}, At: noon + 4, Seen: 3},
	}
}

// The format is a promise: later builds can read what this build writes.
func TestFormat(t *testing.T) {
	t.Parallel()
	const want = `{"perdure_history":1,"address":{"tenant":"default","workflow":"order","key":"1"},"run":"run_04000000000000000000000000","started":"2026-01-02T12:00:00.000000Z","input":{"json":{"n":1}}}
{"seq":1,"at":"2026-01-02T12:00:00.000001Z","kind":"step_completed","id":"/s6:charge","name":"charge","attempt":1,"output":{"json":7}}
{"seq":2,"at":"2026-01-02T12:00:00.000002Z","kind":"signal_received","name":"word","input":{"encoding":"binary","base64":"AQI="}}
{"seq":3,"at":"2026-01-02T12:00:00.000003Z","kind":"signal_taken","id":"/g4:word","name":"word","ref":2}
{"outcome":{"status":"completed","at":"2026-01-02T12:00:00.000004Z","output":{"json":"done"},"seen":3}}
`
	if got := writtenText(t, sample()); got != want {
		t.Errorf("written as\n%s\nwant\n%s", got, want)
	}
}

// Every error about a file names its line.
func TestReadRefuses(t *testing.T) {
	t.Parallel()
	good := writtenText(t, sample())
	lines := strings.SplitAfter(good, "\n")
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "line 0: the file is empty"},
		{"another file", "hello\n", "line 1: this is not the header"},
		{"another JSON", "{}\n", "line 1: this is not the header"},
		{"a later version", strings.Replace(good, `"perdure_history":1`, `"perdure_history":2`, 1), "line 1: the format has version 2"},
		{"a field of a later build", strings.Replace(good, `"run":"run_04`, `"color":1,"run":"run_04`, 1), `line 1: json: unknown field "color"`},
		{"no run", strings.Replace(good, `"run":"run_04000000000000000000000000",`, "", 1), "line 1: the run is missing"},
		{"a run that is none", strings.Replace(good, "run_04000000000000000000000000", "run_x", 1), "line 1: run: "},
		{"no key", strings.Replace(good, `"key":"1"`, `"key":""`, 1), "line 1: the address is not complete"},
		{"no time", strings.Replace(good, `"started":"2026-01-02T12:00:00.000000Z"`, `"started":"noon"`, 1), "line 1: \"noon\" is not a time"},
		{"cut off", strings.Join(lines[:4], ""), "line 4: the outcome is missing"},
		{"cut off in a line", good[:len(good)-10], "line 5: unexpected EOF"},
		{"a gap", lines[0] + lines[2] + lines[4], "line 2: event 2 stands where 1 belongs"},
		{"a time that goes back", strings.Replace(good, "00.000002Z", "00.000000Z", 1), "line 3: event 2 is older"},
		{"an unknown kind", strings.Replace(good, "step_completed", "step_forgotten", 1), `line 2: kind "step_forgotten" is not known`},
		{"an end in the middle", strings.Replace(good, "step_completed", "closed", 1), "line 2: an event of kind closed"},
		{"a signal that is not there", strings.Replace(good, `"ref":2`, `"ref":1`, 1), "line 4: event 3 takes the signal of position 1"},
		{"an unknown status", strings.Replace(good, `"completed"`, `"glorious"`, 1), `line 5: status "glorious" is not known`},
		{"an end that has seen too much", strings.Replace(good, `"seen":3`, `"seen":4`, 1), "line 5: the code has seen event 4 of 3"},
		{"more carried than there is", strings.Replace(good, `"started"`, `"carried":4,"started"`, 1), "line 5: 4 events came with the start"},
		{"two payloads", strings.Replace(good, `"json":7`, `"json":7,"base64":"AQI="`, 1), "line 2: output: a payload is either"},
		{"something behind", good + "x\n", "line 6: 1 bytes follow"},
		{"two values on a line", strings.Replace(good, "\n", " {}\n", 1), "line 1: "},
		{"an endless line", strings.Repeat("x", history.MaxLine+1), "line 1: it has more than"},
	} {
		_, err := history.Read(strings.NewReader(c.text))
		if err == nil || !strings.Contains(err.Error(), "history, "+c.want) || !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want one that says %q", c.name, err, c.want)
		}
	}

	if _, err := history.Read(errReader{}); err == nil || !strings.Contains(err.Error(), "broken pipe") {
		t.Errorf("an error of the file: %v", err)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A reader accepts at most the limit of events.
func TestReadIsBounded(t *testing.T) {
	t.Parallel()
	h := sample()
	h.Events = nil
	for i := range history.MaxEvents + 1 {
		h.Events = append(h.Events, model.Event{Seq: int64(i + 1), At: noon, Kind: model.EventTimerFired})
	}
	if _, err := history.Read(strings.NewReader(writtenText(t, h))); err == nil || !strings.Contains(err.Error(), "more than 100000 events") {
		t.Errorf("read with %v", err)
	}
}

// If Read accepts a file, Write writes the same history, and Read reads it again.
func FuzzRead(f *testing.F) {
	f.Add(writtenText(f, sample()))
	f.Add(`{"perdure_history":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		h, err := history.Read(strings.NewReader(text))
		if err != nil {
			return
		}
		again, err := history.Read(strings.NewReader(writtenText(t, h)))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v", err)
		}
		if diff := cmp.Diff(h, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}
