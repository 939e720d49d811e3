package engine

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/core/breaker"
	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/gate"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/ledger"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
)

// board is the task board of an incarnation: its lanes tell it of tasks, workers of their slots, and it proposes who executes what. Everything
// in it follows from histories and from who is here, so the next incarnation makes its own.
type board struct {
	inc *incarnation

	mu   sync.Mutex
	b    *queue.Board
	gate *gatekeeper
	// What people have set, as it was last heard of.
	rules  *rule.Set
	paused map[queueName]string

	names map[queue.WorkerID]string
	ids   map[string]*TaskSession
	loans map[queue.WorkerID]*borrowed // those of the workers that belong to other nodes
	// What waited for a worker when something was last proposed; see unserved.
	lacked   []queue.Want
	lackedAt time.Time

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
	k := newGatekeeper(book, func(id queue.WorkerID, claim model.ClaimRef) bool {
		s := inc.eng.taskWorkers.get(id)
		return s != nil && s.has(claim)
	})
	return &board{inc: inc, b: queue.New(queue.Config{Gate: inc.eng.counted(k)}), gate: k, names: map[queue.WorkerID]string{}, ids: map[string]*TaskSession{}, loans: map[queue.WorkerID]*borrowed{}}
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
		loan.expect(1)
	}
	return id, name, ok
}

// leaves has a task that has not begun stand in no line any more. If it stood there for others of its group, another one has to ask.
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
	rows, err := b.gate.Dirty()
	if err != nil {
		b.inc.eng.cfg.Log.Error("the state of a circuit breaker cannot be stored", "error", err)
	}
	if len(rows) > 0 {
		b.inc.eng.flow.save(rows)
		b.watch(now)
	}
	if b.gate.book != nil {
		posted := b.gate.book.Post()
		if asks := b.gate.Asks(); posted || len(asks) > 0 {
			b.inc.eng.flow.ask(asks)
		}
	}
}

// match proposes what can begin. Whoever was woken and could not be tried, because no worker is free for it, makes room for those behind it.
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

// Held is for lanes.
func (b *board) Held(now model.Time, it queue.Item, claim int64, id queue.WorkerID, worker string) {
	b.mu.Lock()
	if _, _, maker := splitWorker(worker); b.gate.book != nil && b.livesElsewhere(maker) {
		b.gate.node = maker
	}
	b.b.Held(now, it, model.ClaimRef{TaskRef: it.Ref, Claim: claim}, id)
	b.gate.node = ""
	b.gate.held(it.Ref, claim, id)
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
	b.gate.forgetful = true
	b.b.Remove(now, ref, queue.Neither)
	b.gate.forgetful = false
	b.leaves(now, ref)
	b.settle(now)
	b.moved = true
	b.mu.Unlock()
}

// settled tells that a worker of this node is done with a claim, and that this is durable or of no interest to anybody.
func (b *board) settled(ref model.ClaimRef, how queue.Outcome) {
	if b.gate.book == nil {
		return
	}
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	done := b.gate.settled(now, ref, how)
	if done {
		b.settle(now)
		b.moved = true
	}
	b.mu.Unlock()
	if done {
		b.propose()
	}
}

// keptFor are the nodes whose workers execute what this one still counts, although the runs are not here any more.
func (b *board) keptFor() map[model.NodeID]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	var nodes map[model.NodeID]bool
	for _, o := range b.gate.orphans {
		if s := b.inc.eng.taskWorkers.get(o.worker); s != nil && !s.node.IsZero() {
			if nodes == nil {
				nodes = map[model.NodeID]bool{}
			}
			nodes[s.node] = true
		}
	}
	return nodes
}

// letGo ends what is counted for workers of other nodes that are done, or gone.
func (b *board) letGo() {
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	for ref, o := range b.gate.orphans {
		claim := model.ClaimRef{TaskRef: ref, Claim: o.claim}
		if !b.gate.has(o.worker, claim) && b.gate.settled(now, claim, queue.Neither) {
			b.moved = true
		}
	}
	b.settle(now)
	b.mu.Unlock()
	b.propose()
}

