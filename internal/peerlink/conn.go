package peerlink

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of a connection. A side may send as many requests and notes as the other side has given it
// credit for. The receiver gives credit back when its engine has taken them.
const (
	maxItem     = 16 << 20 // bytes of a request, a reply or a note
	maxFrame    = 1 << 20  // bytes of a frame without its last item
	readBuffer  = 64 << 10
	partBytes   = 64 << 10 // bytes of a frame that the other side must take within the time silence
	itemBytes   = 256      // roughly the memory of an item in addition to its body
	creditItems = 4096
	creditBytes = 16 << 20 // plus one item
	maxServing  = 1 << 17  // requests of a peer that wait for their reply
	maxReplies  = 64 << 20 // bytes of replies that wait to be sent
)

// A side that has nothing to send sends an empty frame every beat. A side that receives nothing for
// the time silence ends the connection. That time is shorter than a lease, so callers fall back to
// the store long before the lease ends.
const (
	beat    = time.Second
	silence = 4 * time.Second
)

// conn is a connection to another node.
type conn struct {
	net  *Net
	peer model.NodeID
	id   model.RunID
	raw  *tls.Conn
	r    *bufio.Reader

	wake  chan struct{} // capacity 1: there is something to send
	work  chan struct{} // capacity 1: there is something to serve
	ended chan struct{} // closed by fail

	mu       sync.Mutex
	why      error // why the connection has ended; nil while it lives
	out      []item
	outBytes int

	// What this side has sent.
	last      uint64
	calls     map[uint64]*call
	usedItems int // credit of the other side that this side has used
	usedBytes int
	room      chan struct{} // closed when there is credit again; nil while no caller waits

	// What the other side has sent.
	queue      []item // not yet passed to the handler
	queueBytes int
	heldItems  int // passed to the handler, which has not taken them yet
	heldBytes  int
	serving    map[uint64]*Request
	takenItems int // credit to give back
	takenBytes int
	marks      bool   // the other side returns marks (see Net.Mark)
	heard      uint64 // the last mark that the other side has returned
	owed       uint64 // the mark to return; 0 for none
}

// call is a request that waits for its reply.
type call struct {
	done  chan struct{}
	reply []byte
	err   error
}

// stream is a connection after its handshake.
type stream struct {
	*tls.Conn

	r     *bufio.Reader
	marks bool   // the other side returns marks
	mark  uint64 // the last mark of this side before the other side could send anything
}

func newConn(n *Net, peer model.NodeID, id model.RunID, s stream) *conn {
	return &conn{
		net: n, peer: peer, id: id, raw: s.Conn, r: s.r, wake: make(chan struct{}, 1), work: make(chan struct{}, 1), ended: make(chan struct{}),
		calls: map[uint64]*call{}, serving: map[uint64]*Request{}, marks: s.marks, heard: s.mark,
	}
}

// run uses the connection until it ends.
func (c *conn) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })
	defer stop()

	var wg sync.WaitGroup
	wg.Go(func() { c.fail(c.write()) })
	wg.Go(func() {
		<-c.ended
		cancel() // the handler no longer waits for room
	})
	wg.Go(func() { c.serve(ctx) })
	c.fail(c.read())
	wg.Wait()
}

// fail ends the connection. The calls that wait for a reply get ErrLost. The requests of the other
// side that have no reply yet are cancelled.
func (c *conn) fail(why error) {
	c.mu.Lock()
	if c.why != nil {
		c.mu.Unlock()
		return
	}
	c.why = why
	calls, serving := c.calls, c.serving
	c.calls, c.serving, c.out, c.queue = nil, nil, nil, nil
	c.wakeWaiting()
	close(c.ended)
	c.mu.Unlock()

	// Close without the closing message of TLS. If the other node reads nothing, sending that
	// message would block, and delay the callers below.
	_ = c.raw.NetConn().Close()
	for _, k := range calls {
		k.err = ErrLost
		close(k.done)
	}
	for _, r := range serving {
		r.cancel()
	}
}

// hasCredit reports whether an item may be sent. If half of the bytes are free, one more item of
// any size may be sent. Without this rule, a large item that needs all of the credit could wait
// forever, because the other side gives credit back only in portions of a quarter.
func (c *conn) hasCredit(size int) bool {
	return c.usedItems < creditItems && (c.usedBytes+size <= creditBytes || c.usedBytes <= creditBytes/2)
}

// add appends an item to the items that wait to be sent. The caller holds the lock.
func (c *conn) add(it item) {
	it.size = max(it.size, len(it.body)) + itemBytes
	c.out = append(c.out, it)
	c.outBytes += it.size
	ring(c.wake)
}

// spend adds an item that needs credit. The caller holds the lock.
func (c *conn) spend(it item) {
	c.usedItems++
	c.usedBytes += len(it.body)
	c.add(it)
}

