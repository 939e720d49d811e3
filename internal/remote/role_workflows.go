package remote

import (
	"context"
	"errors"
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
// A restarted server may reuse the numbers of generations and queries. So the role gives the worker
// numbers of its own. It drops reports with a number that the current session does not know.
type workflowRole struct {
	*membership

	worker api.Worker

	mu   sync.Mutex
	last uint64                  // the last number that the role gave to the worker
	held map[model.RunID]holding // runs that the worker holds
	// loading are activations whose history has not arrived completely.
	loading map[model.RunID]*model.Activation
	// waiting are attempts that wait for limits and breakers.
	waiting map[model.TaskRef]*attempt
	// left are the runs that the server has lost, either a single run or all runs of a lost
	// session. The worker keeps the running steps of these runs. It names these runs whenever it
	// joins, until it gets them again with the whole history or until leftFor has passed.
	left map[model.RunID]leftRun
	// asked are the queries that the worker has not answered.
	asked map[uint64]*pb.QueryAnswer
}

// holding is a run that the worker holds, with the number of its generation at the worker and at
// the server.
type holding struct {
	local, server uint64
	address       model.Address
	given         model.Time // when the server handed it over, by its clock
	released      bool       // the worker has given it back, and the server has not answered
}

// leftRun is a run that the server has lost.
type leftRun struct {
	address model.Address
	given   model.Time
	since   time.Time
}

// leftFor is how long a worker names a run that no server gives back to it. A worker keeps the
// attempts of a lost run for the same time.
const leftFor = time.Minute

// attempt is an attempt of a step that waits for limits and breakers. why is the reason that the
// server gave; known says whether it gave one.
type attempt struct {
	begin func()
	why   model.Reason
	known bool
}

func newWorkflowRole(m *membership, worker api.Worker) *workflowRole {
	r := &workflowRole{membership: m, worker: worker, left: map[model.RunID]leftRun{}}
	r.reset()
	return r
}

func (r *workflowRole) member() *membership { return r.membership }
func (r *workflowRole) resume()             {}
func (r *workflowRole) refuse(error)        {}

func (r *workflowRole) reset() {
	r.held, r.loading = map[model.RunID]holding{}, map[model.RunID]*model.Activation{}
	r.waiting, r.asked = map[model.TaskRef]*attempt{}, map[uint64]*pb.QueryAnswer{}
}

// lost takes all runs from the worker. A worker that is a Survivor keeps its running steps for the
// next activation of the same run.
func (r *workflowRole) lost([]*pb.WorkerItem) *pb.Join {
	survivor, _ := r.worker.(api.Survivor)
	now := time.Now()
	r.mu.Lock()
	held, loading := r.held, r.loading
	r.reset()
	maps.DeleteFunc(r.left, func(_ model.RunID, l leftRun) bool { return now.Sub(l.since) > leftFor })
	for run, h := range held {
		// The worker has never seen a run that is still loading.
		if loading[run] == nil && survivor != nil {
			r.left[run] = leftRun{h.address, h.given, now}
		}
	}
	join := &pb.Join{HeldRuns: make([]*pb.HeldRun, 0, len(r.left))}
	for run, l := range r.left {
		join.HeldRuns = append(join.HeldRuns, wire.HeldRun(model.HeldRun{Address: l.address, Run: run, Given: l.given}))
	}
	r.mu.Unlock()

	for run, h := range held {
		switch {
		case loading[run] != nil:
		case survivor != nil:
			survivor.Lose(run, h.local)
		default:
			r.worker.Evict(run, h.local, errLost.Error())
		}
	}
	return join
}

// local returns the worker's number for a generation of the server. It returns false if the worker
// does not hold the run in this generation.
func (r *workflowRole) local(run model.RunID, server uint64) (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.held[run]
	return h.local, ok && h.server == server
}

// server returns the server's generation for a number of the worker.
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
	r.held[a.Start.Run] = holding{local: r.last, server: a.Generation, address: a.Start.Address, given: a.Now}
	a.Generation = r.last
	delete(r.loading, a.Start.Run)
	if m.GetMore() {
		r.loading[a.Start.Run] = &a
	} else {
		delete(r.left, a.Start.Run)
	}
	r.mu.Unlock()
	if !m.GetMore() {
		r.worker.Activate(&a)
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
		delete(r.left, run)
	}
	r.mu.Unlock()
	if !m.GetMore() {
		r.worker.Activate(a)
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
		r.setReleased(run, generation, false)
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
	generation, ok := r.local(run, m.GetGeneration())
	if !ok {
		return nil
	}
	if survivor, ok := r.worker.(api.Survivor); ok && m.GetLost() {
		r.keep(run)
		r.drop(run, generation)
		survivor.Lose(run, generation)
		return nil
	}
	r.drop(run, generation)
	r.worker.Evict(run, generation, m.GetReason())
	return nil
}

// keep notes that the worker keeps the running steps of a run. It does nothing for a run that the
// worker has never seen.
func (r *workflowRole) keep(run model.RunID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h, ok := r.held[run]; ok && r.loading[run] == nil {
		r.left[run] = leftRun{h.address, h.given, time.Now()}
	}
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

// takeTaken tells the worker that the server has applied a turn that recorded no event.
func (r *workflowRole) takeTaken(m *pb.TurnTaken) error {
	if r == nil {
		return errNoRole
	}
	run, err := wire.ReadRun(m.GetRun())
	if err != nil {
		return err
	}
	if generation, ok := r.local(run, m.GetGeneration()); ok {
		r.worker.Taken(run, generation)
	}
	return nil
}

// takeRefused tells the worker that the server could not take a turn. The worker loses the run,
// which continues from its history.
func (r *workflowRole) takeRefused(m *pb.TurnRefused) error {
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

// ask remembers a query and returns its number for the worker. The parameter to is the answer
// without its result; it has the ids by which the server finds the query.
func (r *workflowRole) ask(to *pb.QueryAnswer) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	r.asked[r.last] = to
	return r.last
}

// Report sends a turn to the server.
func (r *workflowRole) Report(ctx context.Context, t model.Turn) error {
	local := t.Generation
	on, _ := r.current() // before the run is looked up, so that both belong to the same session
	server, held := r.server(t.Run, local)
	if !held {
		return nil // the worker knows that it lost the run, or learns it soon
	}
	t.Generation = server
	item := &pb.WorkerItem{Item: &pb.WorkerItem_Turn{Turn: wire.Turn(&t)}}
	large := r.w.tooLarge(item)
	if large != nil { // no worker could report this turn, so the run is blocked with the reason
		t = model.Turn{Run: t.Run, Generation: server, Seen: t.Seen, Blocked: &model.Reason{Code: model.WaitPoison, Detail: "the code asks for " + large.Error()}}
		item = &pb.WorkerItem{Item: &pb.WorkerItem_Turn{Turn: wire.Turn(&t)}}
	}

	switch err := on.Send(ctx, item, size(item)); {
	case errors.Is(err, errLost):
		return nil // the worker soon learns that it lost the run, and keeps what it has reported
	case err != nil:
		return err
	}

	// The worker holds a run that it has closed until the server says that the end is stored. If
	// new events came first, the code continues instead.
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
	on, _ := r.current()
	server, held := r.server(run, generation)
	if !held {
		return
	}
	r.setReleased(run, generation, true)
	m := &pb.Release{Run: wire.Run(run), Generation: server, Seen: seen}
	if len(waits) > 0 {
		m.Waits = model.AppendReasons(nil, waits)
	}
	postTo(on, &pb.WorkerItem{Item: &pb.WorkerItem_Release{Release: m}})
}

// Answer sends the answer of the code to a query.
//
//arch:parameters the protocol of workers, see api.Session
func (r *workflowRole) Answer(_ model.RunID, _, id uint64, out model.Payload, f *model.Failure) {
	on, _ := r.current()
	r.mu.Lock()
	m := r.asked[id]
	delete(r.asked, id)
	r.mu.Unlock()
	if m == nil {
		return
	}
	m.Output, m.Failure = wire.Payload(out), wire.Failure(f)
	postTo(on, &pb.WorkerItem{Item: &pb.WorkerItem_QueryAnswer{QueryAnswer: m}})
}

// Leave gives everything back and ends the role.
func (r *workflowRole) Leave(ctx context.Context) error { return r.leave(ctx, r.idle) }

// Pass asks the server to let an attempt through its limits and its breaker.
func (r *workflowRole) Pass(ref model.TaskRef, spec *model.TaskSpec, input *model.Payload, begin func()) {
	r.mu.Lock()
	r.waiting[ref] = &attempt{begin: begin}
	r.mu.Unlock()
	m := &pb.Pass{Ref: wire.TaskRef(ref), Spec: wire.TaskSpec(spec)}
	if input != nil {
		m.Input = &pb.Payload{Data: input.Data, Encoding: input.Encoding}
	}
	r.post(&pb.WorkerItem{Item: &pb.WorkerItem_Pass{Pass: m}})
}

// EndPass reports how an attempt ended.
func (r *workflowRole) EndPass(ref model.TaskRef, spec *model.TaskSpec, how model.Passage, retryAfter time.Duration) {
	r.mu.Lock()
	delete(r.waiting, ref)
	r.mu.Unlock()
	r.post(&pb.WorkerItem{Item: &pb.WorkerItem_Passed{Passed: &pb.Passed{
		Ref: wire.TaskRef(ref), Spec: wire.TaskSpec(spec), How: uint32(how), RetryAfter: int64(retryAfter),
	}}})
}

// HeldBackBy says what a waiting attempt waits for, if the server has given a reason.
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
