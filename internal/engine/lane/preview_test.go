package lane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// newPreview returns a rig whose workers of workflows take previews.
func newPreview(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, waitsAhead)
	r.previews = true
	r.join(1)
	r.joinEntities(2)
	for _, k := range []string{"a", "b"} {
		r.operation(ledger(k), "add", "0", "warm "+k)
	}
	r.work()
	return r
}

// waiting returns a turn whose code waits for something else than a step.
func waiting(commands ...model.Command) model.Turn {
	t := commandTurn(commands...)
	t.Waits = []model.Reason{{Code: model.WaitAnswer, Name: "it"}}
	return t
}

// holding returns what the worker of a run knows.
func (r *rig) holding(a model.Address) *holding {
	r.t.Helper()
	for _, h := range r.held {
		if h.start.Address == a {
			return h
		}
	}
	r.t.Fatalf("no worker holds %s", a)
	return nil
}

// wakeUp ends the time that the open batch waits for workers.
func (r *rig) wakeUp() {
	r.t.Helper()
	r.flush()
	r.now = r.now.Add(time.Millisecond)
	r.flush()
	if r.commit == nil {
		r.t.Fatal("no batch is in flight")
	}
}

// wantKnown checks how many events the worker of a run knows, and how many of them are confirmed.
func (r *rig) wantKnown(a model.Address, events, durable int) {
	r.t.Helper()
	if h := r.holding(a); len(h.events) != events || h.durable != int64(durable) {
		r.t.Fatalf("the worker knows %d events, %d of them as durable, want %d and %d", len(h.events), h.durable, events, durable)
	}
}

// A workflow locks two entities, calls both and ends in one commit. Its worker hears nothing as
// durable before that commit.
func TestSectionInOneCommit(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	from := in(0, 0)
	run := r.startRun(from)
	r.turn(from, waiting())
	r.settle()

	before := r.commits
	r.turn(from, waiting(lockOf("s", "a", "b")))
	r.wantKnown(from, 3, 0) // asked, and a grant for each entity
	for i, k := range []string{"a", "b"} {
		id := []string{"c1", "c2"}[i]
		r.turn(from, waiting(callOf(id, "s", id, ledger(k))))
		r.flush()
		if r.commit != nil {
			t.Fatalf("the batch does not wait for %s", id)
		}
		r.serve(1)
		r.wantKnown(from, 5+2*i, 0)
	}
	r.turn(from, model.Turn{Commands: []model.Command{unlock("s")}, Close: done()})
	if r.row(run).Outcome.Status.Closed() {
		t.Error("the run has ended before the commit")
	}
	r.settle()
	if n := r.commits - before; n != 1 {
		t.Errorf("%d commits, want one", n)
	}
	r.wantStatus(from, model.Completed)
	r.wantState(ledger("a"), "0;c1;")
	r.wantState(ledger("b"), "0;c2;")
}

// Sections of several workflows that wait for the same entity overlap their commits: the release of
// one section, and the lock and the call of the next one share a commit.
func TestSectionsShareCommits(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	const n = 4
	for i := range n {
		r.startRun(in(0, i))
	}
	for i := range n {
		r.turn(in(0, i), waiting(lockOf("s", "a")))
	}
	r.settle()

	before := r.commits
	for i := range n {
		r.turn(in(0, i), waiting(callOf("c", "s", "c", ledger("a"))))
		for r.flush(); len(r.operations) == 0; {
			r.commitNow() // the call begins when the release of the last section is durable
		}
		r.serve(1)
		r.turn(in(0, i), model.Turn{Commands: []model.Command{unlock("s")}, Close: done()})
		r.flush()
	}
	r.settle()
	if got := r.commits - before; got > n {
		t.Errorf("%d sections make %d commits, want at most one each", n, got)
	}
	r.wantState(ledger("a"), "0;c;c;c;c;")
}

// A worker gets no preview while it runs a step, or may start one: the lane could not take the run
// back without repeating the step.
func TestNoPreviewBesideAStep(t *testing.T) {
	t.Parallel()
	for what, turn := range map[string]func(*model.Turn){
		"a step runs":           func(t *model.Turn) { t.Running = true },
		"a step is about to":    func(t *model.Turn) { t.Waits = []model.Reason{{Code: model.WaitStep}} },
		"the code may continue": func(t *model.Turn) { t.Waits = nil },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := newPreview(t)
			from := in(0, 0)
			r.startRun(from)
			c := waiting(callOf("c", "", "1", ledger("a")))
			turn(&c)
			r.turn(from, c)
			r.serve(1)
			r.wantKnown(from, 0, 0)
			r.settle()
			r.wantKnown(from, 2, 2)
		})
	}
}

