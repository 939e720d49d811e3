package core

import (
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Find returns the item of the mailbox with the id that an operator has named; nil when it is gone.
func (n *Entity) Find(id string) *Item {
	return n.find(func(it *Item) bool { return model.ItemID(it.Seq, it.At, it.Message) == id })
}

// manage applies an operator's request to the mailbox. It does not touch calls that a worker has
// begun, because the entity does not know how much of their code has run.
func (n *Entity) manage(d *Decision, m *model.Message) {
	if m.Name == model.MailboxList {
		after, ok := model.ParseMailboxMark(m.ID)
		if !ok {
			d.refuse(fault.Invalid, fmt.Sprintf("%q is not a cursor of the mailbox of %s: list the mailbox from its beginning", m.ID, m.To))
			return
		}
		d.Answer.Output = n.calls(after).Encode()
		return
	}

	if m.Name == model.MailboxInterrupt {
		n.listRunning(d, m)
		return
	}

	it := n.Find(m.ID)
	switch {
	case m.Name != model.MailboxShow && m.Name != model.MailboxSkip && m.Name != model.MailboxDrop:
		d.refuse(fault.Invalid, unknownOrder(m))
	case it == nil:
		d.refuse(fault.NotFound, fmt.Sprintf("no call %s waits for %s: it has run, or an operator has dropped or skipped it, and a skip changes the id; list the mailbox again", m.ID, m.To))
	case m.Name == model.MailboxShow:
		d.Answer.Output = n.showItem(it).Encode()
	case it.made:
		d.refuse(fault.Conflict, fmt.Sprintf("a worker has call %s of %s already, so it can be neither skipped nor dropped: wait for its end, or interrupt it", m.ID, m.To))
	case it.Message.Kind == model.MessageLock:
		d.refuse(fault.Invalid, fmt.Sprintf("%s is the request of a lock by %s: cancel that execution, or release the lock", m.ID, it.Message.From.Address))
	case m.Name == model.MailboxSkip:
		n.skip(d, it)
	default:
		n.drop(d, it)
	}
}

// IsInterrupted reports whether an operator's request to interrupt calls applies to an item. It
// applies to calls that a worker has, but not to views.
func (n *Entity) IsInterrupted(it *Item, m *model.Message) bool {
	return it.made && !it.View && (m.ID == "" || model.ItemID(it.Seq, it.At, it.Message) == m.ID)
}

// listRunning answers with the calls that an interrupt applies to. The caller of Deliver passes the
// interrupt on to their workers. The calls end when the workers report them.
func (n *Entity) listRunning(d *Decision, m *model.Message) {
	c := &model.Calls{Total: len(n.mail)}
	for i, it := range n.mail {
		if n.IsInterrupted(it, m) && len(c.Calls) < model.MailboxListed {
			c.Calls = append(c.Calls, n.callOf(i, it))
		}
	}

	switch {
	case len(c.Calls) > 0:
		d.Answer.Output = c.Encode()
	case m.ID != "":
		d.refuse(fault.NotFound, fmt.Sprintf("no call %s of %s runs", m.ID, m.To))
	default:
		d.refuse(fault.NotFound, fmt.Sprintf("no call of %s runs", m.To))
	}
}

// calls returns the page of the mailbox behind a mark, as an operator sees it.
func (n *Entity) calls(after model.MailboxMark) *model.Calls {
	c := &model.Calls{Total: len(n.mail)}
	begin := n.behind(after)
	for i, it := range n.mail[begin:min(begin+model.MailboxListed+1, len(n.mail))] {
		c.Calls = append(c.Calls, n.callOf(begin+i, it))
	}
	c.Page(model.MailboxListed)

	return c
}

// behind returns the index of the first item behind a mark. If the item of the mark is gone, the
// page begins with the first item that was stored after it. If that item, or the item of the mark,
// is not stored, the times of arrival decide instead.
func (n *Entity) behind(mark model.MailboxMark) int {
	if mark.ID == "" {
		return 0
	}
	if it := n.Find(mark.ID); it != nil {
		return slices.Index(n.mail, it) + 1
	}

	seq := mark.Seq()
	for i, it := range n.mail {
		if it.Seq != 0 && seq != 0 && it.Seq > seq || (it.Seq == 0 || seq == 0) && it.At >= mark.At {
			return i
		}
	}

	return len(n.mail)
}

// showItem returns one item with its input.
func (n *Entity) showItem(it *Item) *model.Calls {
	for i, o := range n.mail {
		if o == it {
			call := n.callOf(i, it)
			call.Input = it.Message.Input
			return &model.Calls{Calls: []model.Call{call}, Total: len(n.mail)}
		}
	}

	return &model.Calls{Total: len(n.mail)}
}

// callOf describes the item at an index.
func (n *Entity) callOf(i int, it *Item) model.Call {
	call := model.CallOf(i+1, it.Seq, it.At, it.Message)
	call.Running = it.made

	return call
}

// skip moves a call behind all others. This gives up the promise that the calls of one sender run
// in order. skip refuses a call of the section that holds the lock, because no other call of that
// section waits.
func (n *Entity) skip(d *Decision, it *Item) {
	if it.Message.Section != "" {
		d.refuse(fault.Invalid, fmt.Sprintf("%s is called by the section that holds its lock: no other call goes before it", n.Row.Address))
		return
	}

	stored := it.Seq != 0
	n.remove(d, it)
	if stored {
		n.store(d, it)
	}
	n.add(it)
	d.Answer.Output = n.showItem(it).Encode()
}

// drop removes a call and tells its caller.
func (n *Entity) drop(d *Decision, it *Item) {
	n.remove(d, it)
	d.answerCall(it.Message, model.Answer{Failure: DroppedCall(it.Message)})
	dropped := model.CallOf(0, it.Seq, it.At, it.Message)
	d.Answer.Output = (&model.Calls{Calls: []model.Call{dropped}, Total: len(n.mail)}).Encode()
}

// DroppedCall returns the failure that the caller gets when an operator has dropped the call.
func DroppedCall(m *model.Message) *model.Failure {
	return &model.Failure{Kind: model.FailureDropped, Permanent: true, Message: fmt.Sprintf("an operator dropped call %s of %s: it was not made", m.Name, m.To)}
}
