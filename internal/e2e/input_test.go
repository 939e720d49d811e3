package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// alive is an execution that has nothing to do with the faults of a test, so it must continue.
type alive struct {
	w     *perdure.Workflow[string, string]
	words *perdure.Signal[string]
	exec  perdure.Execution[string]
}

func newAlive() *alive {
	a := &alive{words: perdure.NewSignal[string]("words")}
	a.w = perdure.NewWorkflow("alive", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		text := ""
		for {
			word, err := a.words.Receive(ctx)
			if err != nil || word == "end" {
				return text, err
			}
			if _, err := perdure.Do(ctx, "step", func(context.Context) (int, error) { return 0, nil }, perdure.StepKey(word)); err != nil {
				return "", err
			}
			text += word
		}
	})
	return a
}

// start starts the execution, and returns when the execution waits for a signal.
func (a *alive) start(t *testing.T, app *perdure.App, c perdure.Client) {
	t.Helper()
	var err error
	if a.exec, err = a.w.Start(c, "", perdure.RawKey("alive")); err != nil {
		t.Fatal(err)
	}
	a.say(t, c, "a")
	eventually(t, "the word is taken", func() bool { return slices.Contains(kindsOf(t, app, a.exec), "step_completed") })
}

func (a *alive) say(t *testing.T, c perdure.Client, word string) {
	t.Helper()
	if err := a.words.Send(c, a.exec, word); err != nil {
		t.Fatalf("an execution that has nothing to do with it: %v", err)
	}
}

// checkEnd checks that the execution has completed and that new ones start.
func (a *alive) checkEnd(t *testing.T, c perdure.Client, want string) {
	t.Helper()
	a.say(t, c, "end")
	got, err := a.exec.Result(c)
	equal(t, "an execution that has nothing to do with it", got, err, want)
	exec, err := a.w.Start(c, "", perdure.RawKey("another"))
	if err != nil {
		t.Fatalf("a new execution: %v", err)
	}
	if err := a.words.Send(c, exec, "end"); err != nil {
		t.Fatal(err)
	}
	got, err = exec.Result(c)
	equal(t, "a new execution", got, err, "")
}

// When a caller passes input that cannot be stored, the call returns an error that names the input.
// Nothing is stored, and other callers are not affected.
func TestBadCalls(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		const most = 10_000
		s.cfg.MaxPayload = most
		// The quotes take two bytes.
		big, fits := strings.Repeat("x", most), strings.Repeat("x", most-2)
		sig, prom := perdure.NewSignal[string]("sig"), perdure.NewPromise[string]("prom")

		w := perdure.NewWorkflow("wf", func(ctx perdure.WorkflowCtx, in string) (string, error) {
			v, err := sig.Receive(ctx)
			return v + in[:1], err
		})

		numbers := perdure.NewWorkflow("numbers", func(_ perdure.WorkflowCtx, in float64) (float64, error) { return in, nil })
		a := newAlive()
		app := s.open(w, numbers, a.w)
		c := caller(t, app)
		a.start(t, app, c)
		exec := mustStart(t, c, w, fits, perdure.RawKey("target"))
		reason(t, app, exec, "waits for signal sig")
		before := s.contents()

		start := func(in string, key string, opts ...perdure.StartOption) error {
			_, err := w.Start(c, in, append(opts, perdure.RawKey(key))...)
			return err
		}

		long := strings.Repeat("k", 513)
		for _, x := range []struct {
			name string
			err  error
			says []string
		}{
			{"oversize input", start(big, "k"), []string{"wf", "10002 bytes", "10000"}},
			{"oversize input for an existing key", start(big, "target"), []string{"wf", "10002 bytes"}},
			{"oversize signal", sig.Send(c, exec, big), []string{"sig", "10002 bytes", "10000"}},
			{"oversize signal with a start", start("in", "k", sig.With(big)), []string{"sig", "10002 bytes"}},
			{"oversize promise", prom.Resolve(c, exec, big), []string{"prom", "10002 bytes"}},
			{"empty key", start("in", ""), []string{"wf", "key", "empty"}},
			{"key that is no UTF-8", start("in", "a\xffb"), []string{"key", "UTF-8"}},
			{"key with a zero byte", start("in", "a\x00b"), []string{"key", "control"}},
			{"key with a line break", start("in", "a\nb"), []string{"key", "control"}},
			{"key that is too long", start("in", long), []string{"key", "513 bytes", "512"}},
			{"empty request id is none; one that is too long", start("in", "k", perdure.RequestID(long)), []string{"request id", "513 bytes"}},
			{"request id that is no UTF-8", sig.Send(c, exec, "", perdure.RequestID("\xff")), []string{"request id", "UTF-8"}},
			{"signal without a name", perdure.NewSignal[string]("").Send(c, exec, ""), []string{"signal", "empty"}},
			{"signal with a name that is too long", perdure.NewSignal[string](long).Send(c, exec, ""), []string{"signal", "513 bytes", "200"}},
			{"promise with a control character", perdure.NewPromise[string]("a\tb").Resolve(c, exec, ""), []string{"promise", "control"}},
			{"workflow without a name", func() error {
				_, err := perdure.DeclareWorkflow[string, string]("").Start(c, "", perdure.RawKey("k"))
				return err
			}(), []string{"workflow", "empty"}},
			{"workflow with a name that is no UTF-8", func() error {
				_, err := perdure.DeclareWorkflow[string, string]("a\xff").Start(c, "", perdure.RawKey("k"))
				return err
			}(), []string{"workflow", "UTF-8"}},
			{"input that cannot be encoded", func() error {
				_, err := numbers.Start(c, math.NaN(), perdure.RawKey("nan"))
				return err
			}(), []string{"numbers", "NaN"}},
			{"key that cannot be encoded", func() error {
				_, err := w.Start(c, "in", perdure.HashKey(math.Inf(1)))
				return err
			}(), []string{"key", "Inf"}},
			{"result of an address that cannot be", func() error {
				_, err := w.Execution(perdure.RawKey("a\x00")).Result(c)
				return err
			}(), []string{"key", "control"}},
			{"description of an address that cannot be", func() error {
				_, err := app.Executions().Describe(t.Context(), perdure.Ref{Workflow: "wf", Key: long})
				return err
			}(), []string{"key", "513 bytes"}},
			{"cancel of an address that cannot be", perdure.Execution[string]{Ref: perdure.Ref{Workflow: "wf"}}.Cancel(c, ""), []string{"key", "empty"}},
		} {
			wantError(t, x.name, x.err, perdure.ErrInvalid, x.says...)
		}

		s.checkUnchanged(before)
		if got := list(t, app, ""); len(got) != 2 {
			t.Errorf("there are executions %v", got)
		}
		if err := sig.Send(c, exec, "ok"); err != nil {
			t.Fatal(err)
		}

		got, err := exec.Result(c)
		equal(t, "the execution that was the target", got, err, "okx")
		a.checkEnd(t, c, "a")
	})
}

