package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// script is a machine whose methods call functions that a test sets. If a function is nil, the
// method does what the method of Events does.
type script struct {
	perdure.Events
	start     func() perdure.Actions
	completed func(perdure.ActivityCompleted) perdure.Actions
	failed    func(perdure.ActivityFailed) perdure.Actions
	fired     func(perdure.TimerFired) perdure.Actions
	signal    func(perdure.SignalReceived) perdure.Actions
	child     func(perdure.ChildClosed) perdure.Actions
	cancel    func(string) perdure.Actions
}

func (s *script) OnStart() perdure.Actions { return s.start() }

func (s *script) OnActivityCompleted(e perdure.ActivityCompleted) perdure.Actions {
	if s.completed == nil {
		return s.Events.OnActivityCompleted(e)
	}
	return s.completed(e)
}

func (s *script) OnActivityFailed(e perdure.ActivityFailed) perdure.Actions {
	if s.failed == nil {
		return s.Events.OnActivityFailed(e)
	}
	return s.failed(e)
}

func (s *script) OnTimerFired(e perdure.TimerFired) perdure.Actions {
	if s.fired == nil {
		return s.Events.OnTimerFired(e)
	}
	return s.fired(e)
}

func (s *script) OnSignal(e perdure.SignalReceived) perdure.Actions {
	if s.signal == nil {
		return s.Events.OnSignal(e)
	}
	return s.signal(e)
}

func (s *script) OnChildClosed(e perdure.ChildClosed) perdure.Actions {
	if s.child == nil {
		return s.Events.OnChildClosed(e)
	}
	return s.child(e)
}

func (s *script) OnCancel(reason string) perdure.Actions {
	if s.cancel == nil {
		return s.Events.OnCancel(reason)
	}
	return s.cancel(reason)
}

var (
	echo   = perdure.NewActivity("echo", func(_ context.Context, s string) (string, error) { return "<" + s + ">", nil })
	refuse = perdure.NewActivity("refuse", func(_ context.Context, s string) (string, error) {
		return "", perdure.Permanent(errors.New("no " + s))
	})
	scripted = perdure.DeclareWorkflow[string, string]("scripted")
	note     = perdure.NewSignal[string]("note")
	count    = perdure.NewSignal[int]("count")
)

// play runs a test with an execution of a machine. Every replay creates the machine again with
// newScript.
func play(t *testing.T, newScript func(in string) *script, test func(t *testing.T, c perdure.Client, app *perdure.App, x perdure.Execution[string]), defs ...perdure.Definition) {
	t.Helper()
	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		x, err := scripted.Start(c, "in", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}
		test(t, c, app, x)
	}, append(defs, perdure.BindMachine(scripted, newScript), echo, refuse)...)
}

func do(as ...perdure.Action) perdure.Actions { return as }

// checkSays waits until the reason of an execution contains a text.
func checkSays(t *testing.T, app *perdure.App, to perdure.Target, reason string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(2 * time.Minute); ; <-tick.C {
		info, err := app.Executions().Describe(t.Context(), to)
		if err == nil && strings.Contains(info.Reason, reason) {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("described as %+v, %v; want a reason that says %q", info, err, reason)
		}
	}
}

func TestMachineHearsEventsInOrder(t *testing.T) {
	t.Parallel()
	kid := perdure.NewWorkflow("kid", func(ctx perdure.WorkflowCtx, s string) (string, error) { return "kid of " + s, nil })
	play(t, func(in string) *script {
		var heard []string
		hear := func(format string, args ...any) { heard = append(heard, fmt.Sprintf(format, args...)) }
		s := &script{}
		s.start = func() perdure.Actions { return do(echo.Schedule("a", in)) }

		s.completed = func(e perdure.ActivityCompleted) perdure.Actions {
			out, err := echo.Result(e)
			hear("%s %s %v %v", e.ID, out, err, e.At.IsZero())
			return do(refuse.Schedule("b", "way"))
		}

		s.failed = func(e perdure.ActivityFailed) perdure.Actions {
			hear("%s %s %v %v", e.ID, e.Activity, e.Err, errors.As(e.Err, new(*perdure.RemoteError)))
			return do(perdure.StartTimer("c", 10*time.Millisecond))
		}

		s.fired = func(e perdure.TimerFired) perdure.Actions {
			hear("%s", e.ID)
			return do(kid.Child("d", in))
		}

		s.child = func(e perdure.ChildClosed) perdure.Actions {
			out, err := kid.Result(e)
			hear("%s %s %v", e.ID, out, err)
			return do(scripted.Complete(strings.Join(heard, "; ")))
		}

		return s
	}, func(t *testing.T, c perdure.Client, _ *perdure.App, x perdure.Execution[string]) {
		got, err := x.Result(c)
		want(t, got, err, "a <in> <nil> false; b refuse no way true; c; d kid of in <nil>")
	}, kid)
}

