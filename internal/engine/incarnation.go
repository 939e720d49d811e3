package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/cluster"
	"github.com/perdure/perdure/internal/engine/crew"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/lending"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/notify"
	"github.com/perdure/perdure/internal/peerlink"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/telemetry"
)

// incarnation is one life of the node, from its registration to the loss of its lease or its
// orderly end.
type incarnation struct {
	eng         *Engine
	self        store.NodeInfo
	epoch       int64
	lanes       []*laneShell
	board       *board
	participant *flow.Participant // this node as one of the nodes that share limits
	// With the borrower, workers of other nodes execute tasks of this node. With the lender,
	// workers of this node execute tasks of other nodes. Both are nil if only one process can open
	// the store.
	borrower *lending.Borrower
	lender   *lending.Lender
	peers    *peer.Post
	// With crewOwner, workers of other nodes run code for this node. With crewHost, workers of this
	// node run code for other nodes. Both are nil if only one process can open the store.
	crewOwner *crew.OwnerSide
	crewHost  *crew.HostSide
	links     *peerlink.Net // connections to other nodes; nil if there are none
	// shardMap says which node owned which shard at the last renewal.
	shardMap atomic.Pointer[[]store.ShardOwner]
	tenure   atomic.Int64 // counts how often shards were acquired
	// toldShards are the shards to whose owners this node has sent messages over connections.
	toldShards toldShards
	alive      atomic.Pointer[[]string] // the members at the last renewal
	company    atomic.Pointer[company]  // the live nodes, at the last renewal
	// owner has an entry per shard. The entry is 0 if this node does not own the shard. If it does,
	// the entry is the number of the lane plus one. While this node gives up the shard, the entry
	// is the negative of that.
	owner []atomic.Int32

	// validUntil is the mono time (ns) until which the lease is certainly valid.
	validUntil atomic.Int64

	// leased is how long (ns) the machine had been suspended when the last answered renewal was
	// sent.
	leased   atomic.Int64
	renewals bell // rung when a renewal has succeeded or failed
	// suspended is how long the machine had been suspended at the last look. Only the members loop
	// uses it.
	suspended time.Duration

	sweeping   atomic.Bool // a sweep is in progress
	announcing atomic.Bool // an announcement is posted to the members loop

	inquiries atomic.Int32 // inquiries being answered
	// keeps says that the lanes must not delete anything because of its age. Only the members loop
	// uses it.
	keeps bool

	member *cluster.Membership // only the members loop uses it
	owners []store.ShardOwner  // as of the last renewal; only the members loop uses it
	seen   []store.Member      // the live nodes at the last renewal; only the members loop uses it
	stop   context.CancelCauseFunc
	wake   chan struct{} // capacity 1: something was posted to the members loop
	mu     sync.Mutex
	posted []func()

	// swept is how far the last sweep has looked through old dead tasks. Only the sweep uses it.
	swept store.DeadPlace
}

// isServing reports whether the node may answer from memory, because its lease is certainly valid.
func (inc *incarnation) isServing() bool {
	// A machine that was suspended may have lost its lease without noticing. The clock finds that
	// out before it compares times.
	inc.eng.clock.notice()

	return int64(inc.eng.clock.mono()) < inc.validUntil.Load()
}

// laneOf returns the lane that an activation came from.
func (inc *incarnation) laneOf(generation uint64) *laneShell {
	return inc.lanes[generation%uint64(len(inc.lanes))]
}

