package remote

import (
	"context"
	"errors"
	"sync"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// taskRole is the session of a worker that executes tasks, over the wire.
type taskRole struct {
	*membership

	worker  api.TaskWorker
	answers answers

	mu sync.Mutex
	// held has the claims of the worker, with the report on each claim. The report is nil until the
	// worker makes it. A claim with a report stays here until the server has confirmed the report.
	held  map[model.ClaimRef]*pb.WorkerItem
	slots int // how many claims the worker may hold
	// stopping has the lost claims whose code may still run and whose server wants to know when it
	// has ended.
	stopping map[model.ClaimRef]struct{}
}

func (r *taskRole) member() *membership { return r.membership }

// resume runs after the server has taken the role back. The offer that the worker has repeated has
// the first number of slots. If the number has changed, resume sends the current one. Then it
// repeats the reports that the server may not have stored.
func (r *taskRole) resume() {
	r.mu.Lock()
	n := r.slots
	reports := make([]*pb.WorkerItem, 0, len(r.held))
	for _, report := range r.held {
		if report != nil {
			reports = append(reports, report)
		}
	}
	r.mu.Unlock()
	if int64(n) != r.offered.GetSlots() {
		r.Slots(n)
	}
	for _, report := range reports {
		r.post(report)
	}
}

// lost fails the questions whose answers the worker waits for. The worker keeps its claims. lost
// returns them for the next join, and the server then decides about each claim.
func (r *taskRole) lost([]*pb.WorkerItem) *pb.Join {
	r.answers.fail(errLost)
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.stopping) // the server has freed their permits together with the session
	join := &pb.Join{}
	for ref := range r.held {
		join.HeldClaims = append(join.HeldClaims, wire.HeldClaim(ref))
	}
	return join
}

// idle reports whether the worker has no claim. The worker has a claim until the server has
// confirmed the report on it.
func (r *taskRole) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held) == 0
}

// refuse tells the worker that it has lost its claims.
func (r *taskRole) refuse(why error) {
	r.mu.Lock()
	held := r.held
	r.held = map[model.ClaimRef]*pb.WorkerItem{}
	r.mu.Unlock()
	for ref, report := range held {
		if report != nil {
			r.worker.Settle(ref, fault.New(fault.NotOwned, "%w", why))
		} else {
			r.worker.Stop(ref, model.StopLost)
		}
	}
}

func (r *taskRole) claim(m *pb.Claim) error {
	if r == nil {
		return errNoRole
	}
	c, err := wire.ReadClaim(r.w.tenantOf(), m)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.held[c.Ref] = nil
	r.mu.Unlock()
	r.worker.Execute([]model.Claim{c})
	return nil
}

func (r *taskRole) stop(m *pb.StopClaim) error {
	if r == nil {
		return errNoRole
	}
	ref, err := wire.ReadClaimRef(r.w.tenantOf(), m.GetRef(), m.GetClaim())
	if err != nil {
		return err
	}

	why := model.StopReason(min(m.GetWhy(), 255))
	if why != model.StopCanceled {
		why = model.StopLost
		r.mu.Lock()
		delete(r.held, ref)
		if m.GetTellEnd() {
			if r.stopping == nil {
				r.stopping = map[model.ClaimRef]struct{}{}
			}
			r.stopping[ref] = struct{}{}
		}
		r.mu.Unlock()
	}

	r.worker.Stop(ref, why)
	return nil
}

func (r *taskRole) takeSettled(m *pb.Settled) error {
	if r == nil {
		return errNoRole
	}
	ref, err := wire.ReadClaimRef(r.w.tenantOf(), m.GetRef(), m.GetClaim())
	if err != nil {
		return err
	}
	r.mu.Lock()
	delete(r.held, ref)
	r.mu.Unlock()
	r.worker.Settle(ref, wire.ReadError(m.GetError()))
	return nil
}

// Report reports how a claim ended.
func (r *taskRole) Report(ctx context.Context, t model.TaskReport) error {
	item := &pb.WorkerItem{Item: &pb.WorkerItem_TaskReport{TaskReport: wire.TaskReport(&t)}}
	if err := r.w.tooLarge(item); err != nil {
		// The failure is permanent, because the report of another attempt would be as large.
		failed := model.TaskReport{Ref: t.Ref, Failure: &model.Failure{Kind: model.FailureInvalid, Message: "report of the attempt: " + err.Error(), Permanent: true}}
		item = &pb.WorkerItem{Item: &pb.WorkerItem_TaskReport{TaskReport: wire.TaskReport(&failed)}}
	}

	r.mu.Lock()
	if _, held := r.held[t.Ref]; held {
		r.held[t.Ref] = item
	}
	r.mu.Unlock()
	err := r.send(ctx, item)
	if errors.Is(err, errLost) {
		return nil // it is sent again when the worker has joined again
	}
	return err
}

