package cluster

import (
	"slices"

	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
)

// board is the task board of an incarnation. It also does what engine/board.go does in production:
// it passes the proposals of the board to lanes, and sets an alarm for the next deadline.
type board struct {
	inc   *incarnation
	b     *queue.Board
	names map[queue.WorkerID]string
	ids   map[string]*hand
	moved bool
	alarm int64 // when the alarm rings; 0 if it is not set

	keeper *keeper // nil if nothing holds tasks back
	paused map[string]bool
	woken  []string // groups that the gate has woken and the board has not tried yet

	unheard map[model.ClaimRef]*unheard
	guests  map[queue.WorkerID]*guest // workers that other nodes lend
}

func newBoard(inc *incarnation) *board {
	b := &board{inc: inc, names: map[queue.WorkerID]string{}, ids: map[string]*hand{}, unheard: map[model.ClaimRef]*unheard{}, guests: map[queue.WorkerID]*guest{}}
	cfg := queue.Config{Grace: inc.p.Cluster.Plan.Grace}
	if inc.p.Cluster.Has(scenario.Gates) {
		b.keeper = newKeeper(b)
		cfg.Gate = b.keeper
	}
	b.b = queue.New(cfg)
	return b
}

// Reserve implements lane.Board.
func (b *board) Reserve(now model.Time, it *queue.Item) (queue.WorkerID, string, bool) {
	id, ok := b.b.Reserve(now, it)
	if !ok {
		b.leaveGate(now, it.Ref)
	}
	b.settle(now)
	if g := b.guests[id]; ok && g != nil {
		g.w.Expect(1)
	}
	return id, b.names[id], ok
}

// leaveGate takes a task out of the gate's lines, unless the gate has admitted the task.
func (b *board) leaveGate(now model.Time, ref model.TaskRef) {
	if b.keeper == nil {
		return
	}
	if group := b.keeper.g.Leave(now, ref); group != "" {
		b.b.Reopen(now, group)
		b.moved = true
	}
}

// settle carries out the requests of the gate: it lets the board try the woken groups again, and
// stores the breaker state that must survive.
func (b *board) settle(now model.Time) {
	if b.keeper == nil {
		return
	}
	if woken := b.keeper.g.TakeWoken(); len(woken) > 0 {
		b.b.Reopen(now, woken...)
		b.woken = append(b.woken, woken...)
		b.moved = true
	}
	b.inc.p.Flow.Collect(b.keeper.g)
}

// match returns proposals for the tasks that can start.
func (b *board) match(now model.Time) []queue.Match {
	matches := b.b.Match(now)
	if b.keeper == nil {
		return matches
	}

	for range 1000 {
		b.settle(now)
		if len(b.woken) == 0 {
			break
		}
		matches = append(matches, b.b.Match(now)...)
		woken := b.woken
		b.woken = nil
		for _, group := range woken {
			if !b.b.Closed(group) {
				b.keeper.g.Pass(group)
			}
		}
	}

	b.settle(now)
	return matches
}

// Look implements flow.Board.
func (b *board) Look(do func(*flow.BoardGate, *queue.Board)) { do(b.keeper.g, b.b) }

// Change implements flow.Board.
func (b *board) Change(now model.Time, do func(*flow.BoardGate, *queue.Board) (moved bool)) {
	moved := do(b.keeper.g, b.b)
	b.keeper.recordState(now)
	b.settle(now)
	b.moved = b.moved || moved
}

// Configure implements flow.Board.
func (b *board) Configure(now model.Time, x flow.Settings) {
	b.inc.p.Flow.Configure(now, b.keeper.g, b.b, x)
	b.keeper.recordSettings(now, &x)
	b.paused = map[string]bool{}
	for q := range x.Paused {
		b.paused[q.Name] = true
	}
	b.settle(now)
	b.moved = true
	b.Propose()
}

// Reconsider implements flow.Board.
func (b *board) Reconsider() {
	b.moved = true
	b.Propose()
}

// Add implements lane.Board.
func (b *board) Add(now model.Time, it queue.Item) {
	b.b.Add(now, it)
	b.moved = true
}

// HasProposal implements lane.Board.
func (b *board) HasProposal(id queue.WorkerID, ref model.TaskRef) bool {
	return b.b.HasProposal(id, ref)
}

