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
	"github.com/perdure/perdure/internal/engine/series"
	"github.com/perdure/perdure/internal/model"
)

// board is the task board of an incarnation. Lanes report tasks to it, workers report slots, and
// the board proposes which worker executes which task. The engine can rebuild its contents from
// histories and from the workers that are here, so each incarnation has its own board.
type board struct {
	inc *incarnation

	mu   sync.Mutex
	b    *queue.Board
	gate *flow.BoardGate

	names map[queue.WorkerID]string
	ids   map[string]*TaskSession
	// loans has the workers of other nodes. The map names has them too.
	loans map[queue.WorkerID]*lending.LockedWorker
	// lacked has the kinds of tasks that waited for a worker at the time lackedAt; see unservedNow.
	lacked   []queue.Want
	lackedAt time.Time

	inline passages

	// After this node has acquired shards, remote workers of the last owner may come back for a
	// while. This time is called the reunion. Until it is over, the board keeps the claims of
	// remote workers that are not here. awaited are these claims, by the name of the worker.
	reunion lane.ReunionTime
	awaited map[string][]model.ClaimRef

	woken   []string   // groups that the gate has woken and that the board has not tried yet
	moved   bool       // there may be something to match
	alarm   model.Time // when the timer fires; zero if it is not set
	timer   *time.Timer
	ended   bool      // the board must not set the timer again
	refused *refusals // nil without series
	// told has the breaker states that the meter has counted. It is nil without a meter.
	told map[rule.BreakerID]breaker.State
}

func newBoard(inc *incarnation) *board {
	// If several processes share the store, the board needs the ledger, so that limits hold across
	// nodes.
	var book *ledger.Book
	if inc.eng.cfg.Store.Info().Shared {
		book = ledger.New(limit.Place(inc.epoch))
	}
	k := flow.NewBoardGate(book, func(id queue.WorkerID, claim model.ClaimRef) (executes bool, report *model.TaskReport) {
		if s := inc.eng.taskWorkers.get(id); s != nil {
			return s.at(claim)
		}
		return false, nil
	})
	k.Lent = func(id queue.WorkerID) bool {
		s := inc.eng.taskWorkers.get(id)
		return s != nil && !s.node.IsZero()
	}
	var refused *refusals
	if inc.eng.levels != nil {
		refused = &refusals{counts: map[series.Subject]uint32{}}
	}
	return &board{inc: inc, b: queue.New(queue.Config{Gate: inc.eng.withCounter(k, refused)}), gate: k, refused: refused, names: map[queue.WorkerID]string{}, ids: map[string]*TaskSession{}, loans: map[queue.WorkerID]*lending.LockedWorker{}, awaited: map[string][]model.ClaimRef{}}
}

// Reserve implements lane.Board.
func (b *board) Reserve(now model.Time, it *queue.Item) (queue.WorkerID, string, bool) {
	b.mu.Lock()
	id, ok := b.b.Reserve(now, it)
	if !ok {
		b.leaveGate(now, it.Ref) // the task asks again once it is committed
	}
	b.settle(now)
	name, loan := b.names[id], b.loans[id]
	b.mu.Unlock()
	// Call Expect without the lock of the board, because the borrower takes its own lock.
	if loan != nil {
		loan.Expect(1)
	}
	return id, name, ok
}

// leaveGate takes a task out of the gate's lines, unless the gate has admitted the task. If the
// task waited there on behalf of its group, another task of the group must ask the gate.
func (b *board) leaveGate(now model.Time, ref model.TaskRef) {
	if group := b.gate.Leave(now, ref); group != "" {
		b.b.Reopen(now, group)
		b.moved = true
	}
}

// settle acts on changes of the gate. It lets the queue ask the gate again about the groups that
// the gate has woken, and lets the flow store what must survive the process. The caller must hold
// the lock.
func (b *board) settle(now model.Time) {
	if woken := b.gate.TakeWoken(); len(woken) > 0 {
		b.b.Reopen(now, woken...)
		b.woken = append(b.woken, woken...)
		b.moved = true
	}
	if b.inc.eng.flow.Collect(b.gate) {
		b.watch(now)
	}
}

// Look implements flow.Board.
func (b *board) Look(do func(*flow.BoardGate, *queue.Board)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	do(b.gate, b.b)
}

