package crew

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// Workplace is the engine of an owner, which workers of other nodes join.
type Workplace interface {
	// Join adds a worker of another node. The engine takes a slot for each hand-over, unless slots
	// is nil.
	Join(node model.NodeID, w RunWorker, o model.Offer, slots *Credit) RunSession
	// JoinEntities adds an entity worker of another node.
	JoinEntities(node model.NodeID, w CallWorker, o model.EntityOffer, slots *Credit) CallSession
}

// RunWorker is a worker of workflows, as the engine sees it. See api.Worker.
type RunWorker interface {
	// Activate hands a run over.
	Activate(a *model.Activation)
	// Deliver delivers the next events.
	Deliver(run model.RunID, generation uint64, events []model.Event)
	// Retry tells the worker that the back-off of a step is over.
	Retry(run model.RunID, generation uint64, id string)
	// Evict takes back a run.
	Evict(run model.RunID, generation uint64, reason string)
	// Query sends a query to the code of a run.
	Query(run model.RunID, generation uint64, q model.Query)
	// Taken answers a turn that recorded no event.
	Taken(run model.RunID, generation uint64)
	// Recall asks the code about a run that has ended.
	Recall(a model.Address, run model.RunID, generation uint64, q model.Query)
}

// Survivor is a worker that keeps what it runs when its owner is lost. See api.Survivor.
type Survivor interface {
	RunWorker
	// Lose takes back a run that gets another owner.
	Lose(run model.RunID, generation uint64)
}

// CallWorker is a worker of entities, as the engine sees it.
type CallWorker interface {
	// Operate hands calls over.
	Operate(o model.Operations)
}

// RunSession is the engine's side of a worker of another node.
type RunSession interface {
	// Report hands in a turn. It blocks while the engine is full.
	Report(ctx context.Context, t model.Turn) error
	// Release gives a run back.
	Release(run model.RunID, generation uint64, seen int64, waits []model.Reason)
	// Answer hands in the answer to a query.
	Answer(run model.RunID, generation, id uint64, out model.Payload, f *model.Failure)
	Membership
}

// CallSession is the engine's side of an entity worker of another node.
type CallSession interface {
	// FinishCalls hands in the results of calls.
	FinishCalls(ctx context.Context, r model.Operated) error
	Membership
}

// Membership is what both kinds of sessions have in common.
type Membership interface {
	// Hold tells the engine which runs and entities of lost owners the worker holds.
	Hold(held []model.HeldRun)
	// Withdraw stops hand-overs to the worker, and waits until the engine has made the last one.
	Withdraw(ctx context.Context)
	// Leave ends the session. The runs and entities of the worker go to other workers.
	Leave()
	// Lose does the same for a worker that has disappeared. The owner counts that for the calls
	// that the worker had. unseen are hand-overs that cannot have reached the worker.
	Lose(unseen []uint64)
}

// OwnerSide is the side of a node that owns runs and entities: workers of other nodes join it.
type OwnerSide struct {
	line   Carrier
	engine Workplace
	log    *slog.Logger

	mu        sync.Mutex
	ctx       context.Context //nolint:containedctx // of the incarnation; nil before Run
	closed    bool
	contracts map[model.NodeID]*contract
	// latest is the last session that each live node has begun. A frame of an earlier session is
	// late.
	latest  map[model.NodeID]model.RunID
	running sync.WaitGroup
}

// NewOwnerSide returns the side of an owner; Run operates it.
func NewOwnerSide(line Carrier, e Workplace, log *slog.Logger) *OwnerSide {
	return &OwnerSide{line: line, engine: e, log: log, contracts: map[model.NodeID]*contract{}, latest: map[model.NodeID]model.RunID{}}
}

// contract is the session with one host.
type contract struct {
	*exchange

	owner *OwnerSide
	roles map[uint64]role // only the receiving goroutine and close use it
	// stopping says that the host has announced its end. The lock of the owner guards it.
	stopping bool
}

