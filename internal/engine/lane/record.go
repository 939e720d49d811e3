package lane

import (
	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/model"
)

// record puts a decision into the open batch, together with the effects that follow the commit. If
// the decision writes nothing and depends only on committed state, the lane runs the effects
// immediately. record returns the batch that has the input, or nil if the input is done.
func (l *Lane) record(e *entry, in input, d *core.Decision) *building {
	from := in.source()
	var b *building
	if d.HasWrites() || from != nil && (from.remote() || from.passed && d.Answer.Failure != nil) {
		b = l.open
		l.touch(b, e)
		l.write(b, e, in, d)
	} else {
		b = l.batchOf(e)
	}

	if l.cfg.Watched {
		l.noteFacts(b, e, in, d)
	}
	if from != nil && from.token != nil {
		l.recordAnswer(b, e, in, d)
	}

	if b == nil {
		l.skip(e, in)
		return nil
	}
	if b == l.open {
		e.pending.served++
	}
	if from == nil || !from.passed { // the input of the sender produces a passed message again
		b.inputs = append(b.inputs, in)
	}
	return b
}

// recordAnswer answers the caller of a message: after the commit of the batch, or now if there is
// no batch.
func (l *Lane) recordAnswer(b *building, e *entry, in input, d *core.Decision) {
	from := in.source()
	m, _ := in.(*messageInput)
	a := Answer{Token: from.token, Answer: d.Answer, Err: d.Refusal()}

	switch {
	case d.Pending && b == nil:
		l.expect(e, from)
	case d.Pending:
		b.effects = append(b.effects, effect{kind: effExpect, entry: e, message: m})
	case from.awaits && d.Start != nil:
		b.effects = append(b.effects, effect{kind: effAwait, entry: e, run: d.Start.Run, answer: a, step: m.acknowledgedID(d)})
	case b == nil:
		l.reply(e.address, from.awaits, a)
	default:
		f := effect{kind: effAnswer, entry: e, awaits: from.awaits, answer: a}
		if m != nil {
			f.step = m.acknowledgedID(d)
		}
		b.effects = append(b.effects, f)
	}
}

// finishInput finishes an input.
func (l *Lane) finishInput(in input) {
	l.budget.unhold(in)
	l.room.tried = false
	l.retention.finish(in)
	if from := in.source(); from != nil && from.pair != nil {
		l.mail.release(from.pair)
		l.MailWaits()
	}
}

// answer gives an answer to a caller, if there is one.
func (l *Lane) answer(a Answer) { l.out.answer(a) }

// reply answers a message. If the caller waits for the end of a run or for an answer of the code,
// the wait ends, because the caller gets this answer instead.
func (l *Lane) reply(to model.Address, awaits bool, a Answer) {
	if awaits {
		l.forgetWaiter(to, a.Token)
	}
	l.answer(a)
}

// skip finishes an input that has nothing to do.
func (l *Lane) skip(e *entry, in input) {
	l.finishInput(in)
	l.maybeDrop(e)
}
