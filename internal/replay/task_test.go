package replay_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// queued is a task that the engine holds.
type queued struct {
	input   string
	attempt int // the attempt that is claimed, or the last one
	claimed bool
}

// task returns a step for a queue.
func task(name string, opts ...func(*replay.Step)) *replay.Step {
	s := &replay.Step{Name: name, Task: &model.TaskSpec{Kind: name, Queue: "gpu"}}
	for _, o := range opts {
		o(s)
	}
	return s
}

// acceptTask accepts a task.
func (e *engine) acceptTask(ev *model.Event) {
	if slices.ContainsFunc(e.events, func(o model.Event) bool { return o.Kind == model.EventTaskScheduled && o.ID == ev.ID }) {
		e.problem("task %s is scheduled twice", ev.ID)
	}
	if ev.Kind != model.EventTaskScheduled || ev.Task == nil || ev.Task.Kind != ev.Name {
		e.problem("task %s is scheduled by %+v", ev.ID, ev)
	}
	e.tasks[ev.ID] = &queued{input: string(ev.Input.Data)}
	e.append(*ev)
}

// fates returns the things that may happen to a task. Fates that end the task come first.
func (e *engine) fates(id string) []func() {
	q := e.tasks[id]
	tell := func(ev model.Event) {
		ev.ID = id
		e.inject(ev)
	}

	end := func(ev model.Event) {
		delete(e.tasks, id)
		tell(ev)
	}

	f := &model.Failure{Message: "boom " + id}
	if !q.claimed {
		return []func(){
			func() {
				q.claimed, q.attempt = true, q.attempt+1
				tell(model.Event{Kind: model.EventTaskClaimed, Attempt: q.attempt, Worker: "w"})
			},
			func() {
				end(model.Event{Kind: model.EventTaskTimedOut, Failure: &model.Failure{Kind: model.FailureTimeout, Type: model.TimeoutToStart, Message: "late"}})
			},
		}
	}

	fates := []func(){
		func() { end(model.Event{Kind: model.EventStepCompleted, Output: payload("done-" + id)}) },
		func() { end(model.Event{Kind: model.EventStepFailed, Attempt: q.attempt, Failure: f}) },
	}

	if q.attempt < 4 {
		again := func(ev model.Event) func() {
			return func() {
				q.claimed = false
				ev.Due = e.now()
				tell(ev)
			}
		}
		fates = append(fates,
			again(model.Event{Kind: model.EventAttemptFailed, Attempt: q.attempt, Failure: f}),
			again(model.Event{Kind: model.EventTaskReturned, Attempt: q.attempt}),
			again(model.Event{Kind: model.EventTaskTimedOut, Attempt: q.attempt, Failure: &model.Failure{Kind: model.FailureTimeout, Type: model.TimeoutSilence}}),
		)
	}

	return fates
}

// fate applies one fate to a task, and everything that follows from it.
func (e *engine) fate(id string, n int) {
	e.fates(id)[n]()
	e.settle()
}

// Indexes in the list of fates of a task that waits, and of a task that is claimed.
const (
	claim, overdue                              = 0, 1
	complete, failFor, again, giveBack, silence = 0, 1, 2, 3, 4
)

const renderTask = "/s6:render/h" // the digest of the input follows

// taskID returns the only open task.
func (e *engine) taskID(t *testing.T) string {
	t.Helper()
	for id := range e.tasks {
		if len(e.tasks) == 1 {
			return id
		}
	}
	t.Fatalf("%d tasks are open; waits %v\n%s", len(e.tasks), e.waits, dump(e.events))
	return ""
}

func run(x replay.Ctx, s *replay.Step) (string, error) {
	out, err := x.Step(s)
	return string(out.Data), err
}

// TestTaskIsScheduledOnceAndItsOutcomeFound takes a task through attempts that fail, time out and
// are given back, with a crash after each event.
func TestTaskIsScheduledOnceAndItsOutcomeFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(nil)
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			return x.Step(task("render", input(`{"id":7}`)))
		}
		e.activate(-1)
		e.settle()
		id := e.taskID(t)
		if q := e.tasks[id]; q.input != `{"id":7}` || !strings.HasPrefix(id, renderTask) {
			t.Errorf("task %s has input %s", id, q.input)
		}
		if want := (model.Reason{Code: model.WaitTask, Name: "render", Detail: "gpu"}); len(e.waits) != 1 || e.waits[0] != want {
			t.Errorf("waits %v, want %v", e.waits, want)
		}

		for _, n := range []int{claim, again, claim, giveBack, claim, silence, claim} {
			e.fate(id, n)
			e.checkReplay(t)
			if e.end != nil || len(e.waits) != 1 || e.waits[0].Code != model.WaitTask {
				t.Fatalf("after fate %d: end %v, waits %v", n, e.end, e.waits)
			}
		}

		e.fate(id, complete)
		e.wantClosed(t, model.Completed, "done-"+id)
		e.stop()
		if err := e.err(); err != nil {
			t.Error(err)
		}
	})
}

