package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	knockPause  = 5 * time.Millisecond   // between two looks at what waits
	knockAgain  = 5 * time.Second        // before a node that has said nothing is told once more that something waits
	pendAgain   = time.Second            // the same for one that is to fetch something
	answerWait  = 250 * time.Millisecond // until a poll is answered although claims are still on their way to the store
	forgetAfter = time.Minute            // of silence, for a node that holds nothing
	sureAfter   = 15 * time.Second       // until what a node does not list is not on its way to it any more: longer than anybody waits for an answer
	wantLines   = 256                    // how many lines of the board are looked at
	answerBytes = 4 << 20
)

// borrowing is how the tasks of this node get to workers of other nodes. It knocks where workers are that could take what nobody here can; they poll, and lend some of their
// slots until they are answered. A worker that has polled is on the board like any other, under its name in histories, but with no more slots than are lent just now. What the lanes
// tell it is kept in a stream until a poll says that it has arrived.
//
// Locks: its own, then that of the board, then that of a session. The board may propose something only while its own is not held.
type borrowing struct {
	inc    *incarnation
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

// neighbour is another node, as far as it has to do with tasks of this one.
type neighbour struct {
	b       *borrowing
	node    model.NodeID
	workers map[string]*borrowed
	listed  map[model.ClaimRef]bool // by its last poll
	seq     uint64                  // of that poll
	heard   time.Time

	stream  model.RunID
	last    uint64  // number of the last entry
	sent    uint64  // of the last one that was in an answer
	pending []entry // not seen yet

	answer   func([]byte) // to the poll that is open; nil when there is none
	late     *time.Timer  // answers it
	expected int          // claims on their way to the store
	strange  []model.ClaimRef

	knows   bool // that something waits: it comes by itself when it has slots
	coming  bool // it has been told to come at once
	knocked time.Time
}

// entry is something for a worker of another node, and when it came.
type entry struct {
	peer.Entry
	at time.Time
}

// borrowed is a worker of another node, as the board sees it.
type borrowed struct {
	n       *neighbour
	session *TaskSession
	known   map[model.ClaimRef]bool // claims that the lane knows it has
	reports map[model.ClaimRef]bool // those whose report the lane has, and has not settled
	offer   model.TaskOffer
}

func newBorrowing(inc *incarnation) *borrowing {
	return &borrowing{inc: inc, kick: make(chan struct{}, 1), nodes: map[model.NodeID]*neighbour{}, unheard: map[model.ClaimRef]unheard{}}
}

// hasOthers reports whether other nodes have workers for tasks.
func (b *borrowing) hasOthers() bool {
	others := b.others.Load()
	return others != nil && len(*others) > 0
}

func (b *borrowing) nudge() {
	select {
	case b.kick <- struct{}{}:
	default:
	}
}

// run looks after other nodes until ctx ends.
func (b *borrowing) run(ctx context.Context) {
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
		b.inc.board.Propose()
		if again {
			timer.Reset(pendAgain)
		} else {
			timer.Stop()
		}
		if !sleep(ctx, knockPause) {
			return
		}
	}
}

