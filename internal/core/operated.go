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

	if m.To.Tenant != n.Row.Address.Tenant {
		return what + ", which belongs to another tenant"
	}
	if with := Overreach(m, SenderEntity); with != "" {
		return what + " " + with
	}
	return ""
}
