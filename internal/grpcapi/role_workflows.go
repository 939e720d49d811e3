package grpcapi

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

// workflowRole is a remote worker that runs workflows: the engine sees an api.Worker, and the
// remote worker sees items.
type workflowRole struct {
	s       *session
	session api.Session
	gate    api.Gate // nil when the engine has none
	answers bool     // the worker knows TurnTaken

	mu   sync.Mutex
	held map[model.RunID]uint64 // the generation of each run that the worker holds
	// passing are the attempts that wait for permits of limits, or hold them.
	passing map[model.TaskRef]*passing
	asked   map[uint64]model.RunID // queries to answer, by id
	// refused are the turns with too large values, by run, until the engine has taken the run back.
	refused map[model.RunID]refusal
}

// passing is an attempt of the worker that waits for the limits and the breaker of its spec, or has
// passed them.
type passing struct {
	spec  *model.TaskSpec
	asked bool // the gate knows the attempt
	begun bool
}

// maxEventBytes is how many bytes of events go into one item. Larger histories are split.
const maxEventBytes = 1 << 20

func (s *session) joinWorkflows(j *pb.Join) error {
	r := &workflowRole{s: s, answers: j.GetAnswers(), held: map[model.RunID]uint64{}, passing: map[model.TaskRef]*passing{}, asked: map[uint64]model.RunID{}, refused: map[model.RunID]refusal{}}
	offer, err := wire.ReadWorkflowJoin(s.tenant, j)
	if err != nil {
		return err
	}
	offer.Remote = s.remote(pb.Role_ROLE_WORKFLOWS)
	// The engine may call r before Join returns. That is safe, because r uses the session only when
	// it gets an item of the worker.
	session, err := s.work.cfg.Backend.Join(s.ctx, r, offer)
	if err != nil {
		return err
	}
	r.session = session
	r.gate, _ = session.(api.Gate)
	s.mu.Lock()
	s.workflows = r
	over := s.over
	s.mu.Unlock()
	if over {
		r.lose()
	}

	return nil
}

// lose takes everything back from a worker that is gone. Its runs go to other workers, and the
// permits of its attempts are free again.
func (r *workflowRole) lose() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = r.session.Leave(ctx) // the error only says that the worker still holds runs
	r.letGo()
}

// letGo forgets the runs of the worker, and frees the permits of its attempts. If pass is asking
// the gate for an attempt at this moment, pass frees its permit.
func (r *workflowRole) letGo() {
	r.mu.Lock()
	clear(r.held)
	clear(r.refused)
	left := r.passing
	r.passing = map[model.TaskRef]*passing{}
	maps.DeleteFunc(left, func(_ model.TaskRef, p *passing) bool { return !p.asked })
	r.mu.Unlock()

	for ref, p := range left {
		r.gate.EndPass(ref, p.spec, model.PassageNeither, 0)
	}
}

// holds reports whether the worker holds a run in the given generation.
func (r *workflowRole) holds(run model.RunID, generation uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, ok := r.held[run]
	return ok && g == generation
}

func (r *workflowRole) Activate(a *api.Activation) {
	r.mu.Lock()
	r.held[a.Start.Run] = a.Generation
	delete(r.refused, a.Start.Run)
	r.mu.Unlock()

	first, rest := split(a.Events)
	m := wire.Activation(a)
	m.Events, m.More = wire.Events(first), len(rest) > 0
	r.s.post(&pb.ServerItem{Item: &pb.ServerItem_Activation{Activation: m}})
	for len(rest) > 0 {
		first, rest = split(rest)
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_MoreEvents{MoreEvents: &pb.MoreEvents{
			Run: m.GetRun(), Generation: a.Generation, Events: wire.Events(first), More: len(rest) > 0,
		}}})
	}
}

// split returns the events that fit into one item, at least one, and the others.
func split(events []model.Event) (first, rest []model.Event) {
	size := 0
	for i := range events {
		size += events[i].Size()
		if i > 0 && size > maxEventBytes {
			return events[:i], events[i:]
		}
	}
	return events, nil
}

