package remote

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// survivor is a worker that outlives its server. It counts the runs that it gets and loses.
type survivor struct {
	api.Survivor
	activated, lost int
}

func (s *survivor) Activate(*model.Activation) { s.activated++ }
func (s *survivor) Lose(model.RunID, uint64)   { s.lost++ }
func (s *survivor) of(r *workflowRole) (named int) {
	held := r.lost(nil).GetHeldRuns()
	for _, h := range held {
		if h.GetGiven() != given {
			return -1
		}
	}
	return len(held)
}

// given is when the server hands over a run.
const given = 77

// After it has lost its server, a worker names its runs to the next server, and says when it got
// them. It repeats that until it has received the whole history of a run again, because a server
// may die while it sends a long history.
func TestRunsAreNamedUntilTheirHistoryIsWhole(t *testing.T) {
	t.Parallel()
	worker := &survivor{}
	r := newWorkflowRole(newMembership(&Work{tenant: "default"}, &pb.Join{}), worker)
	a := model.Activation{Start: &model.Start{Address: model.Address{Tenant: "default", Type: "wf", Key: "k"}, Run: model.RunID{1}}, Generation: 3, Now: given}
	activate := func(more bool) {
		t.Helper()
		m := wire.Activation(&a)
		m.More = more
		if err := r.activate(m); err != nil {
			t.Fatal(err)
		}
	}

	activate(true)
	if n := worker.of(r); n != 0 || worker.lost != 0 {
		t.Fatalf("the worker names %d runs and loses %d, and has seen none", n, worker.lost)
	}
	activate(false)
	for range 2 {
		if n := worker.of(r); n != 1 || worker.lost != 1 {
			t.Fatalf("the worker names %d runs and has lost %d", n, worker.lost)
		}
		activate(true)
	}

	if err := r.more(&pb.MoreEvents{Run: wire.Run(a.Start.Run), Generation: a.Generation}); err != nil {
		t.Fatal(err)
	}
	if worker.activated != 2 || len(r.left) != 0 {
		t.Errorf("%d activations; %d runs are left from a lost session", worker.activated, len(r.left))
	}
	if n := worker.of(r); n != 1 || worker.lost != 2 {
		t.Errorf("the worker names %d runs and has lost %d", n, worker.lost)
	}
}

// A worker names its earlier sessions to each server, the last one first, and not too many of them.
func TestWorkerNamesItsEarlierSessions(t *testing.T) {
	t.Parallel()
	w := unconnected(WorkConfig{Log: slog.New(slog.DiscardHandler)})
	want := func(session string, earlier ...string) {
		t.Helper()
		if h := w.hello(); h.GetSession() != session || !slices.Equal(h.GetEarlier(), earlier) {
			t.Errorf("the worker names the session %q and before it %q, want %q and %q", h.GetSession(), h.GetEarlier(), session, earlier)
		}
	}

	want("first")
	w.welcome(&pb.Welcome{Session: "second"})
	want("second", "first")
	w.welcome(&pb.Welcome{Session: "second", Resumed: true})
	want("second", "first")
	w.link.End(errLost) // the session cannot continue
	want("", "second", "first")
	w.welcome(&pb.Welcome{Session: "third"})
	want("third", "second", "first")

	for range maxEarlier {
		w.welcome(&pb.Welcome{Session: "another"})
		w.welcome(&pb.Welcome{Session: "last"})
	}
	if n := len(w.hello().GetEarlier()); n != maxEarlier {
		t.Errorf("the worker names %d earlier sessions, want %d", n, maxEarlier)
	}
}

// caller is a worker that runs calls of entities. It counts the hand-overs that it gets.
type caller struct {
	api.EntityWorker
	handed []model.Operations
}

func (c *caller) Operate(o model.Operations) { c.handed = append(c.handed, o) }

// A worker keeps the results of its calls for a minute after each loss of its session. A later loss
// does not shorten that time, so the next server gets the results instead of a second run.
func TestResultsAreKeptAfterEachLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, worker := unconnected(WorkConfig{}), &caller{}
		r := newEntityRole(newMembership(w, &pb.Join{Role: pb.Role_ROLE_ENTITIES}), worker)
		r.offer(w.link, &pb.Join{})
		hand := func(key string) (runs bool) {
			t.Helper()
			before := len(worker.handed)
			o := model.Operations{Entity: model.Address{Tenant: "default", Type: "entity:a", Key: key}, Generation: 1, Calls: []model.OperationCall{{Name: "add", Number: 7}}}
			if err := r.operate(wire.Operations(&o)); err != nil {
				t.Fatal(err)
			}
			return len(worker.handed) > before
		}
		finish := func() {
			t.Helper()
			o := worker.handed[len(worker.handed)-1]
			if err := r.FinishCalls(t.Context(), model.Operated{Entity: o.Entity, Generation: o.Generation, Results: make([]model.OperationResult, 1)}); err != nil {
				t.Fatal(err)
			}
		}

		for _, key := range []string{"first", "second"} {
			if !hand(key) {
				t.Fatalf("the calls of %s do not run", key)
			}
			r.lost(nil)
			finish()
			time.Sleep(keepLeft * 2 / 3)
		}
		if hand("second") {
			t.Error("the calls of the second session run again")
		}
		if !hand("first") {
			t.Error("the results of the first session are kept for too long")
		}
	})
}

// The server dies before it has stored a call that the worker runs. The next server gets another
// call with the same number: its sender has repeated a step and sends another input, or its place
// in the mailbox is free again. The worker runs that call, and does not answer it with the result
// of the lost one.
func TestResultOfALostCallIsNotTheResultOfAnotherCall(t *testing.T) {
	t.Parallel()
	call := func(name, input string) model.OperationCall {
		return model.OperationCall{Name: name, Input: model.Payload{Data: []byte(input)}, Number: 7}
	}
	lost := call("add", "1")
	for name, c := range map[string]struct {
		next model.OperationCall
		runs bool
	}{
		"the same call": {call("add", "1"), false},
		"another input": {call("add", "2"), true},
		"another name":  {call("take", "1"), true},
	} {
		for _, reported := range []bool{false, true} {
			w, worker := unconnected(WorkConfig{}), &caller{}
			r := newEntityRole(newMembership(w, &pb.Join{Role: pb.Role_ROLE_ENTITIES}), worker)
			r.offer(w.link, &pb.Join{})
			hand := func(c model.OperationCall) {
				o := model.Operations{Entity: model.Address{Tenant: "default", Type: "entity:a", Key: "k"}, Generation: 1, Calls: []model.OperationCall{c}}
				if err := r.operate(wire.Operations(&o)); err != nil {
					t.Fatal(err)
				}
			}

			hand(lost)
			r.lost(nil)
			if o := worker.handed[0]; reported {
				if err := r.FinishCalls(t.Context(), model.Operated{Entity: o.Entity, Generation: o.Generation, Results: make([]model.OperationResult, 1)}); err != nil {
					t.Fatal(err)
				}
			}
			hand(c.next)
			if runs := len(worker.handed) == 2; runs != c.runs {
				t.Errorf("%s, reported %t: the worker runs it: %t", name, reported, runs)
			}
		}
	}
}
