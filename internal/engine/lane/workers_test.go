package lane_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// The lane hands runs to the workers that offer their workflow, in turn.
func TestRunsAreSharedOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.join(2)
	r.join(3, "another")
	n := map[lane.WorkerID]int{}
	for i := range 20 {
		r.startRun(key(fmt.Sprint(i)))
		n[r.holder(key(fmt.Sprint(i)))]++
	}
	if n[1] != 10 || n[2] != 10 {
		t.Errorf("shared out as %v", n)
	}
}

// A worker leaves. Its runs go to other workers with all events, or wait for a worker.
func TestWorkerLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	run := r.startRun(a)
	r.turn(a, steps("x"))
	r.settle()
	r.turn(a, steps("y"))
	r.flush() // in flight when the worker leaves
	old := r.held[run].gen
	r.leave(1)
	r.wantHolder(a, 0)
	r.settle()
	if why, ok := r.l.Explain(a); !ok || why[0].Code != model.WaitWorker {
		t.Errorf("explained as %v", why)
	}
	r.signal(a, "s", "signal")
	r.settle()
	r.wantAnswer("signal", "")
	r.join(2)
	r.settle()
	h := r.held[run]
	if h == nil || h.worker != 2 || len(h.events) != 3 || h.gen <= old {
		t.Fatalf("the next worker has %+v, want three events and a later generation than %d", h, old)
	}

	// A turn of the old worker comes late.
	r.l.Turn(r.now, 1, &model.Turn{Run: run, Generation: old, Seen: 1, Commands: []model.Command{step("late")}})
	r.take()
	r.settle()
	r.wantEvents(a, "step_completed x", "step_completed y", "signal_received s")
	if last := r.calls[len(r.calls)-1]; last.Kind != lane.CallEvict || last.Worker != 1 || last.Generation != old {
		t.Errorf("the late turn is answered %+v, want an eviction", last)
	}
	r.wantHolder(a, 2) // the late turn has not taken the run from it
}

// The outcome of a step is on its way to the store when the worker leaves. The next worker must not
// run the step again.
func TestWorkerLeavesBeforeItsCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	run := r.startRun(a)
	r.turn(a, steps("x"))
	r.flush()
	r.join(2)
	r.l.Leave(r.now, 1)
	r.flush()
	r.read() // the history is read before the commit
	if h := r.held[run]; h != nil && len(h.events) == 0 {
		t.Fatal("handed over without an outcome that is on its way")
	}

	r.settle()
	if h := r.held[run]; h == nil || h.worker != 2 || len(h.events) != 1 {
		t.Errorf("the next worker has %+v", h)
	}
}

// A server stops and its workers leave, while a worker of another node works for it. The remote
// workers outlive the server. So the other worker gets no run whose step a remote worker may be
// running, not even after news for that run. It gets runs that only waited.
func TestWorkersOfAStoppingServerLeave(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{true, false} {
		r := newRig(t, withReunion)
		r.join(1)
		waits, runs := key("waits"), key("runs")
		for _, a := range []model.Address{waits, runs} {
			r.startRun(a)
		}
		r.turn(waits, model.Turn{Waits: []model.Reason{{Code: model.WaitSignal}}})
		r.turn(runs, model.Turn{Running: true})
		r.settle()
		r.l.JoinAway(r.now, 2, model.Offer{Tenant: "default", Workflows: []string{"wf"}}, r.slotsOf(2))
		r.take()

		if stops {
			r.l.Hurry()
		}
		r.l.Leave(r.now, 1)
		r.settle()
		r.signal(runs, "s", "to runs")
		r.signal(waits, "s", "to waits")
		r.settle()
		if r.holder(waits) != 2 {
			t.Errorf("stops %v: worker %d holds the run that waited, want 2", stops, r.holder(waits))
		}
		if got, want := r.holder(runs), lane.WorkerID(2); stops && got != 0 || !stops && got != want {
			t.Errorf("stops %v: worker %d holds the run with a step that may still run", stops, got)
		}
	}
}