// Change implements flow.Board.
func (b *board) Change(now model.Time, do func(*flow.BoardGate, *queue.Board) (moved bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	moved := do(b.gate, b.b)
	b.settle(now)
	b.moved = b.moved || moved
}

// match proposes the tasks that can start. If a woken group could not be tried, because no worker
// is free for its tasks, match passes the wake-up on to the groups behind it.
func (b *board) match(now model.Time) []queue.Match {
	matches := b.b.Match(now)
	// Each round may wake groups behind the groups that were just served.
	for range maxRounds {
		b.settle(now)
		if len(b.woken) == 0 {
			break
		}
		matches = append(matches, b.b.Match(now)...)
		woken := b.woken
		b.woken = nil
		// If a group is still open, the gate has not refused it, so no worker was free for its
		// tasks.
		for _, group := range woken {
			if !b.b.Closed(group) {
				b.gate.Pass(group)
			}
		}
	}

	b.settle(now) // notes the groups that the last round has woken
	return matches
}

// maxRounds bounds how often match tries woken groups in one call. The next call tries the rest.
const maxRounds = 1000

// Add implements lane.Board.
func (b *board) Add(now model.Time, it queue.Item) {
	b.mu.Lock()
	b.b.Add(now, it)
	b.moved = true
	b.mu.Unlock()
}

// HasProposal implements lane.Board.
func (b *board) HasProposal(id queue.WorkerID, ref model.TaskRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.HasProposal(id, ref)
}

// Overdue implements lane.Board.
func (b *board) Overdue(claim model.ClaimRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Overdue(claim)
}

// Hold implements lane.Board.
//
//arch:parameters given by lane.Board
func (b *board) Hold(now model.Time, it queue.Item, claim int64, id queue.WorkerID, worker string) {
	b.mu.Lock()
	c := queue.HeldClaim{Ref: model.ClaimRef{TaskRef: it.Ref, Claim: claim}, Worker: id}
	if _, _, maker := splitWorker(worker); b.gate.Book != nil && b.livesElsewhere(maker) {
		c.Maker = maker
	}
	b.b.Hold(now, it, c)
	b.gate.RecordWorker(it.Ref, claim, id)
	b.settle(now)
	b.moved = true // its deadlines start
	b.mu.Unlock()
}

// Remove implements lane.Board.
func (b *board) Remove(now model.Time, ref model.TaskRef, how queue.Outcome) {
	b.mu.Lock()
	b.b.Remove(now, ref, how)
	b.leaveGate(now, ref)
	b.settle(now)
	b.moved = true
	b.mu.Unlock()
}

// Forget implements lane.Board.
func (b *board) Forget(now model.Time, ref model.TaskRef) {
	b.mu.Lock()
	b.b.Remove(now, ref, queue.Forgotten)
	b.leaveGate(now, ref)
	b.settle(now)
	b.moved = true
	b.mu.Unlock()
}

// RetryAfter implements lane.Board.
func (b *board) RetryAfter(now model.Time, it *queue.Item, until model.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate.RetryAfter(now, it, until)
	b.settle(now)
}

// Configure implements flow.Board.
func (b *board) Configure(now model.Time, s flow.Settings) {
	b.mu.Lock()
	b.reconfigure(now, s)
	b.mu.Unlock()
	b.Propose()
}

// reconfigure is Configure without a proposal. The caller must hold the lock.
func (b *board) reconfigure(now model.Time, s flow.Settings) {
	b.inc.eng.flow.Configure(now, b.gate, b.b, s)
	b.settle(now)
	b.watch(now)
	b.moved = true
}

// Find implements lane.Board. The name of a worker in a history ends with the incarnation that the
// worker belonged to at the time. A worker outlives the incarnations of its node, so Find looks for
// it on this board without that part of the name. If the worker is not here, and that incarnation
// is another live node, Find also asks that node about the claim.
func (b *board) Find(name string, claim model.ClaimRef) (id queue.WorkerID, has bool) {
	worker, node, _ := splitWorker(name)
	b.mu.Lock()
	s := b.ids[worker]
	if s == nil && b.mayReturn(worker) {
		b.awaitLocked(worker, claim)
	}
	b.mu.Unlock()
	if s == nil {
		if id, err := model.ParseNodeID(node); err == nil && b.inc.borrower != nil && b.livesElsewhere(node) {
			b.inc.borrower.AskAbout(id, claim)
		}
		return 0, false
	}
	return s.id, s.has(claim)
}

// Elsewhere implements lane.Board. It also returns true for a remote worker that may come back.
// Such a worker belongs to no node, and comes back by itself after a restart of its server.
func (b *board) Elsewhere(name string) bool {
	worker, node, _ := splitWorker(name)
	b.mu.Lock()
	returns := b.mayReturn(worker)
	if !returns {
		delete(b.awaited, worker) // the claims of the worker are about to be lost
	}
	b.mu.Unlock()
	return returns || b.livesElsewhere(node)
}

// mayReturn reports whether a worker that is not here may come back: to this node or, if this node
// stops, to the next owner. The caller must hold the lock.
func (b *board) mayReturn(worker string) bool {
	if b.inc.eng.cfg.Lane.Reunion == 0 || !model.IsRemoteWorker(worker) || b.ids[worker] != nil {
		return false
	}
	return b.reunion.Lasts(b.inc.eng.clock.now()) || b.inc.eng.isStopping()
}

// reunite starts a reunion of the given length, or makes a running reunion longer.
func (b *board) reunite(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.inc.eng.clock.now()
	if !b.reunion.Lasts(now) {
		clear(b.awaited) // these claims belong to an earlier reunion, which is over
	}
	b.reunion.Begin(now, d)
}

// isReunited reports whether the reunion is over, so that the board no longer expects remote
// workers to come back. The lanes wait as long as the board.
func (b *board) isReunited() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.reunion.Lasts(b.inc.eng.clock.now())
}

