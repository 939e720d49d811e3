package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/lending"
	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// taskWorkers holds the task workers that have joined this node, over all of its incarnations.
type taskWorkers struct {
	roster[queue.WorkerID, TaskSession]
}

// own returns the workers of this node that take tasks. It leaves out borrowed workers, and
// sessions that only give claims back.
func (w *taskWorkers) own() []*TaskSession {
	return slices.DeleteFunc(w.all(), func(s *TaskSession) bool { return !s.node.IsZero() || len(s.offer.Tenants) == 0 })
}

// call passes calls of a lane to the workers. It combines the claims for the same worker into one
// call, at the place of the first claim. So a claim may overtake other calls. This is safe, because
// none of these calls is about that claim. It returns the claims of workers that left while the
// claims were being committed.
func (w *taskWorkers) call(calls []lane.TaskCall) (left []model.ClaimRef) {
	var s *TaskSession
	for i := range calls {
		c := &calls[i]
		if s == nil || s.id != c.Worker {
			if s = w.get(c.Worker); s == nil {
				if c.Kind == lane.TaskExecute {
					left = append(left, c.Ref)
				}
				continue
			}
		}

		switch {
		case c.Kind == lane.TaskStop:
			s.stop(c.Ref, c.Canceled)
		case c.Kind == lane.TaskSettled:
			s.settleReport(c.Ref, c.Err)
		case c.Claim != nil: // nil if the claim was handed over together with an earlier one
			claims := claimsOf(calls[i:], c.Worker)
			if !s.execute(claims) {
				for j := range claims {
					left = append(left, claims[j].Ref)
				}
			}
		}
	}

	return left
}

// claimsOf takes the claims for a worker out of the calls.
func claimsOf(calls []lane.TaskCall, id queue.WorkerID) []model.Claim {
	n := 0
	for i := range calls {
		if calls[i].Claim != nil && calls[i].Worker == id {
			n++
		}
	}
	claims := make([]model.Claim, 0, n)
	for i := range calls {
		if c := &calls[i]; c.Claim != nil && c.Worker == id {
			claims = append(claims, *c.Claim)
			c.Claim = nil
		}
	}
	return claims
}

// TaskSession is the engine's side of a task worker.
type TaskSession struct {
	eng    *Engine
	id     queue.WorkerID
	worker model.TaskWorker
	offer  model.TaskOffer
	node   model.NodeID // the node that lends a borrowed worker; zero for a worker of this node

	mu     sync.Mutex
	slots  int
	abroad loan.Abroad
	// heard rings when owners on other nodes have received news.
	heard    bell
	held     map[model.ClaimRef]bool              // claims, and whether they were canceled
	reported map[model.ClaimRef]*model.TaskReport // reports that are not settled
	// lingering has the lost claims whose code may still run. The value is what the claim holds
	// permits for, or nil if it holds none on this node; see lingering.go.
	lingering map[model.ClaimRef]*queue.Item
	// idle is closed when held and reported are empty. It is nil while no caller waits for that.
	idle    chan struct{}
	leaving bool // takes no further claims
	over    bool
	// left is the board that the worker has left. The session may still have reports that are not
	// settled.
	left *board
}

// JoinTasks adds a task worker. The name in the offer must be unique.
func (e *Engine) JoinTasks(w model.TaskWorker, offer model.TaskOffer) *TaskSession {
	s := e.taskSession(w, offer, model.NodeID{})
	if inc := e.current(); inc != nil {
		inc.board.join(s)
		inc.attachHeld(s)
		inc.announce()
	}
	return s
}

// attachHeld handles a worker that has outlived the owner of its claims. It connects the worker
// with the claims that the worker holds, and with claims that never reached the worker.
func (inc *incarnation) attachHeld(s *TaskSession) {
	for _, ref := range s.offer.Held {
		if l := inc.lane(inc.shardOf(ref.Address)); l != nil {
			l.inbox.result(func(l *lane.Lane, now model.Time) { l.Attach(now, ref, s.id, s.speaker()) })
		}
	}
	if inc.lender != nil {
		elsewhere := map[model.ShardID]bool{}
		for _, ref := range s.offer.Held {
			if shard := inc.shardOf(ref.Address); inc.lane(shard) == nil {
				elsewhere[shard] = true
			}
		}
		s.moveClaims(elsewhere, false)
	}

	for _, ref := range inc.board.takeAwaited(s.offer.Name) {
		if l := inc.lane(inc.shardOf(ref.Address)); l != nil && !s.has(ref) {
			l.inbox.result(func(l *lane.Lane, now model.Time) { l.HandOverAgain(now, ref, s.id, s.speaker()) })
		}
	}
}

