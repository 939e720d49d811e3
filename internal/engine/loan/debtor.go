package loan

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// WantLines bounds how many lines of waiting tasks the board visits when it looks for tasks without
// a worker.
const WantLines = 256

const answerBytes = 4 << 20

// DebtorConfig configures a Debtor.
type DebtorConfig struct {
	Owner Owner
	Board Board
	Pace  Pace
	// Wake asks the caller to call Round soon.
	Wake func()
	// NewStream draws the name of a stream of entries.
	NewStream func() model.RunID
}

// Debtor brings the tasks of a node to workers of other nodes. It knocks at nodes whose workers
// could take tasks that no worker here can take. These nodes poll, and each poll lends some of
// their slots until it is answered. A worker whose node has polled is on the board like any other,
// under the name that histories use for it. But it has only the slots that are lent at the moment.
// The Debtor keeps what the lanes send to such a worker in a stream, until a poll says that it has
// arrived.
type Debtor struct {
	cfg     DebtorConfig
	others  Others
	nodes   map[model.NodeID]*neighbour
	unheard map[model.ClaimRef]unheard
	closed  bool
}

// Others are the workers of other nodes that take tasks. The value is immutable.
type Others []offered

// offered is a worker of another node that takes tasks.
type offered struct {
	node                   model.NodeID
	tenant                 string
	queues, kinds          []string
	draining, nodeDraining bool
}

func (o *offered) covers(w queue.Want) bool {
	return o.tenant == w.Tenant && slices.Contains(o.queues, w.Queue) && model.Executes(o.kinds, w.Kind)
}

// OthersOf returns the workers that a view names, without the workers of node self.
func OthersOf(v *store.View, self model.NodeID) (others Others) {
	for i := range v.Members {
		m := &v.Members[i]
		if m.ID == self {
			continue
		}
		for j := range m.Serves {
			if s := &m.Serves[j]; s.Worker != "" {
				others = append(others, offered{node: m.ID, tenant: s.Tenant, queues: s.Queues, kinds: s.Activities, draining: s.Draining, nodeDraining: m.Draining})
			}
		}
	}
	return others
}

// Cover reports whether one of these workers could take tasks of this kind.
func (others Others) Cover(w queue.Want) bool {
	return slices.ContainsFunc(others, func(o offered) bool { return o.covers(w) })
}

// unheard is a claim that, according to the history, a worker of another live node has, and that
// the other node has not listed yet.
type unheard struct {
	node  model.NodeID
	since time.Time
}

// NewDebtor returns a Debtor.
func NewDebtor(cfg DebtorConfig) *Debtor {
	return &Debtor{cfg: cfg, nodes: map[model.NodeID]*neighbour{}, unheard: map[model.ClaimRef]unheard{}}
}

// KnockCall is a knock for a node.
type KnockCall struct {
	Node  model.NodeID
	Knock peer.Knock
}

// Round returns the nodes to knock at now. It also says whether to call it again after
// Pace.PendAgain even if nothing happens. After Round the caller must let the board propose.
func (d *Debtor) Round(now time.Time) (calls []KnockCall, again bool) {
	pace, board := &d.cfg.Pace, d.cfg.Board
	at := func(node model.NodeID) *peer.Knock {
		i := slices.IndexFunc(calls, func(c KnockCall) bool { return c.Node == node })
		if i < 0 {
			i, calls = len(calls), append(calls, KnockCall{Node: node})
		}
		return &calls[i].Knock
	}

	// Some tasks have no worker: knock at the nodes that could take these tasks.
	if len(d.others) > 0 {
		for _, w := range board.UnservedWants() {
			again = true
			d.knockFor(now, w, at)
		}
	}

	// A live node may have some claims: ask the node to poll.
	for ref, o := range d.unheard {
		if !board.HasClaim(0, ref) {
			delete(d.unheard, ref)
			continue
		}
		again = true
		if n := d.nodes[o.node]; n == nil || now.Sub(n.lastContact()) >= pace.KnockAgain {
			at(o.node).Poll = true
		}
	}

	kept := board.KeptFor()
	// Permits of a moved run become free when its worker is done. Only the worker's node knows
	// when.
	for node := range kept {
		again = true
		if n := d.nodes[node]; n != nil && now.Sub(n.lastContact()) >= pace.KnockAgain {
			at(node).Poll = true
		}
	}

	// Knock at nodes with entries to fetch, and forget idle nodes.
	for _, n := range d.neighbours() {
		node := n.node
		n.tidy(now)
		if wait := now.Sub(n.lastContact()); n.answer == nil && len(n.pending) > 0 {
			// Entries that were in an answer have arrived, unless the answer was lost. If it was
			// lost, the node asks again on its own.
			if unsent := n.last > n.sent; unsent && (!n.coming || wait >= pace.PendAgain) || wait >= pace.KnockAgain {
				at(node).Poll = true
			}
		}
		if n.idle() && !kept[node] && now.Sub(n.lastContact()) >= pace.ForgetAfter {
			d.forget(n)
		} else if len(n.workers) > 0 {
			again = true
		}
	}

	slices.SortFunc(calls, func(a, b KnockCall) int { return compareNodes(a.Node, b.Node) })
	for i := range calls {
		n, k := d.neighbour(calls[i].Node), &calls[i].Knock
		n.knocked, n.knows, n.coming = now, n.knows || len(k.Wants) > 0, true
	}

	return calls, again
}