// role is one worker of a host.
type role interface {
	take(ctx context.Context, item *pb.WorkerItem) error
	grant(n int)
	membership() Membership
	readHeld(j *pb.Join) ([]model.HeldRun, error)
}

// Run serves until ctx ends. Then it ends all sessions, and waits until they have ended.
func (o *OwnerSide) Run(ctx context.Context) {
	o.mu.Lock()
	o.ctx = ctx
	o.mu.Unlock()
	<-ctx.Done()
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.running.Wait()
}

// SetAlive receives the nodes that are alive, and which of them are about to stop. It removes the
// workers of all other nodes.
func (o *OwnerSide) SetAlive(state func(model.NodeID) (alive, stopping bool)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for node, c := range o.contracts {
		alive, stopping := state(node)
		c.stopping = c.stopping || stopping
		if !alive {
			c.end(errGone)
		}
	}
	maps.DeleteFunc(o.latest, func(node model.NodeID, _ model.RunID) bool {
		alive, _ := state(node)
		return !alive
	})
}

// LoseNode handles the loss of the connection to a node. The frame in flight may be lost with the
// connection, so the contract soon sends it again.
func (o *OwnerSide) LoseNode(node model.NodeID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c := o.contracts[node]; c != nil {
		ring(c.again)
	}
}

// hear receives a frame of a host. A first frame starts a session, and ends the session before it.
// The ids of the sessions of a node grow. So a late copy of the first frame of an old session
// starts no session.
func (o *OwnerSide) hear(from model.NodeID, f *frame, answer func([]byte)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c := o.contracts[from]
	switch {
	case c != nil && c.id == f.Session && !c.isOver():
	case f.Number != 1 || f.Session.Compare(o.latest[from]) <= 0:
		answer([]byte{unknown})
		return
	case o.ctx == nil || o.closed:
		return // the host tries again, or sees that the node is gone
	default:
		before := c
		if before != nil {
			before.end(errAnother)
		}
		c = &contract{exchange: newExchange(o.line, from, f.Session, byOwner), owner: o, roles: map[uint64]role{}}
		c.take, c.ended = c.receive, c.close
		o.contracts[from], o.latest[from] = c, f.Session
		ctx := o.ctx
		o.running.Go(func() { c.run(ctx) })
	}
	c.hear(f, answer)
}

// close takes back all runs and calls from the workers of a host. If the host has died, so have its
// workers. A host that stops tells its workers to leave, but this message may be lost.
func (c *contract) close(why error) {
	c.owner.log.Info("workers of another node are gone", "node", c.to.String(), "workers", len(c.roles), "reason", why.Error())
	c.owner.mu.Lock()
	died := errors.Is(why, errGone) && !c.stopping
	c.owner.mu.Unlock()
	unsent := c.unsent()
	for id, r := range c.roles {
		if died {
			r.membership().Lose(unsent[id])
		} else {
			r.membership().Leave()
		}
	}
	c.owner.mu.Lock()
	defer c.owner.mu.Unlock()
	if c.owner.contracts[c.to] == c {
		delete(c.owner.contracts, c.to)
	}
}

// unsent returns the hand-overs of calls that this node has never sent to the host, by worker. A
// host that dies is noticed when its lease has expired, and until then the owner may hand over many
// calls. A hand-over that takes several parcels counts as sent.
func (c *contract) unsent() map[uint64][]uint64 {
	c.mu.Lock()
	parcels := c.out.Unsent()
	c.mu.Unlock()
	all, part := map[uint64][]uint64{}, false
	for i := range parcels {
		p := &parcels[i]
		whole := !part && !p.More
		if part = p.More; p.Kind != toWorker || !whole {
			continue
		}
		item, err := unpack(p, &pb.ServerItem{})
		if o := item.GetOperations(); err == nil && o != nil {
			all[p.Role] = append(all[p.Role], o.GetGeneration())
		}
	}
	return all
}

