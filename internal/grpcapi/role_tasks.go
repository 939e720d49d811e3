package grpcapi

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

// taskRole is a remote worker that executes tasks.
type taskRole struct {
	s       *session
	session api.TaskSession

	mu sync.Mutex
	// held are the claims that the worker executes, and the ones that it has reported but the
	// engine has not confirmed.
	held map[model.ClaimRef]bool
	// room bounds the requests that are served in parallel to the stream.
	room chan struct{}
}

func (s *session) joinTasks(j *pb.Join) error {
	r := &taskRole{s: s, held: map[model.ClaimRef]bool{}, room: make(chan struct{}, maxBeside)}
	offer, err := wire.ReadTaskJoin(s.tenant, j)
	if err != nil {
		return err
	}
	offer.Name = model.RemoteWorkerName(offer.Name, s.tenant, s.worker)
	for _, ref := range offer.Held {
		r.held[ref] = true
	}
	session, err := s.work.cfg.Backend.JoinTasks(s.ctx, r, offer)
	if err != nil {
		return err
	}

	r.session = session
	s.mu.Lock()
	s.tasks = r
	over, why := s.over, s.why
	s.mu.Unlock()
	if over {
		r.end(why)
	}

	return nil
}

// end ends the role together with its session. The worker keeps its claims if it can bring them
// along to another session.
func (r *taskRole) end(why error) {
	switch {
	case errors.Is(why, errDraining) && r.s.work.cfg.Restarts, errors.Is(why, errRenewed):
		r.session.Suspend()
	case errors.Is(why, errDraining), errors.Is(why, errDrained):
		r.giveBack()
	default:
		r.lose()
	}
}

// lose takes back the claims of a worker that is gone. The engine counts how many workers a task
// has lost, so that it can set aside a task that kills several of them.
func (r *taskRole) lose() { r.session.Lose() }

// giveBack returns the claims of a worker that has done nothing wrong: no attempt is used up.
func (r *taskRole) giveBack() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.session.Leave(ctx) // the error only says that tasks are still running
}

// has reports whether the worker has a claim.
func (r *taskRole) has(ref model.ClaimRef) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[ref]
}

func (r *taskRole) Execute(claims []model.Claim) {
	r.mu.Lock()
	for i := range claims {
		r.held[claims[i].Ref] = true
	}
	r.mu.Unlock()
	for i := range claims {
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_Claim{Claim: wire.Claim(&claims[i])}})
	}
}

func (r *taskRole) Stop(claim model.ClaimRef, why model.StopReason) {
	lost := why == model.StopLost
	if lost {
		r.mu.Lock()
		delete(r.held, claim)
		r.mu.Unlock()
	}
	stop := &pb.StopClaim{Ref: wire.TaskRef(claim.TaskRef), Claim: claim.Claim, Why: uint32(why), TellEnd: lost}
	r.s.post(&pb.ServerItem{Item: &pb.ServerItem_StopClaim{StopClaim: stop}})
}

// codeEnded tells the engine that the code of a lost claim has ended. The session ignores claims
// that it has not told the worker to stop.
func (r *taskRole) codeEnded(m *pb.CodeEnded) error {
	ref, err := wire.ReadClaimRef(r.s.tenant, m.GetRef(), m.GetClaim())
	if err != nil {
		return err
	}
	r.session.CodeEnded(ref)
	return nil
}

func (r *taskRole) Settle(claim model.ClaimRef, err error) {
	r.mu.Lock()
	delete(r.held, claim)
	r.mu.Unlock()
	r.s.post(&pb.ServerItem{Item: &pb.ServerItem_Settled{Settled: &pb.Settled{Ref: wire.TaskRef(claim.TaskRef), Claim: claim.Claim, Error: errorDetail(err)}}})
}

// report passes to the engine how a claim ended. If the worker does not have the claim, report
// tells the worker so immediately and does not ask the engine.
func (r *taskRole) report(m *pb.TaskReport) error {
	t, err := wire.ReadTaskReport(r.s.tenant, m)
	if err != nil {
		return err
	}
	if !r.has(t.Ref) {
		r.Settle(t.Ref, notHeld(t.Ref))
		return nil
	}
	if err := r.session.Report(r.s.ctx, t); err != nil {
		r.Settle(t.Ref, err)
	}
	return nil
}

func notHeld(ref model.ClaimRef) error {
	return fault.New(fault.NotOwned, "the worker does not have the claim of %s", ref.TaskRef)
}

// beat passes heartbeats to the engine, in parallel to the stream. If the worker does not have a
// claim, the reply says so.
func (r *taskRole) beat(m *pb.Beats) error {
	beats, err := wire.ReadBeats(r.s.tenant, m)
	if err != nil {
		return err
	}
	out := &pb.BeatReplies{Id: m.GetId(), Replies: make([]*pb.BeatReply, len(beats))}
	var mine []api.Beat
	var at []int
	for i := range beats {
		out.Replies[i] = &pb.BeatReply{}
		if r.has(beats[i].Claim) {
			mine, at = append(mine, beats[i]), append(at, i)
		}
	}

	r.beside(func() {
		replies, err := r.session.Beat(r.s.ctx, mine)
		for i := range replies {
			out.Replies[at[i]] = &pb.BeatReply{Held: replies[i].Held, Canceled: replies[i].Canceled}
		}
		out.Error = errorDetail(err)
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_BeatReplies{BeatReplies: out}})
	})
	return nil
}

// beside runs a function in parallel to the stream, so that the stream need not wait for it. It
// blocks while too many such functions are running.
func (r *taskRole) beside(do func()) {
	select {
	case r.room <- struct{}{}:
	case <-r.s.ctx.Done():
		return
	}
	r.s.work.running.Go(func() {
		defer func() { <-r.room }()
		do()
	})
}

// write stores data that the worker of a claim writes. It waits for the commit, so it runs in
// parallel to the stream.
func (r *taskRole) write(m *pb.TaskWrite) error {
	w, err := wire.ReadTaskWrite(r.s.tenant, m)
	if err != nil {
		return err
	}
	r.beside(func() {
		err := notHeld(w.Ref)
		if r.has(w.Ref) {
			err = r.session.Write(r.s.ctx, w)
		}
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_WriteReply{WriteReply: &pb.WriteReply{Id: m.GetId(), Error: errorDetail(err)}}})
	})
	return nil
}

// states reads the states of the task of a claim.
func (r *taskRole) states(m *pb.ReadStates) error {
	ref, err := wire.ReadClaimRef(r.s.tenant, m.GetRef(), m.GetClaim())
	if err != nil {
		return err
	}
	r.beside(func() {
		var states []api.TaskState
		err := notHeld(ref)
		if r.has(ref) {
			states, err = r.session.States(r.s.ctx, ref)
		}
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_States{States: wire.States(m.GetId(), states, err)}})
	})
	return nil
}

func (r *taskRole) slots(m *pb.Slots) error {
	if m.GetSlots() < 0 || m.GetSlots() > maxSlots {
		return fault.New(fault.Invalid, "a worker with %d slots: at most %d", m.GetSlots(), maxSlots)
	}
	r.session.Slots(int(m.GetSlots()))
	return nil
}

const (
	maxSlots = 1_000_000
	// maxBeside is how many heartbeats, writes and reads of one worker are under way at the same
	// time. Further ones block the stream.
	maxBeside = 256
)