// await notes the claims of a worker that may come back. The worker may not have received them.
func (b *board) await(worker string, claims []model.ClaimRef) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, ref := range claims {
		b.awaitLocked(worker, ref)
	}
}

// awaitLocked is await for one claim. The caller must hold the lock.
func (b *board) awaitLocked(worker string, claim model.ClaimRef) {
	if !slices.Contains(b.awaited[worker], claim) {
		b.awaited[worker] = append(b.awaited[worker], claim)
	}
}

// takeAwaited returns the noted claims of a worker that has come back, and forgets them.
func (b *board) takeAwaited(worker string) []model.ClaimRef {
	b.mu.Lock()
	defer b.mu.Unlock()
	refs := b.awaited[worker]
	delete(b.awaited, worker)
	return refs
}

// livesElsewhere reports whether another node has this id and is a member, as of the last renewal.
func (b *board) livesElsewhere(node string) bool {
	alive := b.inc.alive.Load()
	return alive != nil && node != b.inc.self.ID.String() && slices.Contains(*alive, node)
}

// IsDropped implements lane.Board.
func (b *board) IsDropped(_ string, claim model.ClaimRef) bool {
	return b.inc.borrower != nil && b.inc.borrower.IsDropped(claim)
}

// workerName returns the name of a worker in histories. It includes the node where the worker works
// and, if that is another node, the node that made the claim.
func workerName(name string, works, makes model.NodeID) string {
	if works == makes {
		return name + "@" + works.String()
	}
	return name + "@" + works.String() + "/" + makes.String()
}

// splitWorker splits a name of workerName into the worker's own name, the node where it works, and
// the node that made the claim.
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

// Explain implements lane.Board.
func (b *board) Explain(ref model.TaskRef) (model.Reason, bool) {
	b.mu.Lock()
	why, ok := b.b.Explain(ref)
	want, waits := b.b.Waiting(ref)
	b.mu.Unlock()
	// If a worker of another node is about to take the task, the task does not lack a worker.
	if waits && why.Code == model.WaitWorker && b.inc.borrower != nil && b.inc.borrower.Covered(want) {
		why = model.Reason{Code: model.WaitLine, Name: want.Queue, Detail: "for a worker of another node"}
	}
	return why, ok
}

// stats returns the counts of the board.
func (b *board) stats() queue.Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Stats()
}

// join adds a worker, or changes how much it may hold. It reads the number of slots under the lock
// of the board. Several goroutines may change the number, join the worker to a new board or end its
// session. With the lock, the board ends up with the latest state of the session. A worker that has
// left does not come back.
func (b *board) join(s *TaskSession) {
	b.enlist(s)
	b.Propose()
}

