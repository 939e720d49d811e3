package lane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/engine/lane"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// wantCrowded checks that the lane refused a request because too many requests wait. The error must
// say how many wait, for how long, and why.
func (r *rig) wantCrowded(token any, says ...string) {
	r.t.Helper()
	r.wantAnswer(token, "exhausted")
	for _, s := range says {
		if err := r.answers[token].Err; err == nil || !strings.Contains(err.Error(), s) {
			r.t.Errorf("%v is told %v, want it to say %q", token, err, s)
		}
	}
}

// line sends n requests that wait for an address.
func (r *rig) line(a model.Address, n int) {
	for i := range n {
		r.signal(a, fmt.Sprint("s", i), fmt.Sprint(a.Key, i))
	}
}

// The read of an execution takes seconds. The lane refuses further requests behind that read, so
// the line of requests stops growing. In the end the lane serves the first requests.
func TestLineIsRefusedByAge(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	hot, calm := key("hot"), key("calm")
	r.startRun(hot)
	r.startRun(calm)

	for i := range 100 {
		r.send(request(hot, "s", fmt.Sprint("hot", i)), fmt.Sprint("hot", i))
	}
	for i := range 3 {
		r.send(request(calm, "s", fmt.Sprint("calm", i)), fmt.Sprint("calm", i))
	}
	r.flush() // the lane looks up answers to the first requests, and that read takes long
	r.now = r.now.Add(4 * time.Second)
	r.signal(hot, "early", "early")
	r.flush()
	r.wantSilence("early")

	r.now = r.now.Add(2 * time.Second)
	r.signal(hot, "late", "late")
	r.signal(calm, "late", "patient")
	r.flush()
	r.wantCrowded("late", "101 requests already wait", "the first one for 6s", "being read")
	r.wantSilence("patient")
	r.settle()

	for i := range 100 {
		r.wantAnswer(fmt.Sprint("hot", i), "")
	}
	r.wantAnswer("early", "")
	r.wantAnswer("patient", "")
	r.signal(hot, "after", "after")
	r.settle()
	r.wantAnswer("after", "")
	if r.l.PendingBytes() != 0 {
		t.Errorf("%d bytes are held", r.l.PendingBytes())
	}
}

// While the store takes no commit, the lane refuses further requests and says so in the reason. It
// also refuses requests for a key that is too busy.
func TestLineIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.PerKey = 4 })
	r.join(1)
	a := key("a")
	r.startRun(a)
	r.line(a, 20)
	r.flush()
	r.now = r.now.Add(6 * time.Second)
	r.signal(a, "x", "hot")
	r.wantCrowded("hot", "more requests come than commits can take")
	r.fail(store.Away)
	r.signal(a, "x", "away")
	r.wantCrowded("away", "the store has not taken the last commit")
	r.settle()
	r.pass(2 * time.Second)
	for i := range 20 {
		r.wantAnswer(fmt.Sprint("a", i), "")
	}
}

// Large requests for one address do not take the room of all others.
func TestLineIsRefusedByBytes(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *lane.Config) { c.MaxBytes, c.PerKey = 1<<20, 4 })
	a := key("a")
	r.startRun(a)
	for i := range 40 {
		r.signalLarge(a, "s", 20<<10, i)
	}
	r.flush()
	r.wantCrowded(39, "requests already wait")
	if r.l.Full() {
		t.Error("one address fills the lane")
	}
	r.settle()
}

// Applied inputs may wait forever: an update that the code does not answer is not in the backlog of
// the lane.
func TestUnansweredUpdatesAreNoLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(1)
	a := key("a")
	r.startRun(a)
	for i := range 200 {
		r.update(a, fmt.Sprint("u", i), fmt.Sprint("u", i))
	}
	r.settle()
	r.pass(time.Hour)
	r.update(a, "one more", "one more")
	r.settle()
	r.wantSilence("u0", "one more")
}

// A call of an entity does not return. The lane refuses further calls of clients behind it, but not
// one-way calls, views and calls of other keys. In the end the entity serves the calls in the line.
func TestLineOfAnEntityIsRefusedByAge(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)
	hot, calm := ledger("hot"), ledger("calm")

	for i := range 100 {
		r.operation(hot, "add", "1", fmt.Sprint("hot", i))
	}
	r.operation(calm, "add", "1", "calm")
	r.settle() // the worker has the first calls, and does not report
	r.pass(29 * time.Second)
	r.operation(hot, "add", "1", "early")
	r.settle()
	r.wantSilence("early")

	r.pass(2 * time.Second)
	r.operation(hot, "add", "1", "late")
	r.operation(hot, "add", "1", "sent", oneWay)
	r.operation(hot, "read", "", "view")
	r.operation(calm, "add", "1", "patient")
	r.settle()
	r.wantCrowded("late", "101 calls", "the first one for 31s", "faster than they run")
	r.wantAnswer("sent", "")

	for _, token := range []string{"view", "patient"} {
		r.wantSilence(token)
	}
	r.work()
	for i := range 100 {
		r.wantAnswer(fmt.Sprint("hot", i), "")
	}

	for _, token := range []string{"early", "view", "patient"} {
		r.wantAnswer(token, "")
	}
	r.operation(hot, "add", "1", "after")
	r.work()
	r.wantAnswer("after", "")
}

// Calls of a service that are running form no line: other calls run at the same time.
func TestCallsOfAServiceAreNoLine(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.l.JoinEntities(r.now, 1, model.EntityOffer{Tenant: "default", Types: []model.EntityType{{Type: "service:echo"}}}, nil)
	r.take()
	a := echo("a")
	for i := range 100 {
		r.operation(a, "echo", "1", fmt.Sprint("long", i), brief)
	}
	r.settle()
	r.pass(time.Minute)
	r.operation(a, "echo", "1", "new", brief)
	r.work()
	r.wantAnswer("new", "")
}
