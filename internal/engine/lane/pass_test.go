package lane_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// newTalk returns a lane with a worker and with entities in memory.
func newTalk(t *testing.T, change ...func(*lane.Config)) *rig {
	t.Helper()
	r := newRig(t, change...)
	r.join(1)
	r.joinEntities(2)
	for _, k := range []string{"a", "b"} {
		r.operation(ledger(k), "add", "0", "warm "+k)
	}
	r.work()
	return r
}

// costs returns how many commits something takes.
func (r *rig) costs(do func()) int {
	r.t.Helper()
	before := r.commits
	do()
	r.settle()
	for len(r.operations) > 0 {
		r.serve(len(r.operations)) // all of them return before the next commit
		r.settle()
	}
	return r.commits - before
}

func lockOf(id string, keys ...string) model.Command {
	var locks []model.Address
	for _, k := range keys {
		locks = append(locks, ledger(k))
	}
	return model.Command{Kind: model.CommandLock, Event: model.Event{ID: id, Locks: locks}}
}

func unlock(section string) model.Command {
	return model.Command{Kind: model.CommandUnlock, Event: model.Event{Section: section}}
}

// Messages between shards of one lane need no commits of their own.
func TestCommitsInsideALane(t *testing.T) {
	t.Parallel()
	r := newTalk(t)
	from, to := in(0, 0), in(1, 0)
	r.startRun(from)
	r.startRun(to)

	want := func(what string, most int, commands ...model.Command) {
		t.Helper()
		if n := r.costs(func() { r.turn(from, commandTurn(commands...)) }); n > most {
			t.Errorf("%s: %d commits, want at most %d", what, n, most)
		}
	}
	want("a call", 2, callOf("c1", "", "1", ledger("a")))
	want("two calls", 2, callOf("c2", "", "2", ledger("a")), callOf("c3", "", "3", ledger("b")))
	want("a signal", 1, signalTo(to, "m1", "1"))

	pass := callOf("c4", "", "4", ledger("a"))
	pass.Message.Name = "pass b"
	want("a call of an entity that calls another", 3, pass)
	r.wantState(ledger("b"), "0;3;4';")

	// This section takes two locks, makes two calls, and releases the locks. Together with the
	// start of the run, it takes seven commits.
	want("two locks", 1, lockOf("s", "a", "b"))
	want("a call in a section", 2, callOf("c5", "s", "5", ledger("a")))
	want("a call in a section", 2, callOf("c6", "s", "6", ledger("b")))
	want("the end of a section", 1, unlock("s"))
	r.wantState(ledger("a"), "0;1;2;4;5;")
	r.wantState(ledger("b"), "0;3;4';6;")
}

// A parent learns the outcome of its child from the commit that ends the child.
func TestChildEndsInOneCommit(t *testing.T) {
	t.Parallel()
	r := newTalk(t)
	parent, child := in(0, 0), in(1, 1)
	r.startRun(parent)
	r.turn(parent, commandTurn(model.Command{
		Kind: model.CommandStartChild, Event: model.Event{ID: "c", Target: child},
	}))
	r.settle()

	n := r.costs(func() { r.turn(child, model.Turn{Close: &model.Close{Status: model.Completed}}) })
	if h := r.events(parent); n != 1 || h[len(h)-1] != "child_closed c" {
		t.Errorf("%d commits, history %v", n, r.events(parent))
	}
}

// A view that a workflow calls waits for the commit that sends it.
func TestPassedViewWaitsForItsCommit(t *testing.T) {
	t.Parallel()
	r := newTalk(t)
	from := in(0, 0)
	r.startRun(from)
	view := callOf("v", "", "", ledger("a"))
	view.Message.Name = "read"
	r.turn(from, commandTurn(view))
	r.flush()
	if len(r.operations) != 0 {
		t.Fatal("a view begins before it is durable")
	}
	r.work()
	if h := r.events(from); h[len(h)-1] != "answered v" {
		t.Errorf("the view is not answered: %v", h)
	}
}

