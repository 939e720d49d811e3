package replay_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

type program func(e *engine, x replay.Ctx) error

// record runs a program to its end, or until it waits, and returns its history.
func record(t *testing.T, p program) []model.Event {
	t.Helper()
	e := newEngine(nil)
	e.auto = true
	e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) { return payload("old"), p(e, x) }
	e.activate(-1)
	e.settle()
	e.stop()
	if err := e.err(); err != nil {
		t.Fatal(err)
	}
	return e.events
}

func steps(names ...string) program {
	return func(e *engine, x replay.Ctx) error {
		for _, n := range names {
			if _, err := e.step(x, n); err != nil {
				return err
			}
		}
		return nil
	}
}

func keyedProgram(keys ...string) program {
	return func(e *engine, x replay.Ctx) error {
		for _, k := range keys {
			if _, err := e.step(x, "s", func(s *replay.Step) { s.Key, s.Keyed = k, true }); err != nil {
				return err
			}
		}
		return nil
	}
}

func thenSleep(p program) program {
	return func(e *engine, x replay.Ctx) error {
		if err := p(e, x); err != nil {
			return err
		}
		return x.Sleep(time.Hour)
	}
}

// charge asks for a step whose input has the fields of v, and reads recorded inputs into the type
// of v.
func charge[T any](v T) program {
	encode := func(v any) []byte { b, _ := json.Marshal(v); return b }
	return func(e *engine, x replay.Ctx) error {
		_, err := e.step(x, "charge", input(string(encode(v))), func(s *replay.Step) {
			s.Input.Normalize = func(_ any, p model.Payload) ([]byte, error) {
				b := p.Data
				var old T
				if err := json.Unmarshal(b, &old); err != nil {
					return nil, err
				}
				return encode(old), nil
			}
		})
		return err
	}
}

// hire starts a child without a key and sends it a message. So the test notices if the address of
// the child changes.
func hire[T any](v T) program {
	encode := func(v any) []byte { b, _ := json.Marshal(v); return b }
	return func(_ *engine, x replay.Ctx) error {
		kid, err := x.StartChild(replay.Child{
			Workflow: "kid", Input: payload(string(encode(v))), Normalize: func(_ any, p model.Payload) ([]byte, error) {
				var old T
				err := json.Unmarshal(p.Data, &old)
				return encode(old), err
			},
		})
		if err != nil {
			return err
		}
		_, err = x.Send(model.Message{Kind: model.MessageSignal, To: kid, Name: "go"}, "", nil)
		return err
	}
}

type chargeV1 struct{ Order string }

type chargeV2 struct {
	Order string
	Note  string
}

type chargeRenamed struct{ OrderID string }

func fail(p program) program {
	return func(e *engine, x replay.Ctx) error {
		if err := p(e, x); err != nil {
			return err
		}
		return errors.New("failed")
	}
}

func continueOf(p program) program {
	return func(e *engine, x replay.Ctx) error {
		if err := p(e, x); err != nil {
			return err
		}
		return &replay.Continue{Workflow: "wf", Input: payload("next")}
	}
}

func branches(order ...string) program {
	return func(e *engine, x replay.Ctx) error {
		var fs []*replay.Future
		for _, n := range order {
			fs = append(fs, x.StepFuture(e.stepOf(n)))
		}
		return x.All(fs)
	}
}

