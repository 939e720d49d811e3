package crew

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/link"
	"github.com/perdure/perdure/internal/model"
)

// Carrier asks another node and waits for its answer. A question or an answer may be lost, and may
// arrive twice.
type Carrier interface {
	// Call asks a node.
	Call(ctx context.Context, to model.NodeID, question []byte) (answer []byte, err error)
}

// Bounds of an exchange.
const (
	frameBytes = 1 << 20 // most bytes of the parcels in a frame, and of one parcel
	// Bounds of what is kept for the other side. An owner may hand over all histories that it has
	// in memory at the same time (256 MiB), and must never wait for a host.
	mostParcels = 100_000
	mostBytes   = 320 << 20
	mostBody    = 256 << 20 // bytes of a body that arrives in parts
	// patience is how long a frame waits for its answer before it is sent again.
	patience = 2 * time.Second
	// grace is how long the other node may be silent, although it has its lease, before this side
	// ends the session.
	grace = 30 * time.Second
	// beatEvery is how often a host that has nothing to say sends an empty frame. If the owner has
	// ended the session, the host learns that from the answer.
	beatEvery = 5 * time.Second
)

var (
	errUnknown = fault.New(fault.Unavailable, "the other node does not have the session")
	errSilent  = fault.New(fault.Unavailable, "the other node does not answer")
	errGone    = fault.New(fault.Unavailable, "the other node is gone")
	errClosed  = fault.New(fault.Unavailable, "the node ends")
	errAnother = fault.New(fault.Unavailable, "the other node has begun another session")
)

// exchange is one side of a session between a host and an owner. It sends parcels in order, in
// frames. It repeats a frame until the other side answers, and takes each frame of the other side
// once.
type exchange struct {
	line Carrier
	to   model.NodeID
	id   model.RunID
	side side
	// take receives parcels, one at a time. An error ends the session.
	take  func(ctx context.Context, p *parcel) error
	beats bool // this side sends empty frames
	// The exchange calls ended once, when the session has ended.
	ended func(why error)

	mu      sync.Mutex
	out     link.Out[parcel]
	over    error
	room    chan struct{} // closed when there is room; nil while no caller waits for it
	drained chan struct{} // closed when all frames are answered; nil while no caller waits for it

	news    chan struct{} // has a value when there is something to send
	again   chan struct{} // has a value when the frame in flight may be lost
	arrived chan arrival
	done    chan struct{} // closed when the session has ended

	in   link.In // only the receiving goroutine uses these
	part []byte
}

// arrival is a frame of the other side.
type arrival struct {
	frame  *frame
	answer func([]byte)
}

func newExchange(line Carrier, to model.NodeID, id model.RunID, by side) *exchange {
	return &exchange{
		line: line, to: to, id: id, side: by,
		news: make(chan struct{}, 1), again: make(chan struct{}, 1), arrived: make(chan arrival, 4), done: make(chan struct{}),
	}
}

// run serves the session until the session or ctx ends.
func (x *exchange) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { x.send(ctx) })
	wg.Go(func() { x.receive(ctx) })
	select {
	case <-x.done:
	case <-ctx.Done():
		x.end(errClosed)
	}
	cancel()
	wg.Wait()

	x.mu.Lock()
	why := x.over
	x.mu.Unlock()
	x.ended(why)
}

// end ends the session. It does not block.
func (x *exchange) end(why error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.over != nil {
		return
	}
	x.over = why
	close(x.done)
	x.wakeLocked()
}

// wakeLocked wakes the callers that wait for room, and the callers that wait until all frames are
// answered.
func (x *exchange) wakeLocked() {
	if x.room != nil {
		close(x.room)
		x.room = nil
	}
	if x.drained != nil {
		close(x.drained)
		x.drained = nil
	}
}

func (x *exchange) isOver() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.over != nil
}

// post sends a parcel. It does not block. If too many earlier parcels wait for the other side, post
// ends the session. If the session has ended already, post drops the parcel.
func (x *exchange) post(p parcel) {
	x.mu.Lock()
	full := !x.hasRoom()
	if !full {
		x.add(p)
	}
	x.mu.Unlock()
	if full {
		x.end(fault.New(fault.Exhausted, "too many parcels wait for the other node"))
	}
}

