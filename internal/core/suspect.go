package core

import (
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// A call may kill its process: it calls os.Exit, uses too much memory, or sends a signal. A stored
// call survives the crash, and the next owner would make it again and die too. So all calls that
// may have been running when an owner died are suspects. The next owner stores a mark on each
// suspect before it makes the call. It makes one suspect at a time, and no other call together with
// it. If there are too many suspects for that, the owner marks all of them and makes them together.
// If that owner dies too, the owner after it makes the marked calls alone.
//
// When two owners have died while they made a call alone, the next owner sets the call aside: it
// answers the call with a failure and does not make it again. One such death proves nothing,
// because a harmless call may be running when an operator kills the process.

// maxLone is how many owners may die while they make a call alone before the call is set aside.
const maxLone = 2

// firstHand is how many calls of an entity may have been running when its owner died. The first
// hand-over of an entity has at most this many calls, and the entity hands over further calls only
// when that hand-over is done. If the owner died in a later hand-over and the calls of the earlier
// hand-overs were not committed, the guilty call is not among the first calls. In that case the
// next owner makes and commits the earlier calls. If the guilty call then kills that owner too, it
// is among the first calls for the owner after that.
const firstHand = 64

// loneDeaths returns how many owners have marked a call and then made it alone. Older builds did
// not store that number. In their rows, the first mark means that the owner made the call together
// with others, and the second mark means that it made the call alone.
func loneDeaths(m *model.Message) int {
	return max(m.Lone, min(m.Deaths-1, 1), 0)
}

// Suspect examines the stored calls of an entity whose last owner has died. It notes which calls
// may have been running at that time. The lane must mark each of them before a worker makes it,
// unless this node has marked it already. Workers make a call alone if a dead owner has marked it.
// Workers make other suspects alone too, but at most as many as the parameter alone says. Suspect
// returns how many other suspects it chose. A call behind the position upTo was stored after the
// death of that owner, so it is a suspect only if it has a mark.
func (n *Entity) Suspect(self model.NodeID, upTo int64, alone int) (lone int) {
	n.suspects = true
	calls, free := 0, 0
	for _, it := range n.mail {
		m := it.Message
		if it.Seq == 0 || it.lost || m.Kind != model.MessageCall {
			continue
		}
		calls++
		locked := LockedOut(&n.Row, m)
		if !locked {
			free++
		}

		switch {
		case m.Deaths > 0 && m.By == self:
			it.suspect, it.alone = false, loneDeaths(m) > 0 || m.Lost > 0
		case m.Deaths > 0:
			it.suspect, it.alone = true, true
		case it.Seq > upTo:
		default:
			first := calls <= firstHand || !locked && free <= firstHand
			it.suspect, it.behind = true, !first && !n.Row.Address.Stateless()
			if it.alone = lone < alone && !it.behind; it.alone {
				lone++
			}
			it.alone = it.alone || m.Lost > 0
		}
	}
	return lone
}

// LastPosition returns the position of the last stored call. It is 0 if the entity has had no
// stored call since it was read.
func (n *Entity) LastPosition() int64 { return n.last }

// Pardon examines the stored calls of an entity whose last owner released it in an orderly way.
// That owner did not die, so its mark on a call is wrong. The lane must remove the mark before a
// worker makes the call. Otherwise the mark would count against the call when this node dies.
func (n *Entity) Pardon(self model.NodeID) {
	n.suspects = true
	for _, it := range n.mail {
		m := it.Message
		switch {
		case it.Seq == 0 || it.lost || m.Kind != model.MessageCall || m.Deaths == 0 || m.By == model.NodeID{}:
		case m.By == self:
			// This node has marked it, as a call to make alone or together with others.
			it.alone = loneDeaths(m) > 0 || m.Lost > 0
		default:
			it.suspect, it.pardoned = true, true
		}
	}
}

// isAccused reports whether the lane must mark the item before a worker makes it, or must wait
// until no other suspect runs. An operation behind the first hand-over cannot have been running
// when the owner died. A view can, because views do not wait for their turn.
func (it *Item) isAccused() bool {
	return it.wary || it.doomed || it.suspect && (!it.behind || it.View)
}

// Suspects returns the next calls that the lane must mark: one call to make alone, or several other
// calls, at most as many as most says. It returns none while calls in front of them are being
// marked or made, or while a call is made alone.
func (n *Entity) Suspects(most int) (items []*Item, alone bool) {
	if n.busy > 0 && !n.Row.Address.Stateless() || !n.suspects || n.Lonely() {
		return nil, false
	}

	barred := false // an item in front must go first; views do not wait for it
	for _, it := range n.mail {
		switch {
		case it.made || it.View && !it.isAccused() || it.held || it.lost || !it.View && LockedOut(&n.Row, it.Message):
			continue
		case it.noting, it.doomed:
			return nil, false
		case it.Message.Kind == model.MessageLock || !it.isAccused():
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

// Note marks calls before workers make them, in case a call kills the process. It sets aside the
// calls that have killed too many owners: it answers them, and returns them with their failures.
func (n *Entity) Note(items []*Item, self model.NodeID, now model.Time) (d Decision, aside []*Item, why []*model.Failure) {
	before := n.Row
	for _, it := range items {
		m := *it.Message
		lone := loneDeaths(&m)
		switch {
		case !it.suspect:
			it.noting = true // only workers have died of it: its row already says so
			continue
		case it.pardoned:
			m.Deaths, m.Lone, m.By = m.Deaths-1, max(lone-1, 0), model.NodeID{}
		case lone >= maxLone:
			f := poisonFailure(&m)
			n.remove(&d, it)
			d.answerCall(&m, model.Answer{Failure: f})
			aside, why = append(aside, it), append(why, f)
			continue
		case it.alone:
			m.Deaths, m.Lone, m.By = m.Deaths+1, lone+1, self
		default:
			m.Deaths, m.By = m.Deaths+1, self
		}

		n.replaceMessage(it, &m)
		it.noting = true
		d.Taken = append(d.Taken, it.Seq)
		d.Mailbox = append(d.Mailbox, model.MailboxItem{Seq: it.Seq, At: it.At, Message: m})
	}

	n.grant(&d, now)
	n.change(&d, &before, now)
	return d, aside, why
}

// poisonFailure returns the failure of a call that is set aside. The text counts one death more
// than the marks: the first owner died before any mark was stored.
func poisonFailure(m *model.Message) *model.Failure {
	return &model.Failure{
		Kind: fault.Internal.String(), Type: model.FailurePoison,
		Message: fmt.Sprintf("%d processes died while %s of %s waited or was made, the last %d of them while it was made alone; the call is set aside as a dead letter",
			m.Deaths+1, m.Name, m.To, maxLone),
	}
}

// ReleaseNoted lets workers have the calls whose marks are stored.
func (n *Entity) ReleaseNoted() {
	n.suspects = false
	for _, it := range n.mail {
		if it.noting {
			it.noting, it.suspect, it.pardoned, it.wary = false, false, false, false
		}
		n.suspects = n.suspects || it.isAccused()
	}
}

// Lonely reports whether a call is being marked or made alone now.
func (n *Entity) Lonely() bool {
	return n.find(func(it *Item) bool { return it.alone && (it.noting || it.made) }) != nil
}
