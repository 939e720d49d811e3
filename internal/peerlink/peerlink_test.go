package peerlink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/peerlink/lan"
)

// node is a node of the tests. It counts the requests that it gets, and answers them.
type node struct {
	t    *testing.T
	id   model.NodeID
	end  *Endpoint
	net  *Net
	logs *safeBuffer
	stop func() // ends the node; the end of the test calls it too

	answer func(r *Request) // if nil, the node answers with the body of the request
	full   chan struct{}    // if set, requests wait for room until it is closed
	losing chan struct{}    // if set, HandleLoss waits until it is closed

	mu     sync.Mutex
	seen   map[string]int
	notes  []string
	losses int
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (n *node) HandleRequest(_ context.Context, r *Request, taken func()) {
	n.mu.Lock()
	n.seen[string(r.Body)]++
	n.mu.Unlock()
	if full := n.full; full != nil && string(r.Body) != "passes" {
		go func() {
			<-full
			taken()
			r.Reply(0, func(dst []byte) []byte { return dst })
		}()
		return
	}

	taken()
	if n.answer != nil {
		n.answer(r)
		return
	}
	body := r.Body
	r.Reply(len(body), func(dst []byte) []byte { return append(append(dst, "re:"...), body...) })
}

func (n *node) HandleNote(_ context.Context, _ model.NodeID, body []byte, taken func()) {
	taken()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notes = append(n.notes, string(body))
}

func (n *node) HandleLoss(model.NodeID) {
	if n.losing != nil {
		<-n.losing
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.losses++
}

func (n *node) count(body string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[body]
}

func (n *node) peer() Peer {
	return Peer{Node: n.id, Address: n.end.Address(), Fingerprint: n.end.Fingerprint()}
}

// nodeID returns the id of a node of the tests; ids are in the order of their numbers.
func nodeID(n byte) model.NodeID { return model.NodeID{n} }

// open opens a node that runs until the test ends. change may change its member.
func open(t *testing.T, l *lan.LAN, number byte, change func(*Member)) *node {
	t.Helper()
	n := &node{t: t, id: nodeID(number), seen: map[string]int{}, logs: &safeBuffer{}}
	var err error
	n.end, err = Listen(Config{Listener: l.Listen(fmt.Sprint("host", number)), Dial: l.Dial, Log: slog.New(slog.NewTextHandler(n.logs, nil))})
	if err != nil {
		t.Fatal(err)
	}

	m := Member{Self: n.id, Cluster: "c", Schema: 7, Handler: n, LookAround: func() {}}
	if change != nil {
		change(&m)
	}
	n.net = n.end.Join(m)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.net.Run(ctx)
	}()

	n.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := n.end.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(n.stop)
	return n
}

// meet makes nodes known to each other, and waits until they are connected.
func meet(nodes ...*node) {
	peers := make([]Peer, len(nodes))
	for i, n := range nodes {
		peers[i] = n.peer()
	}
	for _, n := range nodes {
		n.net.SetPeers(peers)
	}
	for _, n := range nodes {
		for _, p := range peers {
			for p.Node != n.id && !n.net.Connected(p.Node) {
				time.Sleep(firstPause)
			}
		}
	}
}

// inLAN runs a test in virtual time.
func inLAN(t *testing.T, do func(t *testing.T, l *lan.LAN)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { do(t, &lan.LAN{}) })
}

func (n *node) mustCall(to *node, body string) {
	n.t.Helper()
	got, link, err := n.net.Call(n.t.Context(), to.id, []byte(body))
	if err != nil || string(got) != "re:"+body || link.IsZero() {
		n.t.Fatalf("%q: %q over %s, %v", body, got, link, err)
	}
}

