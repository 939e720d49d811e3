package core

// HasViews reports whether Views would return a call. Like Views, it makes a call wait for its turn
// if the call is no longer a view.
func (n *Entity) HasViews(view func(name string) bool) (found bool) {
	if n.views == 0 {
		return false
	}
	for _, it := range n.mail {
		switch {
		case !it.View || it.made || it.early || it.isAccused():
		case view(it.Message.Name):
			found = true
		default:
			n.setView(it, false)
		}
	}
	return found
}

// WaitsForView reports whether the mailbox has a view that has not begun.
func (n *Entity) WaitsForView() bool {
	return n.views > 0 && n.find(func(it *Item) bool { return it.View && !it.made && !it.early }) != nil
}

// Views returns the views that have not begun. view tells whether a call is still a view in the
// code of the worker that will make it. A call that is no longer a view waits for its turn. Views
// read the durable state, in parallel with everything else. Views returns a view that is made alone
// when no other views are left.
func (n *Entity) Views(view func(name string) bool) (items []*Item) {
	var alone *Item
	for _, it := range n.mail {
		switch {
		case !it.View || it.made || it.early || it.isAccused():
		case !view(it.Message.Name):
			n.setView(it, false)
		case !it.alone:
			it.made = true
			items = append(items, it)
		case alone == nil:
			alone = it
		}
	}
	if len(items) == 0 && alone != nil {
		alone.made = true
		items = append(items, alone)
	}
	return items
}