// call sends a request and waits for its reply.
func (c *conn) call(ctx context.Context, body []byte) ([]byte, model.RunID, error) {
	k, number, err := c.ask(ctx, body)
	if err != nil {
		return nil, model.RunID{}, err
	}

	select {
	case <-k.done:
		return k.reply, c.id, k.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls[number] == k {
		delete(c.calls, number)
		c.add(item{kind: itemCancel, number: number})
	}
	return nil, c.id, context.Cause(ctx)
}

// ask sends a request. It waits for credit.
func (c *conn) ask(ctx context.Context, body []byte) (*call, uint64, error) {
	for {
		c.mu.Lock()
		if c.why != nil {
			c.mu.Unlock()
			return nil, 0, ErrUnsent
		}
		if c.hasCredit(len(body)) {
			c.last++
			number, k := c.last, &call{done: make(chan struct{})}
			c.calls[number] = k
			c.spend(item{kind: itemRequest, number: number, body: body})
			c.mu.Unlock()
			return k, number, nil
		}
		if c.room == nil {
			c.room = make(chan struct{})
		}
		room := c.room
		c.mu.Unlock()

		select {
		case <-room:
		case <-ctx.Done():
			return nil, 0, fault.New(fault.Exhausted, "node %s has no room for further requests: %w", c.peer, context.Cause(ctx))
		}
	}
}

// note sends a note if there is credit.
func (c *conn) note(body []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil || !c.hasCredit(len(body)) {
		return false
	}
	c.spend(item{kind: itemNote, body: body})
	return true
}

// wakeWaiting wakes the callers that wait for credit. The caller holds the lock.
func (c *conn) wakeWaiting() {
	if c.room != nil {
		close(c.room)
		c.room = nil
	}
}

// write sends frames. A frame takes the items that have gathered while the previous frame was
// written.
func (c *conn) write() error {
	alive := time.NewTimer(beat)
	defer alive.Stop()
	var frame []byte
	var items []item
	for {
		items = c.take(items[:0])
		if len(items) == 0 {
			select {
			case <-c.wake:
				continue
			case <-alive.C: // send an empty frame
			case <-c.ended:
				return nil
			}
		}

		// The sizes of replies are estimates, so the items may need several frames.
		frame = append(frame[:0], 0, 0, 0, 0)
		for i := range items {
			if len(frame) > maxFrame {
				if err := c.writeFrame(frame); err != nil {
					return err
				}
				frame = append(frame[:0], 0, 0, 0, 0)
			}
			frame = appendItem(frame, &items[i])
		}
		if err := c.writeFrame(frame); err != nil {
			return err
		}

		clear(items)
		alive.Reset(beat)
		if cap(frame) > 4*maxFrame {
			frame = nil // do not keep the memory of a large item
		}
	}
}

// writeFrame sends a frame. It sends the frame in parts. The other side may take up to the time
// silence for each part, so a large frame also passes a slow network.
func (c *conn) writeFrame(frame []byte) error {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-lengthBytes))
	for len(frame) > 0 {
		if err := c.raw.SetWriteDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		n, err := c.raw.Write(frame[:min(len(frame), partBytes)])
		if err != nil {
			return err
		}
		frame = frame[n:]
	}
	return nil
}

// take removes the items of the next frame from the items that wait to be sent. In front of these
// items it puts an item that gives credit back.
func (c *conn) take(items []item) []item {
	c.mu.Lock()
	defer c.mu.Unlock()
	size, n := 0, 0
	for n < len(c.out) && (n == 0 || size+c.out[n].size <= maxFrame) {
		size += c.out[n].size
		n++
	}
	if n > 0 || c.owesCredit() {
		items = c.appendCredit(items)
	}
	if c.owed > 0 {
		items = append(items, item{kind: itemEcho, number: c.owed})
		c.owed = 0
	}

	items = append(items, c.out[:n]...)
	left := copy(c.out, c.out[n:])
	clear(c.out[left:])
	c.out = c.out[:left]
	c.outBytes -= size
	if left > 0 {
		ring(c.wake)
	}
	return items
}

// owesCredit reports whether this side should give credit back now, because the other side may be
// waiting for it. The caller holds the lock.
func (c *conn) owesCredit() bool {
	return c.takenItems >= creditItems/4 || c.takenBytes >= creditBytes/4
}

// appendCredit adds an item that gives credit back. The caller holds the lock.
func (c *conn) appendCredit(items []item) []item {
	if c.takenItems > 0 {
		body := binary.BigEndian.AppendUint64(nil, uint64(c.takenBytes))
		items = append(items, item{kind: itemCredit, number: uint64(c.takenItems), body: body})
		c.takenItems, c.takenBytes = 0, 0
	}
	return items
}