// run serves until the lease is lost or ctx ends. If the lease is lost, run returns an error. If
// ctx ends, it drains and gives up all shards in an orderly way.
func (inc *incarnation) run(ctx context.Context) error {
	// The lanes must outlive ctx, because a stopping node still commits while it gives up its
	// shards. So they get a context of their own, which the method end or the members loop cancels.
	inner, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	inc.stop = cancel
	defer cancel(errStopping)
	var wg sync.WaitGroup
	for _, s := range inc.lanes {
		wg.Go(func() { s.run(inner) })
	}
	// The node may have been asked to stop before this incarnation existed.
	if inc.eng.isStopping() {
		inc.hurry()
	}
	// Workers outlive incarnations. They join the new lanes and the new board here.
	for _, s := range inc.eng.workers.all() {
		if !s.isAway() && s.isAdmitted() { // a worker of another node joins by itself
			inc.join(s)
		}
	}
	for _, s := range inc.eng.entityWorkers.all() {
		if !s.isAway() && s.isAdmitted() {
			s.hands.LoseOwn()
			inc.joinEntities(s)
		}
	}

	for _, s := range inc.eng.taskWorkers.all() {
		inc.board.join(s)
		inc.announce()
	}

	defer inc.board.close()
	if inc.borrower != nil {
		all := make([]model.ShardID, len(inc.owner))
		for i := range all {
			all[i] = model.ShardID(i)
		}
		// Claims that workers hold from the previous incarnation belong to another node until this
		// incarnation owns their shards.
		inc.moveClaims(all, false)
		wg.Go(func() { inc.peers.Run(inner) })
		wg.Go(func() { inc.borrower.Run(inner) })
		wg.Go(func() { inc.lender.Run(inner) })
	}
	if inc.eng.levels != nil {
		wg.Go(func() { inc.sampleLevels(inner) })
	}
	endCrew := inc.runCrew(inner)
	if inc.links != nil {
		wg.Go(func() { inc.links.Run(inner) })
		wg.Go(func() { inc.followNodes(inner) })
	}

	unsubscribe := inc.eng.cfg.Hints.Subscribe(func(h notify.Hint) { inc.handleHint(h) })
	inc.runMembership(ctx, inner)
	unsubscribe()
	endCrew() // before the lanes end: workers of other nodes keep what they run
	// The order of the end is: first the members loop, so that no shard comes or goes; then the
	// lanes, which answer all waiting callers; then the registration.
	cause := context.Cause(inner)
	cancel(errStopping)
	wg.Wait()

	orderly := cause == nil || errors.Is(cause, errStopping)
	unstored := inc.gaveUpOnStore(cause)
	// No call of this incarnation is in flight now.
	if orderly || unstored != nil || errors.Is(cause, errClockBack) {
		inc.participant.Leave(ctx)
		inc.unregister(ctx)
	}

	switch {
	case orderly:
		return nil
	case unstored != nil:
		return unstored
	}
	return cause
}

// unregister removes the node immediately, so that other nodes do not have to wait for the end of
// its lease.
func (inc *incarnation) unregister(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := inc.eng.cfg.Store.Unregister(ctx, inc.self.ID, inc.epoch); err != nil {
		inc.eng.cfg.Log.Warn("cannot unregister; other nodes wait for the lease to expire", "error", err)
		return
	}
	inc.eng.cfg.Hints.Publish(notify.Hint{Kind: notify.Membership})
	inc.eng.cfg.Log.Info("node unregistered", "node", inc.self.ID.String())
}

// end stops the incarnation. A fenced lane calls it. A renewal calls it when the error of the store
// says that the store must be opened again.
func (inc *incarnation) end(why error) { inc.stop(why) }

// drainLimit is how long a stopping node with a valid lease tries to give up its shards in an
// orderly way.
const drainLimit = 30 * time.Second

// runMembership is the loop of the membership: it renews the lease, fences dead nodes, and moves
// shards.
func (inc *incarnation) runMembership(ctx, inner context.Context) {
	// One goroutine owns the membership, and results of calls come back to that goroutine through
	// post. So the membership needs no lock.
	m := inc.member
	timer := time.NewTimer(0)
	defer timer.Stop()
	draining := false
	var calls sync.WaitGroup
	defer calls.Wait()
	sweep := time.NewTicker(inc.eng.cfg.SweepEvery)
	defer sweep.Stop()
	done := ctx.Done()

	var enough <-chan time.Time
	for {
		select {
		case <-inner.Done():
			return
		case <-done:
			done, draining = nil, true
			enough = time.After(drainLimit)
			inc.eng.PrepareStop()
			m.Drain()
		case <-enough:
			inc.eng.cfg.Log.Warn("the node stops with shards that it could not give up", "count", len(m.OwnedShards()))
			inc.stop(errStopping)
			return
		case <-inc.wake:
			for _, do := range inc.take() {
				do()
			}
		case <-sweep.C:
			if inc.sweeping.CompareAndSwap(false, true) {
				calls.Go(func() { inc.sweep(inner) })
			}
		case <-timer.C:
		}

		inc.resume()
		// Without a lease the node has no shards left to give up.
		if draining && (m.HasDrained() || !inc.isServing()) {
			inc.stop(errStopping)
			return
		}

		// The membership is a state machine: it says what to do now, and when to ask it again.
		inc.act(inner, &calls, m.Tick(inc.eng.clock.mono()))
		inc.keepAll()
		next := m.NextTick()
		if from, ok := inc.eng.clock.deletesFrom(); ok && inc.keeps {
			next = min(next, from)
		}
		if draining {
			next = min(next, m.ValidUntil())
		}
		timer.Reset(max(0, next-inc.eng.clock.mono()))
	}
}