// A call that waits for a lock begins after the release of the lock is durable.
func TestReleaseLetsCallsBeginAfterItsCommit(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"section", "operator"} {
		t.Run(ends, func(t *testing.T) {
			t.Parallel()
			r := newTalk(t)
			from := in(0, 0)
			r.startRun(from)
			r.turn(from, commandTurn(lockOf("s", "a")))
			r.settle()
			r.operation(ledger("a"), "add", "1", "waits")
			r.settle()

			if ends == "section" {
				r.turn(from, commandTurn(unlock("s")))
			} else {
				r.l.Deliver(r.now, &model.Message{Kind: model.MessageUnlock, To: ledger("a"), RequestID: "u"}, true, "unlock")
			}
			r.flush()
			if r.commit == nil || len(r.operations) != 0 {
				t.Fatalf("%d hand-overs before the release is durable", len(r.operations))
			}
			r.commitNow()
			if len(r.operations) != 1 {
				t.Fatalf("%d hand-overs after the release", len(r.operations))
			}
			r.work()
			r.wantState(ledger("a"), "0;1;")
		})
	}
}

// A section releases a lock. The next section in the line, which another node has ended, releases
// it too. Only the second release is durable. A call that waited for both sections begins only when
// the first release is durable too.
func TestReleaseOfAnotherNodeBehindOneThatIsNotDurable(t *testing.T) {
	t.Parallel()
	r, f := foreignRig(t)
	r.join(1)
	r.joinEntities(2)
	k := 0
	for ledger(fmt.Sprint(k)).Shard(shards) == f.shard {
		k++
	}
	name := fmt.Sprint(k)
	a := ledger(name)
	r.operation(a, "add", "0", "warm")
	r.work()

	from := in(0, 0)
	r.startRun(from)
	r.turn(from, commandTurn(lockOf("s", name)))
	r.settle()
	section := model.Link{Address: in(3, 0), Run: r.newRun(), ID: "x"}
	r.l.Messages(f.send(model.Message{Kind: model.MessageLock, To: a, From: section}))
	r.settle()
	r.operation(a, "add", "1", "waits")
	r.settle()

	r.signal(from, "s", "signal") // a commit is in flight, so the next batch has both releases
	r.flush()
	r.turn(from, commandTurn(unlock("s")))
	r.l.Messages(f.send(model.Message{Kind: model.MessageRelease, To: a, From: section}))
	r.commitNow()
	if r.commit == nil || len(r.commit.Cursors) == 0 || len(r.operations) != 0 {
		t.Fatalf("in flight: %+v; %d hand-overs before the first release is durable", r.commit, len(r.operations))
	}
	r.settle()
	if len(r.operations) != 1 {
		t.Fatalf("%d hand-overs after the release", len(r.operations))
	}
	r.work()
	r.wantState(a, "0;1;")
}

// A message does not overtake an earlier message that was written to the store. This holds while
// the earlier message is in flight and while it waits for its address.
func TestNoMessageOvertakes(t *testing.T) {
	t.Parallel()
	r := newTalk(t, func(c *lane.Config) { c.PerKey = 1 })
	from, to := in(0, 0), in(1, 0)
	r.startRun(from)
	r.startRun(to)
	r.turn(from, commandTurn(signalTo(to, "m1", "1"), signalTo(to, "m2", "2")))
	r.flush()
	if len(r.commit.Passed) == 0 || len(r.commit.Messages) == 0 {
		t.Fatalf("%d messages are passed, %d are written: this test proves nothing", len(r.commit.Passed), len(r.commit.Messages))
	}
	r.turn(from, commandTurn(signalTo(to, "m3", "3"), signalTo(to, "m4", "4")))
	r.commitNow()
	r.turn(from, commandTurn(signalTo(to, "m5", "5")))
	r.settle()
	r.wantEvents(to, receivedNames(1, 5)...)
}

