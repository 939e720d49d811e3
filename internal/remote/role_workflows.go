package remote

import (
	"context"
	"maps"
	"sync"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// workflowRole is the session of a worker that runs workflows, over the wire.
//
// A server that was restarted may use the numbers of generations and queries again. So the worker
// gets numbers of this process, and what it says under a number that the current session does not
// know goes nowhere.
type workflowRole struct {
	*membership

	worker api.Worker

	mu   sync.Mutex
	last uint64                  // number that was given to the worker
	held map[model.RunID]holding // runs that the worker holds
	// loading are activations whose history has not arrived whole.
	loading map[model.RunID]*model.Activation
	// waiting are attempts that wait for limits and breakers.
	waiting map[model.TaskRef]*attempt
	// asked are the queries that the worker has not answered.
	asked map[uint64]*pb.QueryAnswer
}

// holding is a run that the worker holds, with its generation as the worker and as the server
// count.
type holding struct {
	local, server uint64
	address       model.Address
}

// attempt waits for limits and breakers, for the reason that the server gave.
type attempt struct {
	begin func()
	why   model.Reason
	known bool
}

func newWorkflowRole(m *membership, worker api.Worker) *workflowRole {
	r := &workflowRole{membership: m, worker: worker}
	r.reset()
	return r
}

func (r *workflowRole) member() *membership { return r.membership }
func (r *workflowRole) rejoined()           {}

func (r *workflowRole) reset() {
	r.held, r.loading = map[model.RunID]holding{}, map[model.RunID]*model.Activation{}
	r.waiting, r.asked = map[model.TaskRef]*attempt{}, map[uint64]*pb.QueryAnswer{}
}

// lost takes every run away. A Survivor keeps what it runs for the next activation of the same run.
func (r *workflowRole) lost([]*pb.WorkerItem) *pb.Join {
	r.mu.Lock()
	held, loading := r.held, r.loading
	r.reset()
	r.mu.Unlock()
	survivor, _ := r.worker.(api.Survivor)

	join := &pb.Join{}

	for run, h := range held {
		switch {
		case loading[run] != nil: // the worker has never seen it
		case survivor != nil:
			survivor.Lose(run, h.local)
			join.HeldRuns = append(join.HeldRuns, wire.HeldRun(model.HeldRun{Address: h.address, Run: run}))
		default:
			r.worker.Evict(run, h.local, errLost.Error())
		}
	}

	return join
}

// local returns the worker's number for a generation of the server; false if the worker does not
// hold the run under it.
func (r *workflowRole) local(run model.RunID, server uint64) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.held[run]
	return h.local, ok && h.server == server
}

// server is the way back.
func (r *workflowRole) server(run model.RunID, local uint64) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.held[run]
	return h.server, ok && h.local == local
}

var errNoRole = fault.New(fault.Invalid, "the server sent something for a role that this worker has not joined in")

func (r *workflowRole) activate(m *pb.Activation) error {
	if r == nil {
		return errNoRole
	}
	a, err := wire.ReadActivation(r.w.tenantOf(), m)
	if err != nil {
		return err
	}

	r.mu.Lock()
	r.last++
	r.held[a.Start.Run] = holding{r.last, a.Generation, a.Start.Address}
	a.Generation = r.last
	delete(r.loading, a.Start.Run)
	if m.GetMore() {
		r.loading[a.Start.Run] = &a
	}
	r.mu.Unlock()
	if !m.GetMore() {
		r.worker.Activate(a)
	}

	return nil
}

// more adds events to the history of an activation.
func (r *workflowRole) more(m *pb.MoreEvents) error {
	if r == nil {
		return errNoRole
	}
	run, err := wire.ReadRun(m.GetRun())
	if err != nil {
		return err
	}

	events, err := wire.ReadEvents(m.GetEvents())
	if err != nil {
		return err
	}
	r.mu.Lock()
	a := r.loading[run]
	if h := r.held[run]; a == nil || h.local != a.Generation || h.server != m.GetGeneration() {
		r.mu.Unlock()
		return fault.New(fault.Invalid, "events of a run that is not being activated")
	}

	a.Events = append(a.Events, events...)
	if !m.GetMore() {
		delete(r.loading, run)
	}
	r.mu.Unlock()
	if !m.GetMore() {
		r.worker.Activate(*a)
	}

	return nil
}