// wait sends a parcel. It blocks while too many earlier parcels wait for the other side. If the
// session has ended, wait drops the parcel and returns nil.
func (x *exchange) wait(ctx context.Context, p parcel) error {
	for {
		x.mu.Lock()
		if x.over != nil || x.hasRoom() {
			x.add(p)
			x.mu.Unlock()
			return nil
		}
		if x.room == nil {
			x.room = make(chan struct{})
		}
		room := x.room
		x.mu.Unlock()

		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasRoom reports whether there is room for another parcel. The caller holds the lock.
func (x *exchange) hasRoom() bool {
	items, bytes := x.out.Backlog()
	return items < mostParcels && bytes < mostBytes
}

// add keeps a parcel, in parts if it is large. The caller holds the lock.
func (x *exchange) add(p parcel) {
	if x.over != nil {
		return
	}
	body := p.Body
	for len(body) > frameBytes {
		part := p
		part.Body, part.More = body[:frameBytes], true
		x.out.Add(part, len(part.Body)+parcelRoom)
		body = body[frameBytes:]
	}
	p.Body = body
	x.out.Add(p, len(body)+parcelRoom)
	ring(x.news)
}

// rest waits until the other side has taken everything that was sent before.
func (x *exchange) rest(ctx context.Context) {
	for {
		x.mu.Lock()
		if items, _ := x.out.Backlog(); items == 0 || x.over != nil {
			x.mu.Unlock()
			return
		}
		if x.drained == nil {
			x.drained = make(chan struct{})
		}
		drained := x.drained
		x.mu.Unlock()
		select {
		case <-drained:
		case <-ctx.Done():
			return
		}
	}
}

// send sends one frame after the other. It repeats each frame until the other side answers.
func (x *exchange) send(ctx context.Context) {
	for {
		x.mu.Lock()
		number, parcels, ok := x.out.Next(frameBytes)
		x.mu.Unlock()
		if !ok {
			if !x.awaitNews(ctx) {
				return
			}
			continue
		}

		if err := x.deliver(ctx, &frame{Session: x.id, Side: x.side, Number: number, Parcels: parcels}); err != nil {
			if ctx.Err() == nil {
				x.end(err)
			}
			return
		}
		x.mu.Lock()
		_ = x.out.Acknowledge(number) // cannot fail, because this side has made the frame
		if x.room != nil {
			close(x.room)
			x.room = nil
		}
		if items, _ := x.out.Backlog(); items == 0 && x.drained != nil {
			close(x.drained)
			x.drained = nil
		}
		x.mu.Unlock()
	}
}

// awaitNews waits until there is something to send. It returns false if ctx has ended.
func (x *exchange) awaitNews(ctx context.Context) bool {
	var beat <-chan time.Time
	if x.beats {
		t := time.NewTimer(beatEvery)
		defer t.Stop()
		beat = t.C
	}
	select {
	case <-x.news:
	case <-beat:
		x.post(parcel{})
	case <-ctx.Done():
		return false
	}
	return true
}

// deliver sends a frame again and again, until the other node answers, says that it does not know
// the session, or has been silent for too long.
func (x *exchange) deliver(ctx context.Context, f *frame) error {
	body, silent := f.encode(), time.Now()
	for {
		answer, err := x.call(ctx, body)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && len(answer) == 1 && answer[0] == taken:
			return nil
		case err == nil && len(answer) == 1 && answer[0] == unknown:
			return errUnknown
		case time.Since(silent) > grace:
			return errSilent
		case err == nil: // a node of another version gives another answer
			if !pause(ctx, patience) {
				return ctx.Err()
			}
		case !errors.Is(err, context.DeadlineExceeded) && !pause(ctx, patience/20):
			return ctx.Err()
		}
	}
}

// call sends a frame once. It gives up immediately if the connection is lost.
func (x *exchange) call(ctx context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-x.again: // this notice is about an earlier connection
	default:
	}
	go func() {
		select {
		case <-x.again:
			cancel()
		case <-ctx.Done():
		}
	}()
	return x.line.Call(ctx, x.to, body)
}

// hear receives a frame of the other side. It does not block. If it drops the frame, the other side
// sends it again.
func (x *exchange) hear(f *frame, answer func([]byte)) {
	select {
	case x.arrived <- arrival{f, answer}:
	default:
	}
}

// receive takes the frames of the other side, in order.
func (x *exchange) receive(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-x.arrived:
			if err := x.open(ctx, a.frame); err != nil {
				x.end(err)
				return
			}
			a.answer([]byte{taken})
		}
	}
}

// open takes the parcels of a frame, unless they were taken before.
func (x *exchange) open(ctx context.Context, f *frame) error {
	fresh, err := x.in.Take(f.Number)
	if !fresh {
		return err
	}
	for i := range f.Parcels {
		p := &f.Parcels[i]
		if p.More || x.part != nil {
			if x.part = append(x.part, p.Body...); len(x.part) > mostBody {
				return fault.New(fault.Exhausted, "a parcel of more than %d bytes", mostBody)
			}
		}
		if p.More {
			continue
		}
		if x.part != nil {
			p.Body, x.part = x.part, nil
		}
		if err := x.take(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// pause waits. It returns false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
