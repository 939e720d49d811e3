package model_test

import (
	"encoding/binary"
	"reflect"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

// This file has generators of everything that is stored. Texts and payloads may be empty, and may
// contain NUL bytes and invalid UTF-8.

// asStored compares two values as a store would: a nil slice equals an empty one. It returns the
// difference.
func asStored(got, want any) string {
	if reflect.DeepEqual(got, want) {
		return "" // equal; cmp would be slower
	}
	return cmp.Diff(want, got, cmpopts.EquateEmpty())
}

var (
	genBytes = rapid.OneOf(rapid.SampledFrom([][]byte{nil, {}, {0}, {0xff, 0}}), rapid.SliceOfN(rapid.Byte(), 1, 24))
	genText  = rapid.OneOf(
		rapid.SampledFrom([]string{"", "\x00", "a\x00b", "\xff\xfe", "\xed\xa0\x80", "äöü", "\U0001f980", "run_", "\x1f"}),
		rapid.StringN(0, 12, -1),
		rapid.Map(genBytes, func(b []byte) string { return string(b) }),
	)
	genInt  = rapid.OneOf(rapid.SampledFrom([]int64{0, 1, -1, 1<<63 - 1, -1 << 63, 255, 256, 1 << 32}), rapid.Int64())
	genTime = rapid.OneOf(
		rapid.SampledFrom([]model.Time{0, 1, -1, model.MaxTime, model.MaxTime + 1, 1<<63 - 1, -1 << 63}),
		rapid.Map(rapid.Int64(), func(n int64) model.Time { return model.Time(n) }),
	)
	genID = rapid.Custom(func(t *rapid.T) (id model.RunID) {
		binary.BigEndian.PutUint64(id[:], rapid.Uint64().Draw(t, "high"))
		binary.BigEndian.PutUint64(id[8:], rapid.Uint64().Draw(t, "low"))
		return id
	})
	genRun     = rapid.OneOf(rapid.Just(model.RunID{}), genID)
	genNode    = rapid.Map(genRun, func(id model.RunID) model.NodeID { return model.NodeID(id) })
	genPayload = rapid.Custom(func(t *rapid.T) model.Payload {
		return model.Payload{Data: genBytes.Draw(t, "data"), Encoding: genText.Draw(t, "encoding")}
	})
	genAddress = rapid.OneOf(rapid.Just(model.Address{}), rapid.Custom(func(t *rapid.T) model.Address {
		return model.Address{Tenant: genText.Draw(t, "tenant"), Type: genText.Draw(t, "type"), Key: genText.Draw(t, "key")}
	}))
	genLink = rapid.OneOf(rapid.Just(model.Link{}), rapid.Custom(func(t *rapid.T) model.Link {
		return model.Link{Address: genAddress.Draw(t, "address"), Run: genRun.Draw(t, "run"), ID: genText.Draw(t, "id")}
	}))
	genFailure = rapid.OneOf(rapid.Just((*model.Failure)(nil)), rapid.Just(&model.Failure{}), rapid.Custom(func(t *rapid.T) *model.Failure {
		return &model.Failure{
			Kind: genText.Draw(t, "kind"), Type: genText.Draw(t, "type"), Message: genText.Draw(t, "message"),
			Stack: genText.Draw(t, "stack"), Permanent: rapid.Bool().Draw(t, "permanent"),
		}
	}))
	genStatus = rapid.Map(rapid.Byte(), func(b byte) model.Status { return model.Status(b) })
	genPolicy = rapid.Map(rapid.Byte(), func(b byte) model.ParentClosePolicy { return model.ParentClosePolicy(b) })
	genReason = rapid.Custom(func(t *rapid.T) model.Reason {
		return model.Reason{
			Code: model.ReasonCode(genText.Draw(t, "code")), Name: genText.Draw(t, "name"), Until: genTime.Draw(t, "until"),
			Attempt: int(genInt.Draw(t, "attempt")), Detail: genText.Draw(t, "detail"),
		}
	})
	genOutcome = rapid.Custom(func(t *rapid.T) model.Outcome {
		return model.Outcome{
			Status: genStatus.Draw(t, "status"), Output: genPayload.Draw(t, "output"), Failure: genFailure.Draw(t, "failure"),
			At: genTime.Draw(t, "at"), Seen: genInt.Draw(t, "seen"), Next: genRun.Draw(t, "next"), Leaves: genTime.Draw(t, "leaves"),
		}
	})
	genAnswer = rapid.Custom(func(t *rapid.T) model.Answer {
		return model.Answer{
			Run: genRun.Draw(t, "run"), Status: genStatus.Draw(t, "status"), Existing: rapid.Bool().Draw(t, "existing"),
			Failure: genFailure.Draw(t, "failure"), Output: genPayload.Draw(t, "output"), Requeue: genInt.Draw(t, "requeue"),
		}
	})
)

var genLabels = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.Label {
	return model.Label{Name: genText.Draw(t, "name"), Value: genText.Draw(t, "value")}
}), 0, 3)

