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
	callTimeout  = 3 * time.Second        // of a poll
	pollEvery    = 5 * time.Second        // while something of the other node is held
	firstPause   = 100 * time.Millisecond // after a poll that came to nothing, doubled each time
	rememberFor  = time.Minute            // claims that have ended, so that an answer which comes late does not begin them again
	mostLent     = 1000
	progressSize = 4 << 20 // of what one poll tells, beyond one more
)

// lending is how workers of this node execute tasks of runs that other nodes own. It polls an owner that has knocked while slots are free for what waits there, and one whose
// claims are held here; with the poll goes what the workers have to report. It is a fact that the owner decides about as about any other report: the same one twice counts once.
type lending struct {
	inc    *incarnation
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
	kept    map[*TaskSession]int // slots that stay lent, because claims for them are on their way
}

func newLending(inc *incarnation) *lending {
	return &lending{inc: inc, kick: make(chan struct{}, 1), loans: map[model.NodeID]*loan{}, ended: map[model.ClaimRef]time.Time{}}
}

func (d *lending) nudge() {
	select {
	case d.kick <- struct{}{}:
	default:
	}
}

// run polls until ctx ends.
func (d *lending) run(ctx context.Context) {
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
func (d *lending) close() {
	d.calls.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.loans {
		for s, n := range l.kept {
			s.regain(n)
		}
	}
	clear(d.loans)
}

// seen takes in who is there and who owns what.
func (d *lending) seen(v *store.View) {
	d.view.Store(v)
	d.mu.Lock()
	var kept []map[*TaskSession]int
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
	d.nudge()
}

// note tells the board whether free slots are of interest. It is called with the lock held.
func (d *lending) note() {
	wanted := false
	for _, l := range d.loans {
		wanted = wanted || len(l.wants) > 0
	}
	d.wanted.Store(wanted)
}

// knocked takes a word of an owner.
func (d *lending) knocked(from model.NodeID, k *peer.Knock) {
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
	d.nudge()
}

func (d *lending) loan(node model.NodeID) *loan {
	l := d.loans[node]
	if l == nil {
		l = &loan{node: node, kept: map[*TaskSession]int{}}
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

// workers are those of this node.
func (d *lending) workers() []*TaskSession {
	return slices.DeleteFunc(d.inc.eng.taskWorkers.all(), func(s *TaskSession) bool { return !s.node.IsZero() || len(s.offer.Tenants) == 0 })
}

// round begins the polls that are due. It returns how long nothing is due by itself; 0 for ever.
func (d *lending) round(ctx context.Context) (wait time.Duration) {
	v := d.view.Load()
	if v == nil {
		return 0
	}
	due := func(at time.Duration) {
		if at = max(at, time.Millisecond); wait == 0 || at < wait {
			wait = at
		}
	}
	workers := d.workers()
	held, news := map[model.NodeID]bool{}, map[model.NodeID]bool{}
	for _, s := range workers {
		s.abroadBy(func(ref model.ClaimRef, fresh bool) {
			switch owner := v.Owners[ref.Address.Shard(len(v.Owners))].Node; {
			case d.inc.lane(ref.Address.Shard(len(v.Owners))) != nil:
				d.deliver(s, ref)
			case !owner.IsZero() && owner != d.inc.self.ID:
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
func (d *lending) lendable(l *loan, workers []*TaskSession) bool {
	return slices.ContainsFunc(workers, func(s *TaskSession) bool { return l.wantsOf(s) && d.inc.board.idle(s) > 0 })
}

func (l *loan) wantsOf(s *TaskSession) bool {
	return slices.ContainsFunc(l.wants, func(w queue.Want) bool { return covers(&s.offer, w) })
}

// deliver hands in news of a claim whose run has become ours.
func (d *lending) deliver(s *TaskSession, ref model.ClaimRef) {
	l := d.inc.lane(ref.Address.Shard(len(d.inc.owner)))
	if r := s.homeward(ref); r != nil {
		s.resend(r)
	}
	n := s.newsOf(ref)
	if l == nil || n.seq == 0 {
		return
	}
	if n.beat {
		d.inc.board.beat(s, ref)
	}
	if p := n.progress; p != nil {
		l.inbox.follow(op{do: func(l *lane.Lane, now model.Time) { l.Progress(now, ref, *p) }})
	}
	s.told(map[model.ClaimRef]uint64{ref: n.seq})
}

// poll asks an owner once.
func (d *lending) poll(ctx context.Context, l *loan) {
	d.mu.Lock()
	p := peer.Poll{Seq: l.seq, Stream: l.stream, Seen: l.seen}
	wanted, kept := slices.Clone(l.wants), l.kept
	l.kept = map[*TaskSession]int{}
	d.mu.Unlock()
	lent, sent := kept, map[*TaskSession]map[model.ClaimRef]uint64{}
	room, v := progressSize, d.view.Load()
	for _, s := range d.workers() {
		w := peer.Worker{Name: s.offer.Name, Tenants: s.offer.Tenants, Queues: s.offer.Queues, Kinds: s.offer.Kinds, Version: s.offer.Version}
		if slices.ContainsFunc(wanted, func(w queue.Want) bool { return covers(&s.offer, w) }) {
			lent[s] += d.inc.board.lendOut(s, mostLent-lent[s])
		}
		w.Lend = lent[s]
		w.Holds, sent[s] = s.holdsAbroad(
			l.node,
			func(ref model.ClaimRef) bool { return d.inc.lane(ref.Address.Shard(len(d.inc.owner))) == nil },
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
		d.nudge()
		return
	}
	for s, refs := range sent {
		for _, ref := range a.Strange {
			delete(refs, ref)
		}
		s.told(refs)
	}
	if len(a.Strange) > 0 {
		d.inc.post(d.inc.member.Nudge) // somebody else owns the run
	}
	d.answered(l, a, lent, began, len(wanted) > 0)
}

// rest puts the next poll off.
func (l *loan) rest() {
	l.pause = min(max(2*l.pause, firstPause), pollEvery)
	l.after = time.Now().Add(l.pause)
}

// answered takes what an owner has to say.
func (d *lending) answered(l *loan, a *peer.Answer, lent map[*TaskSession]int, began time.Time, wanted bool) {
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
	kept := map[*TaskSession]int{}
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
	d.nudge()
}

// carryOut has workers do what an owner says. It returns how many claims each has got.
func (d *lending) carryOut(from model.NodeID, entries []peer.Entry) map[*TaskSession]int {
	byName := map[string]*TaskSession{}
	for _, s := range d.workers() {
		byName[s.offer.Name] = s
	}
	got := map[*TaskSession]int{}
	claims := map[*TaskSession][]model.Claim{}
	var left []model.ClaimRef
	for i := range entries {
		e := &entries[i]
		s := byName[e.Worker]
		switch {
		case e.Claim != nil && s == nil:
			left = append(left, e.Claim.Ref)
		case e.Claim != nil && !s.has(e.Claim.Ref):
			claims[s] = append(claims[s], *e.Claim)
		case e.Stop != nil && s != nil:
			if cs := claims[s]; len(cs) > 0 { // in order
				left = append(left, d.execute(from, s, cs)...)
				got[s] += len(cs)
				claims[s] = nil
			}
			if s.holds(*e.Stop) { // else it has been told: the owner says so as often as it hears of the claim
				s.stop(*e.Stop, e.Canceled)
			}
		case e.Settled != nil && s != nil && s.reports(*e.Settled): // else the same
			var err error
			if f := e.Refusal; f != nil {
				err = fault.New(fault.ParseKind(f.Kind), "%s", f.Message)
			}
			s.settled(*e.Settled, err)
		}
	}
	for s, cs := range claims {
		if len(cs) > 0 {
			left = append(left, d.execute(from, s, cs)...)
			got[s] += len(cs)
		}
	}
	d.inc.eng.giveBack(left)
	return got
}

// execute hands claims to a worker, and returns them if it leaves.
func (d *lending) execute(from model.NodeID, s *TaskSession, claims []model.Claim) (left []model.ClaimRef) {
	s.takeAbroad(claims, from)
	if s.execute(claims) {
		return nil
	}
	for i := range claims {
		s.comeBack(claims[i].Ref)
		s.unmake(claims[i].Ref)
		left = append(left, claims[i].Ref)
	}
	return left
}

// over tells the node that has made a claim soon that it has ended, if that does not know because it does not own the run any more: its permit is free.
func (d *lending) over(ref model.ClaimRef, maker model.NodeID) {
	v := d.view.Load()
	if v == nil || v.Owners[ref.Address.Shard(len(v.Owners))].Node == maker || !slices.ContainsFunc(v.Members, func(m store.Member) bool { return m.ID == maker }) {
		return
	}
	d.mu.Lock()
	d.loan(maker).poll = true
	d.mu.Unlock()
	d.nudge()
}

// regain ends the loan of slots.
func (d *lending) regain(lent map[*TaskSession]int) {
	for s, n := range lent {
		if n > 0 {
			s.regain(n)
			d.inc.board.join(s)
		}
	}
}