// Two nodes have one connection. It carries requests and notes both ways, each once and in order.
func TestBothWays(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		a, b := open(t, l, 1, nil), open(t, l, 2, nil)
		if _, _, err := a.net.Call(t.Context(), b.id, nil); !errors.Is(err, ErrUnsent) {
			t.Errorf("without a connection: %v", err)
		}
		meet(a, b)
		synctest.Wait()

		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() { a.mustCall(b, fmt.Sprint("a", i)) })
			wg.Go(func() { b.mustCall(a, fmt.Sprint("b", i)) })
		}
		for i := range 200 {
			if !a.net.Note(b.id, []byte(fmt.Sprint(i))) {
				t.Error("no credit")
			}
		}
		wg.Wait()
		synctest.Wait()
		for i, note := range b.notes {
			if note != fmt.Sprint(i) {
				t.Fatalf("note %d is %s", i, note)
			}
		}
		if len(b.notes) != 200 || len(a.seen) != 200 || len(b.seen) != 200 || a.losses+b.losses > 0 {
			t.Errorf("%d notes, %d and %d requests, %d losses", len(b.notes), len(a.seen), len(b.seen), a.losses+b.losses)
		}

		// A quiet connection stays open. It ends when one side removes the other from its list of
		// live nodes.
		time.Sleep(time.Minute)
		a.mustCall(b, "later")
		b.net.SetPeers([]Peer{b.peer()})
		synctest.Wait()
		if b.net.Connected(a.id) || a.losses == 0 || b.losses == 0 {
			t.Error("a node without a lease is still connected")
		}
		if _, _, err := b.net.Call(t.Context(), a.id, []byte("x")); !errors.Is(err, ErrUnsent) {
			t.Errorf("a call to a node without a lease: %v", err)
		}
	})
}

// The other side forgets a caller that gives up, even if the request of that caller still waits
// there.
func TestCancel(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		a, b := open(t, l, 1, nil), open(t, l, 2, nil)
		var canceled atomic.Int32
		b.answer = func(r *Request) { r.OnCancel(func() { canceled.Add(1) }) }
		meet(a, b)
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := a.net.Call(ctx, b.id, []byte("x")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that gave up: %v", err)
		}
		synctest.Wait()
		if canceled.Load() != 1 {
			t.Error("the other side still waits")
		}

		// All requests end with the connection.
		go a.net.Call(t.Context(), b.id, []byte("y")) //nolint:errcheck // it is lost
		synctest.Wait()
		b.net.SetPeers(nil)
		synctest.Wait()
		if canceled.Load() != 2 {
			t.Error("a request has outlived its connection")
		}
	})
}

// A caller may give up at the moment when its request leaves the queue. The other side then forgets
// the request too.
func TestCancelWhenTheRequestLeavesTheQueue(t *testing.T) {
	t.Parallel()
	c := newConn(nil, nodeID(1), model.RunID{1}, stream{})
	for _, it := range []item{{kind: itemRequest, number: 1}, {kind: itemRequest, number: 2}} {
		if err := c.receive(it); err != nil {
			t.Fatal(err)
		}
	}
	_, r, ok := c.next()
	if !ok || r == nil || !r.IsWaiting() {
		t.Fatalf("the first request is %+v, %v", r, ok)
	}
	for number := range uint64(2) {
		if err := c.receive(item{kind: itemCancel, number: number + 1}); err != nil {
			t.Fatal(err)
		}
	}

	if r.IsWaiting() {
		t.Error("the canceled request still waits")
	}
	canceled := make(chan struct{})
	r.OnCancel(func() { close(canceled) })
	<-canceled
	if it, r, ok := c.next(); !ok || r != nil || it.kind != itemCancel || len(c.serving) != 0 {
		t.Errorf("the second request is %+v %+v, %v; %d requests are served", it, r, ok, len(c.serving))
	}
}

// cutting is a connection that breaks at one of its writes.
type cutting struct {
	net.Conn
	left  *atomic.Int64 // writes until it breaks
	after bool          // the write itself still arrives
}

func (c cutting) Write(p []byte) (int, error) {
	if c.left.Add(-1) != 0 {
		return c.Conn.Write(p)
	}
	if c.after {
		_, _ = c.Conn.Write(p)
	}
	_ = c.Conn.Close()
	return 0, io.ErrClosedPipe
}

// The test repeats an exchange and breaks the connection at another write each time, before or
// after the write. The request of a caller that gets a reply was served once. With ErrUnsent it was
// not served, and with ErrLost it was served at most once. Afterwards the nodes connect again.
func TestBreaks(t *testing.T) {
	t.Parallel()
	for k := range int64(16) {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprint(k, after), func(t *testing.T) {
				inLAN(t, func(t *testing.T, l *lan.LAN) {
					var left atomic.Int64
					left.Store(k + 1)
					l.Bend(func(c net.Conn) net.Conn { return cutting{c, &left, after} })
					a, b := open(t, l, 1, nil), open(t, l, 2, nil)
					meet(a, b)
					synctest.Wait()

					for i := range 12 {
						from, to := a, b
						if i%2 == 1 {
							from, to = b, a
						}
						body := fmt.Sprint(i)
						_, _, err := from.net.Call(t.Context(), to.id, []byte(body))
						switch n := to.count(body); {
						case err == nil && n != 1, errors.Is(err, ErrUnsent) && n != 0, errors.Is(err, ErrLost) && n > 1:
							t.Errorf("request %d was served %d times: %v", i, n, err)
						case err != nil && !errors.Is(err, ErrUnsent) && !errors.Is(err, ErrLost):
							t.Errorf("request %d: %v", i, err)
						}
					}

					time.Sleep(10 * time.Second)
					a.mustCall(b, "again")
					b.mustCall(a, "again")
				})
			})
		}
	}
}

