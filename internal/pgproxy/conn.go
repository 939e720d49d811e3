package pgproxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// conn is the connection of one client to the proxy, with the proxy's connection to the server.
type conn struct {
	proxy  *Proxy
	number int
	client *net.TCPConn
	// ctx ends with the connection. A type may hold a context if it represents a unit of work, as
	// conn does.
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{} // closed when all its goroutines and sockets are gone

	fromClient *bufio.Reader
	parameters map[string]string

	mu        sync.Mutex
	server    *net.TCPConn
	exchanges []*exchange // exchanges that the server still has to answer, in order
	// status is the status of the last ReadyForQuery: 'I' idle, 'T' in a transaction block, 'E' in
	// a failed transaction block
	status byte
	muted  bool   // the client is gone or must get no further bytes
	key    []byte // the key with which the client may cancel a query
	struck bool   // a fault has cut the client off from its session
}

// exchange is a request in flight, or the startup of a connection, until the server has answered.
type exchange struct {
	trigger *Trigger // nil: no fault
	reply   Reply
}

// isSwallowed reports whether the client never sees the answer.
func (e *exchange) isSwallowed() bool { return e.trigger != nil && e.trigger.rule.Fault != Delay }

// errStruck ends a pump because a fault has taken over the connection.
var errStruck = errors.New("struck by a fault")

// errServerGone ends the pump to the server because the server no longer reads. The other pump
// still delivers the last messages of the server and then ends the connection.
var errServerGone = errors.New("the server's connection has ended")

