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
	progressSize = 4 << 20 // bounds the bytes of progress in one poll; one more value may exceed it
)

// CreditorConfig configures a Creditor.
type CreditorConfig struct {
	Self model.NodeID
	Host Host
	Pace Pace
	// Wake asks the caller to call Round soon.
	Wake func()
}

// Creditor lets workers of a node execute tasks of runs that other nodes own. It polls an owner
// that has knocked, while slots are free for the tasks that wait there. It also polls an owner as
// long as workers of this node have its claims. A poll carries the reports of the workers. The
// owner treats such a report like any other, so a repeated report counts once.
type Creditor struct {
	cfg   CreditorConfig
	view  *store.View
	loans map[model.NodeID]*loan
	ended map[model.ClaimRef]ending
	// seq numbers the polls of all owners. seq only grows, because an owner drops a poll whose
	// number is not above the number of the last poll that it received. So the next poll gets
	// through even if this node has forgotten the owner in between.
	seq uint64
}

// ending is the end of a claim, as an owner has announced it. If another owner sends the claim
// afterwards, that message is late, and the claim must not start.
type ending struct {
	at time.Time
	// stream is the stream in which the owner has stopped the claim; zero if the claim was settled.
	// The owner may also stop a claim that it could not store, and then store another claim under
	// the same number. It sends that claim later in the same stream.
	stream model.RunID
}

// loan is the state between this node and an owner.
type loan struct {
	node   model.NodeID
	stream model.RunID
	seen   uint64
	wants  []queue.Want
	// since are tasks for which the owner has knocked during a poll. The answer to the poll may not
	// include them.
	since   []peer.WantedTasks
	poll    bool // poll the owner immediately
	calling bool
	polled  time.Time // when the last answered poll was sent
	after   time.Time // no poll before this time
	pause   time.Duration
	kept    []Lent // slots that stay lent, because claims for them are in flight
}

// Lent are slots of a worker that an owner may use.
type Lent struct {
	Own   Own
	Count int
	// More says that the worker got more claims than slots were lent. This happens if a claim
	// arrives after the answer to its poll.
	More bool
}

// NewCreditor returns a Creditor.
func NewCreditor(cfg CreditorConfig) *Creditor {
	return &Creditor{cfg: cfg, loans: map[model.NodeID]*loan{}, ended: map[model.ClaimRef]ending{}}
}

// Wanted reports whether an owner has tasks for free slots.
func (c *Creditor) Wanted() bool {
	for _, l := range c.loans {
		if len(l.wants) > 0 {
			return true
		}
	}
	return false
}

// Close drops all owners. The caller must call it after the last poll has ended. It returns the
// slots that are still lent. They belong to the workers again, because the workers outlive this
// life of the node.
func (c *Creditor) Close() (home []Lent) {
	for _, l := range c.sortedLoans() {
		home = append(home, l.kept...)
	}
	clear(c.loans)
	return home
}

// SetMembers tells the Creditor which nodes are members now, and which nodes own which shards. It
// returns the slots that were lent to nodes that are gone.
func (c *Creditor) SetMembers(v *store.View) (home []Lent) {
	c.view = v
	for _, l := range c.sortedLoans() {
		if !l.calling && !c.isAlive(l.node) {
			delete(c.loans, l.node)
			home = append(home, l.kept...)
		}
	}
	c.cfg.Wake()
	return home
}

func (c *Creditor) isAlive(node model.NodeID) bool {
	return slices.ContainsFunc(c.view.Members, func(m store.Member) bool { return m.ID == node })
}

// HandleKnock handles a knock of an owner.
func (c *Creditor) HandleKnock(from model.NodeID, k *peer.Knock) {
	l := c.loan(from)
	if len(k.Wants) > 0 {
		l.setWants(k.Wants)
		if l.calling {
			l.since = k.Wants
		}
		l.after, l.pause = time.Time{}, 0
	}
	l.poll = l.poll || k.Poll
	c.cfg.Wake()
}

func (c *Creditor) loan(node model.NodeID) *loan {
	l := c.loans[node]
	if l == nil {
		l = &loan{node: node}
		c.loans[node] = l
	}
	return l
}

// sortedLoans returns all loans, in the order of their nodes.
func (c *Creditor) sortedLoans() []*loan {
	return slices.SortedFunc(maps.Values(c.loans), func(a, b *loan) int { return compareNodes(a.node, b.node) })
}

func (l *loan) setWants(wants []peer.WantedTasks) {
	l.wants = l.wants[:0]
	for _, w := range wants {
		l.wants = append(l.wants, queue.Want(w))
	}
}

// owner returns the node that owns the run of a claim, as far as this node knows.
func (c *Creditor) owner(ref model.ClaimRef) model.NodeID {
	return c.view.Owners[c.view.Layout().Shard(ref.Address)].Node
}

// Round returns the polls that are due. It also returns how long to wait until time alone makes
// another poll due; 0 means never. Each poll ends with a call of FailPoll, or of HandleReply and
// FinishPoll.
func (c *Creditor) Round(now time.Time) (polls []*OpenPoll, wait time.Duration) {
	if c.view == nil {
		return nil, 0
	}

	due := func(at time.Duration) {
		if at = max(at, time.Millisecond); wait == 0 || at < wait {
			wait = at
		}
	}

	workers := c.cfg.Host.Workers()
	held, news := c.heldNodes(workers)
	maps.DeleteFunc(c.ended, func(_ model.ClaimRef, e ending) bool { return now.Sub(e.at) > c.cfg.Pace.RememberFor })
	for node := range held {
		c.loan(node)
	}

	for _, l := range c.sortedLoans() {
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

// heldNodes returns the nodes that own runs of held claims, and the nodes that must receive news.
// It delivers news about claims whose runs this node owns by now.
func (c *Creditor) heldNodes(workers []Own) (held, news map[model.NodeID]bool) {
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

// lendable reports whether a worker has free slots for what an owner wants.
func (l *loan) lendable(workers []Own) bool {
	return slices.ContainsFunc(workers, func(s Own) bool { return l.wantsTasksOf(s) && s.Idle() > 0 })
}

func (l *loan) wantsTasksOf(s Own) bool {
	return slices.ContainsFunc(l.wants, func(w queue.Want) bool { return covers(s.Offer(), w) })
}

// Over schedules a poll of the node that made an ended claim, if that node no longer owns the run.
// Without the poll, that node would not learn that the claim has ended and its permit is free.
func (c *Creditor) Over(ref model.ClaimRef, maker model.NodeID) {
	if c.view == nil || c.owner(ref) == maker || !c.isAlive(maker) {
		return
	}
	c.loan(maker).poll = true
	c.cfg.Wake()
}