var (
	genTexts = rapid.SliceOfN(genText, 0, 3)
	genSpan  = rapid.Map(genInt, func(n int64) time.Duration { return time.Duration(n) })
	genSpec  = rapid.Custom(func(t *rapid.T) model.TaskSpec {
		return model.TaskSpec{
			Kind: genText.Draw(t, "kind"), Queue: genText.Draw(t, "queue"), Priority: int(genInt.Draw(t, "priority")), Fair: genText.Draw(t, "fair"),
			Weight: int(genInt.Draw(t, "weight")), ToStart: genSpan.Draw(t, "to start"), ToClose: genSpan.Draw(t, "to close"),
			Silence: genSpan.Draw(t, "silence"), Total: genSpan.Draw(t, "total"), Delay: genSpan.Draw(t, "delay"),
			Breaker: genText.Draw(t, "breaker"), Limits: genTexts.Draw(t, "limits"), Trace: genText.Draw(t, "trace"),
			Retry: genRetry.Draw(t, "retry"),
		}
	})
	genRetry = rapid.Custom(func(t *rapid.T) model.Retry {
		return model.Retry{
			MaxAttempts: int(genInt.Draw(t, "attempts")), Initial: genSpan.Draw(t, "initial"), Max: genSpan.Draw(t, "max"),
			Coefficient: genInt.Draw(t, "coefficient"), Jitter: genInt.Draw(t, "jitter"), Final: genTexts.Draw(t, "final"),
			Given: rapid.Bool().Draw(t, "given"),
		}
	})
	genTerms = rapid.OneOf(rapid.Just[*model.Terms](nil), rapid.Custom(func(t *rapid.T) *model.Terms {
		terms := &model.Terms{Delay: genSpan.Draw(t, "delay"), NotBefore: genTime.Draw(t, "not before"), Timeout: genSpan.Draw(t, "timeout")}
		if rapid.Bool().Draw(t, "has a policy") {
			r := genRetry.Draw(t, "retry")
			terms.Retry = &r
		}
		return terms
	}))
	genFailed = rapid.Custom(func(t *rapid.T) model.FailedAttempt {
		a := model.FailedAttempt{Attempt: int(genInt.Draw(t, "attempt")), At: genTime.Draw(t, "at"), Worker: genText.Draw(t, "worker")}
		if f := genFailure.Draw(t, "failure"); f != nil {
			a.Failure = *f
		}
		return a
	})
	genDead = rapid.Custom(func(t *rapid.T) model.DeadTask {
		return model.DeadTask{
			Address: genAddress.Draw(t, "address"), Spec: genSpec.Draw(t, "spec"), Input: genPayload.Draw(t, "input"),
			Scheduled: genTime.Draw(t, "scheduled"), At: genTime.Draw(t, "at"), Attempts: int(genInt.Draw(t, "attempts")),
			Failed: rapid.SliceOfN(genFailed, 0, 3).Draw(t, "failed"), LeftOut: int(genInt.Draw(t, "left out")),
			Failure: genFailure.Draw(t, "failure"), Fingerprint: genText.Draw(t, "fingerprint"),
			Requeued: model.Requeue{At: genTime.Draw(t, "requeued"), Address: genAddress.Draw(t, "as"), Run: genRun.Draw(t, "run"), Input: genBytes.Draw(t, "requeued with")},
		}
	})
)

