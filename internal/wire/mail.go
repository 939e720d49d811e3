package wire

import (
	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// DeadLetterList builds the message with messages that were refused. A refused message that cannot
// be decoded has no kind, and the list contains its stored bytes.
func DeadLetterList(letters []api.DeadLetter) *pb.DeadLetterList {
	out := &pb.DeadLetterList{}
	for i := range letters {
		l := &letters[i]
		out.Letters = append(out.Letters, &pb.DeadLetter{
			Id: Run(l.ID), Message: model.AppendMessage(nil, &l.Message), Reason: text(l.Reason), Unreadable: l.Unreadable,
		})
	}
	return out
}

// ReadDeadLetterList reads messages that were refused.
func ReadDeadLetterList(_ string, l *pb.DeadLetterList) ([]api.DeadLetter, error) {
	var out []api.DeadLetter
	for _, m := range l.GetLetters() {
		id, err := ReadRun(m.GetId())
		if err != nil {
			return nil, err
		}
		message, err := model.DecodeMessage(m.GetMessage())
		if err != nil && !m.GetUnreadable() {
			return nil, fault.New(fault.Invalid, "%w", err)
		}
		out = append(out, api.DeadLetter{ID: id, Message: message, Reason: m.GetReason(), Unreadable: m.GetUnreadable()})
	}
	return out, nil
}
