package lane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// forget ends the wait of a caller.
func (r *rig) forget(a model.Address, token any) {
	r.l.Forget(a, token)
	r.take()
}

// Two callers wait for the same request and one gives up: the other still waits, and gets the
// answer.
func TestEntityRequestSharedByTwo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("a")
	same := func(m *model.Message) { m.RequestID = "same" }
	r.operation(a, "add", "1", "first", same)
	r.settle()
	r.operation(a, "add", "1", "second", same)
	r.settle()
	r.forget(a, "first")
	r.joinEntities(1)
	r.work()
	r.wantOutput("second", "1;")
	r.wantState(a, "1;")
}

// A call without waiting callers does not run, even if the last caller that gives up is not the
// first that asked.
func TestEntityRequestForgottenByBoth(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("a")
	same := func(m *model.Message) { m.RequestID = "same" }
	r.operation(a, "add", "1", "first", same)
	r.settle()
	r.operation(a, "add", "1", "second", same)
	r.settle()
	r.forget(a, "first")
	r.forget(a, "second")
	r.joinEntities(1)
	r.work()
	r.wantState(a, "")
}

// An entity without waiting calls leaves memory, even if the caller of the last call gave up.
func TestForgottenEntityLeavesMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := ledger("a")
	r.operation(a, "add", "1", "one")
	r.operation(echo("b"), "echo", "1", "two", brief)
	r.settle()
	r.forget(a, "one")
	r.forget(echo("b"), "two")
	r.pass(2 * time.Minute)
	if n := r.l.Entries(); n != 0 {
		t.Errorf("%d entries are left in memory", n)
	}
	if n := r.l.Waiters(); n != 0 {
		t.Errorf("%d addresses are waited for", n)
	}
}

// States of idle entities do not fill the memory, however many there are.
func TestRestingEntitiesAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.joinEntities(1)

	for i := range 100 {
		r.operation(ledger(fmt.Sprint(i)), "add", strings.Repeat("x", 1<<20), i)
		r.work()
	}

	if n := r.l.Entries(); n < 10 || n > 64 {
		t.Errorf("%d states of a MiB are in memory", n)
	}
	r.operation(ledger("huge"), "add", strings.Repeat("x", 100<<20), "huge")
	r.work()
	if n := r.l.Entries(); n != 1 {
		t.Errorf("%d entities are in memory beside one that fills it", n)
	}
	r.pass(2 * time.Minute)
	if n := r.l.Entries(); n != 0 {
		t.Errorf("%d entities are left", n)
	}
}