// act carries out what the membership asks for. Calls to the store run on other goroutines, so that
// a slow one does not delay the next renewal.
func (inc *incarnation) act(ctx context.Context, calls *sync.WaitGroup, a cluster.Actions) {
	if a.Lost != nil {
		inc.stop(a.Lost)
		return
	}

	st := inc.eng.cfg.Store
	// A renewal that takes longer than half a lease could not be repeated in time.
	timeout := inc.eng.cfg.LeaseTTL / 2
	if r := a.Renew; r != nil {
		calls.Go(func() {
			brief, cancel := context.WithTimeout(ctx, timeout)
			asleep, sent := inc.eng.clock.notice(), inc.eng.clock.mono()
			v, err := st.Renew(brief, *r)
			cancel()
			inc.eng.clock.notice()
			got := inc.eng.clock.mono()
			inc.post(func() { inc.handleRenewal(ctx, calls, renewal{v, sent, got, asleep}, err) })
		})
	}

	for _, f := range a.Fence {
		calls.Go(func() {
			brief, cancel := context.WithTimeout(ctx, timeout)
			ok, err := st.FenceNode(brief, f)
			cancel()
			if err != nil {
				inc.eng.others.fence.Fail(err, "node", f.Node.String())
			} else {
				inc.eng.others.fence.OK()
				inc.eng.cfg.Log.Info("fenced a dead node", "node", f.Node.String(), "proven", f.Proven, "abandoned", f.Abandoned, "done", ok)
			}
			inc.post(func() { inc.member.ApplyFence(f.Node, ok, err) })
		})
	}

	if len(a.Acquire) > 0 {
		inc.noteForeign(a.Acquire)
		calls.Go(func() {
			brief, cancel := context.WithTimeout(ctx, timeout)
			got, err := st.Acquire(brief, inc.self.ID, inc.epoch, a.Acquire)
			cancel()
			awaits := err == nil && inc.awaitsWorkers(ctx)
			inc.post(func() { inc.handleAcquired(ctx, calls, acquisition{got, awaits}, err) })
		})
	}

	if len(a.GiveUp) > 0 {
		inc.eng.cfg.Log.Info("giving up shards", "count", len(a.GiveUp))
		for _, s := range a.GiveUp {
			// The negative entry tells callers that the shard takes no new requests, while workers
			// may still report its claims (see keeper).
			if i := inc.owner[s].Load(); i > 0 {
				inc.owner[s].Store(-i)
			}
		}
		for i, s := range inc.lanes {
			if mine := inc.laneShards(i, a.GiveUp); len(mine) > 0 {
				s.inbox.result(func(l *lane.Lane, now model.Time) { l.GiveUp(now, mine) })
			}
		}
	}

	if a.Mail {
		inc.mailWaits()
	}
}

// post queues a function for the members loop. It never blocks.
func (inc *incarnation) post(do func()) {
	inc.mu.Lock()
	inc.posted = append(inc.posted, do)
	inc.mu.Unlock()
	select {
	case inc.wake <- struct{}{}:
	default:
	}
}

func (inc *incarnation) take() []func() {
	inc.mu.Lock()
	defer inc.mu.Unlock()
	posted := inc.posted
	inc.posted = nil
	return posted
}

// renewal is the answer to a renewal, with the node's own time before and after it.
type renewal struct {
	view      store.View
	sent, got time.Duration
	asleep    time.Duration // how long the machine had been suspended before the renewal
}

