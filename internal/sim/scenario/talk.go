package scenario

import (
	"errors"
	"slices"

	"github.com/perdure/perdure/internal/model"
)

var errNoUpdate = errors.New("an answer to an update that is not open")

// ReplyTo returns the answer of the code to an update.
func ReplyTo(p model.Payload) model.Payload {
	return model.Payload{Data: append(slices.Clone(p.Data), '!')}
}

// openUpdate is an unanswered update, and the place of the program when it arrived.
type openUpdate struct {
	model.Event
	pc int
}

// Programs answer some updates late. A program answers such an update after it has moved on from
// the place where it received the update, but not at its end. A program starts some of these
// updates immediately. The next run must not start such an update again.

func isSlow(p model.Payload) bool { return SignalID(p)&3 == 3 }

// IsBegun reports whether the program starts an update immediately and answers it late.
func IsBegun(p model.Payload) bool { return SignalID(p)&7 == 7 }

// Answers reports whether the program answers an update now.
func (m *Machine) Answers(u *openUpdate) bool {
	return !isSlow(u.Input) || (m.End == nil && m.PC != u.pc)
}

// Close returns the end of the run, or nil if the run has not ended.
func (m *Machine) Close() *model.Close {
	if m.End == nil || m.End.Status != model.Continued {
		return m.End
	}
	end := *m.End
	for i := range m.Updates {
		if u := &m.Updates[i]; IsBegun(u.Input) {
			end.Begun = append(end.Begun, u.Seq)
		}
	}
	return &end
}

// recordAnswer records that an update was answered.
func (m *Machine) recordAnswer(e *model.Event) {
	before := len(m.Updates)
	m.Updates = slices.DeleteFunc(m.Updates, func(u openUpdate) bool { return u.Seq == e.Ref })
	if len(m.Updates) == before {
		m.Broken = errNoUpdate
	}
}

// Note returns the command of a block that sets state, marks a version, or notes something that the
// engine does not interpret.
func (b *Block) Note() model.Command {
	e := model.Event{Kind: model.EventStateSet, Name: b.Name, Output: model.Payload{Data: []byte{b.bit, byte(b.Took)}}}
	if b.version {
		e = model.Event{Kind: model.EventVersionMarked, Name: b.Name, Ref: 1}
	} else if b.remark {
		e = model.Event{Kind: model.EventNoted, Name: b.Name, Input: model.Payload{Data: []byte{b.bit}}, Ref: int64(b.Took)}
	}
	return model.Command{Kind: model.CommandRecord, Event: e}
}