// A mistake in a machine fails its execution with an error that describes the mistake, and no
// action runs.
func TestMistakesOfMachines(t *testing.T) {
	t.Parallel()
	other := perdure.DeclareWorkflow[string, int]("other")
	twin := perdure.DeclareWorkflow[string, int]("scripted")

	for _, c := range []struct {
		name  string
		start func() perdure.Actions
		want  string
	}{
		{
			"an id twice", func() perdure.Actions { return do(echo.Schedule("a", "1"), echo.Schedule("a", "2")) },
			`machine scripted: id "a" of action schedule echo "a" "2" is still in use by schedule echo "a" "1"`,
		},
		{
			"an id of another kind", func() perdure.Actions { return do(perdure.StartTimer("a", time.Hour), echo.Schedule("a", "1")) },
			`is still in use by start timer "a" 1h0m0s`,
		},
		{"cancel of nothing", func() perdure.Actions { return do(perdure.CancelAction("ghost")) }, `it cancels "ghost", which it never started`},
		{
			"more after complete", func() perdure.Actions { return do(scripted.Complete("x"), echo.Schedule("late", "1")) },
			`action schedule echo "late" "1" comes after complete scripted "x", which ends the run`,
		},
		{"two ends", func() perdure.Actions { return do(perdure.Fail(errors.New("x")), scripted.Complete("x")) }, `comes after fail "x", which ends the run`},
		{"no id", func() perdure.Actions { return do(echo.Schedule("", "1")) }, "the id of action schedule echo is empty"},
		{"no action", func() perdure.Actions { return do(perdure.StartTimer("a", 0), perdure.Action{}) }, "action 2 is empty: use Schedule"},
		{"another workflow", func() perdure.Actions { return do(other.Complete(1)) }, "it completes workflow other"},
		{"another type", func() perdure.Actions { return do(twin.Complete(1)) }, "it completes workflow scripted: use the handle that it is defined with"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			play(t, func(string) *script { return &script{start: c.start} },
				func(t *testing.T, client perdure.Client, app *perdure.App, x perdure.Execution[string]) {
					if _, err := x.Result(client); !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
						t.Errorf("ended with %v, want %q", err, c.want)
					}
					for e, err := range app.Histories().Events(t.Context(), x) {
						if e.Kind != "started" && e.Kind != "closed" {
							t.Errorf("recorded %v, %v", e, err)
						}
					}
				})
		})
	}
}

// A machine must not continue as another workflow. If it tries to, its run is blocked, like the run
// of any workflow.
func TestMachineContinuesAsAnother(t *testing.T) {
	t.Parallel()
	other := perdure.DeclareWorkflow[string, int]("other")
	play(t, func(string) *script {
		return &script{start: func() perdure.Actions { return do(other.ContinueWith("")) }}
	}, func(t *testing.T, _ perdure.Client, app *perdure.App, x perdure.Execution[string]) {
		checkSays(t, app, x, "continues workflow other as new")
	})
}

