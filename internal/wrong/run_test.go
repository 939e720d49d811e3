package wrong_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

type (
	in   struct{ A int }
	out  struct{ B int }
	deep struct{ M map[string][]chan int }
)

var (
	wf    = perdure.DeclareWorkflow[in, out]("wf")
	other = perdure.DeclareWorkflow[in, out]("other")
	act   = perdure.DeclareActivity[in, out]("act")
)

func code(perdure.WorkflowCtx, in) (out, error) { return out{}, nil }

func body(context.Context, in) (out, error) { return out{}, nil }

// opened is a set of definitions that Open must reject.
type opened struct {
	id, name string
	defs     []perdure.Definition
	want     []string
}

// Each error names the definition and its position, and says what to do.
var refusedByOpen = []opened{
	{"R1", "declared workflow opened without code", []perdure.Definition{wf}, []string{"workflow wf is declared but has no code: pass its Bind(fn) (wrong/run_test.go:"}},
	{
		"R2", "duplicate names",
		[]perdure.Definition{perdure.NewWorkflow("x", code), perdure.NewWorkflow("x", code)},
		[]string{"two definitions of workflow x (wrong/run_test.go:", ", wrong/run_test.go:", "pass one of them, or give it another name"},
	},
	{
		"R3", "used activity not bound",
		[]perdure.Definition{perdure.NewWorkflow("w2", code, perdure.Uses(act))},
		[]string{"workflow w2 uses activity act, which has no code here and no queue: pass its Bind(fn)"},
	},
	{
		"R4", "unserialisable input (chan)",
		[]perdure.Definition{perdure.NewWorkflow("w", func(perdure.WorkflowCtx, chan int) (out, error) { return out{}, nil })},
		[]string{"input of workflow w: chan int cannot be encoded", "use a type that can be written and read again", "wrong/run_test.go:"},
	},

	// Rules of workflows and activities.
	{"S21", "a workflow whose function is nil", []perdure.Definition{wf.Bind(nil)}, []string{"the function of workflow wf is nil"}},
	{"S22", "two codes for one workflow", []perdure.Definition{wf.Bind(code), wf.Bind(code)}, []string{"two definitions of workflow wf", "pass one of them"}},
	{
		"S23", "unserialisable deep inside an output",
		[]perdure.Definition{perdure.NewActivity("a", func(context.Context, in) (deep, error) { return deep{}, nil })},
		[]string{"output of activity a: field M: chan int cannot be encoded"},
	},
	{
		"S24", "an input that loses everything",
		[]perdure.Definition{perdure.NewActivity("a", func(context.Context, struct{ hidden int }) (out, error) { return out{}, nil })},
		[]string{"has no exported field, so it would be stored empty"},
	},
	{
		"S25", "fewer than no attempts",
		[]perdure.Definition{perdure.NewActivity("a", body, perdure.Constant(-1, time.Second))},
		[]string{"RetryPolicy.MaxAttempts is -1, must be at least 1, or 0 for no limit"},
	},
	{
		"S26", "pauses that shrink",
		[]perdure.Definition{act.Bind(body), perdure.NewActivity("a", body, perdure.RetryPolicy{Coefficient: 0.5})},
		[]string{"RetryPolicy.Coefficient is 0.5"},
	},
}

func TestOpenRefusesWrongPrograms(t *testing.T) {
	t.Parallel()
	for _, o := range refusedByOpen {
		t.Run(o.id+" "+o.name, func(t *testing.T) {
			t.Parallel()
			app, err := embedded.Open(t.Context(), "memory:", o.defs...)
			if err == nil {
				_ = app.Close()
				t.Fatal("it was opened")
			}
			if !errors.Is(err, perdure.ErrInvalid) {
				t.Errorf("kind of %v", err)
			}
			for _, want := range o.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nhas no %q", err, want)
				}
			}
		})
	}
}

// ran is a program that Perdure rejects at run time.
type ran struct {
	id, name string
	// run runs the program and returns the message that its author gets.
	run  func(t *testing.T) string
	want []string
}

