package engine

import (
	"context"
	"testing"

	"github.com/perdure/perdure/internal/engine/lane"
)

// A lane has two goroutines, and one of them runs the loop. If the store is a database server and
// the loop has many workers and callers to wake, that goroutine commits the batch first, and the
// other goroutine takes over the loop. If the loop has few to wake, or if the store is in this
// process, the other goroutine commits.
func TestWhoCommits(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		remote  bool
		answers int
		itself  bool
	}{{true, many, true}, {true, many - 1, false}, {false, many, false}} {
		s := &laneShell{remote: x.remote, baton: make(chan *laneLoop, 1), errands: make(chan func(context.Context), 1)}
		l := &laneLoop{laneShell: s, out: lane.Output{Answers: make([]lane.Answer, x.answers)}}
		done := false
		errand := func(context.Context) {
			done = true
			if len(s.baton) != 1 {
				t.Error("the loop stood still during the commit")
			}
		}

		left := l.pass(t.Context(), errand)
		if left != x.itself || done != x.itself || (len(s.baton) == 1) != x.itself || (len(s.errands) == 1) == x.itself {
			t.Errorf("%+v: left the loop %v, committed %v, %d loops and %d errands wait", x, left, done, len(s.baton), len(s.errands))
		}
		if x.itself && !l.passed {
			t.Error("the next goroutine would run another round before it carries out the output")
		}
	}
}

// A goroutine that is free when the loop ends does the last errand before it ends itself.
func TestLastErrandIsDone(t *testing.T) {
	t.Parallel()
	for range 100 { // if several channels are ready, select chooses one at random
		s := &laneShell{baton: make(chan *laneLoop, 1), errands: make(chan func(context.Context), 1), ended: make(chan struct{})}
		done := false
		s.errands <- func(context.Context) { done = true }
		close(s.ended)
		if s.serve(t.Context()); !done {
			t.Fatal("an errand was left behind")
		}
	}
}