// A machine may use the id of a finished action again. Cancelling a finished action does nothing.
func TestIdsAreUsedAgain(t *testing.T) {
	t.Parallel()
	play(t, func(string) *script {
		var heard []string
		s := &script{start: func() perdure.Actions { return do(echo.Schedule("a", "0"), perdure.StartTimer("b", time.Hour)) }}
		s.fired = func(e perdure.TimerFired) perdure.Actions {
			return do(perdure.Fail(fmt.Errorf("timer %s was cancelled", e.ID)))
		}

		s.completed = func(e perdure.ActivityCompleted) perdure.Actions {
			out, err := echo.Result(e)
			heard = append(heard, fmt.Sprint(out, err))
			switch len(heard) {
			case 1: // the same input again is another step
				return do(perdure.CancelAction("a"), perdure.CancelAction("b"), perdure.CancelAction("b"), echo.Schedule("a", "0"))
			case 2:
				return do(echo.Schedule("b", "1"))
			}
			return do(scripted.Complete(strings.Join(heard, " ")))
		}

		return s
	}, func(t *testing.T, c perdure.Client, _ *perdure.App, x perdure.Execution[string]) {
		got, err := x.Result(c)
		want(t, got, err, "<0><nil> <0><nil> <1><nil>")
	})
}

// A machine cancels a timer and starts it again under the same id. The timer fires once, at the new
// time.
func TestDeadlineIsMoved(t *testing.T) {
	t.Parallel()
	play(t, func(string) *script {
		var began time.Time
		s := &script{start: func() perdure.Actions { return do(perdure.StartTimer("deadline", time.Hour)) }}
		s.signal = func(e perdure.SignalReceived) perdure.Actions {
			began = e.At
			return do(perdure.CancelAction("deadline"), perdure.StartTimer("deadline", time.Hour))
		}
		s.fired = func(e perdure.TimerFired) perdure.Actions {
			return do(scripted.Complete(e.At.Sub(began).Truncate(time.Minute).String()))
		}
		return s
	}, func(t *testing.T, c perdure.Client, _ *perdure.App, x perdure.Execution[string]) {
		for range 3 {
			time.Sleep(50 * time.Minute) // in virtual time
			if err := note.Send(c, x, "wait"); err != nil {
				t.Fatal(err)
			}
		}
		got, err := x.Result(c)
		want(t, got, err, "1h0m0s")
	})
}

// A machine gets signals of all names in the order of the history. A machine that has started
// nothing still gets signals. Before that, the reason of its run says that it waits for nothing.
func TestMachineHearsSignals(t *testing.T) {
	t.Parallel()
	play(t, func(string) *script {
		var heard []string
		s := &script{start: func() perdure.Actions { return nil }}
		s.signal = func(e perdure.SignalReceived) perdure.Actions {
			text, isNote := note.Value(e)
			n, isCount := count.Value(e)
			heard = append(heard, strings.Join(strings.Fields(fmt.Sprintln(e.Signal, text, isNote, n, isCount)), " "))
			if n == 3 {
				return do(scripted.Complete(strings.Join(heard, ", ")))
			}
			return nil
		}

		return s
	}, func(t *testing.T, c perdure.Client, app *perdure.App, x perdure.Execution[string]) {
		checkSays(t, app, x, "waits for nothing")

		for i, send := range []func() error{
			func() error { return count.Send(c, x, 1) },
			func() error { return note.Send(c, x, "hi") },
			func() error { return count.Send(c, x, 3) },
		} {
			if err := send(); err != nil {
				t.Fatal(i, err)
			}
		}
		got, err := x.Result(c)
		want(t, got, err, "count false 1 true, note hi true 0 false, count false 3 true")
	})
}