// Overdue implements lane.Board.
func (b *board) Overdue(claim model.ClaimRef) bool { return b.b.Overdue(claim) }

// Hold implements lane.Board.
//
//arch:parameters the interface of the board that lanes use
func (b *board) Hold(now model.Time, it queue.Item, claim int64, id queue.WorkerID, worker string) {
	c := queue.HeldClaim{Ref: model.ClaimRef{TaskRef: it.Ref, Claim: claim}, Worker: id}
	if _, _, maker := scenario.SplitWorker(worker); b.keeper != nil && b.keeper.g.Book != nil && b.livesElsewhere(maker) {
		c.Maker = maker
	}
	b.b.Hold(now, it, c)
	if b.keeper != nil {
		b.keeper.g.RecordWorker(it.Ref, claim, id)
		b.keeper.knew[model.ClaimRef{TaskRef: it.Ref, Claim: claim}] = true
	}
	b.settle(now)
	b.moved = true
}

// Remove implements lane.Board.
func (b *board) Remove(now model.Time, ref model.TaskRef, how queue.Outcome) {
	b.b.Remove(now, ref, how)
	b.leaveGate(now, ref)
	b.settle(now)
	b.moved = true
}

// Forget implements lane.Board.
func (b *board) Forget(now model.Time, ref model.TaskRef) {
	b.Remove(now, ref, queue.Forgotten)
}

// Release implements lane.Board.
func (b *board) Release(now model.Time, id queue.WorkerID, r *model.TaskReport) {
	if b.keeper != nil && b.keeper.release(now, id, r) {
		b.settle(now)
		b.moved = true
	}
}

// Quarantine implements lane.Board.
func (b *board) Quarantine(now model.Time, a model.Address) {
	if b.keeper != nil && b.keeper.quarantine(now, a) {
		b.settle(now)
		b.moved = true
	}
}

// letGo frees the permits of tasks that workers of other nodes executed, if these workers are done
// or gone.
func (b *board) letGo() {
	if now := b.inc.p.Now(); b.keeper != nil && b.keeper.letGo(now) {
		b.settle(now)
		b.moved = true
	}
}

// freeSlot records that a worker has reported the end of a claim.
func (b *board) freeSlot(id queue.WorkerID, r *model.TaskReport) {
	now := b.inc.p.Now()
	b.moved = b.b.MarkReported(now, id, r.Ref) || b.moved
	b.Release(now, id, r)
}

// Find implements lane.Board.
func (b *board) Find(name string, claim model.ClaimRef) (id queue.WorkerID, has bool) {
	worker, node, _ := scenario.SplitWorker(name)
	if h := b.ids[worker]; h != nil {
		return h.id, h.has(claim)
	}
	if g := b.guest(worker); g != nil {
		return g.id, g.held[claim]
	}
	if b.livesElsewhere(node) {
		b.found(node, claim)
	}
	return 0, false
}

// Elsewhere implements lane.Board.
func (b *board) Elsewhere(name string) bool {
	_, node, _ := scenario.SplitWorker(name)
	return b.livesElsewhere(node)
}

func (b *board) livesElsewhere(node string) bool {
	return node != b.inc.self.ID.String() &&
		slices.ContainsFunc(b.inc.alive, func(id model.NodeID) bool { return id.String() == node })
}

// RetryAfter implements lane.Board.
func (b *board) RetryAfter(now model.Time, it *queue.Item, until model.Time) {
	if b.keeper != nil {
		b.keeper.retryAfter(now, it, until)
		b.settle(now)
	}
}

// Explain implements lane.Board.
func (b *board) Explain(ref model.TaskRef) (model.Reason, bool) { return b.b.Explain(ref) }

func (b *board) join(h *hand) {
	now := b.inc.p.Now()
	if _, ok := b.names[h.id]; ok {
		b.b.Slots(now, h.id, h.free())
	} else if h.left != b {
		offer := h.Offer
		offer.Slots = h.free()
		b.b.Join(now, h.id, offer)
		b.names[h.id], b.ids[h.Offer.Name] = h.Offer.Name+"@"+b.inc.self.ID.String(), h
	}
	b.moved = true
	b.Propose()
}

