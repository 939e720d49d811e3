package model_test

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is one of everything that is stored, with every field set.
type sample struct {
	name   string
	encode func() []byte
	decode func(body []byte) (any, error)
	want   any
}

func samples() []sample {
	id := func(b byte) model.RunID {
		return model.RunID{0x01, 0x93, 0x2c, 0x5a, 0xb0, b, 0x70, 0, 0x80, 0, 0, 0, 0, 0, 0, b}
	}
	at := func(s int64) model.Time { return model.Time(1_700_000_000_000_000 + s*1_000_000) }
	address := model.Address{Tenant: "acme", Type: "order", Key: "42"}
	link := model.Link{Address: model.Address{Tenant: "acme", Type: "shop", Key: "7"}, Run: id(1), ID: "0|child|order"}
	text := model.Payload{Data: []byte(`{"n":1}`)}
	blob := model.Payload{Data: []byte{0, 1, 0xff}, Encoding: "binary"}
	fail := &model.Failure{Kind: "timeout", Type: "*main.E", Message: "too late", Stack: "main.go:1", Permanent: true}
	full := model.Event{
		ID: "0|step|a", Name: "charge", Attempt: 3, Input: text, Output: blob, Failure: fail, Due: at(9), Ref: 5, Target: address, Run: id(2),
		Status: model.Failed, Watcher: &link, RequestID: "req-1", Policy: model.AbandonChild, Position: "main.go:12", Detached: true,
	}
	numbered := func(e model.Event, seq int64, kind model.EventKind) model.Event {
		e.Seq, e.At, e.Kind = seq, at(seq), kind
		return e
	}

	var all []sample
	event := func(name string, e model.Event) {
		all = append(all, sample{
			name, func() []byte { return model.AppendEvent(nil, &e) },
			func(b []byte) (any, error) { return model.DecodeEvent(e.Seq, e.At, e.Kind, b) }, e,
		})
	}
	event("event: empty", numbered(model.Event{}, 1, model.EventCancelRequest))
	event("event: every field", numbered(full, 2, model.EventChildClosed))
	event("event: step completed", numbered(
		model.Event{ID: "0|step|a", Name: "charge", Input: text, Output: blob, Position: "main.go:12"}, 3, model.EventStepCompleted))
	event("event: signal received", numbered(model.Event{Name: "paid", Input: text, RequestID: "req-1"}, 4, model.EventSignalReceived))
	event("event: signal taken", numbered(model.Event{ID: "0|take|paid", Name: "paid", Ref: 1}, 5, model.EventSignalTaken))
	event("event: timer fired", numbered(model.Event{ID: "0|timer", Due: at(3)}, 6, model.EventTimerFired))
	event("event: version marked", numbered(model.Event{ID: "/v5:taxes", Name: "taxes", Ref: 2, Position: "main.go:12"}, 8, model.EventVersionMarked))
	event("event: noted", numbered(model.Event{ID: "note 3", Name: "suspended", Input: text, Ref: 7}, 9, model.EventNoted))
	event("event: labeled", numbered(
		model.Event{ID: "/l6:region", Name: "region", Output: model.TextPayload("eu"), Position: "main.go:12"}, 9, model.EventLabeled))
	event("event: watched", numbered(model.Event{Watcher: &link}, 7, model.EventWatched))

	message := func(name string, m model.Message) {
		all = append(all, sample{
			name, func() []byte { return model.AppendMessage(nil, &m) },
			func(b []byte) (any, error) { return model.DecodeMessage(b) }, m,
		})
	}
	message("message: smallest", model.Message{Kind: model.MessageNothing})
	message("message: every field", model.Message{
		Kind: model.MessageStart, To: address, ToRun: id(3), From: link, ID: "0|child|order", Name: "paid", Input: text, Failure: fail,
		Status: model.Completed, RequestID: "req-1", Reuse: model.ReuseAlways, Policy: model.AbandonChild,
		With: []model.Event{{Name: "paid", Input: text}, {Name: "sent"}}, Node: model.NodeID(id(4)),
	})

	message("message: start with a past", model.Message{
		Kind: model.MessageStart, To: address, ToRun: id(3), Input: text, Past: &model.Past{
			Events: []model.PastEvent{{Kind: model.EventStepCompleted, At: at(2), Event: model.Event{ID: "0|step|a", Name: "charge", Output: text}}},
			Began:  at(1), Seeds: []model.Seed{{Until: 1, Run: id(1)}}, Identity: id(2),
			Source: model.Source{Address: address, Run: id(3), Position: 1}, Origin: text.Digest(), Next: 4,
			Status: model.Failed, Output: blob, Failure: fail, At: at(9),
		},
	})
	message("message: delete", model.Message{Kind: model.MessageDelete, To: address, RequestID: "req-1", Runs: []model.RunID{id(1), id(2)}})
	message("message: requeue", model.Message{
		Kind: model.MessageRequeue, To: address, RequestID: "req-1", Fresh: id(3),
		DeadTask: &model.DeadTaskOrder{Do: model.DeadTaskRequeue, Ref: model.TaskRef{Address: address, Run: id(1), ID: "0|step|a"}, Count: 1, Input: &text, Run: id(2)},
	})
	message("message: write", model.Message{
		Kind: model.MessageWrite, To: address, ToRun: id(1), Write: &model.TaskWrite{
			Ref: model.ClaimRef{TaskRef: model.TaskRef{Address: address, Run: id(1), ID: model.TaskStep}, Claim: 7}, First: 3, Items: []model.TaskItem{
				{Kind: model.ItemSet, Name: "cursor", Value: text},
				{Kind: model.ItemRemove, Name: "cursor"},
				{Kind: model.ItemClear},
				{Kind: model.ItemLog, Level: -4, Text: "copied", At: at(5)},
				{Kind: model.ItemToken, Value: blob, At: at(6)},
			},
		},
	})
	labels := []model.Label{{Name: "region", Value: "eu"}, {Name: "tier", Value: "gold"}}
	message("message: start with labels", model.Message{Kind: model.MessageStart, To: address, Labels: labels})

	start := func(name string, s model.Start) {
		all = append(all, sample{
			name, func() []byte { return model.AppendStart(nil, &s) },
			func(b []byte) (any, error) { return model.DecodeStart(s.Address, s.Run, s.At, b) }, s,
		})
	}
	start("start: smallest", model.Start{Address: address, Run: id(1), At: at(0)})
	start("start: every field", model.Start{
		Address: address, Run: id(2), At: at(1), Input: text, RequestID: "req-1", Parent: link, OnParentClose: model.AbandonChild,
		First: id(1), Previous: id(1), Origin: text.Digest(),
		Carried: []model.Event{
			numbered(model.Event{Name: "paid", Input: blob, RequestID: "req-2"}, 1, model.EventSignalReceived),
			numbered(model.Event{Watcher: &link}, 2, model.EventWatched),
			numbered(model.Event{Failure: fail}, 3, model.EventCancelRequest),
		},
	})

	start("start: with a past", model.Start{
		Address: address, Run: id(4), At: at(8), Input: text, Began: at(1), Seeds: []model.Seed{{Until: 1, Run: id(1)}, {Until: 2, Run: id(2)}},
		Identity: id(2), Source: model.Source{Address: address, Run: id(3), Position: 2},
		Carried: []model.Event{
			numbered(model.Event{ID: "0|step|a", Name: "charge", Output: text}, 1, model.EventStepCompleted),
			numbered(model.Event{ID: "0|child|b"}, 2, model.EventWatched),
		},
	})
	start("start: labels", model.Start{Address: address, Run: id(1), At: at(0), Input: text, Labels: labels})

	outcome := func(name string, o model.Outcome) {
		all = append(all, sample{
			name, func() []byte { return model.AppendOutcome(nil, &o) },
			func(b []byte) (any, error) { return model.DecodeOutcome(o.Status, o.At, b) }, o,
		})
	}
	outcome("outcome: smallest", model.Outcome{Status: model.Completed, At: at(5)})
	outcome("outcome: every field", model.Outcome{Status: model.Continued, Output: blob, Failure: fail, At: at(5), Seen: 12, Next: id(6)})

	reasons := func(name string, rs []model.Reason) {
		all = append(all, sample{
			name, func() []byte { return model.AppendReasons(nil, rs) },
			func(b []byte) (any, error) { return model.DecodeReasons(b) }, rs,
		})
	}
	reasons("reasons: none", nil)
	reasons("reasons: two", []model.Reason{
		{Code: model.WaitRetry, Name: "charge", Until: at(60), Attempt: 4, Detail: "boom"}, {Code: model.WaitSignal, Name: "paid"},
	})

	answer := func(name string, a model.Answer) {
		all = append(all, sample{
			name, func() []byte { return model.AppendAnswer(nil, &a) },
			func(b []byte) (any, error) { return model.DecodeAnswer(b) }, a,
		})
	}
	answer("answer: empty", model.Answer{})
	answer("answer: every field", model.Answer{Run: id(1), Status: model.Running, Existing: true, Failure: fail})
	answer("answer: requeue", model.Answer{Run: id(1), Status: model.Running, Requeue: 2})

	dead := func(name string, d model.DeadTask) {
		all = append(all, sample{
			name, func() []byte { return model.AppendDeadTask(nil, &d) },
			func(b []byte) (any, error) { return model.DecodeDeadTask(b) }, d,
		})
	}
	dead("dead task: smallest", model.DeadTask{Spec: model.TaskSpec{Kind: "charge", Queue: "default"}})
	dead("dead task: every field", model.DeadTask{
		Address: address, Spec: model.TaskSpec{Kind: "charge", Queue: "slow", Retry: model.Retry{MaxAttempts: 3}}, Input: text, Scheduled: at(1), At: at(9),
		Attempts: 3, Failed: []model.FailedAttempt{{Attempt: 1, At: at(2), Worker: "w-1", Failure: *fail}, {Attempt: 3, At: at(9)}}, LeftOut: 1,
		Failure: fail, Fingerprint: "0123456789abcdef", Requeued: model.Requeue{At: at(20), Address: address, Run: id(7)},
	})
	dead("dead task: requeued with another input", model.DeadTask{
		Address: address, Spec: model.TaskSpec{Kind: "charge", Queue: "default"}, Input: text, At: at(9),
		Requeued: model.Requeue{At: at(20), Address: address, Run: id(7), Input: []byte{1, 2, 3}},
	})
	all = append(all, sample{
		"payload", func() []byte { return model.AppendPayload(nil, &blob) },
		func(b []byte) (any, error) { return model.DecodePayload(b) }, blob,
	})
	return all
}