func TestCancelOfAMachine(t *testing.T) {
	t.Parallel()
	block := func(s *script) { s.start = func() perdure.Actions { return do(perdure.StartTimer("long", time.Hour)) } }

	for _, c := range []struct {
		name   string
		status perdure.Status
		want   string
		prove  func(s *script)
	}{
		{"by default", perdure.Canceled, "canceled: enough", func(*script) {}},
		{"after clean-up", perdure.Canceled, "tidied <up>: canceled", func(s *script) {
			s.cancel = func(reason string) perdure.Actions { return do(echo.Schedule("undo", "up")) }
			s.completed = func(e perdure.ActivityCompleted) perdure.Actions {
				out, _ := echo.Result(e)
				return do(perdure.Fail(fmt.Errorf("tidied %s: %w", out, perdure.ErrCanceled)))
			}
		}},
		{"and it goes on", perdure.Completed, "went on after enough", func(s *script) {
			var why string
			s.cancel = func(reason string) perdure.Actions {
				why = reason
				return do(perdure.CancelAction("long"), perdure.StartTimer("short", time.Millisecond))
			}
			s.fired = func(e perdure.TimerFired) perdure.Actions { return do(scripted.Complete("went on after " + why)) }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			play(t, func(string) *script {
				s := &script{}
				block(s)
				c.prove(s)
				return s
			}, func(t *testing.T, client perdure.Client, app *perdure.App, x perdure.Execution[string]) {
				checkSays(t, app, x, "waits for a timer")
				if err := x.Cancel(client, "enough"); err != nil {
					t.Fatal(err)
				}
				out, err := x.Result(client)
				if c.status == perdure.Completed {
					want(t, out, err, c.want)
					return
				}
				got, pollErr := x.Poll(client)
				if pollErr != nil || got.Status != c.status || got.Err.Error() != c.want || !errors.Is(err, perdure.ErrCanceled) {
					t.Errorf("ended as %v (%v), %v; want %s: %s", got, err, pollErr, c.status, c.want)
				}
			})
		})
	}
}

func TestPanicOfAMachine(t *testing.T) {
	t.Parallel()
	play(t, func(string) *script { return &script{start: func() perdure.Actions { panic("at the start") }} },
		func(t *testing.T, c perdure.Client, _ *perdure.App, x perdure.Execution[string]) {
			var re *perdure.RemoteError
			if _, err := x.Result(c); !errors.As(err, &re) || re.Kind != "panic" || !strings.Contains(re.Message, "at the start") {
				t.Errorf("ended with %v", err)
			}
		})
}

// If an action cannot start, the machine gets the failure as an event, like any other failure.
func TestWrongActionsFail(t *testing.T) {
	t.Parallel()
	kid := perdure.NewWorkflow("kid", func(perdure.WorkflowCtx, string) (string, error) { return "", nil })
	play(t, func(string) *script {
		var heard []string
		s := &script{start: func() perdure.Actions {
			return do(echo.Schedule("big", strings.Repeat("x", 3<<20)), kid.Child("kid", "", note.With("hi")))
		}}
		s.failed = func(e perdure.ActivityFailed) perdure.Actions {
			heard = append(heard, fmt.Sprint(e.ID, " ", errors.Is(e.Err, perdure.ErrInvalid), " ", e.Err))
			return nil
		}
		s.child = func(e perdure.ChildClosed) perdure.Actions {
			heard = append(heard, fmt.Sprint(e.ID, " ", errors.Is(e.Err, perdure.ErrInvalid), " ", e.Err))
			return do(scripted.Complete(strings.Join(heard, "; ")))
		}
		return s
	}, func(t *testing.T, c perdure.Client, _ *perdure.App, x perdure.Execution[string]) {
		got, err := x.Result(c)
		want(t, got, err, "big true input of activity echo has 3145730 bytes, at most 2097152 are allowed; "+
			"kid true start of kid: a child cannot be started together with a signal: start the child, then send the signal")
	}, kid)
}

// An activity gets the input that it had when it was scheduled, even if the machine changes the
// value afterwards.
func TestInputIsACopy(t *testing.T) {
	t.Parallel()
	proceed := make(chan struct{})
	join := perdure.NewActivity("join", func(_ context.Context, parts []string) (string, error) {
		<-proceed
		return strings.Join(parts, "+"), nil
	})

	play(t, func(string) *script {
		parts := []string{"a", "b"}
		s := &script{start: func() perdure.Actions {
			act := join.Schedule("j", parts)
			parts[0] = "changed"
			return do(act, echo.Schedule("next", ""))
		}}
		s.completed = func(e perdure.ActivityCompleted) perdure.Actions {
			if e.ID == "next" {
				parts[1] = "changed"
				return nil
			}
			out, err := join.Result(e)
			return do(scripted.Complete(fmt.Sprint(out, err)))
		}
		return s
	}, func(t *testing.T, c perdure.Client, app *perdure.App, x perdure.Execution[string]) {
		close(proceed)
		got, err := x.Result(c)
		want(t, got, err, "a+b<nil>")
	}, join)
}