// The programs V3 and V4 are not in this list, because perduretest rejects them when a user tests
// them. TestWrongWorkflowsFail in package perduretest has them.
var refusedAtRunTime = []ran{
	{
		id: "V1", name: "captured workflow ctx in step",
		run: func(t *testing.T) string {
			return result(t, func(ctx perdure.WorkflowCtx, _ in) (out, error) {
				return perdure.Do(ctx, "x", func(context.Context) (out, error) { return out{}, ctx.Sleep(time.Hour) }) //perdure:allow nested the test is about it
			})
		},
		want: []string{"durable call Sleep inside step x: make it in the workflow, before or after the step"},
	},
	{
		id: "V6", name: "ContinueAsNew of another workflow",
		run: func(t *testing.T) string {
			return reason(t, func(_ perdure.WorkflowCtx, i in) (out, error) { return out{}, other.ContinueAsNew(i) })
		},
		want: []string{"is blocked", "the code of workflow wf continues workflow other as new: continue as itself, or start the other one"},
	},
	{
		id: "V8", name: "Machine event decoded by wrong activity",
		run: func(t *testing.T) string {
			_, err := perdure.DeclareActivity[in, out]("right").Result(perdure.ActivityCompleted{ID: "charge", Activity: "wrong"})
			if !errors.Is(err, perdure.ErrInvalid) {
				t.Errorf("kind of %v", err)
			}
			return err.Error()
		},
		want: []string{"event charge is of activity wrong, not of activity right"},
	},
	{
		id: "V9", name: "promise resolved with right type on wrong workflow",
		run: func(t *testing.T) string {
			never := perdure.NewPromise[int]("never")
			app := open(t, wf.Bind(func(ctx perdure.WorkflowCtx, _ in) (out, error) { return out{}, ctx.Sleep(time.Hour) }))
			x, err := wf.Start(app.With(t.Context()), in{}, perdure.RawKey("k"))
			if err != nil {
				t.Fatal(err)
			}
			if err := never.Resolve(app.With(t.Context()), x, 7); err != nil {
				t.Fatal(err)
			}

			for e, err := range app.Histories().Events(t.Context(), x) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Kind == "promise_settled" {
					return fmt.Sprintf("%s %s %s", e.Kind, e.Name, e.Output)
				}
			}

			return "nothing"
		},
		// The value of the promise is stored and visible. It is not an error if no code waits for
		// the value.
		want: []string{"promise_settled never 7"},
	},
	{
		id: "V10", name: "future of another execution, stored globally",
		run: func(t *testing.T) string {
			//perdure:allow escape the test is about it
			futures := make(chan *perdure.Future[out], 1)
			return result(t, func(ctx perdure.WorkflowCtx, i in) (out, error) {
				if i.A == 0 {
					//perdure:allow channel,escape the test is about it
					futures <- perdure.Go(ctx, func(perdure.WorkflowCtx) (out, error) { return out{}, nil })
					return wf.Run(ctx, in{A: 1})
				}
				return (<-futures).Get(ctx) //perdure:allow the test is about it
			})
		},
		want: []string{"Get: future 1 belongs to another execution: wait for it in the execution that created it"},
	},

	// Rules of workflows and activities.
	{
		id: "S27", name: "fewer than no attempts of a step",
		run: func(t *testing.T) string {
			return result(t, func(ctx perdure.WorkflowCtx, _ in) (out, error) {
				return perdure.Do(ctx, "x", func(ctx context.Context) (out, error) { return body(ctx, in{}) }, perdure.Exponential(-2))
			})
		},
		want: []string{"RetryPolicy.MaxAttempts is -2, must be at least 1, or 0 for no limit"},
	},
	{
		id: "S28", name: "an activity without code",
		run: func(t *testing.T) string {
			return reason(t, func(ctx perdure.WorkflowCtx, i in) (out, error) { return act.Run(ctx, i) })
		},
		want: []string{"waits for a worker that offers activity act"},
	},
}

func open(t *testing.T, defs ...perdure.Definition) *perdure.App {
	t.Helper()
	app, err := embedded.Open(t.Context(), "memory:", defs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := app.Close(); err != nil {
			t.Error(err)
		}
	})
	return app
}

// result runs wf with some code, and returns the error that it ends with.
func result(t *testing.T, code func(perdure.WorkflowCtx, in) (out, error)) string {
	t.Helper()
	_, err := wf.Run(open(t, wf.Bind(code)).With(t.Context()), in{}, perdure.RawKey("k"))
	return fmt.Sprint(err)
}

// reason starts wf with some code, and returns the reason why it does not end.
func reason(t *testing.T, code func(perdure.WorkflowCtx, in) (out, error)) string {
	t.Helper()
	app := open(t, wf.Bind(code))
	x, err := wf.Start(app.With(t.Context()), in{}, perdure.RawKey("k"))
	if err != nil {
		t.Fatal(err)
	}
	for {
		info, err := app.Executions().Describe(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		if info.Reason != "is running, or ready to" && !strings.HasPrefix(info.Reason, "runs step") {
			return info.Reason
		}
	}
}

func TestWrongProgramsAreRefusedAtRunTime(t *testing.T) {
	t.Parallel()
	for _, r := range refusedAtRunTime {
		t.Run(r.id+" "+r.name, func(t *testing.T) {
			t.Parallel()
			got := r.run(t)
			for _, want := range r.want {
				if !strings.Contains(got, want) {
					t.Errorf("the message is %q, want %q", got, want)
				}
			}
		})
	}
}

// TestAllProgramsAreHere checks that this package has every program of the design.
func TestAllProgramsAreHere(t *testing.T) {
	t.Parallel()
	have := map[string]bool{}
	for _, r := range compiled {
		have[r.id] = true
	}
	for _, r := range vetted {
		have[r.id] = true
	}
	for _, r := range refusedByOpen {
		have[r.id] = true
	}
	for _, r := range refusedAtRunTime {
		have[r.id] = true
	}
	var want []string
	for i := range 27 {
		want = append(want, fmt.Sprintf("%02d", i+1))
	}
	for i := range 4 {
		want = append(want, fmt.Sprintf("R%d", i+1))
	}
	for i := range 11 {
		want = append(want, fmt.Sprintf("V%d", i+1))
	}
	if len(want) != 42 {
		t.Fatal(len(want))
	}

	for _, id := range want {
		if !have[id] {
			t.Errorf("program %s is missing", id)
		}
	}
}
