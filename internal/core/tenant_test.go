package core_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// A turn reaches nothing of another tenant, whichever command names the address. Each refusal
// leaves the run as it was.
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