// speaker returns the name under which a remote worker reports about claims. It is empty for a
// worker of a node, because the node knows which claims the worker has.
func (s *TaskSession) speaker() string {
	if model.IsRemoteWorker(s.offer.Name) {
		return s.offer.Name
	}
	return ""
}

func (e *Engine) taskSession(w model.TaskWorker, offer model.TaskOffer, node model.NodeID) *TaskSession {
	return e.taskWorkers.add(func(id queue.WorkerID) *TaskSession {
		s := &TaskSession{
			eng: e, id: id, worker: w, offer: offer, node: node, slots: offer.Slots,
			held: map[model.ClaimRef]bool{}, reported: map[model.ClaimRef]*model.TaskReport{},
			lingering: map[model.ClaimRef]*queue.Item{},
		}
		for _, ref := range offer.Held {
			s.held[ref] = false
		}
		return s
	})
}

// giveBack returns claims of workers that left while the claims were being committed. It reports
// these claims as a worker would, so the claims are returned even if the shard moves at the same
// time.
func (e *Engine) giveBack(refs []model.ClaimRef) {
	if len(refs) == 0 {
		return
	}
	// Only a session can report claims and wait for the answers, so the engine opens one for these
	// claims.
	s := e.taskSession(noWorker{}, model.TaskOffer{Name: "nobody"}, model.NodeID{})
	e.beside.run(func(ctx context.Context) {
		for _, ref := range refs {
			if s.Report(ctx, model.TaskReport{Ref: ref, Returned: true}) != nil {
				break // the engine ends, and the claims will be lost
			}
		}
		_ = s.Leave(ctx) // an error also means that the engine ends
	})
}

// noWorker is a worker that executes nothing.
type noWorker struct{}

func (noWorker) Execute([]model.Claim)                 {}
func (noWorker) Stop(model.ClaimRef, model.StopReason) {}
func (noWorker) Settle(model.ClaimRef, error)          {}

// execute hands over claims. It returns false if the session takes no further claims.
func (s *TaskSession) execute(claims []model.Claim) bool {
	s.mu.Lock()
	if s.leaving || s.over {
		s.mu.Unlock()
		return false
	}
	// Note the claims before the worker gets them, because it may report immediately.
	for i := range claims {
		s.held[claims[i].Ref] = claims[i].Canceled
	}
	s.mu.Unlock()
	s.worker.Execute(claims)
	return true
}

// has reports whether the worker has the claim, or has reported it and the report is not settled.
func (s *TaskSession) has(claim model.ClaimRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held := s.held[claim]
	return held || s.reported[claim] != nil
}

// at reports whether the worker executes the claim, which may be lost. If the worker has reported
// the claim and the report is not settled, at returns the report.
func (s *TaskSession) at(claim model.ClaimRef) (executes bool, report *model.TaskReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held := s.held[claim]
	_, lingers := s.lingering[claim]
	return held || lingers, s.reported[claim]
}

// hasClaim reports whether the worker executes the claim.
func (s *TaskSession) hasClaim(claim model.ClaimRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held := s.held[claim]
	return held
}

// hasReport reports whether the worker has an unsettled report of the claim.
func (s *TaskSession) hasReport(claim model.ClaimRef) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reported[claim] != nil
}

// stop tells the worker that a claim is canceled, or that it is lost.
func (s *TaskSession) stop(ref model.ClaimRef, canceled bool) {
	if !s.node.IsZero() && !canceled {
		// A lent worker gets the stop from its own node. The claim keeps its permits until that
		// node no longer lists the claim (setHeld).
		s.linger(ref)
		s.worker.Stop(ref, model.StopLost)
		return
	}

	s.mu.Lock()
	back, lingers := false, false
	// The worker keeps a canceled claim and may still report on it. A lost claim is gone
	// immediately, but its code may still run.
	if _, held := s.held[ref]; held && canceled {
		s.held[ref] = true
	} else {
		delete(s.held, ref)
		lingers = held && s.mayLinger()
		if lingers {
			s.lingering[ref] = nil
		}
		back = s.abroad.Free(ref)
		s.rest()
	}

	s.mu.Unlock()
	switch {
	case canceled:
		s.worker.Stop(ref, model.StopCanceled)
	case lingers:
		s.linger(ref)
		s.worker.Stop(ref, model.StopLost)
	default:
		s.worker.Stop(ref, model.StopLost)
		s.finishClaim(ref, nil)
	}
	if back {
		s.rejoin()
	}
}

