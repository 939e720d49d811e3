package core

import "github.com/perdure/perdure/internal/model"

// indexFrom is how many items a mailbox has before it gets an index. A search through a shorter
// mailbox is faster than the upkeep of an index.
const indexFrom = 256

// mailIndex finds items of a long mailbox by their request and by their message. It is empty for a
// short mailbox.
type mailIndex struct {
	requests map[string]*Item
	messages map[*model.Message]*Item
}

// add notes an item, unless there is no index. If two items have the same request, the index finds
// the first.
func (x *mailIndex) add(it *Item) {
	if x.messages == nil {
		return
	}
	x.messages[it.Message] = it
	if id := it.Message.RequestID; id != "" && x.requests[id] == nil {
		x.requests[id] = it
	}
}

// remove forgets an item.
func (x *mailIndex) remove(it *Item) {
	delete(x.messages, it.Message)
	if id := it.Message.RequestID; x.requests[id] == it {
		delete(x.requests, id)
	}
}

// indexMail adds an index to a mailbox that has become long, and removes the index of an empty
// mailbox.
func (n *Entity) indexMail() {
	switch {
	case len(n.mail) == 0:
		n.index = mailIndex{}
	case len(n.mail) >= indexFrom && n.index.messages == nil:
		n.index = mailIndex{requests: map[string]*Item{}, messages: map[*model.Message]*Item{}}
		for _, it := range n.mail {
			n.index.add(it)
		}
	}
}

// replaceMessage gives an item another version of its message.
func (n *Entity) replaceMessage(it *Item, m *model.Message) {
	n.index.remove(it)
	it.Message = m
	n.index.add(it)
}

// setView notes whether a call is a view.
func (n *Entity) setView(it *Item, view bool) {
	if it.View == view {
		return
	}
	it.View = view
	if view {
		n.views++
	} else {
		n.views--
	}
}
