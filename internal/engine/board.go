package engine

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/lending"
	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// board is the task board of an incarnation: its lanes tell it of tasks, workers of their slots,
// and it proposes who executes what. Everything in it follows from histories and from who is here,
// so the next incarnation makes its own.
type board struct {
	inc *incarnation

	mu   sync.Mutex
	b    *queue.Board
	gate *flow.Gatekeeper

	names map[queue.WorkerID]string
	ids   map[string]*TaskSession
	loans map[queue.WorkerID]*lending.Worker // those of the workers that belong to other nodes
	// What waited for a worker when something was last proposed; see Unserved.
	lacked   []queue.Want
	lackedAt time.Time

	inline passages

	woken []string   // groups that the gate has woken, and nobody has tried yet
	moved bool       // there may be something to match
	alarm model.Time // when the timer rings; zero when it does not
	timer *time.Timer
	ended bool                             // the timer is not set any more
	told  map[rule.BreakerID]breaker.State // what was counted of breakers, when somebody counts
}

func newBoard(inc *incarnation) *board {
	var book *ledger.Book
	if inc.eng.cfg.Store.Info().Shared {
		book = ledger.New(limit.Place(inc.epoch))
	}
	k := flow.NewGatekeeper(book, func(id queue.WorkerID, claim model.ClaimRef) (executes, reported bool) {
		if s := inc.eng.taskWorkers.get(id); s != nil {
			return s.at(claim)
		}
		return false, false
	})
	return &board{inc: inc, b: queue.New(queue.Config{Gate: inc.eng.counted(k)}), gate: k, names: map[queue.WorkerID]string{}, ids: map[string]*TaskSession{}, loans: map[queue.WorkerID]*lending.Worker{}}
}

// Reserve is for lanes; see lane.Board.
func (b *board) Reserve(now model.Time, it *queue.Item) (queue.WorkerID, string, bool) {
	b.mu.Lock()
	id, ok := b.b.Reserve(now, it)
	if !ok {
		b.leaves(now, it.Ref) // it asks again once it is there
	}
	b.settle(now)
	name, loan := b.names[id], b.loans[id]
	b.mu.Unlock()
	if loan != nil {
		loan.Expect(1)
	}
	return id, name, ok
}

// leaves has a task that has not begun stand in no line any more. If it stood there for others of
// its group, another one has to ask.
func (b *board) leaves(now model.Time, ref model.TaskRef) {
	if group := b.gate.Leave(now, ref); group != "" {
		b.b.Changed(now, group)
		b.moved = true
	}
}

// settle does what the gate asks for: groups are asked again, and what must survive is stored.
func (b *board) settle(now model.Time) {
	if woken := b.gate.Woken(); len(woken) > 0 {
		b.b.Changed(now, woken...)
		b.woken = append(b.woken, woken...)
		b.moved = true
	}
	if b.inc.eng.flow.Collect(b.gate) {
		b.watch(now)
	}
}

// Look is for what keeps tasks back; see flow.Board.
func (b *board) Look(do func(*flow.Gatekeeper, *queue.Board)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do(b.gate, b.b)
}

