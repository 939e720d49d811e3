package queue

import "slices"

// order says how a heap is sorted and where an element keeps its place in it. Place 1 is the top.
// Place 0, which a new element has, means that the element is not in the heap.
type order[T any] interface {
	before(a, b T) bool
	place(x T) *int32
}

// heap is a binary heap whose elements know their places, so that each can be moved or removed.
type heap[T comparable, O order[T]] struct{ xs []T }

func (h *heap[T, O]) len() int { return len(h.xs) }

// top returns the first element; there must be one.
func (h *heap[T, O]) top() T { return h.xs[0] }

func (h *heap[T, O]) has(x T) bool {
	var o O
	return *o.place(x) != 0
}

// put adds x, or moves it to where it belongs now.
func (h *heap[T, O]) put(x T) {
	var o O
	if at := *o.place(x); at != 0 {
		h.settle(int(at) - 1)
		return
	}
	h.xs = append(h.xs, x)
	*o.place(x) = int32(len(h.xs))
	h.up(len(h.xs) - 1)
}

// remove takes x out of the heap, if it is there. It does not compare x with others, because the
// order of x may already have changed.
func (h *heap[T, O]) remove(x T) {
	var o O
	i := int(*o.place(x)) - 1
	if i < 0 {
		return
	}
	*o.place(x) = 0
	last := len(h.xs) - 1
	moved := h.xs[last]
	var none T
	h.xs[last] = none
	h.xs = h.xs[:last]

	if i != last {
		h.xs[i] = moved
		*o.place(moved) = int32(i + 1)
		h.settle(i)
	}

	if c := cap(h.xs); c > 64 && last < c/4 {
		h.xs = append(make([]T, 0, c/2), h.xs...)
	}
}

func (h *heap[T, O]) settle(i int) {
	if !h.up(i) {
		h.down(i)
	}
}

func (h *heap[T, O]) up(i int) (moved bool) {
	var o O
	x := h.xs[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !o.before(x, h.xs[parent]) {
			break
		}
		h.xs[i] = h.xs[parent]
		*o.place(h.xs[i]) = int32(i + 1)
		i, moved = parent, true
	}
	h.xs[i] = x
	*o.place(x) = int32(i + 1)
	return moved
}

func (h *heap[T, O]) down(i int) {
	var o O
	x := h.xs[i]
	for {
		child := 2*i + 1
		if child >= len(h.xs) {
			break
		}
		if right := child + 1; right < len(h.xs) && o.before(h.xs[right], h.xs[child]) {
			child = right
		}
		if !o.before(h.xs[child], x) {
			break
		}
		h.xs[i] = h.xs[child]
		*o.place(h.xs[i]) = int32(i + 1)
		i = child
	}

	h.xs[i] = x
	*o.place(x) = int32(i + 1)
}

// first returns the first elements in order, at most the given number.
func (h *heap[T, O]) first(most int) (list []T) {
	var o O
	// places of the candidates for the next element: at first only the top
	open := make([]int, min(1, len(h.xs)))
	for len(open) > 0 && len(list) < most {
		best := 0
		for i := range open {
			if o.before(h.xs[open[i]], h.xs[open[best]]) {
				best = i
			}
		}
		at := open[best]
		list, open = append(list, h.xs[at]), slices.Delete(open, best, best+1)
		for child := 2*at + 1; child <= 2*at+2 && child < len(h.xs); child++ {
			open = append(open, child)
		}
	}

	return list
}

// countBefore counts the elements before x, up to a limit. It visits at most about twice as many
// elements as it counts.
func (h *heap[T, O]) countBefore(x T, limit int) int {
	var o O
	n, open := 0, []int{0}
	for len(open) > 0 && n < limit {
		i := open[len(open)-1]
		open = open[:len(open)-1]
		if i >= len(h.xs) || !o.before(h.xs[i], x) {
			continue
		}
		n++
		open = append(open, 2*i+1, 2*i+2)
	}
	return n
}
