package core

import (
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Erase removes an entity whose row may be unreadable. Those who wait for answers to calls in its
// mailbox, or for its lock, hear why. The section that holds the lock does not hear of it, because
// only the row knows which one it is: the entity refuses its further calls, as it does after an
// operator has taken the lock.
//
// Calls that nobody waits for are returned: their senders know that they are not lost.
func Erase(mailbox []model.MailboxItem, why string) (d Decision, unheard []*model.Message) {
	d.Erased = true
	f := &model.Failure{Kind: fault.NotFound.String(), Message: why}
	for i := range mailbox {
		it := &mailbox[i]
		switch m := &it.Message; {
		case it.Damaged != nil: // nothing is known of who waits
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
