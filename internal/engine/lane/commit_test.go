package lane_test

import (
	"errors"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

func kindOf(err error) string {
	if err == nil {
		return ""
	}
	return fault.KindOf(err).String()
}

// L1: at most one batch is in flight. The next batch fills at the same time, and the lane seals it
// after the commit of the first.
func TestOneBatchInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(key("a"), "a")
	r.flush()
	first := r.commit
	if first == nil || len(first.Starts) != 1 {
		t.Fatalf("batch = %+v, want one start", first)
	}

	for _, k := range []string{"b", "c", "d"} {
		r.start(key(k), k)
		r.flush()
	}

	number := first.Number
	r.commitNow()
	second := r.commit
	if second == nil || len(second.Starts) != 3 || second.Number != number+1 {
		t.Fatalf("second batch = %+v, want the three that came meanwhile, numbered %d", second, number+1)
	}
	r.settle()
	for _, k := range []string{"a", "b", "c", "d"} {
		r.wantAnswer(k, "")
	}
	if !r.l.Idle() {
		t.Error("the lane is not idle")
	}
}

// L2: effects come only after the commit. The rig checks every call and answer against the store.
// This test checks that no effect comes before the commit.
func TestNothingIsToldBeforeTheCommit(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, b := in(0, 0), in(1, 0)
	silent := func(what string) {
		t.Helper()
		if len(r.calls) > 0 || len(r.mail) > 0 || len(r.answers) > 0 || len(r.hints) > 0 {
			t.Fatalf("%s: told before the commit: %+v, %+v, %+v", what, r.calls, r.answers, r.mail)
		}
	}
	reset := func() { r.calls, r.answers = nil, map[any]lane.Answer{} }

	r.start(a, "start")
	r.flush()
	silent("start")
	r.commitNow()
	r.settle()
	r.wantAnswer("start", "")
	if len(r.calls) != 1 || r.calls[0].Kind != lane.CallActivate {
		t.Fatalf("after the start: %+v, want one activation", r.calls)
	}
	r.startRun(b)
	reset()

	r.signal(a, "s", "signal")
	r.flush()
	silent("signal")
	r.commitNow()
	r.settle()
	r.wantAnswer("signal", "")
	if len(r.calls) != 1 || r.calls[0].Kind != lane.CallDeliver {
		t.Fatalf("after the signal: %+v, want one delivery", r.calls)
	}
	reset()

	// A turn sends a message to another shard. The receiver does not get the message before the
	// commit either.
	if _, err := r.l.Await(a, model.RunID{}, "await"); err != nil {
		t.Fatal(err)
	}
	r.turn(a, model.Turn{Commands: []model.Command{signalTo(b, "m", "hello")}, Close: done()})
	r.flush()
	silent("turn")
	r.commitNow()
	if res := r.answers["await"].Result; res == nil || res.Outcome.Status != model.Completed || string(res.Outcome.Output.Data) != "done" {
		t.Errorf("await = %+v", r.answers["await"])
	}
	r.wantHolder(a, 0)
	r.settle()
	r.wantEvents(b, "signal_received hello")
}

// An answer that depends on provisional state waits for the commit of that state, although it
// writes nothing itself.
func TestAnswersWaitForWhatTheyRestOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.send(model.Message{Kind: model.MessageSettle, To: a, Name: "p"}, "first")
	r.send(model.Message{Kind: model.MessageSettle, To: a, Name: "p"}, "second")
	r.flush()
	// while the first is in flight
	r.send(model.Message{Kind: model.MessageSettle, To: a, Name: "p"}, "third")
	r.flush()
	r.wantSilence("first", "second", "third")
	r.commitNow()
	r.wantAnswer("first", "")
	r.wantAnswer("second", "conflict")
	r.wantAnswer("third", "conflict")

	// All state is committed now, so an answer that writes nothing comes immediately.
	r.send(model.Message{Kind: model.MessageSettle, To: a, Name: "p"}, "fourth")
	r.wantAnswer("fourth", "conflict")
}