// A connection breaks, and the nodes connect again. The handler gets nothing over the new
// connection before it has handled the loss of the old one. Otherwise it could take the loss for a
// loss of the new connection.
func TestLossComesFirst(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		var left atomic.Int64
		left.Store(1 << 40)
		l.Bend(func(c net.Conn) net.Conn { return cutting{c, &left, false} })
		a, b := open(t, l, 1, nil), open(t, l, 2, nil)
		meet(a, b)
		synctest.Wait()
		a.mustCall(b, "first")
		b.mustCall(a, "first")

		for _, n := range []*node{a, b} {
			n.losing = make(chan struct{})
		}
		left.Store(1) // the next write breaks the connection
		if _, _, err := a.net.Call(t.Context(), b.id, []byte("lost")); err == nil {
			t.Fatal("the connection has not broken")
		}
		close(a.losing) // only b handles the loss late
		time.Sleep(10 * time.Second)
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			a.mustCall(b, "second")
		}()
		synctest.Wait()
		if b.count("second") > 0 {
			t.Error("the handler gets a request of the new connection before it has handled the loss of the old one")
		}
		close(b.losing)
		<-answered
	})
}

// mute is a connection that loses all writes after some moment.
type mute struct {
	net.Conn
	lost *atomic.Bool
}

func (m mute) Write(p []byte) (int, error) {
	if m.lost.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// Both sides notice a connection over which nothing arrives any longer, well before a lease ends.
func TestHalfOpen(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		var lost atomic.Bool
		l.Bend(func(c net.Conn) net.Conn { return mute{c, &lost} })
		a, b := open(t, l, 1, nil), open(t, l, 2, nil)
		meet(a, b)
		synctest.Wait()
		a.mustCall(b, "first")
		lost.Store(true)
		begun := time.Now()
		if _, link, err := a.net.Call(t.Context(), b.id, []byte("x")); !errors.Is(err, ErrLost) || link.IsZero() || b.count("x") > 0 {
			t.Errorf("a lost request: %s, %v", link, err)
		}
		if d := time.Since(begun); d > silence+beat {
			t.Errorf("it took %s to notice", d)
		}
		lost.Store(false)
		time.Sleep(10 * time.Second)
		a.mustCall(b, "second")
	})
}

