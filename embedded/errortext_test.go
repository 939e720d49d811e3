package embedded_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/model"
)

// Errors and panics of user code can have texts of any size. The SDK cuts a text before the
// workflow sees it. So the store accepts the text, no body runs twice, and a replay sees the same
// text.
func TestErrorTextsAreCut(t *testing.T) {
	t.Parallel()
	const huge = 70 << 20 // more than SQLite accepts in one row
	var steps, tasks atomic.Int64
	text := func() string { return strings.Repeat("é", huge/2) }
	saw := make(chan string, 100)
	task := perdure.NewActivity("task", func(context.Context, int) (int, error) {
		tasks.Add(1)
		return 0, perdure.Permanent(errors.New(text()))
	}, perdure.OnQueue("errors"))
	count := perdure.NewEntity[int]("count")
	add := perdure.NewOperation(count, "add", func(perdure.EntityCtx, *int, int) (int, error) { return 0, errors.New(text()) })
	go1 := perdure.NewSignal[int]("go")
	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, how string) (int, error) {
		_, err := perdure.Do(ctx, "fail", func(context.Context) (int, error) {
			steps.Add(1)
			switch how {
			case "panic":
				panic(text())
			default:
				return 0, perdure.Permanent(errors.New(text()))
			}
		}, perdure.RetryPolicy{MaxAttempts: 1})

		if how == "task" {
			_, err = task.Run(ctx, 1)
		}
		if how == "call" {
			_, err = add.Call(ctx, "a", 1)
		}
		saw <- err.Error() //perdure:allow channel the test looks at what the code saw
		if _, err := go1.Receive(ctx); err != nil {
			return 0, err
		}

		return 0, errors.New(err.Error() + text())
	})
	url := "file:" + filepath.Join(t.TempDir(), "perdure.db")
	open := func() *perdure.App {
		app, err := embedded.Config{}.Open(t.Context(), url, flow, task, count)
		if err != nil {
			t.Fatal(err)
		}
		return app
	}
	app := open()
	first := map[string]string{}
	for _, how := range []string{"step", "panic", "task", "call"} {
		if _, err := flow.Start(app.With(t.Context()), how, perdure.RawKey(how)); err != nil {
			t.Fatal(err)
		}
		got := <-saw
		if len(got) > 2*model.MaxErrorText || !strings.Contains(got, "bytes cut)") {
			t.Errorf("%s: the code sees an error of %d bytes: %.100q", how, len(got), got)
		}
		first[how] = got
	}
	if s, n := steps.Load(), tasks.Load(); s != 4 || n != 1 {
		t.Errorf("%d steps and %d tasks ran, want 4 and 1", s, n)
	}
	if _, err := add.Call(app.With(t.Context()), "b", 1); err == nil || len(err.Error()) > 2*model.MaxErrorText {
		t.Errorf("a call fails with %.100v", err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	app = open()
	defer func() { _ = app.Close() }()
	for how, want := range first {
		x := flow.Execution(perdure.RawKey(how))
		if err := go1.Send(app.With(t.Context()), x, 1); err != nil {
			t.Fatal(err)
		}
		if got := <-saw; got != want {
			t.Errorf("%s: the replay sees %d bytes, the code saw %d", how, len(got), len(want))
		}
		if _, err := x.Result(app.With(t.Context())); err == nil || len(err.Error()) > 2*model.MaxErrorText || !strings.Contains(err.Error(), "bytes cut)") {
			t.Errorf("%s: the execution ends with %.100v", how, err)
		}
	}
	if s, n := steps.Load(), tasks.Load(); s != 4 || n != 1 {
		t.Errorf("%d steps and %d tasks ran, want 4 and 1", s, n)
	}
}

// The engine also cuts the reasons that operators give.
func TestReasonsOfPeopleAreCut(t *testing.T) {
	t.Parallel()
	wait := perdure.NewSignal[int]("wait")
	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, _ int) (int, error) { return wait.Receive(ctx) })
	app := open(t, embedded.Config{}, "file:"+filepath.Join(t.TempDir(), "perdure.db"), flow)

	reason := strings.Repeat("x", 1<<20)
	for key, order := range map[string]func(perdure.Execution[int]) error{
		"cancel":    func(x perdure.Execution[int]) error { return x.Cancel(app.With(t.Context()), reason) },
		"terminate": func(x perdure.Execution[int]) error { return app.Executions().Terminate(t.Context(), x, reason) },
	} {
		x, err := flow.Start(app.With(t.Context()), 1, perdure.RawKey(key))
		if err != nil {
			t.Fatal(err)
		}
		if err := order(x); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Result(app.With(t.Context())); err == nil || len(err.Error()) > 2*model.MaxErrorText {
			t.Errorf("%s: the execution ends with %.100v", key, err)
		}
	}
}