func (r *workflowRole) deliver(m *pb.Deliver) error {
	if r == nil {
		return errNoRole
	}
	run, err := wire.ReadRun(m.GetRun())
	if err != nil {
		return err
	}
	events, err := wire.ReadEvents(m.GetEvents())
	if err != nil {
		return err
	}
	if generation, ok := r.local(run, m.GetGeneration()); ok {
		r.worker.Deliver(run, generation, events)
	}
	return nil
}

func (r *workflowRole) retry(m *pb.RetryStep) error {
	if r == nil {
		return errNoRole
	}
	run, err := wire.ReadRun(m.GetRun())
	if generation, ok := r.local(run, m.GetGeneration()); ok && err == nil {
		r.worker.Retry(run, generation, m.GetId())
	}
	return err
}

func (r *workflowRole) evict(m *pb.Evict) error {
	if r == nil {
		return errNoRole
	}
	run, err := wire.ReadRun(m.GetRun())
	if err != nil {
		return err
	}
	if generation, ok := r.local(run, m.GetGeneration()); ok {
		r.drop(run, generation)
		r.worker.Evict(run, generation, m.GetReason())
	}
	return nil
}

// drop forgets a run that the worker no longer holds.
func (r *workflowRole) drop(run model.RunID, generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held[run].local == generation {
		delete(r.held, run)
		delete(r.loading, run)
		maps.DeleteFunc(r.asked, func(_ uint64, a *pb.QueryAnswer) bool { return string(a.GetRun()) == string(run[:]) })
	}
}

// refused says that the server could not take a turn, so the run goes on elsewhere.
func (r *workflowRole) refused(m *pb.TurnRefused) error {
	if r == nil {
		return errNoRole
	}
	run, err := wire.ReadRun(m.GetRun())
	if err != nil {
		return err
	}

	why := wire.ReadError(m.GetError())
	if why == nil {
		why = errLost
	}

	if generation, ok := r.local(run, m.GetGeneration()); ok {
		r.drop(run, generation)
		r.worker.Evict(run, generation, "the server did not take a turn: "+why.Error())
	}

	return nil
}

func (r *workflowRole) query(m *pb.Query) error {
	if r == nil {
		return errNoRole
	}
	run, err := wire.ReadRun(m.GetRun())
	if generation, ok := r.local(run, m.GetGeneration()); ok && err == nil {
		id := r.ask(&pb.QueryAnswer{Run: m.GetRun(), Generation: m.GetGeneration(), Id: m.GetId()})
		r.worker.Query(run, generation, model.Query{ID: id, Name: m.GetName(), Input: wire.ReadPayload(m.GetInput())})
	}
	return err
}

func (r *workflowRole) recall(m *pb.Recall) error {
	if r == nil {
		return errNoRole
	}
	run, err := wire.ReadRun(m.GetRun())
	if err == nil {
		id := r.ask(&pb.QueryAnswer{Run: m.GetRun(), Generation: m.GetGeneration(), Id: m.GetId()})
		q := model.Query{ID: id, Name: m.GetName(), Input: wire.ReadPayload(m.GetInput())}
		r.worker.Recall(wire.ReadAddress(r.w.tenantOf(), m.GetAddress()), run, m.GetGeneration(), q)
	}
	return err
}

// ask remembers a query and returns the worker's number of it. The answer has what the server needs
// to find the query again.
func (r *workflowRole) ask(to *pb.QueryAnswer) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	r.asked[r.last] = to
	return r.last
}

