package link

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
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
	// Pace limits how often Post sends an item from the goroutine of its caller; nil for never. A
	// program gives one Pace to all sessions whose callers must not be slowed down.
	Pace *Pace
}

// Pace says when Post may send an item itself. A caller may post to many sessions at the same
// moment: then it sends one item itself, and leaves the others to the goroutines of the sessions.
type Pace struct {
	start time.Time
	last  atomic.Int64 // nanoseconds since start
}

// pace is the minimum time between two items that callers send themselves. Sending an item takes
// some microseconds.
const pace = 50 * time.Microsecond

// NewPace returns a Pace.
func NewPace() *Pace { return &Pace{start: time.Now().Add(-pace)} }

// allows reports whether the caller may send an item now.
func (p *Pace) allows() bool {
	if p == nil {
		return false
	}
	now, last := int64(time.Since(p.start)), p.last.Load()
	return now-last >= int64(pace) && p.last.CompareAndSwap(last, now)
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

	// sending is held while a frame goes from out to the stream, so that frames keep their order.
	// It is locked before mu.
	sending sync.Mutex

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
	single   bool          // the last frame that arrived had one item
	behind   uint64        // the number of the first frame after the last frame without items
	stream   Stream[I, O]  // the current stream; nil for none
	broken   error         // why the current stream has broken, if a caller of Send found out
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
		if err := s.over; err != nil {
			s.mu.Unlock()
			return err
		}
		if s.hasRoom(size) {
			s.out.Add(v, size)
			awaited := s.isAwaited()
			s.mu.Unlock()
			if !awaited || !s.sendNow() {
				ring(s.news)
			}
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

// isAwaited reports whether the other side probably waits for the item that was added last: it has
// taken nearly everything, and had little to say itself. The caller holds the lock.
//
// Sending such an item on a stream of gRPC does not block, even if the other side does not read:
// gRPC accepts 64 KiB before it waits for the network, and the unread frames have less than that.
// The other side has acknowledged everything except few items. It has also read every frame without
// items: these have no number, but the other side has acknowledged a later frame.
func (s *Session[I, O]) isAwaited() bool {
	items, bytes := s.out.Backlog()
	return s.single && items <= fewItems && bytes <= fewBytes && s.out.Acknowledged() >= s.behind
}

// See isAwaited.
const (
	fewItems = 2
	fewBytes = 16 << 10
)

// sendNow sends an awaited item (see isAwaited) from the goroutine of the caller. That saves a
// switch to the goroutine that sends, and often the wake-up of a thread. sendNow returns false if
// the goroutine that sends has to continue, on this stream or on the next one.
func (s *Session[I, O]) sendNow() bool {
	if !s.sending.TryLock() {
		return false
	}
	defer s.sending.Unlock()
	s.mu.Lock()
	st := s.stream
	awaited := s.isAwaited() // still: the goroutine that sends may have sent more in the meantime
	s.mu.Unlock()
	if st == nil || !awaited {
		return false
	}

	_, err := s.flush(st)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
	return err == nil && s.out.Sent()
}

// Post is like Send but never blocks: without room it refuses the item with the kind Exhausted.
// Post sends the item from the goroutine of the caller only if Config.Pace allows it.
func (s *Session[I, O]) Post(v O, size int) error {
	s.mu.Lock()
	if err := s.refuse(size); err != nil {
		s.mu.Unlock()
		return err
	}
	s.out.Add(v, size)
	awaited := s.isAwaited()
	s.mu.Unlock()
	if !awaited || !s.cfg.Pace.allows() || !s.sendNow() {
		ring(s.news)
	}
	return nil
}

// refuse returns why an item cannot be added, or nil. The caller holds the lock.
func (s *Session[I, O]) refuse(size int) error {
	if s.over != nil {
		return s.over
	}
	if !s.hasRoom(size) {
		items, bytes := s.out.Backlog()
		return fault.New(fault.Exhausted, "the other side has not taken %d items of %d bytes", items, bytes)
	}
	return nil
}

// hasRoom reports whether there is room for an item. There is always room for a single item, even a
// large one. The caller holds the lock.
func (s *Session[I, O]) hasRoom(size int) bool {
	items, bytes := s.out.Backlog()
	return items == 0 || items < s.cfg.MaxItems && bytes+size <= s.cfg.MaxBytes
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

	s.single = items == 1
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
	s.use(st)
	defer s.use(nil)
	timer := time.NewTimer(s.cfg.AckAfter) // the last stream may have left an acknowledgement due
	defer timer.Stop()

	for {
		s.sending.Lock()
		sent, err := s.flush(st)
		s.sending.Unlock()
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

// use sets the stream on which callers of Send may send. It waits until they no longer use the
// previous stream.
func (s *Session[I, O]) use(st Stream[I, O]) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream, s.broken = st, nil
}

// flush sends the next frame, if there is one. The caller holds the lock for sending.
func (s *Session[I, O]) flush(st Stream[I, O]) (sent bool, err error) {
	s.mu.Lock()
	if err := s.broken; err != nil {
		s.mu.Unlock()
		return false, err
	}
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
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	taken := s.in.Taken()
	same := taken == s.acked
	s.acked, s.due = taken, false
	if !same {
		s.behind = s.out.Last() + 1
	}
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
