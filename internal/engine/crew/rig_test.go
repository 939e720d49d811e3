package crew

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// fate is what happens to a question between nodes.
type fate int

const (
	arrives fate = iota
	lostQuestion
	lostAnswer
	arrivesTwice
)

// office is a network between nodes in memory.
type office struct {
	mu    sync.Mutex
	nodes map[model.NodeID]Dispatcher
	fate  func(to model.NodeID, question []byte) fate // nil lets everything arrive
	kept  [][]byte                                    // all questions that were asked
	// A node that has read which nodes are alive calls delay before it uses the view. delay may be
	// nil.
	delay func()
	reads int          // how often nodes have read the view, which is the time in the view
	owner model.NodeID // of the only shard
	old   bool         // the store cannot read the owner
}

// desk is one node in an office.
type desk struct {
	*office

	from model.NodeID
}

// Call implements Carrier.
func (d desk) Call(ctx context.Context, to model.NodeID, question []byte) ([]byte, error) {
	d.mu.Lock()
	n, ok := d.nodes[to]
	what := arrives
	if d.fate != nil {
		what = d.fate(to, question)
	}
	d.kept = append(d.kept, question)
	d.mu.Unlock()

	answered := make(chan []byte, 2)
	if ok && what != lostQuestion {
		n.Handle(d.from, slices.Clone(question), func(b []byte) { answered <- b })
	}
	if ok && what == arrivesTwice {
		n.Handle(d.from, slices.Clone(question), func(b []byte) { answered <- b })
	}
	heard := answered
	if what == lostAnswer {
		heard = nil
	}
	select {
	case b := <-heard:
		return b, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// asked returns how many questions were asked.
func (o *office) asked() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.kept)
}

// members returns the nodes that have not ended.
func (o *office) members(context.Context) (store.View, error) {
	o.mu.Lock()
	v := *view(slices.Collect(maps.Keys(o.nodes))...)
	o.reads++
	v.Now = model.Time(o.reads)
	v.Owners = []store.ShardOwner{{Node: o.owner, Old: o.old}}
	o.mu.Unlock()
	if o.delay != nil {
		o.delay()
	}
	return v, nil
}

// add adds a node that is both a host and an owner. The returned function ends the node.
func (o *office) add(t *testing.T, id model.NodeID, work Workplace, workers func() []Hands) (h *HostSide, end func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	d := Dispatcher{Owner: NewOwnerSide(desk{o, id}, work, log), Host: NewHostSide(HostConfig{Self: id, Line: desk{o, id}, Log: log, Workers: workers, Members: o.members}), Log: log}
	o.mu.Lock()
	if o.nodes == nil {
		o.nodes = map[model.NodeID]Dispatcher{}
	}
	o.nodes[id] = d
	o.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { d.Owner.Run(ctx) })
	wg.Go(func() { d.Host.Run(ctx) })
	end = func() {
		o.mu.Lock()
		delete(o.nodes, id)
		o.mu.Unlock()
		cancel()
		wg.Wait()
	}
	t.Cleanup(end)
	return d.Host, end
}

// view returns the members as a node sees them: the given nodes are alive, and each has other code.
func view(nodes ...model.NodeID) *store.View {
	v := &store.View{Now: 1}
	for _, n := range nodes {
		v.Members = append(v.Members, store.Member{
			NodeInfo: store.NodeInfo{ID: n}, Expires: 1000, Serves: []store.Served{{Tenant: "default", Workflow: "code-of-" + n.String()}},
		})
	}
	return v
}

// place is the engine of an owner. It notes what workers of other nodes say.
type place struct {
	mu    sync.Mutex
	runs  map[*guest]bool
	turns []model.Turn
	held  []model.HeldRun
	came  int
	// The place calls withdraw before it stops hand-overs to a worker. It may be nil.
	withdraw func(g *guest)
	// callers are the workers of entities that have joined, and ends says how they have left.
	callers []CallWorker
	ends    []string
	// operated has what the workers of entities have reported.
	operated []model.Operated
}