// Report hands in a turn.
func (r *workflowRole) Report(ctx context.Context, t model.Turn) error {
	local := t.Generation
	server, held := r.server(t.Run, local)
	if !held {
		return nil // the worker has been told, or is about to be
	}
	t.Generation = server
	item := &pb.WorkerItem{Item: &pb.WorkerItem_Turn{Turn: wire.Turn(&t)}}
	large := r.w.tooLarge(item)
	if large != nil { // no worker could report it, so the run is blocked with the reason
		t = model.Turn{Run: t.Run, Generation: server, Seen: t.Seen, Blocked: &model.Reason{Code: model.WaitPoison, Detail: "the code asks for " + large.Error()}}
		item = &pb.WorkerItem{Item: &pb.WorkerItem_Turn{Turn: wire.Turn(&t)}}
	}

	if err := r.w.send(ctx, item); err != nil {
		return err
	}
	// A blocked run is over for the worker. A closed one is over when the server evicts it: if news
	// came before the end, the engine records only what the code ran ahead of, and delivers the
	// news.
	if t.Blocked != nil {
		r.drop(t.Run, local)
	}
	if large != nil {
		r.worker.Evict(t.Run, local, large.Error())
	}
	return nil
}

// Release gives a parked run back.
func (r *workflowRole) Release(run model.RunID, generation uint64, seen int64, waits []model.Reason) {
	server, held := r.server(run, generation)
	if !held {
		return
	}
	m := &pb.Release{Run: wire.Run(run), Generation: server, Seen: seen}
	if len(waits) > 0 {
		m.Waits = model.AppendReasons(nil, waits)
	}
	r.w.post(&pb.WorkerItem{Item: &pb.WorkerItem_Release{Release: m}})
}

// Answer hands in what the code answered to a query.
//
//arch:parameters the protocol of workers, see api.Session
func (r *workflowRole) Answer(_ model.RunID, _, id uint64, out model.Payload, f *model.Failure) {
	r.mu.Lock()
	m := r.asked[id]
	delete(r.asked, id)
	r.mu.Unlock()
	if m == nil {
		return
	}
	m.Output, m.Failure = wire.Payload(out), wire.Failure(f)
	r.w.post(&pb.WorkerItem{Item: &pb.WorkerItem_QueryAnswer{QueryAnswer: m}})
}

// Leave gives everything back and ends the role.
func (r *workflowRole) Leave(ctx context.Context) error { return r.leave(ctx) }

// Pass asks the server for the limits and the breaker of an attempt.
func (r *workflowRole) Pass(ref model.TaskRef, spec *model.TaskSpec, input *model.Payload, begin func()) {
	r.mu.Lock()
	r.waiting[ref] = &attempt{begin: begin}
	r.mu.Unlock()
	m := &pb.Pass{Ref: wire.TaskRef(ref), Spec: wire.TaskSpec(spec)}
	if input != nil {
		m.Input = &pb.Payload{Data: input.Data, Encoding: input.Encoding}
	}
	r.w.post(&pb.WorkerItem{Item: &pb.WorkerItem_Pass{Pass: m}})
}

// EndPass reports how an attempt ended.
func (r *workflowRole) EndPass(ref model.TaskRef, spec *model.TaskSpec, how model.Passage, retryAfter time.Duration) {
	r.mu.Lock()
	delete(r.waiting, ref)
	r.mu.Unlock()
	r.w.post(&pb.WorkerItem{Item: &pb.WorkerItem_Passed{Passed: &pb.Passed{
		Ref: wire.TaskRef(ref), Spec: wire.TaskSpec(spec), How: uint32(how), RetryAfter: int64(retryAfter),
	}}})
}

// HeldBackBy says what a waiting attempt waits for, as far as the server has told.
func (r *workflowRole) HeldBackBy(ref model.TaskRef) (model.Reason, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.waiting[ref]; a != nil && a.known {
		return a.why, true
	}
	return model.Reason{}, false
}

func (r *workflowRole) begin(m *pb.Begin) error {
	if r == nil {
		return errNoRole
	}
	ref, err := wire.ReadTaskRef(r.w.tenantOf(), m.GetRef())
	if err != nil {
		return err
	}
	r.mu.Lock()
	a := r.waiting[ref]
	delete(r.waiting, ref)
	r.mu.Unlock()
	if a != nil {
		a.begin()
	}
	return nil
}

func (r *workflowRole) kept(m *pb.Kept) error {
	if r == nil {
		return errNoRole
	}
	ref, err := wire.ReadTaskRef(r.w.tenantOf(), m.GetRef())
	if err != nil {
		return err
	}

	reasons, err := wire.ReadReasons(m.GetReason())
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if a := r.waiting[ref]; a != nil && len(reasons) > 0 {
		a.why, a.known = reasons[0], true
	}

	return nil
}