// enlist is join without a proposal. A caller that holds the lock of the borrower must not propose,
// because a proposal to a borrowed worker takes that lock.
func (b *board) enlist(s *TaskSession) {
	b.mu.Lock()
	defer b.mu.Unlock()
	slots, here := s.free()

	if _, ok := b.names[s.id]; ok {
		b.b.Slots(b.inc.eng.clock.now(), s.id, slots)
	} else if here && !s.hasLeft(b) {
		offer := s.offer
		offer.Slots = slots
		b.b.Join(b.inc.eng.clock.now(), s.id, offer)
		// A worker of another node has no slots here until that node lends some.
		node := b.inc.self.ID
		if w, ok := s.worker.(*lending.LockedWorker); ok {
			node, b.loans[s.id] = s.node, w
			b.b.Lend(b.inc.eng.clock.now(), s.id, 0)
		}
		b.names[s.id], b.ids[offer.Name] = workerName(offer.Name, node, b.inc.self.ID), s
		if model.IsRemoteWorker(offer.Name) {
			b.reunion.Extend(b.inc.eng.clock.now(), b.inc.eng.cfg.Lane.Reunion)
		}
	}

	b.moved = true
}

// leave removes a worker from the board. The caller must have made sure that the session of the
// worker takes no further claims.
func (b *board) leave(s *TaskSession) {
	b.strike(s)
	b.Propose()
}

// strike is leave without a proposal.
func (b *board) strike(s *TaskSession) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.leave(b)
	b.b.Leave(b.inc.eng.clock.now(), s.id)
	delete(b.names, s.id)
	delete(b.loans, s.id)
	if b.ids[s.offer.Name] == s { // a worker of this name may have joined again
		delete(b.ids, s.offer.Name)
	}
	// Claims that the worker left behind have no worker now, and a deadline starts for them.
	b.moved = true
}

// FreeSlot frees the slot that a claim takes in a worker, because the report of the claim is in
// flight to the lane. If the run of the claim is quarantined or belongs to another node, and this
// node only keeps permits for the claim, FreeSlot frees these permits too. FreeSlot makes no
// proposal, because callers may hold the lock of the borrower.
func (b *board) FreeSlot(id queue.WorkerID, r *model.TaskReport) {
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	b.moved = b.b.MarkReported(now, id, r.Ref) || b.moved
	b.release(now, id, r)
	b.mu.Unlock()
}

// Beat says that a worker executes a claim. If the claim has no worker here, Beat does not give it
// to a remote worker, because only the lane may give it to the worker that the history names.
func (b *board) Beat(id queue.WorkerID, ref model.ClaimRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if model.IsRemoteWorker(b.names[id]) && !b.b.IsAssigned(ref) {
		return b.b.HasClaim(id, ref)
	}
	return b.b.Beat(b.inc.eng.clock.now(), id, ref)
}

// Propose asks the lanes to decide about the proposals of the board: claims of tasks by free
// workers, and deadlines that have passed. It does nothing if nothing has changed since the last
// call.
func (b *board) Propose() {
	b.mu.Lock()
	if !b.moved {
		b.mu.Unlock()
		return
	}
	b.proposeLocked()
}

// proposeLocked is Propose for a caller that holds the lock. It computes everything under the lock,
// and then releases the lock before it calls lanes, workers and other nodes.
func (b *board) proposeLocked() {
	now := b.inc.eng.clock.now()
	// Inline attempts start below; all other matches become claims.
	matches, begin := b.startInline(b.match(now))
	b.moved = len(b.woken) > 0
	var due []queue.Due

	wake := b.b.Wake()
	if wake != 0 && wake <= now {
		due = b.b.TakeDue(now)
		wake = b.b.Wake()
	}

	// A page of the ledger may become due before anything on the board does.
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
	// Remember the names for the histories, and count the claims per borrowed worker.
	names := make([]string, len(matches))

	var loans map[*lending.LockedWorker]int
	for i, m := range matches {
		names[i] = b.names[m.Worker]
		if len(b.loans) > 0 && b.loans[m.Worker] != nil {
			if loans == nil {
				loans = map[*lending.LockedWorker]int{}
			}
			loans[b.loans[m.Worker]]++
		}
	}

	// Record now which tasks lack a worker. A moment later, slots that claims are about to take may
	// seem to be free.
	waits := b.recordUnserved()
	if wake != 0 && (b.alarm == 0 || wake < b.alarm) && !b.ended {
		b.alarm = wake
		wait := max(0, wake.Sub(now))
		if b.timer == nil {
			b.timer = time.AfterFunc(wait, b.handleTimer)
		} else {
			b.timer.Reset(wait)
		}
	}

	b.mu.Unlock()
	// The lock is free from here on. Start inline attempts, and let the lanes decide.
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
			l.Expire(now, model.ClaimRef{TaskRef: d.Ref, Claim: d.Claim}, concernsClaim(d.Kind), d.Kind.String())
		})
	}
}