// finishClaim tells the board that a claim is finished. The report, if there is one, has the
// outcome of the attempt.
func (s *TaskSession) finishClaim(ref model.ClaimRef, r *model.TaskReport) {
	maker := s.unmake(ref)
	if inc := s.eng.current(); inc != nil {
		inc.board.settleClaim(ref, flow.OutcomeOf(r))
		if !maker.IsZero() && inc.lender != nil {
			inc.lender.Over(ref, maker)
		}
	}
}

// rejoin tells the board the current number of slots.
func (s *TaskSession) rejoin() {
	if inc := s.eng.current(); inc != nil {
		inc.board.join(s)
	}
}

// rest wakes Leave if nothing is left to wait for. The caller must hold the lock.
func (s *TaskSession) rest() {
	if s.idle != nil && len(s.held)+len(s.reported) == 0 {
		close(s.idle)
		s.idle = nil
	}
}

// Report delivers the outcome of a claim. It blocks while the engine is full. If ctx ends first,
// the session still delivers the report as soon as possible, because the board relies on the
// report, and no other party could make it.
func (s *TaskSession) Report(ctx context.Context, r model.TaskReport) error {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return fault.New(fault.Unavailable, "the session of worker %s has ended", s.offer.Name)
	}

	// The claim moves from held to reported in one step. So other goroutines always find it in one
	// of the two.
	r.By = s.speaker()
	s.reported[r.Ref] = &r
	delete(s.held, r.Ref)
	delete(s.lingering, r.Ref)
	back := s.abroad.Free(r.Ref)
	s.mu.Unlock()
	if back {
		s.rejoin()
	}
	// The caller may stop waiting, but the report must arrive. Without it the attempt would be lost
	// and run again.
	err := s.send(ctx, &r, false)
	if err == nil || ctx.Err() != nil && s.resend(&r, false) {
		return nil
	}

	s.mu.Lock()
	delete(s.reported, r.Ref)
	s.rest()
	s.mu.Unlock()
	s.finishClaim(r.Ref, nil)

	return err
}

// resend delivers a report in the background. It returns false if the engine has ended.
func (s *TaskSession) resend(r *model.TaskReport, moves bool) bool {
	return s.eng.beside.run(func(ctx context.Context) {
		if err := s.send(ctx, r, moves); err != nil {
			s.settleReport(r.Ref, err)
		}
	})
}

// reportAgain is how long to wait before a report is repeated because the owner of the run had no
// room.
const reportAgain = 5 * time.Second

// reportLater delivers a report again after a pause, unless it is settled by then.
func (s *TaskSession) reportLater(r *model.TaskReport) {
	s.eng.beside.run(func(ctx context.Context) {
		if !s.eng.pause(ctx, reportAgain) || !s.hasReport(r.Ref) {
			return
		}
		if err := s.send(ctx, r, false); err != nil {
			s.settleReport(r.Ref, err)
		}
	})
}

// send delivers a report to the owner of the run. If this node is giving up the shard, the shard
// waits for the report. But if moves is set, the report goes to the next owner.
func (s *TaskSession) send(ctx context.Context, r *model.TaskReport, moves bool) error {
	for served := (<-chan struct{})(nil); ; served = s.eng.served.listen() {
		if inc := s.eng.current(); inc != nil {
			shard := inc.shardOf(r.Ref.Address)
			l := inc.lane(shard)
			if l == nil && !moves {
				l = inc.keeper(shard)
			}

			// The slot is free for the next task, although the lane has not applied the report yet.
			inc.board.FreeSlot(s.id, r)
			if l != nil {
				err := l.inbox.put(ctx, op{report: r, task: s.id})
				if !errors.Is(err, lane.ErrNotOwner) {
					return err
				}
				moves = true
			} else if s.eng.cfg.Store.Info().Shared && served != nil {
				inc.board.Propose() // the report goes to no lane here, so no lane proposes
				if len(s.offer.Tenants) > 0 {
					s.sendAbroad(r.Ref)
					inc.lender.Wake()
				} else {
					s.mail(r)
				}
				return nil
			}
		}

		if served != nil && !s.eng.await(ctx, served) {
			return s.eng.gaveUp(ctx, "report of %s: the node does not serve its shard", r.Ref.TaskRef)
		}
	}
}

