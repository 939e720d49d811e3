package lending

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// How the board looks for what waits.
const (
	KnockPause = 5 * time.Millisecond // between two looks
	WantLines  = 256                  // that are looked at
)

const (
	knockAgain  = 5 * time.Second        // before a node that has said nothing is told once more that something waits
	pendAgain   = time.Second            // the same for one that is to fetch something
	answerWait  = 250 * time.Millisecond // until a poll is answered although claims are still on their way to the store
	forgetAfter = time.Minute            // of silence, for a node that holds nothing
	sureAfter   = 15 * time.Second       // until what a node does not list is not on its way to it any more: longer than anybody waits for an answer
	answerBytes = 4 << 20
)

// Borrower is how the tasks of this node get to workers of other nodes. It knocks where workers are that could take what nobody here can; they poll, and lend some of their
// slots until they are answered. A worker that has polled is on the board like any other, under its name in histories, but with no more slots than are lent just now. What the lanes
// tell it is kept in a stream until a poll says that it has arrived.
type Borrower struct {
	self   model.NodeID
	owner  Owner
	board  Board
	line   peer.Line
	kick   chan struct{} // capacity 1: there is something to do
	others atomic.Pointer[[]offered]

	mu      sync.Mutex
	nodes   map[model.NodeID]*neighbour
	unheard map[model.ClaimRef]unheard
	closed  bool
}

// offered is a worker of another node that takes tasks.
type offered struct {
	node                   model.NodeID
	tenant                 string
	queues, kinds          []string
	draining, nodeDraining bool
}

func (o *offered) covers(w queue.Want) bool {
	return o.tenant == w.Tenant && slices.Contains(o.queues, w.Queue) && slices.Contains(o.kinds, w.Kind)
}

// unheard is a claim of a worker of a living node that has not been heard of here.
type unheard struct {
	node  model.NodeID
	since time.Time
}

// NewBorrower makes the borrower of a node. It has to be connected before it runs.
func NewBorrower(self model.NodeID, owner Owner, board Board) *Borrower {
	return &Borrower{self: self, owner: owner, board: board, kick: make(chan struct{}, 1), nodes: map[model.NodeID]*neighbour{}, unheard: map[model.ClaimRef]unheard{}}
}

// Connect has it talk to other nodes on a line.
func (b *Borrower) Connect(line peer.Line) { b.line = line }

// HasOthers reports whether other nodes have workers for tasks.
func (b *Borrower) HasOthers() bool {
	others := b.others.Load()
	return others != nil && len(*others) > 0
}

// Nudge has it look around: something may wait for a worker.
func (b *Borrower) Nudge() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// Run looks after other nodes until ctx ends.
func (b *Borrower) Run(ctx context.Context) {
	defer b.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.kick:
		case <-timer.C:
		}
		again := b.round()
		b.board.Propose()
		if again {
			timer.Reset(pendAgain)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(KnockPause):
		}
	}
}