// A node refuses connections of processes that are not its peers, and says why. Its other
// connections are not affected.
func TestRefusals(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		a, b := open(t, l, 1, nil), open(t, l, 200, nil)
		meet(a, b)
		synctest.Wait()
		a.mustCall(b, "before")

		// Strangers come one after another. The log of b has one line per interval, so it names a
		// stranger for certain only while no other one dials.
		stranger := func(number byte, listed bool, change func(*Member), to Peer) string {
			s := open(t, l, number, change)
			defer s.stop()
			if listed {
				b.net.SetPeers([]Peer{a.peer(), b.peer(), s.peer()})
			}
			s.net.SetPeers([]Peer{to})
			time.Sleep(30 * time.Second)
			if s.net.Connected(b.id) {
				t.Errorf("node %d is connected", number)
			}
			return s.logs.String()
		}
		expect := func(logs, text string) {
			t.Helper()
			if !strings.Contains(logs, text) {
				t.Errorf("no %q in %s", text, logs)
			}
		}

		expect(stranger(3, true, func(m *Member) { m.Cluster = "other" }, b.peer()), "the node refuses cluster other; this node belongs to cluster c")
		expect(stranger(4, true, func(m *Member) { m.Schema = 8 }, b.peer()), "the node refuses version 8 of the schema; this node has opened version 7")

		// Unknown processes learn nothing about the node. Its own log has the reason.
		plain := func(logs string) {
			t.Helper()
			expect(logs, "the node refuses the connection; the log of that node says why")
			if strings.Contains(logs, "cluster c") || strings.Contains(logs, "certificate") || strings.Contains(logs, "schema") {
				t.Errorf("a stranger learns too much: %s", logs)
			}
		}
		plain(stranger(5, false, nil, b.peer()))
		plain(stranger(1, false, nil, b.peer())) // the id of node a
		plain(stranger(9, false, func(m *Member) { m.Cluster = "x" }, b.peer()))
		plain(stranger(10, false, func(m *Member) { m.Schema = 3 }, b.peer()))
		expect(b.logs.String(), "refuses node "+nodeID(5).String()+": no live node has this id and this certificate")

		wrong := b.peer()
		wrong.Fingerprint = a.end.Fingerprint()
		expect(stranger(6, true, nil, wrong), "another process listens there")
		wrong = b.peer()
		wrong.Node = nodeID(90) // the address of b in the row of another node
		expect(stranger(7, true, nil, wrong), "this is node "+b.id.String())
		expect(stranger(8, true, nil, Peer{Node: b.id, Address: "nowhere", Fingerprint: b.end.Fingerprint()}), "connection refused")

		// A health check that only opens the port leaves no line in the log.
		time.Sleep(logEvery)
		before := b.logs.String()
		c, err := l.Dial(t.Context(), b.end.Address())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		synctest.Wait()
		if after := b.logs.String(); after != before {
			t.Errorf("a connection that ends at once is logged: %s", after[len(before):])
		}

		for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", strings.Repeat("\x16\x03\x01", 100), ""} {
			c, err := l.Dial(t.Context(), b.end.Address())
			if err != nil {
				t.Fatal(err)
			}
			go io.Copy(io.Discard, c) //nolint:errcheck // it ends with the connection
			_, _ = c.Write([]byte(garbage))
			time.Sleep(handshakeTime)
			_ = c.Close()
		}
		expect(b.logs.String(), "refused a connection to the port for other nodes")
		a.mustCall(b, "after")
		if a.losses > 0 {
			t.Error("the connection was lost")
		}
	})
}

// A node that just registered is accepted when the list of peers arrives.
func TestNewcomer(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		asked := make(chan struct{}, 10)
		a := open(t, l, 1, nil)
		b := open(t, l, 2, func(m *Member) { m.LookAround = func() { asked <- struct{}{} } })
		a.net.SetPeers([]Peer{b.peer()})
		<-asked
		meet(a, b)
		synctest.Wait()
		a.mustCall(b, "x")
	})
}

// A side sends only as much as the other side has room for.
func TestCredit(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		a, b := open(t, l, 1, nil), open(t, l, 2, nil)
		b.full = make(chan struct{})
		b.answer = func(r *Request) { r.Reply(0, func(dst []byte) []byte { return dst }) }
		meet(a, b)
		synctest.Wait()

		var wg sync.WaitGroup
		for n := range creditItems {
			if n == creditItems-1 {
				// The requests that wait for room do not block this one.
				if _, _, err := a.net.Call(t.Context(), b.id, []byte("passes")); err != nil {
					t.Error(err)
				}
			}
			wg.Go(func() {
				if _, _, err := a.net.Call(t.Context(), b.id, []byte("x")); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if a.net.Note(b.id, []byte("x")) {
			t.Error("a note without credit was sent")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := a.net.Call(ctx, b.id, []byte("x")); !fault.Is(err, fault.Exhausted) {
			t.Errorf("a request without credit: %v", err)
		}
		close(b.full)
		wg.Wait()
		synctest.Wait()
		b.full = nil

		// Large items are sent one after the other, no matter how much credit is left.
		for i := range 2 {
			if _, _, err := a.net.Call(t.Context(), b.id, make([]byte, maxItem-i)); err != nil {
				t.Errorf("a large request: %v", err)
			}
		}
		if _, _, err := a.net.Call(t.Context(), b.id, make([]byte, maxItem+1)); !errors.Is(err, ErrUnsent) {
			t.Errorf("a request that is too large: %v", err)
		}
		b.answer = func(r *Request) {
			r.Reply(0, func(dst []byte) []byte { return append(dst, make([]byte, maxItem+1)...) })
		}
		if _, _, err := a.net.Call(t.Context(), b.id, nil); !errors.Is(err, ErrLost) {
			t.Errorf("a reply that is too large: %v", err)
		}
		if a.losses > 0 {
			t.Error("the connection was lost")
		}
	})
}
