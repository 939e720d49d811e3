package lending

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var (
	ownerID, hostID = model.NodeID{1}, model.NodeID{2}
	want            = queue.Want{Tenant: model.DefaultTenant, Queue: "default", Kind: "work"}
	offer           = model.TaskOffer{Name: "w", Tenants: []string{want.Tenant}, Queues: []string{want.Queue}, Kinds: []string{want.Kind}, Slots: 1}
	claim           = model.ClaimRef{TaskRef: model.TaskRef{Address: model.Address{Tenant: want.Tenant, Type: "task:work", Key: "k"}, ID: model.TaskStep}, Claim: 1}
)

// lent is the worker of the host in a poll, with one slot for the polled owner.
var lent = []peer.PollWorker{{Name: offer.Name, Tenants: offer.Tenants, Queues: offer.Queues, Kinds: offer.Kinds, Lend: 1}}

// owner is a node with one task and no worker for it. It is board, lane and session of the borrowed
// worker in one.
type owner struct {
	t        *testing.T
	borrower *Borrower
	alone    bool // only the test calls the borrower

	mu        sync.Mutex
	waits     bool // the task waits for a worker
	held      bool // the claim is held
	worker    *LockedWorker
	reports   int
	given     []model.ClaimRef
	proposals int
}

func newOwner(t *testing.T) *owner {
	o := &owner{t: t, waits: true}
	o.borrower = NewBorrower(ownerID, o, o)
	return o
}

// countProposal counts proposals. It returns false if a proposal would wait for a lock that its
// caller holds.
func (o *owner) countProposal() bool {
	if o.alone {
		if !o.borrower.mu.TryLock() {
			o.t.Error("something is proposed with the lock of the borrower held")
			return false
		}
		o.borrower.mu.Unlock()
	}
	o.mu.Lock()
	o.proposals++
	o.mu.Unlock()
	return true
}

func (o *owner) Propose() { o.countProposal() }
func (o *owner) LetGo()   { o.countProposal() }

func (o *owner) Lend(slots []loan.Slot) {
	if !o.countProposal() {
		return
	}
	o.mu.Lock()
	begins := o.waits && len(slots) > 0 && slots[0].Count > 0
	if begins {
		o.waits, o.held = false, true
	}
	w := o.worker
	o.mu.Unlock()

	if begins {
		w.Expect(1)
		if !o.alone {
			// as its lane does, once the claim is committed
			go w.Execute([]model.Claim{{Ref: claim}})
		}
	}
}

func (o *owner) UnservedWants() []queue.Want {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waits {
		return []queue.Want{want}
	}
	return nil
}

func (o *owner) Unlend([]queue.WorkerID) []queue.Want { return o.UnservedWants() }

func (o *owner) HasClaim(queue.WorkerID, model.ClaimRef) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.held
}

func (*owner) Beat(queue.WorkerID, model.ClaimRef) bool { return true }
func (*owner) KeptFor() map[model.NodeID]bool           { return nil }

func (*owner) Alive(model.NodeID) bool                                { return true }
func (*owner) Serving() bool                                          { return true }
func (*owner) LookAround()                                            {}
func (o *owner) Lane(model.ClaimRef) loan.ClaimLane                   { return o }
func (*owner) Attach(_ model.ClaimRef, _ queue.WorkerID)              {}
func (*owner) Progress(model.ClaimRef, queue.WorkerID, model.Payload) {}
func (*owner) Lose(model.ClaimRef)                                    {}

func (o *owner) GiveBack(refs []model.ClaimRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.given = append(o.given, refs...)
}

func (o *owner) Report(r *model.TaskReport, _ queue.WorkerID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reports++
	o.held = false
	go o.worker.Settle(r.Ref, nil)
}

func (o *owner) Hire(w *LockedWorker, _ model.TaskOffer, _ model.NodeID) loan.Hired {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.worker = w
	return o
}

