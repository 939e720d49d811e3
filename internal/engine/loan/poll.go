package loan

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// OpenPoll is a poll in flight to an owner.
type OpenPoll struct {
	Node model.NodeID
	Poll peer.Poll

	loan   *loan
	lent   []Lent
	sent   []map[model.ClaimRef]uint64 // by worker, in the order of lent
	began  time.Time
	wanted bool   // tasks waited at the owner when the poll started
	fresh  int    // new entries of the answer
	kept   []Lent // slots that stay lent, because claims for them are in flight
}

// compose lends slots to an owner, and builds the message of the poll.
func (c *Creditor) compose(now time.Time, l *loan, workers []Own) *OpenPoll {
	p := &OpenPoll{Node: l.node, loan: l, began: now, wanted: len(l.wants) > 0, lent: l.kept, sent: make([]map[model.ClaimRef]uint64, len(l.kept))}
	c.seq++
	p.Poll = peer.Poll{Seq: c.seq, Stream: l.stream, Seen: l.seen}
	l.kept = nil

	room := progressSize
	for _, s := range workers {
		offer := s.Offer()
		w := peer.PollWorker{Name: offer.Name, Tenants: offer.Tenants, Queues: offer.Queues, Kinds: offer.Kinds, Version: offer.Version}
		i := slices.IndexFunc(p.lent, func(x Lent) bool { return x.Own == s })
		if i < 0 {
			i, p.lent, p.sent = len(p.lent), append(p.lent, Lent{Own: s}), append(p.sent, nil)
		}
		if l.wantsTasksOf(s) {
			p.lent[i].Count += s.LendOut(mostLent - p.lent[i].Count)
		}
		w.Lend = p.lent[i].Count
		w.Holds, p.sent[i] = s.List(
			l.node,
			func(ref model.ClaimRef) bool { return c.cfg.Host.Lane(ref) == nil },
			func(ref model.ClaimRef) bool { return c.owner(ref) == l.node }, &room)
		p.Poll.Workers = append(p.Poll.Workers, w)
	}

	return p
}

// LentSlots returns the slots that the owner may use until the poll ends.
func (p *OpenPoll) LentSlots() []Lent { return p.lent }

// FailPoll ends a poll without an answer. The caller must have called Regain for its slots.
func (c *Creditor) FailPoll(now time.Time, p *OpenPoll) {
	p.loan.calling, p.loan.poll = false, true
	c.rest(now, p.loan)
	c.cfg.Wake()
}

// rest delays the next poll.
func (c *Creditor) rest(now time.Time, l *loan) {
	l.pause = min(max(2*l.pause, c.cfg.Pace.FirstPause), c.cfg.Pace.PollEvery)
	l.after = now.Add(l.pause)
}

// HandleReply takes the answer to a poll, and returns its new entries. The caller must then let the
// workers execute the entries (CarryOut), end the loan of the unused slots (Home, Regain), and call
// FinishPoll.
func (c *Creditor) HandleReply(now time.Time, p *OpenPoll, a *peer.PollReply) (fresh []peer.Entry) {
	for i, refs := range p.sent {
		for _, ref := range a.Strange {
			delete(refs, ref)
		}
		p.lent[i].Own.DropSentNews(refs)
	}

	if len(a.Strange) > 0 {
		c.cfg.Host.LookAround() // another node owns the run
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
		switch {
		case e.Claim != nil:
			if x, over := c.ended[e.Claim.Ref]; over && x.stream != a.Stream {
				continue
			}
			delete(c.ended, e.Claim.Ref)
		case e.Stop != nil && !e.Canceled:
			c.ended[*e.Stop] = ending{at: now, stream: a.Stream}
		case e.Settled != nil:
			c.ended[*e.Settled] = ending{at: now}
		}
		fresh = append(fresh, e)
	}

	l.setWants(append(slices.Clip(a.Wants), l.since...))
	l.since, p.fresh = nil, len(fresh)
	return fresh
}

// Home returns the slots that the owner has not used. Slots stay lent if claims for them are in
// flight. got is how many claims each worker got from CarryOut.
func (p *OpenPoll) Home(a *peer.PollReply, got map[Own]int) (home []Lent) {
	coming := a.Coming
	for _, x := range p.lent {
		if n := max(0, min(coming, x.Count-got[x.Own])); n > 0 {
			coming -= n
			x.Count -= n
			p.kept = append(p.kept, Lent{Own: x.Own, Count: n})
		}
		x.More = got[x.Own] > x.Count
		home = append(home, x)
	}
	return home
}

// Regain ends the loan of slots. The board of the node then proposes tasks, and these proposals
// call the machine. So the caller must not hold the lock that protects the machine.
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

// FinishPoll ends an answered poll.
func (c *Creditor) FinishPoll(now time.Time, p *OpenPoll, a *peer.PollReply) {
	l := p.loan
	l.kept = p.kept
	l.calling, l.polled = false, p.began
	l.poll = l.poll || a.Coming > 0
	if p.fresh > 0 || !p.wanted || len(a.Wants) == 0 {
		l.pause, l.after = 0, time.Time{}
	} else {
		c.rest(now, l) // slots were lent and tasks wait, but no claim came
	}
	c.cfg.Wake()
}

// CarryOut lets workers execute the entries of an owner. It returns how many claims each worker
// got. Workers may call the Creditor, so the caller must not hold the lock that protects the
// Creditor.
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
			handOver(s) // keep the order
			// The stop may be a repetition, because the owner sends it again whenever a poll lists
			// the claim.
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

// execute hands claims to a worker. If the worker is leaving, it returns the claims.
func execute(from model.NodeID, s Own, claims []model.Claim) (left []model.ClaimRef) {
	if s.Take(claims, from) {
		return nil
	}
	for i := range claims {
		left = append(left, claims[i].Ref)
	}
	return left
}
