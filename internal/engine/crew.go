package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/perdure/perdure/internal/engine/crew"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// lent is the state of the work that a worker of this process does for other nodes.
type lent struct {
	// room has the slots of the worker in the current incarnation. It is nil if the worker takes
	// any number of runs or calls.
	room    atomic.Pointer[slots]
	leaving atomic.Bool
}

func (t *lent) slots() crew.SharedSlots {
	if s := t.room.Load(); s != nil {
		return s
	}
	return nil
}

// newCrew creates the two sides of package crew: one lets workers of other nodes join this node,
// the other lets workers of this node join other nodes.
func (inc *incarnation) newCrew() {
	line, log := peer.Crew{Post: inc.peers}, inc.eng.cfg.Log
	inc.crewOwner = crew.NewOwnerSide(line, crewEngine{inc}, log)
	inc.crewHost = crew.NewHostSide(crew.HostConfig{Line: line, Self: inc.self.ID, Log: log, Workers: inc.eng.lendable, Members: inc.eng.cfg.Store.Members})
}

func (inc *incarnation) crewHandler() crew.Dispatcher {
	return crew.Dispatcher{Owner: inc.crewOwner, Host: inc.crewHost, Log: inc.eng.cfg.Log}
}

// HandleCrew receives messages of other nodes about workers.
func (h peerHandler) HandleCrew(from model.NodeID, question []byte, answer func([]byte)) {
	h.inc.crewHandler().Handle(from, question, answer)
}