// TestFailedTaskIsAnErrorOfTheCode covers a task that fails, and a task that no worker begins in
// time.
func TestFailedTaskIsAnErrorOfTheCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fates []int
		want  model.Failure
	}{
		{"failed", []int{claim, failFor}, model.Failure{Message: "boom /s6:render"}},
		{"never begun", []int{overdue}, model.Failure{Kind: model.FailureTimeout, Type: model.TimeoutToStart, Message: "late"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(nil)
				e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
					_, err := x.Step(task("render"))
					f, _ := errors.AsType[*model.Failure](err)
					if f == nil || *f != c.want {
						t.Errorf("error %+v, want %+v", err, c.want)
					}
					return payload("end"), nil
				}

				e.activate(-1)
				e.settle()
				for _, n := range c.fates {
					e.fate("/s6:render", n)
				}
				e.wantClosed(t, model.Completed, "end")
				e.stop()
			})
		})
	}
}

// TestTaskIsWithdrawn ends the scope of a task, and cancels another task before the engine has
// received it.
func TestTaskIsWithdrawn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(nil)
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			if _, err := x.WithTimeout(time.Minute).Step(task("render")); !errors.Is(err, replay.ErrTimeout) {
				return payload("no timeout"), err
			}
			f := x.StepFuture(task("never"))
			if err := x.Cancel(f); err != nil {
				return model.Payload{}, err
			}
			g := x.Next("go")
			return payload("end"), x.Get(g)
		}

		e.activate(-1)
		e.settle()
		e.fate("/s6:render", claim)
		e.fire("/d1:1")
		e.settle()
		if len(e.tasks) > 0 || len(e.timers) > 0 {
			t.Errorf("tasks %v, timers %v", e.tasks, e.timers)
		}
		e.checkReplay(t)
		e.signal("go", "on")
		e.settle()
		e.wantClosed(t, model.Completed, "end")
		e.stop()
		if err := e.err(); err != nil {
			t.Error(err)
		}
	})
}

// TestTaskThatWasGivenUpDuringReplayIsNeverAskedFor cancels a task before the end of the history.
func TestTaskThatWasGivenUpDuringReplayIsNeverAskedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(nil)
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			if err := x.Cancel(x.StepFuture(task("render"))); err != nil {
				return model.Payload{}, err
			}
			g := x.Next("go")
			return payload("end"), x.Get(g)
		}

		e.signal("go", "on")
		e.activate(-1)
		e.settle()
		e.wantClosed(t, model.Completed, "end")
		if len(e.events) != 2 { // the signal, and the event that it was taken
			t.Errorf("history\n%s", dump(e.events))
		}
		e.stop()
	})
}

// TestRunThatWaitsForTasksIsReleased checks that a run that waits only for two tasks does not stay
// in memory.
func TestRunThatWaitsForTasksIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(nil)
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			fs := []*replay.Future{x.StepFuture(task("a")), x.StepFuture(task("b"))}
			return payload("end"), x.All(fs)
		}

		e.activate(-1)
		e.settle()
		e.fate("/s1:a", claim)
		e.fate("/s1:a", again)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !e.isReleased() || len(e.waits) != 2 {
			t.Errorf("released %v, waits %v", e.isReleased(), e.waits)
		}
		e.fate("/s1:b", claim)
		e.fate("/s1:b", complete)
		e.fate("/s1:a", claim)
		e.fate("/s1:a", complete)
		e.wantClosed(t, model.Completed, "end")
		e.stop()
	})
}