// TestStoredFormat notices a change of the stored format. It checks the bytes that this build
// writes, and how it reads the bytes of older builds. Developers may add lines to the file, but
// must not change one: a build that needs a changed line cannot read the stores of its users.
func TestStoredFormat(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "stored.golden")
	if *update {
		var b strings.Builder
		b.WriteString("# The stored form of one of everything, in hex. Lines are added, never changed: see TestStoredFormat.\n")
		for _, s := range samples() {
			fmt.Fprintf(&b, "%s = %x\n", s.name, s.encode())
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	golden := readGolden(t, path)
	for _, s := range samples() {
		body := s.encode()
		stored, ok := golden[s.name]
		if !ok {
			t.Errorf("%s: not in %s; run with -update", s.name, path)
			continue
		}

		if got := hex.EncodeToString(body); got != stored {
			t.Errorf("%s is stored differently now:\n got %s\nwant %s", s.name, got, stored)
		}
		old, err := hex.DecodeString(stored)
		if err != nil {
			t.Fatal(err)
		}

		back, err := s.decode(old)
		if err != nil {
			t.Errorf("%s: what an older build wrote cannot be read: %v", s.name, err)
		} else if diff := asStored(back, s.want); diff != "" {
			t.Errorf("%s: what an older build wrote is read differently (-written +read):\n%s", s.name, diff)
		}

		delete(golden, s.name)
	}

	for name := range golden {
		t.Errorf("%s: in the golden file, but no sample has that name any more", name)
	}
}

func readGolden(t *testing.T, path string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, body, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			golden[name] = body
		}
	}
	return golden
}