func newConn(p *Proxy, number int, client *net.TCPConn) *conn {
	c := &conn{
		proxy:  p,
		number: number,
		client: client,
		ended:  make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	c.fromClient = bufio.NewReaderSize(&pacedReader{c}, 64<<10)
	return c
}

// pacedReader reads from the client at the speed of the throttled path.
type pacedReader struct{ c *conn }

// Read reads some bytes, and returns them after the time that they take on the path.
func (r *pacedReader) Read(b []byte) (int, error) {
	const piece = 16 << 10
	n, err := r.c.client.Read(b[:min(len(b), piece)])
	if n > 0 && err == nil {
		err = r.c.proxy.pace(r.c.ctx, n)
	}
	return n, err
}

// serve forwards until the connection ends. When it returns, all its goroutines and sockets are
// gone.
func (c *conn) serve() {
	var parts sync.WaitGroup
	// Closing the sockets ends the pumps.
	parts.Go(func() {
		<-c.ctx.Done()
		c.resetBoth()
	})
	if c.start() {
		var pumps sync.WaitGroup
		pumps.Go(func() { c.endAfter(ToServer, c.pumpToServer()) })
		pumps.Go(func() { c.endAfter(ToClient, c.pumpToClient()) })
		pumps.Wait()
	}
	c.cancel()
	parts.Wait()
	c.abandon()
}

// start reads the first message of the connection, connects to the server, and reports whether
// there is a session to serve.
func (c *conn) start() bool {
	for {
		message, code, err := appendStartup(nil, c.fromClient)
		if err != nil || c.proxy.pass(c.ctx, ToServer) != nil {
			return false
		}

		switch code {
		case codeSSL, codeGSS:
			if c.proxy.pass(c.ctx, ToClient) != nil {
				return false
			}
			if _, err := c.client.Write([]byte{'N'}); err != nil {
				return false
			}
			continue
		case codeCancel:
			c.forwardCancel(message)
			return false
		}

		if !c.dial() {
			return false
		}
		c.parameters = startupParameters(message)
		c.exchanges = []*exchange{{}} // ends with the first ReadyForQuery
		c.status = 'I'
		return c.write(message) == nil
	}
}

// dial connects to the server.
func (c *conn) dial() bool {
	c.proxy.mu.Lock()
	target := c.proxy.target
	c.proxy.mu.Unlock()
	var dialer net.Dialer
	server, err := dialer.DialContext(c.ctx, "tcp", target)
	if err != nil {
		return false // the client sees a reset connection
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = server.(*net.TCPConn)
	return c.ctx.Err() == nil
}

// forwardCancel passes on a request to cancel a query. The server closes the connection when it has
// seen the request. If a fault has cut the client off from the session, the proxy drops the
// request. Drivers send such a request when their connection breaks. It could cancel the query of
// an [Orphan], and a test in which that sometimes happens would prove nothing.
func (c *conn) forwardCancel(message []byte) {
	if c.proxy.unreachable(message[8:]) || !c.dial() {
		return
	}
	if c.write(message) != nil {
		return
	}
	// The answer is the end of the connection, and the client waits for it.
	_, _ = c.server.Read(make([]byte, 1))
	if c.proxy.pass(c.ctx, ToClient) == nil {
		// Close without a reset, because a reset would tell the client that its request was lost.
		_ = c.client.Close()
	}
}

// pumpToServer collects the client's messages into requests and forwards them.
func (c *conn) pumpToServer() error {
	s := newSession()
	for {
		at := len(s.buf)
		var err error
		if s.buf, err = appendMessage(s.buf, c.fromClient); err != nil {
			return err
		}
		kind, complete, forward := s.see(at)

		switch {
		case complete:
			err = c.request(s, kind, at)
		case forward:
			err = c.send(s.buf)
		default:
			continue // the request continues
		}

		if err != nil {
			return err
		}
		s.noteForwarded()
	}
}

// request forwards a complete request, unless a rule strikes it.
func (c *conn) request(s *session, kind Kind, at int) error {
	if err := c.proxy.pass(c.ctx, ToServer); err != nil {
		return err
	}
	r, struck, slow := c.begin(s, kind, at)
	if struck == nil {
		return c.writeHeld(s.buf, r.holdAt, slow, nil)
	}
	return c.strike(struck, s.buf)
}

// begin notes that a request is in flight, and finds the rule that strikes it. It does both under
// one lock, so that no answer can arrive in between. If a rule strikes the request, begin returns
// the exchange. Otherwise it returns how long to delay the commit.
func (c *conn) begin(s *session, kind Kind, at int) (r Request, struck *exchange, slow time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.exchanges) == 0 {
		// Nothing is in flight, so the last status of the server is exact. Use it instead of our
		// own guess.
		s.inTx = c.status != 'I'
	}
	r = s.take(kind, at)
	r.Conn, r.Client = c.number, c.parameters
	if !r.continues {
		c.exchanges = append(c.exchanges, &exchange{})
	}
	if len(c.exchanges) == 0 {
		return r, nil, 0 // the end of a COPY that failed and that the server has answered
	}

	e := c.exchanges[len(c.exchanges)-1]
	if e.trigger != nil {
		return r, nil, 0 // the end of a COPY whose start was struck
	}
	if e.trigger, slow = c.proxy.catch(r); e.trigger != nil {
		return r, e, 0
	}

	return r, nil, slow
}

// strike applies the fault of a trigger to its request.
func (c *conn) strike(e *exchange, message []byte) error {
	t := e.trigger
	holdAt := 0
	if t.rule.Hold == HoldCommit {
		holdAt = t.request.holdAt
	}
	if e.isSwallowed() {
		c.mu.Lock()
		c.struck = true
		c.mu.Unlock()
	}
	switch t.rule.Fault {
	case Reset:
		c.resetClient()
		close(t.hit)
		return errStruck

	case Orphan:
		c.resetClient()
		err := c.write(message[:holdAt])
		close(t.hit)
		if err == nil {
			err = c.writeHeld(message[holdAt:], 0, t.rule.Delay, t.rule.Until)
		}
		if err != nil {
			return err
		}
		c.noteReached(e)
		<-c.ctx.Done() // the other pump ends the connection when the server has answered
		return errStruck

	case DropReply:
		close(t.hit)
		if err := c.write(message); err != nil {
			return err
		}
		c.noteReached(e)
		<-c.ctx.Done()
		return errStruck

	case Hang:
		close(t.hit)
		if err := c.write(message); err != nil {
			return err
		}
		c.noteReached(e)
		return c.discard()

	case Delay:
		close(t.hit)
		if err := c.writeHeld(message, holdAt, t.rule.Delay, t.rule.Until); err != nil {
			return err
		}
		c.noteReached(e)
		return nil

	default:
		panic("pgproxy: unknown fault") // Inject has checked it
	}
}

// discard reads and drops what the client sends, until the client gives up.
func (c *conn) discard() error {
	var buf []byte
	for {
		var err error
		if buf, err = appendMessage(buf[:0], c.fromClient); err != nil {
			return err
		}
	}
}

// pumpToClient forwards the server's messages and keeps track of the requests that they answer.
func (c *conn) pumpToClient() error {
	from := bufio.NewReaderSize(c.server, 64<<10)
	to := bufio.NewWriterSize(c.client, 64<<10)
	var buf []byte
	for {
		if from.Buffered() == 0 {
			if err := c.flush(to); err != nil {
				return err
			}
		}

		var err error
		if buf, err = appendMessage(buf[:0], from); err != nil {
			return errors.Join(err, c.flush(to))
		}

		swallow, ended := c.answer(buf[0], buf[5:])
		if !swallow {
			if err := c.proxy.pass(c.ctx, ToClient); err != nil {
				return err
			}
			if _, err := to.Write(buf); err != nil && !c.isMuted() {
				return err
			}
		}

		if ended != nil {
			// The client must get all earlier answers before the fault takes effect.
			if err := c.flush(to); err != nil {
				return err
			}
			if err := c.end(ended); err != nil {
				return err
			}
		}
	}
}

// answer notes a message of the server. It reports whether to hide the message from the client. If
// the message ends an exchange that has a trigger, it also returns that exchange.
func (c *conn) answer(kind byte, body []byte) (swallow bool, ended *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.exchanges) == 0 {
		return c.muted, nil // the message answers no request; it is a notification, for example
	}
	if kind == msgBackendKeyData {
		c.key = bytes.Clone(body)
	}
	e := c.exchanges[0]
	swallow = c.muted || e.isSwallowed()

	switch kind {
	case msgCommandComplete:
		tag, _ := text(body)
		e.reply.Tags = append(e.reply.Tags, tag)
	case msgErrorResponse:
		e.reply.SQLState = sqlState(body)
	case msgReadyForQuery:
		if len(body) > 0 {
			c.status = body[0]
		}
		c.exchanges = c.exchanges[1:]
		e.reply.Answered = true
		if e.trigger != nil {
			ended = e
		}
	}

	return swallow, ended
}

