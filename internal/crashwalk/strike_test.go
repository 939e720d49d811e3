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
	// fault is what happens to the call. k varies what may vary.
	fault func(m faultstore.Method, k int) faultstore.Fault
	// commits walks over commits only.
	commits bool
	// crash tells that the process dies: at the call itself, or at the next one when next is set.
	crash, next bool
	// refuses tells that an address is quarantined for a while although there is nothing wrong with
	// it.
	refuses bool
	// span makes all calls go wrong from the first one on, for so long.
	span time.Duration
	// restarts tells that the node may lose its lease without having died, so that it begins anew
	// and repeats what it was doing.
	restarts bool
}

func always(k faultstore.Kind) func(faultstore.Method, int) faultstore.Fault {
	return func(faultstore.Method, int) faultstore.Fault { return faultstore.Fault{Kind: k} }
}

func late(k faultstore.Kind, after func(k int) int) func(faultstore.Method, int) faultstore.Fault {
	return func(_ faultstore.Method, n int) faultstore.Fault { return faultstore.Fault{Kind: k, After: after(n)} }
}

// mainKinds is how many of the kinds, the first ones, go over every call whatever it costs.
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

	// A commit that was never sent, and one that the store refuses without a reason.
	{name: "away", commits: true, fault: func(faultstore.Method, int) faultstore.Fault {
		return faultstore.Fault{Kind: faultstore.FailBefore, Class: store.Away}
	}},
	{name: "refused", commits: true, refuses: true, fault: func(faultstore.Method, int) faultstore.Fault {
		return faultstore.Fault{Kind: faultstore.FailBefore, Class: store.Refused}
	}},
	// Commits whose reply is lost while they are in flight. They land before the next call, which
	// usually moves the fence. Or they land after it and must have no effect. Or they hold the row
	// of the fence.
	{name: "late early", commits: true, fault: late(faultstore.Late, func(int) int { return 1 })},
	{name: "late", commits: true, fault: late(faultstore.Late, func(k int) int { return 2 + k%5 })},
	{name: "late begun", commits: true, fault: late(faultstore.LateBegun, func(int) int { return 0 })},
	// The same, and the process dies before it can do anything about it: they land somewhere in the
	// takeover, or after it.
	{name: "late and crash", commits: true, crash: true, next: true, fault: late(faultstore.Late, func(k int) int { return 1 + 7*k%24 })},
	{name: "late begun and crash", commits: true, crash: true, next: true, fault: late(faultstore.LateBegun, func(int) int { return 0 })},
	// The store is away for longer than a lease; and it does everything for a while, but all its
	// answers are lost.
	{name: "outage", span: 6 * time.Second, fault: func(faultstore.Method, int) faultstore.Fault {
		return faultstore.Fault{Kind: faultstore.FailBefore, Class: store.Away}
	}},
	{name: "answers lost", span: 2 * time.Second, restarts: true, fault: always(faultstore.FailAfter)},
}

// strike is the plan of one run: one fault at one call, counted over all processes.
type strike struct {
	kind *kind // nil for none
	at   int
	// then is at which call after the fault another process dies; 0 for none.
	then int

	mu    sync.Mutex
	calls int // that the kind walks over
	total int
	since int // the fault
	hit   bool
	until time.Time         // the end of the span
	met   faultstore.Method // what was hit
	of    string            // which batch it was
	where int               // which of all calls it was
}

// Next is asked by the wrappers of all processes.
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

// after is what happens to calls after the one that was hit.
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

// count is how many calls there were so far.
func (s *strike) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// happened reports whether the fault has.
func (s *strike) happened() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hit
}

// String says what was to happen where.
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
