package engine

import (
	"context"
	"errors"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// EntityWorker has the code of entities and services. See api.EntityWorker for the protocol.
type EntityWorker interface {
	// Operate hands calls of one entity over. It must not block.
	Operate(o model.Operations)
}

// entityWorkers are those that have joined this node, over all its incarnations.
type entityWorkers struct {
	roster[lane.WorkerID, EntitySession]
}

// call passes hand-overs of a lane on.
func (w *entityWorkers) call(calls []lane.OperateCall) {
	for i := range calls {
		c := &calls[i]
		if s := w.get(-c.Worker); s != nil { // else it has left; the lane hears of it
			s.hold(c.Operations.Generation, c.Operations.Generation)
			s.worker.Operate(c.Operations)
		}
	}
}

// EntitySession is the side of the engine of a worker of entities.
type EntitySession struct {
	eng    *Engine
	id     lane.WorkerID // lanes know it as its negative, which no worker of workflows has
	worker EntityWorker
	offer  model.EntityOffer

	holdings[uint64] // hand-overs, by their generations
}

// JoinEntities adds a worker of entities.
func (e *Engine) JoinEntities(w EntityWorker, offer model.EntityOffer) *EntitySession {
	s := e.entityWorkers.add(func(id lane.WorkerID) *EntitySession {
		return &EntitySession{eng: e, id: id, worker: w, offer: offer}
	})
	if inc := e.current(); inc != nil {
		inc.joinEntities(s)
	}
	return s
}

// Operated hands in what came of calls; it waits while the engine is full.
func (s *EntitySession) Operated(ctx context.Context, r model.Operated) error {
	defer s.release(r.Generation, r.Generation)
	inc := s.eng.current()
	if inc == nil {
		return fault.New(fault.Unavailable, "the engine is not running")
	}
	return inc.laneOf(r.Generation).inbox.put(ctx, op{do: func(l *lane.Lane, now model.Time) { l.FinishCalls(now, -s.id, &r) }})
}

// Leave stops the flow of new calls, waits until those that are being made have been reported or
// ctx ends, and ends the session.
func (s *EntitySession) Leave(ctx context.Context) error {
	if inc := s.eng.current(); inc != nil {
		inc.everywhere(func(l *lane.Lane, _ model.Time) { l.Withdraw(-s.id) })
		inc.heed(ctx) // what they hand over until then is held
	}

	err := s.rest(ctx)
	if err != nil {
		err = fault.New(fault.Timeout, "calls of entities are still being made: %w", err)
	}

	if inc := s.eng.current(); inc != nil {
		inc.post(inc.serve)
		for _, shell := range inc.lanes { // behind what it has reported
			shell.inbox.follow(op{do: func(l *lane.Lane, now model.Time) { l.Leave(now, -s.id) }})
		}
	}

	s.eng.entityWorkers.remove(s.id)
	return err
}

func (inc *incarnation) joinEntities(w *EntitySession) {
	inc.post(inc.serve)
	inc.everywhere(func(l *lane.Lane, now model.Time) { l.JoinEntities(now, -w.id, w.offer) })
}

// everywhere has each lane do something.
func (inc *incarnation) everywhere(do func(l *lane.Lane, now model.Time)) {
	for _, s := range inc.lanes {
		s.inbox.result(do)
	}
}

// heed waits until each lane has done what it was told everywhere before, and has carried out what
// it did before that; or until ctx ends.
func (inc *incarnation) heed(ctx context.Context) {
	for _, s := range inc.lanes {
		c := newCall()
		if s.inbox.put(ctx, op{token: c, do: func(*lane.Lane, model.Time) { c.finish(&lane.Answer{}) }}) != nil {
			continue // it has ended, and hands nothing over; or ctx has
		}
		select {
		case <-c.done:
		case <-ctx.Done():
		}
	}
}

// Call is Send of a call of an entity. A brief one is not sent again when it may have been made,
// unless it is that of a view, which changes nothing.
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
		case !errors.Is(err, lane.ErrNotOwner) && (inc == nil || !inc.serving()) && err == nil:
			return model.Answer{}, lane.ErrInterrupted // whoever owns it by now knows nothing of it
		case !errors.Is(err, lane.ErrNotOwner):
			return a.Answer, err
		case e.cfg.Store.Info().Shared:
			return e.clerk.send(ctx, m, false)
		case !e.await(ctx, served):
			return model.Answer{}, e.gaveUp(ctx, "call %s of %s: the node does not serve its shards", m.Name, m.To)
		}
	}
}