// mail sends a report of a session without a worker to the node that owns the run by now.
func (s *TaskSession) mail(r *model.TaskReport) {
	report := *r
	s.eng.beside.run(func(ctx context.Context) {
		_, err := s.eng.clerk.send(ctx, ReportMessage(&report), attempt{taken: true})
		s.settleReport(report.Ref, err)
	})
}

// ReportMessage converts a report into a message. The request id of the message names the claim, so
// the report takes effect once.
func ReportMessage(r *model.TaskReport) *model.Message {
	return &model.Message{Kind: model.MessageReport, To: r.Ref.Address, ToRun: r.Ref.Run, RequestID: r.Ref.RequestID(), Report: r}
}

// settleReport ends a report: it is durable, or err says why it was refused. ErrLater and
// ErrNotOwner are not final. After these errors the session delivers the report again.
func (s *TaskSession) settleReport(ref model.ClaimRef, err error) {
	again := errors.Is(err, lane.ErrNotOwner)
	s.mu.Lock()
	r := s.reported[ref]

	if errors.Is(err, lane.ErrLater) {
		s.mu.Unlock()
		if r != nil { // otherwise it was a repetition, and the first report is settled
			s.reportLater(r)
		} else if w, ok := s.worker.(*lending.LockedWorker); ok {
			w.Redirect(ref) // the node of the worker has the report and repeats it with each poll
		}
		return
	}

	if r != nil && again { // the shard has moved: deliver the report to the next owner
		s.mu.Unlock()
		s.resend(r, true)
		return
	}

	delete(s.reported, ref)
	s.abroad.DropReport(ref)
	s.rest()
	s.mu.Unlock()

	if w, ok := s.worker.(*lending.LockedWorker); ok && again {
		w.Redirect(ref) // the worker's own node sends the report to the next owner
		return
	}

	s.finishClaim(ref, r)
	if !again { // otherwise it was a repetition, and the first report is settled
		s.worker.Settle(ref, err)
	}
}

// Beat says that a claim is being executed, with its progress if that has changed. It reports
// whether the worker still has the claim, and whether the claim was canceled. If another node owns
// the run, Beat queues the heartbeat for that node. Flush waits until the progress has arrived.
func (s *TaskSession) Beat(ctx context.Context, ref model.ClaimRef, progress *model.Payload) (held, canceled bool, err error) {
	s.mu.Lock()
	canceled, held = s.held[ref]
	s.mu.Unlock()
	inc := s.eng.current()
	if !held || inc == nil {
		return held, canceled, nil
	}

	l := inc.keeper(inc.shardOf(ref.Address))
	if l == nil && inc.lender != nil {
		// Another node owns the run. The lender passes the heartbeat on with its next message.
		s.note(ref, progress)
		inc.lender.Wake()
		return held, canceled, nil
	}

	inc.board.Beat(s.id, ref)
	if l != nil && progress != nil {
		p := *progress
		err = l.inbox.put(ctx, op{do: func(l *lane.Lane, now model.Time) { l.Progress(now, ref, s.speaker(), p) }})
		if errors.Is(err, lane.ErrNotOwner) {
			err = nil // the next heartbeat delivers the progress
		}
	}

	return held, canceled, err
}

// free returns how many claims the worker may hold, and whether its session is open.
func (s *TaskSession) free() (slots int, here bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving || s.over {
		return 0, !s.over
	}
	return max(0, s.slots-s.abroad.Slots()), true
}

// leave notes that the worker has left a board.
func (s *TaskSession) leave(b *board) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = b
}

// hasLeft reports whether the worker has left a board. A worker does not come back to a board that
// it has left, even if another node returns one of its slots later. Otherwise the board would wait
// for claims that the worker does not have.
func (s *TaskSession) hasLeft(b *board) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left == b
}

// capacity returns how many claims the worker would accept if it had none.
func (s *TaskSession) capacity() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leaving || s.over {
		return 0
	}
	return s.slots
}

// Slots changes how many claims the worker may hold.
func (s *TaskSession) Slots(n int) {
	s.mu.Lock()
	turned := (s.slots == 0) != (n <= 0)
	s.slots = max(n, 0)
	s.mu.Unlock()
	if turned {
		s.eng.taskWorkers.changes.Add(1)
	}
	if inc := s.eng.current(); inc != nil {
		inc.board.join(s)
		if turned {
			// Other nodes learn that the worker starts no tasks, or starts tasks again.
			inc.announce()
		}
	}
}