func (inc *incarnation) handleRenewal(ctx context.Context, calls *sync.WaitGroup, r renewal, err error) {
	// The store must be opened again, which the engine cannot do itself.
	if store.Final(err) {
		inc.end(err)
		return
	}

	inc.eng.cfg.Meter.Add(telemetry.Renewals, 1, word(err))
	v := r.view
	if err == nil {
		// The store read its clock between these two times.
		inc.readClock(r.sent, r.got, v.Now)
		inc.leased.Store(int64(r.asleep))
	}

	a := inc.member.ApplyRenewal(inc.eng.clock.mono(), v, err)
	if err != nil {
		inc.eng.lease.Fail(err)
	} else {
		inc.eng.lease.OK()
		inc.eng.trouble.Forget()
		// One answer carries the whole view of the cluster. Each part of the node takes what it
		// needs from the view.
		alive := make([]string, len(v.Members))
		for i := range v.Members {
			alive[i] = v.Members[i].ID.String()
		}
		inc.alive.Store(&alive)
		inc.owners = v.Owners
		inc.eng.former.note(&v)
		inc.noteDrain(&v)
		inc.linkWith(&v)
		inc.noteMembers(&v)
		inc.noteCompany(&v)
		inc.tellCrew(&v)
		inc.eng.flow.ReadIfNewer(v.Settings)
		if inc.participant.UpdateMembers(&v, len(inc.member.OwnedShards())) {
			inc.member.RenewNow()
		}
		if inc.borrower != nil {
			inc.borrower.SetMembers(&v)
			inc.lender.SetMembers(&v)
			if v.PeerMail {
				inc.peers.LookNow()
			}
		}
	}

	// Only now may callers rely on the new lease. Commits that wait for it continue.
	inc.validUntil.Store(int64(inc.member.ValidUntil()))
	inc.renewals.ring()
	inc.act(ctx, calls, a)
	if err == nil && len(a.Acquire) == 0 {
		inc.eng.isReady.Do(func() { close(inc.eng.ready) })
	}
}

// noteDrain learns whether an operator has drained this node.
func (inc *incarnation) noteDrain(v *store.View) {
	for i := range v.Members {
		m := &v.Members[i]
		if m.ID != inc.self.ID || m.Drained == inc.eng.drained {
			continue
		}
		inc.eng.drained = m.Drained
		inc.eng.cfg.Log.Info("an operator has changed whether this node is drained", "node", inc.self.ID.String(), "drained", m.Drained)
	}
}

// Rebalance makes all nodes check now whether shards should move. They also do so with each renewal
// of their lease.
func (e *Engine) Rebalance() {
	h := notify.Hint{Kind: notify.Membership}
	if inc := e.current(); inc != nil {
		inc.handleHint(h)
	}
	e.cfg.Hints.Publish(h)
}

// lastOwner returns the node that owned a shard at the last renewal. It returns zero if that node
// had given up the shard.
func (inc *incarnation) lastOwner(s model.ShardID) model.NodeID {
	i := slices.IndexFunc(inc.owners, func(o store.ShardOwner) bool { return o.Shard == s })
	if i < 0 {
		return model.NodeID{}
	}
	return inc.owners[i].Node
}

// noteForeign remembers which of the shards another incarnation served last, and whether that
// incarnation was another process that has not given them up. It must run before this node acquires
// the shards. If the answer to the acquisition is lost or late, the next view already names this
// node as their owner.
func (inc *incarnation) noteForeign(shards []model.ShardID) {
	for _, s := range shards {
		last, orphaned := inc.lastOwner(s), inc.eng.foreign[s]
		if last == inc.self.ID {
			continue
		}
		if !inc.eng.lives[last] {
			orphaned = !last.IsZero()
		}
		inc.eng.foreign[s] = orphaned
	}
}

// takeForeign reports whether another incarnation served an acquired shard last, and whether that
// incarnation was another process that did not give up the shard. It then notes that this
// incarnation serves the shard.
//
// An earlier incarnation of this process counts as another one. It may have ended before the
// workers of its predecessor had come back. Its own runs may be on workers of other nodes, which
// keep what they execute when the owner is lost.
func (inc *incarnation) takeForeign(s model.ShardID) (foreign, orphaned bool) {
	orphaned, foreign = inc.eng.foreign[s]
	delete(inc.eng.foreign, s)
	return foreign, orphaned
}

// acquisition is the answer of the store to a call that acquires shards. awaits says that some
// remote workers of lost servers have not come back yet.
type acquisition struct {
	shards []store.AcquiredShard
	awaits bool
}