// A server stops while a remote worker executes calls of an entity, and a worker of another node
// works for it. The other worker gets no further calls of that entity: the remote worker may still
// execute the first ones, and comes back to the next owner.
func TestEntityWorkersOfAStoppingServerLeave(t *testing.T) {
	t.Parallel()
	for _, stops := range []bool{true, false} {
		r := newRig(t, withReunion)
		r.joinEntities(-1)
		r.operation(ledger("a"), "add", "1", "first", func(m *model.Message) { m.OneWay = true })
		r.settle()
		if len(r.operations) != 1 {
			t.Fatalf("the worker has %d hand-overs", len(r.operations))
		}
		r.operations = nil
		r.l.JoinEntitiesAway(r.now, -2, model.EntityOffer{Tenant: "default", Types: []model.EntityType{{Type: "entity:ledger"}}}, r.slotsOf(-2))
		r.take()

		if stops {
			r.l.Hurry()
		}
		r.l.Leave(r.now, -1)
		r.settle()
		r.operation(ledger("a"), "add", "2", "second", func(m *model.Message) { m.OneWay = true })
		r.operation(ledger("b"), "add", "3", "third", func(m *model.Message) { m.OneWay = true })
		r.settle()
		var keys []string
		for _, o := range r.operations {
			keys = append(keys, o.Operations.Entity.Key)
		}
		slices.Sort(keys)
		if got, want := fmt.Sprint(slices.Compact(keys)), map[bool]string{true: "[b]", false: "[a b]"}[stops]; got != want {
			t.Errorf("stops %v: the other worker gets calls of %s, want %s", stops, got, want)
		}
	}
}

// A worker withdraws and gets no new runs. It gives back the runs that it holds. If there is a new
// event for such a run, the worker loses the run immediately.
func TestWorkerWithdraws(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	idle, busy, parks, gives := key("idle"), key("busy"), key("parks"), key("gives")
	for _, a := range []model.Address{idle, busy, parks, gives} {
		r.startRun(a)
	}
	r.turn(idle, model.Turn{Waits: []model.Reason{{Code: model.WaitSignal}}})
	r.settle()
	r.join(2)
	r.l.Withdraw(r.now, 1)
	r.take()
	r.startRun(key("new"))
	if r.holder(key("new")) != 2 {
		t.Error("a new run went to a worker that leaves")
	}
	r.signal(idle, "s", "signal")
	r.turn(busy, steps("x"))
	r.release(parks, "s")
	run := r.current(gives).Start.Run
	// the worker does not know what the run waits for
	r.l.Release(r.now, 1, &model.Turn{Run: run, Generation: r.held[run].gen})
	r.take()
	r.settle()

	for _, a := range []model.Address{idle, busy, gives} {
		h := r.held[r.current(a).Start.Run]
		if h == nil || h.worker != 2 || len(h.events) != len(r.events(a)) {
			t.Errorf("%s is held as %+v, want it with worker 2 and all its events", a.Key, h)
		}
	}

	if row := r.current(parks); !row.Parked || r.holder(parks) != 0 {
		t.Errorf("parked %v, held by %d", row.Parked, r.holder(parks))
	}
	r.wantEvents(busy, "step_completed x")
	r.leave(1)
	r.settle()
	if len(r.held) != 4 {
		t.Errorf("%d runs are held, want 4", len(r.held))
	}
}

// A blocked run waits for code that fits. The next worker that joins gets the run. Events alone do
// not wake it.
func TestBlockedRun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	run := r.startRun(a)
	r.block(a)
	r.settle()
	r.wantBlocked(a)
	r.signal(a, "s", "signal")
	r.settle()
	r.wantAnswer("signal", "")
	if got, ok := r.l.Explain(a); r.holder(a) != 0 || !ok || got[0] != mismatch {
		t.Errorf("held by %d, explained as %v", r.holder(a), got)
	}
	r.join(2)
	r.settle()
	if h := r.held[run]; h == nil || len(h.events) != 1 {
		t.Fatalf("the worker that joined has %+v", h)
	}

	r.turn(a, steps("y"))
	r.settle()
	if row := r.current(a); row.Blocked != nil {
		t.Errorf("still blocked by %v", row.Blocked)
	}

	// After a restart of the node, a worker also tries a blocked run again.
	r.block(a)
	r.settle()
	r.restart()
	r.join(3)
	r.settle()
	r.wantHolder(a, 3) // the next owner tries the run
}