// genBody generates an event without the fields that are columns.
var genBody = rapid.Custom(func(t *rapid.T) model.Event {
	return model.Event{
		ID: genText.Draw(t, "id"), Name: genText.Draw(t, "name"), Attempt: int(genInt.Draw(t, "attempt")),
		Input: genPayload.Draw(t, "input"), Output: genPayload.Draw(t, "output"), Failure: genFailure.Draw(t, "failure"),
		Due: genTime.Draw(t, "due"), Ref: genInt.Draw(t, "ref"), Target: genAddress.Draw(t, "target"), Run: genRun.Draw(t, "run"),
		Status: genStatus.Draw(t, "status"), Watcher: genLink.Draw(t, "watcher").Pointer(), RequestID: genText.Draw(t, "request"),
		Policy: genPolicy.Draw(t, "policy"), Position: genText.Draw(t, "position"), Detached: rapid.Bool().Draw(t, "detached"), Seen: rapid.Bool().Draw(t, "seen"),
	}
})

var genKind = rapid.Map(rapid.IntRange(int(model.EventStarted), int(model.LastEventKind)), func(n int) model.EventKind { return model.EventKind(n) }).Filter(model.EventKind.Known)

var (
	genSeeds = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) model.Seed {
		return model.Seed{Until: genInt.Draw(t, "until"), Run: genRun.Draw(t, "run")}
	}), 0, 2)
	genSource = rapid.OneOf(rapid.Just(model.Source{}), rapid.Custom(func(t *rapid.T) model.Source {
		return model.Source{Address: genAddress.Draw(t, "address"), Run: genRun.Draw(t, "run"), Position: genInt.Draw(t, "position")}
	}))
	genPast = rapid.OneOf(rapid.Just((*model.Past)(nil)), rapid.Just(&model.Past{}), rapid.Custom(func(t *rapid.T) *model.Past {
		p := &model.Past{
			Began: genTime.Draw(t, "began"), Seeds: genSeeds.Draw(t, "seeds"), Identity: genRun.Draw(t, "identity"),
			Source: genSource.Draw(t, "source"), Origin: genBytes.Draw(t, "origin"), Next: genInt.Draw(t, "next"),
			Status: genStatus.Draw(t, "status"), Output: genPayload.Draw(t, "output"), Failure: genFailure.Draw(t, "failure"), At: genTime.Draw(t, "at"),
			Earlier: rapid.SliceOfN(genRun, 0, 2).Draw(t, "earlier"), Begins: genTime.Draw(t, "begins"),
		}
		for _, e := range rapid.SliceOfN(genBody, 0, 3).Draw(t, "events") {
			p.Events = append(p.Events, model.PastEvent{Kind: genKind.Draw(t, "kind"), At: genTime.Draw(t, "at"), Event: e})
		}
		return p
	}))
)

var genMessage = rapid.Custom(func(t *rapid.T) model.Message {
	return model.Message{
		Kind: genMessageKind.Draw(t, "kind"),
		To:   genAddress.Draw(t, "to"), ToRun: genRun.Draw(t, "to_run"), From: genLink.Draw(t, "from"), ID: genText.Draw(t, "id"),
		Name: genText.Draw(t, "name"), Input: genPayload.Draw(t, "input"), Failure: genFailure.Draw(t, "failure"),
		Status: genStatus.Draw(t, "status"), RequestID: genText.Draw(t, "request"),
		Reuse: model.ReusePolicy(rapid.Byte().Draw(t, "reuse")), Policy: genPolicy.Draw(t, "policy"),
		With: rapid.SliceOfN(genBody, 0, 3).Draw(t, "with"), Node: genNode.Draw(t, "node"),
		Past: genPast.Draw(t, "past"), Runs: rapid.SliceOfN(genRun, 0, 2).Draw(t, "runs"), Labels: genLabels.Draw(t, "labels"),
		Keep: rapid.Bool().Draw(t, "keep"), DeadTask: genDeadTaskOrder.Draw(t, "dead task"), Fresh: genRun.Draw(t, "fresh"), Trace: genText.Draw(t, "trace"),
		Write: genWrite.Draw(t, "write"), Terms: genTerms.Draw(t, "terms"),
	}
})