// Change is for what keeps tasks back.
func (b *board) Change(now model.Time, do func(*flow.Gatekeeper, *queue.Board) (moved bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	moved := do(b.gate, b.b)
	b.settle(now)
	b.moved = b.moved || moved
}

// match proposes what can begin. Whoever was woken and could not be tried, because no worker is
// free for it, makes room for those behind it.
func (b *board) match(now model.Time) []queue.Match {
	matches := b.b.Match(now)
	for range maxRounds {
		b.settle(now)
		if len(b.woken) == 0 {
			break
		}
		matches = append(matches, b.b.Match(now)...)
		woken := b.woken
		b.woken = nil
		for _, group := range woken {
			if !b.b.Closed(group) {
				b.gate.Pass(group)
			}
		}
	}

	b.settle(now) // what the last round has woken is not forgotten
	return matches
}

// maxRounds bounds how often groups are tried in one go; the rest is tried in the next one.
const maxRounds = 1000

// Add is for lanes.
func (b *board) Add(now model.Time, it queue.Item) {
	b.mu.Lock()
	b.b.Add(now, it)
	b.moved = true
	b.mu.Unlock()
}

// Proposed is for lanes.
func (b *board) Proposed(id queue.WorkerID, ref model.TaskRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Proposed(id, ref)
}

// Overdue is for lanes.
func (b *board) Overdue(claim model.ClaimRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Overdue(claim)
}

// Held is for lanes.
func (b *board) Held(now model.Time, it queue.Item, claim int64, id queue.WorkerID, worker string) {
	b.mu.Lock()
	if _, _, maker := splitWorker(worker); b.gate.Book != nil && b.livesElsewhere(maker) {
		b.gate.Maker = maker
	}
	b.b.Held(now, it, model.ClaimRef{TaskRef: it.Ref, Claim: claim}, id)
	b.gate.Maker = ""
	b.gate.Held(it.Ref, claim, id)
	b.settle(now)
	b.moved = true // its deadlines
	b.mu.Unlock()
}

// Remove is for lanes.
func (b *board) Remove(now model.Time, ref model.TaskRef, how queue.Outcome) {
	b.mu.Lock()
	b.b.Remove(now, ref, how)
	b.leaves(now, ref)
	b.settle(now)
	b.moved = true
	b.mu.Unlock()
}

// Forget is for lanes.
func (b *board) Forget(now model.Time, ref model.TaskRef) {
	b.mu.Lock()
	b.gate.Forgets = true
	b.b.Remove(now, ref, queue.Neither)
	b.gate.Forgets = false
	b.leaves(now, ref)
	b.settle(now)
	b.moved = true
	b.mu.Unlock()
}

// settled tells that a worker of this node is done with a claim, and that this is durable or of no
// interest to anybody.
func (b *board) settled(ref model.ClaimRef, how queue.Outcome) {
	if b.gate.Book == nil {
		return
	}
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	done := b.gate.Settled(now, ref, how)
	if done {
		b.settle(now)
		b.moved = true
	}
	b.mu.Unlock()
	if done {
		b.Propose()
	}
}

// KeptFor are the nodes whose workers execute what this one still counts, although the runs are not
// here any more.
func (b *board) KeptFor() map[model.NodeID]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var nodes map[model.NodeID]bool
	for id := range b.gate.Orphans() {
		if s := b.inc.eng.taskWorkers.get(id); s != nil && !s.node.IsZero() {
			if nodes == nil {
				nodes = map[model.NodeID]bool{}
			}
			nodes[s.node] = true
		}
	}
	return nodes
}

// LetGo ends what is counted for workers of other nodes that are done, or gone.
func (b *board) LetGo() {
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	b.moved = b.gate.LetGo(now) || b.moved
	b.settle(now)
	b.mu.Unlock()
	b.Propose()
}

// RetryAfter is for lanes.
func (b *board) RetryAfter(now model.Time, it *queue.Item, until model.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate.RetryAfter(now, it, until)
	b.settle(now)
}

// Configure is for what keeps tasks back.
func (b *board) Configure(now model.Time, s flow.Settings) {
	b.mu.Lock()
	b.reconfigure(now, s)
	b.mu.Unlock()
	b.Propose()
}

// reconfigure is Configure without a proposal, with the lock held.
func (b *board) reconfigure(now model.Time, s flow.Settings) {
	b.inc.eng.flow.Configure(now, b.gate, b.b, s)
	b.settle(now)
	b.watch(now)
	b.moved = true
}

// Find is for lanes. The name in a history ends in the node that the worker belonged to then; a
// worker outlives the incarnations of its node.
func (b *board) Find(name string, claim model.ClaimRef) (id queue.WorkerID, has bool) {
	worker, node, _ := splitWorker(name)
	b.mu.Lock()
	s := b.ids[worker]
	b.mu.Unlock()
	if s == nil {
		if id, err := model.ParseNodeID(node); err == nil && b.inc.borrower != nil && b.Elsewhere(name) {
			b.inc.borrower.Found(id, claim)
		}
		return 0, false
	}
	return s.id, s.has(claim)
}

// Elsewhere is for lanes.
func (b *board) Elsewhere(name string) bool {
	_, node, _ := splitWorker(name)
	return b.livesElsewhere(node)
}

func (b *board) livesElsewhere(node string) bool {
	alive := b.inc.alive.Load()
	return alive != nil && node != b.inc.self.ID.String() && slices.Contains(*alive, node)
}

// Dropped is for lanes.
func (b *board) Dropped(_ string, claim model.ClaimRef) bool {
	return b.inc.borrower != nil && b.inc.borrower.Dropped(claim)
}

// workerName is the name of a worker in histories. When another node has lent it, that is where it
// works, and the claim is made by this one.
func workerName(name string, works, makes model.NodeID) string {
	if works == makes {
		return name + "@" + works.String()
	}
	return name + "@" + works.String() + "/" + makes.String()
}