// runCrew lets workers of other nodes work for this node, and lends workers of this node to other
// nodes. The returned function ends both, and waits until they have ended.
func (inc *incarnation) runCrew(ctx context.Context) (end func()) {
	if inc.crewHost == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { inc.crewOwner.Run(ctx) })
	wg.Go(func() { inc.crewHost.Run(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// lendable returns the workers of this process that other nodes may use.
func (e *Engine) lendable() []crew.Hands {
	var all []crew.Hands
	for _, s := range e.workers.all() {
		if !s.isAway() && s.isAdmitted() && !s.leaving.Load() && s.offer.Tenant != model.EveryTenant {
			all = append(all, s.hands)
		}
	}
	for _, s := range e.entityWorkers.all() {
		if !s.isAway() && s.isAdmitted() && !s.leaving.Load() && s.offer.Tenant != model.EveryTenant {
			all = append(all, s.hands)
		}
	}
	return all
}

// lend offers to other nodes a worker that has joined this node.
func (inc *incarnation) lend(t *lent, s *slots) {
	t.room.Store(s)
	if inc.crewHost != nil {
		inc.crewHost.Sync()
	}
}

// withdrawLent makes sure that a worker that wants to leave gets nothing new from other nodes.
func (inc *incarnation) withdrawLent(ctx context.Context, t *lent, w crew.Hands) {
	t.leaving.Store(true)
	if inc.crewHost != nil {
		inc.crewHost.Withdraw(ctx, w)
	}
}

// leaveLent tells other nodes that a worker no longer works for them.
func (inc *incarnation) leaveLent(w crew.Hands) {
	if inc.crewHost != nil {
		inc.crewHost.Leave(w)
	}
}

// tellCrew tells package crew which nodes are alive, and which code they have.
func (inc *incarnation) tellCrew(v *store.View) {
	if inc.crewHost == nil {
		return
	}
	inc.crewOwner.SetAlive(func(node model.NodeID) (alive, stopping bool) {
		for i := range v.Members {
			if m := &v.Members[i]; m.ID == node {
				return m.Expires >= v.Now, m.Draining
			}
		}
		return false, false
	})
	inc.crewHost.SetMembers(v)
	if !inc.eng.mixed.Load() && crew.Differ(v.Members) {
		inc.eng.mixed.Store(true)
	}
}

// mayBeHeld reports whether workers that outlive the last owner of a shard may hold its runs. Such
// workers are remote workers of a server and, if nodes have had different code, workers of other
// nodes.
func (inc *incarnation) mayBeHeld() bool {
	if inc.eng.cfg.Lane.Reunion > 0 {
		return true
	}
	return inc.crewHost != nil && inc.eng.mixed.Load() && (len(inc.others()) > 0 || inc.crewHost.HasSessions() || inc.eng.holdsLeft())
}

// others returns the other live nodes.
func (inc *incarnation) others() (all []model.NodeID) {
	for i := range inc.seen {
		if inc.seen[i].ID != inc.self.ID {
			all = append(all, inc.seen[i].ID)
		}
	}
	return all
}

// holdsLeft reports whether a worker of this process still holds a run or an entity of an owner
// that is lost.
func (e *Engine) holdsLeft() bool {
	for _, s := range e.workers.all() {
		if !s.isAway() && len(s.hands.Left()) > 0 {
			return true
		}
	}
	for _, s := range e.entityWorkers.all() {
		if !s.isAway() && len(s.hands.Left()) > 0 {
			return true
		}
	}
	return false
}

// meet tells the lanes what a worker holds in their shards.
func (inc *incarnation) meet(id lane.WorkerID, held []model.HeldRun) {
	held = inc.ours(held)
	if len(held) == 0 {
		return
	}
	for i, s := range inc.lanes {
		if mine := inc.heldIn(i, held); len(mine) > 0 {
			s.inbox.result(func(l *lane.Lane, now model.Time) { l.Meet(now, id, mine) })
		}
	}
}

// ours returns the runs and entities that belong to shards of this node.
func (inc *incarnation) ours(held []model.HeldRun) (mine []model.HeldRun) {
	for _, h := range held {
		if inc.lane(inc.shardOf(h.Address)) != nil {
			mine = append(mine, h)
		}
	}
	return mine
}

// crewEngine implements crew.Workplace for an incarnation.
type crewEngine struct{ inc *incarnation }

// Join implements crew.Workplace.
func (c crewEngine) Join(node model.NodeID, w crew.RunWorker, o model.Offer, credit *crew.Credit) crew.RunSession {
	inc := c.inc
	o.Held = inc.ours(o.Held)
	s := inc.eng.workers.add(func(id lane.WorkerID) *Session {
		return &Session{eng: inc.eng, id: id, worker: w, offer: o, node: node}
	})
	room := inc.serve(credit, s.id)
	for i, shell := range inc.lanes {
		offer := o
		offer.Held = inc.heldIn(i, o.Held)
		shell.inbox.result(func(l *lane.Lane, now model.Time) { l.JoinAway(now, s.id, offer, room) })
	}
	return awaySession{s, awayMember{inc, s.id}}
}

// JoinEntities implements crew.Workplace.
func (c crewEngine) JoinEntities(node model.NodeID, w crew.CallWorker, o model.EntityOffer, credit *crew.Credit) crew.CallSession {
	inc := c.inc
	o.Held = inc.ours(o.Held)
	s := inc.eng.entityWorkers.add(func(id lane.WorkerID) *EntitySession {
		return &EntitySession{eng: inc.eng, id: id, worker: w, offer: o, node: node}
	})
	room := inc.serve(credit, -s.id)
	for i, shell := range inc.lanes {
		offer := o
		offer.Held = inc.heldIn(i, o.Held)
		shell.inbox.result(func(l *lane.Lane, now model.Time) { l.JoinEntitiesAway(now, -s.id, offer, room) })
	}
	return awayEntitySession{s, awayMember{inc, -s.id}}
}

// serve connects the slots of a worker of another node with the lanes: the credit wakes a lane when
// a slot may be free.
func (inc *incarnation) serve(credit *crew.Credit, id lane.WorkerID) lane.Capacity {
	if credit == nil {
		return nil
	}
	credit.Serve(len(inc.lanes), func(i int) {
		inc.lanes[i].inbox.result(func(l *lane.Lane, now model.Time) { l.HandOut(now, id) })
	})
	return credit
}

// awayMember is what the sessions of both kinds of workers of other nodes have in common.
type awayMember struct {
	inc *incarnation
	id  lane.WorkerID
}

// Hold implements crew.Membership.
func (m awayMember) Hold(held []model.HeldRun) { m.inc.meet(m.id, held) }

// Withdraw implements crew.Membership.
func (m awayMember) Withdraw(ctx context.Context) {
	m.inc.withdraw(ctx, m.id)
}

// tell informs the lanes that the worker is gone.
func (m awayMember) tell(do func(l *lane.Lane, now model.Time)) {
	for _, shell := range m.inc.lanes { // after the last report of the worker
		shell.inbox.follow(op{do: do})
	}
}

func (m awayMember) leave() {
	m.tell(func(l *lane.Lane, now model.Time) { l.Leave(now, m.id) })
}

// awaySession is the session of a worker of another node.
type awaySession struct {
	*Session
	awayMember
}

// Withdraw implements crew.Membership.
func (s awaySession) Withdraw(ctx context.Context) { s.awayMember.Withdraw(ctx) }

// Leave implements crew.Membership.
func (s awaySession) Leave() {
	s.leave()
	s.eng.workers.remove(s.Session.id)
}

// Lose implements crew.Membership. The lanes count losses only for calls of entities.
func (s awaySession) Lose([]uint64) { s.Leave() }

// awayEntitySession is the session of a worker of entities of another node.
type awayEntitySession struct {
	*EntitySession
	awayMember
}

// Withdraw implements crew.Membership.
func (s awayEntitySession) Withdraw(ctx context.Context) { s.awayMember.Withdraw(ctx) }

// Leave implements crew.Membership.
func (s awayEntitySession) Leave() {
	s.leave()
	s.eng.entityWorkers.remove(s.EntitySession.id)
}

// Lose implements crew.Membership.
func (s awayEntitySession) Lose(unseen []uint64) {
	s.tell(func(l *lane.Lane, now model.Time) { l.Lose(now, s.awayMember.id, unseen) })
	s.eng.entityWorkers.remove(s.EntitySession.id)
}
