// Package bundle has the code that both ends of a stream of bundled calls share: the limits of a
// bundle, and the sender that makes the bundles.
//
// A sender never delays a bundle to make it larger. A bundle takes the items that became ready
// while the previous bundle was sent.
package bundle

import (
	"context"
	"runtime"
	"sync"
)

const (
	// MaxBytes is the size up to which a bundle takes further calls or answers.
	MaxBytes = 256 << 10
	// MaxCall is the largest request that travels in a bundle. A larger request is a gRPC call of
	// its own, so that it does not delay others.
	MaxCall = 64 << 10
	// MaxCalls is how many calls of one stream may wait for their answers.
	MaxCalls = 1000
	// MaxWaiting is how many bytes may wait to be sent. While that many bytes wait at one end of
	// the stream, that end accepts no further items.
	MaxWaiting = 16 << 20
)

// Sender sends items in bundles, in the order in which they were posted. Any number of goroutines
// may call Post, but only one may call Run.
type Sender[T any] struct {
	most int // maximum bytes of a bundle with more than one item

	mu      sync.Mutex
	waiting []item[T]
	bytes   int
	wake    chan struct{} // has a token when something waits
	room    chan struct{} // has a token when less than MaxWaiting waits
}

type item[T any] struct {
	value T
	size  int
}

// NewSender returns a sender for a receiver that accepts messages of at most largest bytes.
func NewSender[T any](largest int) *Sender[T] {
	return &Sender[T]{most: min(MaxBytes, largest/2), wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// Post adds an item of a size in bytes. It does not wait until the item is sent.
func (s *Sender[T]) Post(value T, size int) {
	s.mu.Lock()
	s.waiting = append(s.waiting, item[T]{value, size})
	s.bytes += size
	first := len(s.waiting) == 1
	s.mu.Unlock()
	if first {
		signal(s.wake)
	}
}

// IsFull reports whether MaxWaiting bytes wait. The caller should not add more to a full sender.
func (s *Sender[T]) IsFull() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes >= MaxWaiting
}

// WaitForRoom waits until the sender is not full, or ctx ends.
func (s *Sender[T]) WaitForRoom(ctx context.Context) error {
	for s.IsFull() {
		select {
		case <-s.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Run sends what is posted until ctx ends or send fails. After ctx has ended it sends the
// rest, and returns nil.
func (s *Sender[T]) Run(ctx context.Context, send func([]T) error) error {
	var batch []T
	for {
		ended := ctx.Err() != nil
		if batch = s.next(batch[:0]); len(batch) > 0 {
			if err := send(batch); err != nil {
				return err
			}
			clear(batch)
			continue
		}

		if ended {
			return nil
		}
		select {
		case <-s.wake:
			// Let other goroutines post first: items that become ready at the same moment go into
			// the same bundle.
			runtime.Gosched()
		case <-ctx.Done():
		}
	}
}

// next takes the items of the next bundle.
func (s *Sender[T]) next(to []T) []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, 0
	for ; n < len(s.waiting); n++ {
		if size += s.waiting[n].size; n > 0 && size > s.most {
			break
		}
		to = append(to, s.waiting[n].value)
		s.bytes -= s.waiting[n].size
	}

	left := copy(s.waiting, s.waiting[n:])
	clear(s.waiting[left:])
	s.waiting = s.waiting[:left]
	if left > 0 {
		signal(s.wake)
	}
	if s.bytes < MaxWaiting {
		signal(s.room)
	}
	return to
}

// signal puts a token into a channel with room for one, unless the channel already has one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