// splitWorker is the name of a worker in its own words, the node where it works, and the one that
// made the claim.
func splitWorker(name string) (worker, works, makes string) {
	i := strings.LastIndexByte(name, '@')
	if i < 0 {
		return name, "", ""
	}
	worker, works = name[:i], name[i+1:]
	works, makes, lent := strings.Cut(works, "/")
	if !lent {
		makes = works
	}
	return worker, works, makes
}

// Explain is for lanes.
func (b *board) Explain(ref model.TaskRef) (model.Reason, bool) {
	b.mu.Lock()
	why, ok := b.b.Explain(ref)
	want, waits := b.b.Waiting(ref)
	b.mu.Unlock()
	if waits && why.Code == model.WaitWorker && b.inc.borrower != nil && b.inc.borrower.Covered(want) {
		why = model.Reason{Code: model.WaitLine, Name: want.Queue, Detail: "for a worker of another node"}
	}
	return why, ok
}

// stats are the counts of the board.
func (b *board) stats() queue.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Stats()
}

// join adds a worker, or changes how much it may hold. That is read under the lock: who changes it,
// joins it to a new board or has it leave may be somebody else each, and what the session says last
// is what has to stand here. One that has left does not come back.
func (b *board) join(s *TaskSession) {
	b.enlist(s)
	b.Propose()
}

// enlist is join without a proposal. Who holds the lock of the borrower makes none: what is
// proposed to a borrowed worker is counted there.
func (b *board) enlist(s *TaskSession) {
	b.mu.Lock()
	defer b.mu.Unlock()
	slots, here := s.free()

	if _, ok := b.names[s.id]; ok {
		b.b.Slots(b.inc.eng.clock.now(), s.id, slots)
	} else if here {
		offer := s.offer
		offer.Slots = slots
		b.b.Join(b.inc.eng.clock.now(), s.id, offer)
		node := b.inc.self.ID
		if w, ok := s.worker.(*lending.Worker); ok {
			node, b.loans[s.id] = s.node, w
			b.b.Lend(b.inc.eng.clock.now(), s.id, 0)
		}
		b.names[s.id], b.ids[offer.Name] = workerName(offer.Name, node, b.inc.self.ID), s
	}

	b.moved = true
}

// leave removes a worker that holds nothing any more.
func (b *board) leave(s *TaskSession) {
	b.strike(s)
	b.Propose()
}

// strike is leave without a proposal.
func (b *board) strike(s *TaskSession) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b.Leave(b.inc.eng.clock.now(), s.id)
	delete(b.names, s.id)
	delete(b.loans, s.id)
	if b.ids[s.offer.Name] == s { // it may have come back under another node
		delete(b.ids, s.offer.Name)
	}
	b.moved = true // what it may have left is nobody's, which has a deadline
}

// Reported tells that a worker has a slot free again: what it has to say of the claim is on its
// way.
func (b *board) Reported(id queue.WorkerID, ref model.ClaimRef) {
	b.mu.Lock()
	b.moved = b.b.Reported(b.inc.eng.clock.now(), id, ref) || b.moved
	b.mu.Unlock()
}

// Beat tells that a worker executes a claim.
func (b *board) Beat(id queue.WorkerID, ref model.ClaimRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Beat(b.inc.eng.clock.now(), id, ref)
}

// Propose has lanes decide about what the board would like: claims of tasks by workers that wait
// for them, deadlines that have passed.
func (b *board) Propose() {
	b.mu.Lock()
	if !b.moved {
		b.mu.Unlock()
		return
	}
	b.proposes()
}

// proposes is Propose with the lock held, which it gives away.
func (b *board) proposes() {
	now := b.inc.eng.clock.now()
	matches, begin := b.begun(b.match(now))
	b.moved = len(b.woken) > 0
	var due []queue.Due

	wake := b.b.Wake()
	if wake != 0 && wake <= now {
		due = b.b.Due(now)
		wake = b.b.Wake()
	}

	if book := b.gate.Book; book != nil {
		if t := book.Wake(); t != 0 && t <= now {
			b.inc.eng.flow.WriteSoon()
		} else if t != 0 && (wake == 0 || t < wake) {
			wake = t
		}
	}

	if b.moved {
		wake = now
	}
	names := make([]string, len(matches))

	var loans map[*lending.Worker]int
	for i, m := range matches {
		names[i] = b.names[m.Worker]
		if len(b.loans) > 0 && b.loans[m.Worker] != nil {
			if loans == nil {
				loans = map[*lending.Worker]int{}
			}
			loans[b.loans[m.Worker]]++
		}
	}

	waits := b.lacks()
	if wake != 0 && (b.alarm == 0 || wake < b.alarm) && !b.ended {
		b.alarm = wake
		wait := max(0, wake.Sub(now))
		if b.timer == nil {
			b.timer = time.AfterFunc(wait, b.rings)
		} else {
			b.timer.Reset(wait)
		}
	}

	b.mu.Unlock()
	for _, do := range begin {
		do()
	}
	for w, n := range loans {
		w.Expect(n)
	}
	if len(matches) > 0 {
		b.claim(matches, names)
	}
	b.tellOthers(waits)
	for _, d := range due {
		b.inc.lanes[d.Lane].inbox.result(func(l *lane.Lane, now model.Time) {
			l.Expire(now, model.ClaimRef{TaskRef: d.Ref, Claim: d.Claim}, held(d.Kind), d.Kind.String())
		})
	}
}

