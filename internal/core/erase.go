package core

import (
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Erase removes an entity whose row may be unreadable. Steps and clients that wait for an answer to
// calls in its mailbox, or for its lock, get the reason. The section that holds the lock gets no
// message, because only the row says which section that is. The entity refuses further calls of
// that section, as it does after an operator has taken the lock away.
//
// Erase returns the one-way calls, so that the caller can keep them: the engine has promised their
// senders not to lose them.
func Erase(mailbox []model.MailboxItem, why string) (d Decision, unheard []*model.Message) {
	d.Erased = true
	f := &model.Failure{Kind: fault.NotFound.String(), Message: why}
	for i := range mailbox {
		it := &mailbox[i]
		switch m := &it.Message; {
		case it.Damaged != nil: // unreadable, so its caller is unknown
		case m.Kind == model.MessageLock:
			d.Messages = append(d.Messages, answerMessage(m.From, model.Answer{Failure: f}))
		case m.OneWay:
			unheard = append(unheard, m)
		default:
			d.answerCall(m, model.Answer{Failure: f})
		}
	}
	return d, unheard
}