// CodeEnded tells the server that the code of a lost claim has ended, if the server wants to know.
func (r *taskRole) CodeEnded(claim model.ClaimRef) {
	r.mu.Lock()
	_, wanted := r.stopping[claim]
	delete(r.stopping, claim)
	r.mu.Unlock()
	if wanted {
		r.post(&pb.WorkerItem{Item: &pb.WorkerItem_CodeEnded{CodeEnded: &pb.CodeEnded{Ref: wire.TaskRef(claim.TaskRef), Claim: claim.Claim}}})
	}
}

// Beat tells the server that claims are being executed.
func (r *taskRole) Beat(ctx context.Context, beats []api.Beat) ([]api.BeatReply, error) {
	item, err := r.ask(ctx, func(id uint64) *pb.WorkerItem {
		return &pb.WorkerItem{Item: &pb.WorkerItem_Beats{Beats: wire.Beats(id, beats)}}
	})
	if err != nil {
		return nil, err
	}
	m := item.GetBeatReplies()
	if err := wire.ReadError(m.GetError()); err != nil {
		return nil, err
	}

	if len(m.GetReplies()) != len(beats) {
		return nil, fault.New(fault.Invalid, "the server answered %d of %d heartbeats", len(m.GetReplies()), len(beats))
	}
	out := make([]api.BeatReply, len(beats))
	for i, b := range m.GetReplies() {
		out[i] = api.BeatReply{Held: b.GetHeld(), Canceled: b.GetCanceled()}
	}

	return out, nil
}

// Write stores data that the worker of a claim writes, such as log lines. The data is stored next
// to the history.
func (r *taskRole) Write(ctx context.Context, w model.TaskWrite) error {
	item, err := r.ask(ctx, func(id uint64) *pb.WorkerItem {
		return &pb.WorkerItem{Item: &pb.WorkerItem_TaskWrite{TaskWrite: wire.TaskWrite(id, &w)}}
	})
	if err != nil {
		return err
	}
	return wire.ReadError(item.GetWriteReply().GetError())
}

// States reads the states of a claim's task: named values that the task keeps across its attempts.
func (r *taskRole) States(ctx context.Context, claim model.ClaimRef) ([]api.TaskState, error) {
	item, err := r.ask(ctx, func(id uint64) *pb.WorkerItem {
		return &pb.WorkerItem{Item: &pb.WorkerItem_ReadStates{ReadStates: &pb.ReadStates{Id: id, Ref: wire.TaskRef(claim.TaskRef), Claim: claim.Claim}}}
	})
	if err != nil {
		return nil, err
	}
	return wire.ReadStates(item.GetStates())
}

// Slots changes how many claims the worker may hold. The number stays in effect when the worker
// joins again.
func (r *taskRole) Slots(n int) {
	r.mu.Lock()
	r.slots = n
	r.mu.Unlock()
	r.post(&pb.WorkerItem{Item: &pb.WorkerItem_Slots{Slots: &pb.Slots{Slots: int64(max(n, 0))}}})
}

// Leave ends the role when the server has confirmed every report.
func (r *taskRole) Leave(ctx context.Context) error { return r.leave(ctx, r.idle) }

// Suspend is meant for workers in the process of the engine. Here it ends the connection of the
// worker, with all its roles.
func (r *taskRole) Suspend() { r.w.Close() }

// Lose ends the connection of the worker, with all its roles, without handing anything back.
func (r *taskRole) Lose() { r.w.Close() }

// ask sends a question and waits for its answer. If the server loses the session, ask sends the
// question again in the next session.
func (r *taskRole) ask(ctx context.Context, question func(id uint64) *pb.WorkerItem) (*pb.ServerItem, error) {
	for {
		_, moved := r.current()
		item, err := r.askOnce(ctx, question)
		if !errors.Is(err, errLost) || r.isGone() {
			return item, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (r *taskRole) askOnce(ctx context.Context, question func(id uint64) *pb.WorkerItem) (*pb.ServerItem, error) {
	id, answer := r.answers.expect()
	defer r.answers.forget(id)
	if err := r.send(ctx, question(id)); err != nil {
		return nil, err
	}
	select {
	case a := <-answer:
		return a.item, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// reply gives the server's answer to the caller that waits for the answer to this question.
func (r *taskRole) reply(id uint64, item *pb.ServerItem) error {
	if r == nil {
		return errNoRole
	}
	r.answers.answer(id, item)
	return nil
}

// answers has the questions of the worker that wait for an answer. The zero value has none.
type answers struct {
	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan answer
}

type answer struct {
	item *pb.ServerItem
	err  error
}

// expect returns the id of a question, and the channel for its answer.
func (a *answers) expect() (uint64, <-chan answer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[uint64]chan answer{}
	}
	a.last++
	c := make(chan answer, 1)
	a.waiting[a.last] = c
	return a.last, c
}

func (a *answers) forget(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, id)
}

func (a *answers) answer(id uint64, item *pb.ServerItem) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.waiting[id]; c != nil {
		c <- answer{item: item}
		delete(a.waiting, id)
	}
}

// fail answers all waiting questions with an error.
func (a *answers) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.waiting {
		c <- answer{err: err}
	}
	clear(a.waiting)
}
