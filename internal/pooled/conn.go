// Package pooled reads from network connections through buffers that the connections share.
//
// A connection that waits for bytes needs no buffer. A server with 10,000 connections that wait has
// a few buffers instead of 10,000, and a busy connection can have a larger one.
package pooled

import (
	"bytes"
	"io"
	"net"
	"sync"
	"syscall"
)

const (
	// bufferSize is the size of a shared buffer. A Read of at least this many bytes uses no buffer.
	bufferSize = 16 << 10
	// ownSize is the buffer of a connection that cannot share one.
	ownSize = 4 << 10
)

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// Conn is a connection that has a buffer only while there are bytes that its reader has not taken.
// Like a bufio.Reader, it serves one reader at a time.
type Conn struct {
	net.Conn

	// raw waits for bytes without a buffer; nil if the connection cannot do so.
	raw  syscall.RawConn
	pull func(fd uintptr) bool // reads from raw; returns false if the connection must wait
	err  error                 // the error of the last pull

	shared *[bufferSize]byte // holds rest; nil while there is none
	own    []byte            // holds rest if raw is nil
	rest   []byte
}

// New returns a connection that reads from c. From then on the caller must not read from c itself.
func New(c net.Conn) *Conn {
	p := &Conn{Conn: c}
	if s, ok := c.(syscall.Conn); ok && canPull {
		if raw, err := s.SyscallConn(); err == nil {
			p.raw, p.pull = raw, p.take
		}
	}
	return p
}

// Read returns bytes as soon as there are some.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if len(c.rest) == 0 {
		if len(b) >= bufferSize { // read into b directly: a buffer would cost a copy
			return c.Conn.Read(b)
		}
		if err := c.fill(); err != nil {
			return 0, err
		}
	}

	n := copy(b, c.rest)
	c.skip(n)
	return n, nil
}

// Peek waits for the first n bytes of the connection and returns them. A later Read returns them
// again. It returns fewer bytes, and an error, if the others do not arrive. The caller must call it
// before the first Read.
func (c *Conn) Peek(n int) ([]byte, error) {
	for len(c.rest) < n {
		if err := c.more(); err != nil {
			return c.rest, err
		}
	}
	return c.rest[:n], nil
}

// fill waits for bytes and keeps them. The caller calls it only when the connection holds no bytes.
func (c *Conn) fill() error {
	if c.raw == nil {
		if c.own == nil {
			c.own = make([]byte, ownSize)
		}
		n, err := c.Conn.Read(c.own)
		c.rest = c.own[:n]
		if n > 0 {
			return nil // the next read returns the error again
		}
		return err
	}

	if err := c.raw.Read(c.pull); err != nil {
		return err
	}
	return c.err
}

// more waits for bytes and appends them to the bytes that the connection holds.
func (c *Conn) more() error {
	if len(c.rest) == 0 {
		return c.fill()
	}
	before := bytes.Clone(c.rest)
	c.skip(len(c.rest))
	err := c.fill()
	together := append(before, c.rest...)
	c.skip(len(c.rest))
	c.rest = together
	return err
}

// skip drops n bytes. When no bytes are left, it gives the buffer back.
func (c *Conn) skip(n int) {
	if c.rest = c.rest[n:]; len(c.rest) > 0 {
		return
	}
	c.rest = nil
	if c.shared != nil {
		buffers.Put(c.shared)
		c.shared = nil
	}
}

// take reads what has arrived into a shared buffer. It returns false when there is nothing.
func (c *Conn) take(fd uintptr) bool {
	buf, _ := buffers.Get().(*[bufferSize]byte)
	n, again, err := readNow(fd, buf[:])
	switch {
	case again:
		buffers.Put(buf)
		return false
	case n <= 0:
		buffers.Put(buf)
		if c.err = err; err == nil {
			c.err = io.EOF
		}
		return true
	}

	c.err, c.shared, c.rest = nil, buf, buf[:n]
	return true
}

// Listener accepts connections that share buffers.
type Listener struct{ net.Listener }

// Accept waits for a connection.
func (l Listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if _, ok := c.(syscall.Conn); !ok || !canPull {
		return c, nil // the connection has its own buffers, as with TLS, or is a Conn already
	}
	return New(c), nil
}