// TestChangedCode replays a history with other code. Nothing that was recorded is executed again.
// Either the new code fits, or the run is blocked with a reason that says why.
func TestChangedCode(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, new program
		blocked  []string // parts of the reason; empty when the code fits
		executes int      // steps that the new code adds
	}{
		{name: "same", old: steps("a", "b"), new: steps("a", "b")},
		{name: "step added at the end", old: thenSleep(steps("a")), new: steps("a", "b"), executes: 1},
		{
			name: "step added in front", old: thenSleep(steps("a", "b")), new: thenSleep(steps("x", "a", "b")),
			blocked: []string{"event 1 records step a at replay/harness_test.go:", "the code did not ask for; it asks for step x at replay/harness_test.go:"},
		},
		{
			name: "step removed", old: thenSleep(steps("a", "b")), new: thenSleep(steps("b")),
			blocked: []string{"event 1 records step a at", "it asks for a timer at"},
		},
		{name: "step renamed", old: thenSleep(steps("a")), new: thenSleep(steps("z")), blocked: []string{"records step a", "asks for step z"}},
		{name: "loop of keyed steps in another order", old: thenSleep(keyedProgram("1", "2", "3")), new: thenSleep(keyedProgram("3", "1", "2"))},
		{name: "keyed steps in another order, and a new one before the timer", old: thenSleep(keyedProgram("1", "2")), new: thenSleep(keyedProgram("2", "1", "3")), executes: 1},
		{
			name: "key changed", old: thenSleep(keyedProgram("1")), new: thenSleep(keyedProgram("2")),
			blocked: []string{"records step s (key 1)", "asks for step s"},
		},
		{name: "branches in another order", old: branches("a", "b"), new: branches("b", "a")},
		{name: "returns early", old: thenSleep(steps("a", "b")), new: steps("a"), blocked: []string{"event 2 records step b", "but the code returned without asking for it"}},
		{name: "fails early", old: thenSleep(steps("a", "b")), new: fail(steps("a")), blocked: []string{"records step b", "returned without asking"}},
		{name: "continues early", old: thenSleep(steps("a", "b")), new: continueOf(steps("a")), blocked: []string{"records step b", "returned without asking"}},
		{name: "step removed, then returns", old: thenSleep(steps("a", "b")), new: steps("b"), blocked: []string{"event 1 records step a", "returned without asking"}},
		{name: "returns at once", old: thenSleep(steps("a")), new: steps(), blocked: []string{"records step a", "returned without asking"}},
		{name: "new zero field", old: thenSleep(charge(chargeV1{"o"})), new: thenSleep(charge(chargeV2{Order: "o"}))},
		{name: "child with a new zero field", old: thenSleep(hire(chargeV1{"o"})), new: thenSleep(hire(chargeV2{Order: "o"}))},
		{
			name: "child with a new field with a value", old: thenSleep(hire(chargeV1{"o"})), new: thenSleep(hire(chargeV2{"o", "hi"})),
			blocked: []string{"input of child kid changed: field Note"},
		},
		{
			name: "new field with a value", old: thenSleep(charge(chargeV1{"o"})), new: thenSleep(charge(chargeV2{"o", "hi"})),
			blocked: []string{"input of step charge changed: field Note", "event 1 records step charge at replay/harness_test.go:", "the code asks at replay/harness_test.go:"},
		},
		{
			name: "renamed field", old: thenSleep(charge(chargeV1{"o"})), new: thenSleep(charge(chargeRenamed{"o"})),
			blocked: []string{"input of step charge changed: fields Order, OrderID"},
		},
		{
			name: "another workflow as new", old: thenSleep(steps("a")), new: func(e *engine, x replay.Ctx) error {
				_, err := e.step(x, "a")
				return errors.Join(err, &replay.Continue{Workflow: "other"})
			},
			blocked: []string{"the code of workflow wf continues workflow other as new"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				history := record(t, c.old)
				e := newEngine(nil)
				e.auto = true
				e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) { return payload("new"), c.new(e, x) }
				e.events = history
				e.activate(-1)
				e.settle()
				e.stop()
				if err := e.err(); err != nil {
					t.Error(err)
				}
				if len(e.ran) != c.executes {
					t.Errorf("%d steps were executed, want %d", len(e.ran), c.executes)
				}

				if len(c.blocked) == 0 {
					if e.blocked != nil {
						t.Errorf("blocked: %s", e.blocked)
					}
					return
				}

				if e.blocked == nil {
					t.Fatalf("not blocked; want %q", c.blocked)
				}

				for _, part := range c.blocked {
					if !strings.Contains(e.blocked.Detail, part) {
						t.Errorf("reason %q\nhas no %q", e.blocked.Detail, part)
					}
				}

				if e.end != nil || len(e.events) != len(history) {
					t.Error("a blocked run went on")
				}
			})
		})
	}
}

// TestFanOutWithChangedEncoding checks that the worker finds the recorded outcome of every step of
// a large fan-out, although the encoding of the inputs has changed. Several steps have equal
// inputs. The worker numbers such steps in the order in which the code asks for them.
func TestFanOutWithChangedEncoding(t *testing.T) {
	fan := func(fields string) program {
		return func(e *engine, x replay.Ctx) error {
			var fs []*replay.Future
			for i := range 300 {
				in := `{"n":` + string(rune('0'+i%10)) + fields + `}`
				fs = append(fs, x.StepFuture(e.stepOf("s", input(in), func(s *replay.Step) {
					s.Input.Normalize = func(_ any, p model.Payload) ([]byte, error) {
						return []byte(strings.TrimSuffix(string(p.Data), "}") + fields + "}"), nil
					}
				})))
			}
			if err := x.All(fs); err != nil {
				return err
			}
			return x.Sleep(time.Hour)
		}
	}

	synctest.Test(t, func(t *testing.T) {
		history := record(t, fan(""))
		e := newEngine(nil)
		e.auto = true
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			return payload(""), fan(`,"added":0`)(e, x)
		}
		e.events = history
		e.activate(-1)
		e.settle()
		e.stop()
		if e.blocked != nil || len(e.ran) > 0 || e.err() != nil {
			t.Errorf("blocked %v, executed %d, %v", e.blocked, len(e.ran), e.err())
		}
	})
}

// TestRetryUnderOldIdentity checks that a step continues under the identity with which its first
// attempt was recorded.
func TestRetryUnderOldIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flaky := func(v chargeV2) program {
			return func(e *engine, x replay.Ctx) error {
				b, _ := json.Marshal(v)
				if v.Note == "old" {
					b, _ = json.Marshal(chargeV1{v.Order})
				}
				_, err := e.step(x, "charge", input(string(b)), failingStep(1, false), func(s *replay.Step) {
					s.Input.Normalize = func(_ any, p model.Payload) ([]byte, error) {
						b := p.Data
						var old chargeV2
						_ = json.Unmarshal(b, &old)
						return json.Marshal(old)
					}
				})
				return err
			}
		}

		history := record(t, flaky(chargeV2{"o", "old"}))
		e := newEngine(nil)
		e.auto = true
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			return payload("done"), flaky(chargeV2{Order: "o"})(e, x)
		}
		e.events = history
		e.activate(-1)
		e.settle()
		e.retry(history[0].ID)
		e.settle()
		e.stop()
		e.wantClosed(t, model.Completed, "done")
		if got := e.events[1]; got.ID != history[0].ID || got.Attempt != 2 {
			t.Errorf("the outcome is %s, attempt %d", got.ID, got.Attempt)
		}
	})
}

// TestCorruptHistory checks that a run is blocked if its history lacks the first event.
func TestCorruptHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		history := record(t, thenSleep(steps("a", "b")))
		e := newEngine(nil)
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) { return payload(""), steps("a", "b")(e, x) }
		e.events = []model.Event{history[1]}
		e.activate(-1)
		e.settle()
		e.stop()
		if e.blocked == nil || e.blocked.Code != model.WaitCorrupt {
			t.Errorf("blocked: %v", e.blocked)
		}
	})
}