// Retryable and Away: the lane sends the same batch again, immediately or after a growing pause,
// and every effect happens once.
func TestFailedCommitIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, class := range []store.Class{store.Retryable, store.Away} {
		t.Run(class.String(), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start(key("a"), "a")
			r.flush()

			number := r.commit.Number
			for n := 1; n <= 20; n++ {
				r.fail(class)
				at := r.l.Wake()
				if class == store.Retryable && n <= 3 && r.commit == nil {
					t.Fatalf("attempt %d: not sent again at once", n)
				}

				if r.commit == nil {
					if at <= r.now || at > r.now.Add(time.Second) {
						t.Fatalf("attempt %d: again at %s, want within a second of %s", n, at, r.now)
					}
					r.start(key("b"), n) // fills the next batch
					r.flush()
					if r.commit != nil {
						t.Fatalf("attempt %d: sent before its time", n)
					}
					r.now = at
					r.flush()
				}

				if r.commit == nil || r.commit.Number != number || len(r.commit.Starts) != 1 {
					t.Fatalf("attempt %d: batch %+v, want number %d with one start", n, r.commit, number)
				}
			}

			r.wantSilence("a")
			r.settle()
			r.wantAnswer("a", "")
		})
	}
}

// L4: after an unknown commit the lane first moves its fence. After that it sends the batch again
// if the batch did not land.
func TestUnknownCommitThatDidNotLand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.start(key("a"), "a")
	r.flush()
	orphan := *r.commit
	r.fail(store.Unknown)
	r.start(key("b"), "b")
	r.flush()
	if r.refence == nil || r.commit != nil || r.refence.Epoch != orphan.Lane.Epoch {
		t.Fatalf("after an unknown commit: refence %+v, commit %v; want the fence of epoch %d to be moved first", r.refence, r.commit, orphan.Lane.Epoch)
	}

	r.wantSilence("a", "b")
	r.refenceNow()
	if r.commit == nil || r.commit.Number != orphan.Number || r.commit.Lane.Epoch == orphan.Lane.Epoch {
		t.Fatalf("after the fence was moved: %+v, want batch %d under the new epoch", r.commit, orphan.Number)
	}

	// The orphaned commit reaches the store now, and has no effect.
	if _, err := r.st.Commit(t.Context(), &orphan); store.ClassOf(err) != store.Fenced {
		t.Fatalf("the orphan committed: %v", err)
	}
	r.settle()
	r.wantAnswer("a", "")
	r.wantAnswer("b", "")
	if r.holder(key("a")) == 0 || r.holder(key("b")) == 0 {
		t.Error("the runs were not activated")
	}
}

// L4: the commit landed: the lane does not send it again, and its effects happen.
func TestUnknownCommitThatLanded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a, b := in(0, 0), in(1, 0)
	r.startRun(a)
	r.startRun(b)
	r.turn(a, commandTurn(step("x"), signalTo(b, "m", "hello")))
	r.flush()
	r.landUnheard()
	r.l.FinishCommit(r.now, store.Committed{}, store.Errorf(store.Unknown, "commit", "connection lost"))
	r.flush()
	if r.commit != nil || r.refence == nil || len(r.held[r.current(a).Start.Run].events) != 0 {
		t.Fatal("something was done before the fence was moved")
	}

	r.refenceNow()
	r.settle()
	r.wantEvents(a, "step_completed x", "sent m", "answered m")
	r.wantEvents(b, "signal_received hello")
	if n := len(r.held[r.current(a).Start.Run].events); n != 3 {
		t.Errorf("the worker was fed %d events, want 3", n)
	}
}

// L4: the batch landed, and the address of one of its starts already had a run. The lane reads what
// the answer to the commit would have said.
func TestUnknownCommitWithStarts(t *testing.T) {
	t.Parallel()
	for _, lookFails := range []bool{false, true} {
		r := newRig(t)
		r.join(1)
		first := r.startRun(key("old"))
		r.release(key("old"), "s") // parked: no worker continues it without an event
		r.settle()
		r.restart()
		r.join(2)
		r.settle()
		r.start(key("old"), "old")
		r.start(key("new"), "new")
		r.flush()
		r.landUnheard()
		r.l.FinishCommit(r.now, store.Committed{}, errors.New("unclassified, so unknown"))
		r.flush()
		r.refenceNow()
		if r.verify == nil {
			t.Fatal("starts of a batch that landed unseen are not looked at")
		}

		r.wantSilence("old", "new")
		if lookFails {
			r.verify = nil
			r.l.FinishVerify(r.now, nil, errInjected)
			r.flush()
			r.wantSilence("old", "new")
			r.pass(time.Second)
		}

		r.settle()
		r.wantAnswer("new", "")
		r.wantAnswer("old", "")
		if a := r.answers["old"].Answer; a.Run != first || !a.Existing {
			t.Errorf("start of an existing run = %+v, want %s", a, first)
		}
		if a := r.answers["new"].Answer; a.Existing || r.current(key("new")).Start.Run != a.Run {
			t.Errorf("start of a new run = %+v", a)
		}
		if len(r.held) != 2 {
			t.Errorf("%d runs are held, want 2", len(r.held))
		}
	}
}