// receive takes a parcel of the host.
func (c *contract) receive(ctx context.Context, p *parcel) error {
	r := c.roles[p.Role]
	switch {
	case p.Kind == joinWorkflows || p.Kind == joinEntities:
		if r != nil || p.Tenant == "" {
			return fault.New(fault.Invalid, "worker %d joins twice, or without a tenant", p.Role)
		}
		return c.join(p)
	case r == nil:
		return nil // the worker has left
	}

	switch p.Kind {
	case holds:
		j, err := unpack(p, &pb.Join{})
		if err != nil {
			return err
		}
		held, err := r.readHeld(j)
		if err == nil {
			r.membership().Hold(held)
		}
		return err
	case withdraw:
		r.membership().Withdraw(ctx)
		c.post(parcel{Kind: withdrawn, Role: p.Role})
	case leave:
		delete(c.roles, p.Role)
		if p.Died {
			r.membership().Lose(p.Unseen)
		} else {
			r.membership().Leave()
		}
	case granted:
		r.grant(p.N)
	case fromWorker:
		item, err := unpack(p, &pb.WorkerItem{})
		if err != nil {
			return err
		}
		return r.take(ctx, item)
	default: // of a newer build
	}
	return nil
}

// join adds a worker of the host.
func (c *contract) join(p *parcel) error {
	j, err := unpack(p, &pb.Join{})
	if err != nil {
		return err
	}
	credit := c.newCredit(p.Role, int(j.GetSlots()))
	if p.Kind == joinEntities {
		r := &entityRole{c: c, id: p.Role, tenant: p.Tenant, credit: credit}
		r.session = c.owner.engine.JoinEntities(c.to, r, wire.ReadEntityJoin(p.Tenant, j), credit)
		c.roles[p.Role] = r
		return nil
	}

	offer, err := wire.ReadWorkflowJoin(p.Tenant, j)
	if err != nil {
		return err
	}
	r := &workflowRole{c: c, id: p.Role, tenant: p.Tenant, credit: credit}
	r.session = c.owner.engine.Join(c.to, r, offer, credit)
	c.roles[p.Role] = r
	return nil
}

// workflowRole is a workflow worker of another node.
type workflowRole struct {
	c       *contract
	id      uint64
	tenant  string
	session RunSession
	credit  *Credit
}

func (r *workflowRole) membership() Membership { return r.session }
func (r *workflowRole) grant(n int)            { r.credit.grant(n) }

func (r *workflowRole) readHeld(j *pb.Join) ([]model.HeldRun, error) {
	o, err := wire.ReadWorkflowJoin(r.tenant, j)
	return o.Held, err
}

func (r *workflowRole) post(item *pb.ServerItem) {
	r.c.post(parcel{Kind: toWorker, Role: r.id, Body: pack(item)})
}

// Activate hands a run over.
func (r *workflowRole) Activate(a *model.Activation) {
	m := wire.Activation(a)
	m.Events = wire.Events(a.Events)
	r.post(&pb.ServerItem{Item: &pb.ServerItem_Activation{Activation: m}})
}

// Deliver delivers the next events of a run.
func (r *workflowRole) Deliver(run model.RunID, generation uint64, events []model.Event) {
	r.post(&pb.ServerItem{Item: &pb.ServerItem_Deliver{Deliver: &pb.Deliver{Run: wire.Run(run), Generation: generation, Events: wire.Events(events)}}})
}

// Retry tells the worker that the back-off of a step is over.
func (r *workflowRole) Retry(run model.RunID, generation uint64, id string) {
	r.post(&pb.ServerItem{Item: &pb.ServerItem_RetryStep{RetryStep: &pb.RetryStep{Run: wire.Run(run), Generation: generation, Id: id}}})
}

// Evict takes back a run.
func (r *workflowRole) Evict(run model.RunID, generation uint64, reason string) {
	r.post(&pb.ServerItem{Item: &pb.ServerItem_Evict{Evict: evicted(run, generation, reason)}})
}

