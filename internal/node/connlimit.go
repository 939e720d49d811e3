package node

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// DefaultConnections is how many connections a server may have.
const DefaultConnections = 50_000

// connectionCount counts the open connections of a server, over all its addresses. It is nil for a
// server without a limit.
type connectionCount struct {
	most int64
	log  *slog.Logger
	open atomic.Int64

	mu     sync.Mutex
	logged time.Time // when a refusal was last logged
}

// countConnections returns the count of a server; nil for a server without a limit.
func (cfg *ServerConfig) countConnections() *connectionCount {
	most := cmp.Or(cfg.MaxConnections, DefaultConnections)
	if most < 0 {
		return nil
	}
	return &connectionCount{most: int64(most), log: cfg.Node.Log}
}

// admit counts a connection until the connection is closed. If there are too many, admit closes the
// new connection without reading from it, and returns false.
func (c *connectionCount) admit(conn net.Conn) (net.Conn, bool) {
	if c == nil {
		return conn, true
	}
	if c.open.Add(1) > c.most {
		c.open.Add(-1)
		// An error does not matter: the client sees the end of the connection in any case.
		_ = conn.Close()
		c.complain()
		return nil, false
	}
	return &countedConn{Conn: conn, leave: sync.OnceFunc(func() { c.open.Add(-1) })}, true
}

// complain logs that connections are refused, once a minute.
func (c *connectionCount) complain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.logged) > time.Minute {
		c.logged = now
		c.log.Warn("the server has as many connections as it may have, and refuses others", "limit", c.most)
	}
}

// countedConn is a connection that connectionCount counts.
type countedConn struct {
	net.Conn

	leave func()
}

// Close closes the connection.
func (c *countedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

var errNoSyscalls = errors.New("the connection has no file of the operating system")

// SyscallConn returns the file descriptor of the connection. Code that reads through it needs no
// buffer while it waits.
func (c *countedConn) SyscallConn() (syscall.RawConn, error) {
	s, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errNoSyscalls
	}
	return s.SyscallConn()
}