// L4 and L5: another node has moved the fence.
func TestUnknownCommitOfAFencedLane(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.startRun(key("held"))
	r.start(key("a"), "a")
	r.flush()
	r.start(key("b"), "b")
	r.flush()
	r.signal(key("held"), "s", "c")
	if _, err := r.l.Await(key("held"), model.RunID{}, "await"); err != nil {
		t.Fatal(err)
	}

	r.fence()
	r.fail(store.Unknown)
	r.refenceNow()
	if r.dead == nil {
		t.Fatal("a fenced lane lives on")
	}
	for _, token := range []any{"a", "b", "c", "await"} {
		r.wantAnswer(token, "unavailable")
	}
	if len(r.held) != 0 {
		t.Error("a fenced lane leaves runs with its workers")
	}
	r.deadLaneDoesNothing()
}

// L5: a lane that has been fenced does nothing further.
func TestFencedLaneIsDead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	r.startRun(key("held"))
	r.start(key("a"), "a")
	r.flush()
	r.fence()
	r.commitNow()
	if r.dead == nil || !fault.Is(r.dead, fault.Unavailable) {
		t.Fatalf("dead = %v, want Unavailable", r.dead)
	}
	r.wantAnswer("a", "unavailable")
	r.deadLaneDoesNothing()
}

func (r *rig) deadLaneDoesNothing() {
	r.t.Helper()
	r.calls = nil
	r.l.Join(r.now, 9, model.Offer{Tenant: "default", Workflows: []string{"wf"}}, nil)
	r.start(key("late"), "late")
	r.wantAnswer("late", "unavailable")
	if _, err := r.l.Await(key("late"), model.RunID{}, "late await"); err == nil {
		r.t.Error("a dead lane takes an await")
	}
	r.l.Turn(r.now, 1, &model.Turn{Run: model.RunID{1}, Generation: 7})
	r.l.Release(r.now, 1, &model.Turn{Run: model.RunID{1}, Generation: 7})
	r.l.FinishCommit(r.now, store.Committed{}, nil)
	r.l.FinishRefence(r.now, 9, 9, nil)
	r.l.FinishVerify(r.now, nil, nil)
	r.l.FinishLoad(r.now, 1, lane.LoadResult{})
	r.l.Acquire(r.now, []store.AcquiredShard{{Shard: 1}})
	r.giveUp(1)
	r.l.Messages([]store.MessageRow{{To: 1, From: 2, Seq: 1}})
	r.l.MailWaits()
	r.l.Leave(r.now, 1)
	r.l.Die(errInjected)
	r.now = r.now.Add(time.Hour)
	r.flush()
	if r.commit != nil || r.refence != nil || len(r.loads) > 0 || r.l.Wake() != 0 {
		r.t.Error("a dead lane asks for something")
	}

	for _, c := range r.calls {
		if c.Kind != lane.CallEvict {
			r.t.Errorf("a dead lane calls a worker: %+v", c)
		}
	}

	if _, ok := r.l.Explain(key("held")); ok {
		r.t.Error("a dead lane explains")
	}
}

// The number in the fence can only be that of the batch in flight or of the batch before it. If the
// fence has any other number, the node starts over.
func TestFenceThatStandsElsewhere(t *testing.T) {
	t.Parallel()
	for _, off := range []int64{-2, 1, 5} {
		r := newRig(t)
		r.start(key("a"), "a")
		r.flush()
		number := r.commit.Number
		r.fail(store.Unknown)
		r.refence = nil
		r.l.FinishRefence(r.now, 99, number+off, nil)
		r.flush()
		if r.dead == nil {
			t.Errorf("a fence at batch %d while %d is in flight: the lane goes on", number+off, number)
		}
	}
}

// The lane cannot move its fence for a while. It tries again, and does nothing else until the fence
// has moved.
func TestFenceCannotBeMoved(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start(key("a"), "a")
	r.flush()
	r.fail(store.Unknown)

	for range 10 {
		r.refence = nil
		r.l.FinishRefence(r.now, 0, 0, store.Errorf(store.Away, "refence", "injected"))
		r.flush()
		if r.commit != nil || r.refence != nil {
			t.Fatal("no pause")
		}
		r.now = r.l.Wake()
		r.flush()
		if r.refence == nil || r.commit != nil {
			t.Fatal("the fence is not moved again")
		}
	}

	r.settle()
	r.wantAnswer("a", "")
}