// Leave ends the session once everything is reported and settled. If ctx ends before that, it gives
// back the claims that the worker still holds.
func (s *TaskSession) Leave(ctx context.Context) error {
	s.Slots(0)
	err := s.quiet(ctx)
	if err != nil {
		s.giveBack(ctx)
	} else {
		s.remove()
	}
	if inc := s.eng.current(); inc != nil {
		inc.board.leave(s)
	}
	return err
}

// Suspend ends the session of a worker that keeps its claims, because the node stops or the worker
// begins another session. The claims stay in the histories, and the owner connects them with the
// worker when the worker joins again. If it does not join again, the claims are lost after a while.
func (s *TaskSession) Suspend() {
	held := s.end()
	inc := s.eng.current()
	if inc != nil {
		inc.board.await(s.offer.Name, held)
	}
	s.endWhenSettled() // first, so that the lanes no longer find the worker
	for _, ref := range held {
		if inc == nil {
			break
		}
		if l := inc.keeper(inc.shardOf(ref.Address)); l != nil {
			l.inbox.result(func(l *lane.Lane, now model.Time) { l.Detach(now, ref) })
		}
	}
}

// end makes the session take no further claims. It returns and forgets the claims that the worker
// executes.
func (s *TaskSession) end() []model.ClaimRef {
	s.Slots(0)
	s.forgetLingering()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
	held := make([]model.ClaimRef, 0, len(s.held))
	for ref := range s.held {
		held = append(held, ref)
		s.abroad.Free(ref)
	}
	clear(s.held)
	s.rest()
	return held
}

// endWhenSettled removes the worker from the board. The session stays until its reports are
// settled.
func (s *TaskSession) endWhenSettled() {
	if inc := s.eng.current(); inc != nil {
		inc.board.leave(s)
	}
	s.eng.beside.run(func(ctx context.Context) {
		defer s.remove()
		_ = s.quiet(ctx) // an error means that the engine ends
	})
}

// Lose ends the session of a worker that has disappeared. The attempts that the worker was running
// have failed. The session stays until its reports are settled.
func (s *TaskSession) Lose() {
	for _, ref := range s.end() {
		// If there is no owner here now, the next owner finds that the worker is gone.
		if inc := s.eng.current(); inc != nil {
			if l := inc.keeper(inc.shardOf(ref.Address)); l != nil {
				claimLane{l}.Lose(ref)
			}
		}
		s.finishClaim(ref, nil)
	}
	s.endWhenSettled()
}

// remove removes the session from the engine.
func (s *TaskSession) remove() {
	s.forgetLingering()
	s.eng.taskWorkers.remove(s.id)
	s.eng.announce()
}

// quiet waits until the worker holds nothing and every report is settled. It ends the session at
// that moment, so that a later claim is given back.
func (s *TaskSession) quiet(ctx context.Context) error {
	for {
		s.mu.Lock()
		if len(s.held)+len(s.reported) == 0 {
			s.over = true
			s.mu.Unlock()
			return nil
		}

		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle := s.idle // shared by all waiting callers
		s.mu.Unlock()

		select {
		case <-idle:
		case <-ctx.Done():
			return fault.New(fault.Timeout, "worker %s still executes tasks, or waits for answers to its reports: %w", s.offer.Name, context.Cause(ctx))
		}
	}
}

// giveBack returns the claims that the worker still holds, so that other workers may start their
// tasks immediately. It waits at most for the commit time-out. But the session stays until all
// reports are settled. No other party would deliver them, and an owner on another node waits for
// them as long as this node lives.
func (s *TaskSession) giveBack(ctx context.Context) {
	s.mu.Lock()
	s.leaving = true
	left := make([]model.ClaimRef, 0, len(s.held))
	for ref := range s.held {
		left = append(left, ref)
	}
	s.mu.Unlock()
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.eng.cfg.CommitTimeout)
	defer cancel()

	begun := s.eng.beside.run(func(ctx context.Context) {
		defer cancel()
		defer s.remove()
		for _, ref := range left {
			if !s.hasClaim(ref) {
				continue // the worker has reported in the meantime, and its report must not be lost
			}
			if err := s.Report(ctx, model.TaskReport{Ref: ref, Returned: true}); err != nil {
				return // the engine ends, and the claims will be lost
			}
		}
		_ = s.quiet(ctx) // an error also means that the engine ends
	})
	if begun {
		<-brief.Done()
	}
}