// tellOthers informs other nodes that tasks wait here, and that slots are free for their tasks.
func (b *board) tellOthers(waits bool) {
	if b.inc.borrower == nil {
		return
	}
	if waits {
		b.inc.borrower.Wake()
	}
	if b.inc.lender.Wanted() {
		b.inc.lender.Wake()
	}
}

// Lend gives the workers of another node the given numbers of slots on this board, and proposes the
// tasks that can start with them.
func (b *board) Lend(slots []loan.Slot) {
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	for _, s := range slots {
		b.b.Lend(now, s.Worker, s.Count)
	}
	b.moved = true
	b.proposeLocked()
}

// Unlend takes unused lent slots from the board, and returns the kinds of tasks that still wait for
// a worker.
func (b *board) Unlend(ids []queue.WorkerID) []queue.Want {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.inc.eng.clock.now()
	for _, id := range ids {
		b.b.Lend(now, id, 0)
	}
	return b.unservedNow()
}

// UnservedWants returns the kinds of tasks that wait for a worker.
func (b *board) UnservedWants() []queue.Want {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unservedNow()
}

// recordUnserved records which tasks wait for a worker. It must run right after a proposal. A
// moment later, slots that claims are about to take may seem to be free. It reports whether to
// inform other nodes. The caller must hold the lock.
func (b *board) recordUnserved() bool {
	if b.inc.borrower == nil || !b.b.HasWaiting() || !b.inc.borrower.HasOthers() {
		return false
	}
	if now := time.Now(); now.Sub(b.lackedAt) >= lending.KnockPause {
		if b.lacked = b.b.UnservedWants(loan.WantLines); len(b.lacked) > 0 {
			b.lackedAt = now
		}
	}
	return true
}

// unservedNow returns the kinds of tasks that wait for a worker now or waited a moment ago. The
// caller must hold the lock.
func (b *board) unservedNow() []queue.Want {
	if !b.b.HasWaiting() {
		return nil
	}
	if wants := b.b.UnservedWants(loan.WantLines); len(wants) > 0 || time.Since(b.lackedAt) > 4*lending.KnockPause {
		return wants
	}
	return b.lacked
}

// HasClaim reports whether a claim still holds its task, and has either this worker or no worker.
func (b *board) HasClaim(id queue.WorkerID, ref model.ClaimRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.HasClaim(id, ref)
}

// idle returns the number of slots of a worker that no task on this board needs.
func (b *board) idle(s *TaskSession) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Idle(s.id)
}

// lendOut takes at most the given number of idle slots of a worker from the board, for another
// node.
func (b *board) lendOut(s *TaskSession, most int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Take the slots from the board and note the loan under both locks, so that no proposal can use
	// them in between.
	n := max(0, min(b.b.Idle(s.id), most))
	s.mu.Lock()
	s.abroad.Lend(n)
	s.mu.Unlock()
	slots, _ := s.free()
	b.b.Slots(b.inc.eng.clock.now(), s.id, slots)
	return n
}

// claim asks each lane to decide about all of its claims together. names are the names of the
// workers.
func (b *board) claim(matches []queue.Match, names []string) {
	// Each lane gets one inbox entry with all its claims, so that they go into one batch.
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

// concernsClaim reports whether a deadline belongs to a claim.
func concernsClaim(k queue.DueKind) bool {
	return k == queue.DueSilence || k == queue.DueToClose || k == queue.DueLost
}

// Reconsider implements flow.Board.
func (b *board) Reconsider() {
	b.mu.Lock()
	b.moved = true
	b.mu.Unlock()
	b.Propose()
}

// handleTimer proposes again. The timer calls it, and so does a node that wakes up.
func (b *board) handleTimer() {
	b.mu.Lock()
	b.alarm, b.moved = 0, true
	b.mu.Unlock()
	b.Propose()
}

// close stops the timer.
func (b *board) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.timer != nil {
		b.timer.Stop()
	}
	b.ended = true // if the timer fires at this moment, the board does not set it again
}