// A worker that has not answered a durable event may start a step because of it. So it gets no
// preview.
func TestNoPreviewBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, waiting(callOf("c", "", "1", ledger("a"))))
	r.signal(from, "s", nil)
	r.wakeUp()
	r.commitNow()
	r.wantKnown(from, 2, 2) // the call was sent, and the signal has arrived
	r.serve(1)
	r.wantKnown(from, 2, 2)

	r.turn(from, waiting())
	r.wakeUp()
	r.commitNow()
	r.wantKnown(from, 3, 3)
}

// The batch does not wait for a worker that takes long to continue with a preview.
func TestBatchDoesNotWaitForSlowCode(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, waiting(callOf("c", "", "1", ledger("a"))))
	r.serve(1)
	r.flush()
	if r.commit != nil {
		t.Fatal("the batch does not wait for the worker")
	}
	r.pass(time.Millisecond)
	r.wantKnown(from, 2, 2)

	r.turn(from, waiting(callOf("c2", "", "2", ledger("a"))))
	r.serve(1)
	r.flush()
	if r.commit == nil {
		t.Error("the next batch waits for the worker, which was slow")
	}
	r.settle()
}

// The store does not take a batch, and a worker has a preview of its events. The outcome of the
// step before the preview is kept, what the worker did since is dropped, and the run continues.
func TestBatchWithAPreviewFails(t *testing.T) {
	t.Parallel()
	for _, class := range []store.Class{store.Refused, store.Retryable, store.Unknown, store.Away} {
		t.Run(class.String(), func(t *testing.T) {
			t.Parallel()
			r := newPreview(t)
			from := in(0, 0)
			r.startRun(from)
			r.turn(from, waiting(step("x"), callOf("c1", "", "1", ledger("a"))))
			r.serve(1)
			r.wantKnown(from, 3, 0)
			r.turn(from, waiting(callOf("c2", "", "2", ledger("b"))))
			r.wakeUp()
			r.fail(class)
			r.pass(time.Minute)
			r.work()

			if class == store.Refused {
				why := r.evictions()
				if len(why) == 0 {
					t.Fatalf("the worker keeps the run: %v", why)
				}
				r.wantEvents(from, "step_completed x", "sent c1", "answered c1")
				r.turn(from, waiting(callOf("c2", "", "2", ledger("b"))))
			}
			r.work()
			r.pass(time.Millisecond)
			r.wantEvents(from, "step_completed x", "sent c1", "answered c1", "sent c2", "answered c2")
			r.wantState(ledger("a"), "0;1;")
			r.wantState(ledger("b"), "0;2;")
			r.turn(from, model.Turn{Close: done()})
			r.settle()
			r.wantStatus(from, model.Completed)
		})
	}
}

// The store refuses what a worker did with a preview. The part before the preview is stored, and
// the worker does the rest again, without a preview, so only its own run is quarantined.
func TestPoisonBehindAPreview(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, waiting(step("x"), callOf("c1", "", "1", ledger("a"))))
	r.serve(1)
	r.refuse = poison("bad")
	r.turn(from, waiting(callOf("bad", "", "2", ledger("b"))))
	r.work()
	r.pass(time.Millisecond)
	r.work()
	r.wantEvents(from, "step_completed x", "sent c1", "answered c1")
	r.wantState(ledger("a"), "0;1;")

	r.turn(from, waiting(callOf("bad", "", "2", ledger("b"))))
	r.work()
	r.pass(time.Millisecond)
	r.work()
	if why, _ := r.l.Explain(from); len(why) == 0 || why[0].Code != model.WaitPoison {
		t.Errorf("the run is not quarantined: %v", why)
	}
	if why, _ := r.l.Explain(ledger("a")); len(why) > 0 {
		t.Errorf("the entity is quarantined: %v", why)
	}
}

// An operator pauses a run whose worker has a preview. The worker loses the run and hears
// nothing as durable, so it starts no step.
func TestPauseBehindAPreview(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, waiting(callOf("c", "", "1", ledger("a"))))
	r.serve(1)
	r.wantKnown(from, 2, 0)
	r.order(model.MessagePause, from, "pause")
	r.wakeUp()
	r.settle()
	if r.holder(from) != 0 {
		t.Error("a worker holds a paused run")
	}

	r.order(model.MessageResume, from, "resume")
	r.settle()
	r.wantKnown(from, 4, 4)
}

// Queries of callers reach the worker while it has a preview, and it answers after the commit.
func TestQueryBehindAPreview(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, waiting(callOf("c", "", "1", ledger("a"))))
	r.serve(1)
	r.query(from, "q")
	r.refuse = func(*store.Batch) error { return store.Errorf(store.Refused, "commit", "injected") }
	r.wakeUp()
	r.commitNow() // refused: the worker loses the run
	r.refuse = nil
	r.work()
	if n := r.reply(from, "answer"); n != 1 {
		t.Errorf("%d queries reach the next worker", n)
	}
	r.settle()
	r.wantOutput("q", "answer")
}

