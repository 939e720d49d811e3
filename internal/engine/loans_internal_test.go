package engine

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/core/limit"
	"github.com/perdure/perdure/internal/core/rule"
	"github.com/perdure/perdure/internal/engine/flow"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/engine/lending"
	"github.com/perdure/perdure/internal/engine/loan"
	"github.com/perdure/perdure/internal/engine/peer"
	"github.com/perdure/perdure/internal/engine/queue"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/memory"
)

// shared is a store that several nodes may open.
type shared struct{ store.Store }

func (s shared) Info() store.Info {
	i := s.Store.Info()
	i.Shared = true
	return i
}

// quiet is a line that loses every message.
type quiet struct{ peer.Line }

func (quiet) Tell(model.NodeID, []byte) {}

// borrower returns a node without lanes that knows other nodes with workers.
func borrower(t *testing.T, others ...model.NodeID) *incarnation {
	t.Helper()
	inc := &incarnation{eng: New(Config{Store: shared{memory.New(memory.Options{Shards: 16})}}), self: store.NodeInfo{ID: nodeID(1)}, epoch: 1, owner: make([]atomic.Int32, 16)}
	inc.validUntil.Store(math.MaxInt64)
	inc.board = newBoard(inc)
	inc.borrower, inc.lender = lending.NewBorrower(inc.self.ID, debts{loans{inc}}, inc.board), lending.NewLender(inc.self.ID, loans{inc})
	inc.borrower.Connect(quiet{})
	t.Cleanup(inc.board.close)
	alive := []string{inc.self.ID.String()}
	for _, id := range others {
		alive = append(alive, id.String())
	}
	inc.alive.Store(&alive)
	return inc
}

func nodeID(n byte) (id model.NodeID) {
	id[0] = n
	return id
}

func workItem(n int) queue.Item {
	it := queue.Item{Spec: &model.TaskSpec{Kind: "work", Queue: "default"}, Input: &model.Payload{}, Scheduled: 1, Visible: 1}
	it.Ref = model.TaskRef{Address: model.Address{Tenant: model.DefaultTenant, Type: "task:work", Key: fmt.Sprint(n)}, ID: model.TaskStep}
	it.Ref.Run[0] = byte(n)
	return it
}

func pollOf(seq uint64, name string, lend int) *peer.Poll {
	return &peer.Poll{Seq: seq, Workers: []peer.PollWorker{{
		Name: name, Tenants: []string{model.DefaultTenant}, Queues: []string{"default"}, Kinds: []string{"work"}, Lend: lend,
	}}}
}

// uses returns the limits that tasks hold or wait for.
func uses(b *board) (list []flow.LimitUse) {
	b.Look(func(k *flow.BoardGate, tasks *queue.Board) { list = k.Uses(tasks) })
	return list
}

// A task waits, and the board has not proposed it yet. A third node lends a slot for it. At the
// same moment a poll adds or removes a worker. The goroutine that handles the poll holds the lock
// of the borrower. It must not propose the task, because a proposal takes the same lock.
func TestWorkersComeAndGoWhileSlotsAreLent(t *testing.T) {
	t.Parallel()
	b, c := nodeID(2), nodeID(3)
	inc := borrower(t, b, c)
	answered := func([]byte) {}
	ended := make(chan struct{})

	go func() {
		defer close(ended)
		inc.board.Add(inc.eng.clock.now(), workItem(1))
		// this poll stays open, because a claim is being committed
		inc.borrower.HandlePoll(c, pollOf(1, "of c", 3), answered)
		inc.board.Add(inc.eng.clock.now(), workItem(2))
		inc.borrower.HandlePoll(b, pollOf(1, "of b", 0), answered) // a worker joins
		inc.board.Add(inc.eng.clock.now(), workItem(3))
		inc.borrower.HandlePoll(b, &peer.Poll{Seq: 2}, answered) // and leaves
	}()

	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		t.Fatal("the poll of a node does not end")
	}

	if s := inc.board.stats(); len(s.Queues) != 1 || s.Queues[0].Claimed != 3 {
		t.Errorf("%+v, want 3 claims on the slots of c", s)
	}
}

