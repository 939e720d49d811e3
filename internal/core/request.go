package core

import (
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// MisuseOf returns a failure if the request id of a message was used for another request before. It
// returns nil when the message is the same request again. Without this failure, the client would
// get the answer to the first request and believe that this request was done.
func MisuseOf(m *model.Message, first *model.Use) *model.Failure {
	use := m.Use()
	if first.Same(use) {
		return nil
	}
	text := fmt.Sprintf("request id %q of %s was used for %s", model.BareRequestID(m.RequestID), m.To, first)
	if first.Kind == use.Kind && first.Name == use.Name && first.OneWay == use.OneWay {
		text += " with another input: this request needs another request id"
	} else {
		text += fmt.Sprintf(": %s needs another request id", use)
	}
	return refusedID(text)
}

// MisuseOfAnswered is MisuseOf for a request whose answer is remembered. It also compares the runs:
// a request to one run is not a repetition of a request that took effect on another run of the same
// key.
func MisuseOfAnswered(m *model.Message, remembered *model.Answer) *model.Failure {
	if f := MisuseOf(m, remembered.For); f != nil {
		return f
	}
	if remembered.For == nil || remembered.Failure != nil || remembered.Run.IsZero() || m.ToRun.IsZero() || remembered.Run == m.ToRun || !answerNamesRun(m) {
		return nil
	}
	return refusedID(fmt.Sprintf("request id %q of %s was used for %s to run %s: a request to run %s needs another request id",
		model.BareRequestID(m.RequestID), m.To, remembered.For, remembered.Run, m.ToRun))
}

// refusedID returns the failure of a message whose request id belongs to another request.
func refusedID(text string) *model.Failure {
	return &model.Failure{Kind: fault.Conflict.String(), Type: model.FailureMisused, Message: text}
}

// answerNamesRun reports whether the answer to a message names the run that the message was
// restricted to. The answer to an update may name another run, because a later run may give the
// answer. The answer to a message that begins a run names the new run instead.
func answerNamesRun(m *model.Message) bool {
	switch m.Kind {
	case model.MessageSignal, model.MessageSettle, model.MessageCancel, model.MessageTerminate, model.MessagePause, model.MessageResume:
		return true
	default:
		return false
	}
}

// misuse refuses a message whose request id belongs to another request.
func (d *Decision) misuse(m *model.Message, f *model.Failure) {
	d.Answer.Failure, d.Misused = f, true
	d.acknowledge(m)
}
