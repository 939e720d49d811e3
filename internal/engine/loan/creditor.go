package loan

import (
	"maps"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	mostLent     = 1000
	progressSize = 4 << 20 // of what one poll tells, beyond one more
)

// CreditorConfig is what a Creditor needs.
type CreditorConfig struct {
	Self model.NodeID
	Host Host
	Pace Pace
	// Nudge is called when a round should be made soon.
	Nudge func()
}

// Creditor is how workers of a node execute tasks of runs that other nodes own. It polls an owner
// that has knocked while slots are free for what waits there, and one whose claims are held here;
// with the poll goes what the workers have to report. A report is a fact that the owner decides
// about as about any other: the same one twice counts once.
type Creditor struct {
	cfg   CreditorConfig
	view  *store.View
	loans map[model.NodeID]*loan
	ended map[model.ClaimRef]time.Time
	// seq numbers the polls of all owners. It only grows: an owner drops a poll whose number is not
	// above the last one it heard, also when this node has forgotten that owner in between.
	seq uint64
}

// loan is what there is between this node and an owner.
type loan struct {
	node   model.NodeID
	stream model.RunID
	seen   uint64
	wants  []queue.Want
	// what it has knocked for while it was being asked: its answer may not know of that
	since   []peer.Want
	poll    bool // at once
	calling bool
	polled  time.Time // when the last answered poll was sent
	after   time.Time // no poll before
	pause   time.Duration
	kept    []Lent // slots that stay lent, because claims for them are on their way
}

// Lent are slots of a worker that an owner may use.
type Lent struct {
	Own   Own
	Count int
	// it has got more claims than slots were lent: a claim may come after its poll was answered
	More bool
}

// NewCreditor makes a Creditor.
func NewCreditor(cfg CreditorConfig) *Creditor {
	return &Creditor{cfg: cfg, loans: map[model.NodeID]*loan{}, ended: map[model.ClaimRef]time.Time{}}
}

// Wanted reports whether some owner has something for free slots.
func (c *Creditor) Wanted() bool {
	for _, l := range c.loans {
		if len(l.wants) > 0 {
			return true
		}
	}
	return false
}

// Close forgets all owners, when no poll is under way any more. It returns the slots that stay
// lent: they are the workers' own again, because workers outlive this life of the node.
func (c *Creditor) Close() (home []Lent) {
	for _, l := range c.sorted() {
		home = append(home, l.kept...)
	}
	clear(c.loans)
	return home
}

// Seen takes in which nodes there are and who owns what. It returns slots that were lent to nodes
// that are gone.
func (c *Creditor) Seen(v *store.View) (home []Lent) {
	c.view = v
	for _, l := range c.sorted() {
		if !l.calling && !c.lives(l.node) {
			delete(c.loans, l.node)
			home = append(home, l.kept...)
		}
	}
	c.cfg.Nudge()
	return home
}

func (c *Creditor) lives(node model.NodeID) bool {
	return slices.ContainsFunc(c.view.Members, func(m store.Member) bool { return m.ID == node })
}

// Knocked takes a word of an owner.
func (c *Creditor) Knocked(from model.NodeID, k *peer.Knock) {
	l := c.loan(from)
	if len(k.Wants) > 0 {
		l.want(k.Wants)
		if l.calling {
			l.since = k.Wants
		}
		l.after, l.pause = time.Time{}, 0
	}
	l.poll = l.poll || k.Poll
	c.cfg.Nudge()
}

func (c *Creditor) loan(node model.NodeID) *loan {
	l := c.loans[node]
	if l == nil {
		l = &loan{node: node}
		c.loans[node] = l
	}
	return l
}

// sorted are all loans, in the order of their nodes.
func (c *Creditor) sorted() []*loan {
	return slices.SortedFunc(maps.Values(c.loans), func(a, b *loan) int { return compareNodes(a.node, b.node) })
}

func (l *loan) want(wants []peer.Want) {
	l.wants = l.wants[:0]
	for _, w := range wants {
		l.wants = append(l.wants, queue.Want(w))
	}
}

// owner is who owns the run of a claim, as far as this node knows.
func (c *Creditor) owner(ref model.ClaimRef) model.NodeID {
	return c.view.Owners[ref.Address.Shard(len(c.view.Owners))].Node
}

// Round returns the polls that are due, and how long nothing is due by itself; 0 for ever. Each
// poll ends with a call of Failed, or of Heard and Done.
func (c *Creditor) Round(now time.Time) (polls []*Poll, wait time.Duration) {
	if c.view == nil {
		return nil, 0
	}

	due := func(at time.Duration) {
		if at = max(at, time.Millisecond); wait == 0 || at < wait {
			wait = at
		}
	}

	workers := c.cfg.Host.Workers()
	held, news := c.held(workers)
	maps.DeleteFunc(c.ended, func(_ model.ClaimRef, at time.Time) bool { return now.Sub(at) > c.cfg.Pace.RememberFor })
	for node := range held {
		c.loan(node)
	}

	for _, l := range c.sorted() {
		if l.calling {
			continue
		}

		if left := l.after.Sub(now); left > 0 {
			if held[l.node] || news[l.node] || l.poll || len(l.wants) > 0 {
				due(left)
			}
			continue
		}

		if every := c.cfg.Pace.PollEvery; !l.poll && !news[l.node] && (!held[l.node] || now.Sub(l.polled) < every) && !l.lendable(workers) {
			if held[l.node] {
				due(every - now.Sub(l.polled))
			}
			continue
		}

		l.calling, l.poll = true, false
		polls = append(polls, c.compose(now, l, workers))
	}

	return polls, wait
}

// held are the nodes that own runs of which workers hold something, and those that are to hear
// news. What has become ours is delivered.
func (c *Creditor) held(workers []Own) (held, news map[model.NodeID]bool) {
	held, news = map[model.NodeID]bool{}, map[model.NodeID]bool{}
	for _, s := range workers {
		s.Each(func(ref model.ClaimRef, fresh bool) {
			switch owner := c.owner(ref); {
			case c.cfg.Host.Lane(ref) != nil:
				s.Deliver(ref)
			case !owner.IsZero() && owner != c.cfg.Self:
				held[owner] = true
				news[owner] = news[owner] || fresh
			}
		})
	}
	return held, news
}

// lendable reports whether some worker has free slots for what an owner wants.
func (l *loan) lendable(workers []Own) bool {
	return slices.ContainsFunc(workers, func(s Own) bool { return l.wantsOf(s) && s.Idle() > 0 })
}

func (l *loan) wantsOf(s Own) bool {
	return slices.ContainsFunc(l.wants, func(w queue.Want) bool { return covers(s.Offer(), w) })
}

// Over has the node that made a claim polled soon, if that does not know that the claim has ended
// because it does not own the run any more: its permit is free.
func (c *Creditor) Over(ref model.ClaimRef, maker model.NodeID) {
	if c.view == nil || c.owner(ref) == maker || !c.lives(maker) {
		return
	}
	c.loan(maker).poll = true
	c.cfg.Nudge()
}
