package perduretest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// Scenario is a program, the actions of its clients, and the checks of their results.
type Scenario[R any] struct {
	// Definitions are the program. All processes of a run serve them, one after the other.
	Definitions perdure.Group
	// Drive does what clients do, and returns values that must not depend on crashes, such as the
	// results of executions. When the process dies, Drive gets an error and returns it. After that,
	// Explore calls Drive again with the next process, because real clients repeat calls whose
	// outcome they do not know. So everything in Drive must be repeatable: give every start a key,
	// and every send a [perdure.RequestID].
	Drive func(env *Env) (R, error)
	// Check examines the outside world afterwards. It may be nil.
	Check func() error
	// MaxPoints is the largest number of points at which Explore kills the process. The default is
	// 1,000. If there are more points, Explore selects some of them, spread evenly over the
	// scenario.
	MaxPoints int
	// Config has further settings. Explore always sets Config.Once, so code is executed once, as in
	// production.
	Config Config
}

// Bounds of an exploration.
const (
	maxPoints   = 1000
	maxLives    = 10 // processes in one run
	maxFailures = 3  // points that are reported in full
)

// Explore finds out what a crash can do to a program. It runs the scenario without a crash, and
// then twice for every commit of that run: with a process that dies just before the commit, and
// with a process that dies just after the commit, before it learns that the commit succeeded.
// Executions and entities change only with commits, so other moments of death have the same effect
// on them. After the crash, another process takes over and finishes the scenario.
//
// Explore calls setup for every run. setup must create new fakes each time, so that runs do not
// affect each other. Explore reports
//
//   - a result of Drive that differs from the result without a crash, and an error of Drive or
//     Check;
//   - steps that are not idempotent. A crash can lose the outcome of a body that has run. In that
//     case the body runs again, and its effect must not happen twice. The body reports its effects
//     with [Effect]. If an effect happens more often than without a crash, the test fails;
//   - effects that did not happen, and executions that are left open, with the reason.
//
// Every point is a subtest, and the message of a failure says how to run that subtest again.
func Explore[R any](t *testing.T, setup func() Scenario[R]) {
	t.Helper()
	x := explorer[R]{setup: setup, plain: runOnce(t, setup, point{}), again: map[string]int{}}
	if x.plain.hasFailed() {
		t.Fatalf("perduretest: the scenario fails without any crash: %s\n%s", strings.Join(x.plain.problems, "\n"), x.plain.histories)
	}
	if second := runOnce(t, setup, point{}); !reflect.DeepEqual(second.result, x.plain.result) {
		t.Fatalf("perduretest: without any crash Drive returned %+v, and then %+v: let it return a value that is the same every time", x.plain.result, second.result)
	}

	began := time.Now()
	points, left := x.points()
	for _, p := range points {
		if x.failures == maxFailures {
			t.Errorf("perduretest: %d points have failed; the points from %q on were not tried", x.failures, p)
			break
		}
		t.Run(p.String(), func(t *testing.T) { x.try(t, p) })
	}

	t.Logf("perduretest: %d commits, %d crashes in %s%s", x.plain.commits, x.crashes, time.Since(began).Round(time.Millisecond), x.describeRepeated())
	if left > 0 {
		t.Logf("perduretest: %d points were left out; raise MaxPoints to try them all", left)
	}
}

// point says when a process dies: before or after the store has applied a certain commit. The zero
// point means no crash.
type point struct {
	commit int
	after  bool
}

// String returns the name of the subtest.
func (p point) String() string {
	if p.after {
		return fmt.Sprintf("crash after commit %d", p.commit)
	}
	return fmt.Sprintf("crash before commit %d", p.commit)
}

// explorer tries the points of a scenario.
type explorer[R any] struct {
	setup    func() Scenario[R]
	plain    *trial[R]
	failures int
	crashes  int
	again    map[string]int // counts the points at which a step ran again
}

// points returns the points to try, and how many points MaxPoints leaves out.
func (x *explorer[R]) points() (points []point, left int) {
	total := 2 * x.plain.commits
	every := max(1, (total+x.plain.maxPoints-1)/x.plain.maxPoints)
	for i := 0; i < total; i += every {
		points = append(points, point{commit: 1 + i/2, after: i%2 == 1})
	}
	return points, total - len(points)
}

// try runs the scenario with one crash and compares the outcome with the run without a crash.
func (x *explorer[R]) try(t *testing.T, p point) {
	t.Helper()
	r := runOnce(t, x.setup, p)
	if !r.hit {
		t.Skipf("this run made fewer commits than %d", p.commit)
	}
	x.crashes++

	for step, n := range r.executed {
		if n > x.plain.executed[step] {
			x.again[step]++
		}
	}

	r.compare(x.plain)
	if !r.hasFailed() {
		return
	}
	x.failures++
	t.Errorf("perduretest: %s of %d (%s):\n  %s\nto run it again: go test -run '%s'\n%s",
		p, x.plain.commits, r.commit, strings.Join(r.problems, "\n  "), pattern(t.Name()), r.histories)
}

// pattern returns the argument of go test -run that selects one test.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = "^" + regexp.QuoteMeta(parts[i]) + "$"
	}
	return strings.Join(parts, "/")
}

// describeRepeated returns a text that lists the steps that ran again, and says which of them
// report no effect.
func (x *explorer[R]) describeRepeated() string {
	if len(x.again) == 0 {
		return "; no step was executed again"
	}
	var steps, silent []string
	for _, step := range slices.Sorted(maps.Keys(x.again)) {
		steps = append(steps, fmt.Sprintf("%s at %d", step, x.again[step]))
		if !x.plain.effective[step] {
			silent = append(silent, step)
		}
	}
	text := "; points at which a step was executed again: " + strings.Join(steps, ", ")
	if len(silent) > 0 {
		text += "; these steps report no Effect: " + strings.Join(silent, ", ")
	}
	return text
}

// compare finds differences from the run without a crash.
func (r *trial[R]) compare(plain *trial[R]) {
	if len(r.problems) == 0 && !reflect.DeepEqual(r.result, plain.result) {
		r.wrong("the result is %+v; without a crash it is %+v", r.result, plain.result)
	}
	names := slices.Sorted(maps.Keys(plain.effects))
	for name := range r.effects {
		if _, known := plain.effects[name]; !known {
			names = append(names, name)
		}
	}

	slices.Sort(names)
	for _, name := range names {
		got, want := r.effects[name], plain.effects[name]
		switch step := cmp.Or(r.authors[name], plain.authors[name], "?"); {
		case got > want:
			// Report this problem first, because it may cause the other problems.
			r.problems = slices.Insert(r.problems, 0, fmt.Sprintf("step %s is not idempotent: effect %q happened %s; without a crash it happens %s. A crash can lose the "+
				"outcome of a body that has run, and then the body runs again: pass perdure.IdempotencyKey(ctx) to the service, or check first whether the effect has happened",
				step, name, times(got), times(want)))
		case got < want && len(r.problems) == 0:
			r.wrong("effect %q of step %s happened %s; without a crash it happens %s", name, step, times(got), times(want))
		}
	}

	for _, open := range r.open {
		if !slices.Contains(plain.open, open) {
			r.wrong("execution %s is left open: it %s; without a crash it ends", open, r.reasons[open])
		}
	}
}

func times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}
