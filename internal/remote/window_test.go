package remote_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/perdure/perdure/internal/remote"
)

// tapped is a connection that keeps what is written to it.
type tapped struct {
	net.Conn

	mu      sync.Mutex
	written bytes.Buffer
}

// Write keeps what is written.
func (c *tapped) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.written.Write(b)
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// frames counts the written frames of HTTP/2 by type.
func (c *tapped) frames() map[byte]int {
	const preface, header = 24, 9
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[byte]int{}
	for rest := c.written.Bytes()[preface:]; len(rest) >= header; {
		size := header + int(binary.BigEndian.Uint32(rest)>>8)
		n[rest[3]]++
		rest = rest[min(size, len(rest)):]
	}
	return n
}

// Messages cause no pings. gRPC could measure the connection with pings, but that would wake both
// processes two more times for each message.
func TestCallsCauseNoPings(t *testing.T) {
	t.Parallel()
	const data, ping, calls = 0, 6, 100
	w := newWorld(t)
	var conn *tapped
	cfg := w.pipe.through(remote.Config{Token: key})
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, a string) (net.Conn, error) {
		c, err := dial(ctx, a)
		if err == nil {
			conn = &tapped{Conn: c}
			c = conn
		}
		return c, err
	}
	far, err := remote.Dial(w.ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = far.Close() }()
	for range calls {
		w.must(far.Reach(w.ctx))
	}

	// On a very slow machine, some pings come from connections that were silent.
	if n := conn.frames(); n[data] < calls || n[ping] > calls/4 {
		t.Errorf("%d calls wrote these frames, by type: %v", calls, n)
	}
}