// The run of a claim moves while the answer that hands the claim to another node is in flight. Only
// that node can say whether the claim has arrived. Until it does, the claim keeps its permit.
func TestClaimThatMayHaveArrivedCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := nodeID(3)
		inc := borrower(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { inc.borrower.Run(ctx) })
		defer running.Wait()
		defer cancel()
		b, now := inc.board, inc.eng.clock.now
		set, err := rule.NewSet([]rule.Limit{{Name: "one", Queue: "*", Numbers: limit.Numbers{Concurrency: 1}}}, nil)
		if err != nil {
			t.Fatal(err)
		}

		b.Configure(now(), flow.Settings{Rules: set})
		held := func() (n int) {
			for _, u := range uses(b) {
				n += u.Held
			}
			return n
		}

		answers := 0
		answered := func([]byte) { answers++ }
		inc.borrower.HandlePoll(c, pollOf(1, "of c", 1), answered)
		it, s := workItem(1), b.ids["of c"]
		ref := model.ClaimRef{TaskRef: it.Ref, Claim: 1}
		b.Hold(now(), it, 1, s.id, b.names[s.id])
		s.execute([]model.Claim{{Ref: ref}})
		inc.borrower.HandlePoll(c, pollOf(2, "of c", 0), answered)
		if answers != 2 || held() != 1 {
			t.Fatalf("%d answers, %d claims count", answers, held())
		}

		b.Forget(now(), it.Ref)
		// Now nothing is in flight, and the borrower has dropped what it no longer needs.
		time.Sleep(30 * time.Second)
		b.LetGo()
		if held() != 1 {
			t.Error("a claim that may have arrived does not count")
		}
		p := pollOf(3, "of c", 0)
		p.Workers[0].Holds = []peer.Hold{{Ref: ref}}
		inc.borrower.HandlePoll(c, p, answered)
		if held() != 1 {
			t.Error("a claim that is executed does not count")
		}
		inc.borrower.HandlePoll(c, pollOf(4, "of c", 0), answered)
		if held() != 0 {
			t.Error("a claim without a worker counts")
		}
	})
}

// The time of a claim is over while a lent worker executes it. The claim keeps its permit until the
// node of the worker no longer lists it, although the owner has told the worker to stop.
func TestClaimOfALentWorkerCountsUntilItStops(t *testing.T) {
	t.Parallel()
	c := nodeID(3)
	inc := borrower(t, c)
	inc.eng.inc.Store(inc)
	b, now := inc.board, inc.eng.clock.now()
	set, err := rule.NewSet([]rule.Limit{{Name: "one", Queue: "*", Numbers: limit.Numbers{Concurrency: 1}}}, nil)
	if err != nil {
		t.Fatal(err)
	}

	b.Configure(now, flow.Settings{Rules: set})
	it := workItem(1)
	ref := model.ClaimRef{TaskRef: it.Ref, Claim: 1}
	lists := func(seq uint64, holds ...peer.Hold) {
		p := pollOf(seq, "of c", 0)
		p.Workers[0].Holds = holds
		inc.borrower.HandlePoll(c, p, func([]byte) {})
	}
	held := func(want int) {
		t.Helper()
		n := 0
		for _, u := range uses(b) {
			n += u.Held
		}
		if n != want {
			t.Errorf("%d claims count, want %d", n, want)
		}
	}

	lists(1, peer.Hold{Ref: ref})
	s := b.ids["of c"]
	b.Hold(now, it, 1, s.id, b.names[s.id])
	b.Remove(now, it.Ref, queue.Failed)
	s.stop(ref, false)
	held(1)
	lists(2, peer.Hold{Ref: ref}) // the node sent this before it received the stop
	held(1)
	lists(3)
	held(0)
}

// The node that has made a claim dies, and the owner of the run counts the claim from then on. Then
// the run moves away from that owner. The owner still counts the claim as long as the worker
// executes it.
func TestClaimOfDeadMakerCountsOn(t *testing.T) {
	t.Parallel()
	maker, c := nodeID(2), nodeID(3)
	inc := borrower(t, maker, c)
	b, now := inc.board, inc.eng.clock.now()
	set, err := rule.NewSet([]rule.Limit{{Name: "one", Queue: "*", Numbers: limit.Numbers{Concurrency: 1}}}, nil)
	if err != nil {
		t.Fatal(err)
	}

	b.Configure(now, flow.Settings{Rules: set})
	it := workItem(1)
	ref := model.ClaimRef{TaskRef: it.Ref, Claim: 1}
	p := pollOf(1, "of c", 0)
	p.Workers[0].Holds = []peer.Hold{{Ref: ref}}
	inc.borrower.HandlePoll(c, p, func([]byte) {})
	b.Hold(now, it, 1, b.ids["of c"].id, workerName("of c", c, maker))
	if len(uses(b)) != 0 {
		t.Error("a claim counts that its maker counts")
	}
	b.Look(func(k *flow.BoardGate, tasks *queue.Board) { k.Inherit(now, map[string]bool{c.String(): true}, tasks) })

	for range 2 {
		if u := uses(b); len(u) != 1 || u[0].Held != 1 {
			t.Errorf("%+v, want one holder", u)
		}
		b.Forget(now, it.Ref)
	}

	inc.borrower.HandlePoll(c, pollOf(2, "of c", 0), func([]byte) {})
	if u := uses(b); len(u) != 0 {
		t.Errorf("%+v, want none", u)
	}
}