// read receives frames.
func (c *conn) read() error {
	for {
		frame, err := readFrame(c.r, maxFrame+maxItem+headerBytes, c.listen)
		if err != nil {
			return err
		}
		for len(frame) > 0 {
			var it item
			if it, frame, err = nextItem(frame); err != nil {
				return err
			}
			if err := c.receive(it); err != nil {
				return err
			}
		}
	}
}

// listen sets the deadline for reading the next part of a frame: it must arrive within the time
// silence.
func (c *conn) listen() error { return c.raw.SetReadDeadline(time.Now().Add(silence)) }

// receive takes one item.
func (c *conn) receive(it item) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		return c.why
	}

	switch it.kind {
	case itemReply, itemNone:
		k := c.calls[it.number]
		if k == nil {
			return nil // the caller no longer waits
		}
		delete(c.calls, it.number)
		k.reply = it.body
		if it.kind == itemNone {
			k.reply, k.err = nil, ErrLost
		}
		close(k.done)
	case itemMark:
		c.owed = it.number
		ring(c.wake)
	case itemEcho:
		c.heard = max(c.heard, it.number)
	case itemRequest, itemNote:
		it.since = c.heard
		c.queue = append(c.queue, it)
		c.queueBytes += len(it.body)
		if len(c.queue)+c.heldItems+c.takenItems > creditItems || c.queueBytes+c.heldBytes > creditBytes+maxItem {
			return fault.New(fault.Invalid, "node %s sends more than it has credit for", c.peer)
		}
		ring(c.work)
	case itemCancel:
		if r := c.serving[it.number]; r != nil {
			delete(c.serving, it.number)
			go r.cancel()
		} else {
			c.unqueue(it.number)
		}
	case itemCredit:
		if len(it.body) != 8 || it.number > uint64(c.usedItems) || binary.BigEndian.Uint64(it.body) > uint64(c.usedBytes) {
			return fault.New(fault.Invalid, "node %s gives back credit that it does not have", c.peer)
		}
		c.usedItems -= int(it.number)
		c.usedBytes -= int(binary.BigEndian.Uint64(it.body))
		c.wakeWaiting()
	default:
		return fault.New(fault.Invalid, "node %s sends an item of kind %q", c.peer, it.kind)
	}
	return nil
}

// unqueue notes that the caller no longer waits for a request that the handler has not seen yet.
// The caller holds the lock.
func (c *conn) unqueue(number uint64) {
	for i := range c.queue {
		if q := &c.queue[i]; q.kind == itemRequest && q.number == number {
			q.kind = itemCancel
		}
	}
}

// serve passes requests and notes to the handler, one after the other. A request that waits for
// room in the engine does not delay the others.
func (c *conn) serve(ctx context.Context) {
	for {
		it, r, ok := c.next()
		if !ok {
			select {
			case <-c.work:
				continue
			case <-c.ended:
				return
			}
		}

		taken := func() { c.giveBack(len(it.body)) }
		switch it.kind {
		case itemRequest:
			if r == nil {
				taken()
				continue
			}
			c.net.member.Handler.HandleRequest(ctx, r, taken)
			r.Body = nil // otherwise a request that waits keeps its whole frame in memory
		case itemNote:
			c.net.member.Handler.HandleNote(ctx, c.peer, it.body, taken)
		default: // the caller has withdrawn the request
			taken()
		}
	}
}

// sendMark sends a mark, if the other side knows marks.
func (c *conn) sendMark(mark uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why == nil && c.marks && c.heard < mark {
		c.add(item{kind: itemMark, number: mark})
	}
}

// giveBack notes that the handler has taken an item: the other side may send another one.
func (c *conn) giveBack(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heldItems--
	c.heldBytes -= bytes
	c.takenItems++
	c.takenBytes += bytes
	if c.owesCredit() {
		ring(c.wake)
	}
}

// next takes the first item of the queue. If the item is a request, next registers it under the
// same lock: a cancel always finds the request either in the queue or among the requests that this
// side serves. r is nil if the item is no request, or if this side serves too many.
func (c *conn) next() (it item, r *Request, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.queue = nil
		return it, nil, false
	}
	it = c.queue[0]
	c.queue[0] = item{}
	c.queue = c.queue[1:]
	c.queueBytes -= len(it.body)
	c.heldItems++
	c.heldBytes += len(it.body)
	if it.kind == itemRequest {
		r = c.open(&it)
	}
	return it, r, true
}

// open registers a request that this side serves. It returns nil if there are too many. The caller
// holds the lock.
func (c *conn) open(it *item) *Request {
	if len(c.serving) >= maxServing {
		c.add(item{kind: itemNone, number: it.number}) // the caller falls back to the store
		return nil
	}
	r := &Request{From: c.peer, Link: c.id, Since: it.since, Body: it.body, conn: c, number: it.number}
	c.serving[it.number] = r
	return r
}

// ring puts a value into a channel of capacity one, unless it already holds a value.
func ring(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