func (r *workflowRole) Deliver(run model.RunID, generation uint64, events []model.Event) {
	for first, rest := split(events); len(first) > 0; first, rest = split(rest) {
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_Deliver{Deliver: &pb.Deliver{Run: wire.Run(run), Generation: generation, Events: wire.Events(first)}}})
	}
}

func (r *workflowRole) Retry(run model.RunID, generation uint64, id string) {
	r.s.post(&pb.ServerItem{Item: &pb.ServerItem_RetryStep{RetryStep: &pb.RetryStep{Run: wire.Run(run), Generation: generation, Id: id}}})
}

func (r *workflowRole) Evict(run model.RunID, generation uint64, reason string) {
	r.takeBack(run, generation)
	if !r.tellRefused(run, generation) {
		r.s.post(evicted(run, generation, reason))
	}
}

// Lose implements api.Survivor: the worker keeps its running steps for the next owner of the run. A
// worker of an older build treats the item as an Evict.
func (r *workflowRole) Lose(run model.RunID, generation uint64) {
	r.takeBack(run, generation)
	if r.tellRefused(run, generation) {
		return
	}
	item := evicted(run, generation, "the owner of the run is lost")
	item.GetEvict().Lost = true
	r.s.post(item)
}

// takeBack forgets a run of the worker.
func (r *workflowRole) takeBack(run model.RunID, generation uint64) {
	r.mu.Lock()
	if r.held[run] == generation {
		delete(r.held, run)
	}
	// The worker can no longer answer queries about the run.
	maps.DeleteFunc(r.asked, func(_ uint64, of model.RunID) bool { return of == run })
	r.mu.Unlock()
}

func evicted(run model.RunID, generation uint64, reason string) *pb.ServerItem {
	return &pb.ServerItem{Item: &pb.ServerItem_Evict{Evict: &pb.Evict{Run: wire.Run(run), Generation: generation, Reason: model.Cut(reason, 1000)}}}
}

func (r *workflowRole) Taken(run model.RunID, generation uint64) {
	if !r.tellRefused(run, generation) && r.answers {
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_TurnTaken{TurnTaken: &pb.TurnTaken{Run: wire.Run(run), Generation: generation}}})
	}
}

func (r *workflowRole) Query(run model.RunID, generation uint64, q model.Query) {
	r.ask(q.ID, run)
	r.s.post(&pb.ServerItem{Item: &pb.ServerItem_Query{Query: &pb.Query{
		Run: wire.Run(run), Generation: generation, Id: q.ID, Name: q.Name, Input: wire.Payload(q.Input),
	}}})
}

func (r *workflowRole) Recall(a model.Address, run model.RunID, generation uint64, q model.Query) {
	r.ask(q.ID, run)
	r.s.post(&pb.ServerItem{Item: &pb.ServerItem_Recall{Recall: &pb.Recall{
		Address: wire.Address(a), Run: wire.Run(run), Generation: generation, Id: q.ID, Name: q.Name, Input: wire.Payload(q.Input),
	}}})
}

// ask remembers a query, so that only the worker that was asked answers it.
func (r *workflowRole) ask(id uint64, run model.RunID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[id] = run
}

// report passes a turn to the engine. It does not pass on a turn of a generation that the worker
// does not hold, but evicts that generation. So a worker can report only on runs that it was given.
func (r *workflowRole) report(m *pb.Turn) error {
	t, err := wire.ReadTurn(m)
	if err != nil {
		return err
	}
	if !r.holds(t.Run, t.Generation) {
		r.s.post(evicted(t.Run, t.Generation, "stale: the worker no longer holds the run"))
		return nil
	}
	if why := r.s.work.tooLarge(&t); why != nil {
		t = r.refuse(&t, why)
	}

	if err := r.session.Report(r.s.ctx, t); err != nil {
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_TurnRefused{TurnRefused: &pb.TurnRefused{Run: m.GetRun(), Generation: t.Generation, Error: errorDetail(err)}}})
		return nil
	}

	// The engine takes a closed run back when its end is stored. If new events came first, the run
	// continues instead.
	if t.Blocked != nil {
		r.mu.Lock()
		if r.held[t.Run] == t.Generation {
			delete(r.held, t.Run)
		}
		r.mu.Unlock()
	}

	return nil
}