// round knocks where it is time to. It reports whether to look again after a while although nothing happens.
func (b *Borrower) round() (again bool) {
	var wants []queue.Want
	others := b.others.Load()
	if b.HasOthers() {
		wants = b.board.Unserved()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	type call struct {
		wants []peer.Want
		poll  bool
	}
	calls := map[model.NodeID]*call{}
	at := func(node model.NodeID) *call {
		if calls[node] == nil {
			calls[node] = &call{}
		}
		return calls[node]
	}
	for _, w := range wants {
		again = true
		for i := range *others {
			o := &(*others)[i]
			if n := b.nodes[o.node]; !o.draining && !o.nodeDraining && o.covers(w) && (n == nil || !n.knows || now.Sub(n.spoke()) >= knockAgain) {
				if c := at(o.node); !slices.Contains(c.wants, peer.Want(w)) {
					c.wants = append(c.wants, peer.Want(w))
				}
			}
		}
	}
	for ref, o := range b.unheard {
		if !b.board.Holds(0, ref) {
			delete(b.unheard, ref)
			continue
		}
		again = true
		if n := b.nodes[o.node]; n == nil || now.Sub(n.spoke()) >= knockAgain {
			at(o.node).poll = true
		}
	}
	kept := b.board.KeptFor()
	for node := range kept { // its permits are free when the worker is done, of which only its node can tell
		again = true
		if n := b.nodes[node]; n != nil && now.Sub(n.spoke()) >= knockAgain {
			at(node).poll = true
		}
	}
	for node, n := range b.nodes {
		n.tidy(now)
		if wait := now.Sub(n.spoke()); n.answer == nil && len(n.pending) > 0 {
			// What was in an answer has arrived, unless the answer is lost; then the node asks again by itself.
			if unsent := n.last > n.sent; unsent && (!n.coming || wait >= pendAgain) || wait >= knockAgain {
				at(node).poll = true
			}
		}
		if n.idle() && !kept[node] && now.Sub(n.spoke()) >= forgetAfter {
			b.forget(n)
		} else if len(n.workers) > 0 {
			again = true
		}
	}
	for node, c := range calls {
		n := b.neighbour(node)
		n.knocked, n.knows, n.coming = now, n.knows || len(c.wants) > 0, true
		b.line.Tell(node, peer.Encode(&peer.Knock{Wants: c.wants, Poll: c.poll}))
	}
	return again
}

func (b *Borrower) neighbour(node model.NodeID) *neighbour {
	n := b.nodes[node]
	if n == nil {
		n = &neighbour{b: b, node: node, workers: map[string]*Worker{}, stream: model.RunID(uuid.Must(uuid.NewV7()))}
		b.nodes[node] = n
	}
	return n
}

// Seen takes in who is there.
func (b *Borrower) Seen(v *store.View) {
	var others []offered
	alive := map[model.NodeID]bool{}
	for i := range v.Members {
		m := &v.Members[i]
		alive[m.ID] = true
		if m.ID == b.self {
			continue
		}
		for j := range m.Serves {
			if s := &m.Serves[j]; s.Worker != "" {
				others = append(others, offered{node: m.ID, tenant: s.Tenant, queues: s.Queues, kinds: s.Activities, draining: s.Draining, nodeDraining: m.Draining})
			}
		}
	}
	b.others.Store(&others)
	b.mu.Lock()
	var lost, back []model.ClaimRef
	for node, n := range b.nodes {
		if !alive[node] {
			l, u := n.end()
			lost, back = append(lost, l...), append(back, u...)
			b.forget(n)
		}
	}
	for ref, o := range b.unheard {
		if !alive[o.node] {
			delete(b.unheard, ref)
			lost = append(lost, ref)
		}
	}
	b.mu.Unlock()
	b.board.LetGo()
	b.owner.GiveBack(back)
	for _, ref := range lost {
		if l := b.owner.Lane(ref); l != nil {
			l.Lose(ref)
		}
	}
	if len(others) > 0 {
		b.Nudge()
	}
}

// forget takes the workers of a node from the board.
func (b *Borrower) forget(n *neighbour) {
	for name := range n.workers {
		n.dismiss(name)
	}
	if n.late != nil {
		n.late.Stop()
	}
	delete(b.nodes, n.node)
}

// close ends everything.
func (b *Borrower) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, n := range b.nodes {
		b.forget(n)
	}
}

// Found is told of a claim that a worker of another living node has, if anybody has: that node is asked.
func (b *Borrower) Found(node model.NodeID, ref model.ClaimRef) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.unheard[ref]; !known {
		b.unheard[ref] = unheard{node, time.Now()}
		b.Nudge()
	}
}

// Dropped reports whether the node of a claim has said, when nothing could be on its way to it any more, that it does not have it.
func (b *Borrower) Dropped(ref model.ClaimRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, known := b.unheard[ref]
	n := b.nodes[o.node]
	if !known || n == nil || n.heard.Before(o.since.Add(sureAfter)) || n.listed[ref] {
		return false
	}
	return !slices.ContainsFunc(n.pending, func(e entry) bool { return e.Claim != nil && e.Claim.Ref == ref })
}

// Covered reports whether a worker of another node could take such tasks.
func (b *Borrower) Covered(w queue.Want) bool {
	others := b.others.Load()
	return others != nil && slices.ContainsFunc(*others, func(o offered) bool { return o.covers(w) })
}

// Polled takes a poll of another node.
func (b *Borrower) Polled(from model.NodeID, p *peer.Poll, answer func([]byte)) {
	b.mu.Lock()
	if b.closed || !b.owner.Alive(from) {
		b.mu.Unlock()
		b.owner.LookAround() // it may have come since; it asks again
		return
	}
	n := b.neighbour(from)
	if p.Seq <= n.seq {
		b.mu.Unlock()
		return
	}
	n.seq, n.heard, n.answer, n.coming = p.Seq, time.Now(), answer, false
	n.strange = nil
	if p.Stream == n.stream {
		n.pending = slices.DeleteFunc(n.pending, func(e entry) bool { return e.N <= p.Seen })
	}
	missing, lend := n.take(p)
	if n.late != nil {
		n.late.Stop()
	}
	b.mu.Unlock()
	b.owner.GiveBack(missing)
	b.board.LetGo()
	b.board.Lend(lend)
	b.mu.Lock()
	defer b.mu.Unlock()
	if n.answer == nil || n.seq != p.Seq {
		return
	}
	if n.expected <= 0 {
		n.reply()
		return
	}
	n.late = time.AfterFunc(answerWait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if n.answer != nil && n.seq == p.Seq {
			n.reply()
			n.expected = 0 // what does not come was not to be
		}
	})
}
