package lending

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	callTimeout  = 3 * time.Second        // of a poll
	pollEvery    = 5 * time.Second        // while something of the other node is held
	firstPause   = 100 * time.Millisecond // after a poll that came to nothing, doubled each time
	rememberFor  = time.Minute            // claims that have ended, so that an answer which comes late does not begin them again
	mostLent     = 1000
	progressSize = 4 << 20 // of what one poll tells, beyond one more
)

// Lender is how workers of this node execute tasks of runs that other nodes own. It polls an owner that has knocked while slots are free for what waits there, and one whose
// claims are held here; with the poll goes what the workers have to report. It is a fact that the owner decides about as about any other report: the same one twice counts once.
type Lender struct {
	self   model.NodeID
	host   Host
	line   peer.Line
	kick   chan struct{} // capacity 1: there is something to do
	wanted atomic.Bool   // some owner has something for free slots
	view   atomic.Pointer[store.View]
	calls  sync.WaitGroup

	mu    sync.Mutex
	loans map[model.NodeID]*loan
	ended map[model.ClaimRef]time.Time
}

// loan is what there is between this node and an owner.
type loan struct {
	node    model.NodeID
	seq     uint64 // of the last poll
	stream  model.RunID
	seen    uint64
	wants   []queue.Want
	since   []peer.Want // what it has knocked for while it was being asked: its answer may not know of that
	poll    bool        // at once
	calling bool
	polled  time.Time // when the last answered poll was sent
	after   time.Time // no poll before
	pause   time.Duration
	kept    map[Own]int // slots that stay lent, because claims for them are on their way
}

// NewLender makes the lender of a node. It has to be connected before it runs.
func NewLender(self model.NodeID, host Host) *Lender {
	return &Lender{self: self, host: host, kick: make(chan struct{}, 1), loans: map[model.NodeID]*loan{}, ended: map[model.ClaimRef]time.Time{}}
}

// Connect has it talk to other nodes on a line.
func (d *Lender) Connect(line peer.Line) { d.line = line }

// Wanted reports whether some owner has something for free slots.
func (d *Lender) Wanted() bool { return d.wanted.Load() }

// Nudge has it look around: slots may be free, or a worker may have something to report.
func (d *Lender) Nudge() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// Run polls until ctx ends.
func (d *Lender) Run(ctx context.Context) {
	defer d.close()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait := d.round(ctx); wait > 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-d.kick:
		case <-timer.C:
		}
	}
}

// close waits for the polls that are under way. All slots are the workers' own again: they outlive this life of the node.
func (d *Lender) close() {
	d.calls.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.loans {
		for s, n := range l.kept {
			s.Regain(n)
		}
	}
	clear(d.loans)
}

// Seen takes in who is there and who owns what.
func (d *Lender) Seen(v *store.View) {
	d.view.Store(v)
	d.mu.Lock()
	var kept []map[Own]int
	for node, l := range d.loans {
		if !l.calling && !slices.ContainsFunc(v.Members, func(m store.Member) bool { return m.ID == node }) {
			delete(d.loans, node)
			kept = append(kept, l.kept)
		}
	}
	d.note()
	d.mu.Unlock()
	for _, slots := range kept {
		d.regain(slots)
	}
	d.Nudge()
}

// note tells the board whether free slots are of interest. It is called with the lock held.
func (d *Lender) note() {
	wanted := false
	for _, l := range d.loans {
		wanted = wanted || len(l.wants) > 0
	}
	d.wanted.Store(wanted)
}

// Knocked takes a word of an owner.
func (d *Lender) Knocked(from model.NodeID, k *peer.Knock) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.loan(from)
	if len(k.Wants) > 0 {
		l.want(k.Wants)
		if l.calling {
			l.since = k.Wants
		}
		l.after, l.pause = time.Time{}, 0
	}
	l.poll = l.poll || k.Poll
	d.note()
	d.Nudge()
}

func (d *Lender) loan(node model.NodeID) *loan {
	l := d.loans[node]
	if l == nil {
		l = &loan{node: node, kept: map[Own]int{}}
		d.loans[node] = l
	}
	return l
}

func (l *loan) want(wants []peer.Want) {
	l.wants = l.wants[:0]
	for _, w := range wants {
		l.wants = append(l.wants, queue.Want(w))
	}
}

