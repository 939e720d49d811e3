package link

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Config bounds a session. A zero field has its default.
type Config struct {
	// MaxFrame is how many bytes of items one frame carries at most. The default is 1 MiB. A larger
	// item gets a frame of its own.
	MaxFrame int
	// MaxItems and MaxBytes bound the items that the other side has not acknowledged. The defaults
	// are 100,000 items and 64 MiB.
	MaxItems, MaxBytes int
	// AckAfter is how long a received frame may wait for its acknowledgement when there is nothing
	// else to send. The default is 100 ms.
	AckAfter time.Duration
}

func (c *Config) fill() {
	if c.MaxFrame == 0 {
		c.MaxFrame = 1 << 20
	}
	if c.MaxItems == 0 {
		c.MaxItems = 100_000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 20
	}
	if c.AckAfter == 0 {
		c.AckAfter = 100 * time.Millisecond
	}
}

// Stream carries frames while it lasts. Send and Receive may be called at the same time, each by
// one goroutine.
type Stream[I, O any] interface {
	// Send sends a frame. A frame that only acknowledges has the number 0 and no items.
	Send(number, acknowledged uint64, items []O) error
	// Receive waits for a frame.
	Receive() (number, acknowledged uint64, items []I, err error)
}

// Session is one side of an exchange that outlives its streams. It takes items I and sends items O.
// It is safe for concurrent use.
type Session[I, O any] struct {
	cfg Config

	mu    sync.Mutex
	out   Out[O]
	in    In
	acked uint64        // the number of the last acknowledgement that was sent
	room  chan struct{} // closed when there is room again; nil while no caller waits for it
	over  error         // why the session has ended
	// reading is closed when the reader of the last stream has ended; nil before the first stream.
	reading  chan struct{}
	news     chan struct{} // has a value when there may be something to send
	received chan struct{} // has a value when there may be something to acknowledge
	due      bool          // the writer knows that there may be something to acknowledge
}

// New returns a session that has sent and taken nothing.
func New[I, O any](cfg Config) *Session[I, O] {
	cfg.fill()
	return &Session[I, O]{cfg: cfg, news: make(chan struct{}, 1), received: make(chan struct{}, 1)}
}

// Send adds an item. It blocks while there is no room, because the other side has not taken enough
// of the earlier items. It fails when ctx or the session has ended.
func (s *Session[I, O]) Send(ctx context.Context, v O, size int) error {
	for {
		s.mu.Lock()
		if s.over != nil {
			s.mu.Unlock()
			return s.over
		}
		if s.hasRoom(size) {
			s.add(v, size)
			s.mu.Unlock()
			return nil
		}
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()

		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Post is like Send but never blocks: without room it refuses the item with the kind Exhausted.
func (s *Session[I, O]) Post(v O, size int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over != nil:
		return s.over
	case !s.hasRoom(size):
		items, bytes := s.out.Backlog()
		return fault.New(fault.Exhausted, "the other side has not taken %d items of %d bytes", items, bytes)
	}
	s.add(v, size)
	return nil
}

// hasRoom reports whether there is room for an item. There is always room for a single item, even a
// large one. The caller holds the lock.
func (s *Session[I, O]) hasRoom(size int) bool {
	items, bytes := s.out.Backlog()
	return items == 0 || items < s.cfg.MaxItems && bytes+size <= s.cfg.MaxBytes
}

// add keeps an item. The caller holds the lock.
func (s *Session[I, O]) add(v O, size int) {
	s.out.Add(v, size)
	ring(s.news)
}

// Received returns the number of the last frame that was taken. A side that opens a new stream
// sends this number to the other side.
func (s *Session[I, O]) Received() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.in.Taken()
}

// Unacknowledged returns the items that the other side has not acknowledged. The other side may
// have taken some of them.
func (s *Session[I, O]) Unacknowledged() []O {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.All()
}

// Over returns why the session has ended; nil while it has not.
func (s *Session[I, O]) Over() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// Quiet waits until take (see Run) has returned for the last item. The last stream must have ended.
func (s *Session[I, O]) Quiet() {
	s.mu.Lock()
	reading := s.reading
	s.mu.Unlock()
	if reading != nil {
		<-reading
	}
}

// End ends the session. Callers that wait for room get the error.
func (s *Session[I, O]) End(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over = err
	}
	s.wakeWaiting()
}

