package engine

import (
	"context"
	"errors"

	"github.com/perdure/perdure/internal/engine/crew"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// EntityWorker has the code of entities and services. See api.EntityWorker for the protocol.
type EntityWorker interface {
	// Operate hands over calls of one entity. It must not block.
	Operate(o model.Operations)
}

// entityWorkers holds the entity workers that have joined this node, over all of its incarnations.
type entityWorkers struct {
	roster[lane.WorkerID, EntitySession]
}

// call passes the hand-overs of a lane to the workers.
func (w *entityWorkers) call(calls []lane.OperateCall) {
	for i := range calls {
		c := &calls[i]
		if s := w.get(-c.Worker); s != nil { // nil: the worker has left, and the lane learns that
			s.hold(c.Operations.Generation, c.Operations.Generation)
			if s.isAway() {
				s.worker.Operate(c.Operations)
			} else {
				s.hands.Operate(c.Operations)
			}
		}
	}
}

// interrupter is an EntityWorker that can interrupt calls.
type interrupter interface {
	Interrupt(i model.Interruption)
}

// interrupt passes interruptions of a lane to the workers. Workers that cannot interrupt calls get
// no interruptions.
func (w *entityWorkers) interrupt(calls []lane.InterruptCall) {
	for i := range calls {
		s := w.get(-calls[i].Worker)
		if s == nil {
			continue // the worker has left, and its calls run again
		}
		if worker, ok := s.worker.(interrupter); ok {
			order := calls[i].Interruption
			if !s.isAway() {
				order.Generation = s.hands.Running(order.Generation)
			}
			worker.Interrupt(order)
		}
	}
}

// EntitySession is the engine's side of an entity worker.
type EntitySession struct {
	eng    *Engine
	id     lane.WorkerID // lanes use the negative id, which no workflow worker has
	worker EntityWorker
	offer  model.EntityOffer
	node   model.NodeID      // the node of the worker; zero for a worker of this process
	hands  *crew.EntityHands // its work for other nodes
	lent
	entrance

	holdings[uint64] // hand-overs, by generation
}

func (s *EntitySession) isAway() bool { return !s.node.IsZero() }

// JoinEntities adds an entity worker.
func (e *Engine) JoinEntities(w EntityWorker, offer model.EntityOffer) *EntitySession {
	s := e.entityWorkers.add(func(id lane.WorkerID) *EntitySession {
		s := &EntitySession{eng: e, id: id, worker: w, offer: offer}
		s.hands = crew.NewEntityHands(w, offer, crew.HandsConfig{
			Hold: func(_ model.RunID, g uint64) { s.hold(g, g) }, Release: func(_ model.RunID, g uint64) { s.release(g, g) }, Slots: s.slots,
			Report: s.report, Return: s.giveBack,
		})
		return s
	})
	e.admit(&s.entrance, offer.Remote, func(inc *incarnation) { inc.joinEntities(s) })
	return s
}

// FinishCalls delivers the outcome of calls. It blocks while the engine is full.
func (s *EntitySession) FinishCalls(ctx context.Context, r model.Operated) error {
	if crew.IsLent(r.Generation) {
		return s.hands.FinishCalls(ctx, r)
	}
	var err error
	if !s.isAway() {
		err = s.hands.FinishCalls(ctx, r)
	}
	return errors.Join(err, s.report(ctx, r))
}

// report delivers the outcome of calls of this node. It blocks while the engine is full.
func (s *EntitySession) report(ctx context.Context, r model.Operated) error {
	defer s.release(r.Generation, r.Generation)
	inc := s.eng.current()
	if inc == nil {
		return fault.New(fault.Unavailable, "the engine is not running")
	}
	return inc.laneOf(r.Generation).inbox.put(ctx, op{do: func(l *lane.Lane, now model.Time) { l.FinishCalls(now, -s.id, &r) }})
}

// giveBack returns calls of this node that the worker has not made. It does not block.
func (s *EntitySession) giveBack(r model.Operated) {
	defer s.release(r.Generation, r.Generation)
	if inc := s.eng.current(); inc != nil {
		inc.laneOf(r.Generation).inbox.result(func(l *lane.Lane, now model.Time) { l.FinishCalls(now, -s.id, &r) })
	}
}

// Withdraw implements api.Withdrawer.
func (s *EntitySession) Withdraw(ctx context.Context) {
	s.withdraw()
	if inc := s.eng.current(); inc != nil {
		inc.withdraw(ctx, -s.id)
	}
}

// Leave stops the flow of new calls. It waits until the worker has reported the calls in flight, or
// until ctx ends. Then it ends the session.
func (s *EntitySession) Leave(ctx context.Context) error {
	return s.end(ctx, func(l *lane.Lane, now model.Time) { l.Leave(now, -s.id) }, (*crew.HostSide).Leave)
}

// Lose ends the session of a worker that has disappeared. See api.EntitySession.
func (s *EntitySession) Lose(unseen func() []uint64) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	here := func(l *lane.Lane, now model.Time) { l.Lose(now, -s.id, s.hands.Unseen(unseen())) }
	_ = s.end(ctx, here, func(h *crew.HostSide, _ crew.Hands) { h.Lose(s.hands, unseen) })
}

