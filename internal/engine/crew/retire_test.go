package crew

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// viewWith returns a view in which one node has the given code.
func viewWith(node model.NodeID, names ...string) *store.View {
	v := view(node)
	for _, n := range names {
		v.Members[0].Serves = append(v.Members[0].Serves, store.Served{Tenant: "default", Workflow: n})
	}
	return v
}

// A worker joins an owner that lacks its code. Soon the owner has the code itself. The worker first
// finishes what it has, then it leaves, and the nodes exchange nothing more. When the owner loses
// the code, the worker joins again.
func TestWorkerLeavesAnOwnerThatHasItsCode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o office
		worker := &hand{}
		hands := worker.hands()
		host, owner := nodeID(1), nodeID(2)
		var at place
		h, _ := o.add(t, host, nil, func() []Hands { return []Hands{hands} })
		o.add(t, owner, &at, func() []Hands { return nil })
		h.SetMembers(viewWith(owner, "other"))
		until(t, "the worker joins", func() bool { return at.only() != nil })
		g := at.only()
		run := model.RunID{9}
		g.worker.Activate(activation(run, 7))
		until(t, "the worker gets the run", func() bool { worker.mu.Lock(); defer worker.mu.Unlock(); return len(worker.activated) == 1 })

		for range 20 {
			h.SetMembers(viewWith(owner, "other", "order"))
			time.Sleep(time.Second)
		}
		if at.only() != g || len(worker.lost)+len(worker.evicted) > 0 {
			t.Fatalf("the worker lost its run: %v %v", worker.lost, worker.evicted)
		}

		g.worker.Evict(run, 7, "ended")
		until(t, "the worker leaves", func() bool {
			h.SetMembers(viewWith(owner, "other", "order"))
			return at.guests() == 0
		})
		time.Sleep(grace)
		before := o.asked()
		for range 60 {
			h.SetMembers(viewWith(owner, "other", "order"))
			time.Sleep(time.Second)
		}
		if n := o.asked() - before; n > 0 || len(worker.lost) > 0 {
			t.Errorf("idle nodes exchanged %d frames in a minute, and the worker lost %v", n, worker.lost)
		}

		h.SetMembers(viewWith(owner, "other"))
		until(t, "the worker joins again", func() bool { return at.only() != nil && at.only() != g })
	})
}

// The owner hands over a run while the worker is about to leave. The worker keeps the run until it
// has ended.
func TestRetiringWorkerGetsARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o office
		worker := &hand{}
		hands := worker.hands()
		host, owner := nodeID(1), nodeID(2)
		var at place
		h, _ := o.add(t, host, nil, func() []Hands { return []Hands{hands} })
		o.add(t, owner, &at, func() []Hands { return nil })
		h.SetMembers(viewWith(owner))
		until(t, "the worker joins", func() bool { return at.only() != nil })
		g := at.only()
		run := model.RunID{9}
		at.mu.Lock()
		at.withdraw = func(g *guest) { g.worker.Activate(activation(run, 7)) }
		at.mu.Unlock()

		for range 20 {
			h.SetMembers(viewWith(owner, "order"))
			time.Sleep(time.Second)
		}
		if at.only() != g || len(worker.activated) != 1 || len(worker.lost) > 0 {
			t.Fatalf("the worker got %d runs and lost %v", len(worker.activated), worker.lost)
		}
		g.worker.Evict(run, 7, "ended")
		until(t, "the worker leaves", func() bool {
			h.SetMembers(viewWith(owner, "order"))
			return at.guests() == 0
		})
		if len(worker.evicted) != 1 || len(worker.lost) > 0 {
			t.Errorf("evicted %v, lost %v", worker.evicted, worker.lost)
		}
	})
}