// A turn that contradicts the history takes the run from its worker, which learns why. Another
// worker gets the run and continues. The run is blocked only if the lane refuses the turns of all
// workers.
func TestInvalidTurnOfOneWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.join(2)
	nonsense := commandTurn(step("y"), model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Ref: 9}})
	a, b := key("a"), key("b")
	r.startRun(a)
	first := r.holder(a)
	r.turn(a, steps("x")) // in flight when the next one is refused
	r.turn(a, nonsense)
	r.settle()
	r.wantHolder(a, 3-first)
	r.turn(a, steps("y"))
	r.settle()
	r.wantEvents(a, "step_completed x", "step_completed y")
	r.turn(a, nonsense) // the count of refused turns has started again
	r.settle()
	r.wantHolder(a, first)

	r.startRun(b)
	r.turn(b, nonsense)
	r.settle()
	if r.current(b).Blocked != nil {
		t.Error("the run is blocked although another worker has not tried it")
	}
	r.turn(b, nonsense)
	r.settle()
	if row := r.current(b); row.Blocked == nil || row.Blocked.Code != model.WaitMismatch {
		t.Errorf("blocked by %v, want a mismatch", row.Blocked)
	}
}

// The store refuses the batch that takes a run from a worker with an invalid turn. The worker loses
// the run in that case too, because nothing else answers its turn.
func TestInvalidTurnBeforeARefusal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.join(2)
	a, b := key("a"), key("b")
	run := r.startRun(a)
	r.startRun(b)
	r.settle()
	r.turn(b, steps("z")) // so that the lane can apply the batch again in halves
	r.turn(a, steps("x"))
	gen := r.held[run].gen
	r.turn(a, commandTurn(model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Ref: 9}}))
	r.flush()
	r.fail(store.Refused)
	r.settle()
	if h := r.held[run]; h == nil || h.gen == gen {
		t.Errorf("the run is held as %+v, want a new generation", h)
	}
	r.turn(a, steps("x"))
	r.settle()
	r.wantEvents(a, "step_completed x")
}

// A turn that contradicts the history blocks the run with the reason, and the lane writes no part
// of the turn.
func TestInvalidTurnBlocks(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Limits = core.Limits{Events: 3, Signals: 10, Timers: 10} })
	r.join(1)
	bad, full := key("bad"), key("full")
	r.startRun(bad)
	r.startRun(full)
	r.turn(bad, commandTurn(step("x"), model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Ref: 9}}))
	r.turn(full, steps("a", "b", "c"))
	r.settle()

	for _, a := range []model.Address{bad, full} {
		r.wantEvents(a)
		r.wantHolder(a, 0)
	}

	if row := r.current(bad); row.Blocked == nil || row.Blocked.Code != model.WaitMismatch {
		t.Errorf("blocked by %v, want a mismatch", row.Blocked)
	}
	if row := r.current(full); row.Blocked == nil || row.Blocked.Code != model.WaitLimit {
		t.Errorf("blocked by %v, want the limit", row.Blocked)
	}
	r.join(2)
	r.settle()
	r.turn(full, model.Turn{Close: &model.Close{Status: model.Continued}})
	r.turn(bad, steps("x"))
	r.settle()
	r.wantEvents(bad, "step_completed x")
	if row := r.current(full); row.Start.Previous.IsZero() || row.Blocked != nil {
		t.Errorf("a run at its limit cannot continue as new: %+v", row)
	}
}

