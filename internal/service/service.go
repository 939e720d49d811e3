// Package service implements api.Backend: one method per operation. Each method validates its
// request, and then asks the engine or reads the store. The entry points have already checked what
// the caller may do; only StartBatch asks an authorizer itself. The package keeps no state of its
// own, except for two caches: the executions that were open when a caller last described them, and
// the counts of the last survey for metrics.
package service

import (
	"context"
	"strings"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authz"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/telemetry"
	"github.com/perdure/perdure/internal/telemetry/tracing"
)

// Service puts the engine and the store behind api.Backend, the interface that all entry points
// use.
type Service struct {
	engine *engine.Engine
	store  store.Store
	limits Limits
	tracer *tracing.Tracer // nil without tracing

	authorizer authz.Authorizer // for callers that start batch jobs; nil for authz.Admins

	ask       AskFunc // nil if other nodes cannot be asked
	askSeries AskSeriesFunc
	askQueues AskQueuesFunc
	open      *openSet
}

// New returns a service. e may be nil for a service that only reads.
func New(e *engine.Engine, st store.Store, limits Limits) *Service {
	return &Service{engine: e, store: st, limits: limits.WithDefaults(), open: newOpenSet()}
}

// Trace makes the service create spans for the messages that it sends. The caller must call it
// before the service is used.
func (s *Service) Trace(t *tracing.Tracer) { s.tracer = t }

// Authorize sets the authorizer that decides whether a caller may do what its batch job does.
// Without an authorizer, only admins may start batch jobs. The caller must call Authorize before
// the service is used.
func (s *Service) Authorize(a authz.Authorizer) { s.authorizer = a }

var _ api.Backend = (*Service)(nil)

func (s *Service) shard(a model.Address) model.ShardID { return s.store.Info().Layout().Shard(a) }

// send sends a message to the owner of its address, and returns the answer of the owner.
func (s *Service) send(ctx context.Context, m *model.Message) (model.Answer, error) {
	if s.engine == nil {
		return model.Answer{}, readOnly(m)
	}
	ctx, span := s.tracer.Send(ctx, m)
	a, err := s.engine.Send(ctx, m)
	span.End(failureOf(err))
	return a, s.explainLate(ctx, m.To, err)
}

// sendStart sends a start of a client, if the allowance of the tenant has room for it.
func (s *Service) sendStart(ctx context.Context, m *model.Message) (model.Answer, error) {
	if s.engine == nil {
		return model.Answer{}, readOnly(m)
	}
	done, err := s.admit(ctx, m)
	if err != nil {
		return model.Answer{}, err
	}
	a, err := s.send(ctx, m)
	// Without an answer, the execution may have started.
	done(err != nil || !a.Existing)
	return a, err
}

// failureOf returns the kind of an error, for spans.
func failureOf(err error) string {
	if err == nil {
		return ""
	}
	return fault.KindOf(err).String()
}

func readOnly(m *model.Message) error {
	return fault.New(fault.Denied, "%s of %s: the store is open for reading only", m.Kind, m.To)
}

// Start starts an execution, or attaches to the execution that has the key.
func (s *Service) Start(ctx context.Context, r api.StartRequest) (api.StartReply, error) {
	m, err := s.limits.Start(&r)
	if err != nil {
		return api.StartReply{}, err
	}
	a, err := s.sendStart(ctx, m)
	return api.StartReply{Run: a.Run, Existing: a.Existing, Status: a.Status}, err
}

// Run starts an execution as Start does, and waits for the end of the run that Start returns and of
// the runs that continue it.
func (s *Service) Run(ctx context.Context, r api.StartRequest) (api.Result, error) {
	m, err := s.limits.Start(&r)
	if err != nil {
		return api.Result{}, err
	}
	if s.engine == nil {
		return api.Result{}, readOnly(m)
	}
	if s.flow().Bounded(r.Address.Tenant) {
		// The service counts open executions, so it must get the answer to the start before the
		// execution ends.
		a, err := s.Start(ctx, r)
		if err != nil {
			return api.Result{}, err
		}
		return s.followRuns(ctx, api.Target{Address: r.Address, Run: a.Run})
	}

	done, err := s.admit(ctx, m)
	if err != nil {
		return api.Result{}, err
	}
	done(false) // open executions of this tenant are not limited, so nothing is counted

	ctx, span := s.tracer.Run(ctx, m)
	end, err := s.execute(ctx, m)
	if err == nil {
		span.End(telemetry.FailureWord(end.Outcome.Failure))
	} else {
		span.End(failureOf(err))
	}
	return end, err
}

