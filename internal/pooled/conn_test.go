package pooled_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/iotest"
	"time"

	"github.com/perdure/perdure/internal/pooled"
)

// pair returns both ends of a connection.
func pair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	far, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// ends make connections that can share buffers, and connections that cannot.
var ends = map[string]func(net.Conn) net.Conn{
	"shared": func(c net.Conn) net.Conn { return c },
	"own":    func(c net.Conn) net.Conn { return struct{ net.Conn }{c} },
}

// Whatever the sizes of the reads are, the bytes arrive in order and once.
func TestBytesComeInOrder(t *testing.T) {
	t.Parallel()
	want := make([]byte, 1<<18)
	_, _ = rand.Read(want)
	for name, end := range ends {
		for _, size := range []int{1, 9, 4 << 10, 100 << 10} {
			near, far := pair(t)
			go func() {
				for rest := want; len(rest) > 0; {
					n := min(len(rest), 1+len(rest)%7000)
					if _, err := far.Write(rest[:n]); err != nil {
						return
					}
					rest = rest[n:]
				}
				_ = far.Close()
			}()

			c := pooled.New(end(near))
			begin, err := c.Peek(14)
			if err != nil || !bytes.Equal(begin, want[:14]) {
				t.Fatalf("%s: peeked at %x, %v", name, begin, err)
			}
			got, buf := []byte(nil), make([]byte, size)
			for err == nil {
				var n int
				n, err = c.Read(buf)
				got = append(got, buf[:n]...)
			}
			if !bytes.Equal(got, want) || !errors.Is(err, io.EOF) {
				t.Errorf("%s, reads of %d: %d bytes of %d, %v", name, size, len(got), len(want), err)
			}
		}
	}
}

// Peek waits for all bytes and does not take them. If some bytes do not arrive, it returns the
// others.
func TestPeekTakesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		near, far := pair(t)
		c := pooled.New(end(near))
		go func() {
			for _, b := range []byte("PRI * HTT") {
				_, _ = far.Write([]byte{b})
			}
			_ = far.Close()
		}()
		if begin, err := c.Peek(14); string(begin) != "PRI * HTT" || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %q, %v", name, begin, err)
		}
		if got, err := io.ReadAll(c); string(got) != "PRI * HTT" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// A read ends at its deadline and when the connection is closed. After a deadline, reads can
// continue.
func TestReadEnds(t *testing.T) {
	t.Parallel()
	for name, end := range ends {
		near, far := pair(t)
		c := pooled.New(end(near))
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 9)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v, want a deadline", name, err)
		}
		_ = c.SetReadDeadline(time.Time{})
		_, _ = far.Write([]byte("x"))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Errorf("%s: %v after the deadline", name, err)
		}

		read := make(chan error)
		go func() {
			_, err := c.Read(make([]byte, 9))
			read <- err
		}()
		_ = c.Close()
		if err := <-read; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v, want a closed connection", name, err)
		}
	}
}

// The reader gets all bytes that arrived before an error, and then the error.
func TestErrorComesLast(t *testing.T) {
	t.Parallel()
	near, _ := pair(t)
	broken := errors.New("broken")
	c := pooled.New(scripted{near, iotest.DataErrReader(io.MultiReader(bytes.NewReader([]byte("abc")), iotest.ErrReader(broken)))})
	if got, err := io.ReadAll(c); string(got) != "abc" || !errors.Is(err, broken) {
		t.Errorf("%q, %v", got, err)
	}
}

// scripted is a connection whose reads return what the test has set.
type scripted struct {
	net.Conn

	from io.Reader
}

func (s scripted) Read(b []byte) (int, error) { return s.from.Read(b) }

// A reset of the connection is reported as an error of the network.
func TestResetIsAnError(t *testing.T) {
	t.Parallel()
	near, far := pair(t)
	c := pooled.New(near)
	if tcp, ok := far.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = far.Close()
	var op *net.OpError
	if _, err := c.Read(make([]byte, 9)); !errors.As(err, &op) {
		t.Errorf("%v, want an error of the network", err)
	}
}

// A connection that waits has no buffer, so many of them take no memory except for their own
// values.
func TestWaitingTakesNoBuffer(t *testing.T) {
	near, far := pair(t)
	c := pooled.New(near)
	buf := make([]byte, 9)
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := far.Write(buf); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			t.Fatal(err)
		}
		if c.Holds() {
			t.Fatal("a connection without bytes holds a buffer")
		}
	}); n > 1 {
		t.Errorf("a read allocates %.0f times", n)
	}
}
