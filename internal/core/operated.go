package core

import (
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// confine has calls that send what they may not fail: what code of entities may do is for the
// engine to say, whoever reports it. The state that they have left together is not known without
// them, so all that succeeded fail with them, and nothing changes.
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

// improper says what is wrong with a message that a call sends; nothing when it may: an operation
// never waits for anybody, holds no lock, and speaks for nobody else.
func (n *Entity) improper(m *model.Message) string {
	what := fmt.Sprintf("an operation of %s sends a %s to %s", n.Row.Address, m.Kind, m.To)
	switch m.Kind {
	case model.MessageStart, model.MessageSignal, model.MessageSettle, model.MessageCancel:
	case model.MessageCall:
		if !m.OneWay {
			return what + " and would wait for the reply: it may only send"
		}
	default:
		return what + ", which is not for a worker to send"
	}

	switch {
	case m.To.Tenant != n.Row.Address.Tenant:
		return what + ", which belongs to another tenant"
	case m.From != (model.Link{}) || m.Section != "":
		return what + " in the name of a run"
	}

	return ""
}
