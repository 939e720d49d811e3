package memory

import (
	"slices"
	"sort"
)

// chunkSize bounds how many elements an insert moves. With this size, the number of chunks stays
// small enough to keep them in a plain slice.
const chunkSize = 128

// ordered is a sorted set: a slice of sorted chunks. Insert, delete and search take O(log n)
// comparisons and move the elements of at most one chunk, so large sets stay fast. A set that never
// had more than chunkSize elements is a single slice.
// The zero value is ready to use once compare is set.
type ordered[T any] struct {
	compare func(a, b T) int
	chunks  [][]T
}

// find returns the position of the first element that is not less than v, and whether it is equal
// to v. If there is no such element, chunk is the number of chunks.
func (o *ordered[T]) find(v T) (chunk, index int, found bool) {
	chunk = sort.Search(len(o.chunks), func(i int) bool {
		c := o.chunks[i]
		return o.compare(c[len(c)-1], v) >= 0
	})
	if chunk == len(o.chunks) {
		return chunk, 0, false
	}
	index, found = slices.BinarySearchFunc(o.chunks[chunk], v, o.compare)
	return chunk, index, found
}

// insert adds v. If the set already has an equal element, insert changes nothing and returns false.
func (o *ordered[T]) insert(v T) bool {
	chunk, index, found := o.find(v)
	if found {
		return false
	}

	if chunk == len(o.chunks) { // greater than all
		if chunk == 0 {
			o.chunks = append(o.chunks, []T{v})
			return true
		}
		chunk--
		index = len(o.chunks[chunk])
	}

	c := slices.Insert(o.chunks[chunk], index, v)
	if len(c) <= chunkSize {
		o.chunks[chunk] = c
		return true
	}

	cut := chunkSize / 2
	if chunk == len(o.chunks)-1 && index == len(c)-1 {
		cut = len(c) - 1 // v comes last: keep the full chunk and start a new one
	}
	right := slices.Clone(c[cut:])
	clear(c[cut:])
	o.chunks[chunk] = c[:cut]
	o.chunks = slices.Insert(o.chunks, chunk+1, right)

	return true
}

// remove removes the element that is equal to v and returns it.
func (o *ordered[T]) remove(v T) (was T, ok bool) {
	chunk, index, found := o.find(v)
	if !found {
		return was, false
	}
	c := o.chunks[chunk]
	was = c[index]
	if len(c) == 1 {
		o.chunks = slices.Delete(o.chunks, chunk, chunk+1)
		return was, true
	}
	o.chunks[chunk] = slices.Delete(c, index, index+1)
	return was, true
}

// get returns the element that is equal to v.
func (o *ordered[T]) get(v T) (was T, ok bool) {
	chunk, index, found := o.find(v)
	if !found {
		return was, false
	}
	return o.chunks[chunk][index], true
}

// place is a position in an ordered set that stays valid until the set changes.
type place[T any] struct {
	set          *ordered[T]
	chunk, index int
}

// first returns the position of the smallest element.
func (o *ordered[T]) first() place[T] { return place[T]{set: o} }

// after returns the position of the first element that is greater than v.
func (o *ordered[T]) after(v T) place[T] {
	chunk, index, found := o.find(v)
	p := place[T]{o, chunk, index}
	if found {
		p.next()
	}
	return p
}

// at returns the element at the position; ok is false at the end.
func (p *place[T]) at() (v T, ok bool) {
	if p.chunk >= len(p.set.chunks) {
		return v, false
	}
	return p.set.chunks[p.chunk][p.index], true
}

// next moves to the next element.
func (p *place[T]) next() {
	p.index++
	if p.index >= len(p.set.chunks[p.chunk]) {
		p.chunk, p.index = p.chunk+1, 0
	}
}

// merge takes positions in several sets. It visits the elements from these positions on, in one
// common order, until visit returns false or the sets end. It uses the slice as its working memory,
// so the caller cannot use the positions afterwards.
func merge[T any](places []place[T], compare func(a, b T) int, visit func(v T) bool) {
	heap := places[:0]
	for i := range places {
		if _, ok := places[i].at(); ok {
			heap = append(heap, places[i])
		}
	}

	less := func(i, j int) bool {
		a, _ := heap[i].at()
		b, _ := heap[j].at()
		return compare(a, b) < 0
	}

	sink := func(i int) {
		for {
			least := i
			for _, child := range [2]int{2*i + 1, 2*i + 2} {
				if child < len(heap) && less(child, least) {
					least = child
				}
			}
			if least == i {
				return
			}
			heap[i], heap[least] = heap[least], heap[i]
			i = least
		}
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		sink(i)
	}

	for len(heap) > 0 {
		v, _ := heap[0].at()
		if !visit(v) {
			return
		}
		heap[0].next()
		if _, ok := heap[0].at(); !ok {
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
		}
		sink(0)
	}
}