// ContinueWith starts the next run. The next run also gets a signal that came too late for this
// run.
func TestMachineContinues(t *testing.T) {
	t.Parallel()
	play(t, func(in string) *script {
		s := &script{start: func() perdure.Actions { return nil }}
		s.signal = func(e perdure.SignalReceived) perdure.Actions {
			v, _ := note.Value(e)
			if v == "end" {
				return do(scripted.Complete(in))
			}
			return do(scripted.ContinueWith(in + "," + v))
		}
		return s
	}, func(t *testing.T, c perdure.Client, _ *perdure.App, x perdure.Execution[string]) {
		for _, v := range []string{"a", "b", "end"} {
			if err := note.Send(c, x, v); err != nil {
				t.Fatal(err)
			}
		}
		got, err := perdure.Execution[string]{Ref: perdure.Ref{Workflow: "scripted", Key: "k"}}.Result(c)
		want(t, got, err, "in,a,b")
	})
}

// A machine is a plain value: a test sends it events and compares the actions that it returns,
// without an engine.
func TestMachineAsATranscript(t *testing.T) {
	t.Parallel()
	deal := perdure.NewWorkflow("deal", func(perdure.WorkflowCtx, int) (string, error) { return "", nil })
	s := &script{
		start: func() perdure.Actions { return do(echo.Schedule("a", "x"), perdure.StartTimer("t", time.Minute)) },
		completed: func(e perdure.ActivityCompleted) perdure.Actions {
			out, err := echo.Result(e)
			if err != nil {
				return do(perdure.Fail(err))
			}
			return do(deal.Child("d", len(out)), perdure.CancelAction("t"))
		},
		signal: func(e perdure.SignalReceived) perdure.Actions {
			v, ok := note.Value(e)
			return do(perdure.Fail(fmt.Errorf("%s %v", v, ok)))
		},
		child: func(e perdure.ChildClosed) perdure.Actions {
			out, err := deal.Result(e)
			if err != nil {
				return do(perdure.Fail(err))
			}
			return do(scripted.Complete(out))
		},
	}
	for _, c := range []struct {
		event string
		got   perdure.Actions
		want  string
	}{
		{"start", s.OnStart(), `[schedule echo "a" "x" start timer "t" 1m0s]`},
		{"completed", s.OnActivityCompleted(echo.Completed("a", "12")), `[start child deal "d" 2 cancel "t"]`},
		{"completed by another", s.OnActivityCompleted(refuse.Completed("b", "12")), `[fail "event b is of activity refuse, not of activity echo"]`},
		{"failed", s.OnActivityFailed(perdure.ActivityFailed{ID: "a", Err: errors.New("boom")}), `[fail "boom"]`},
		{"fired", s.OnTimerFired(perdure.TimerFired{ID: "t"}), `[]`},
		{"signal", s.OnSignal(note.Received("hi")), `[fail "hi true"]`},
		{"other signal", s.OnSignal(count.Received(1)), `[fail " false"]`},
		{"closed", s.OnChildClosed(deal.Closed("d", "done")), `[complete scripted "done"]`},
		{"closed by another", s.OnChildClosed(scripted.Closed("d", "done")), `[fail "event d is of workflow scripted, not of workflow deal"]`},
		{"closed with an error", s.OnChildClosed(perdure.ChildClosed{ID: "d", Workflow: "deal", Err: errors.New("no")}), `[fail "no"]`},
		{"cancel", s.OnCancel("why"), `[fail "canceled"]`},
		{"fail without an error", do(perdure.Fail(nil)), `[fail "the machine failed without an error"]`},
		{"continue", do(scripted.ContinueWith("x")), `[continue scripted "x"]`},
	} {
		if got := fmt.Sprint(c.got); got != c.want {
			t.Errorf("%s: %s, want %s", c.event, got, c.want)
		}
	}

	if _, err := echo.Result(refuse.Completed("b", "")); !errors.Is(err, perdure.ErrInvalid) {
		t.Errorf("the result of another activity is %v", err)
	}
}