var genMessageKind = rapid.Map(rapid.IntRange(int(model.MessageStart), int(model.LastMessageKind)), func(n int) model.MessageKind { return model.MessageKind(n) }).Filter(model.MessageKind.Known)

var genWrite = rapid.OneOf(rapid.Just[*model.TaskWrite](nil), rapid.Custom(func(t *rapid.T) *model.TaskWrite {
	w := &model.TaskWrite{
		Ref:   model.ClaimRef{TaskRef: model.TaskRef{Address: genAddress.Draw(t, "address"), Run: genRun.Draw(t, "run"), ID: genText.Draw(t, "task")}, Claim: genInt.Draw(t, "claim")},
		First: genInt.Draw(t, "first"),
		By:    genText.Draw(t, "by"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "items") {
		w.Items = append(w.Items, model.TaskItem{
			Kind: model.ItemKind(rapid.Uint8Range(uint8(model.ItemSet), uint8(model.ItemError)).Draw(t, "kind")), Name: genText.Draw(t, "name"),
			Value: genPayload.Draw(t, "value"), Level: rapid.Int16().Draw(t, "level"), Text: genText.Draw(t, "text"), At: genTime.Draw(t, "at"),
		})
	}
	return w
}))

var genDeadTaskOrder = rapid.OneOf(rapid.Just[*model.DeadTaskOrder](nil), rapid.Custom(func(t *rapid.T) *model.DeadTaskOrder {
	l := &model.DeadTaskOrder{
		Do:    model.DeadTaskVerb(rapid.IntRange(int(model.DeadTaskRequeue), int(model.DeadTaskPurge)).Draw(t, "do")),
		Ref:   model.TaskRef{Address: genAddress.Draw(t, "address"), Run: genRun.Draw(t, "run"), ID: genText.Draw(t, "task")},
		Count: genInt.Draw(t, "count"), Run: genRun.Draw(t, "as"), Damaged: rapid.Bool().Draw(t, "damaged"),
	}
	if rapid.Bool().Draw(t, "edited") {
		p := genPayload.Draw(t, "input")
		l.Input = &p
	}
	return l
}))

var genStart = rapid.Custom(func(t *rapid.T) model.Start {
	s := model.Start{
		Address: genAddress.Draw(t, "address"), Run: genRun.Draw(t, "run"), At: genTime.Draw(t, "at"), Input: genPayload.Draw(t, "input"),
		RequestID: genText.Draw(t, "request"), Parent: genLink.Draw(t, "parent"), OnParentClose: genPolicy.Draw(t, "policy"),
		First: genRun.Draw(t, "first"), Previous: genRun.Draw(t, "previous"), Origin: genBytes.Draw(t, "origin"), Labels: genLabels.Draw(t, "labels"),
		Began: genTime.Draw(t, "began"), Seeds: genSeeds.Draw(t, "seeds"), Identity: genRun.Draw(t, "identity"), Source: genSource.Draw(t, "source"),
		Replaced: genRun.Draw(t, "replaced"), Earlier: rapid.SliceOfN(genRun, 0, 2).Draw(t, "earlier"), Trace: genText.Draw(t, "trace"),
		Begins: genTime.Draw(t, "begins"), Expires: genTime.Draw(t, "expires"), Terms: genTerms.Draw(t, "terms"), Attempt: int(genInt.Draw(t, "attempt")),
		Cause: genFailure.Draw(t, "cause"),
	}
	for i, e := range rapid.SliceOfN(genBody, 0, 3).Draw(t, "carried") {
		e.Seq, e.At, e.Kind = int64(i+1), genTime.Draw(t, "at"), genKind.Draw(t, "kind")
		s.Carried = append(s.Carried, e)
	}
	return s
})

// A draw from a slice generator reads the name of its element generator, which that generator
// computes at its first use. Parallel tests would race for that name, so init computes the names
// before any test runs.
func init() {
	for _, g := range []interface{ String() string }{genText, genRun, genBody, genFailed} {
		_ = g.String()
	}
}