// Code makes values that are too large or cannot be encoded. The step, the start of a child or the
// execution fails with an error that names the value, and the history has the failure.
func TestBadValuesInCode(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		const most = 10_000
		s.cfg.MaxPayload = most
		big := strings.Repeat("x", most)
		echo := perdure.NewActivity("echo", func(_ context.Context, in string) (string, error) { return in, nil })
		child := perdure.NewWorkflow("child", func(_ perdure.WorkflowCtx, in string) (string, error) { return in, nil })
		sig := perdure.NewSignal[string]("sig")
		w := perdure.DeclareWorkflow[string, string]("wf")

		code := w.Bind(func(ctx perdure.WorkflowCtx, what string) (string, error) {
			switch what {
			case "result of step":
				return perdure.Do(ctx, "grow", func(context.Context) (string, error) { return big, nil })
			case "input of activity":
				return echo.Run(ctx, big)
			case "output of activity":
				_, err := perdure.NewActivity("make", func(context.Context, int) (string, error) { return big, nil }).Run(ctx, 1)
				return "", err
			case "input of workflow child":
				return child.Run(ctx, big)
			case "signal":
				self := ctx.Self()
				return "", sig.Send(ctx, self, big)
			case "next input":
				return "", w.ContinueAsNew(big)
			case "result that cannot be encoded":
				_, err := perdure.Do(ctx, "not a number", func(context.Context) (float64, error) { return math.NaN(), nil })
				return "", err
			default:
				return big, nil
			}
		})

		a := newAlive()
		app := s.open(code, child, echo, a.w)
		c := caller(t, app)
		a.start(t, app, c)

		for what, names := range map[string][]string{
			"result of step":                {"grow", "10002 bytes", "10000"},
			"input of activity":             {"echo", "10002 bytes"},
			"output of activity":            {"make", "10002 bytes"},
			"input of workflow child":       {"child", "10002 bytes"},
			"signal":                        {"sig", "10002 bytes"},
			"next input":                    {"wf", "10002 bytes"},
			"result that cannot be encoded": {"not a number", "NaN"},
			"output of workflow":            {"wf", "10002 bytes"},
		} {
			_, err := w.Run(c, what, perdure.RawKey(what))
			wantError(t, what, err, perdure.ErrInvalid, names...)
			outcome, err := w.Execution(perdure.RawKey(what)).Poll(c)
			equal(t, "status of "+what, outcome.Status, err, perdure.Failed)
		}

		if got := list(t, app, `workflow = "child"`); len(got) > 0 {
			t.Errorf("children were started: %v", got)
		}
		a.checkEnd(t, c, "a")
	})
}