// A node whose lease may have ended sends nothing to nodes whose workers hold claims. Otherwise
// they would stop claims of the next owner.
func TestNoAnswerWithoutLease(t *testing.T) {
	t.Parallel()
	c := nodeID(3)
	inc := borrower(t, c)
	answers := 0
	inc.borrower.HandlePoll(c, pollOf(1, "of c", 1), func([]byte) { answers++ })
	inc.validUntil.Store(0)
	inc.borrower.HandlePoll(c, pollOf(2, "of c", 1), func([]byte) { answers++ })
	if answers != 1 {
		t.Errorf("%d answers, want one", answers)
	}
	inc.validUntil.Store(math.MaxInt64)
	inc.borrower.HandlePoll(c, pollOf(3, "of c", 1), func([]byte) { answers++ })
	if answers != 2 {
		t.Errorf("%d answers, want two", answers)
	}
}

// laterLane is a lane that has no room for reports.
type laterLane struct {
	loan.ClaimLane

	reports int
}

func (l *laterLane) Report(*model.TaskReport, queue.WorkerID) { l.reports++ }

// laterOwner owns every run, in one lane.
type laterOwner struct {
	debts

	lane *laterLane
}

func (o laterOwner) Lane(model.ClaimRef) loan.ClaimLane { return o.lane }

// The lane of a run has no room for the report of a worker that another node lends. That node
// repeats the report with each poll, so that the lane gets the report again.
func TestReportOfALentWorkerIsMadeAgain(t *testing.T) {
	t.Parallel()
	c := nodeID(3)
	inc := borrower(t, c)
	full := &laterLane{}
	b := lending.NewBorrower(inc.self.ID, laterOwner{debts{loans{inc}}, full}, inc.board)
	ref := model.ClaimRef{TaskRef: workItem(1).Ref, Claim: 1}

	poll := func(seq uint64) {
		p := pollOf(seq, "of c", 0)
		p.Workers[0].Holds = []peer.Hold{{Ref: ref, Report: &model.TaskReport{Ref: ref}}}
		b.HandlePoll(c, p, func([]byte) {})
	}

	poll(1)
	poll(2)
	if full.reports != 1 {
		t.Fatalf("the lane hears of a report %d times that it has not settled", full.reports)
	}
	inc.board.ids["of c"].settleReport(ref, lane.ErrLater)
	if poll(3); full.reports != 2 {
		t.Errorf("the lane has heard of the report %d times, want once more after it had no room", full.reports)
	}
}

// A worker leaves while one of its reports is not settled and another node has one of its slots.
// When that node returns the slot, the worker must not come back to the board. Otherwise the board
// would wait for a claim that the worker does not have.
func TestWorkerThatLeftDoesNotComeBack(t *testing.T) {
	t.Parallel()
	inc := borrower(t)
	offer := model.TaskOffer{Name: "w", Tenants: []string{model.DefaultTenant}, Queues: []string{"default"}, Kinds: []string{"work"}, Slots: 1}
	s := inc.eng.taskSession(noWorker{}, offer, model.NodeID{})
	ref := model.ClaimRef{TaskRef: workItem(1).Ref, Claim: 1}

	b, own := inc.board, ownWorker{inc, s}
	b.join(s)
	if own.LendOut(1) != 1 {
		t.Fatal("no slot is lent")
	}
	s.reported[ref] = &model.TaskReport{Ref: ref}
	b.leave(s)
	own.Regain(1)
	own.Rejoin()
	if id, _ := b.Find(workerName("w", inc.self.ID, inc.self.ID), ref); id != 0 {
		t.Error("the board has a worker that left")
	}

	// The board of the next incarnation has the worker until its reports are settled.
	next := borrower(t)
	next.board.join(s)
	if _, has := next.board.Find(workerName("w", inc.self.ID, inc.self.ID), ref); !has {
		t.Error("the next board does not know that the worker has the claim")
	}
}
