package peerlink

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Config configures an endpoint.
type Config struct {
	// Address is where to listen: host:port. Port 0 lets the system choose one.
	Address string
	// Advertise is the address at which other nodes reach this one. Empty means Address.
	Advertise string
	Log       *slog.Logger
	// Listener and Dial replace the network in tests; nil uses TCP.
	Listener net.Listener
	Dial     func(ctx context.Context, address string) (net.Conn, error)
}

// Endpoint is where a process listens for its peers. It lives as long as the process. Each
// incarnation of the node joins it again.
type Endpoint struct {
	cert        tls.Certificate
	fingerprint string
	listener    net.Listener
	advertised  string
	dial        func(ctx context.Context, address string) (net.Conn, error)
	log         sparse
	handshakes  chan struct{} // bounds the connections that have not identified themselves
	wg          sync.WaitGroup
	closed      context.Context //nolint:containedctx // ends when the endpoint is closed
	close       context.CancelFunc

	mu  sync.Mutex
	net *Net // the connections of the current incarnation; nil between two incarnations
}

// maxHandshakes bounds the connections that have not identified themselves. Further ones wait in
// the queue of the operating system.
const maxHandshakes = 64

// Listen creates the identity of the process and listens for peers.
func Listen(cfg Config) (*Endpoint, error) {
	cert, fingerprint, err := newIdentity()
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Dial == nil {
		d := net.Dialer{Timeout: handshakeTime}
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) { return d.DialContext(ctx, "tcp", address) }
	}
	if cfg.Listener == nil {
		if cfg.Listener, err = net.Listen("tcp", cfg.Address); err != nil {
			return nil, fault.New(fault.Unavailable, "listen for other nodes: %w", err)
		}
	}

	e := &Endpoint{
		cert: cert, fingerprint: fingerprint, listener: cfg.Listener, advertised: cfg.Advertise, dial: cfg.Dial, log: sparse{log: cfg.Log}, handshakes: make(chan struct{}, maxHandshakes),
	}
	e.closed, e.close = context.WithCancel(context.Background())
	e.wg.Go(e.accept)
	return e, nil
}

// Address is where other nodes reach the endpoint.
func (e *Endpoint) Address() string {
	if e.advertised != "" {
		return e.advertised
	}
	return e.listener.Addr().String()
}

// Fingerprint returns the fingerprint of the certificate of the process.
func (e *Endpoint) Fingerprint() string { return e.fingerprint }

// Close stops listening and ends the connections that other nodes have opened.
func (e *Endpoint) Close() error {
	e.close()
	err := e.listener.Close()
	e.wg.Wait()
	return err
}

// current returns the member that accepts connections now; nil between two incarnations.
func (e *Endpoint) current() *Net {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.net
}

// accept serves the listener until the endpoint is closed.
func (e *Endpoint) accept() {
	for {
		c, err := e.listener.Accept()
		switch {
		case e.closed.Err() != nil || errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			e.log.warn("cannot accept a connection of another node; the node uses the store", "error", err)
			select { // out of file descriptors, for example
			case <-time.After(acceptPause):
			case <-e.closed.Done():
			}
			continue
		}

		e.handshakes <- struct{}{}
		e.wg.Go(func() {
			e.welcome(c)
		})
	}
}

// welcome is the handshake of the accepting side. After the handshake it serves the connection
// until the connection ends.
func (e *Endpoint) welcome(raw net.Conn) {
	defer raw.Close()
	stop := context.AfterFunc(e.closed, func() { _ = raw.Close() })
	defer stop()
	n, s, h, err := e.meet(raw)
	<-e.handshakes
	switch {
	case err == nil:
		n.serve(newConn(n, h.From, h.Link, s))
	case e.closed.Err() != nil: // this side stops
	case isHangUp(err) || errors.Is(err, errStarting):
		e.log.log.Debug("a connection to the port for other nodes ended during the handshake", "from", raw.RemoteAddr().String(), "error", err)
	default:
		e.log.warn("refused a connection to the port for other nodes", "from", raw.RemoteAddr().String(), "error", err)
	}
}

// errStarting refuses a connection while this node is between two incarnations. The other node
// tries again.
var errStarting = errors.New("this node refuses the connection, because it is starting")

// isHangUp reports whether the other side ended the connection during the handshake: a node that
// stops while it connects, or a health check that only opens the port. In that case this node has
// refused nothing.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// meet finds out which node has connected. If it refuses a known process of the cluster, it sends
// the reason to that process. An unknown process learns at most that this node is starting.
func (e *Endpoint) meet(raw net.Conn) (*Net, stream, *hello, error) {
	c := tls.Server(raw, serverTLS(e.cert))
	r := bufio.NewReaderSize(c, readBuffer)
	if err := c.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return nil, stream{}, nil, err
	}
	if err := c.Handshake(); err != nil {
		return nil, stream{}, nil, err
	}
	var h hello
	if err := readValue(r, &h); err != nil {
		return nil, stream{}, nil, err
	}

	n := e.current()
	if n == nil {
		if err := writeValue(c, welcome{Refusal: "the connection, because it is starting"}); err != nil {
			return nil, stream{}, nil, err
		}
		return nil, stream{}, nil, errStarting
	}
	mark := n.lastMark() // before the other side may send a request
	state := c.ConnectionState()
	fingerprint := presented(&state)
	refusal := n.member.refusal(&h)
	if refusal == "" && !n.isPeer(h.From, fingerprint) {
		refusal = "node " + h.From.String() + ": no live node has this id and this certificate"
	}
	told := refusal
	if refusal != "" && !n.knows(fingerprint) {
		told = plainRefusal
	}

	if err := writeValue(c, welcome{Refusal: told, Marks: true}); err != nil {
		return nil, stream{}, nil, err
	}
	if refusal != "" {
		return nil, stream{}, nil, fault.New(fault.Denied, "this node refuses %s", refusal)
	}
	return n, stream{Conn: c, r: r, marks: h.Marks, mark: mark}, &h, c.SetDeadline(time.Time{})
}

// plainRefusal is the reply to an unknown process. The log of this node has the reason.
const plainRefusal = "the connection; the log of that node says why"

// isBefore reports whether a node has a lower id than another.
func isBefore(a, b model.NodeID) bool { return model.RunID(a).Compare(model.RunID(b)) < 0 }

func itoa(n int) string { return strconv.Itoa(n) }

// sparse logs at most one warning per logEvery, and counts the warnings that it leaves out.
type sparse struct {
	log  *slog.Logger
	mu   sync.Mutex
	last time.Time
	left int
}

// logEvery is the time between two warnings about connections that failed or were refused.
const logEvery = 10 * time.Second

func (s *sparse) warn(text string, args ...any) {
	s.mu.Lock()
	now := time.Now()
	if !s.last.IsZero() && now.Sub(s.last) < logEvery {
		s.left++
		s.mu.Unlock()
		return
	}
	left := s.left
	s.last, s.left = now, 0
	s.mu.Unlock()
	if left > 0 {
		args = append(args, "similar_not_logged", left)
	}
	s.log.Warn(text, args...) //nolint:sloglint // the callers give constants
}