// It is not an error to start an execution whose code no process has. The execution waits, reports
// what it waits for, and runs when a process with the code joins.
func TestUnknownWorkflowWaits(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		a := newAlive()
		known := perdure.NewWorkflow("parent", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
			return perdure.DeclareWorkflow[string, string]("elsewhere").Run(ctx, "child", perdure.RawKey("child"))
		})
		elsewhere := perdure.DeclareWorkflow[string, string]("elsewhere")
		app := s.open(a.w, known)
		c := caller(t, app)
		a.start(t, app, c)
		exec := mustStart(t, c, elsewhere, "in", perdure.RawKey("k"))
		parent := mustStart(t, c, known, "", perdure.RawKey("p"))
		reason(t, app, exec, "waits for a worker that offers workflow elsewhere")
		reason(t, app, parent, "waits for child elsewhere/child")
		if err := perdure.NewSignal[string]("word").Send(c, exec, "hello"); err != nil {
			t.Errorf("a signal to an execution without code in any process: %v", err)
		}
		a.say(t, c, "b")

		if s.kind != "memory" {
			word := perdure.NewSignal[string]("word")
			app = s.reopen(app, a.w, known, elsewhere.Bind(func(ctx perdure.WorkflowCtx, in string) (string, error) {
				if in == "child" {
					return "child", nil
				}
				return word.Receive(ctx)
			}))
			c = caller(t, app)
			got, err := exec.Result(c)
			equal(t, "result once there is code", got, err, "hello")
			got, err = parent.Result(c)
			equal(t, "result of the parent", got, err, "child")
		}

		a.checkEnd(t, c, "ab")
	})
}

// Open reports all mistakes in definitions in one error, with name and position, and opens nothing.
func TestBadDefinitions(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		act := perdure.NewActivity("act", func(_ context.Context, in int) (int, error) { return in, nil })
		other := perdure.NewActivity("act", func(_ context.Context, in string) (string, error) { return in, nil })
		w := perdure.NewWorkflow("wf", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil })
		again := perdure.NewWorkflow("wf", func(perdure.WorkflowCtx, string) (string, error) { return "", nil })
		_, err := s.cfg.Open(t.Context(), s.url, w, act, other, again,
			perdure.DeclareWorkflow[int, int]("declared"), perdure.NewWorkflow("channel", func(perdure.WorkflowCtx, chan int) (int, error) { return 0, nil }),
			perdure.NewWorkflow("", func(perdure.WorkflowCtx, int) (int, error) { return 0, nil }), nil)
		wantError(t, "open", err, perdure.ErrInvalid,
			"two definitions of workflow wf (e2e/input_test.go:", "two definitions of activity act (e2e/input_test.go:", "workflow declared is declared", "Bind",
			"chan int cannot be encoded", "is empty", "nil")
		if n := strings.Count(fmt.Sprint(err), "input_test.go:"); n < 7 {
			t.Errorf("%d positions are named, want at least 7:\n%v", n, err)
		}
		app := s.open(w, act) // the right definitions still work
		if _, err := w.Run(caller(t, app), 1, perdure.RawKey("k")); err != nil {
			t.Error(err)
		}
	})
}

// A stored value does not fit the type in the code, because a caller or an older build used another
// type. The execution reports the mismatch, and the engine does not guess.
func TestWrongTypes(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		type v1 struct{ Amount int }
		type v2 struct{ Amount string }
		wake := perdure.NewSignal[int]("wake")
		words := perdure.NewSignal[string]("wake") // the same name with another type
		numbers := perdure.NewActivity("act", func(_ context.Context, in int) (int, error) { return in, nil })
		texts := perdure.DeclareActivity[string, string]("act")
		first := perdure.NewWorkflow("grows", func(ctx perdure.WorkflowCtx, in v1) (int, error) {
			n, err := wake.Receive(ctx)
			return in.Amount + n, err
		})
		second := perdure.NewWorkflow("grows", func(ctx perdure.WorkflowCtx, in v2) (int, error) {
			_, err := wake.Receive(ctx)
			return len(in.Amount), err
		})
		mixed := perdure.NewWorkflow("mixed", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return texts.Run(ctx, "text") })
		a := newAlive()
		app := s.open(first, mixed, numbers, a.w)
		c := caller(t, app)
		a.start(t, app, c)
		_, err := mixed.Run(c, "", perdure.RawKey("k"))
		wantError(t, "an activity called with other types than it is bound with", err, perdure.ErrInvalid, "act", "input_test.go:")
		exec := mustStart(t, c, first, v1{41}, perdure.RawKey("k"))
		reason(t, app, exec, "waits for signal wake")

		app = s.reopen(app, second, a.w)
		c = caller(t, app)
		if err := words.Send(c, exec, "not a number"); err != nil {
			t.Fatal(err)
		}
		info := reason(t, app, exec, "input of workflow grows")
		if !info.Status.Open() || !strings.Contains(info.Reason, "Amount") {
			t.Errorf("an input that does not fit today's type: %+v", info)
		}

		app = s.reopen(app, first, a.w)
		c = caller(t, app)
		// The signal wakes the execution. A conflict means that the new code has already run and
		// failed.
		if err := wake.Send(c, exec, 1); err != nil && !errors.Is(err, perdure.ErrConflict) {
			t.Fatal(err)
		}
		_, err = exec.Result(c)
		if err == nil || !strings.Contains(err.Error(), "wake") {
			t.Errorf("a signal of another type: %v, want an error that names it", err)
		}
		if _, ok := errors.AsType[*perdure.RemoteError](err); !ok {
			t.Errorf("error %#v, want one of the execution", err)
		}
		a.checkEnd(t, c, "a")
	})
}
