package core

import (
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// confine turns the result of a call into a failure if the call sends a message that it may not
// send. The core decides what the code of entities may do. It does not trust the worker's report.
// The calls of one hand-over change one state, one after the other, and the core cannot compute the
// state without the faulty calls. So the other calls of the hand-over fail as well, and the state
// does not change.
func (n *Entity) confine(r *model.Operated) {
	why := ""
	for i := range r.Results {
		for j := range r.Results[i].Messages {
			if why == "" {
				why = n.improper(&r.Results[i].Messages[j])
			}
		}
	}

	if why == "" {
		return
	}

	for i := range r.Results {
		if r.Results[i].Failure == nil {
			r.Results[i] = model.OperationResult{Failure: &model.Failure{Kind: fault.Invalid.String(), Message: why}}
		}
	}

	r.Changed = false
}

// improper returns what is wrong with a message that a call sends; empty when the call may send it.
// An operation may not wait for others, hold a lock, or send messages in the name of a run.
func (n *Entity) improper(m *model.Message) string {
	what := fmt.Sprintf("an operation of %s sends a %s to %s", n.Row.Address, m.Kind, m.To)
	switch m.Kind {
	case model.MessageStart, model.MessageSignal, model.MessageSettle, model.MessageCancel:
	case model.MessageCall:
		if !m.OneWay {
			return what + " and would wait for the reply: it may only send"
		}
	default:
		return what + ", which workers may not send"
	}

	switch {
	case m.To.Tenant != n.Row.Address.Tenant:
		return what + ", which belongs to another tenant"
	case m.From != (model.Link{}) || m.Section != "":
		return what + " in the name of a run"
	}

	if with := Overreach(m); with != "" {
		return what + " " + with
	}
	return ""
}

// Overreach returns which part of a message the code of users may not send; empty when it may send
// the message. A past, an order about a dead task, the report of a claim and the runs of a removal
// name runs by their ids alone. With them, the sender could make the receiver act on runs of other
// tenants. A batch job acts with rights that its sender may not have.
func Overreach(m *model.Message) string {
	switch {
	case m.Kind == model.MessageStart && m.To.Type == model.BatchType:
		return "of a batch job"
	case m.Past != nil:
		return "with the past of a run"
	case m.DeadTask != nil || m.Report != nil || m.Write != nil:
		return "with an order about a task"
	case len(m.Runs) > 0 || m.Force || m.Parent != nil:
		return "with an order about runs"
	}
	for i := range m.With {
		// The stored form of a message does not have the kinds of these events, because only
		// signals can come with a start.
		if k := m.With[i].Kind; k != 0 && k != model.EventSignalReceived {
			return fmt.Sprintf("with a %s", k)
		}
	}
	return ""
}