// knockFor tells the nodes whose workers could take a waiting task that the task waits, unless they
// already know.
func (d *Debtor) knockFor(now time.Time, w queue.Want, at func(model.NodeID) *peer.Knock) {
	for i := range d.others {
		o := &d.others[i]
		if n := d.nodes[o.node]; !o.draining && !o.nodeDraining && o.covers(w) && (n == nil || !n.knows || now.Sub(n.lastContact()) >= d.cfg.Pace.KnockAgain) {
			if k := at(o.node); !slices.Contains(k.Wants, peer.WantedTasks(w)) {
				k.Wants = append(k.Wants, peer.WantedTasks(w))
			}
		}
	}
}

// neighbours returns the nodes that this one exchanges messages with, in order.
func (d *Debtor) neighbours() []*neighbour {
	return slices.SortedFunc(maps.Values(d.nodes), func(a, b *neighbour) int { return compareNodes(a.node, b.node) })
}

func compareNodes(a, b model.NodeID) int { return bytes.Compare(a[:], b[:]) }

func (d *Debtor) neighbour(node model.NodeID) *neighbour {
	n := d.nodes[node]
	if n == nil {
		n = &neighbour{d: d, node: node, workers: map[string]*BorrowedWorker{}, stream: d.cfg.NewStream()}
		d.nodes[node] = n
	}
	return n
}

// Gone is what a Debtor has learned from a view.
type Gone struct {
	Lost []model.ClaimRef // claims that were lost together with the node of their worker
	Back []model.ClaimRef // claims that were never sent to that node
}

// SetMembers tells the Debtor which nodes there are. After it the caller must call Board.LetGo,
// give back the claims in Gone.Back, lose the claims in Gone.Lost (Lane.Lose), and call Round if
// others is not empty.
func (d *Debtor) SetMembers(v *store.View, others Others) (g Gone) {
	d.others = others
	alive := map[model.NodeID]bool{}
	for i := range v.Members {
		alive[v.Members[i].ID] = true
	}

	for _, n := range d.neighbours() {
		if !alive[n.node] {
			lost, back := n.end()
			g.Lost, g.Back = append(g.Lost, lost...), append(g.Back, back...)
			d.forget(n)
		}
	}

	for ref, o := range d.unheard {
		if !alive[o.node] {
			delete(d.unheard, ref)
			g.Lost = append(g.Lost, ref)
		}
	}

	return g
}

// forget removes the workers of a node from the board.
func (d *Debtor) forget(n *neighbour) {
	for _, name := range slices.Sorted(maps.Keys(n.workers)) {
		n.dismiss(name)
	}
	delete(d.nodes, n.node)
}

// Close removes all workers of other nodes from the board.
func (d *Debtor) Close() {
	d.closed = true
	for _, n := range d.neighbours() {
		d.forget(n)
	}
}

// AskAbout reports a claim that a worker of another live node may have. The Debtor asks that node.
func (d *Debtor) AskAbout(now time.Time, node model.NodeID, ref model.ClaimRef) {
	if _, known := d.unheard[ref]; !known {
		d.unheard[ref] = unheard{node, now}
		d.cfg.Wake()
	}
}

// IsDropped reports whether the node of a claim has said that it does not have the claim. It
// ignores statements from a time when the claim could still be on its way to that node.
func (d *Debtor) IsDropped(ref model.ClaimRef) bool {
	o, known := d.unheard[ref]
	n := d.nodes[o.node]
	if !known || n == nil || n.heard.Before(o.since.Add(d.cfg.Pace.SureAfter)) || n.listed[ref] {
		return false
	}
	return !slices.ContainsFunc(n.pending, func(e datedEntry) bool { return e.Claim != nil && e.Claim.Ref == ref })
}

// Terms is the result of a poll.
type Terms struct {
	Missing []model.ClaimRef // claims that the node does not have, although they were sent
	Lend    []Slot           // the slots of its workers that the node lends
}

// HandlePoll handles a poll of another node. If taken is true, the caller must give back the
// missing claims, call Board.LetGo and Board.Lend, and then call Reply.
func (d *Debtor) HandlePoll(now time.Time, from model.NodeID, p *peer.Poll, answer func(*peer.PollReply)) (t Terms, taken bool) {
	if d.closed || !d.cfg.Owner.Alive(from) {
		d.cfg.Owner.LookAround() // the node may have joined since, and it will ask again
		return t, false
	}
	n := d.neighbour(from)
	if p.Seq <= n.seq {
		return t, false
	}
	n.seq, n.heard, n.answer, n.coming = p.Seq, now, answer, false
	n.strange = nil
	if p.Stream == n.stream {
		n.pending = slices.DeleteFunc(n.pending, func(e datedEntry) bool { return e.N <= p.Seen })
	}
	t.Missing, t.Lend = n.take(p)
	return t, true
}

// Reply answers a poll. If claims for the poll are still being committed, it does not answer and
// returns true, and the caller must call Late after Pace.AnswerWait.
func (d *Debtor) Reply(now time.Time, from model.NodeID, seq uint64) (waits bool) {
	n := d.nodes[from]
	if n == nil || n.answer == nil || n.seq != seq {
		return false
	}
	if n.expected <= 0 {
		n.reply(now)
		return false
	}
	return true
}

// Late answers a poll even if claims for it are still being committed.
func (d *Debtor) Late(now time.Time, from model.NodeID, seq uint64) {
	if n := d.nodes[from]; n != nil && n.answer != nil && n.seq == seq {
		n.reply(now)
		n.expected = 0 // the next answers do not wait for these claims
	}
}