// tellOthers has other nodes hear that tasks wait here, and that slots are free for theirs.
func (b *board) tellOthers(waits bool) {
	if b.inc.borrower == nil {
		return
	}
	if waits {
		b.inc.borrower.Nudge()
	}
	if b.inc.lender.Wanted() {
		b.inc.lender.Nudge()
	}
}

// Lend has workers of another node on the board with so many slots, and proposes what can begin
// with them.
func (b *board) Lend(slots []loan.Slot) {
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	for _, s := range slots {
		b.b.Lend(now, s.Worker, s.Count)
	}
	b.moved = true
	b.proposes()
}

// Unlend takes the slots away again that have not been used, and returns what still waits for some.
func (b *board) Unlend(ids []queue.WorkerID) []queue.Want {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.inc.eng.clock.now()
	for _, id := range ids {
		b.b.Lend(now, id, 0)
	}
	return b.unservedNow()
}

// Unserved is what waits for a worker.
func (b *board) Unserved() []queue.Want {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unservedNow()
}

// lacks looks what waits for a worker, right after everything has been proposed that can be: a
// moment later slots are free that are as good as taken. It reports whether other nodes should hear
// of it, and is called with the lock held.
func (b *board) lacks() bool {
	if b.inc.borrower == nil || !b.b.Waits() || !b.inc.borrower.HasOthers() {
		return false
	}
	if now := time.Now(); now.Sub(b.lackedAt) >= lending.KnockPause {
		if b.lacked = b.b.Unserved(loan.WantLines); len(b.lacked) > 0 {
			b.lackedAt = now
		}
	}
	return true
}

// unservedNow is what waits for a worker, now or a moment ago. It is called with the lock held.
func (b *board) unservedNow() []queue.Want {
	if !b.b.Waits() {
		return nil
	}
	if wants := b.b.Unserved(loan.WantLines); len(wants) > 0 || time.Since(b.lackedAt) > 4*lending.KnockPause {
		return wants
	}
	return b.lacked
}

// Holds reports whether a claim is held by nobody or by the worker.
func (b *board) Holds(id queue.WorkerID, ref model.ClaimRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Holds(id, ref)
}

// idle is how many slots of a worker nothing here needs.
func (b *board) idle(s *TaskSession) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Idle(s.id)
}

// lendOut takes idle slots of a worker from the board, for another node, at most so many.
func (b *board) lendOut(s *TaskSession, most int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := max(0, min(b.b.Idle(s.id), most))
	s.mu.Lock()
	s.abroad.Lend(n)
	s.mu.Unlock()
	slots, _ := s.free()
	b.b.Slots(b.inc.eng.clock.now(), s.id, slots)
	return n
}

// claim has lanes decide about claims: each about all of its own at once. names are those of the
// workers.
func (b *board) claim(matches []queue.Match, names []string) {
	for i, s := range b.inc.lanes {
		if !slices.ContainsFunc(matches, func(m queue.Match) bool { return m.Lane == i }) {
			continue
		}
		s.inbox.result(func(l *lane.Lane, now model.Time) {
			for n := range matches {
				if m := &matches[n]; m.Lane == i {
					l.Claim(now, m.Ref, m.Worker, names[n])
				}
			}
		})
	}
}

// held reports whether a deadline is one of a claim.
func held(k queue.DueKind) bool {
	return k == queue.DueSilence || k == queue.DueToClose || k == queue.DueLost
}

// Reconsider is for what keeps tasks back.
func (b *board) Reconsider() {
	b.mu.Lock()
	b.moved = true
	b.mu.Unlock()
	b.Propose()
}

func (b *board) rings() {
	b.mu.Lock()
	b.alarm, b.moved = 0, true
	b.mu.Unlock()
	b.Propose()
}

// close ends the timer.
func (b *board) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
	}
	b.ended = true // also if it rings at this moment
}