// poll makes the host poll. It returns nil if there is no answer yet.
func (o *owner) poll(p *peer.Poll) (answer *peer.PollReply) {
	o.borrower.HandlePoll(hostID, p, func(body []byte) {
		var err error
		if answer, err = peer.Decode[peer.PollReply](body); err != nil {
			o.t.Error(err)
		}
	})
	return answer
}

func (*owner) ID() queue.WorkerID                                    { return 1 }
func (*owner) SetHeld(_, _ map[model.ClaimRef]bool) []model.ClaimRef { return nil }
func (*owner) DropClaim(model.ClaimRef)                              {}
func (*owner) Dismiss()                                              {}

// host is a node with one worker. The worker has one slot, and ends a claim after a second.
type host struct {
	lender *Lender

	mu             sync.Mutex
	lent           int
	held, reported bool
	told           bool // the owner has received the report
	taken, settled int
}

func newHost() *host {
	h := &host{}
	h.lender = NewLender(hostID, h)
	return h
}

func (*host) Alive(model.NodeID) bool            { return true }
func (*host) LookAround()                        {}
func (*host) GiveBack([]model.ClaimRef)          {}
func (*host) Lane(model.ClaimRef) loan.ClaimLane { return nil }
func (h *host) Workers() []loan.Own              { return []loan.Own{h} }
func (*host) Offer() *model.TaskOffer            { return &offer }
func (*host) Rejoin()                            {}
func (*host) Deliver(model.ClaimRef)             {}
func (*host) Stop(model.ClaimRef, bool)          {}

func (h *host) Idle() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held {
		return 0
	}
	return 1 - h.lent
}

func (h *host) LendOut(most int) int {
	n := min(h.Idle(), most)
	h.Regain(-n)
	return n
}

func (h *host) Regain(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lent -= n
}

func (h *host) Each(do func(model.ClaimRef, bool)) {
	h.mu.Lock()
	any, fresh := h.held || h.reported, h.reported && !h.told
	h.mu.Unlock()
	if any {
		do(claim, fresh)
	}
}

func (h *host) List(model.NodeID, func(model.ClaimRef) bool, func(model.ClaimRef) bool, *int) (holds []peer.Hold, sent map[model.ClaimRef]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.held:
		holds = []peer.Hold{{Ref: claim}}
	case h.reported:
		holds, sent = []peer.Hold{{Ref: claim, Report: &model.TaskReport{Ref: claim}}}, map[model.ClaimRef]uint64{claim: 0}
	}
	return holds, sent
}

func (h *host) DropSentNews(sent map[model.ClaimRef]uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = h.told || len(sent) > 0
}

func (h *host) Has(model.ClaimRef) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held || h.reported
}

func (h *host) Take(claims []model.Claim, _ model.NodeID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken += len(claims)
	h.held = true
	time.AfterFunc(time.Second, func() {
		h.mu.Lock()
		h.held, h.reported = false, true
		h.mu.Unlock()
		h.lender.Wake()
	})
	return true
}

func (h *host) Settle(model.ClaimRef, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reported {
		h.settled++
	}
	h.reported = false
}

// line connects owner and host. It loses answers, and duplicates some messages.
type line struct {
	o     *owner
	h     *host
	lose  func(a *peer.PollReply) bool
	twice bool
}

