package node

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/pooled"
)

// Limits of connections whose protocol is not known yet.
const (
	// sniffTime is how long a connection may take to show its protocol.
	sniffTime = 10 * time.Second
	// maxUnknown is how many connections may have an unknown protocol at the same time. The server
	// accepts no further ones until one of these has shown its protocol.
	maxUnknown = 1000
)

// preface is the beginning of a connection that speaks HTTP/2, and so gRPC.
const preface = "PRI * HTTP/2.0"

// splitter accepts connections of one address. It hands connections that speak gRPC to one server
// and connections that speak HTTP/1.1 to another.
//
// With TLS the client chooses the protocol in the handshake. A client that offers both, such as a
// browser, gets HTTP/1.1.
type splitter struct {
	listener net.Listener
	tls      *tls.Config      // nil for plain text
	counts   *connectionCount // nil for no limit
	grpc     *branch
	http     *branch
	room     chan struct{}
	stop     context.Context //nolint:containedctx // ends with the splitter
	close    context.CancelFunc
	ended    sync.WaitGroup
}

func newSplitter(l net.Listener, config *tls.Config, counts *connectionCount) *splitter {
	s := &splitter{listener: l, counts: counts, room: make(chan struct{}, maxUnknown)}
	s.stop, s.close = context.WithCancel(context.Background())
	s.grpc, s.http = newBranch(s), newBranch(s)
	if config != nil {
		s.tls = config.Clone()
		s.tls.NextProtos = []string{"http/1.1", "h2"} // in the order of preference
		s.tls.MinVersion = max(s.tls.MinVersion, tls.VersionTLS12)
	}
	s.ended.Go(s.accept)
	return s
}

// accept takes connections until the splitter is closed.
func (s *splitter) accept() {
	for {
		select {
		case s.room <- struct{}{}:
		case <-s.stop.Done():
			return
		}

		conn, err := s.listener.Accept()
		if err != nil {
			if s.stop.Err() != nil || errors.Is(err, net.ErrClosed) {
				s.close()
				return
			}
			<-s.room
			select { // the error may pass, such as too many open files
			case <-time.After(50 * time.Millisecond):
			case <-s.stop.Done():
				return
			}
			continue
		}

		conn, ok := s.counts.admit(conn)
		if !ok {
			<-s.room
			continue
		}
		s.ended.Go(func() {
			defer func() { <-s.room }()
			s.sort(conn)
		})
	}
}

// sort finds out the protocol of a connection and hands the connection to its server. It closes a
// connection that does not show its protocol in time.
func (s *splitter) sort(conn net.Conn) {
	ctx, cancel := context.WithTimeout(s.stop, sniffTime)
	defer cancel()
	sorted, isGRPC, err := s.sniff(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return
	}

	to := s.http
	if isGRPC {
		to = s.grpc
	}

	select {
	case to.conns <- sorted:
	case <-s.stop.Done():
		_ = conn.Close()
	}
}

func (s *splitter) sniff(ctx context.Context, conn net.Conn) (sorted net.Conn, isGRPC bool, err error) {
	if s.tls != nil {
		secure := tls.Server(conn, s.tls)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, false, err
		}
		return secure, secure.ConnectionState().NegotiatedProtocol == "h2", nil
	}

	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	plain := pooled.New(conn)
	begin, err := plain.Peek(len(preface))
	if !stop() || err != nil && len(begin) == 0 {
		return nil, false, errors.Join(err, ctx.Err())
	}
	return plain, string(begin) == preface, nil
}

// Close stops accepting. Connections that were handed on belong to their servers.
func (s *splitter) Close() error {
	s.close()
	err := s.listener.Close()
	s.ended.Wait()
	return err
}

// branch is the listener of one of the servers.
type branch struct {
	from  *splitter
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newBranch(s *splitter) *branch {
	return &branch{from: s, conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept waits for a connection of this server.
func (b *branch) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.done:
	case <-b.from.stop.Done():
	}
	return nil, net.ErrClosed
}

// Close ends this branch. The other branch continues.
func (b *branch) Close() error {
	b.once.Do(func() { close(b.done) })
	return nil
}

// Addr is the address of the splitter.
func (b *branch) Addr() net.Addr { return b.from.listener.Addr() }
