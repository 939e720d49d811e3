package peerlink

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Peer is another node, as its row in the store describes it.
type Peer struct {
	Node        model.NodeID
	Address     string
	Fingerprint string
}

// Member is an incarnation of a node that uses direct connections.
type Member struct {
	Self    model.NodeID
	Cluster string // the id of the contents of the store
	Schema  int    // the version of the schema
	Handler Handler
	// LookAround asks for a newer list of peers, which arrives by SetPeers. It does not block.
	LookAround func()
}

// Handler receives what other nodes send.
type Handler interface {
	// HandleRequest receives a request. It may answer immediately, later or never, but at most
	// once. It must not block. It calls taken once, when the engine has room for the request. Only
	// a limited number of requests of another node may wait for room.
	HandleRequest(ctx context.Context, r *Request, taken func())
	// HandleNote receives a note. It must not block, and calls taken in the same way.
	HandleNote(ctx context.Context, from model.NodeID, body []byte, taken func())
	// HandleLoss handles the loss of the connection to a node. Notes to that node may be lost. The
	// requests and notes of the next connection to the node come after HandleLoss has returned.
	// HandleLoss must not block.
	HandleLoss(node model.NodeID)
}

// The errors of a call. ErrUnsent means that the other node does not have the request. After
// ErrLost the other node may have the request or not.
var (
	ErrUnsent = fault.New(fault.Unavailable, "there is no connection to the node")
	ErrLost   = fault.New(fault.Unavailable, "the connection to the node was lost before it replied")
)

// Times of a connection.
const (
	acceptPause = 100 * time.Millisecond
	firstPause  = 50 * time.Millisecond // before a node dials again
	longPause   = 5 * time.Second
	// helloPause is how long a handshake waits for a newer list of peers: the dialing node may have
	// registered a moment ago.
	helloPause = 2 * time.Second
)

// Net has the connections of one incarnation.
type Net struct {
	end    *Endpoint
	member Member

	mu      sync.Mutex
	peers   map[model.NodeID]*dialing
	conns   map[model.NodeID]*conn
	changed chan struct{} // closed when the peers change
	// over has a channel for the last connection to each node. It is closed when the handler has
	// handled the loss of that connection.
	over  map[model.NodeID]chan struct{}
	ended bool
	mark  uint64
	early []Peer          // peers that were set before Run
	ctx   context.Context //nolint:containedctx // the context of Run; nil before
	wg    sync.WaitGroup
}

// dialing is a peer. If this node dials the peer, stop ends the dialing.
type dialing struct {
	peer Peer
	stop context.CancelFunc // nil if the peer dials
}

// Join lets an incarnation use the endpoint. Run operates its connections.
func (e *Endpoint) Join(m Member) *Net {
	return &Net{end: e, member: m, peers: map[model.NodeID]*dialing{}, conns: map[model.NodeID]*conn{}, over: map[model.NodeID]chan struct{}{}, changed: make(chan struct{})}
}

// Run holds connections to all peers until ctx ends.
func (n *Net) Run(ctx context.Context) {
	n.mu.Lock()
	n.ctx = ctx
	n.setPeers(n.early)
	n.early = nil
	n.mu.Unlock()
	n.end.mu.Lock()
	n.end.net = n
	n.end.mu.Unlock()

	<-ctx.Done()
	n.end.mu.Lock()
	if n.end.net == n {
		n.end.net = nil
	}
	n.end.mu.Unlock()
	n.mu.Lock()
	n.ended = true
	open := n.conns
	n.conns = map[model.NodeID]*conn{}
	n.mu.Unlock()
	for _, c := range open {
		c.fail(errors.New("this node stops"))
	}
	n.wg.Wait()
}

// SetPeers sets the list of the other nodes that are alive. The node with the lower id dials the
// other.
func (n *Net) SetPeers(all []Peer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.ctx == nil:
		n.early = all
	case !n.ended:
		n.setPeers(all)
	}
}

