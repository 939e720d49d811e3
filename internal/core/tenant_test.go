package core_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// A turn cannot reach an address of another tenant, whichever command names the address. Each
// refusal leaves the run as it was.
func TestTurnStaysInItsTenant(t *testing.T) {
	t.Parallel()
	run := model.Address{Tenant: "other", Type: "wf", Key: "w"}
	entity := entityAddress("a")
	entity.Tenant = "other"
	target := func(kind model.CommandKind) model.Command {
		return model.Command{Kind: kind, Event: model.Event{ID: "x", Target: run}}
	}
	send := func(kind model.MessageKind, to model.Address) model.Command {
		return model.Command{Kind: model.CommandSend, Event: model.Event{ID: "x"}, Message: &model.Message{Kind: kind, To: to, Name: "n"}}
	}

	for name, c := range map[string]model.Command{
		"starts a child":        target(model.CommandStartChild),
		"awaits an outcome":     target(model.CommandWatch),
		"locks":                 {Kind: model.CommandLock, Event: model.Event{ID: "x", Locks: []model.Address{entity}}},
		"calls":                 send(model.MessageCall, entity),
		"signals":               send(model.MessageSignal, run),
		"settles a promise":     send(model.MessageSettle, run),
		"cancels":               send(model.MessageCancel, run),
		"updates":               send(model.MessageUpdate, run),
		"starts and forgets":    send(model.MessageStart, run),
		"signals without one":   send(model.MessageSignal, model.Address{Type: "wf", Key: "w"}),
		"awaits without tenant": {Kind: model.CommandWatch, Event: model.Event{ID: "x", Target: model.Address{Type: "wf"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newLockPlay(t.Fatalf, 1, 0)
			p.start(p.runs[0])
			before := p.seat(p.runs[0]).x.Next

			err := p.do(p.runs[0], model.Turn{Commands: []model.Command{c}})
			if err == nil || !strings.Contains(err.Error(), "another tenant") || fault.KindOf(err) != fault.Invalid {
				t.Errorf("got %v, want a refusal that names another tenant", err)
			}
			if after := p.seat(p.runs[0]).x.Next; after != before {
				t.Errorf("the refused turn wrote %d events", after-before)
			}
		})
	}
}

// The core refuses a turn or an operation if it sends a message that names runs by their ids alone.
// The receiver of such a message would act on runs of any tenant in its shard.
func TestWorkersSendNoOrdersAboutRuns(t *testing.T) {
	t.Parallel()
	here := model.Address{Tenant: model.DefaultTenant, Type: "wf", Key: "w"}
	order := &model.DeadTaskOrder{Do: model.DeadTaskPurge, Ref: model.TaskRef{Address: model.Address{Tenant: "other", Type: "wf", Key: "w"}, Run: model.RunID{1}, ID: "s"}}
	for name, m := range map[string]model.Message{
		"an order about a dead task":  {Kind: model.MessageRequeue, To: here, DeadTask: order},
		"a signal with such an order": {Kind: model.MessageSignal, To: here, Name: "n", DeadTask: order},
		"a removal":                   {Kind: model.MessageDelete, To: here, Runs: []model.RunID{{1}}, Force: true},
		"a start with a past":         {Kind: model.MessageStart, To: here, Past: &model.Past{}},
		"a start with another event":  {Kind: model.MessageStart, To: here, With: []model.Event{{Kind: model.EventStepCompleted, ID: "s"}}},
		"the report of a claim":       {Kind: model.MessageReport, To: here, Report: &model.TaskReport{}},
		"what a claim writes":         {Kind: model.MessageWrite, To: here, Write: &model.TaskWrite{}},
		"the end of a child":          {Kind: model.MessageClosed, To: here, ID: "s", Status: model.Completed},
		"an answer":                   {Kind: model.MessageAnswer, To: here, ID: "s"},
		"a query":                     {Kind: model.MessageQuery, To: here, Name: "n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newLockPlay(t.Fatalf, 1, 0)
			p.start(p.runs[0])
			err := p.do(p.runs[0], model.Turn{Commands: []model.Command{{Kind: model.CommandSend, Event: model.Event{ID: "x"}, Message: &m}}})
			if err == nil || !strings.Contains(err.Error(), "which workers may not send") || fault.KindOf(err) != fault.Invalid {
				t.Errorf("got %v, want a refusal", err)
			}
		})
	}
}
