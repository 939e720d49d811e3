package crashwalk_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/crash"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
)

// kind is a way in which a call goes wrong.
type kind struct {
	name string
	// fault returns the fault of the call. Different values of k give different variants of the
	// fault.
	fault func(m faultstore.Method, k int) faultstore.Fault
	// commits means that the walk hits commits only.
	commits bool
	// crash means that the process dies: at the call, or at the next call if next is set.
	crash, next bool
	// refuses means that an address is quarantined for a while although its rows are good.
	refuses bool
	// span is for how long all calls fail, starting with the call that is hit.
	span time.Duration
	// restarts means that the node may lose its lease without having died, so that it starts again
	// and repeats its work.
	restarts bool
}

func always(k faultstore.Kind) func(faultstore.Method, int) faultstore.Fault {
	return func(faultstore.Method, int) faultstore.Fault { return faultstore.Fault{Kind: k} }
}

func late(k faultstore.Kind, after func(k int) int) func(faultstore.Method, int) faultstore.Fault {
	return func(_ faultstore.Method, n int) faultstore.Fault { return faultstore.Fault{Kind: k, After: after(n)} }
}

// mainKinds is the number of main kinds, which are first in the list. A walk with a main kind hits
// every call of a small scenario, except in short mode.
const mainKinds = 4

// kinds are the faults of a walk.
var kinds = []kind{
	{name: "fail before", fault: func(m faultstore.Method, _ int) faultstore.Fault {
		if m == faultstore.Commit {
			return faultstore.Fault{Kind: faultstore.FailBefore, Class: store.Unknown}
		}
		return faultstore.Fault{Kind: faultstore.FailBefore, Class: store.Away}
	}},
	{name: "fail after", fault: always(faultstore.FailAfter)},
	{name: "crash before", fault: always(faultstore.CrashBefore), crash: true},
	{name: "crash after", fault: always(faultstore.CrashAfter), crash: true},

	// Two kinds: a commit that was never sent, and a commit that the store refuses without a
	// reason.
	{name: "away", commits: true, fault: func(faultstore.Method, int) faultstore.Fault {
		return faultstore.Fault{Kind: faultstore.FailBefore, Class: store.Away}
	}},
	{name: "refused", commits: true, refuses: true, fault: func(faultstore.Method, int) faultstore.Fault {
		return faultstore.Fault{Kind: faultstore.FailBefore, Class: store.Refused}
	}},
	// These are three kinds of commits that are still in flight when the process gives up on them.
	// A commit may land before the next call, which usually moves the fence. It may land after that
	// call, and must have no effect. Or it may hold the row of the fence, so that the next call
	// waits for the commit.
	{name: "late early", commits: true, fault: late(faultstore.Late, func(int) int { return 1 })},
	{name: "late", commits: true, fault: late(faultstore.Late, func(k int) int { return 2 + k%5 })},
	{name: "late begun", commits: true, fault: late(faultstore.LateBegun, func(int) int { return 0 })},
	// These are the same faults, but the process dies before it can react. The commits land during
	// the takeover or after it.
	{name: "late and crash", commits: true, crash: true, next: true, fault: late(faultstore.Late, func(k int) int { return 1 + 7*k%24 })},
	{name: "late begun and crash", commits: true, crash: true, next: true, fault: late(faultstore.LateBegun, func(int) int { return 0 })},
	// Two kinds: the store is away for longer than a lease, or it executes every call for a while
	// but all its answers are lost.
	{name: "outage", span: 6 * time.Second, fault: func(faultstore.Method, int) faultstore.Fault {
		return faultstore.Fault{Kind: faultstore.FailBefore, Class: store.Away}
	}},
	{name: "answers lost", span: 2 * time.Second, restarts: true, fault: always(faultstore.FailAfter)},
}

// strike is the plan of one run: one fault at one call, counted over all processes.
type strike struct {
	kind *kind // nil for none
	at   int
	// then is the number of calls from the fault to the death of another process; 0 means that no
	// other process dies.
	then int

	mu    sync.Mutex
	calls int // calls of the kind's methods
	total int
	since int // calls since the fault
	hit   bool
	until time.Time         // the end of the span
	met   faultstore.Method // the method that was hit
	of    string            // the batch that was hit
	where int               // the number of the call that was hit
}

// Next returns the fault of a call. The wrappers of all processes call it.
func (s *strike) Next(c faultstore.Call) faultstore.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total++

	switch {
	case s.kind == nil:
		return faultstore.Fault{}
	case s.hit:
		return s.after(c)
	case s.kind.commits && c.Method != faultstore.Commit:
		return faultstore.Fault{}
	}

	if s.calls++; s.calls != s.at {
		return faultstore.Fault{}
	}
	s.hit, s.met, s.where, s.until = true, c.Method, s.total, time.Now().Add(s.kind.span)
	if c.Batch != nil {
		s.of = " " + crash.Describe(c.Batch)
	}

	return s.kind.fault(c.Method, s.at)
}

// after returns the fault of a call that comes after the call that was hit.
func (s *strike) after(c faultstore.Call) faultstore.Fault {
	s.since++
	switch {
	case s.since == 1 && s.kind.next:
		return faultstore.Fault{Kind: faultstore.CrashBefore}
	case s.since == s.then:
		return faultstore.Fault{Kind: []faultstore.Kind{faultstore.CrashBefore, faultstore.CrashAfter}[s.then%2]}
	case time.Now().Before(s.until):
		return s.kind.fault(c.Method, s.at)
	}
	return faultstore.Fault{}
}

// count returns the number of calls so far.
func (s *strike) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// hasHappened reports whether the fault has happened.
func (s *strike) hasHappened() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hit
}

// String describes the planned fault.
func (s *strike) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.kind == nil:
		return "no fault"
	case !s.hit:
		return fmt.Sprintf("%s at %d, which did not happen", s.kind.name, s.at)
	}
	second := ""
	if s.then > 0 {
		second = fmt.Sprintf(", and another crash %d calls later", s.then)
	}
	return fmt.Sprintf("%s at %d: call %d, %s%s%s", s.kind.name, s.at, s.where, s.met, s.of, second)
}
