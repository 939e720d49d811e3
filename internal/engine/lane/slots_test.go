package lane_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
)

// slots are the slots of a worker of the rig.
type slots struct {
	limit, used int
	kept        int  // how many slots were taken although none was free
	waits       bool // the lane found no free slot
	woken       bool // the lane must learn that a slot is free
	negative    bool
}

func (s *slots) Take(int) bool {
	if s.used >= s.limit {
		s.waits = true
		return false
	}
	s.used++
	return true
}

func (s *slots) Keep() {
	s.used++
	s.kept++
}

func (s *slots) Free() {
	s.used--
	s.negative = s.negative || s.used < 0
	if s.waits && s.used < s.limit {
		s.waits, s.woken = false, true
	}
}

func (s *slots) Limit() int { return s.limit }

// slotsOf returns the slots of a worker that joins.
func (r *rig) slotsOf(w lane.WorkerID) lane.Capacity {
	if r.limit == 0 {
		return nil
	}
	if r.slots == nil {
		r.slots = map[lane.WorkerID]*slots{}
	}
	r.slots[w] = &slots{limit: r.limit}
	return r.slots[w]
}

// handOut tells the lane which workers have a free slot again.
func (r *rig) handOut() {
	for again := true; again; {
		again = false
		for _, w := range slices.Sorted(maps.Keys(r.slots)) {
			if s := r.slots[w]; s.woken {
				s.woken, again = false, true
				r.l.HandOut(r.now, w)
				r.l.Flush(r.now)
			}
		}
	}
}

// wantFreeSlots checks that nothing takes a slot.
func (r *rig) wantFreeSlots() {
	r.t.Helper()
	for w, s := range r.slots {
		if s.used != 0 || s.negative {
			r.t.Errorf("%d slots of worker %d are taken (given back too often: %t)", s.used, w, s.negative)
		}
	}
}

// wantNoSlot checks that an execution or an entity waits for a slot, and that the reason says which
// workers are busy.
func (r *rig) wantNoSlot(a model.Address, says string) {
	r.t.Helper()
	why, ok := r.l.Explain(a)
	if !ok || len(why) == 0 || why[0].Code != model.WaitSlot || why[0].String() != says {
		r.t.Errorf("%s: explained as %v, want %q", a, why, says)
	}
}

// A worker gets at most as many runs as it has slots. A run that only waits takes no slot, so a
// workflow that waits for its child does not keep the child from running.
func TestSlotsForRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.limit = 2
	r.join(1)
	a, b, c, d := key("a"), key("b"), key("c"), key("d")
	for _, x := range []model.Address{a, b, c, d} {
		r.start(x, x)
		r.settle()
	}
	r.wantHolder(a, 1)
	r.wantHolder(b, 1)
	r.wantHolder(c, 0)
	r.wantHolder(d, 0)
	r.wantNoSlot(c, "waits for a free slot of a worker with the code of workflow wf: the only worker has 2")

	r.turn(a, model.Turn{Running: true, Waits: []model.Reason{{Code: model.WaitStep, Name: "body"}}})
	r.turn(b, waitingTurn())
	r.settle()
	r.wantHolder(b, 1) // the worker keeps the run in memory
	r.wantHolder(c, 1)
	r.wantHolder(d, 0)

	// A new event for a run in memory also waits for a slot, and for its turn.
	r.signal(b, "s", "signal")
	r.settle()
	r.wantAnswer("signal", "")
	r.wantHolder(b, 0)
	r.wantNoSlot(b, "waits for a free slot of a worker with the code of workflow wf: the only worker has 2")
	r.turn(c, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.wantHolder(d, 1)
	r.wantHolder(b, 0)

	// A worker with free slots gets the waiting runs, including a run that another worker holds and
	// that has a new event.
	r.join(2)
	r.settle()
	r.wantHolder(b, 2)
	r.turn(d, waitingTurn())
	r.turn(b, waitingTurn())
	r.settle()
	r.start(c, "again")
	for _, x := range []string{"e", "f"} {
		r.start(key(x), x)
		r.settle()
	}
	if got := r.slots[1].used + r.slots[2].used; got != 3 {
		t.Errorf("%d slots are taken, want 3", got)
	}

	for _, x := range []string{"a", "b", "d", "e", "f"} {
		if r.holder(key(x)) == 0 {
			t.Errorf("%s is held by no worker", x)
			continue
		}
		r.turn(key(x), model.Turn{Close: &model.Close{Status: model.Completed}})
		r.settle()
	}
	r.wantFreeSlots()
	for w, s := range r.slots {
		if s.kept != 0 {
			t.Errorf("worker %d got %d more than it has slots for", w, s.kept)
		}
	}
}

// A worker also needs a slot to repeat a step. If another worker gets the run, it finds that the
// back-off of the step is over.
func TestSlotForRetry(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.limit = 1
	r.join(1)
	a, b := key("a"), key("b")
	failed := model.Command{Kind: model.CommandRetry, Delay: time.Second, Event: model.Event{ID: "x", Attempt: 1}}
	r.startRun(a)
	r.turn(a, model.Turn{Commands: []model.Command{failed}, Waits: []model.Reason{{Code: model.WaitRetry, Name: "x"}}})
	r.settle()
	r.turn(a, model.Turn{Waits: []model.Reason{{Code: model.WaitRetry, Name: "x"}}})
	r.settle()
	r.startRun(b)
	r.wantHolder(b, 1)

	r.pass(2 * time.Second)
	r.wantHolder(a, 0)
	if r.slots[1].used != 1 {
		t.Errorf("%d slots are taken", r.slots[1].used)
	}
	r.turn(b, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.wantHolder(a, 1)
}

// A run waits for a slot of a worker, and this worker leaves. Now the run waits for another worker,
// and a new worker gets the run.
func TestSlotsOfWorkersThatLeave(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*rig){
		"leaves":    func(r *rig) { r.l.Leave(r.now, 1) },
		"withdraws": func(r *rig) { r.l.Withdraw(r.now, 1) },
	} {
		r := newRig(t)
		r.limit = 1
		r.join(1)
		a, b := key("a"), key("b")
		r.startRun(a)
		r.start(b, "b")
		r.settle()
		r.wantNoSlot(b, "waits for a free slot of a worker with the code of workflow wf: the only worker has 1")
		leave(r)
		r.settle()
		if why, _ := r.l.Explain(b); len(why) == 0 || why[0].Code != model.WaitWorker {
			t.Errorf("%s: explained as %v", name, why)
		}
		r.join(2)
		r.settle()
		if r.slots[2].used != 1 {
			t.Errorf("%s: the new worker has %d runs", name, r.slots[2].used)
		}
	}
}

