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

	// sending is held while a bundle is sent, so that items keep their order. It is locked before
	// mu.
	sending sync.Mutex

	mu      sync.Mutex
	waiting []item[T]
	bytes   int
	send    func([]T) error // nil before and after Run, and after PostAlone has failed to send
	failed  error           // why send has failed, if PostAlone found out
	wake    chan struct{}   // has a token when something waits
	room    chan struct{}   // has a token when less than MaxWaiting waits
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

// PostAlone adds an item that is probably the only one for a while. If no other item waits or is
// being sent, the goroutine of the caller sends it. That saves a switch to the goroutine of Run,
// and often the wake-up of a thread.
func (s *Sender[T]) PostAlone(value T, size int) {
	if !s.sending.TryLock() {
		s.Post(value, size)
		return
	}
	defer s.sending.Unlock()
	s.mu.Lock()
	send := s.send
	if len(s.waiting) > 0 {
		send = nil
	}
	s.mu.Unlock()
	if send == nil {
		s.Post(value, size)
		return
	}

	if err := send([]T{value}); err != nil {
		s.mu.Lock()
		s.send, s.failed = nil, err
		s.mu.Unlock()
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
// rest, and returns nil. PostAlone may call send too, but never at the same time as another caller.
func (s *Sender[T]) Run(ctx context.Context, send func([]T) error) error {
	s.mu.Lock()
	s.send = send
	s.mu.Unlock()
	defer s.stop()

	var batch []T
	for {
		ended := ctx.Err() != nil
		sent, err := s.sendNext(&batch, send)
		switch {
		case err != nil:
			return err
		case sent:
			continue
		case ended:
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

// stop waits until PostAlone no longer sends.
func (s *Sender[T]) stop() {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send = nil
}

// sendNext sends the next bundle, if there is one. It reuses the memory of batch.
func (s *Sender[T]) sendNext(batch *[]T, send func([]T) error) (sent bool, err error) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	err = s.failed
	s.mu.Unlock()
	if err != nil {
		return false, err
	}

	*batch = s.next((*batch)[:0])
	if len(*batch) == 0 {
		return false, nil
	}
	err = send(*batch)
	clear(*batch)
	return true, err
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