// TestQueueAndInline moves a step from a queue to the worker, or back, between two builds.
func TestQueueAndInline(t *testing.T) {
	t.Parallel()
	const id = "/s6:render"
	scheduled := model.Event{Kind: model.EventTaskScheduled, ID: id, Name: "render", Task: &model.TaskSpec{Kind: "render", Queue: "old"}, Position: "was.go:1"}

	outcome := model.Event{Kind: model.EventStepCompleted, ID: id, Name: "render", Output: payload("recorded")}
	for _, c := range []struct {
		name   string
		queue  bool // a queue executes the step in today's code
		events []model.Event
		waits  model.ReasonCode
		detail string
		ends   string
	}{
		{"an inline outcome serves queued code", true, []model.Event{outcome}, "", "", "recorded"},
		{"the outcome of a task serves inline code", false, []model.Event{scheduled, {Kind: model.EventTaskClaimed, ID: id, Attempt: 1}, outcome}, "", "", "recorded"},
		{"a task that is under way is waited for", false, []model.Event{scheduled, {Kind: model.EventTaskClaimed, ID: id, Attempt: 1}}, model.WaitTask, "old", ""},
		{
			"a step that was tried becomes a task", true,
			[]model.Event{{Kind: model.EventAttemptFailed, ID: id, Name: "render", Attempt: 1, Due: 9, Failure: &model.Failure{Message: "boom"}}},
			model.WaitTask, "gpu", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(nil)
				e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
					if c.queue {
						return x.Step(task("render"))
					}
					return x.Step(&replay.Step{Name: "render", Body: func(context.Context) (model.Payload, error) {
						t.Error("the body runs")
						return model.Payload{}, nil
					}})
				}

				for _, ev := range c.events {
					e.inject(ev)
				}
				e.activate(-1)
				e.settle()

				if c.ends != "" {
					e.wantClosed(t, model.Completed, c.ends)
				} else if e.end != nil || len(e.waits) != 1 || e.waits[0].Code != c.waits || e.waits[0].Detail != c.detail {
					t.Errorf("end %v, waits %v", e.end, e.waits)
				}

				if c.ends == "" {
					e.tasks[id] = &queued{claimed: true, attempt: 1}
					e.fate(id, complete)
					e.wantClosed(t, model.Completed, "done-"+id)
				}

				e.stop()
				if err := e.err(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestMismatchOfTasks covers code that does not ask for a recorded task, or asks with another
// input.
func TestMismatchOfTasks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		code func(x replay.Ctx) (string, error)
		want []string
	}{
		{"not asked for", func(x replay.Ctx) (string, error) {
			return run(x, task("other"))
		}, []string{"event 1 records task render at was.go:1", "it asks for task other at ", "task_test.go:"}},
		{"returns", func(replay.Ctx) (string, error) { return "", nil }, []string{"event 1 records task render at was.go:1", "returned without asking"}},
		{"drift", func(x replay.Ctx) (string, error) {
			return run(x, task("render", input(`{"id":8}`)))
		}, []string{"input of step render changed: field id", "event 1 records task render at was.go:1", "task_test.go:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(nil)
				e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
					out, err := run(x, task("render", input(`{"id":7}`)))
					return payload(out), err
				}

				e.activate(-1)
				e.settle()
				e.events[0].Position = "was.go:1"
				e.crash()

				e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
					out, err := c.code(x)
					return payload(out), err
				}

				e.activate(-1)
				e.settle()
				if e.blocked == nil {
					t.Fatalf("not blocked: waits %v, end %v", e.waits, e.end)
				}

				for _, want := range c.want {
					if !strings.Contains(e.blocked.Detail, want) {
						t.Errorf("%s\n  lacks %q", e.blocked.Detail, want)
					}
				}

				e.stop()
			})
		})
	}
}

// TestTaskIsSealedOnceAndFoundByItsPlainInput checks that the input of a task gets its stored form
// once.
func TestTaskIsSealedOnceAndFoundByItsPlainInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(nil)
		sealed := 0
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			return x.Step(task("render", input(`1`), func(s *replay.Step) {
				s.Input.Seal = func(_ context.Context, _ model.Address, p model.Payload) (model.Payload, error) {
					sealed++
					return model.Payload{Data: []byte("sealed " + string(p.Data)), Encoding: "json+x"}, nil
				}
			}))
		}

		e.activate(-1)
		e.settle()
		id := e.taskID(t)
		if got := e.tasks[id].input; got != "sealed 1" {
			t.Errorf("input %q", got)
		}
		e.checkReplay(t)
		e.fate(id, claim)
		e.fate(id, complete)
		e.wantClosed(t, model.Completed, "done-"+id)
		if sealed != 1 {
			t.Errorf("sealed %d times", sealed)
		}
		e.stop()
	})
}

// TestStepBesideATask runs a step in this process while a task is in its queue.
func TestStepBesideATask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(nil)
		e.code = func(x replay.Ctx, _ model.Payload) (model.Payload, error) {
			f := x.StepFuture(task("render"))
			if _, err := e.step(x, "a"); err != nil {
				return model.Payload{}, err
			}
			return payload("end"), x.Get(f)
		}

		e.activate(-1)
		e.settle()
		if len(e.tasks) != 1 || e.events[0].Kind != model.EventTaskScheduled {
			t.Fatalf("the task does not come first\n%s", dump(e.events))
		}
		e.fate("/s6:render", claim)
		e.fate("/s6:render", complete)
		e.wantClosed(t, model.Completed, "end")
		e.stop()
	})
}
