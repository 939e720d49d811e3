package storetest

import (
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

// These are the maximum lengths, in bytes, of texts that an adapter must accept in columns. These
// columns may be part of an index.
const (
	MaxName = 256  // tenants, workflows, request ids
	MaxKey  = 1024 // keys and the ids of timers
)

// Times generates points in time that a row may have, including the zero time and the last possible
// time.
func Times() *rapid.Generator[model.Time] {
	return rapid.OneOf(
		rapid.Just(model.Time(0)), rapid.Just(model.MaxTime), rapid.Just(model.Time(1)),
		rapid.Map(rapid.Int64Range(1, int64(model.MaxTime)), func(v int64) model.Time { return model.Time(v) }),
	)
}

// Texts generates texts that are stored inside a body. They may have any bytes, like errors of user
// code.
func Texts() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.Just(""), rapid.StringN(1, 20, 60),
		rapid.SampledFrom([]string{"a\x00b", "\xff\xfe broken \xc3", "'; drop table runs; --", `back\slash "quoted"`, "\u202eright to left", "😀"}),
	)
}

// Names generates texts that have a column of their own. They have unusual characters, but no NUL,
// they are valid UTF-8, and their length in bytes is at most the parameter most.
func Names(most int) *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.SampledFrom([]string{
			"x", "a'b", `a"b`, `a\b`, `\`, "%", "_", "a%b_c", "$1", "?", "{}", "{1,2}", "\t\r\n", " ", "  padded  ", "null", "NULL", "😀",
			"é", "e\u0301", "ſ", "A", "a", "Z", "ä", "\u007f", "\u0001", "\U0010ffff", strings.Repeat("n", most), strings.Repeat("é", most/2),
		}),
		rapid.Map(rapid.StringN(1, 40, most), func(s string) string { return strings.ReplaceAll(s, "\x00", "0") }),
	)
}

// Payloads generates payloads of every shape.
func Payloads() *rapid.Generator[model.Payload] {
	return rapid.Custom(func(t *rapid.T) model.Payload {
		return model.Payload{
			Data: rapid.OneOf(
				rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.Just([]byte{0}), rapid.Just([]byte("\xff\x00\xfe'\\")),
				rapid.SliceOfN(rapid.Byte(), 0, 100),
			).Draw(t, "data"),
			Encoding: rapid.SampledFrom([]string{"", "text", "proto", "x'\"\\"}).Draw(t, "encoding"),
		}
	})
}

// Labels generates the labels of a run: few or many labels, with unusual values.
func Labels() *rapid.Generator[[]model.Label] {
	values := rapid.OneOf(rapid.SampledFrom([]string{"eu", "us"}), Names(model.MaxLabelValue))
	return rapid.Map(rapid.MapOfN(rapid.StringMatching(`[A-Za-z0-9_.-]{1,64}`), values, -1, 4), model.Labels)
}

// Failures generates failures of every shape, including nil.
func Failures() *rapid.Generator[*model.Failure] {
	return rapid.Custom(func(t *rapid.T) *model.Failure {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return &model.Failure{
			Kind: Texts().Draw(t, "kind"), Type: Texts().Draw(t, "type"), Message: Texts().Draw(t, "message"),
			Stack: Texts().Draw(t, "stack"), Permanent: rapid.Bool().Draw(t, "permanent"),
		}
	})
}

func runIDs() *rapid.Generator[model.RunID] {
	return rapid.Custom(func(t *rapid.T) (id model.RunID) {
		if rapid.Bool().Draw(t, "some run") {
			copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "run"))
		}
		return id
	})
}

func addresses() *rapid.Generator[model.Address] {
	return rapid.Custom(func(t *rapid.T) model.Address {
		return model.Address{Tenant: Texts().Draw(t, "tenant"), Type: Texts().Draw(t, "type"), Key: Texts().Draw(t, "key")}
	})
}

// Links generates links of every shape.
func Links() *rapid.Generator[model.Link] {
	return rapid.Custom(func(t *rapid.T) model.Link {
		return model.Link{Address: addresses().Draw(t, "address"), Run: runIDs().Draw(t, "run"), ID: Texts().Draw(t, "id")}
	})
}

func numbers() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 1<<62), rapid.Int64Range(0, 300))
}

func policies() *rapid.Generator[model.ParentClosePolicy] {
	return rapid.SampledFrom([]model.ParentClosePolicy{model.CancelChild, model.AbandonChild})
}

func statuses() *rapid.Generator[model.Status] {
	return rapid.Map(rapid.Uint8Range(0, uint8(model.LastStatus)), func(v uint8) model.Status { return model.Status(v) })
}

var eventKinds = rapid.Map(rapid.Uint8Range(uint8(model.EventStarted), uint8(model.LastEventKind)), func(k uint8) model.EventKind {
	return model.EventKind(k)
}).Filter(model.EventKind.Known)

// Events generates events of every kind with every field set or not, at position 1.
func Events() *rapid.Generator[model.Event] {
	return rapid.Custom(func(t *rapid.T) model.Event {
		return model.Event{
			Seq: 1, At: Times().Draw(t, "at"),
			Kind: eventKinds.Draw(t, "kind"),
			ID:   Texts().Draw(t, "id"), Name: Texts().Draw(t, "name"), Attempt: int(numbers().Draw(t, "attempt")),
			Input: Payloads().Draw(t, "input"), Output: Payloads().Draw(t, "output"), Failure: Failures().Draw(t, "failure"),
			Due: Times().Draw(t, "due"), Ref: numbers().Draw(t, "ref"), Target: addresses().Draw(t, "target"),
			Run: runIDs().Draw(t, "run"), Status: statuses().Draw(t, "status"), Watcher: Links().Draw(t, "watcher").Pointer(),
			RequestID: Texts().Draw(t, "request"), Policy: policies().Draw(t, "policy"),
			Position: Texts().Draw(t, "position"), Detached: rapid.Bool().Draw(t, "detached"),
			Locks: rapid.SliceOfN(addresses(), 0, 2).Draw(t, "locks"), Section: Texts().Draw(t, "section"), Seen: rapid.Bool().Draw(t, "seen"),
		}
	})
}

// EventLists generates up to most events at the positions 1, 2, 3, …
func EventLists(most int) *rapid.Generator[[]model.Event] {
	return rapid.Map(rapid.SliceOfN(Events(), 0, most), func(list []model.Event) []model.Event {
		for i := range list {
			list[i].Seq = int64(i + 1)
		}
		return list
	})
}

var messageKinds = rapid.Map(rapid.Uint8Range(uint8(model.MessageStart), uint8(model.LastMessageKind)), func(n uint8) model.MessageKind { return model.MessageKind(n) }).
	Filter(model.MessageKind.Known)

// Messages generates messages of every kind with every field set or not.
func Messages() *rapid.Generator[model.Message] {
	return rapid.Custom(func(t *rapid.T) model.Message {
		return model.Message{
			Kind: messageKinds.Draw(t, "kind"),
			To:   addresses().Draw(t, "to"), ToRun: runIDs().Draw(t, "to run"), From: Links().Draw(t, "from"),
			ID: Texts().Draw(t, "id"), Name: Texts().Draw(t, "name"), Input: Payloads().Draw(t, "input"),
			Failure: Failures().Draw(t, "failure"), Status: statuses().Draw(t, "status"), RequestID: Texts().Draw(t, "request"),
			Reuse:  rapid.SampledFrom([]model.ReusePolicy{model.ReturnExisting, model.ReuseIfFailed, model.ReuseAlways}).Draw(t, "reuse"),
			Policy: policies().Draw(t, "policy"), With: EventLists(2).Draw(t, "with"), Node: model.NodeID(runIDs().Draw(t, "node")),
			Past: pasts().Draw(t, "past"), Runs: rapid.SliceOfN(runIDs(), 0, 2).Draw(t, "runs"),
			Labels:  Labels().Draw(t, "labels"),
			Section: Texts().Draw(t, "section"), OneWay: rapid.Bool().Draw(t, "one way"), Brief: rapid.Bool().Draw(t, "brief"), Epoch: numbers().Draw(t, "epoch"),
		}
	})
}

// Entities generates rows of entities with every field set or not, except for Address, Version and
// Changed, which are columns.
func Entities() *rapid.Generator[model.Entity] {
	return rapid.Custom(func(t *rapid.T) model.Entity {
		return model.Entity{
			State: Payloads().Draw(t, "state"), Exists: rapid.Bool().Draw(t, "exists"), Created: Times().Draw(t, "created"),
			Holder: Links().Draw(t, "holder"), Held: Times().Draw(t, "held"), Epoch: numbers().Draw(t, "epoch"),
			Expires: Times().Draw(t, "expires"), Alarm: Times().Draw(t, "alarm"), Log: records().Draw(t, "log"),
		}
	})
}

// records generates the log of an entity, which is nil when it is empty.
func records() *rapid.Generator[[]model.OperationRecord] {
	return rapid.Custom(func(t *rapid.T) (log []model.OperationRecord) {
		for range rapid.IntRange(0, 2).Draw(t, "records") {
			log = append(log, model.OperationRecord{
				Name: Texts().Draw(t, "name"), At: Times().Draw(t, "at"), RequestID: Texts().Draw(t, "request"), From: Links().Draw(t, "from"),
				Failure: Failures().Draw(t, "failure"), Input: Payloads().Draw(t, "input"), Bytes: rapid.IntRange(0, 9).Draw(t, "bytes"),
			})
		}
		return log
	})
}

// Starts generates starts with every field set or not, except for Address, Run and At, which
// identify a run.
func Starts() *rapid.Generator[model.Start] {
	return rapid.Custom(func(t *rapid.T) model.Start {
		return model.Start{
			Input: Payloads().Draw(t, "input"), RequestID: Texts().Draw(t, "request"), Parent: Links().Draw(t, "parent"),
			OnParentClose: policies().Draw(t, "policy"), First: runIDs().Draw(t, "first"), Previous: runIDs().Draw(t, "previous"),
			Origin: rapid.SliceOfN(rapid.Byte(), 0, 32).Draw(t, "origin"), Carried: EventLists(3).Draw(t, "carried"),
			Labels: Labels().Draw(t, "labels"),
			Began:  Times().Draw(t, "began"), Seeds: seeds().Draw(t, "seeds"), Identity: runIDs().Draw(t, "identity"), Source: sources().Draw(t, "source"),
			Replaced: runIDs().Draw(t, "replaced"), Earlier: rapid.SliceOfN(runIDs(), 0, 2).Draw(t, "earlier"), Trace: Texts().Draw(t, "trace"),
			Begins: Times().Draw(t, "begins"), Expires: Times().Draw(t, "expires"), Attempt: rapid.IntRange(0, 3).Draw(t, "attempt"), Cause: Failures().Draw(t, "cause"),
			Terms: terms().Draw(t, "terms"),
		}
	})
}

func terms() *rapid.Generator[*model.Terms] {
	return rapid.Custom(func(t *rapid.T) *model.Terms {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return &model.Terms{Timeout: time.Duration(rapid.Int64Range(1, 1<<40).Draw(t, "timeout")), Retry: &model.Retry{MaxAttempts: 3, Final: []string{"x"}, Given: true}}
	})
}

func seeds() *rapid.Generator[[]model.Seed] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.Seed {
		return model.Seed{Until: numbers().Draw(t, "until"), Run: runIDs().Draw(t, "run")}
	}), 0, 2)
}

func sources() *rapid.Generator[model.Source] {
	return rapid.Custom(func(t *rapid.T) model.Source {
		return model.Source{Address: addresses().Draw(t, "address"), Run: runIDs().Draw(t, "run"), Position: numbers().Draw(t, "position")}
	})
}

func pasts() *rapid.Generator[*model.Past] {
	return rapid.Custom(func(t *rapid.T) *model.Past {
		if rapid.Bool().Draw(t, "none") {
			return nil
		}
		return &model.Past{
			Events: model.PastOf(EventLists(2).Draw(t, "events")), Began: Times().Draw(t, "began"), Seeds: seeds().Draw(t, "seeds"),
			Identity: runIDs().Draw(t, "identity"), Source: sources().Draw(t, "source"), Origin: rapid.SliceOfN(rapid.Byte(), 0, 32).Draw(t, "origin"),
			Next: numbers().Draw(t, "next"), Status: statuses().Draw(t, "status"), Output: Payloads().Draw(t, "output"),
			Failure: Failures().Draw(t, "failure"), At: Times().Draw(t, "at"),
		}
	})
}

// Outcomes generates outcomes of closed runs with every field set or not.
func Outcomes() *rapid.Generator[model.Outcome] {
	return rapid.Custom(func(t *rapid.T) model.Outcome {
		return model.Outcome{
			Status: model.Status(rapid.Uint8Range(uint8(model.Completed), uint8(model.LastStatus)).Draw(t, "status")),
			Output: Payloads().Draw(t, "output"), Failure: Failures().Draw(t, "failure"),
			At: Times().Draw(t, "at"), Seen: numbers().Draw(t, "seen"), Next: runIDs().Draw(t, "next"), Leaves: Times().Draw(t, "leaves"),
		}
	})
}

// Reasons generates reasons of every shape.
func Reasons() *rapid.Generator[model.Reason] {
	return rapid.Custom(func(t *rapid.T) model.Reason {
		return model.Reason{
			Code: rapid.SampledFrom([]model.ReasonCode{model.WaitTimer, model.WaitSignal, model.WaitRetry, model.WaitMismatch, ""}).Draw(t, "code"),
			Name: Texts().Draw(t, "name"), Until: Times().Draw(t, "until"), Attempt: int(numbers().Draw(t, "attempt")), Detail: Texts().Draw(t, "detail"),
		}
	})
}