// wakeWaiting wakes callers that wait for room. The caller holds the lock.
func (s *Session[I, O]) wakeWaiting() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// Run exchanges frames over a stream until it breaks or ctx ends, and returns why. received is the
// last frame that the other side says it has taken; Run sends the later frames again.
//
// Run passes the items to take, one after the other. take may block. It must accept every item of a
// frame, even if the stream has broken by then, because the other side does not send the frame
// again. An error of take means that the other side breaks the protocol, and ends the session.
//
// Run waits until the reader of the previous stream has returned, so that stream must have ended.
func (s *Session[I, O]) Run(ctx context.Context, st Stream[I, O], received uint64, take func(I) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done, err := s.begin(ctx, received)
	if err != nil {
		return err
	}

	go func() {
		defer close(done)
		cancel(s.read(ctx, st, take))
	}()
	err = s.write(ctx, st)
	cancel(err)
	return context.Cause(ctx)
}

// begin waits for the reader of the previous stream, and goes back to the first frame that the
// other side has not taken. The reader of the new stream closes the returned channel when it ends.
func (s *Session[I, O]) begin(ctx context.Context, received uint64) (chan struct{}, error) {
	for {
		s.mu.Lock()
		before := s.reading
		if before == nil || isClosed(before) {
			defer s.mu.Unlock()
			if s.over != nil {
				return nil, s.over
			}
			if err := s.out.Resume(received); err != nil {
				s.over = err
				s.wakeWaiting()
				return nil, err
			}
			s.wakeWaiting()
			s.acked = s.in.Taken() // the greeting of the new stream has told the other side
			s.reading = make(chan struct{})
			ring(s.news)
			return s.reading, nil
		}
		s.mu.Unlock()

		select {
		case <-before:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// read receives frames and passes their items to take.
func (s *Session[I, O]) read(ctx context.Context, st Stream[I, O], take func(I) error) error {
	for {
		number, acknowledged, items, err := st.Receive()
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // the other side repeats frames on the next stream
		}

		fresh, err := s.arrive(number, acknowledged, len(items))
		if err != nil {
			s.End(err)
			return err
		}

		if !fresh {
			continue
		}

		for _, item := range items {
			if err := take(item); err != nil {
				s.End(err)
				return err
			}
		}
	}
}

// arrive notes a frame that has arrived, and the frames that it acknowledges.
func (s *Session[I, O]) arrive(number, acknowledged uint64, items int) (fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if acknowledged > 0 {
		if err := s.out.Acknowledge(acknowledged); err != nil {
			return false, err
		}
		s.wakeWaiting()
	}

	if number == 0 {
		if items > 0 {
			return false, fault.New(fault.Invalid, "a frame with %d items has no number", items)
		}
		return false, nil
	}

	fresh, err = s.in.Take(number)
	if fresh && !s.due {
		s.due = true
		ring(s.received)
	}
	return fresh, err
}

// write sends items as they are added. If no frame with items carries an acknowledgement in time,
// write sends it in a frame of its own.
//
// A frame that arrives wakes the writer only if no timer runs for an acknowledgement. With steady
// traffic, that is once per AckAfter.
func (s *Session[I, O]) write(ctx context.Context, st Stream[I, O]) error {
	timer := time.NewTimer(s.cfg.AckAfter) // the last stream may have left an acknowledgement due
	defer timer.Stop()

	for {
		sent, err := s.flush(st)
		if err != nil {
			return err
		}
		if sent {
			continue
		}

		select {
		case <-s.news:
			// Let other goroutines add their items first: items that become ready at the same
			// moment go into the same frame.
			runtime.Gosched()
		case <-s.received:
			timer.Reset(s.cfg.AckAfter)
		case <-timer.C:
			if err := s.acknowledge(st); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// flush sends the next frame, if there is one.
func (s *Session[I, O]) flush(st Stream[I, O]) (sent bool, err error) {
	s.mu.Lock()
	number, items, ok := s.out.Next(s.cfg.MaxFrame)
	taken := s.in.Taken()
	if ok {
		s.acked = taken
	}
	s.mu.Unlock()
	if !ok {
		return false, nil
	}
	return true, st.Send(number, taken, items)
}

// acknowledge sends a frame without items, unless another frame has carried the acknowledgement.
func (s *Session[I, O]) acknowledge(st Stream[I, O]) error {
	s.mu.Lock()
	taken := s.in.Taken()
	same := taken == s.acked
	s.acked, s.due = taken, false
	s.mu.Unlock()
	if same {
		return nil
	}
	return st.Send(0, taken, nil)
}

// ring puts a value into a channel of capacity one, unless it already holds a value.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