// setPeers starts to dial new peers, and ends the connections to peers that are gone. The caller
// holds the lock.
func (n *Net) setPeers(all []Peer) {
	live := make(map[model.NodeID]bool, len(all))
	for _, p := range all {
		if p.Node == n.member.Self || p.Address == "" {
			continue
		}
		live[p.Node] = true
		if n.peers[p.Node] != nil { // an incarnation does not change its address
			continue
		}
		d := &dialing{peer: p}
		n.peers[p.Node] = d
		if isBefore(n.member.Self, p.Node) {
			ctx, stop := context.WithCancel(n.ctx)
			d.stop = stop
			n.wg.Go(func() { n.hold(ctx, p) })
		}
	}

	for id, d := range n.peers {
		if live[id] {
			continue
		}
		delete(n.peers, id)
		if d.stop != nil {
			d.stop()
		}
		if c := n.conns[id]; c != nil {
			go c.fail(errors.New("the node has no lease"))
		}
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

// isPeer reports whether a live node has the id and the certificate. If it does not know the id, it
// waits a moment for a newer list.
func (n *Net) isPeer(id model.NodeID, fingerprint string) bool {
	late := time.NewTimer(helloPause)
	defer late.Stop()
	for asked := false; ; asked = true {
		n.mu.Lock()
		d, changed := n.peers[id], n.changed
		n.mu.Unlock()
		if d != nil {
			return d.peer.Fingerprint == fingerprint
		}
		if !asked {
			n.member.LookAround()
		}

		select {
		case <-changed:
		case <-late.C:
			return false
		case <-n.end.closed.Done():
			return false
		}
	}
}

// knows reports whether a live node has the certificate.
func (n *Net) knows(fingerprint string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, d := range n.peers {
		if d.peer.Fingerprint == fingerprint {
			return true
		}
	}
	return false
}

// hold keeps a connection to a peer until ctx ends.
func (n *Net) hold(ctx context.Context, p Peer) {
	for pause := firstPause; ctx.Err() == nil; {
		held, err := n.dial(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if held {
			pause = firstPause
		} else if pause > firstPause {
			// The first failure is not logged: the other node may just be starting or stopping.
			n.end.log.warn("cannot connect to another node directly; requests to it go through the store", "node", p.Node.String(), "address", p.Address, "error", err)
		}

		select {
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // spreads the attempts of many nodes
		case <-ctx.Done():
		}
		pause = min(2*pause, longPause)
	}
}

// dial connects to a peer and serves the connection until it ends. held is false if there was no
// connection.
func (n *Net) dial(ctx context.Context, p Peer) (held bool, err error) {
	raw, err := n.end.dial(ctx, p.Address)
	if err != nil {
		return false, err
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	link, mark := model.RunID(uuid.Must(uuid.NewV7())), n.lastMark()
	s, err := n.member.greet(raw, clientTLS(n.end.cert, p.Fingerprint), &p, link)
	if err != nil {
		return false, err
	}
	s.mark = mark
	n.serve(newConn(n, p.Node, link, s))
	return true, nil
}

// serve uses a connection until it ends. A node has one connection to each other node. If the other
// node opens a new connection while the old one still exists here, the other node has noticed
// before this node that the old connection ended. So the new connection replaces the old one.
func (n *Net) serve(c *conn) {
	over := make(chan struct{})
	n.mu.Lock()
	ctx, ended, old, mark := n.ctx, n.ended || n.peers[c.peer] == nil, n.conns[c.peer], n.mark
	before := n.over[c.peer]
	if !ended {
		n.conns[c.peer], n.over[c.peer] = c, over
		n.wg.Add(1)
	}
	n.mu.Unlock()
	if ended {
		return
	}
	defer n.wg.Done()
	if old != nil {
		old.fail(errors.New("the node has connected again"))
	}
	if before != nil {
		<-before // so that the handler does not take the loss for a loss of the new connection
	}

	c.sendMark(mark) // there may be a new one since the handshake
	c.run(ctx)
	n.mu.Lock()
	if n.conns[c.peer] == c {
		delete(n.conns, c.peer)
	}
	n.mu.Unlock()
	n.member.Handler.HandleLoss(c.peer)
	close(over)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.over[c.peer] == over {
		delete(n.over, c.peer)
	}
}

// Mark sends a mark to all other nodes, which return it. A later mark has a higher number. A
// request says which mark came back before it (Request.Since). When its sender returned that mark,
// the sender still used the connection, so the sender had not yet sent a copy of the request
// through the store. Without marks, a request could arrive after its sender has given the
// connection up and sent a copy.
func (n *Net) Mark(mark uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mark = max(n.mark, mark)
	for _, c := range n.conns {
		c.sendMark(n.mark)
	}
}

// lastMark returns the last mark that was sent.
func (n *Net) lastMark() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mark
}

// to returns the connection to a node, or nil if there is none.
func (n *Net) to(node model.NodeID) *conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.conns[node]
}

// Connected reports whether there is a connection to a node.
func (n *Net) Connected(node model.NodeID) bool { return n.to(node) != nil }

// Call sends a request and waits for the reply. It also returns the id of the connection that
// carried the request, if one did. When ctx ends, the other node learns that the caller no longer
// waits.
func (n *Net) Call(ctx context.Context, to model.NodeID, body []byte) (reply []byte, link model.RunID, err error) {
	c := n.to(to)
	if c == nil || len(body) > maxItem {
		return nil, link, ErrUnsent
	}
	return c.call(ctx, body)
}

// Note sends a note. It does not block, and returns false if the note cannot be sent now.
func (n *Net) Note(to model.NodeID, body []byte) bool {
	c := n.to(to)
	return c != nil && len(body) <= maxItem && c.note(body)
}
