package lan

import (
	"net"
	"sync"
	"time"
)

// Late delays bytes on their way. The zero value delays nothing.
type Late struct {
	mu    sync.Mutex
	on    bool
	conns []*lateConn
}

// Wrap makes the bytes of a connection delayable. Pass it to [LAN.Bend].
func (l *Late) Wrap(c net.Conn) net.Conn { return &lateConn{Conn: c, late: l} }

// Hold delays bytes, and the ends of connections, until Release.
func (l *Late) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.on = true
}

// Release lets the bytes arrive.
func (l *Late) Release() {
	l.mu.Lock()
	waiting := l.conns
	l.on, l.conns = false, nil
	l.mu.Unlock()
	for _, c := range waiting {
		if _, err := c.Conn.Write(c.bytes); err == nil && c.closed {
			time.Sleep(time.Millisecond) // the other side reads them
		}
		if c.closed {
			_ = c.Conn.Close()
		}
	}
}

// lateConn is a connection whose bytes can be delayed. The lock of late protects the waiting bytes.
type lateConn struct {
	net.Conn
	late   *Late
	bytes  []byte
	waits  bool
	closed bool
}

func (c *lateConn) Write(p []byte) (int, error) {
	c.late.mu.Lock()
	if !c.late.on {
		c.late.mu.Unlock()
		return c.Conn.Write(p)
	}
	defer c.late.mu.Unlock()
	c.wait()
	c.bytes = append(c.bytes, p...)
	return len(p), nil
}

// wait registers the connection, so that Release sends its bytes.
func (c *lateConn) wait() {
	if !c.waits {
		c.waits = true
		c.late.conns = append(c.late.conns, c)
	}
}

func (c *lateConn) Close() error {
	c.late.mu.Lock()
	if !c.late.on {
		c.late.mu.Unlock()
		return c.Conn.Close()
	}
	defer c.late.mu.Unlock()
	c.wait()
	c.closed = true
	return nil
}