func (r *workflowRole) release(m *pb.Release) error {
	run, err := wire.ReadRun(m.GetRun())
	if err != nil {
		return err
	}
	waits, err := wire.ReadReasons(m.GetWaits())
	if err != nil {
		return err
	}
	if r.holds(run, m.GetGeneration()) {
		r.session.Release(run, m.GetGeneration(), m.GetSeen(), waits)
	}
	return nil
}

func (r *workflowRole) answer(m *pb.QueryAnswer) error {
	run, err := wire.ReadRun(m.GetRun())
	if err != nil {
		return err
	}
	r.mu.Lock()
	asked, ok := r.asked[m.GetId()]
	delete(r.asked, m.GetId())
	r.mu.Unlock()
	if ok && asked == run {
		r.session.Answer(run, m.GetGeneration(), m.GetId(), wire.ReadPayload(m.GetOutput()), wire.ReadFailure(m.GetFailure()))
	}
	return nil
}

// pass asks the gate whether an attempt may start under its limits and its breaker. If it may not
// start immediately, pass tells the worker what the attempt waits for.
func (r *workflowRole) pass(m *pb.Pass) error {
	ref, spec, err := r.attempt(m.GetRef(), m.GetSpec())
	if err != nil {
		return err
	}
	p := &passing{spec: spec}
	r.mu.Lock()
	_, held := r.held[ref.Run]
	if held && r.gate != nil {
		r.passing[ref] = p
	}
	r.mu.Unlock()
	if !held {
		return nil
	}

	begin := func() {
		r.mu.Lock()
		p.begun = true
		r.mu.Unlock()
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_Begin{Begin: &pb.Begin{Ref: m.GetRef()}}})
	}
	if r.gate == nil {
		begin()
		return nil
	}
	var input *model.Payload
	if m.GetInput() != nil {
		p := wire.ReadPayload(m.GetInput())
		input = &p
	}
	r.gate.Pass(ref, spec, input, begin)

	r.mu.Lock()
	p.asked = true
	left, waits := r.passing[ref] != p, !p.begun
	r.mu.Unlock()
	if left { // letGo ran before the gate knew the attempt
		r.gate.EndPass(ref, spec, model.PassageNeither, 0)
		return nil
	}
	if reason, ok := r.gate.HeldBackBy(ref); ok && waits {
		r.s.post(&pb.ServerItem{Item: &pb.ServerItem_Kept{Kept: &pb.Kept{Ref: m.GetRef(), Reason: model.AppendReasons(nil, []model.Reason{reason})}}})
	}
	return nil
}

// endPass ends an attempt that runs or waits in this session.
func (r *workflowRole) endPass(m *pb.Passed) error {
	ref, err := wire.ReadTaskRef(r.s.tenant, m.GetRef())
	if err != nil {
		return err
	}
	if m.GetHow() > uint32(model.PassageFailed) {
		return fault.New(fault.Invalid, "an attempt ended in way %d, which this server does not know", m.GetHow())
	}
	if p := r.endPassing(ref); p != nil {
		r.gate.EndPass(ref, p.spec, model.Passage(m.GetHow()), time.Duration(m.GetRetryAfter()))
	}
	return nil
}

// endPassing forgets and returns an attempt. It returns nil if the session does not know the
// attempt.
func (r *workflowRole) endPassing(ref model.TaskRef) *passing {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.passing[ref]
	delete(r.passing, ref)
	return p
}

func (r *workflowRole) attempt(ref *pb.TaskRef, spec *pb.TaskSpec) (model.TaskRef, *model.TaskSpec, error) {
	t, err := wire.ReadTaskRef(r.s.tenant, ref)
	if err != nil {
		return t, nil, err
	}
	sp, err := wire.ReadTaskSpec(r.s.tenant, spec)
	if err != nil {
		return t, nil, err
	}
	if sp == nil {
		return t, nil, fault.New(fault.Invalid, "an attempt of %s without a spec", t)
	}
	if err := sp.Check(nil); err != nil {
		return t, nil, fault.New(fault.Invalid, "an attempt of %s: %w", t, err)
	}
	return t, sp, nil
}

func errorDetail(err error) *pb.ErrorDetail { return wire.ErrorDetail(err) }
