package engine

import (
	"context"

	"github.com/perdure/perdure/internal/engine/crew"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Worker runs the code of workflows. No method may block. See api.Worker for the protocol.
type Worker interface {
	// Activate hands over a run.
	Activate(a *model.Activation)
	// Deliver delivers the next events.
	Deliver(run model.RunID, generation uint64, events []model.Event)
	// Retry tells the worker that the back-off of a step is over.
	Retry(run model.RunID, generation uint64, id string)
	// Evict takes back a run.
	Evict(run model.RunID, generation uint64, reason string)
	// Query asks the code of a run.
	Query(run model.RunID, generation uint64, q model.Query)
	// Taken answers a turn that recorded no event.
	Taken(run model.RunID, generation uint64)
	// Recall asks the code about a run that has ended.
	Recall(a model.Address, run model.RunID, generation uint64, q model.Query)
}

// Previewer is a Worker whose code may continue with events before they are committed, so that
// several turns of a run share one commit (see lane/preview.go). Only workers in the process of the
// engine are asked.
type Previewer interface {
	Worker
	// Previews reports whether the engine may call Preview.
	Previews() bool
	// Preview brings the next events of a run, which are not committed yet. The code continues with
	// them, and the worker reports turns as usual. But until Confirm says that the events are
	// durable, the worker starts no step, answers no query and does not release the run. If the
	// store refuses the events, the engine evicts the run.
	Preview(run model.RunID, generation uint64, events []model.Event)
	// Confirm says that all events of a run up to a position are durable.
	Confirm(run model.RunID, generation uint64, position int64)
}

// workers holds the workers that have joined this node, over all of its incarnations.
type workers struct{ roster[lane.WorkerID, Session] }

// call passes a call of a lane to its worker. dead says that the lane has ended.
func (w *workers) call(c *lane.Call, dead bool) {
	s := w.get(c.Worker)
	if s == nil {
		return // the worker has left, and the lane learns that
	}

	switch c.Kind {
	case lane.CallActivate:
		s.hold(c.Run, c.Generation)
		if s.hands != nil { // nil for a worker of another node
			s.hands.Regain(c.Run)
		}
		s.worker.Activate(c.Activation)
	case lane.CallDeliver:
		s.worker.Deliver(c.Run, c.Generation, c.Events)
	case lane.CallPreview:
		s.worker.(Previewer).Preview(c.Run, c.Generation, c.Events)
	case lane.CallConfirm:
		s.worker.(Previewer).Confirm(c.Run, c.Generation, c.Durable)
	case lane.CallRetry:
		s.worker.Retry(c.Run, c.Generation, c.ID)
	case lane.CallQuery:
		s.worker.Query(c.Run, c.Generation, *c.Query)
	case lane.CallTaken:
		s.worker.Taken(c.Run, c.Generation)
	case lane.CallRecall:
		s.worker.Recall(c.Address, c.Run, c.Generation, *c.Query)
	case lane.CallEvict:
		s.takeBack(c, dead)
		s.release(c.Run, c.Generation)
	}
}

// takeBack takes a run from its worker. If the next owner of the run asks what the worker holds,
// the worker keeps the bodies of the run that still run. The next owner asks a worker of another
// node, and if this node has lost its lease, a server also asks its own workers.
func (s *Session) takeBack(c *lane.Call, dead bool) {
	survivor, ok := s.worker.(crew.Survivor)
	own := dead && c.Runs && s.eng.cfg.Lane.Reunion > 0 && !s.eng.isStopping()
	switch {
	case !ok || !c.Moves:
		s.worker.Evict(c.Run, c.Generation, c.Reason)
	case s.isAway():
		survivor.Lose(c.Run, c.Generation)
	case own:
		s.hands.LoseOwn(model.HeldRun{Address: c.Address, Run: c.Run, Given: c.Given}, c.Generation)
	default:
		s.worker.Evict(c.Run, c.Generation, c.Reason)
	}
}

// Session is the engine's side of a workflow worker.
type Session struct {
	eng    *Engine
	id     lane.WorkerID
	worker Worker
	offer  model.Offer
	node   model.NodeID        // the node of the worker; zero for a worker of this process
	hands  *crew.WorkflowHands // the work of the worker for other nodes
	lent
	entrance

	holdings[model.RunID]
}

func (s *Session) isAway() bool { return !s.node.IsZero() }

// Join adds a worker.
func (e *Engine) Join(w Worker, offer model.Offer) *Session {
	p, ok := w.(Previewer)
	offer.Previews = ok && p.Previews() && offer.Remote.Name == ""
	s := e.workers.add(func(id lane.WorkerID) *Session {
		s := &Session{eng: e, id: id, worker: w, offer: offer}
		s.hands = crew.NewWorkflowHands(w, offer, crew.HandsConfig{Hold: s.hold, Release: s.release, Slots: s.slots})
		return s
	})
	e.admit(&s.entrance, offer.Remote, func(inc *incarnation) { inc.join(s) })
	return s
}

// Report delivers a turn. It blocks while the engine is full.
func (s *Session) Report(ctx context.Context, t model.Turn) error {
	if crew.IsLent(t.Generation) {
		return s.hands.Report(ctx, t)
	}
	inc := s.eng.current()
	if inc == nil {
		return fault.New(fault.Unavailable, "the engine is not running")
	}
	err := inc.laneOf(t.Generation).inbox.put(ctx, op{turn: &t, worker: s.id})
	if err == nil && t.Blocked != nil {
		s.release(t.Run, t.Generation)
	}
	return err
}

// Release gives a parked run back.
func (s *Session) Release(run model.RunID, generation uint64, seen int64, waits []model.Reason) {
	if crew.IsLent(generation) {
		s.hands.Release(run, generation, seen, waits)
		return
	}
	inc := s.eng.current()
	if inc == nil {
		return
	}
	// The release must not overtake a turn that was reported before, because that turn may start
	// the timer that the run waits for.
	inc.laneOf(generation).inbox.follow(op{do: func(l *lane.Lane, now model.Time) {
		l.Release(now, s.id, &model.Turn{Run: run, Generation: generation, Seen: seen, Waits: waits})
	}})
}

// Answer delivers the code's answer to a query.
//
//arch:parameters the protocol of workers, see api.Session
func (s *Session) Answer(run model.RunID, generation, id uint64, out model.Payload, f *model.Failure) {
	if crew.IsLent(generation) {
		s.hands.Answer(run, generation, id, out, f)
		return
	}
	if inc := s.eng.current(); inc != nil {
		inc.laneOf(generation).inbox.follow(op{do: func(l *lane.Lane, now model.Time) {
			l.AnswerQuery(now, s.id, lane.QueryAnswer{Run: run, Generation: generation, ID: id, Output: out, Failure: f})
		}})
	}
}

// Withdraw implements api.Withdrawer.
func (s *Session) Withdraw(ctx context.Context) {
	s.withdraw()
	if inc := s.eng.current(); inc != nil {
		inc.withdraw(ctx, s.id)
	}
}

// Leave stops the flow of new work. It waits until the worker holds no runs, or until ctx ends.
// Then it ends the session.
func (s *Session) Leave(ctx context.Context) error {
	s.Withdraw(ctx)
	if inc := s.eng.current(); inc != nil {
		inc.withdrawLent(ctx, &s.lent, s.hands)
	}
	err := s.rest(ctx)
	if err != nil {
		err = fault.New(fault.Timeout, "the worker still holds runs: %w", err)
	}
	if inc := s.eng.current(); inc != nil {
		inc.leave(s)
		inc.leaveLent(s.hands)
	}
	s.eng.workers.remove(s.id)
	s.eng.dismiss(s.offer.Remote, err != nil || len(s.hands.Left()) > 0)
	s.eng.announce()
	return err
}
