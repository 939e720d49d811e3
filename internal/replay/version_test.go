package replay_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// versionedProgram runs a, then b in version 0 of the change, x in version 1 and y in version 2,
// and sleeps.
func versionedProgram(oldest, newest int) program {
	return func(e *engine, x replay.Ctx) error {
		if _, err := e.step(x, "a"); err != nil {
			return err
		}
		branch := map[int]string{0: "b", 1: "x", 2: "y"}[x.Version("change", oldest, newest)]
		if _, err := e.step(x, branch); err != nil {
			return err
		}
		return x.Sleep(time.Hour)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		old, new program
		ran      []string // steps that the new code ran
		blocked  string
	}{
		{name: "a run that was past the change keeps to the old branch", old: thenSleep(steps("a", "b")), new: versionedProgram(0, 1)},
		{name: "a run that has not got there takes the new one", old: thenSleep(steps("a")), new: versionedProgram(0, 1), ran: []string{"x"}},
		{name: "a marked run keeps its version", old: versionedProgram(0, 1), new: versionedProgram(0, 2)},
		{name: "a change that is over", old: versionedProgram(0, 1), new: thenSleep(steps("a", "x"))},
		{
			name: "a version that the code has given up", old: versionedProgram(0, 1), new: versionedProgram(2, 2),
			blocked: `the run follows version 1 of change "change"; the code supports 2 to 2`,
		},
		{
			name: "an old branch that the code has given up", old: thenSleep(steps("a", "b")), new: versionedProgram(1, 1),
			blocked: "step b", // the run has passed the change; the code has only the new branch
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				history := record(t, c.old)
				e := newEngine(nil)
				e.auto = true
				e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) { return payload("new"), c.new(e, x) }
				e.events = slices.Clone(history)
				e.activate(-1)
				e.settle()
				e.stop()
				if err := e.err(); err != nil {
					t.Error(err)
				}

				var ran []string
				for i := range e.events[len(history):] {
					if o := &e.events[len(history)+i]; o.Kind == model.EventStepCompleted {
						ran = append(ran, o.Name)
					}
				}

				if !slices.Equal(ran, c.ran) || len(e.ran) != len(c.ran) {
					t.Errorf("the new code executed %q, want %q\n%s", ran, c.ran, dump(e.events))
				}

				switch {
				case c.blocked == "" && e.blocked != nil:
					t.Errorf("blocked: %s", e.blocked)
				case c.blocked != "" && (e.blocked == nil || !strings.Contains(e.blocked.Detail, c.blocked)):
					t.Errorf("blocked %v, want %q", e.blocked, c.blocked)
				}
			})
		})
	}
}

func TestVersionMisuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(nil)
		e.auto = true
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			return payload(""), func() error { x.Version("change", 2, 1); return nil }()
		}
		e.activate(-1)
		e.settle()
		e.stop()
		if e.end == nil || e.end.Failure == nil || !strings.Contains(e.end.Failure.Message, `Version of "change" from 2 to 1`) {
			t.Errorf("ended as %+v", e.end)
		}
	})
}
