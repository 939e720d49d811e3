package replay_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// findings collects what the checks of a worker find.
type findings struct {
	mu   sync.Mutex
	all  []replay.Mistake
	runs []replay.Attempt
}

func (f *findings) checks(twice bool) *replay.Checks {
	return &replay.Checks{
		Twice: twice,
		Found: func(m replay.Mistake) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.all = append(f.all, m)
		},
		Ran: func(a replay.Attempt) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.runs = append(f.runs, a)
		},
	}
}

func (f *findings) texts() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, m := range f.all {
		fmt.Fprintf(&b, "%s (blocked: %v)\n", m.Text, m.Blocked)
	}
	return b.String()
}

// TestCodeThatDiffersIsFoundBeforeAnythingRuns executes code that asks for something else every
// time.
func TestCodeThatDiffersIsFoundBeforeAnythingRuns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		code func(e *engine, x replay.Ctx, calls int) error
		want []string
		ran  int
	}{
		{"first step", func(e *engine, x replay.Ctx, calls int) error {
			_, err := e.step(x, fmt.Sprintf("s%d", calls))
			return err
		}, []string{"history of 0 events", "asked for step s1 at replay/", "the first time, and for step s2 at replay/"}, 0},
		{"after a step", func(e *engine, x replay.Ctx, calls int) error {
			if _, err := e.step(x, "a"); err != nil {
				return err
			}
			if calls%2 == 0 {
				return x.Sleep(time.Hour)
			}
			_, err := e.step(x, "b")
			return err
		}, []string{"history of 1 events", "step b at", "timer at"}, 1},
		{"length of a sleep", func(_ *engine, x replay.Ctx, calls int) error {
			return x.Sleep(time.Duration(calls) * time.Minute)
		}, []string{"timer at replay/", "of 1m0s the first time", "of 2m0s the second time"}, 0},
		{"one step more", func(e *engine, x replay.Ctx, calls int) error {
			for i := range calls {
				x.StepFuture(e.stepOf("s", func(s *replay.Step) { s.Key, s.Keyed = itoa(i), true }))
			}
			return x.Sleep(time.Hour)
		}, []string{"asked for nothing else the first time, and for step s at"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var f findings
				calls := 0
				e := newEngine(nil)
				e.auto, e.cfg.Checks = true, f.checks(true)

				e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
					calls++
					return payload("end"), c.code(e, x, calls)
				}

				e.activate(-1)
				e.settle()
				e.stop()
				if e.blocked == nil || len(f.all) != 1 || !f.all[0].Blocked {
					t.Fatalf("blocked %v, found %s", e.blocked, f.texts())
				}

				for _, want := range c.want {
					if !strings.Contains(e.blocked.String(), want) || !strings.Contains(f.texts(), want) {
						t.Errorf("%s\n%s\nhas no %q", e.blocked, f.texts(), want)
					}
				}

				if len(f.runs) != c.ran {
					t.Errorf("%d bodies ran, want %d", len(f.runs), c.ran)
				}
			})
		})
	}
}

// TestCodeIsExecutedTwiceAndStepsOnce counts the executions of the code and of its steps.
func TestCodeIsExecutedTwiceAndStepsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var f findings
		calls := 0
		e := newEngine(nil)
		e.auto, e.cfg.Checks = true, f.checks(true)

		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			calls++
			for _, name := range []string{"a", "b", "c"} {
				if _, err := e.step(x, name); err != nil {
					return payload(""), err
				}
			}
			return payload("end"), nil
		}

		e.activate(-1)
		e.settle()
		e.stop()
		if e.end == nil || e.err() != nil || len(f.all) > 0 {
			t.Fatalf("end %v, %v, found %s", e.end, e.err(), f.texts())
		}
		// one execution from the beginning, and one more after each step
		if calls != 4 || len(f.runs) != 3 {
			t.Errorf("the code was executed %d times and %d bodies ran, want 4 and 3", calls, len(f.runs))
		}
		if a := f.runs[0]; a.Step != "a" || a.Number != 1 || a.Err != nil || a.IdempotencyKey == "" || len(a.Output) == 0 {
			t.Errorf("first attempt %+v", a)
		}
	})
}

// TestMisuseIsTold makes durable calls in places where they are not allowed.
func TestMisuseIsTold(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		name string
		code func(e *engine, x replay.Ctx) error
		want string
	}{
		{"another goroutine", func(_ *engine, x replay.Ctx) error {
			errs := make(chan error)
			go func() { errs <- x.Sleep(time.Minute) }()
			return <-errs //perdure:allow channel the test is about it
		}, "from a goroutine that is not a coroutine of this execution: begin it with perdure.Go"},
		{"inside a step", func(_ *engine, x replay.Ctx) error {
			_, err := x.Step(&replay.Step{Name: "s", Body: func(context.Context) (model.Payload, error) { return payload("x"), x.Sleep(time.Minute) }})
			return err
		}, "durable call Sleep inside step s"},
		{"loop", func(e *engine, x replay.Ctx) error {
			for range 3 {
				if _, err := e.step(x, "s"); err != nil {
					return err
				}
			}
			return nil
		}, "step s is repeated without a key at replay/"},
		{"code that blocks", func(*engine, replay.Ctx) error {
			time.Sleep(10 * time.Second)
			return nil
		}, "code blocks outside durable calls at replay/checks_test.go:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var f findings
				e := newEngine(nil)
				e.auto, e.cfg.Checks = true, f.checks(false)
				e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) { return payload("end"), c.code(e, x) }
				e.activate(-1)
				e.settle()
				time.Sleep(time.Minute)
				e.settle()
				e.stop()
				if len(f.all) != 1 || f.all[0].Blocked || !strings.Contains(f.all[0].Text, c.want) || !strings.Contains(f.all[0].Text, "_test.go:") {
					t.Errorf("found %q, want %q and a place", f.texts(), c.want)
				}
			})
		})
	}
}

func itoa(n int) string { return fmt.Sprint(n) }
