// Package lan is a network in memory, for tests of nodes that connect to each other. It works in
// the bubble of a synctest.
package lan

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// LAN is a network. The zero value has no hosts.
type LAN struct {
	mu    sync.Mutex
	hosts map[string]*host
	bend  func(net.Conn) net.Conn
	open  []net.Conn
}

// Bend wraps each connection that is dialed from now on, at the side that dials.
func (l *LAN) Bend(wrap func(net.Conn) net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bend = wrap
}

// Break ends all connections.
func (l *LAN) Break() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.open {
		_ = c.Close()
	}
	l.open = nil
}

// Listen listens at an address, which may be any text.
func (l *LAN) Listen(address string) net.Listener {
	h := &host{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hosts == nil {
		l.hosts = map[string]*host{}
	}
	l.hosts[address] = h
	return h
}

var errRefused = errors.New("connection refused")

// Dial connects to an address.
func (l *LAN) Dial(ctx context.Context, address string) (net.Conn, error) {
	l.mu.Lock()
	h, bend := l.hosts[address], l.bend
	l.mu.Unlock()
	if h == nil {
		return nil, errRefused
	}

	a, b := net.Pipe()
	near, far := end{a}, end{b}
	l.mu.Lock()
	l.open = append(l.open, near)
	l.mu.Unlock()
	select {
	case h.conns <- far:
	case <-h.closed:
		return nil, errRefused
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if bend != nil {
		return bend(near), nil
	}
	return near, nil
}

// end is one side of a connection. Like a real connection, it accepts a deadline even if the other
// side has hung up. The next read returns the error.
type end struct{ net.Conn }

func (e end) SetDeadline(t time.Time) error {
	if err := e.Conn.SetDeadline(t); !errors.Is(err, io.ErrClosedPipe) {
		return err
	}
	return nil
}

// host is a listener, and its own address.
type host struct {
	address string
	conns   chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

func (h *host) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *host) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *host) Addr() net.Addr { return h }

func (h *host) Network() string { return "lan" }

func (h *host) String() string { return h.address }
