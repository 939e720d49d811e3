//go:build long

package chaos_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// wire is a TCP proxy in front of one address. It is for links between nodes, and for links of
// clients and workers to a server. It breaks these links without looking at the bytes.
type wire struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[*wireConn]struct{}
	// gates, by direction: to the target, and back. A closed channel lets bytes pass.
	gates [2]chan struct{}
	delay time.Duration // by which each chunk is delayed
}

// wireConn is one connection with its two sides.
type wireConn struct {
	wire      *wire
	near, far *net.TCPConn
	ctx       context.Context //nolint:containedctx // ends with the connection
	cancel    context.CancelFunc
	deaf      chan struct{} // see deafen
	once      sync.Once
}

// The directions of a wire.
const (
	onward = 0
	back   = 1
)

func newWire(t *testing.T, target string) *wire {
	t.Helper()
	return newWireAt(t, "127.0.0.1", target)
}

// newWireAt is newWire with the address on which the wire listens.
func newWireAt(t *testing.T, host, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, target: target, conns: map[*wireConn]struct{}{}}
	w.gates[onward], w.gates[back] = make(chan struct{}), make(chan struct{})
	close(w.gates[onward])
	close(w.gates[back])
	w.running.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

func (w *wire) addr() string { return w.listener.Addr().String() }

func (w *wire) accept() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return // closed
		}
		w.running.Go(func() { w.serve(near.(*net.TCPConn)) })
	}
}

// serve connects a caller with the target, until one of them ends the connection.
func (w *wire) serve(near *net.TCPConn) {
	far, err := net.DialTimeout("tcp", w.target, 5*time.Second)
	if err != nil {
		resetConn(near)
		return
	}
	c := &wireConn{wire: w, near: near, far: far.(*net.TCPConn), deaf: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	w.mu.Lock()
	if w.closed {
		c.cancel()
	}
	w.conns[c] = struct{}{}
	w.mu.Unlock()

	var pumps sync.WaitGroup
	pumps.Go(func() { c.pump(onward, c.near, c.far) })
	pumps.Go(func() { c.pump(back, c.far, c.near) })
	stop := context.AfterFunc(c.ctx, func() {
		resetConn(c.near)
		resetConn(c.far)
	})
	pumps.Wait()
	stop()
	c.cancel()
	_ = c.near.Close()
	_ = c.far.Close()
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
}

// pump passes bytes on in one direction.
func (c *wireConn) pump(direction int, from, to *net.TCPConn) {
	chunk := make([]byte, 32<<10)
	for {
		n, err := from.Read(chunk)
		if n > 0 && !c.pass(direction) {
			return
		}
		if direction == back && n > 0 && isClosed(c.deaf) {
			n = 0 // the caller never gets these bytes
		}
		if n > 0 {
			if _, err := to.Write(chunk[:n]); err != nil {
				return
			}
		}

		if err == nil {
			continue
		}
		if !c.pass(direction) {
			return
		}
		_ = to.CloseWrite() // the other pump ends when the other side closes, too
		if direction == back {
			c.cancel()
		}
		return
	}
}

// pass waits until bytes may pass. It returns false if the connection has ended.
func (c *wireConn) pass(direction int) bool {
	for {
		c.wire.mu.Lock()
		gate, delay := c.wire.gates[direction], c.wire.delay
		c.wire.mu.Unlock()
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-c.ctx.Done():
				return false
			}
		}
		select {
		case <-gate:
			return true
		default:
		}
		select {
		case <-gate:
		case <-c.ctx.Done():
			return false
		}
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

func resetConn(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

func (w *wire) list() []*wireConn {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*wireConn, 0, len(w.conns))
	for c := range w.conns {
		all = append(all, c)
	}
	return all
}

// cut resets all connections. New connections are possible immediately.
func (w *wire) cut() {
	for _, c := range w.list() {
		c.cancel()
	}
}

// hold lets nothing pass in the given directions. Bytes and the ends of connections wait.
func (w *wire) hold(directions ...int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range directions {
		if isClosed(w.gates[d]) {
			w.gates[d] = make(chan struct{})
		}
	}
}

// slow delays each chunk.
func (w *wire) slow(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = d
}

// heal ends the effects of hold and slow.
func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = 0
	for d, gate := range w.gates {
		if !isClosed(gate) {
			close(gate)
		}
		w.gates[d] = gate
	}
}

// deafen drops everything that the target sends on the open connections. After d it resets these
// connections.
func (w *wire) deafen(d time.Duration) {
	all := w.list()
	for _, c := range all {
		c.once.Do(func() { close(c.deaf) })
	}
	time.Sleep(d)
	for _, c := range all {
		c.cancel()
	}
}

// bereave holds the bytes that callers send. After a moment it resets the connections to the
// callers. After d it delivers the held bytes to the target.
func (w *wire) bereave(d time.Duration) {
	w.hold(onward)
	time.Sleep(50 * time.Millisecond)
	for _, c := range w.list() {
		resetConn(c.near)
	}
	time.Sleep(d)
	w.heal()
}

func (w *wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cut()
	w.heal()
	w.running.Wait()
}