// RetryAfter is for lanes.
func (b *board) RetryAfter(now model.Time, it *queue.Item, until model.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.gate.item(it)
	b.gate.RetryAfter(now, &g, until)
	b.settle(now)
}

// flowing is what people have set, and what nodes have written about it. Breakers and pages are those that somebody else has changed; nil for a breaker that is to begin anew.
type flowing struct {
	rules    *rule.Set
	paused   map[queueName]string
	breakers map[rule.BreakerID][]byte
	pages    map[int][]byte
}

// configure has tasks pass by what people have set from now on.
func (b *board) configure(now model.Time, f flowing) {
	b.mu.Lock()
	b.reconfigure(now, f)
	b.mu.Unlock()
	b.propose()
}

func (b *board) reconfigure(now model.Time, f flowing) {
	rules, paused, breakers := f.rules, f.paused, f.breakers
	if rules != b.rules {
		b.rules = rules
		b.gate.SetRules(now, rules)
		b.b.Taken(func(it *queue.Item) { b.gate.Hold(now, it) })
		for _, o := range b.gate.orphans {
			g := b.gate.item(&o.item)
			b.gate.Gate.Hold(now, &g)
		}
		b.b.Regroup(now)
		if b.gate.book != nil {
			b.gate.book.SetRules(rules)
		}
	}
	for n, body := range f.pages {
		b.seen(now, n, body)
	}
	for id, row := range breakers {
		if err := b.gate.Adopt(now, id, row); err != nil {
			b.inc.eng.cfg.Log.Error("the state of a circuit breaker cannot be read; it goes on as it was", "breaker", id.Name, "error", err)
		}
	}
	b.settle(now)
	b.watch(now)
	b.inc.eng.flow.adopted(breakers)
	for q := range b.paused {
		if _, still := paused[q]; !still {
			b.b.Resume(q.tenant, q.queue)
		}
	}
	for q, why := range paused {
		b.b.Pause(q.tenant, q.queue, why)
	}
	b.paused = paused
	b.settle(now)
	b.moved = true
}

// status is how breakers and queues stand here.
func (b *board) status(now model.Time) (breakers []gate.BreakerStatus, queues queue.Stats) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.Breakers(now), b.b.Stats()
}