// round begins the polls that are due. It returns how long nothing is due by itself; 0 for ever.
func (d *Lender) round(ctx context.Context) (wait time.Duration) {
	v := d.view.Load()
	if v == nil {
		return 0
	}
	due := func(at time.Duration) {
		if at = max(at, time.Millisecond); wait == 0 || at < wait {
			wait = at
		}
	}
	workers := d.host.Workers()
	held, news := map[model.NodeID]bool{}, map[model.NodeID]bool{}
	for _, s := range workers {
		s.Each(func(ref model.ClaimRef, fresh bool) {
			switch owner := v.Owners[ref.Address.Shard(len(v.Owners))].Node; {
			case d.host.Lane(ref) != nil:
				s.Deliver(ref)
			case !owner.IsZero() && owner != d.self:
				held[owner] = true
				news[owner] = news[owner] || fresh
			}
		})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for ref, at := range d.ended {
		if now.Sub(at) > rememberFor {
			delete(d.ended, ref)
		}
	}
	for node := range held {
		d.loan(node)
	}
	for node, l := range d.loans {
		if l.calling {
			continue
		}
		if left := l.after.Sub(now); left > 0 {
			if held[node] || news[node] || l.poll || len(l.wants) > 0 {
				due(left)
			}
			continue
		}
		if !l.poll && !news[node] && (!held[node] || now.Sub(l.polled) < pollEvery) && !d.lendable(l, workers) {
			if held[node] {
				due(pollEvery - now.Sub(l.polled))
			}
			continue
		}
		l.calling, l.poll = true, false
		l.seq++
		d.calls.Go(func() { d.poll(ctx, l) })
	}
	return wait
}

// lendable reports whether some worker has free slots for what an owner wants.
func (d *Lender) lendable(l *loan, workers []Own) bool {
	return slices.ContainsFunc(workers, func(s Own) bool { return l.wantsOf(s) && s.Idle() > 0 })
}

func (l *loan) wantsOf(s Own) bool {
	return slices.ContainsFunc(l.wants, func(w queue.Want) bool { return covers(s.Offer(), w) })
}

// poll asks an owner once.
func (d *Lender) poll(ctx context.Context, l *loan) {
	d.mu.Lock()
	p := peer.Poll{Seq: l.seq, Stream: l.stream, Seen: l.seen}
	wanted, kept := slices.Clone(l.wants), l.kept
	l.kept = map[Own]int{}
	d.mu.Unlock()
	lent, sent := kept, map[Own]map[model.ClaimRef]uint64{}
	room, v := progressSize, d.view.Load()
	for _, s := range d.host.Workers() {
		offer := s.Offer()
		w := peer.Worker{Name: offer.Name, Tenants: offer.Tenants, Queues: offer.Queues, Kinds: offer.Kinds, Version: offer.Version}
		if slices.ContainsFunc(wanted, func(w queue.Want) bool { return covers(offer, w) }) {
			lent[s] += s.LendOut(mostLent - lent[s])
		}
		w.Lend = lent[s]
		w.Holds, sent[s] = s.List(
			l.node,
			func(ref model.ClaimRef) bool { return d.host.Lane(ref) == nil },
			func(ref model.ClaimRef) bool { return v.Owners[ref.Address.Shard(len(v.Owners))].Node == l.node }, &room)
		p.Workers = append(p.Workers, w)
	}
	began := time.Now()
	brief, cancel := context.WithTimeout(ctx, callTimeout)
	raw, err := d.line.Call(brief, l.node, peer.Encode(&p))
	cancel()
	var a *peer.Answer
	if err == nil {
		a, err = peer.Decode[peer.Answer](raw)
	}
	if err != nil {
		d.regain(lent)
		d.mu.Lock()
		defer d.mu.Unlock()
		l.calling, l.poll = false, true
		l.rest()
		d.Nudge()
		return
	}
	for s, refs := range sent {
		for _, ref := range a.Strange {
			delete(refs, ref)
		}
		s.Told(refs)
	}
	if len(a.Strange) > 0 {
		d.host.LookAround() // somebody else owns the run
	}
	d.answered(l, a, lent, began, len(wanted) > 0)
}

// rest puts the next poll off.
func (l *loan) rest() {
	l.pause = min(max(2*l.pause, firstPause), pollEvery)
	l.after = time.Now().Add(l.pause)
}

// answered takes what an owner has to say.
func (d *Lender) answered(l *loan, a *peer.Answer, lent map[Own]int, began time.Time, wanted bool) {
	d.mu.Lock()
	if a.Stream != l.stream {
		l.stream, l.seen = a.Stream, 0
	}
	var fresh []peer.Entry
	for _, e := range a.Entries {
		if e.N <= l.seen {
			continue
		}
		l.seen = e.N
		if e.Claim != nil {
			if _, over := d.ended[e.Claim.Ref]; over {
				continue
			}
		} else if e.Stop != nil && !e.Canceled {
			d.ended[*e.Stop] = time.Now()
		} else if e.Settled != nil {
			d.ended[*e.Settled] = time.Now()
		}
		fresh = append(fresh, e)
	}
	l.want(append(slices.Clip(a.Wants), l.since...))
	l.since = nil
	d.note()
	d.mu.Unlock()
	got := d.carryOut(l.node, fresh)
	coming := a.Coming
	kept := map[Own]int{}
	for s := range lent {
		if kept[s] = max(0, min(coming, lent[s]-got[s])); kept[s] > 0 {
			coming -= kept[s]
			lent[s] -= kept[s]
		}
	}
	d.regain(lent)
	d.mu.Lock()
	defer d.mu.Unlock()
	l.kept = kept
	l.calling, l.polled = false, began
	l.poll = l.poll || a.Coming > 0
	if len(fresh) > 0 || !wanted || len(a.Wants) == 0 {
		l.pause, l.after = 0, time.Time{}
	} else {
		l.rest() // slots were lent, something waits, and nothing came of it
	}
	d.Nudge()
}

// carryOut has workers do what an owner says. It returns how many claims each has got.
func (d *Lender) carryOut(from model.NodeID, entries []peer.Entry) map[Own]int {
	byName := map[string]Own{}
	for _, s := range d.host.Workers() {
		byName[s.Offer().Name] = s
	}
	got := map[Own]int{}
	claims := map[Own][]model.Claim{}
	var left []model.ClaimRef
	for i := range entries {
		e := &entries[i]
		s := byName[e.Worker]
		switch {
		case e.Claim != nil && s == nil:
			left = append(left, e.Claim.Ref)
		case e.Claim != nil && !s.Has(e.Claim.Ref):
			claims[s] = append(claims[s], *e.Claim)
		case e.Stop != nil && s != nil:
			if cs := claims[s]; len(cs) > 0 { // in order
				left = append(left, d.execute(from, s, cs)...)
				got[s] += len(cs)
				claims[s] = nil
			}
			s.Stop(*e.Stop, e.Canceled) // perhaps again: the owner says so as often as it hears of the claim
		case e.Settled != nil && s != nil:
			var err error
			if f := e.Refusal; f != nil {
				err = fault.New(fault.ParseKind(f.Kind), "%s", f.Message)
			}
			s.Settle(*e.Settled, err)
		}
	}
	for s, cs := range claims {
		if len(cs) > 0 {
			left = append(left, d.execute(from, s, cs)...)
			got[s] += len(cs)
		}
	}
	d.host.GiveBack(left)
	return got
}

// execute hands claims to a worker, and returns them if it leaves.
func (d *Lender) execute(from model.NodeID, s Own, claims []model.Claim) (left []model.ClaimRef) {
	if s.Take(claims, from) {
		return nil
	}
	for i := range claims {
		left = append(left, claims[i].Ref)
	}
	return left
}

// Over tells the node that has made a claim soon that it has ended, if that does not know because it does not own the run any more: its permit is free.
func (d *Lender) Over(ref model.ClaimRef, maker model.NodeID) {
	v := d.view.Load()
	if v == nil || v.Owners[ref.Address.Shard(len(v.Owners))].Node == maker || !slices.ContainsFunc(v.Members, func(m store.Member) bool { return m.ID == maker }) {
		return
	}
	d.mu.Lock()
	d.loan(maker).poll = true
	d.mu.Unlock()
	d.Nudge()
}

// regain ends the loan of slots.
func (d *Lender) regain(lent map[Own]int) {
	for s, n := range lent {
		if n > 0 {
			s.Regain(n)
			s.Rejoin()
		}
	}
}
