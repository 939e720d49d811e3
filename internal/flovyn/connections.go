package flovyn

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/peer"
)

// Connections knows which connections of clients are open. A worker of the protocol does not say
// when it ends, so the end of its connection is the best sign.
type Connections struct {
	mu   sync.Mutex
	open map[string]int // by the address of the client
}

// NewConnections returns an empty list.
func NewConnections() *Connections { return &Connections{open: map[string]int{}} }

// Watch returns a listener whose connections are in the list while they are open.
func (c *Connections) Watch(l net.Listener) net.Listener { return &watchedListener{l, c} }

// Open reports whether a client has a connection from an address.
func (c *Connections) Open(client string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open[client] > 0
}

func (c *Connections) add(client string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[client]++
}

func (c *Connections) remove(client string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[client]--; c.open[client] <= 0 {
		delete(c.open, client)
	}
}

type watchedListener struct {
	net.Listener

	list *Connections
}

// Accept waits for a connection and adds it to the list.
func (l *watchedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	w := &watchedConn{Conn: conn, list: l.list, client: conn.RemoteAddr().String()}
	l.list.add(w.client)
	return w, nil
}

type watchedConn struct {
	net.Conn

	list   *Connections
	client string
	once   sync.Once
}

// Close closes the connection and removes it from the list.
func (c *watchedConn) Close() error {
	c.once.Do(func() { c.list.remove(c.client) })
	return c.Conn.Close()
}

// clientOf returns the address of the client that makes a call. It is empty for a call within the
// process.
func clientOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}

// connected reports whether a client still has its connection.
func (d *Door) connected(client string) bool {
	return client == "" || d.cfg.Connections == nil || d.cfg.Connections.Open(client)
}
