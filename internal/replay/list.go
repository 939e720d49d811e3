package replay

// list is a doubly linked list whose nodes are part of the values that it links, so that adding and
// removing allocate nothing.
type list[T any] struct {
	first, last *node[T]
}

// node links a value into at most one list.
type node[T any] struct {
	prev, next *node[T]
	in         *list[T]
	value      T
}

// push adds n at the end. A node is in at most one list.
func (l *list[T]) push(n *node[T], v T) {
	n.in, n.value, n.prev, n.next = l, v, l.last, nil
	if l.last == nil {
		l.first = n
	} else {
		l.last.next = n
	}
	l.last = n
}

// remove takes n out of its list, if it is in one.
func (n *node[T]) remove() {
	l := n.in
	if l == nil {
		return
	}
	if n.prev == nil {
		l.first = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		l.last = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.prev, n.next, n.in = nil, nil, nil
}
