package lane_test

import (
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

func waitsAhead(c *lane.Config) { c.AheadWait = time.Millisecond }

// A worker runs the call of a workflow before the batch with the call is committed. Call and result
// share a commit, and the call needs no row.
func TestCallRunsAhead(t *testing.T) {
	t.Parallel()
	r := newTalk(t, waitsAhead)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, commandTurn(callOf("c", "", "1", ledger("a"))))
	r.flush()
	if r.commit != nil || len(r.operations) != 1 {
		t.Fatalf("%d hand-overs, in flight %+v: want one hand-over, and a batch that waits for it", len(r.operations), r.commit)
	}

	r.serve(1)
	r.flush()
	if b := r.commit; b == nil || len(b.Mailbox)+len(b.Taken) != 0 || len(b.Entities) != 1 || len(b.Events) != 2 {
		t.Fatalf("in flight: %+v, want the call and its result", b)
	}
	r.settle()
	r.wantEvents(from, "sent c", "answered c")
	r.wantState(ledger("a"), "0;1;")
}

// The batch does not wait for a call that takes long, nor for the next call of the same entity
// type. When a call is quick again, the next batch waits.
func TestBatchDoesNotWaitForSlowCalls(t *testing.T) {
	t.Parallel()
	r := newTalk(t, waitsAhead)
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, commandTurn(callOf("c1", "", "1", ledger("a"))))
	r.flush()
	r.pass(time.Millisecond)
	r.wantEvents(from, "sent c1")
	if len(r.operations) != 1 {
		t.Fatalf("%d hand-overs", len(r.operations))
	}
	r.work()

	r.turn(from, commandTurn(callOf("c2", "", "2", ledger("b"))))
	r.flush()
	if r.commit == nil || len(r.commit.Mailbox) != 1 {
		t.Fatalf("in flight: %+v, want the call", r.commit)
	}
	r.work()

	if n := r.costs(func() { r.turn(from, commandTurn(callOf("c3", "", "3", ledger("a")))) }); n != 1 {
		t.Errorf("a call costs %d commits", n)
	}
	r.wantState(ledger("a"), "0;1;3;")
	r.wantState(ledger("b"), "0;2;")
}

// A batch that has no room for further inputs does not wait for calls.
func TestFullBatchDoesNotWaitForCalls(t *testing.T) {
	t.Parallel()
	r := newTalk(t, waitsAhead, func(c *lane.Config) { c.MaxBatchRows = 2 })
	from := in(0, 0)
	r.startRun(from)
	r.turn(from, commandTurn(callOf("c", "", "1", ledger("a"))))
	r.flush()
	if r.commit == nil || len(r.operations) != 1 {
		t.Fatalf("%d hand-overs, in flight %+v", len(r.operations), r.commit)
	}
	r.work()
	r.wantState(ledger("a"), "0;1;")
}

// The store does not take a batch with a call that ran ahead and with its result. The call takes
// effect once, and its caller gets one answer.
func TestBatchWithCallThatRanAheadFails(t *testing.T) {
	t.Parallel()
	for _, class := range []store.Class{store.Refused, store.Retryable, store.Unknown, store.Away} {
		for _, served := range []bool{false, true} {
			t.Run(class.String(), func(t *testing.T) {
				t.Parallel()
				r := newTalk(t, waitsAhead)
				from := in(0, 0)
				r.startRun(from)
				r.turn(from, commandTurn(callOf("c1", "", "1", ledger("a")), callOf("c2", "", "2", ledger("b"))))
				r.flush()
				if served {
					r.serve(2)
				}

				r.now = r.now.Add(time.Millisecond)
				r.flush()
				if r.commit == nil || len(r.commit.Passed) == 0 {
					t.Fatalf("in flight: %+v", r.commit)
				}

				r.fail(class)
				r.pass(time.Minute)
				r.work()
				r.wantEvents(from, "sent c1", "sent c2", "answered c1", "answered c2")
				r.wantState(ledger("a"), "0;1;")
				r.wantState(ledger("b"), "0;2;")
			})
		}
	}
}

// The store refuses the result of a call that ran ahead. Only the entity is quarantined, and the
// call waits there.
func TestResultOfCallThatRanAheadIsRefused(t *testing.T) {
	t.Parallel()
	r := newTalk(t, waitsAhead)
	from := in(0, 0)
	r.startRun(from)
	r.refuse = func(b *store.Batch) error {
		if slices.ContainsFunc(b.Entities, func(row store.EntityRow) bool { return row.Entity.Address == ledger("a") }) {
			return store.Errorf(store.Refused, "commit", "the row is poison")
		}
		return nil
	}
	r.turn(from, commandTurn(callOf("c1", "", "1", ledger("a")), callOf("c2", "", "2", ledger("b"))))
	r.work()
	if why, _ := r.l.Explain(ledger("a")); len(why) == 0 || why[0].Code != model.WaitPoison {
		t.Errorf("the entity is not quarantined: %v", why)
	}
	r.wantEvents(from, "sent c1", "sent c2", "answered c2")

	r.refuse = nil
	r.pass(time.Hour)
	r.work()
	r.wantEvents(from, "sent c1", "sent c2", "answered c2", "answered c1")
	r.wantState(ledger("a"), "0;1;")
	r.wantState(ledger("b"), "0;2;")
}