func (inc *incarnation) handleAcquired(ctx context.Context, calls *sync.WaitGroup, a acquisition, err error) {
	got := a.shards
	inc.act(ctx, calls, inc.member.ApplyAcquire(got, err))
	if err != nil {
		inc.eng.others.acquire.Fail(err)
		return
	}

	inc.eng.others.acquire.OK()
	// If the last owner did not free a shard, one of its calls may have killed that owner. The
	// lanes treat the calls of the shard as suspects.
	for i := range got {
		foreign, orphaned := inc.takeForeign(got[i].Shard)
		// on a server, calls run in other processes, so they cannot kill the server
		got[i].Crashed = orphaned && inc.eng.cfg.Lane.Reunion == 0
		got[i].Foreign = foreign && inc.mayBeHeld()
		// Even if the last owner lives, remote workers of an earlier owner may be on their way to
		// this server. awaits says so.
		got[i].Handed = got[i].Foreign && inc.eng.cfg.Lane.Reunion > 0 && !a.awaits && inc.eng.former.hasHanded(got[i].Shard, inc.lastOwner(got[i].Shard))
	}
	foreign := slices.ContainsFunc(got, func(g store.AcquiredShard) bool { return g.Foreign })

	if d := inc.eng.cfg.Lane.Reunion; d > 0 && foreign {
		inc.board.reunite(d)
	}

	shards := make([]model.ShardID, len(got))
	for i := range got {
		shards[i] = got[i].Shard
	}
	// Watchers learn of the move before the lanes can change anything in the shards.
	inc.eng.feed.Claim(shards)
	tenure := inc.tenure.Add(1)
	if inc.links != nil {
		inc.links.Mark(uint64(tenure))
	}
	for i, s := range inc.lanes {
		var mine []store.AcquiredShard
		for _, g := range got {
			if inc.laneIndex(g.Shard) == i {
				mine = append(mine, g)
			}
		}
		if len(mine) > 0 {
			s.inbox.result(func(l *lane.Lane, now model.Time) { l.Acquire(now, mine) })
		}
	}

	// Put the shards into the inboxes of the lanes before requests for them can arrive. An inbox
	// keeps its order, so each lane gets a shard before it gets requests for the shard.
	for _, g := range got {
		inc.owner[g.Shard].Store(int32(inc.laneIndex(g.Shard)) + 1)
	}
	// A caller of this process may have stored a request after the lanes had read their mail. Until
	// now, MailHint did not find the lane of the shard, so the lane knows nothing of the request.
	// The lanes read their mail once more for such requests.
	inc.mailWaits()
	inc.moveClaims(shards, true)
	if foreign {
		inc.reunite()
	}
	inc.eng.served.ring()
	inc.eng.cfg.Log.Info("acquired shards", "count", len(got))
	inc.eng.isReady.Do(func() { close(inc.eng.ready) })
	inc.eng.cfg.Hints.Publish(notify.Hint{Kind: notify.Membership})
}

// laneIndex returns the lane of a shard.
func (inc *incarnation) laneIndex(s model.ShardID) int {
	return inc.eng.division.laneOf(s, len(inc.lanes))
}

// laneShards returns the shards among the given ones that belong to a lane.
func (inc *incarnation) laneShards(index int, shards []model.ShardID) []model.ShardID {
	var mine []model.ShardID
	for _, s := range shards {
		if inc.laneIndex(s) == index {
			mine = append(mine, s)
		}
	}
	return mine
}

// A lane calls handleFreed when it has given up shards.
func (inc *incarnation) handleFreed(shards []model.ShardID) {
	// Copy the shards, because the lane reuses the memory of its output.
	shards = append([]model.ShardID(nil), shards...)
	for _, s := range shards {
		inc.owner[s].Store(0)
	}
	inc.moveClaims(shards, false)
	inc.eng.feed.Release(shards)
	inc.post(func() {
		inc.member.RemoveShards(shards)
		inc.eng.cfg.Hints.Publish(notify.Hint{Kind: notify.Membership})
	})
}

// moveClaims tells the task workers that shards, and with them the claims that the workers hold,
// now belong to this node or to another node.
func (inc *incarnation) moveClaims(shards []model.ShardID, ours bool) {
	if inc.lender == nil {
		return
	}
	set := make(map[model.ShardID]bool, len(shards))
	for _, s := range shards {
		set[s] = true
	}

	for _, s := range inc.eng.taskWorkers.own() {
		// The claim may have ended without a message to the worker, so let the lane check it.
		for _, ref := range s.moveClaims(set, ours) {
			if l := inc.lane(inc.shardOf(ref.Address)); l != nil {
				l.inbox.result(func(l *lane.Lane, now model.Time) { l.Attach(now, ref, s.id, s.speaker()) })
			}
		}
		inc.board.join(s)
	}

	inc.lender.Wake()
}

// shardOf returns the shard of an address.
func (inc *incarnation) shardOf(a model.Address) model.ShardID { return inc.eng.layout.Shard(a) }

