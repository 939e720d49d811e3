package lane

import (
	"fmt"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// noteDropped notes the call that an operator drops. If the store refuses the batch of the drop,
// the lane applies the message again. By then, a call that existed only in memory exists only in
// this note.
func (in *messageInput) noteDropped(e *entry, m *model.Message) {
	if m.Kind != model.MessageMailbox || m.Name != model.MailboxDrop {
		return
	}
	n := e.actor.entity
	switch it := n.Find(m.ID); {
	case it != nil:
		in.drops = it
	case in.drops != nil && in.drops.Seq == 0:
		n.Keep([]*core.Item{in.drops})
	}
}

// tellDropped answers the caller of a dropped call without a request id, because only the lane
// knows that caller. If the drop needs a commit, tellDropped answers after it.
func (l *Lane) tellDropped(e *entry, it *core.Item) {
	if it.Tag == nil || it.Message.RequestID != "" {
		return
	}

	a := model.Answer{Failure: core.DroppedCall(it.Message)}
	answer := Answer{Token: it.Tag, Answer: a, Err: core.RefusalOf(a)}
	if b := l.batchOf(e); b != nil {
		b.effects = append(b.effects, effect{kind: effAnswer, entry: e, awaits: true, answer: answer})
		return
	}
	l.reply(e.address, true, answer)
}

// refuseBusy refuses to skip or drop a signal while the code of the run may be about to take it. A
// worker that got new events, or that runs a step, may already have used the signal and not yet
// have reported it.
func (e *entry) refuseBusy(m *model.Message) (d core.Decision, busy bool) {
	if m.Kind != model.MessageMailbox || e.x == nil {
		return d, false
	}
	there := false
	switch m.Name {
	case model.MailboxSkip, model.MailboxDrop:
		there = e.x.FindSignal(m.ID) != nil
	case model.MailboxDropNamed:
		there = e.x.HasSignal(m.ID)
	}
	if e.hold.free() || !e.hold.busy && e.hold.told >= e.x.Next-1 || !there {
		return d, false
	}

	d.Answer = model.Answer{Run: e.run(), Status: e.x.Outcome.Status, Failure: &model.Failure{
		Kind: fault.Conflict.String(), Type: model.FailureBusy,
		Message: fmt.Sprintf("the code of %s continues, or runs a step, and may be about to take signal %s: "+
			"try again when it waits, or pause it and wait for the end of the step", m.To, m.ID),
	}}

	return d, true
}
