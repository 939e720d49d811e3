package loan

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Poll is a poll of an owner that is under way.
type Poll struct {
	Node   model.NodeID
	Letter peer.Poll

	loan   *loan
	lent   []Lent
	sent   []map[model.ClaimRef]uint64 // by worker, in the order of lent
	began  time.Time
	wanted bool // something waited there when it began
}

// compose lends slots to an owner, and puts together what it is told.
func (c *Creditor) compose(now time.Time, l *loan, workers []Own) *Poll {
	p := &Poll{Node: l.node, loan: l, began: now, wanted: len(l.wants) > 0, lent: l.kept, sent: make([]map[model.ClaimRef]uint64, len(l.kept))}
	c.seq++
	p.Letter = peer.Poll{Seq: c.seq, Stream: l.stream, Seen: l.seen}
	l.kept = nil

	room := progressSize
	for _, s := range workers {
		offer := s.Offer()
		w := peer.Worker{Name: offer.Name, Tenants: offer.Tenants, Queues: offer.Queues, Kinds: offer.Kinds, Version: offer.Version}
		i := slices.IndexFunc(p.lent, func(x Lent) bool { return x.Own == s })
		if i < 0 {
			i, p.lent, p.sent = len(p.lent), append(p.lent, Lent{Own: s}), append(p.sent, nil)
		}
		if l.wantsOf(s) {
			p.lent[i].Count += s.LendOut(mostLent - p.lent[i].Count)
		}
		w.Lend = p.lent[i].Count
		w.Holds, p.sent[i] = s.List(
			l.node,
			func(ref model.ClaimRef) bool { return c.cfg.Host.Lane(ref) == nil },
			func(ref model.ClaimRef) bool { return c.owner(ref) == l.node }, &room)
		p.Letter.Workers = append(p.Letter.Workers, w)
	}

	return p
}

// Lent are the slots that the owner may use until the poll ends.
func (p *Poll) Lent() []Lent { return p.lent }

// Failed ends a poll that was not answered, when its slots are the workers' own again.
func (c *Creditor) Failed(now time.Time, p *Poll) {
	p.loan.calling, p.loan.poll = false, true
	c.rest(now, p.loan)
	c.cfg.Nudge()
}

// rest puts the next poll off.
func (c *Creditor) rest(now time.Time, l *loan) {
	l.pause = min(max(2*l.pause, c.cfg.Pace.FirstPause), c.cfg.Pace.PollEvery)
	l.after = now.Add(l.pause)
}

// Heard takes the answer to a poll. The caller has the workers do what the entries say (CarryOut),
// ends the loan of the slots that were not used (Home), and then calls Done.
func (c *Creditor) Heard(now time.Time, p *Poll, a *peer.Answer) (fresh []peer.Entry) {
	for i, refs := range p.sent {
		for _, ref := range a.Strange {
			delete(refs, ref)
		}
		p.lent[i].Own.Told(refs)
	}

	if len(a.Strange) > 0 {
		c.cfg.Host.LookAround() // somebody else owns the run
	}
	l := p.loan
	if a.Stream != l.stream {
		l.stream, l.seen = a.Stream, 0
	}

	for _, e := range a.Entries {
		if e.N <= l.seen {
			continue
		}
		l.seen = e.N
		if e.Claim != nil {
			if _, over := c.ended[e.Claim.Ref]; over {
				continue
			}
		} else if e.Stop != nil && !e.Canceled {
			c.ended[*e.Stop] = now
		} else if e.Settled != nil {
			c.ended[*e.Settled] = now
		}
		fresh = append(fresh, e)
	}

	l.want(append(slices.Clip(a.Wants), l.since...))
	l.since = nil
	return fresh
}

// Home are the slots that an owner has not used, and Kept those that stay lent because claims for
// them are on their way. got is how many claims each worker has got, in the order of CarryOut.
func (p *Poll) Home(a *peer.Answer, got map[Own]int) (home, kept []Lent) {
	coming := a.Coming
	for _, x := range p.lent {
		if n := max(0, min(coming, x.Count-got[x.Own])); n > 0 {
			coming -= n
			x.Count -= n
			kept = append(kept, Lent{Own: x.Own, Count: n})
		}
		x.More = got[x.Own] > x.Count
		home = append(home, x)
	}
	return home, kept
}

// Regain ends the loan of slots. It has the board of the node propose, so a caller with a lock
// around the machine does not hold it.
func Regain(home []Lent) {
	for _, x := range home {
		if x.Count > 0 {
			x.Own.Regain(x.Count)
		}
		if x.Count > 0 || x.More {
			x.Own.Rejoin()
		}
	}
}

// Done ends a poll that was answered; fresh is how many entries of the answer were news.
func (c *Creditor) Done(now time.Time, p *Poll, a *peer.Answer, fresh int, kept []Lent) {
	l := p.loan
	l.kept = kept
	l.calling, l.polled = false, p.began
	l.poll = l.poll || a.Coming > 0
	if fresh > 0 || !p.wanted || len(a.Wants) == 0 {
		l.pause, l.after = 0, time.Time{}
	} else {
		c.rest(now, l) // slots were lent, something waits, and nothing came of it
	}
	c.cfg.Nudge()
}

// CarryOut has workers do what an owner says. It returns how many claims each has got. Workers may
// call the Creditor meanwhile, so a caller with a lock around it does not hold it.
func CarryOut(host Host, from model.NodeID, entries []peer.Entry) map[Own]int {
	if len(entries) == 0 {
		return nil
	}
	workers := host.Workers()
	byName := map[string]Own{}
	for _, s := range workers {
		byName[s.Offer().Name] = s
	}
	got := map[Own]int{}
	claims := map[Own][]model.Claim{}
	var left []model.ClaimRef

	handOver := func(s Own) {
		if cs := claims[s]; len(cs) > 0 {
			left = append(left, execute(from, s, cs)...)
			got[s] += len(cs)
			claims[s] = nil
		}
	}
	for i := range entries {
		e := &entries[i]
		s := byName[e.Worker]
		switch {
		case e.Claim != nil && s == nil:
			left = append(left, e.Claim.Ref)
		case e.Claim != nil && !s.Has(e.Claim.Ref):
			claims[s] = append(claims[s], *e.Claim)
		case e.Stop != nil && s != nil:
			handOver(s) // in order
			// perhaps again: the owner says so as often as it hears of the claim
			s.Stop(*e.Stop, e.Canceled)
		case e.Settled != nil && s != nil:
			var err error
			if f := e.Refusal; f != nil {
				err = fault.New(fault.ParseKind(f.Kind), "%s", f.Message)
			}
			s.Settle(*e.Settled, err)
		}
	}

	for _, s := range workers {
		handOver(s)
	}
	host.GiveBack(left)
	return got
}

// execute hands claims to a worker, and returns them if it leaves.
func execute(from model.NodeID, s Own, claims []model.Claim) (left []model.ClaimRef) {
	if s.Take(claims, from) {
		return nil
	}
	for i := range claims {
		left = append(left, claims[i].Ref)
	}
	return left
}
