package replies

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// stream has the items that the worker has sent and the caller has not acknowledged. The lock of
// Buffers protects it.
type stream struct {
	taken   int64 // number of the last item that the caller has acknowledged
	items   []model.Payload
	bytes   int
	ended   bool // no item follows
	failure *model.Failure
	why     error // why this node has ended the stream; nil if it has not

	heard time.Time // when the caller last sent a request
	read  time.Time // when the caller last asked for items or acknowledged one
	// when the worker last sent a request or, before that, when the caller first asked for items;
	// zero before both
	fed time.Time

	taking, sending turns
	changed         chan struct{} // closed at the next change
}

// turns lets only the latest request wait. The sender of an earlier request no longer waits for its
// answer.
type turns struct{ current chan struct{} }

// begin returns a channel that is closed when the next request arrives.
func (t *turns) begin() <-chan struct{} {
	if t.current != nil {
		close(t.current)
	}
	t.current = make(chan struct{})
	return t.current
}

// wake wakes the requests that wait.
func (s *stream) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// last returns the number of the last item that the worker has sent.
func (s *stream) last() int64 { return s.taken + int64(len(s.items)) }

// isOver reports whether the worker has nothing left to do.
func (s *stream) isOver() bool { return s.ended || s.why != nil }

// fail ends the stream and drops its items.
func (s *stream) fail(why error) {
	s.why = why
	s.items, s.bytes = nil, 0
	s.wake()
}

// acknowledge drops the items that the caller has.
func (s *stream) acknowledge(after int64) error {
	now := time.Now()
	s.heard, s.read = now, now
	if s.fed.IsZero() {
		s.fed = now
	}

	switch {
	case s.why != nil:
		return nil
	case after > s.last():
		return fault.New(fault.Invalid, "the stream has %d items, and its caller has %d", s.last(), after)
	case after < s.taken:
		return fault.New(fault.Conflict, "the items up to %d are no longer kept, and the caller has %d", s.taken, after)
	case after == s.taken:
		return nil
	}

	n := int(after - s.taken)
	for i := range s.items[:n] {
		s.bytes -= s.items[i].Size()
	}
	s.items, s.taken = slices.Clone(s.items[n:]), after
	s.wake()
	return nil
}

// page returns the items that the caller does not have. ready is false if the caller must wait.
func (s *stream) page() (p model.ItemsPage, ready bool, err error) {
	if s.why != nil {
		return p, false, s.why
	}
	p = model.ItemsPage{Items: slices.Clone(s.items), Ended: s.ended, Failure: s.failure}
	return p, len(p.Items) > 0 || p.Ended, nil
}

// accept takes items of the worker, as long as there is room. done is false if the worker must
// wait.
func (s *stream) accept(r *model.ItemsSend) (done bool, err error) {
	s.fed = time.Now()
	switch {
	case s.why != nil:
		return false, s.why
	case r.First > s.last()+1:
		return false, fault.New(fault.Conflict, "item %d does not follow item %d", r.First, s.last())
	case s.ended:
		return r.Ended, nil // a repetition
	}

	// Skip the items of an earlier request whose answer was lost.
	rest := r.Items[min(s.last()+1-r.First, int64(len(r.Items))):]
	before := len(s.items)
	for len(rest) > 0 && s.hasRoom(rest[0].Size()) {
		s.items, s.bytes, rest = append(s.items, rest[0]), s.bytes+rest[0].Size(), rest[1:]
	}
	if len(rest) == 0 && r.Ended {
		s.ended, s.failure = true, r.Failure
	}
	if s.ended || len(s.items) > before {
		s.wake()
	}

	return len(rest) == 0 && (len(r.Items) > 0 || r.Ended), nil
}

// hasRoom reports whether the buffer has room for an item of this size.
func (s *stream) hasRoom(size int) bool {
	return len(s.items) == 0 || len(s.items) < model.MaxItemsAhead && s.bytes+size <= model.MaxBytesAhead
}
