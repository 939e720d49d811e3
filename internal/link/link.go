// Package link exchanges numbered frames over streams that break.
//
// Each side of a session has an Out and an In. Out numbers the frames that it sends and keeps them
// until the other side has acknowledged them. In drops frames that have arrived before. After a
// broken stream each side says which frame it has received last, and Out sends the rest again. So
// the receiver takes every frame exactly once.
//
// Out and In are plain state: they have no goroutine, no clock and no lock. Session adds those. A
// session never delays an item to make a frame larger: a frame takes the items that are ready at
// the same moment.
package link

import (
	"github.com/perdure/perdure/internal/fault"
)

// Out holds the outgoing items of a session. The zero value is empty.
type Out[T any] struct {
	waiting      []item[T] // not yet part of a frame
	waitingBytes int
	frames       []frame[T] // sent or to be sent, not acknowledged, in the order of their numbers
	frameBytes   int
	count        int    // the number of items in waiting and frames
	next         int    // the index in frames of the frame to send next
	last         uint64 // the number of the newest frame
}

type item[T any] struct {
	value T
	size  int
}

type frame[T any] struct {
	number uint64
	items  []T
	size   int
}

// Add puts an item at the end. size is the approximate number of bytes of the item on the wire.
func (o *Out[T]) Add(value T, size int) {
	o.waiting = append(o.waiting, item[T]{value, size})
	o.waitingBytes += size
	o.count++
}

// Next returns the frame to send next. ok is false if there is none. A new frame takes at least one
// item. It takes further items while all its items together have at most the given number of bytes.
func (o *Out[T]) Next(most int) (number uint64, items []T, ok bool) {
	if o.next < len(o.frames) {
		f := &o.frames[o.next]
		o.next++
		return f.number, f.items, true
	}
	if len(o.waiting) == 0 {
		return 0, nil, false
	}

	n, size := 0, 0
	for n < len(o.waiting) && (n == 0 || size+o.waiting[n].size <= most) {
		size += o.waiting[n].size
		n++
	}
	o.last++
	f := frame[T]{number: o.last, items: make([]T, n), size: size}
	for i := range n {
		f.items[i] = o.waiting[i].value
	}
	clear(o.waiting[:n])
	if o.waiting = o.waiting[n:]; len(o.waiting) == 0 {
		o.waiting = nil // free the memory of a slice that has grown
	}
	o.waitingBytes -= size
	o.frames, o.frameBytes = append(o.frames, f), o.frameBytes+size
	o.next = len(o.frames)
	return f.number, f.items, true
}

// Sent reports whether Next has no further frame to return on this stream.
func (o *Out[T]) Sent() bool { return len(o.waiting) == 0 && o.next == len(o.frames) }

// Last returns the number of the newest frame.
func (o *Out[T]) Last() uint64 { return o.last }

// Acknowledged returns the number of the last frame that the other side has acknowledged.
func (o *Out[T]) Acknowledged() uint64 { return o.last - uint64(len(o.frames)) }

// Acknowledge forgets all frames up to a number. It refuses a number higher than that of the newest
// frame.
func (o *Out[T]) Acknowledge(number uint64) error {
	if number > o.last {
		return fault.New(fault.Invalid, "frame %d is acknowledged, but the last frame is %d", number, o.last)
	}

	n := 0
	for n < len(o.frames) && o.frames[n].number <= number {
		o.frameBytes -= o.frames[n].size
		o.count -= len(o.frames[n].items)
		n++
	}
	if n == 0 {
		return nil
	}
	clear(o.frames[:n])
	if o.frames = o.frames[n:]; len(o.frames) == 0 {
		o.frames = nil
	}
	o.next = max(0, o.next-n)
	return nil
}

// Resume continues over a new stream. The parameter received is the number of the last frame that
// the other side has taken. After Resume, Next starts with the frame after it.
func (o *Out[T]) Resume(received uint64) error {
	if first := o.last - uint64(len(o.frames)); received < first {
		return fault.New(fault.Invalid, "the other side says that it has taken %d frames, but it has acknowledged %d", received, first)
	}
	if err := o.Acknowledge(received); err != nil {
		return err
	}
	o.next = 0
	return nil
}

// All returns the items that are not acknowledged, in order.
func (o *Out[T]) All() []T {
	all := make([]T, 0, o.count)
	for i := range o.frames {
		all = append(all, o.frames[i].items...)
	}
	for i := range o.waiting {
		all = append(all, o.waiting[i].value)
	}
	return all
}

// Unsent returns the items that are in no frame yet, in order.
func (o *Out[T]) Unsent() []T {
	all := make([]T, len(o.waiting))
	for i := range o.waiting {
		all[i] = o.waiting[i].value
	}
	return all
}

// Backlog returns how many items are kept, and their bytes.
func (o *Out[T]) Backlog() (items, bytes int) { return o.count, o.waitingBytes + o.frameBytes }

// In counts the incoming frames of a session. The zero value has taken none.
type In struct{ taken uint64 }

// Take reports whether the caller must take the items of a frame. It reports false for a frame that
// was taken before. A frame that leaves a gap is an error, because the stream keeps the order.
func (i *In) Take(number uint64) (fresh bool, err error) {
	switch {
	case number <= i.taken:
		return false, nil
	case number > i.taken+1:
		return false, fault.New(fault.Invalid, "frame %d came behind frame %d", number, i.taken)
	}
	i.taken = number
	return true, nil
}

// Taken returns the number of the last frame that was taken.
func (i *In) Taken() uint64 { return i.taken }
