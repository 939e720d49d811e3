package peerlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/peerlink/lan"
)

// slow is a connection that takes a second for each MiB.
type slow struct{ net.Conn }

func (s slow) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(len(p)) * time.Second >> 20)
	return s.Conn.Write(p)
}

// The largest request passes a slow network, although it takes longer than a connection may be
// silent.
func TestSlowNetwork(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		l.Bend(func(c net.Conn) net.Conn { return slow{c} })
		a, b := open(t, l, 1, nil), open(t, l, 2, nil)
		b.answer = func(r *Request) { r.Reply(0, func(dst []byte) []byte { return append(dst, "ok"...) }) }
		meet(a, b)
		synctest.Wait()

		begun := time.Now()
		if got, _, err := a.net.Call(t.Context(), b.id, make([]byte, maxItem)); err != nil || string(got) != "ok" {
			t.Errorf("a large request: %q, %v", got, err)
		}
		if took := time.Since(begun); took < 2*silence {
			t.Errorf("the network is not slow: %s", took)
		}
		if a.losses+b.losses > 0 {
			t.Error("the connection was lost")
		}
	})
}

// stuck is a connection that works at first, and from some moment on takes no bytes for a while.
type stuck struct {
	net.Conn
	on *atomic.Bool
}

func (s stuck) Write(p []byte) (int, error) {
	if s.on.Load() {
		time.Sleep(silence)
	}
	return s.Conn.Write(p)
}

// A caller learns immediately that its connection is lost, even if the connection has stopped
// accepting bytes.
func TestLossOfAStuckConnection(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		var on atomic.Bool
		l.Bend(func(c net.Conn) net.Conn { return stuck{c, &on} })
		a, b := open(t, l, 1, nil), open(t, l, 2, nil)
		b.answer = func(*Request) {}
		meet(a, b)
		synctest.Wait()

		var lost time.Time
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, _, err := a.net.Call(t.Context(), b.id, []byte("x")); !errors.Is(err, ErrLost) {
				t.Errorf("a lost request: %v", err)
			}
			lost = time.Now()
		})
		synctest.Wait()
		on.Store(true)
		begun := time.Now()
		b.net.SetPeers(nil)
		wg.Wait()
		if d := lost.Sub(begun); d >= silence {
			t.Errorf("it took %s to notice", d)
		}
	})
}

// If replies are larger than announced, the sender splits them over frames that the other side
// accepts. A request that waits for its reply does not keep its body.
func TestRepliesThatAreLargerThanAnnounced(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		const count, size = 100, 512 << 10
		a, b := open(t, l, 1, nil), open(t, l, 2, nil)
		waiting := make(chan *Request, count)
		b.answer = func(r *Request) { waiting <- r }
		meet(a, b)
		synctest.Wait()

		var wg sync.WaitGroup
		for range count {
			wg.Go(func() {
				if got, _, err := a.net.Call(t.Context(), b.id, []byte("x")); err != nil || len(got) != size {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		}
		synctest.Wait()
		for range count {
			r := <-waiting
			if r.Body != nil {
				t.Fatal("a request that waits keeps its body")
			}
			r.Reply(0, func(dst []byte) []byte { return append(dst, make([]byte, size)...) })
		}
		wg.Wait()
		if a.losses+b.losses > 0 {
			t.Error("the connection was lost")
		}
	})
}

// A peer that breaks the rules of the frames loses its connection, and no other node notices.
func TestHostileFrames(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan.LAN) {
		a, b, c := open(t, l, 1, nil), open(t, l, 2, nil), open(t, l, 3, nil)
		held := make(chan struct{})
		b.answer = func(*Request) { <-held }
		meet(a, b, c)
		synctest.Wait()

		framed := func(items ...item) []byte {
			frame := make([]byte, lengthBytes)
			for i := range items {
				frame = appendItem(frame, &items[i])
			}
			binary.BigEndian.PutUint32(frame, uint32(len(frame)-lengthBytes))
			return frame
		}
		long := framed(item{kind: itemNote, body: []byte("x")})
		long[lengthBytes+headerBytes-1]++
		flood := make([]item, creditItems+2)
		for i := range flood {
			flood[i] = item{kind: itemRequest, number: uint64(i + 1000)}
		}
		hostile := map[string][]byte{
			"a frame that is too large":      {0xff, 0xff, 0xff, 0xff},
			"a frame that ends in an item":   {0, 0, 0, 1, 'q'},
			"an item longer than its frame":  long,
			"an unknown kind":                framed(item{kind: '?'}),
			"credit that was not used":       framed(item{kind: itemCredit, number: 1, body: make([]byte, 8)}),
			"credit of a wrong size":         framed(item{kind: itemCredit, body: []byte("x")}),
			"more requests than it may send": framed(flood...),
		}

		for name, bytes := range hostile {
			lost := b.lost()
			if _, err := a.net.to(b.id).raw.Write(bytes); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
			if name == "more requests than it may send" {
				close(held)
				synctest.Wait()
			}
			if b.lost() == lost {
				t.Errorf("%s: the connection is still there", name)
			}
			for !a.net.Connected(b.id) {
				time.Sleep(firstPause)
			}
			synctest.Wait()
		}

		// Replies and cancels for requests that do not exist have no effect.
		lost := b.lost()
		if _, err := a.net.to(b.id).raw.Write(framed(item{kind: itemReply, number: 77}, item{kind: itemNone, number: 78}, item{kind: itemCancel, number: 79})); err != nil {
			t.Error(err)
		}
		b.answer = nil
		c.mustCall(b, "other nodes are served")
		a.mustCall(b, "so is this one")
		if b.lost() != lost || c.lost() > 0 {
			t.Error("a connection was lost")
		}
	})
}

func (n *node) lost() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.losses
}

// A node names the rule that a greeting breaks.
func TestGreetings(t *testing.T) {
	t.Parallel()
	m := Member{Self: nodeID(9), Cluster: "c", Schema: 7}
	good := hello{Protocol: protocol, Cluster: "c", Schema: 7, From: nodeID(1), To: nodeID(9)}
	for want, change := range map[string]func(h *hello){
		"":                                 func(*hello) {},
		fmt.Sprint("version ", protocol+1): func(h *hello) { h.Protocol++ },
		"cluster d":                        func(h *hello) { h.Cluster = "d" },
		"version 6 of the schema":          func(h *hello) { h.Schema-- },
		"this is node":                     func(h *hello) { h.To = nodeID(8) },
		"the node with the lower id dials": func(h *hello) { h.From = nodeID(10) },
		"connection from node " + nodeID(9).String(): func(h *hello) { h.From = nodeID(9) },
	} {
		h := good
		change(&h)
		if got := m.refusal(&h); !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%q: %q", want, got)
		}
	}
}