// A message does not overtake an earlier message that is committed and waits behind a message to
// another address.
func TestNoMessageOvertakesALine(t *testing.T) {
	t.Parallel()
	r := newTalk(t)
	from, to, absent := in(0, 0), in(1, 0), in(1, 1)
	r.startRun(from)
	r.startRun(to)
	r.turn(from, commandTurn(signalTo(absent, "m0", "0"), signalTo(to, "m1", "1")))
	r.flush()
	r.commitNow()
	if len(r.loads) == 0 {
		t.Fatal("the lane reads nothing: this test proves nothing")
	}
	r.turn(from, commandTurn(signalTo(to, "m2", "2")))
	r.flush()
	r.settle()
	r.wantEvents(to, receivedNames(1, 2)...)
}

// The lane passes no message to a shard that it is giving up.
func TestNothingIsPassedToAShardThatIsGivenUp(t *testing.T) {
	t.Parallel()
	r := newTalk(t)
	from, to := in(0, 0), in(1, 0)
	r.startRun(from)
	r.runsStep(to)
	r.giveUp(1)
	r.turn(from, commandTurn(signalTo(to, "m1", "1")))
	r.flush()
	if r.commit == nil || len(r.commit.Passed) > 0 || len(r.commit.Messages) != 1 {
		t.Errorf("in flight: %+v", r.commit)
	}
}

// The store refuses a change that a passed message made. Only the receiver of the message is
// quarantined.
func TestRefusedBatchWithPassedMessages(t *testing.T) {
	t.Parallel()
	r := newTalk(t)
	from, to := in(0, 0), in(1, 0)
	r.startRun(from)
	r.startRun(to)
	r.refuse = poison("bad")
	r.turn(from, commandTurn(signalTo(to, "m1", "bad"), signalTo(in(1, 1), "m2", "absent")))
	r.settle()
	if why, _ := r.l.Explain(from); slices.ContainsFunc(why, func(w model.Reason) bool { return w.Code == model.WaitPoison }) {
		t.Errorf("the sender is quarantined: %v", why)
	}
	if why, _ := r.l.Explain(to); len(why) == 0 || why[0].Code != model.WaitPoison {
		t.Errorf("the receiver is not quarantined: %v", why)
	}
	r.turn(from, commandTurn(step("next")))
	r.settle()

	r.refuse = nil
	r.now = r.now.Add(time.Hour)
	r.l.MailWaits()
	r.settle()
	r.wantEvents(to, "signal_received bad")

	// No message is on its way now, so the lane passes the next message on again.
	if n := r.costs(func() { r.turn(from, commandTurn(signalTo(to, "m3", "good"))) }); n != 1 {
		t.Errorf("a signal is %d commits", n)
	}
}

// The store takes too long for a batch. The lane applies its input again without passing messages
// on.
func TestLateBatchWithPassedMessages(t *testing.T) {
	t.Parallel()
	r := newTalk(t)
	from, to := in(0, 0), in(1, 0)
	r.startRun(from)
	r.startRun(to)
	r.turn(from, commandTurn(signalTo(to, "m1", "1")))
	r.flush()

	for range 20 {
		if r.commit == nil {
			r.now = max(r.now, r.l.Wake())
			r.flush()
			continue
		}
		if len(r.commit.Passed) == 0 {
			break
		}
		r.fail(store.Retryable)
	}
	if r.commit == nil || len(r.commit.Passed) > 0 || len(r.commit.Messages) != 1 {
		for len(r.loads) > 0 {
			r.read()
		}
	}
	if r.commit == nil || len(r.commit.Passed) > 0 || len(r.commit.Messages) != 1 {
		t.Fatalf("in flight: %+v", r.commit)
	}
	r.settle()
	r.wantEvents(to, "signal_received 1")
}