// Workers of other nodes and processes get no previews.
func TestNoPreviewsForWorkersThatDoNotTakeThem(t *testing.T) {
	t.Parallel()
	r := newTalk(t, waitsAhead)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, waiting(callOf("c", "", "1", ledger("a"))))
	r.serve(1)
	r.work()
	if slices.ContainsFunc(r.calls, func(c lane.Call) bool { return c.Kind == lane.CallPreview }) {
		t.Error("the worker gets a preview")
	}
}

// Two goroutines of a worker report: a body that has ended, and the code, which a signal has moved
// on to the next step. The turn of the body was made first and arrives last. It must not lead to a
// preview beside the step that runs.
func TestNoPreviewAfterATurnThatArrivesLate(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, waiting(callOf("c0", "", "0", ledger("a"))))
	r.work()
	r.turn(from, waiting())
	r.pass(10 * time.Millisecond)
	n := len(r.holding(from).events)
	r.signal(from, "s", nil)
	r.pass(10 * time.Millisecond)

	next := waiting(callOf("c1", "", "1", ledger("a")))
	next.Running, next.Waits = true, []model.Reason{{Code: model.WaitStep, Name: "y"}}
	r.turn(from, next)
	late := waiting(step("x"))
	late.Seen = int64(n)
	r.turn(from, late)
	r.serve(1)
	r.wantKnown(from, n+1, n+1)
}

// A worker reports the outcome of a step together with what its code did because of a preview, and
// the store refuses the preview. The outcome does not depend on the preview, so it is kept.
func TestOutcomeBehindAPreviewIsKept(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, waiting(callOf("c1", "", "1", ledger("a"))))
	r.serve(1)
	r.wantKnown(from, 2, 0)
	r.turn(from, waiting(step("x"), callOf("c2", "", "2", ledger("b"))))
	r.wakeUp()
	r.fail(store.Refused)
	r.work()
	r.pass(time.Minute)
	r.work()
	if got := r.events(from); !slices.Contains(got, "step_completed x") || slices.Contains(got, "sent c2") {
		t.Errorf("history %q, want the outcome and not the call", got)
	}
	r.wantKnown(from, 3, 3)
}

// A worker whose preview is refused keeps the run until the turns that it made before the preview
// are stored. Otherwise a worker that is closing would leave too early, and these turns be lost.
func TestSpoiledWorkerIsToldLast(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	from, other := in(0, 0), in(0, 1)
	r.startRun(from)
	r.startRun(other)
	r.turn(from, waiting(step("x"), callOf("c1", "", "1", ledger("a"))))
	r.serve(1)
	r.turn(from, waiting(callOf("c2", "", "2", ledger("b"))))
	for i := range 4 {
		r.signal(other, "s", i)
	}

	r.wakeUp()
	r.fail(store.Refused)
	for len(r.evictions()) == 0 {
		switch {
		case len(r.loads) > 0:
			r.read()
		case r.commit != nil:
			r.commitNow()
		default:
			r.flush()
		}
	}
	if !slices.Contains(r.events(from), "step_completed x") {
		t.Errorf("the worker hears %q while the history is %q", r.evictions(), r.events(from))
	}
}

// A run that its worker loses does not keep the batch open.
func TestBatchDoesNotWaitForALostRun(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, waiting(callOf("c", "", "1", ledger("a"))))
	r.serve(1)
	r.order(model.MessageTerminate, from, "terminate")
	r.flush()
	if r.commit == nil {
		t.Error("the batch waits for a run that has ended")
	}
	r.settle()
}

// A worker has answered a preview with a turn that says that a step is about to run. The lane
// confirms the preview, so the step runs when the turn is committed. The run stays with its worker,
// although it must leave in the meantime.
func TestStepBehindAConfirmedPreview(t *testing.T) {
	t.Parallel()
	r := newPreview(t)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, waiting(callOf("c", "", "1", ledger("a"))))
	r.serve(1)
	r.wakeUp() // the batch with the preview is in flight
	next := waiting(timer("t", r.now.Add(time.Hour)))
	next.Waits = []model.Reason{{Code: model.WaitStep, Name: "x"}}
	r.turn(from, next)
	r.commitNow()
	r.wantKnown(from, 2, 2) // from now on the step runs

	r.giveUp(from.Shard(shards))
	r.flush()
	for r.commit != nil {
		r.commitNow()
	}
	if r.holder(from) == 0 {
		t.Errorf("the worker loses the run while a step runs: %q", r.evictions())
	}
}