// end ends the session: here tells a lane of this node that the worker is gone, and there tells the
// other nodes.
func (s *EntitySession) end(ctx context.Context, here func(l *lane.Lane, now model.Time), there func(*crew.HostSide, crew.Hands)) error {
	s.Withdraw(ctx)
	if inc := s.eng.current(); inc != nil {
		inc.withdrawLent(ctx, &s.lent, s.hands)
	}

	err := s.rest(ctx)
	if err != nil {
		err = fault.New(fault.Timeout, "calls of entities are still being made: %w", err)
	}

	if inc := s.eng.current(); inc != nil {
		for _, shell := range inc.lanes { // after the last report of the worker
			shell.inbox.follow(op{do: here})
		}
		if inc.crewHost != nil {
			there(inc.crewHost, s.hands)
		}
	}

	s.eng.entityWorkers.remove(s.id)
	s.eng.dismiss(s.offer.Remote, err != nil || len(s.hands.Left()) > 0)
	s.eng.announce()
	return err
}

func (inc *incarnation) joinEntities(w *EntitySession) {
	inc.announce()
	slots := inc.newSlots(-w.id, w.offer.Slots)
	for i, s := range inc.lanes {
		offer := w.offer
		offer.Held = inc.heldIn(i, offer.Held)
		s.inbox.result(func(l *lane.Lane, now model.Time) { l.JoinEntities(now, -w.id, offer, slots.capacity()) })
	}
	inc.lend(&w.lent, slots)
}

// everywhere runs do on each lane.
func (inc *incarnation) everywhere(do func(l *lane.Lane, now model.Time)) {
	for _, s := range inc.lanes {
		s.inbox.result(do)
	}
}

// withdraw makes the lanes give a worker nothing new. When it returns, the worker holds everything
// that the lanes have handed over, unless ctx has ended first.
func (inc *incarnation) withdraw(ctx context.Context, id lane.WorkerID) {
	inc.everywhere(func(l *lane.Lane, now model.Time) { l.Withdraw(now, id) })
	inc.waitForLanes(ctx)
}

// waitForLanes waits until each lane has executed everything that was queued before, or until ctx
// ends.
func (inc *incarnation) waitForLanes(ctx context.Context) {
	for _, s := range inc.lanes {
		c := newCall()
		if s.inbox.put(ctx, op{token: c, do: func(*lane.Lane, model.Time) { c.finish(&lane.Answer{}) }}) != nil {
			continue // the lane has ended and hands over nothing, or ctx has ended
		}
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
}

// Call is Send for a call of an entity. It does not repeat a brief call that may have run, unless
// the call is a view, which changes nothing.
func (e *Engine) Call(ctx context.Context, m *model.Message, view bool) (model.Answer, error) {
	switch {
	case !m.Brief:
		return e.Send(ctx, m)
	case view:
		return e.Query(ctx, m)
	}

	for {
		served := e.served.listen()
		inc := e.current()
		a, err := e.sendLocal(ctx, m, true, false)

		switch {
		case !errors.Is(err, lane.ErrNotOwner) && (inc == nil || !inc.isServing()) && err == nil:
			// Another node may own the entity by now, and that node knows nothing of the call.
			return model.Answer{}, lane.ErrInterrupted
		case !errors.Is(err, lane.ErrNotOwner):
			return a.Answer, err
		case e.cfg.Store.Info().Shared:
			a, tried, err := e.sendDirectly(ctx, askBrief, m, true, attempt{})
			switch {
			case !errors.Is(err, lane.ErrNotOwner):
				return a.Answer, err
			case tried.taken:
				return model.Answer{}, lane.ErrInterrupted
			}
			return e.clerk.send(ctx, m, attempt{})
		case !e.await(ctx, served):
			return model.Answer{}, e.gaveUp(ctx, "call %s of %s: the node does not serve its shards", m.Name, m.To)
		}
	}
}
