package core

import (
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// A call may take its process with it: os.Exit, memory, a signal. Calls that are stored survive that, and the next owner would make them again, and die as well. So the calls that
// an owner finds after a crash are suspects: before it makes them, it stores that it does. The first time they are noted and made together, as other calls are; most are
// innocent. Those that were noted by a process that has died too are noted and made one at a time. The third time a call is not made: it is set aside.

// maxDeaths is how many processes a call takes with it before it is set aside. The first is presumed: its owner died while the call was in the mailbox.
const maxDeaths = 3

// Suspect has the stored calls noted before they are made, because the last owner of the entity has died; but those that this node has noted already.
func (n *Entity) Suspect(self model.NodeID) {
	for _, it := range n.mail {
		m := it.Message
		if it.Seq == 0 || it.lost || m.Kind != model.MessageCall {
			continue
		}
		noted := m.Deaths > 0 && m.By == self
		it.suspect = !noted
		it.alone = m.Deaths > 1 || m.Deaths == 1 && !noted
	}
}

// Suspects are the next calls that are to be noted before they are made: one that has been noted by a process that died, or at most so many others. There are none while
// calls before them are being made or noted.
func (n *Entity) Suspects(most int) (items []*Item, alone bool) {
	if n.busy > 0 && !n.Row.Address.Stateless() {
		return nil, false
	}
	barred := false // by something that comes first, except for views, which wait for nothing
	for _, it := range n.mail {
		switch {
		case it.made || it.View && !it.suspect || it.held || it.lost || !it.View && LockedOut(&n.Row, it.Message):
			continue
		case it.noting:
			return nil, false
		case it.Message.Kind == model.MessageLock || !it.suspect:
			barred = true
			continue
		case barred && !it.View:
			continue
		case it.alone && len(items) > 0 || len(items) == most:
			return items, false
		case it.alone:
			return []*Item{it}, true
		}
		items = append(items, it)
	}
	return items, false
}

// Note counts one death more for each of the calls, in case it comes to that. Those that have reached the limit are set aside: they are answered, and returned with their failures.
func (n *Entity) Note(items []*Item, self model.NodeID, now model.Time) (d Decision, aside []*Item, why []*model.Failure) {
	before := n.Row
	for _, it := range items {
		m := *it.Message
		m.Deaths, m.By = m.Deaths+1, self
		if m.Deaths < maxDeaths {
			it.Message, it.noting = &m, true
			d.Taken = append(d.Taken, it.Seq)
			d.Mailbox = append(d.Mailbox, model.MailboxItem{Seq: it.Seq, At: it.At, Message: m})
			continue
		}
		n.remove(&d, it)
		f := &model.Failure{
			Kind: fault.Internal.String(), Type: model.FailurePoison,
			Message: fmt.Sprintf("%d processes died while %s of %s waited or was made; the call is set aside as a dead letter", maxDeaths, m.Name, m.To),
		}
		d.answerCall(&m, model.Answer{Failure: f})
		aside, why = append(aside, it), append(why, f)
	}
	n.grant(&d, now)
	n.change(&d, &before, now)
	return d, aside, why
}

// Noted lets calls be made whose note is stored.
func (n *Entity) Noted() {
	for _, it := range n.mail {
		if it.noting {
			it.noting, it.suspect = false, false
		}
	}
}

// Lonely reports whether a call is noted or made by itself just now.
func (n *Entity) Lonely() bool {
	return n.find(func(it *Item) bool { return it.alone && (it.noting || it.made) }) != nil
}
