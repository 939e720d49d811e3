package oracle

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// A workflow gets exactly one answer to every message (a signal or an update) that it sends to
// another execution. This holds if the receiver answers, passes the message on to its next run,
// ends first, is replaced by a reset, or does not exist. The answer to a signal is an
// acknowledgement. The answer to an update is the result of its handler.

// sending is a message that a step of a run has sent.
type sending struct {
	message model.Message
	answer  *model.Message
}

// recordSent records a message between executions that needs an answer or is an answer.
func (l *ledger) recordSent(m *model.Message) {
	l.note(m)
	if m.Kind == model.MessageAnswer {
		l.answerCounts(m)
	}
}

// answerCounts checks that the answer to a call of an entity agrees with the deeds that the ledger
// has applied.
func (l *ledger) answerCounts(m *model.Message) {
	if x := l.sends[model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}]; x.message.Kind == model.MessageCall {
		d, _ := scenario.DeedOf(x.message.Input)
		l.answeredCall(d.ID, &model.Answer{Output: m.Input, Failure: m.Failure})
	}
}

// note records the sender of a message, or the receiver of an answer.
func (l *ledger) note(m *model.Message) {
	if m.To.IsEntity() {
		l.sentToEntity(m)
	}

	switch m.Kind { //nolint:exhaustive // other kinds are answered in another way, or not at all
	case model.MessageRelease:
		l.released[lockOf{m.From, m.To}] = true
	case model.MessageSignal, model.MessageUpdate, model.MessageCall:
		if m.From.ID == "" {
			return // an entity made the call, and entities do not wait for answers
		}
		if l.sends[m.From] != nil {
			l.Fail("I16: step %s of %s sends a second time", m.From.ID, scenario.Short(m.From.Run))
		}
		l.sends[m.From] = &sending{message: *m}
		l.sent0 = append(l.sent0, m.From)
	case model.MessageAnswer:
		from := model.Link{Address: m.To, Run: m.ToRun, ID: m.ID}
		x := l.sends[from]
		switch {
		case x == nil:
			l.Fail("I16: an answer to step %s of %s, which has sent nothing", m.ID, scenario.Short(m.ToRun))
		case x.answer != nil:
			l.Fail("I16: a second answer to step %s of %s", m.ID, scenario.Short(m.ToRun))
		case x.message.Kind == model.MessageUpdate && m.Failure == nil && !m.Input.Equal(scenario.ReplyTo(x.message.Input)):
			l.Fail("I16: step %s of %s is answered %x", m.ID, scenario.Short(m.ToRun), m.Input.Data)
		}
		c := *m
		x.answer = &c
		if x.message.Kind == model.MessageUpdate {
			if m.Failure == nil {
				l.s.Did(scenario.OpCallAnswered)
			} else {
				l.s.Did(scenario.OpCallRefused)
			}
		}
	}
}

// answeredStep checks the answer that a step gets.
func (l *ledger) answeredStep(r *Run, e *model.Event) {
	x := l.sends[model.Link{Address: r.Address.Name, Run: r.ID, ID: e.ID}]
	if x == nil || x.answer == nil || !x.answer.Input.Equal(e.Output) || (x.answer.Failure == nil) != (e.Failure == nil) {
		l.Fail("I16: %s of %s gets an answer that the callee never gave", e.ID, r.ID)
	}
}

// CheckSends checks that every message was answered.
func (s *Oracle) CheckSends() {
	for _, from := range s.Ledger.sent0 {
		if x := s.Ledger.sends[from]; x.answer == nil {
			s.Fail("I16: the %s that step %s of %s sent to %s was never answered", x.message.Kind, from.ID, scenario.Short(from.Run), x.message.To)
		}
	}
}