// A process stops its only worker. The session that the worker had with another node ends too.
func TestSessionEndsWithItsLastWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o office
		hands := (&hand{}).hands()
		workers := []Hands{hands}
		host, owner := nodeID(1), nodeID(2)
		var at place
		h, _ := o.add(t, host, nil, func() []Hands { return workers })
		o.add(t, owner, &at, func() []Hands { return nil })
		h.SetMembers(viewWith(owner))
		until(t, "the worker joins", func() bool { return at.only() != nil })

		workers = nil
		h.Withdraw(t.Context(), hands)
		h.Leave(hands)
		until(t, "the worker leaves", func() bool { return at.guests() == 0 })
		time.Sleep(grace)
		before := o.asked()
		time.Sleep(time.Minute)
		if n := o.asked() - before; n > 0 {
			t.Errorf("idle nodes exchanged %d frames in a minute", n)
		}
	})
}

// calls is a worker of entities that notes which generations it got.
type calls struct{ got []uint64 }

func (c *calls) Operate(o model.Operations) { c.got = append(c.got, o.Generation) }

// A worker of entities is busy until the results of its calls are on their way to the owner.
func TestEntityWorkerIsBusyUntilItsResultsAreOnTheWay(t *testing.T) {
	t.Parallel()
	worker := &calls{}
	none := func(model.RunID, uint64) {}
	hands := NewEntityHands(worker, model.EntityOffer{Tenant: "default"}, HandsConfig{Hold: none, Release: none, Slots: func() SharedSlots { return nil }})
	d := &deal{exchange: newExchange(nil, nodeID(2), model.RunID{1}, bySender)}
	o := &outlet{deal: d, hands: hands}
	entity := model.Address{Tenant: "default", Type: "account", Key: "a"}
	hands.accept(&handOver{by: o, entity: entity, generation: 7}, model.Operations{Entity: entity})
	if !hands.isBusyFor(o) {
		t.Fatal("the worker has calls and is not busy")
	}

	full, cancel := context.WithCancel(t.Context())
	for range mostParcels {
		d.post(parcel{Kind: fromWorker})
	}
	finished := make(chan error)
	go func() { finished <- hands.FinishCalls(full, model.Operated{Entity: entity, Generation: worker.got[0]}) }()
	for d.waiters() == 0 {
		runtime.Gosched()
	}
	if !hands.isBusyFor(o) {
		t.Error("the results wait for room, and the worker is not busy")
	}
	cancel()
	if err := <-finished; err == nil {
		t.Error("the results were sent although there was no room")
	}
	if hands.isBusyFor(o) {
		t.Error("the worker has no calls and is busy")
	}
}

// The same holds for an owner that gets the results of calls which the last owner has lost.
func TestEntityWorkerIsBusyForTheNextOwner(t *testing.T) {
	t.Parallel()
	c := newCaller()
	d := &deal{exchange: newExchange(nil, nodeID(2), model.RunID{1}, bySender)}
	next := &outlet{deal: d, hands: c.hands}
	c.hands.Operate(callsOf("entity:e", 7, 1))
	c.hands.LoseOwn()
	work := callsOf("entity:e", 70, 1)
	c.hands.accept(&handOver{by: next, entity: work.Entity, generation: 70}, work)

	full, cancel := context.WithCancel(t.Context())
	for range mostParcels {
		d.post(parcel{Kind: fromWorker})
	}
	finished := make(chan error)
	go func() { finished <- c.hands.FinishCalls(full, model.Operated{Entity: work.Entity, Generation: 7}) }()
	for d.waiters() == 0 {
		runtime.Gosched()
	}
	if !c.hands.isBusyFor(next) {
		t.Error("the results wait for room, and the worker is not busy")
	}
	cancel()
	if err := <-finished; err == nil || c.hands.isBusyFor(next) {
		t.Errorf("the worker is busy, or the results were sent: %v", err)
	}
}

// waiters returns 1 if a caller waits for room, else 0.
func (x *exchange) waiters() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.room == nil {
		return 0
	}
	return 1
}