// settleClaim frees what a claim holds. The lane calls it when a worker of the process is done with
// the claim, and the outcome is durable or irrelevant.
func (b *board) settleClaim(ref model.ClaimRef, how queue.Outcome) {
	if b.keeper == nil || !b.keeper.g.KeepsPermits() {
		return
	}
	if now := b.inc.p.Now(); b.keeper.settleClaim(now, ref, how) {
		b.settle(now)
		b.moved = true
		b.Propose()
	}
}

// linger handles a lost claim whose code still runs. Its end is durable.
func (b *board) linger(ref model.ClaimRef) {
	if b.keeper == nil || !b.keeper.g.KeepsPermits() {
		return
	}
	now := b.inc.p.Now()
	b.keeper.linger(now, ref)
	b.settle(now)
	b.moved = true
	b.Propose()
}

// named reports whether a worker has the given name.
func (b *board) named(id queue.WorkerID, name string) bool {
	if g := b.guests[id]; g != nil {
		return g.name == name
	}
	h := b.inc.p.Cluster.hands[name]
	return h != nil && h.id == id
}

// guest returns the lent worker with a name, or nil.
func (b *board) guest(name string) *guest {
	for _, g := range b.guests {
		if g.name == name {
			return g
		}
	}
	return nil
}

func (b *board) leave(h *hand) {
	h.left = b
	b.b.Leave(b.inc.p.Now(), h.id)
	delete(b.names, h.id)
	delete(b.ids, h.Offer.Name)
	b.moved = true
	b.Propose()
}

// Propose sends the proposals of the board to the lanes, which decide.
func (b *board) Propose() {
	if !b.moved || b.inc.ended {
		return
	}
	s, p := b.inc.p.Cluster, b.inc.p
	now := p.Now()
	matches := b.match(now)
	b.moved = len(b.woken) > 0
	var due []queue.Due

	wake := b.b.Wake()
	if wake != 0 && wake <= now {
		due = b.b.TakeDue(now)
		wake = b.b.Wake()
	}

	if b.keeper != nil && b.keeper.g.Book != nil {
		if t := b.keeper.g.Book.Wake(); t != 0 && t <= now {
			p.Flow.WriteSoon()
		} else if t != 0 && (wake == 0 || t < wake) {
			wake = t
		}
	}

	for _, m := range matches {
		if g := b.guests[m.Worker]; g != nil {
			g.w.Expect(1)
		}
	}

	if u := b.inc.purse; u != nil {
		if len(u.others) > 0 && b.b.HasWaiting() {
			u.wakeDebtor()
		}
		if u.creditor.Wanted() {
			u.wakeCreditor()
		}
	}

	for _, m := range matches {
		s.Mix(7, uint64(m.Worker))
		sh, name := b.inc.Shells[m.Lane], b.names[m.Worker]
		sh.result(func(now model.Time) { sh.Lane.Claim(now, m.Ref, m.Worker, name) })
	}

	for _, d := range due {
		s.Mix(8, uint64(d.Kind))
		sh, claimed := b.inc.Shells[d.Lane], d.Kind == queue.DueSilence || d.Kind == queue.DueToClose || d.Kind == queue.DueLost
		sh.result(func(now model.Time) {
			sh.Lane.Expire(now, model.ClaimRef{TaskRef: d.Ref, Claim: d.Claim}, claimed, d.Kind.String())
		})
	}

	if b.moved {
		wake = now
	}
	if wake == 0 {
		return
	}
	at := s.Now + max(int64(float64(wake-now)/p.rate)+1, 1)
	if b.alarm != 0 && b.alarm <= at {
		return
	}

	b.alarm = at
	s.At(at, p.Process, func() {
		if b.alarm == at {
			b.alarm, b.moved = 0, true
			b.Propose()
		}
	})
}

// left lists what is on a board that should be empty.
func (b *board) left() string {
	st := b.b.Stats()
	for _, q := range st.Queues {
		if q.Waiting+q.Delayed+q.Claimed > 0 {
			return "tasks of queue " + q.Queue
		}
	}

	for _, w := range st.Workers {
		if w.Held > 0 {
			return "a slot of worker " + b.names[w.ID]
		}
	}

	if b.keeper != nil {
		for ref := range b.keeper.let {
			return "let through " + ref.String()
		}
		for _, l := range b.keeper.g.Limits() {
			if len(l.Holders)+len(l.Waiters) > 0 {
				return "holders of limit " + l.Resource.String()
			}
		}
	}

	return ""
}
