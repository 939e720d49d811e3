package queue

import (
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Config configures a board. The zero value is ready to use.
type Config struct {
	// Gate decides whether a task may start; nil lets every task start.
	Gate Admitter
	// Weights are the shares of tenants. A tenant that is not listed has weight 1.
	Weights map[string]int
	// Grace is how long a claim may have no worker before the claim is lost. A claim has no worker
	// after recovery, or after its worker has left. A worker that still executes the claim comes
	// back and sends a heartbeat (Beat) within that time. 0 means DefaultGrace.
	Grace time.Duration
}

// SetWeights changes the shares of tenants. The new shares apply from the next task of each tenant
// on.
func (b *Board) SetWeights(weights map[string]int) { b.cfg.Weights = weights }

// DefaultGrace is the default of Config.Grace.
const DefaultGrace = 30 * time.Second

// Board has the tasks, workers, claims and deadlines of a node.
type Board struct {
	cfg       Config
	tasks     map[taskKey]*task
	sites     map[siteName]*site
	lines     map[lineName]*line
	groups    map[string]*group
	workers   map[WorkerID]*worker
	classes   map[string]*class
	byQueue   map[string][]*class // in order of creation
	ready     heap[*class, byTurn]
	delayed   heap[*task, byVisible]
	deadlines heap[*task, byDue]
	again     heap[*group, byAgain]
	seq       uint64
}

// New returns an empty board.
func New(cfg Config) *Board {
	if cfg.Grace <= 0 {
		cfg.Grace = DefaultGrace
	}
	return &Board{
		cfg: cfg, tasks: map[taskKey]*task{}, sites: map[siteName]*site{}, lines: map[lineName]*line{}, groups: map[string]*group{},
		workers: map[WorkerID]*worker{}, classes: map[string]*class{}, byQueue: map[string][]*class{},
	}
}

// tick returns the next sequence number. These numbers give the order in which things happen on
// this board.
func (b *Board) tick() uint64 {
	b.seq++
	return b.seq
}

func (b *Board) site(name siteName) *site {
	s := b.sites[name]
	if s == nil {
		s = &site{name: name}
		b.sites[name] = s
	}
	return s
}

// forget drops a site (a queue of a tenant) that has no tasks and is not paused.
func (b *Board) forget(s *site) {
	if s.tasks == 0 && !s.paused {
		delete(b.sites, s.name)
	}
}

// advance applies the passing of time: delayed tasks become visible, and the board may ask the gate
// again about groups whose time has come.
func (b *Board) advance(now model.Time) {
	for b.delayed.len() > 0 && b.delayed.top().Visible <= now {
		t := b.delayed.top()
		b.leaveState(t)
		b.wait(t)
	}
	for b.again.len() > 0 && b.again.top().again <= now {
		b.open(b.again.top())
	}
}

// put adds a task to the board, in no state yet.
func (b *Board) put(it *Item) *task {
	s := b.site(siteName{it.Ref.Address.Tenant, it.Spec.Queue})
	s.tasks++
	t := &task{Item: *it, site: s}
	b.tasks[keyOf(&it.Ref)] = t
	return t
}

// drop removes a task that is in no state.
func (b *Board) drop(t *task) {
	b.deadlines.remove(t)
	delete(b.tasks, keyOf(&t.Ref))
	t.site.tasks--
	b.forget(t.site)
}

// leaveState takes a task out of its line, out of the delayed tasks, or out of the claimed tasks.
// The task keeps its slot, permits and deadline.
func (b *Board) leaveState(t *task) {
	switch {
	case t.state == delayed:
		b.delayed.remove(t)
		t.site.delayed--
	case t.state == waiting:
		b.unwait(t)
		t.site.waiting--
	case t.state.hasPermits():
		t.site.claimed--
	}
	t.state = 0
}

// release frees the slot and the permits of a task and takes it out of its state.
func (b *Board) release(now model.Time, t *task, how Outcome) {
	b.assign(t, nil)
	taken := t.state.hasPermits()
	b.leaveState(t)
	if taken {
		b.give(now, &t.Item, how)
	}
}

// Add adds a committed task that waits. If the board already has the task, the task waits again,
// and the board returns its permits to the gate with the outcome Neither. If the caller knows the
// outcome of the attempt, it must call Remove first.
func (b *Board) Add(now model.Time, it Item) {
	b.advance(now)
	if t := b.tasks[keyOf(&it.Ref)]; t != nil {
		b.release(now, t, Neither)
		b.drop(t)
	}

	t := b.put(&it)
	switch {
	case it.spent():
		t.state = expired
	case it.Visible > now:
		t.state = delayed
		t.site.delayed++
		b.delayed.put(t)
	default:
		b.wait(t)
	}

	b.arm(t)
}

// wait puts a visible task into its line.
func (b *Board) wait(t *task) {
	t.state = waiting
	t.site.waiting++
	spec := t.Spec
	name := lineName{t.site.name.tenant, spec.Queue, spec.Kind, spec.Fair, b.groupName(&t.Item), spec.Priority}
	ln := b.lines[name]
	if ln != nil {
		ln.tasks.put(t)
		t.line = ln
		if ln.tasks.top() == t {
			b.headChanged(ln)
		}
		return
	}

	// This is the first task of its kind: create the line, and list it in each class whose workers
	// can execute its tasks.
	g := b.groups[name.group]
	if g == nil {
		g = &group{name: name.group}
		b.groups[g.name] = g
	}

	g.lines++
	ln = &line{name: name, site: t.site, group: g}
	ln.leaves = ln.buf[:0]
	b.lines[name] = ln
	ln.tasks.put(t)
	t.line = ln
	t.site.lines.put(ln)

	for _, c := range b.byQueue[name.queue] {
		if c.covers(name.tenant, name.kind) {
			b.enter(c, ln)
		}
	}
}

// unwait takes a task out of its line.
func (b *Board) unwait(t *task) {
	ln := t.line
	first := ln.tasks.top() == t
	ln.tasks.remove(t)
	t.line = nil
	if ln.tasks.len() > 0 {
		if first {
			b.headChanged(ln)
		}
		return
	}
	for _, lf := range ln.leaves {
		b.exit(lf)
	}
	b.dropLine(ln)
}

// dropLine removes an empty line that no class lists.
func (b *Board) dropLine(ln *line) {
	ln.site.lines.remove(ln)
	delete(b.lines, ln.name)
	if ln.group.lines--; ln.group.lines == 0 {
		b.again.remove(ln.group)
		delete(b.groups, ln.group.name)
	}
}

// headChanged puts a line at its new place in the order, because its first task has changed.
func (b *Board) headChanged(ln *line) {
	ln.site.lines.put(ln)
	for _, lf := range ln.leaves {
		b.touch(lf)
	}
}

// Match is a claim to commit.
type Match struct {
	Ref    model.TaskRef
	Lane   int
	Worker WorkerID
}

// Match proposes all claims that can be made now. It takes the slot and the permits of each. They
// stay taken until the caller reports the outcome with Hold, Unreserve, Add or Remove.
func (b *Board) Match(now model.Time) []Match {
	b.advance(now)
	var out []Match
	for b.ready.len() > 0 {
		c := b.ready.top()
		// Find the next line according to Q2: it is the first line of the best cell of the best
		// key, tenant and priority of the best class.
		ln := c.active.top().active.top().active.top().cells.top().leaves.top().line
		t := ln.tasks.top()
		if !b.take(now, &t.Item, ln.group) {
			continue // the gate refused, so the group is closed now
		}
		w := c.free.top()
		b.charge(c, &t.Item)
		b.leaveState(t)
		b.propose(t, w, matched)
		out = append(out, Match{Ref: t.Ref, Lane: t.Lane, Worker: w.id})
	}

	return out
}

// propose assigns a slot to a task whose permits have been taken.
func (b *Board) propose(t *task, w *worker, s state) {
	t.state = s
	t.site.claimed++
	w.served = b.tick()
	if w.lent {
		w.credit--
	}
	b.assign(t, w)
	b.arm(t)
}

// Reserve takes a slot and permits for a task that is about to be committed, so that the claim can
// be part of the same commit. Reserve succeeds only if a suitable worker is free and no waiting
// task goes first. Otherwise it returns false, and the caller calls Add once the task is committed.
// In that case the gate may already have put the task into one of its lines.
func (b *Board) Reserve(now model.Time, it *Item) (WorkerID, bool) {
	b.advance(now)
	if it.Visible > now || it.spent() || b.tasks[keyOf(&it.Ref)] != nil {
		return 0, false
	}
	tenant := it.Ref.Address.Tenant
	if s := b.sites[siteName{tenant, it.Spec.Queue}]; s != nil && s.paused {
		return 0, false
	}

	var c *class
	for _, o := range b.byQueue[it.Spec.Queue] {
		if o.free.len() > 0 && o.covers(tenant, it.Spec.Kind) && (c == nil || byFree{}.before(o.free.top(), c.free.top())) {
			c = o
		}
	}

	// A waiting task of the same or a higher priority goes first.
	if c == nil || (c.active.len() > 0 && c.active.top().priority >= it.Spec.Priority) {
		return 0, false
	}
	g := b.groups[b.groupName(it)]
	if (g != nil && g.closed) || !b.take(now, it, g) {
		return 0, false
	}

	w := c.free.top()
	b.charge(c, it)
	b.propose(b.put(it), w, reserved)
	return w.id, true
}

// Unreserve handles a failed commit of a proposal. The board drops a reserved task. A matched task
// waits again, at its old place in the line.
func (b *Board) Unreserve(now model.Time, ref model.TaskRef) {
	b.advance(now)
	t := b.tasks[keyOf(&ref)]
	if t == nil || (t.state != reserved && t.state != matched) {
		return
	}
	back := t.state == matched
	b.release(now, t, Neither)
	if !back {
		b.drop(t)
		return
	}
	b.wait(t) // the task was visible when it was matched
	b.arm(t)
}

// HeldClaim is a committed claim.
type HeldClaim struct {
	Ref    model.ClaimRef
	Worker WorkerID // 0 if the worker is not here
	// Maker is the other node that has made the claim and counts it; empty if this node counts it.
	Maker string
}

// Hold says that a claim is committed. The deadlines of the claim start. The board need not know
// the task, because the caller also reports claims that it finds after recovery. Such a claim has
// no worker at first (WorkerID 0). The worker that executes the claim may come back for it (Beat).
// Hold reports whether the worker is here. If not, the claim has no worker, and the caller may give
// the claim back.
func (b *Board) Hold(now model.Time, it Item, c HeldClaim) (here bool) {
	b.advance(now)
	t := b.tasks[keyOf(&it.Ref)]
	if t == nil {
		t = b.put(&it)
	}
	permits := t.state.hasPermits()
	b.leaveState(t)
	if it.Note == nil {
		it.Note = t.Note
	}
	if it.Visible != t.Visible {
		b.deadlines.remove(t) // its place there depends on Visible
	}
	t.Item = it
	if t.Claimed == 0 {
		t.Claimed = now
	}
	if !permits && b.cfg.Gate != nil {
		b.cfg.Gate.Hold(now, &t.Item, c.Maker)
	}
	t.state, t.claim, t.beat = held, c.Ref.Claim, now
	t.site.claimed++
	w := b.workers[c.Worker]
	b.assign(t, w)
	b.arm(t)

	return w != nil
}

// MarkReported records that a worker has delivered the outcome of its claim. The slot of the claim
// becomes free and its deadlines stop. The permits of the claim stay taken until the report is
// committed and the caller calls Remove or Add. MarkReported returns whether the worker had the
// claim.
func (b *Board) MarkReported(now model.Time, id WorkerID, claim model.ClaimRef) bool {
	b.advance(now)
	t := b.findClaim(claim)
	if t == nil || t.worker == nil || t.worker.id != id {
		return false
	}
	t.state = reported
	b.assign(t, nil)
	b.arm(t)
	return true
}

// findClaim returns the task of a claim, or nil if the claim no longer holds its task.
func (b *Board) findClaim(claim model.ClaimRef) *task {
	t := b.tasks[keyOf(&claim.TaskRef)]
	if t == nil || t.claim != claim.Claim || t.state < held {
		return nil
	}
	return t
}

// Remove drops a task: it ended, was withdrawn, or moved to another node.
func (b *Board) Remove(now model.Time, ref model.TaskRef, how Outcome) {
	b.advance(now)
	if t := b.tasks[keyOf(&ref)]; t != nil {
		b.release(now, t, how)
		b.drop(t)
	}
}