// After a release the run is parked and leaves memory. If a new event comes before that, the worker
// keeps the run.
func TestRelease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	run := r.startRun(a)
	r.signal(a, "s", "signal")
	r.flush() // a new event is on its way
	r.release(a, "s")
	r.settle()
	if h := r.held[run]; h == nil || len(h.events) != 1 {
		t.Fatalf("held as %+v, want it kept with the news", h)
	}

	r.release(a, "s")
	r.flush()
	r.wantHolder(a, 1)           // the mark is not durable yet
	r.signal(a, "t", "signal 2") // comes while the release is in flight
	r.settle()
	r.wantAnswer("signal 2", "")
	if h := r.held[run]; h == nil || len(h.events) != 2 {
		t.Fatalf("held as %+v, want it activated again with both signals", h)
	}

	if row := r.current(a); row.Parked {
		t.Error("parked although there was news")
	}
	r.release(a, "u")
	r.settle()
	row := r.current(a)
	if !row.Parked || len(row.Waits) != 1 || row.Waits[0].Name != "u" || r.holder(a) != 0 {
		t.Errorf("parked %v, waits %v, held by %d", row.Parked, row.Waits, r.holder(a))
	}
	if _, ok := r.l.Explain(a); ok {
		t.Error("a parked run is still in memory")
	}

	// The worker releases the run once more, although it no longer holds it.
	r.l.Release(r.now, 1, &model.Turn{Run: run, Generation: 1, Seen: 2})
	r.take()
	r.settle()
}

// Generations are never used twice: not by another lane of the node, not after a restart.
func TestGenerations(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.Lanes = 3; c.Ref.Lane = 0 })
	r.join(1)
	seen := map[uint64]bool{}

	check := func() {
		t.Helper()
		for _, c := range r.calls {
			if c.Kind != lane.CallActivate {
				continue
			}
			if seen[c.Generation] || c.Generation%3 != uint64(r.cfg.Ref.Lane) {
				t.Fatalf("generation %d: used before %v, remainder %d", c.Generation, seen[c.Generation], c.Generation%3)
			}
			seen[c.Generation] = true
		}
		r.calls = nil
	}

	for i := range 10 {
		r.startRun(key(fmt.Sprint(i)))
	}
	check()

	for range 3 {
		r.restart()
		r.join(1)
		r.settle()
		check()
	}

	if len(seen) != 40 {
		t.Errorf("%d activations, want 40", len(seen))
	}
}