// Find is for lanes. The name in a history ends in the node that the worker belonged to then; a worker outlives the incarnations of its node.
func (b *board) Find(name string, claim model.ClaimRef) (id queue.WorkerID, has bool) {
	worker, node, _ := splitWorker(name)
	b.mu.Lock()
	s := b.ids[worker]
	b.mu.Unlock()
	if s == nil {
		if id, err := model.ParseNodeID(node); err == nil && b.inc.borrowing != nil && b.Elsewhere(name) {
			b.inc.borrowing.found(id, claim)
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
	return b.inc.borrowing != nil && b.inc.borrowing.dropped(claim)
}

// workerName is the name of a worker in histories. When another node has lent it, that is where it works, and the claim is made by this one.
func workerName(name string, works, makes model.NodeID) string {
	if works == makes {
		return name + "@" + works.String()
	}
	return name + "@" + works.String() + "/" + makes.String()
}

// splitWorker is the name of a worker in its own words, the node where it works, and the one that made the claim.
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
	if waits && why.Code == model.WaitWorker && b.inc.borrowing != nil && b.inc.borrowing.covered(want) {
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

// join adds a worker, or changes how much it may hold. That is read under the lock: who changes it, joins it to a new board or has it leave may be somebody else
// each, and what the session says last is what has to stand here. One that has left does not come back.
func (b *board) join(s *TaskSession) {
	b.enlist(s)
	b.propose()
}

// enlist is join without a proposal. Who holds the lock of the borrowing makes none: what is proposed to a borrowed worker is counted there.
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
		if w, ok := s.worker.(*borrowed); ok {
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
	b.propose()
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

// reported tells that a worker has a slot free again: what it has to say of the claim is on its way.
func (b *board) reported(s *TaskSession, ref model.ClaimRef) {
	b.mu.Lock()
	b.moved = b.b.Reported(b.inc.eng.clock.now(), s.id, ref) || b.moved
	b.mu.Unlock()
}

// beat tells that a worker executes a claim.
func (b *board) beat(s *TaskSession, ref model.ClaimRef) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Beat(b.inc.eng.clock.now(), s.id, ref)
}

// propose has lanes decide about what the board would like: claims of tasks by workers that wait for them, deadlines that have passed.
func (b *board) propose() {
	b.mu.Lock()
	if !b.moved {
		b.mu.Unlock()
		return
	}
	b.proposes()
}

// proposes is propose with the lock held, which it gives away.
func (b *board) proposes() {
	now := b.inc.eng.clock.now()
	matches := b.match(now)
	b.moved = len(b.woken) > 0
	var due []queue.Due
	wake := b.b.Wake()
	if wake != 0 && wake <= now {
		due = b.b.Due(now)
		wake = b.b.Wake()
	}
	if book := b.gate.book; book != nil {
		if t := book.Wake(); t != 0 && t <= now {
			b.inc.eng.flow.ask(nil)
		} else if t != 0 && (wake == 0 || t < wake) {
			wake = t
		}
	}
	if b.moved {
		wake = now
	}
	names := make([]string, len(matches))
	var loans map[*borrowed]int
	for i, m := range matches {
		names[i] = b.names[m.Worker]
		if len(b.loans) > 0 && b.loans[m.Worker] != nil {
			if loans == nil {
				loans = map[*borrowed]int{}
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
	for w, n := range loans {
		w.expect(n)
	}
	if len(matches) > 0 {
		b.claim(matches, names)
	}
	b.tellOthers(waits)
	for _, d := range due {
		b.inc.lanes[d.Lane].inbox.result(func(l *lane.Lane, now model.Time) { l.Expire(now, d.Ref, held(d.Kind), d.Claim, d.Kind.String()) })
	}
}

// tellOthers has other nodes hear that tasks wait here, and that slots are free for theirs.
func (b *board) tellOthers(waits bool) {
	if b.inc.borrowing == nil {
		return
	}
	if waits {
		b.inc.borrowing.nudge()
	}
	if b.inc.lending.wanted.Load() {
		b.inc.lending.nudge()
	}
}

// lend has workers of another node on the board with so many slots, and proposes what can begin with them.
func (b *board) lend(slots map[*TaskSession]int) {
	b.mu.Lock()
	now := b.inc.eng.clock.now()
	for s, n := range slots {
		b.b.Lend(now, s.id, n)
	}
	b.moved = true
	b.proposes()
}

// unlend takes the slots away again that have not been used, and returns what still waits for some.
func (b *board) unlend(ss []*TaskSession) []queue.Want {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.inc.eng.clock.now()
	for _, s := range ss {
		b.b.Lend(now, s.id, 0)
	}
	return b.unservedNow()
}

// unserved is what waits for a worker.
func (b *board) unserved() []queue.Want {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unservedNow()
}

// lacks looks what waits for a worker, right after everything has been proposed that can be: a moment later slots are free that are as good as taken. It reports
// whether other nodes should hear of it, and is called with the lock held.
func (b *board) lacks() bool {
	if b.inc.borrowing == nil || !b.b.Waits() || !b.inc.borrowing.hasOthers() {
		return false
	}
	if now := time.Now(); now.Sub(b.lackedAt) >= knockPause {
		if b.lacked = b.b.Unserved(wantLines); len(b.lacked) > 0 {
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
	if wants := b.b.Unserved(wantLines); len(wants) > 0 || time.Since(b.lackedAt) > 4*knockPause {
		return wants
	}
	return b.lacked
}

// holds reports whether a claim is held by nobody or by the worker.
func (b *board) holds(id queue.WorkerID, ref model.ClaimRef) bool {
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
	s.abroad.lent += n
	s.mu.Unlock()
	slots, _ := s.free()
	b.b.Slots(b.inc.eng.clock.now(), s.id, slots)
	return n
}

// claim has lanes decide about claims: each about all of its own at once. names are those of the workers.
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

func (b *board) rings() {
	b.mu.Lock()
	b.alarm, b.moved = 0, true
	b.mu.Unlock()
	b.propose()
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
