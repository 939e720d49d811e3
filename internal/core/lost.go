package core

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// A worker need not run in the process of the owner: it may be a remote worker, or a worker of
// another node. A call that kills such a worker would kill every worker that gets it, one after the
// other. The owner survives, so it can count: each call has the number of workers that have
// disappeared while they had it (model.Message.Lost). When the third worker has disappeared, the
// call is set aside, as after deaths of owners (see Suspect). The number is a part of the row of a
// stored call, so the next owner knows it. A call that is only in memory ends with its owner, and
// so does its number.
//
// A worker has all calls of a hand-over until it reports, so the owner does not know which of them
// was running. After the first loss, a worker gets each of these calls without others of the same
// entity. Most of these calls then end normally. After the second loss, a worker gets such a call
// only when no other suspect of the lane runs. So an innocent call next to a guilty one is not set
// aside.

// isolate makes sure that a worker gets the call without other calls, if a worker has disappeared
// with it before.
func (it *Item) isolate() {
	if lost := it.Message.Lost; lost > 0 {
		it.alone, it.wary = true, lost >= maxLost-1
	}
}

// Loss is a call, and how many workers have disappeared while they had it.
type Loss struct {
	Item  *Item
	Count int
}

// Lose takes calls back from a worker that has disappeared, like Return. It also returns the calls
// that the worker may have died of. The caller passes them to CountLosses, in the same batch or in
// a later one. Until then no worker gets a call that must be set aside.
func (n *Entity) Lose(items []*Item) (gone []*Item, losses []Loss) {
	held := slices.DeleteFunc(slices.Clone(items), func(it *Item) bool { return !it.made || !slices.Contains(n.mail, it) })
	gone = n.Return(items)
	for _, it := range held {
		if it.Once() {
			continue // no worker gets it again
		}
		m := *it.Message
		m.Lost++
		n.replaceMessage(it, &m)
		it.isolate()
		it.doomed = m.Lost >= maxLost
		n.suspects = n.suspects || it.isAccused()
		losses = append(losses, Loss{it, m.Lost})
	}
	return gone, losses
}

// CountLosses stores how many workers have disappeared with calls. It sets aside the calls that
// have lost too many: it answers them, and returns them with their failures. The lane may have read
// the entity again since Lose, because the store refused a commit. A worker may have got such a
// call again. The call is not set aside then, because this worker may complete it.
func (n *Entity) CountLosses(losses []Loss, now model.Time) (d Decision, aside []*Item, why []*model.Failure) {
	before := n.Row
	for _, l := range losses {
		it := n.Current(l.Item)
		if it == nil {
			continue // the call has ended, or an operator has dropped it
		}
		if m := *it.Message; m.Lost < l.Count {
			m.Lost = l.Count
			n.replaceMessage(it, &m)
		}
		m := it.Message

		if m.Lost >= maxLost && !it.made {
			f := fatalFailure(m)
			n.remove(&d, it)
			d.answerCall(m, model.Answer{Failure: f})
			d.KeepsRefused = true
			aside, why = append(aside, it), append(why, f)
			continue
		}

		it.doomed = false
		it.isolate()
		n.suspects = n.suspects || it.isAccused()
		if it.Seq != 0 {
			d.Taken = append(d.Taken, it.Seq)
			d.Mailbox = append(d.Mailbox, model.MailboxItem{Seq: it.Seq, At: it.At, Message: *m})
		}
	}

	n.grant(&d, now)
	n.change(&d, &before, now)
	return d, aside, why
}

// fatalFailure returns the failure of a call that is set aside because workers have disappeared.
func fatalFailure(m *model.Message) *model.Failure {
	return &model.Failure{
		Kind: fault.Internal.String(), Type: model.FailurePoison,
		Message: fmt.Sprintf("%d workers disappeared while they had %s of %s, the last of them while it had no other call of this key; the call is set aside as a dead letter",
			m.Lost, m.Name, m.To),
	}
}