// The last worker of a tenant leaves while runs wait for its slots. A worker that serves every
// tenant, and that has already joined, gets them.
func TestSlotsOfTheLastWorkerOfATenant(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*rig){
		"leaves":    func(r *rig) { r.l.Leave(r.now, 1) },
		"withdraws": func(r *rig) { r.l.Withdraw(r.now, 1) },
	} {
		for _, limit := range []int{0, 1} {
			r := newRig(t)
			r.limit = 1
			r.join(1)
			r.limit = limit
			r.l.Join(r.now, 2, model.Offer{Tenant: model.EveryTenant, Workflows: []string{"wf"}}, r.slotsOf(2))
			a, b, c := key("a"), key("b"), key("c")
			r.startRun(a)
			r.wantHolder(a, 1)
			r.startRun(b)
			r.wantHolder(b, 0)

			leave(r)
			r.settle()
			if name == "leaves" && limit == 1 {
				r.wantHolder(b, 2) // run b has waited longer than run a
				r.turn(b, model.Turn{Close: &model.Close{Status: model.Completed}})
				r.settle()
				r.wantHolder(a, 2)
				continue
			}
			r.wantHolder(b, 2)
			r.turn(b, model.Turn{Close: &model.Close{Status: model.Completed}})
			r.startRun(c)
			r.wantHolder(c, 2)
		}
	}
}

// A run that is pinned to a version whose workers are busy keeps no other run waiting.
func TestSlotsOfVersions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.limit = 1
	r.joinVersion(1, "v1")
	a, b, c := key("a"), key("b"), key("c")
	r.startRun(a)
	r.turn(a, pinTo("v1"))
	r.settle()
	r.turn(a, waitingTurn())
	r.settle()
	r.startRun(b)
	r.wantHolder(b, 1)
	r.signal(a, "s", "signal") // run a waits for the slot of version 1 now
	r.settle()
	r.wantHolder(a, 0)

	r.joinVersion(2, "v2")
	r.settle()
	r.wantHolder(a, 0)
	r.startRun(c)
	r.wantHolder(c, 2)
	r.turn(b, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.wantHolder(a, 1)
}

// A worker gets at most as many hand-overs of calls as it has slots. Views take slots too, and the
// lane says so if an entity waits because its worker is busy.
func TestSlotsForCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.limit = 2
	r.joinEntities(1)
	r.operation(ledger("a"), "add", "1", "one")
	r.operation(ledger("b"), "add", "2", "two")
	r.operation(ledger("c"), "add", "3", "three")
	r.operation(ledger("a"), "read", "", "view", brief)
	r.operation(echo("e"), "echo", "x", "rpc", brief)
	r.settle()
	if len(r.operations) != 2 {
		t.Fatalf("the worker has %d hand-overs", len(r.operations))
	}
	r.wantNoSlot(ledger("c"), "waits for a free slot of a worker with the code of entity ledger: the only worker has 2")
	r.wantNoSlot(echo("e"), "waits for a free slot of a worker with the code of service echo: the only worker has 2")

	for range 10 {
		r.serve(1)
		r.settle()
		if len(r.operations) > 2 {
			t.Fatalf("the worker has %d hand-overs", len(r.operations))
		}
	}
	for _, token := range []string{"one", "two", "three", "view", "rpc"} {
		r.wantAnswer(token, "")
	}
	r.wantFreeSlots()
}

// A large entity leaves memory while it waits for a slot. The lane takes the slot first and then
// reads the entity again.
func TestSlotForEntityThatLeftMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.KeepIdle = 1 })
	r.limit = 1
	r.joinEntities(1)
	r.operation(ledger("a"), "add", "1", "one")

	for _, k := range []string{"b", "c", "d"} {
		r.operation(ledger(k), "add", "2", k, oneWay)
		r.settle()
	}

	for range 8 {
		r.serve(1)
		r.settle()
		if len(r.operations) > 1 {
			t.Fatalf("the worker has %d hand-overs", len(r.operations))
		}
	}

	for _, k := range []string{"b", "c", "d"} {
		r.wantState(ledger(k), "2;")
	}
	r.wantFreeSlots()
}

// Runs get slots in the order in which they asked for them.
func TestSlotsAreGivenInOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.limit = 1
	r.join(1)
	a, b, c := key("a"), key("b"), key("c")
	r.startRun(a)
	r.start(b, "b")
	r.settle()

	// The slot is free, and the lane does not know it yet when the next run comes.
	s := r.slots[1]
	s.waits = false
	r.turn(a, model.Turn{Close: &model.Close{Status: model.Completed}})
	r.settle()
	r.start(c, "c")
	r.settle()
	r.wantHolder(c, 0)
	s.woken = true
	r.settle()
	r.wantHolder(b, 1)
	r.wantHolder(c, 0)
}