// The code of a run has run ahead to its end. The worker keeps the run until the lane answers.
// Whatever happens to the turn, the worker learns that it has lost the run, or gets the events that
// came in between.
func TestEndThatRanAheadIsAnswered(t *testing.T) {
	t.Parallel()
	news := func(r *rig, a model.Address) {
		r.signal(a, "s", "news")
		r.flush()
	}
	for name, c := range map[string]struct {
		before, after func(r *rig, a model.Address)
		change        func(turn *model.Turn)
		kind          lane.CallKind
		reason        string
	}{
		"committed":    {kind: lane.CallEvict, reason: "closed"},
		"continued":    {change: func(turn *model.Turn) { turn.Close = &model.Close{Status: model.Continued} }, kind: lane.CallEvict, reason: "closed"},
		"news":         {before: news, kind: lane.CallDeliver},
		"news later":   {after: func(r *rig, a model.Address) { r.signal(a, "s", "news") }, kind: lane.CallEvict, reason: "closed"},
		"shard moves":  {after: func(r *rig, _ model.Address) { r.giveUp(1) }, kind: lane.CallEvict, reason: "closed"},
		"worker goes":  {after: func(r *rig, _ model.Address) { r.l.Withdraw(r.now, 1) }, kind: lane.CallEvict, reason: "closed"},
		"worker left":  {after: func(r *rig, _ model.Address) { r.l.Leave(r.now, 1) }, kind: lane.CallEvict, reason: "closed"},
		"lane is dead": {after: func(r *rig, _ model.Address) { r.l.Die(store.ErrFenced) }, kind: lane.CallEvict, reason: "the node lost its lease"},
		"refused": {
			before: func(r *rig, _ model.Address) { r.refuse = poison("x") }, kind: lane.CallEvict, reason: "quarantined",
		},
		"refused because of another": {
			before: func(r *rig, _ model.Address) {
				r.startRun(key("bad"))
				r.refuse = poison("poison")
				r.turn(key("bad"), steps("poison"))
			},
			kind: lane.CallEvict, reason: "closed",
		},
		"lost, and landed": {
			after: func(r *rig, _ model.Address) {
				r.flush()
				r.landUnheard()
				r.l.FinishCommit(r.now, store.Committed{}, store.Errorf(store.Unknown, "commit", "lost"))
			},
			kind: lane.CallEvict, reason: "closed",
		},
		"lost": {
			after: func(r *rig, _ model.Address) {
				r.flush()
				r.fail(store.Unknown)
			},
			kind: lane.CallEvict, reason: "closed",
		},
		"fenced": {
			after: func(r *rig, _ model.Address) {
				r.flush()
				r.fail(store.Fenced)
			},
			kind: lane.CallEvict, reason: "the node lost its lease",
		},
		"news, and the shard moves": {
			before: news, after: func(r *rig, _ model.Address) { r.giveUp(1) },
			kind: lane.CallEvict, reason: "the shard moves",
		},
		"news, and the worker goes": {
			before: news, after: func(r *rig, _ model.Address) { r.l.Withdraw(r.now, 1) },
			kind: lane.CallEvict, reason: "the worker leaves",
		},
		"a turn that contradicts the history": {
			change: func(turn *model.Turn) {
				turn.Commands = append(turn.Commands, model.Command{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Ref: 9}})
			},
			kind: lane.CallEvict, reason: "9",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(1)
			a := in(1, 0)
			run := r.startRun(a)
			if c.before != nil {
				c.before(r, a)
			}
			h := r.held[run]
			turn := steps("x")
			turn.Run, turn.Generation, turn.Ahead, turn.Close = run, h.gen, 1, done()
			if c.change != nil {
				c.change(&turn)
			}
			told := len(r.calls)
			r.l.Turn(r.now, 1, &turn)
			r.take()
			if c.after != nil {
				c.after(r, a)
			}
			r.settle() // no time passes

			for _, call := range r.calls[told:] {
				if call.Run == run && call.Generation == h.gen && call.Kind == c.kind && strings.Contains(call.Reason, c.reason) {
					return
				}
			}

			t.Errorf("calls after the turn: %+v, want the worker to hear %d %q", r.calls[told:], c.kind, c.reason)
		})
	}
}

// A run whose turn cannot be applied goes to a worker that has not tried it, whatever other runs
// the workers get in between. When all workers have failed, the run is blocked.
func TestRefusedTurnGoesToAnotherWorker(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 3} {
		for others := range 4 {
			r := newRig(t)
			r.limit = limit
			a := key("a")
			r.join(1)
			r.startRun(a)
			r.join(2)
			r.join(3)

			bad := model.Turn{Commands: []model.Command{{Kind: model.CommandRecord, Event: model.Event{Kind: model.EventSignalTaken, Ref: 9}}}}
			had := map[lane.WorkerID]bool{}
			for range 3 {
				for n := range others {
					b := key(fmt.Sprint("other", len(had), n))
					r.startRun(b)
					r.turn(b, model.Turn{Close: done()})
				}
				w := r.holder(a)
				if w == 0 || had[w] {
					t.Fatalf("slots %d, others %d: worker %d gets the run after %v", limit, others, w, had)
				}
				had[w] = true
				r.turn(a, bad)
				r.settle()
			}
			r.wantHolder(a, 0)
			if row := r.current(a); row.Blocked == nil || row.Blocked.Code != model.WaitMismatch {
				t.Errorf("slots %d, others %d: the run is blocked by %v", limit, others, row.Blocked)
			}
		}
	}
}