// execute sends a start, and waits for the end of the run that the answer names.
func (s *Service) execute(ctx context.Context, m *model.Message) (api.Result, error) {
	end, err := s.engine.Execute(ctx, m)
	switch {
	case err != nil:
		return api.Result{}, s.explainLate(ctx, m.To, err)
	case end.Outcome.Status.Closed():
		return api.Result{Run: end.Run, Outcome: end.Outcome}, nil
	}
	return s.followRuns(ctx, api.Target{Address: m.To, Run: end.Run})
}

// followRuns waits for the end of a run and of the runs that continue it.
func (s *Service) followRuns(ctx context.Context, t api.Target) (api.Result, error) {
	end, err := api.FollowRuns(ctx, ownRuns{s}, t)
	return end, s.explainLate(ctx, t.Address, err)
}

// ownRuns reads and awaits runs whose addresses the service has checked.
type ownRuns struct{ *Service }

func (s ownRuns) Await(ctx context.Context, t api.Target) (api.Result, error) {
	r, err := s.engine.Await(ctx, t.Address, t.Run)
	return api.Result{Run: r.Run, Outcome: r.Outcome}, err
}

func (s ownRuns) StartOf(ctx context.Context, t api.Target) (model.Start, error) {
	row, err := s.store.LoadExecution(ctx, s.shard(t.Address), t.Address, t.Run)
	if err = checkRow(t, row, err); err != nil {
		return model.Start{}, err
	}
	return row.Start, nil
}

// Signal sends a signal.
func (s *Service) Signal(ctx context.Context, r api.SignalRequest) error {
	m, err := s.limits.Signal(&r)
	if err == nil {
		_, err = s.send(ctx, m)
	}
	return err
}

// Settle resolves or rejects a promise.
func (s *Service) Settle(ctx context.Context, r api.SettleRequest) error {
	m, err := s.limits.Settle(&r)
	if err == nil {
		_, err = s.send(ctx, m)
	}
	return err
}

// Cancel asks an execution to end.
func (s *Service) Cancel(ctx context.Context, r api.CancelRequest) error {
	return s.order(ctx, model.MessageCancel, &r)
}

// Terminate ends an execution immediately.
func (s *Service) Terminate(ctx context.Context, r api.CancelRequest) error {
	return s.order(ctx, model.MessageTerminate, &r)
}

// Pause stops an execution from continuing until Resume.
func (s *Service) Pause(ctx context.Context, r api.CancelRequest) error {
	return s.order(ctx, model.MessagePause, &r)
}

// Resume undoes Pause.
func (s *Service) Resume(ctx context.Context, r api.CancelRequest) error {
	return s.order(ctx, model.MessageResume, &r)
}

// order sends an operator's order to an execution, with its reason.
func (s *Service) order(ctx context.Context, kind model.MessageKind, r *api.CancelRequest) error {
	m, err := s.limits.Order(kind, r)
	if err == nil {
		_, err = s.send(ctx, m)
	}
	return wayOut(err)
}

// Update asks the code of an execution to change something.
func (s *Service) Update(ctx context.Context, r api.UpdateRequest) (model.Payload, error) {
	v := s.check("update " + r.Name)
	v.Workflow(r.Target.Address, "updates")
	v.Name("update", r.Name)
	v.Payload("input", r.Input)
	v.RequestID(r.RequestID)
	if err := v.Err(); err != nil {
		return model.Payload{}, err
	}
	m := &model.Message{Kind: model.MessageUpdate, To: r.Target.Address, ToRun: r.Target.Run, Name: r.Name, Input: r.Input}
	if r.RequestID != "" {
		m.RequestID = model.UpdateIDs + r.RequestID
	}
	return payloadOf(s.send(ctx, m))
}

// Query asks the code of an execution for information.
func (s *Service) Query(ctx context.Context, r api.QueryRequest) (model.Payload, error) {
	v := s.check("query " + r.Name)
	v.Workflow(r.Target.Address, "queries")
	v.Name("query", r.Name)
	v.Payload("input", r.Input)
	if err := v.Err(); err != nil {
		return model.Payload{}, err
	}
	m := &model.Message{Kind: model.MessageQuery, To: r.Target.Address, ToRun: r.Target.Run, Name: r.Name, Input: r.Input}
	if s.engine == nil {
		return model.Payload{}, readOnly(m)
	}
	ctx, span := s.tracer.Send(ctx, m)
	a, err := s.engine.Query(ctx, m)
	span.End(failureOf(err))
	return payloadOf(a, s.explainLate(ctx, m.To, err))
}