// lane returns the lane of a shard, or nil if this node does not own the shard.
func (inc *incarnation) lane(s model.ShardID) *laneShell {
	if i := inc.owner[s].Load(); i > 0 {
		return inc.lanes[i-1]
	}
	return nil
}

// keeper returns the lane that decides about claims of a shard. Unlike lane, it also returns the
// lane while this node gives up the shard, because the lane still waits for the claims to end. It
// returns nil if this node does not own the shard.
func (inc *incarnation) keeper(s model.ShardID) *laneShell {
	if i := inc.owner[s].Load(); i < 0 {
		return inc.lanes[-i-1]
	}
	return inc.lane(s)
}

func (inc *incarnation) mailWaits() {
	inc.everywhere(func(l *lane.Lane, _ model.Time) { l.MailWaits() })
}

// MailHint tells the owner of a shard, on this node or another, that a request may wait in the
// store.
func (e *Engine) MailHint(s model.ShardID) {
	h := notify.Hint{Kind: notify.Requests, Shard: s}
	if inc := e.current(); inc != nil && inc.lane(s) != nil {
		inc.handleHint(h)
		if inc.isServing() {
			return
		}
		// Another node may own the shard by now.
	}
	e.cfg.Hints.Publish(h)
}

// handleHint receives the hints of other nodes that something may have changed.
func (inc *incarnation) handleHint(h notify.Hint) {
	switch h.Kind {
	case notify.Mail:
		if s := inc.keeper(h.Shard); s != nil {
			s.inbox.result(func(l *lane.Lane, _ model.Time) { l.MailWaitsFor(h.Shard) })
		}
	case notify.Requests:
		if s := inc.keeper(h.Shard); s != nil {
			s.inbox.result(func(l *lane.Lane, _ model.Time) { l.RequestsWait(h.Shard) })
		}
	case notify.Closed:
		if h.Node == inc.self.ID {
			inc.eng.clerk.lookout.LookNow()
		}
	case notify.Membership:
		inc.post(inc.member.RenewNow)
	case notify.Settings:
		if h.Node != inc.self.ID {
			inc.eng.flow.ReadSoon()
		}
	case notify.Peer:
		if h.Node == inc.self.ID && inc.peers != nil {
			inc.peers.LookNow()
		}
	}
}

// hint tells nodes that runs they wait for have closed, or that their requests have answers. It
// does not publish a hint for this node itself, because most hubs drop the hints of their own
// process.
func (inc *incarnation) hint(hs []lane.Hint) {
	for _, h := range hs {
		if h.Node == inc.self.ID { // the request waited until this node became the owner
			inc.eng.clerk.lookout.LookNow()
			continue
		}
		if !inc.note(h.Node, noteLook, nil) {
			inc.eng.cfg.Hints.Publish(notify.Hint{Kind: notify.Closed, Node: h.Node})
		}
	}
}

func (inc *incarnation) join(w *Session) {
	inc.announce()
	slots := inc.newSlots(w.id, w.offer.Slots)
	for i, s := range inc.lanes {
		offer := w.offer
		offer.Held = inc.heldIn(i, offer.Held)
		s.inbox.result(func(l *lane.Lane, now model.Time) { l.Join(now, w.id, offer, slots.capacity()) })
	}
	inc.lend(&w.lent, slots)
}

// heldIn returns the runs and entities that a worker holds in the shards of a lane.
func (inc *incarnation) heldIn(index int, held []model.HeldRun) (mine []model.HeldRun) {
	for _, h := range held {
		if inc.laneIndex(inc.shardOf(h.Address)) == index {
			mine = append(mine, h)
		}
	}
	return mine
}

func (inc *incarnation) leave(w *Session) {
	inc.everywhere(func(l *lane.Lane, now model.Time) { l.Leave(now, w.id) })
}

// announce tells other nodes what the workers of this node can run. If many workers join or leave
// at the same time, it makes one announcement for all of them.
func (inc *incarnation) announce() {
	if inc.announcing.CompareAndSwap(false, true) {
		inc.post(func() {
			inc.announcing.Store(false)
			inc.member.Serve(inc.eng.servedByWorkers())
		})
	}
}

// announce tells other nodes what the workers of this node can run. The caller must remove a worker
// that has left before it calls announce.
func (e *Engine) announce() {
	if inc := e.current(); inc != nil {
		inc.announce()
	}
}
