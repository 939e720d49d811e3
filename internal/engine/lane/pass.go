package lane

import (
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// A message whose receiver belongs to this lane takes effect in the batch that sends it. It needs
// no row, no cursor and no commit of its own. The lane passes a message on only if its receiver is
// in memory and can take it now, and if no earlier message between the two shards is still on its
// way. The lane writes any other message into the batch, and the receiver gets the message after
// the commit.
//
// A passed message is not durable before its batch is. So nothing that the message allows may leave
// the lane before that commit. Operations may run ahead of it (see ahead.go). Other calls wait for
// the batch that sends them (core.Arrival). Calls that may run because a lock was released wait for
// the batch with the release (pending.freed). If the store refuses the batch, the lane drops the
// state of sender and receiver. It then applies the input of the sender again and writes the
// messages, so that each receiver has a batch of its own (see careful.go).

// outgoing is a message that a decision sends, until the lane knows whether it must be written.
type outgoing struct {
	from    *shard
	message model.Message
}

// send queues a message that a decision sends.
func (b *building) send(from *shard, m *model.Message) {
	b.outgoing = append(b.outgoing, outgoing{from, *m})
}

// passOn delivers the messages that the last input has sent, and the messages that follow from
// them, in order. It writes each message that it cannot deliver now.
func (l *Lane) passOn(now model.Time) {
	if l.passing {
		// The lane applies this input because of another input. The outer call of passOn delivers
		// the messages of both.
		return
	}
	l.passing = true
	defer func() { l.passing = false }()

	b := l.open
	for i := 0; i < len(b.outgoing); i++ {
		e, in := l.receiver(&b.outgoing[i])
		if in == nil {
			l.writeMessage(b, &b.outgoing[i])
			continue
		}
		b.batch.Passed = append(b.batch.Passed, store.PassedMessage{
			From: b.outgoing[i].from.id, Message: in.origin.message, Behind: len(b.batch.Messages),
		})
		b.bytes -= in.origin.message.Size()
		in.since = now
		l.applyWatched(now, e, in)
		if in.is(model.MessageAnswer) || in.is(model.MessageGrant) {
			l.previewFor(now, e)
		}
	}

	clear(b.outgoing)
	b.outgoing = b.outgoing[:0]
}

// writeMessage adds a row for a message to the batch. The message gets its number when the lane
// seals the batch.
func (l *Lane) writeMessage(b *building, t *outgoing) {
	to := l.cfg.Layout.Shard(t.message.To)
	t.from.underway[to]++
	b.batch.Messages = append(b.batch.Messages, store.MessageRow{To: to, From: t.from.id, Message: t.message})
}

// writeLetters writes the messages that the lane has not passed on.
func (l *Lane) writeLetters(b *building) {
	for i := range b.outgoing {
		l.writeMessage(b, &b.outgoing[i])
	}
	clear(b.outgoing)
	b.outgoing = b.outgoing[:0]
}

// receiver returns the entry of the receiving address and the input to apply there, if the message
// takes effect now. The input is nil if the message must be written.
func (l *Lane) receiver(t *outgoing) (*entry, *messageInput) {
	m := &t.message
	e := l.entries[m.To]
	if e == nil || !e.known || e.quarantine.why != nil || len(e.backlog.inputs) > 0 || !mayPass(m) || !l.isClear(t.from, e.shard) {
		return nil, nil
	}

	passed := &struct {
		messageInput
		message model.Message
	}{message: *m}
	passed.address, passed.origin = &passed.message.To, source{message: &passed.message, passed: true}
	if !l.ready(e, &passed.messageInput) {
		return nil, nil
	}
	return e, &passed.messageInput
}

// isClear reports whether no message from one shard to another is on its way. A later message must
// not overtake such a message.
func (l *Lane) isClear(from, to *shard) bool {
	return !to.draining && from.underway[to.id] == 0 && l.pair(to.id, from.id).applied == from.sent[to.id]
}

// mayPass reports whether a message of this kind may take effect in the batch that sends it. A
// message with a request id may not, because the lane must first look up the id in the store. Kinds
// that are missing here are rare, or need a read.
func mayPass(m *model.Message) bool {
	if m.RequestID != "" {
		return false
	}
	switch m.Kind {
	case model.MessageCall, model.MessageLock, model.MessageRelease:
		return m.To.IsEntity()
	case model.MessageGrant, model.MessageAnswer, model.MessageClosed, model.MessageSignal, model.MessageSettle, model.MessageUpdate, model.MessageWatch:
		return !m.To.IsEntity()
	default:
		return false
	}
}

// arrive notes that the messages of a batch are no longer on their way into the store.
func (l *Lane) arrive(b *building) {
	for i := range b.batch.Messages {
		row := &b.batch.Messages[i]
		l.shards[row.From].underway[row.To]--
	}
}