// payloadOf returns the answer of the code. An error of the code keeps its type, and an error of
// the engine keeps its kind.
func payloadOf(a model.Answer, err error) (model.Payload, error) {
	if f := a.Failure; f != nil && fault.ParseKind(f.Kind) == fault.Unclassified {
		return model.Payload{}, f
	}
	return a.Output, err
}

// Await waits for the end of an execution.
func (s *Service) Await(ctx context.Context, t api.Target) (api.Result, error) {
	v := s.check("await")
	v.Address(t.Address)
	if err := v.Err(); err != nil {
		return api.Result{}, err
	}
	if s.engine == nil {
		return api.Result{}, fault.New(fault.Denied, "await %s: the store is open for reading only", t.Address)
	}
	if !t.Run.IsZero() { // the engine finds a run by its id alone, so check the address
		if _, err := s.execution(ctx, "await", t); err != nil {
			return api.Result{}, err
		}
	}
	r, err := s.engine.Await(ctx, t.Address, t.Run)
	return api.Result{Run: r.Run, Outcome: r.Outcome}, s.explainLate(ctx, t.Address, err)
}

// JoinTasks adds a worker that executes tasks.
func (s *Service) JoinTasks(_ context.Context, w api.TaskWorker, offer model.TaskOffer) (api.TaskSession, error) {
	if s.engine == nil {
		return nil, fault.New(fault.Denied, "the store is open for reading only")
	}
	v := s.check("join")
	v.Name("worker", offer.Name)
	if len(offer.Tenants) == 0 {
		v.Wrong("the tenant is empty")
	}
	for _, tenant := range offer.Tenants {
		v.Tenant(tenant)
	}
	v.Offer("queue", offer.Queues)
	v.Offer("activity", offer.Kinds)
	if offer.Slots <= 0 {
		v.Wrong("it has %d slots", offer.Slots)
	}
	if err := v.Err(); err != nil {
		return nil, err
	}

	return taskSession{s.engine.JoinTasks(w, offer), s}, nil
}

// JoinBuiltIn adds a worker that runs workflows of Perdure itself, such as schedules, for every
// tenant. It is not part of api.Backend: only the process that runs the engine may use it.
func (s *Service) JoinBuiltIn(_ context.Context, w api.Worker, workflows ...string) (api.Session, error) {
	if s.engine == nil {
		return nil, fault.New(fault.Denied, "the store is open for reading only")
	}
	v := s.check("join")
	v.Offer("workflow", workflows)
	for _, name := range workflows {
		if !strings.HasPrefix(name, model.ReservedPrefix) {
			v.Wrong("workflow %s is not built in: a worker offers it for one tenant", name)
		}
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	return s.engine.Join(w, api.Offer{Tenant: model.EveryTenant, Workflows: workflows}), nil
}

// JoinBuiltInEntities adds a worker that has the code of entities of Perdure itself, such as the
// registers of singletons, for every tenant. Like JoinBuiltIn it is not part of api.Backend.
func (s *Service) JoinBuiltInEntities(_ context.Context, w api.EntityWorker, types ...model.EntityType) (api.EntitySession, error) {
	if s.engine == nil {
		return nil, fault.New(fault.Denied, "the store is open for reading only")
	}
	v := s.check("join")
	for i := range types {
		if !model.IsBuiltIn(types[i].Type) {
			v.Wrong("%s is not built in: a worker offers it for one tenant", types[i].Type)
		}
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	return s.engine.JoinEntities(w, model.EntityOffer{Tenant: model.EveryTenant, Types: types}), nil
}

// Join adds a workflow worker.
func (s *Service) Join(_ context.Context, w api.Worker, offer api.Offer) (api.Session, error) {
	if s.engine == nil {
		return nil, fault.New(fault.Denied, "the store is open for reading only")
	}
	v := s.check("join")
	v.Tenant(offer.Tenant)
	for _, name := range offer.Workflows {
		v.Name("workflow", name)
		v.WorkflowName(name)
		if name == model.BatchType && !offer.BuiltIn {
			v.Wrong("workflow %s is built in: only servers and embedded apps run it", name)
		}
	}
	if offer.Slots < 0 {
		v.Wrong("it has %d slots", offer.Slots)
	}
	if err := v.Err(); err != nil {
		return nil, err
	}
	return s.engine.Join(w, offer), nil
}