// Lose takes back a run that gets another owner. The worker continues the bodies of steps that it
// runs.
func (r *workflowRole) Lose(run model.RunID, generation uint64) {
	r.c.post(parcel{Kind: lose, Role: r.id, Body: pack(evicted(run, generation, "the run has another owner"))})
}

func evicted(run model.RunID, generation uint64, reason string) *pb.Evict {
	return &pb.Evict{Run: wire.Run(run), Generation: generation, Reason: model.Cut(reason, 1000)}
}

// Query sends a query to the code of a run.
func (r *workflowRole) Query(run model.RunID, generation uint64, q model.Query) {
	r.post(&pb.ServerItem{Item: &pb.ServerItem_Query{Query: &pb.Query{
		Run: wire.Run(run), Generation: generation, Id: q.ID, Name: q.Name, Input: wire.Payload(q.Input),
	}}})
}

// Taken answers a turn that recorded no event.
func (r *workflowRole) Taken(run model.RunID, generation uint64) {
	r.post(&pb.ServerItem{Item: &pb.ServerItem_TurnTaken{TurnTaken: &pb.TurnTaken{Run: wire.Run(run), Generation: generation}}})
}

// Recall asks the code about a run that has ended.
func (r *workflowRole) Recall(a model.Address, run model.RunID, generation uint64, q model.Query) {
	r.post(&pb.ServerItem{Item: &pb.ServerItem_Recall{Recall: &pb.Recall{
		Address: wire.Address(a), Run: wire.Run(run), Generation: generation, Id: q.ID, Name: q.Name, Input: wire.Payload(q.Input),
	}}})
}

// take hands in a message of the worker. It blocks while the engine is full.
func (r *workflowRole) take(ctx context.Context, item *pb.WorkerItem) error {
	switch it := item.GetItem().(type) {
	case *pb.WorkerItem_Turn:
		t, err := wire.ReadTurn(it.Turn)
		if err != nil {
			return err
		}
		if err := r.session.Report(ctx, t); err != nil && ctx.Err() == nil {
			r.Evict(t.Run, t.Generation, "the owner did not take a turn: "+err.Error())
		}
	case *pb.WorkerItem_Release:
		run, err := wire.ReadRun(it.Release.GetRun())
		if err != nil {
			return err
		}
		waits, err := wire.ReadReasons(it.Release.GetWaits())
		if err != nil {
			return err
		}
		r.session.Release(run, it.Release.GetGeneration(), it.Release.GetSeen(), waits)

	case *pb.WorkerItem_QueryAnswer:
		a := it.QueryAnswer
		run, err := wire.ReadRun(a.GetRun())
		if err != nil {
			return err
		}
		r.session.Answer(run, a.GetGeneration(), a.GetId(), wire.ReadPayload(a.GetOutput()), wire.ReadFailure(a.GetFailure()))
	default: // of a newer build
	}
	return nil
}

// entityRole is an entity worker of another node.
type entityRole struct {
	c       *contract
	id      uint64
	tenant  string
	session CallSession
	credit  *Credit
}

func (r *entityRole) membership() Membership { return r.session }
func (r *entityRole) grant(n int)            { r.credit.grant(n) }

func (r *entityRole) readHeld(j *pb.Join) ([]model.HeldRun, error) {
	return wire.ReadEntityJoin(r.tenant, j).Held, nil
}

// Operate hands calls over.
func (r *entityRole) Operate(o model.Operations) {
	r.c.post(parcel{Kind: toWorker, Role: r.id, Body: pack(&pb.ServerItem{Item: &pb.ServerItem_Operations{Operations: wire.Operations(&o)}})})
}

func (r *entityRole) take(ctx context.Context, item *pb.WorkerItem) error {
	if m := item.GetOperated(); m != nil {
		o, err := wire.ReadOperated(r.tenant, m)
		if err != nil {
			return err
		}
		_ = r.session.FinishCalls(ctx, o) // on an error the calls run again on the next worker
	}
	return nil
}