// guest is a worker of another node at a place.
type guest struct {
	p      *place
	worker RunWorker
}

func (p *place) Join(_ model.NodeID, w RunWorker, o model.Offer, _ *Credit) RunSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := &guest{p, w}
	if p.runs == nil {
		p.runs = map[*guest]bool{}
	}
	p.runs[g] = true
	p.came++
	p.held = append(p.held, o.Held...)
	return g
}

func (p *place) JoinEntities(_ model.NodeID, w CallWorker, o model.EntityOffer, _ *Credit) CallSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, o.Held...)
	p.callers = append(p.callers, w)
	return callGuest{&guest{p: p}}
}

// guests returns how many workers of other nodes are at the place.
func (p *place) guests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.runs)
}

// only returns the only worker at the place, or nil if there is not exactly one.
func (p *place) only() *guest {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.runs) != 1 {
		return nil
	}
	for g := range p.runs {
		return g
	}
	return nil
}

func (g *guest) Report(_ context.Context, t model.Turn) error {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	g.p.turns = append(g.p.turns, t)
	return nil
}
func (g *guest) Release(model.RunID, uint64, int64, []model.Reason) {}

// Answer implements RunSession.
//
//arch:parameters the protocol of workers
func (g *guest) Answer(model.RunID, uint64, uint64, model.Payload, *model.Failure) {}

func (g *guest) Hold(held []model.HeldRun) {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	g.p.held = append(g.p.held, held...)
}

func (g *guest) Withdraw(context.Context) {
	g.p.mu.Lock()
	before := g.p.withdraw
	g.p.mu.Unlock()
	if before != nil {
		before(g)
	}
}

func (g *guest) Leave() {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	delete(g.p.runs, g)
}

func (g *guest) Lose([]uint64) { g.Leave() }

// callGuest is a worker of entities of another node at a place.
type callGuest struct{ *guest }

func (g callGuest) FinishCalls(_ context.Context, r model.Operated) error {
	g.p.mu.Lock()
	defer g.p.mu.Unlock()
	g.p.operated = append(g.p.operated, r)
	return nil
}

func (g callGuest) Leave() { g.p.noteEnd("left") }

func (g callGuest) Lose(unseen []uint64) { g.p.noteEnd(fmt.Sprint("lost ", unseen)) }

func (p *place) noteEnd(how string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ends = append(p.ends, how)
}

// hand is a worker of workflows. It notes what owners say.
type hand struct {
	mu        sync.Mutex
	activated []model.Activation
	evicted   []model.RunID
	lost      []model.RunID
	events    int
}

func (h *hand) Activate(a *model.Activation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.activated = append(h.activated, *a)
}

func (h *hand) Deliver(_ model.RunID, _ uint64, events []model.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events += len(events)
}

func (h *hand) Evict(run model.RunID, _ uint64, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.evicted = append(h.evicted, run)
}

func (h *hand) Lose(run model.RunID, _ uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = append(h.lost, run)
}

func (h *hand) Retry(model.RunID, uint64, string)                      {}
func (h *hand) Query(model.RunID, uint64, model.Query)                 {}
func (h *hand) Taken(model.RunID, uint64)                              {}
func (h *hand) Recall(model.Address, model.RunID, uint64, model.Query) {}
func (h *hand) hands() *WorkflowHands {
	none := func(model.RunID, uint64) {}
	return NewWorkflowHands(h, model.Offer{Tenant: "default", Workflows: []string{"order"}}, HandsConfig{Hold: none, Release: none, Slots: func() SharedSlots { return nil }})
}

// nodeID returns the id of a node of the tests.
func nodeID(n byte) model.NodeID { return model.NodeID{n} }

// until waits, in virtual time, until fact returns true.
func until(t *testing.T, what string, fact func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * grace); !fact(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}