// round knocks where it is time to. It reports whether to look again after a while although nothing happens.
func (b *borrowing) round() (again bool) {
	var wants []queue.Want
	others := b.others.Load()
	if b.hasOthers() {
		wants = b.inc.board.unserved()
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
		if !b.inc.board.holds(0, ref) {
			delete(b.unheard, ref)
			continue
		}
		again = true
		if n := b.nodes[o.node]; n == nil || now.Sub(n.spoke()) >= knockAgain {
			at(o.node).poll = true
		}
	}
	kept := b.inc.board.keptFor()
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

// spoke is when the two nodes last had to do with each other.
func (n *neighbour) spoke() time.Time {
	if n.knocked.After(n.heard) {
		return n.knocked
	}
	return n.heard
}

// idle reports whether nothing is known of the node that could not be found out again.
func (n *neighbour) idle() bool {
	if len(n.pending) > 0 || n.answer != nil {
		return false
	}
	for _, w := range n.workers {
		if len(w.known) > 0 {
			return false
		}
	}
	return true
}

func (b *borrowing) neighbour(node model.NodeID) *neighbour {
	n := b.nodes[node]
	if n == nil {
		n = &neighbour{b: b, node: node, workers: map[string]*borrowed{}, stream: newID()}
		b.nodes[node] = n
	}
	return n
}

// seen takes in who is there.
func (b *borrowing) seen(v *store.View) {
	var others []offered
	alive := map[model.NodeID]bool{}
	for i := range v.Members {
		m := &v.Members[i]
		alive[m.ID] = true
		if m.ID == b.inc.self.ID {
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
	b.inc.board.letGo()
	b.inc.eng.giveBack(back)
	for _, ref := range lost {
		if l := b.inc.lane(ref.Address.Shard(len(b.inc.owner))); l != nil {
			l.inbox.result(func(l *lane.Lane, now model.Time) { l.Expire(now, ref.TaskRef, true, ref.Claim, model.FailureLost) })
		}
	}
	if len(others) > 0 {
		b.nudge()
	}
}

// end tells which claims have gone with a node, and which of them were never told to it.
func (n *neighbour) end() (lost, untold []model.ClaimRef) {
	waiting := map[model.ClaimRef]bool{}
	for i := range n.pending {
		if e := &n.pending[i]; e.Claim != nil && e.N > n.sent {
			waiting[e.Claim.Ref] = true
			untold = append(untold, e.Claim.Ref)
		}
	}
	for _, w := range n.workers {
		for ref := range w.known {
			if !waiting[ref] {
				lost = append(lost, ref)
			}
		}
	}
	return lost, untold
}

// forget takes the workers of a node from the board.
func (b *borrowing) forget(n *neighbour) {
	for name := range n.workers {
		n.dismiss(name)
	}
	if n.late != nil {
		n.late.Stop()
	}
	delete(b.nodes, n.node)
}

func (n *neighbour) dismiss(name string) {
	w := n.workers[name]
	delete(n.workers, name)
	w.session.dismiss()
	n.b.inc.board.strike(w.session)
}

// close ends everything.
func (b *borrowing) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for _, n := range b.nodes {
		b.forget(n)
	}
}

// found is told of a claim that a worker of another living node has, if anybody has: that node is asked.
func (b *borrowing) found(node model.NodeID, ref model.ClaimRef) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.unheard[ref]; !known {
		b.unheard[ref] = unheard{node, time.Now()}
		b.nudge()
	}
}

// dropped reports whether the node of a claim has said, when nothing could be on its way to it any more, that it does not have it.
func (b *borrowing) dropped(ref model.ClaimRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, known := b.unheard[ref]
	n := b.nodes[o.node]
	if !known || n == nil || n.heard.Before(o.since.Add(sureAfter)) || n.listed[ref] {
		return false
	}
	return !slices.ContainsFunc(n.pending, func(e entry) bool { return e.Claim != nil && e.Claim.Ref == ref })
}

// covered reports whether a worker of another node could take such tasks.
func (b *borrowing) covered(w queue.Want) bool {
	others := b.others.Load()
	return others != nil && slices.ContainsFunc(*others, func(o offered) bool { return o.covers(w) })
}

// polled takes a poll of another node.
func (b *borrowing) polled(from model.NodeID, p *peer.Poll, answer func([]byte)) {
	b.mu.Lock()
	if alive := b.inc.alive.Load(); b.closed || alive == nil || !slices.Contains(*alive, from.String()) {
		b.mu.Unlock()
		b.inc.post(b.inc.member.Nudge) // it may have come since; it asks again
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
	b.inc.eng.giveBack(missing)
	b.inc.board.letGo()
	b.inc.board.lend(lend)
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

// take compares what the workers of a node hold with what they should. It returns claims that they do not have, although they have been told, and how many slots they lend.
func (n *neighbour) take(p *peer.Poll) (missing []model.ClaimRef, lend map[*TaskSession]int) {
	inc := n.b.inc
	waiting := map[string]map[model.ClaimRef]bool{} // claims that are on their way to them
	for i := range n.pending {
		if e := &n.pending[i]; e.Claim != nil {
			if waiting[e.Worker] == nil {
				waiting[e.Worker] = map[model.ClaimRef]bool{}
			}
			waiting[e.Worker][e.Claim.Ref] = true
		}
	}
	n.listed, lend = map[model.ClaimRef]bool{}, map[*TaskSession]int{}
	here := map[string]bool{}
	expected := max(n.expected, 0)
	for i := range p.Workers {
		pw := &p.Workers[i]
		here[pw.Name] = true
		w := n.worker(pw)
		holds := map[model.ClaimRef]bool{}
		for j := range pw.Holds {
			h := &pw.Holds[j]
			holds[h.Ref], n.listed[h.Ref] = true, true
			delete(n.b.unheard, h.Ref)
		}
		w.session.lists(holds, waiting[pw.Name])
		for j := range pw.Holds {
			w.holds(&pw.Holds[j])
		}
		for ref := range w.known {
			if !holds[ref] && !waiting[pw.Name][ref] {
				delete(w.known, ref)
				if inc.board.holds(w.session.id, ref) {
					missing = append(missing, ref)
				}
			}
		}
		lend[w.session] = max(0, pw.Lend-len(waiting[pw.Name])-expected)
	}
	for name, w := range n.workers {
		if !here[name] { // it has left; whatever was told it since then is given back there
			for ref := range w.known {
				if !waiting[name][ref] && inc.board.holds(w.session.id, ref) {
					missing = append(missing, ref)
				}
			}
			n.dismiss(name)
		}
	}
	return missing, lend
}

// worker is a worker of the node as it is on the board.
func (n *neighbour) worker(pw *peer.Worker) *borrowed {
	w := n.workers[pw.Name]
	offer := model.TaskOffer{Name: pw.Name, Tenants: pw.Tenants, Queues: pw.Queues, Kinds: pw.Kinds, Version: pw.Version}
	if w == nil {
		w = &borrowed{n: n, known: map[model.ClaimRef]bool{}, reports: map[model.ClaimRef]bool{}, offer: offer}
		w.session = n.b.inc.eng.taskSession(w, offer, n.node)
		n.workers[pw.Name] = w
		n.b.inc.board.enlist(w.session)
	}
	return w
}

// holds takes in what a poll says of a claim.
func (w *borrowed) holds(h *peer.Hold) {
	inc, ref, id := w.n.b.inc, h.Ref, w.session.id
	l := inc.lane(ref.Address.Shard(len(inc.owner)))
	if l == nil {
		if h.Beat || h.Progress != nil {
			w.n.strange = append(w.n.strange, ref)
		}
		return
	}
	if r := h.Report; r != nil {
		if !w.reports[ref] {
			w.reports[ref] = true
			w.n.expected++
			inc.board.reported(w.session, ref)
			l.inbox.follow(op{report: r, task: id})
		}
		return
	}
	if !w.known[ref] {
		w.known[ref] = true
		l.inbox.follow(op{do: func(l *lane.Lane, now model.Time) { l.Attach(now, ref, id) }})
	}
	if h.Beat {
		inc.board.beat(w.session, ref)
	}
	if p := h.Progress; p != nil {
		l.inbox.follow(op{do: func(l *lane.Lane, now model.Time) { l.Progress(now, ref, *p) }})
	}
}

// reply answers the poll that is open. The slots that were lent and not used are the node's own again.
func (n *neighbour) reply() {
	b := n.b
	a := peer.Answer{Seq: n.seq, Stream: n.stream, Strange: n.strange}
	wants := b.inc.board.unlend(n.sessions())
	if !b.inc.serving() { // somebody else may own the runs by now, and have made claims that look as if they were over from here
		n.answer = nil
		return
	}
	n.tidy(time.Now())
	size := 0
	for i := range n.pending {
		if size += n.pending[i].Size(); size > answerBytes && i > 0 {
			a.Coming = len(n.pending) - i
			break
		}
		a.Entries = append(a.Entries, n.pending[i].Entry)
		n.sent = n.pending[i].N
	}
	a.Coming += max(n.expected, 0)
	for _, w := range wants {
		if slices.ContainsFunc(n.sessions(), func(s *TaskSession) bool { return covers(&s.offer, w) }) {
			a.Wants = append(a.Wants, peer.Want(w))
		}
	}
	n.knows, n.coming = len(a.Wants) > 0, a.Coming > 0
	answer := n.answer
	n.answer = nil
	answer(peer.Encode(&a))
}

// tidy forgets claims that have ended.
func (n *neighbour) tidy(now time.Time) {
	n.pending = slices.DeleteFunc(n.pending, func(e entry) bool { return e.Claim != nil && n.over(&e, now) })
	for _, w := range n.workers {
		for ref := range w.known {
			if n.b.inc.lane(ref.Address.Shard(len(n.b.inc.owner))) == nil || !n.b.inc.board.holds(w.session.id, ref) {
				delete(w.known, ref) // when it is listed again, the lane is asked
			}
		}
	}
}

// over reports whether the claim of an entry is not to be executed any more. That of a run which has moved is told for a while: its next owner waits for longer before it believes
// that nobody has it.
func (n *neighbour) over(e *entry, now time.Time) bool {
	w := n.workers[e.Worker]
	if w == nil {
		return false // the node gives it back, because the worker has left
	}
	ref := e.Claim.Ref
	if n.b.inc.lane(ref.Address.Shard(len(n.b.inc.owner))) == nil {
		if now.Sub(e.at) < sureAfter-callTimeout-2*time.Second {
			return false
		}
	} else if n.b.inc.board.holds(w.session.id, ref) {
		return false
	}
	if e.N > n.sent && !n.listed[ref] { // else it may have arrived, and counts until the node has said what it holds
		w.session.lets(ref)
	}
	return true
}

func (n *neighbour) sessions() []*TaskSession {
	ss := make([]*TaskSession, 0, len(n.workers))
	for _, w := range n.workers {
		ss = append(ss, w.session)
	}
	return ss
}

func covers(o *model.TaskOffer, w queue.Want) bool {
	return slices.Contains(o.Tenants, w.Tenant) && slices.Contains(o.Queues, w.Queue) && slices.Contains(o.Kinds, w.Kind)
}

// expect tells that so many claims by a borrowed worker are on their way to the store.
func (w *borrowed) expect(count int) {
	w.n.b.mu.Lock()
	w.n.expected += count
	w.n.b.mu.Unlock()
}

// push adds an entry for the node. When no poll is open it is asked to come for it.
func (n *neighbour) push(e peer.Entry) {
	n.last++
	e.N = n.last
	n.pending = append(n.pending, entry{e, time.Now()})
}

func (n *neighbour) pushed() {
	switch {
	case n.answer != nil && n.expected <= 0:
		n.reply()
	case n.answer == nil:
		n.b.nudge()
	}
}

// Execute is for lanes.
func (w *borrowed) Execute(claims []model.Claim) {
	n := w.n
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	for i := range claims {
		c := claims[i]
		w.known[c.Ref] = true
		n.push(peer.Entry{Worker: w.offer.Name, Claim: &c})
	}
	n.expected = max(n.expected-len(claims), 0)
	n.pushed()
}

// Stop is for lanes.
func (w *borrowed) Stop(ref model.ClaimRef, canceled bool) {
	n := w.n
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	if !canceled {
		delete(w.known, ref)
	}
	n.push(peer.Entry{Worker: w.offer.Name, Stop: &ref, Canceled: canceled})
	n.pushed()
}

// Settled is for lanes.
func (w *borrowed) Settled(ref model.ClaimRef, err error) {
	n := w.n
	n.b.mu.Lock()
	defer n.b.mu.Unlock()
	e := peer.Entry{Worker: w.offer.Name, Settled: &ref}
	if err != nil {
		e.Refusal = &model.Failure{Kind: fault.KindOf(err).String(), Message: err.Error()}
	}
	delete(w.known, ref)
	delete(w.reports, ref)
	n.push(e)
	n.expected = max(n.expected-1, 0)
	n.pushed()
}

// unsettled is told that a report came to the wrong owner: its node tells the right one.
func (w *borrowed) unsettled(ref model.ClaimRef) {
	w.n.b.mu.Lock()
	defer w.n.b.mu.Unlock()
	delete(w.reports, ref)
	w.n.expected = max(w.n.expected-1, 0)
	w.n.pushed()
}
