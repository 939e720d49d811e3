package core_test

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/model"
)

// The code of an entity may not wait, lock entities, or send messages in the name of a run. The
// core refuses such messages, whatever a worker reports (L12).
func TestEntityMaySendAndNothingElse(t *testing.T) {
	t.Parallel()
	here, abroad := address("x"), model.Address{Tenant: "another", Type: "entity:counter", Key: "k"}
	other := model.Address{Tenant: here.Tenant, Type: "entity:counter", Key: "k"}
	for what, c := range map[string]struct {
		m    model.Message
		want string // empty if the entity may send the message
	}{
		"start":           {model.Message{Kind: model.MessageStart, To: here}, ""},
		"signal":          {model.Message{Kind: model.MessageSignal, To: here}, ""},
		"settle":          {model.Message{Kind: model.MessageSettle, To: here}, ""},
		"cancel":          {model.Message{Kind: model.MessageCancel, To: here}, ""},
		"one-way call":    {model.Message{Kind: model.MessageCall, To: other, OneWay: true}, ""},
		"call":            {model.Message{Kind: model.MessageCall, To: other}, "would wait"},
		"lock":            {model.Message{Kind: model.MessageLock, To: other, From: link(1, "s")}, "workers may not send"},
		"grant":           {model.Message{Kind: model.MessageGrant, To: here}, "workers may not send"},
		"release":         {model.Message{Kind: model.MessageRelease, To: other, From: link(1, "s")}, "workers may not send"},
		"unlock":          {model.Message{Kind: model.MessageUnlock, To: other}, "workers may not send"},
		"update":          {model.Message{Kind: model.MessageUpdate, To: here}, "workers may not send"},
		"answer":          {model.Message{Kind: model.MessageAnswer, To: here}, "workers may not send"},
		"abroad":          {model.Message{Kind: model.MessageCall, To: abroad, OneWay: true}, "another tenant"},
		"a batch job":     {model.Message{Kind: model.MessageStart, To: model.Address{Tenant: here.Tenant, Type: model.BatchType, Key: "b"}}, "of a batch job"},
		"with a past":     {model.Message{Kind: model.MessageStart, To: here, Past: &model.Past{}}, "with the past of a run"},
		"with an order":   {model.Message{Kind: model.MessageSignal, To: here, DeadTask: &model.DeadTaskOrder{}}, "with an order about a task"},
		"with a run id":   {model.Message{Kind: model.MessageStart, To: here, Fresh: runID(9)}, "with the id of the run"},
		"with a bad key":  {model.Message{Kind: model.MessageSignal, To: address("a\x00")}, "a control character"},
		"with bad labels": {model.Message{Kind: model.MessageStart, To: here, Labels: make([]model.Label, model.MaxLabels+1)}, "with 33 labels"},
		"kept":            {model.Message{Kind: model.MessageSignal, To: here, Keep: true}, ""},
		"of a run":        {model.Message{Kind: model.MessageSignal, To: here, From: link(1, "s")}, "in the name of a run"},
		"within a lock":   {model.Message{Kind: model.MessageCall, To: other, OneWay: true, Section: "s"}, "in the name of a run"},
		"child of nobody": {model.Message{Kind: model.MessageStart, To: here, From: link(1, "s")}, "in the name of a run"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.call("one")
			d.call("two")
			d.call("three")
			items := d.h.n.Next(10, 1<<20)
			r := &model.Operated{Changed: true, Exists: true, State: value("changed"), Results: []model.OperationResult{
				{Output: value("1")}, {Messages: []model.Message{c.m}}, {Failure: &model.Failure{Message: "its own"}},
			}}
			got, ok := d.h.n.Apply(items, r, 0, d.now)
			if !ok {
				t.Fatal("the report does not count")
			}

			var told, sent []string
			for _, m := range got.Messages {
				if m.Kind == model.MessageAnswer && m.To == address("w") {
					text := "done"
					if m.Failure != nil {
						text = m.Failure.Message
					}
					told = append(told, text)
				} else {
					sent = append(sent, m.Kind.String())
				}
			}

			if len(told) != 3 || told[2] != "its own" {
				t.Fatalf("callers hear %q", told)
			}

			if c.want == "" {
				if len(sent) != 1 || got.Entity == nil || told[0] != "done" || told[1] != "done" {
					t.Errorf("it sends %q, callers hear %q", sent, told)
				}
				return
			}

			if len(sent) != 0 || got.Entity != nil || !strings.Contains(told[0], c.want) || !strings.Contains(told[1], c.want) {
				t.Errorf("it sends %q, changes %+v, callers hear %q", sent, got.Entity, told)
			}
		})
	}
}