// end finishes an exchange with a trigger after its answer.
func (c *conn) end(e *exchange) error {
	switch e.trigger.rule.Fault {
	case DropReply, Orphan:
		c.resetBoth()
		e.trigger.finish(c.replyOf(e))
		return errStruck
	case Hang:
		c.mu.Lock()
		c.muted = true
		c.mu.Unlock()
	case Reset, Delay:
	}
	e.trigger.finish(c.replyOf(e))
	return nil
}

// replyOf returns the answer to an exchange that has ended.
func (c *conn) replyOf(e *exchange) Reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.reply.Reached = e.reply.Reached || e.reply.Answered
	return e.reply
}

// noteReached notes that the server has the whole request.
func (c *conn) noteReached(e *exchange) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.reply.Reached = true
}

// abandon runs after both pumps have ended. It finishes the triggers whose requests got no answer.
func (c *conn) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.exchanges {
		if e.trigger != nil {
			e.trigger.finish(e.reply)
		}
	}
	c.exchanges = nil
}

// endAfter runs when one side has ended, and ends the other side in the same way.
func (c *conn) endAfter(direction Direction, err error) {
	if errors.Is(err, errStruck) {
		c.cancel()
		return
	}

	if errors.Is(err, errServerGone) {
		return
	}
	if c.proxy.pass(c.ctx, direction) != nil {
		return // cut or closed at the same time
	}

	if errors.Is(err, syscall.ECONNRESET) {
		c.cancel() // resets both
		return
	}

	if direction == ToServer {
		_ = c.server.CloseWrite() // the server ends its side, and then the other pump ends
		return
	}

	_ = c.client.Close() // without a reset
	c.cancel()
}

// send forwards messages that are not requests.
func (c *conn) send(message []byte) error {
	if err := c.proxy.pass(c.ctx, ToServer); err != nil {
		return err
	}
	return c.write(message)
}

// write writes to the server.
func (c *conn) write(message []byte) error {
	if _, err := c.server.Write(message); err != nil {
		return fmt.Errorf("%w: %w", errServerGone, err)
	}
	return nil
}

// writeHeld writes to the server, with a pause before the offset holdAt. The pause lasts until the
// channel is closed, or for d if the channel is nil.
func (c *conn) writeHeld(message []byte, holdAt int, d time.Duration, until <-chan struct{}) error {
	if d > 0 || until != nil {
		if err := c.write(message[:holdAt]); err != nil {
			return err
		}

		var over <-chan time.Time
		if until == nil {
			timer := time.NewTimer(d)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-over:
		case <-until:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
		message = message[holdAt:]
	}
	return c.write(message)
}

// flush writes the collected bytes to the client.
func (c *conn) flush(to *bufio.Writer) error {
	if err := to.Flush(); err != nil && !c.isMuted() {
		return err
	}
	return nil
}

func (c *conn) isMuted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.muted
}

// resetClient cuts the client off and keeps the connection to the server.
func (c *conn) resetClient() {
	c.mu.Lock()
	c.muted = true
	c.mu.Unlock()
	reset(c.client)
}

// resetBoth closes both sockets so that their peers see a reset. It does nothing to a socket that
// was closed before.
func (c *conn) resetBoth() {
	c.mu.Lock()
	c.muted = true
	server := c.server
	c.mu.Unlock()
	reset(c.client)
	if server != nil {
		reset(server)
	}
}

// reset closes a socket with a reset. Errors mean that it was closed before.
func reset(socket *net.TCPConn) {
	_ = socket.SetLinger(0)
	_ = socket.Close()
}