// These calls wait for the commit that sends them: a call of a service, and any call after the last
// owner has died, because the call may have killed that owner.
func TestCallsThatDoNotRunAhead(t *testing.T) {
	t.Parallel()
	a := ledger("a")
	rpc := callOf("c", "", "1", echo("a"))
	rpc.Message.Name = "echo"

	for name, c := range map[string]struct {
		call  model.Command
		after func(*rig)
	}{
		"service":       {rpc, func(*rig) {}},
		"after a crash": {callOf("c", "", "1", a), func(r *rig) { r.crash(); r.join(3); r.operation(a, "add", "", "warm again"); r.work() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTalk(t, waitsAhead)
			r.operation(echo("a"), "echo", "0", "warm service")
			r.work()
			from := in(0, 0)
			r.startRun(from)
			c.after(r)
			r.settle()

			r.turn(from, commandTurn(c.call))
			r.flush()
			if r.commit == nil || len(r.commit.Passed) != 1 || len(r.operations) != 0 {
				t.Fatalf("%d hand-overs before the call is durable; in flight: %+v", len(r.operations), r.commit)
			}
			r.commitNow()
			if len(r.operations) != 1 {
				t.Fatalf("%d hand-overs after the commit", len(r.operations))
			}
			r.work()
			r.wantEvents(from, "sent c", "answered c")
		})
	}
}

// A call that comes after a passed call waits behind it, even if the passed call cannot run ahead.
func TestLaterCallWaitsBehindAPassedCall(t *testing.T) {
	t.Parallel()
	r := newTalk(t, waitsAhead)
	from, a := in(0, 0), ledger("a")
	r.startRun(from)
	r.crash()
	r.join(3)
	r.operation(a, "add", "1", "warm again")
	r.work()

	r.turn(from, commandTurn(callOf("c", "", "2", a)))
	r.flush()
	r.operation(a, "add", "3", "later")
	if r.commit == nil || len(r.commit.Passed) != 1 || len(r.operations) != 0 {
		t.Fatalf("%d hand-overs before the call is durable; in flight: %+v", len(r.operations), r.commit)
	}
	r.work()
	r.wantState(a, "0;1;2;3;")
}

// A call may have killed the last owner. It waits for the commit that sends it, so that the next
// owner finds it in the mailbox. Otherwise the call could kill every owner, one after the other. A
// run that had started before the crash may repeat a long step before it repeats the call, so its
// calls wait later, too. Calls of other runs wait only for a while.
func TestCallsAfterACrash(t *testing.T) {
	t.Parallel()
	r := newTalk(t, waitsAhead)
	old, a := in(0, 0), ledger("a")
	r.startRun(old)
	r.crash()
	r.join(3)
	r.operation(a, "add", "1", "warm again")
	r.work()
	r.pass(time.Second)
	call := func(from model.Address, input string, waits bool) {
		t.Helper()
		r.turn(from, commandTurn(callOf("c", "", input, a)))
		r.flush()
		if waits {
			if r.commit == nil || len(r.commit.Mailbox) != 1 || len(r.operations) != 0 {
				t.Fatalf("%s: %d hand-overs before the call is durable; in flight: %+v", input, len(r.operations), r.commit)
			}
			r.commitNow()
		}
		r.wantMaking(input)
		r.work()
	}

	early, late := in(0, 1), in(0, 2)
	r.startRun(early)
	call(early, "early", true)
	r.pass(time.Hour)
	r.operation(a, "add", "2", "still warm")
	r.work()
	call(old, "old", true)
	r.startRun(late)
	call(late, "late", false)
	r.wantState(a, "0;1;early;2;old;late;")
}

// A message that cannot be read is behind a message that the open batch consumes, so the lane moves
// it aside after this batch. The batch does not wait for a call that runs ahead. Otherwise the lane
// would try to move the message aside all the time.
func TestBatchBeforeAnUnreadableMessageDoesNotWaitForCalls(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t, waitsAhead)
	r.join(1)
	r.joinEntities(2)
	from, to := in(0, 0), ledger("a")
	r.operation(to, "add", "0", "first")
	r.work()
	r.startRun(from)
	r.turn(from, commandTurn(callOf("c", "", "1", to)))
	r.flush()
	if r.commit != nil || len(r.operations) != 1 {
		t.Fatalf("%d hand-overs, in flight %+v: want one hand-over, and a batch that waits for it", len(r.operations), r.commit)
	}

	s := signals(from, 1, 1)
	f.sendDamaged(0, &s[0], nil)
	r.l.MailWaits()
	r.flush()
	r.read()
	if r.commit == nil {
		t.Errorf("no batch is in flight, and the lane wants to be woken at %d, now is %d", r.l.Wake(), r.now)
	}
	r.work()
	r.wantState(to, "0;1;")
	if n := len(r.deadLetters()); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
}