func (l *line) Call(ctx context.Context, _ model.NodeID, question []byte) ([]byte, error) {
	answers := make(chan []byte, 1)
	PeerHandler{Borrower: l.o.borrower}.HandleQuestion(hostID, question, func(body []byte) {
		if a, err := peer.Decode[peer.PollReply](body); err != nil || !l.lose(a) {
			answers <- body
		}
	})
	if l.twice {
		PeerHandler{Borrower: l.o.borrower}.HandleQuestion(hostID, question, func([]byte) { l.o.t.Error("the same poll is answered twice") })
	}
	select {
	case body := <-answers:
		return body, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *line) Tell(_ model.NodeID, word []byte) {
	PeerHandler{Lender: l.h.lender}.HandleNote(ownerID, word)
}

// A task goes to a worker of another node and its report comes back, although each answer is lost
// the first time and each poll arrives twice. Afterwards the slot belongs to the worker again.
func TestTaskGoesAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, h := newOwner(t), newHost()
		var mu sync.Mutex
		var lost []string

		l := &line{o: o, h: h, twice: true, lose: func(a *peer.PollReply) bool {
			mu.Lock()
			defer mu.Unlock()
			for _, e := range a.Entries {
				what := "claim"
				if e.Settled != nil {
					what = "settled"
				}
				if !slices.Contains(lost, what) {
					lost = append(lost, what)
					return true
				}
			}
			return false
		}}

		o.borrower.Connect(l)
		h.lender.Connect(l)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { o.borrower.Run(ctx) })
		running.Go(func() { h.lender.Run(ctx) })
		v := &store.View{Owners: []store.ShardOwner{{Node: ownerID}}, Members: make([]store.Member, 2)}
		v.Members[0].ID, v.Members[1].ID = ownerID, hostID
		v.Members[1].Serves = []store.Served{{Tenant: want.Tenant, Worker: offer.Name, Queues: offer.Queues, Activities: offer.Kinds}}
		o.borrower.SetMembers(v)
		h.lender.SetMembers(v)
		time.Sleep(time.Minute)
		cancel()
		running.Wait()
		// The owner may get the report more than once: a real lane recognizes a repeated report.
		if h.taken != 1 || o.reports == 0 || h.settled != 1 {
			t.Errorf("the task was handed over %d times, reported %d times and settled %d times", h.taken, o.reports, h.settled)
		}
		if len(lost) != 2 {
			t.Errorf("lost: %v, want an answer with the claim and one that settles it", lost)
		}
		if h.lent != 0 || len(o.given) > 0 || o.proposals == 0 {
			t.Errorf("%d slots are still lent, %v was given back, %d times something was proposed", h.lent, o.given, o.proposals)
		}
	})
}

// The borrower counts a proposal to a borrowed worker under its lock. So no goroutine may propose
// while it holds that lock: not when a worker joins, leaves, or dies with its node.
func TestNothingIsProposedUnderTheLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // no timer fires before the test is over
		o := newOwner(t)
		o.alone = true
		if o.poll(&peer.Poll{Seq: 1, Workers: lent}) != nil {
			t.Error("the poll is answered while a claim is on its way")
		}
		o.worker.Execute([]model.Claim{{Ref: claim}})
		if a := o.poll(&peer.Poll{Seq: 2, Workers: lent}); a == nil || len(a.Entries) != 1 || a.Entries[0].Claim == nil {
			t.Errorf("%+v, want the claim", a)
		}
		if o.poll(&peer.Poll{Seq: 3}) == nil {
			t.Error("a poll without workers is not answered")
		}
		o.borrower.SetMembers(&store.View{})
		if o.proposals != 3*2+1 {
			t.Errorf("%d proposals, want two for each poll and one when the node is gone", o.proposals)
		}
	})
}

// The owner has sent a claim to a node, and the node does not list the claim. So the node does not
// execute it, and the owner gives the claim back. The owner does not give the claim back while the
// claim may be in flight to the node.
func TestClaimThatIsNotListedIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOwner(t)
		o.alone = true
		o.poll(&peer.Poll{Seq: 1, Workers: lent})
		o.worker.Execute([]model.Claim{{Ref: claim}})
		a := o.poll(&peer.Poll{Seq: 2, Workers: lent})
		if a == nil || len(a.Entries) != 1 || len(o.given) > 0 {
			t.Fatalf("the answer is %+v, want the claim; %v is given back, want nothing", a, o.given)
		}
		o.poll(&peer.Poll{Seq: 3, Stream: a.Stream, Seen: a.Entries[0].N, Workers: lent})
		if !slices.Equal(o.given, []model.ClaimRef{claim}) {
			t.Errorf("%v is given back, want the claim", o.given)
		}
	})
}
