package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// noteDropped notes the call that an operator drops. If the store refuses the batch of the drop,
// the lane applies the message again, and then only the message knows a call that was only in
// memory.
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

// tellDropped tells the caller of a dropped call that has no request id, because only the lane
// knows that caller. It does so after the commit, if the drop has one.
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
