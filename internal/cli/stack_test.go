package cli_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/cli"
)

// blowUp panics; its name is what the stacks must show.
func blowUp() { panic("first line\nsecond line") }

// People see where code panicked: the message on one line, and the stack when they ask for it.
func TestStacksOfPanics(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "p.db")
	ended := perdure.NewWorkflow("ended", func(perdure.WorkflowCtx, perdure.Void) (int, error) { blowUp(); return 0, nil })
	tried := perdure.NewWorkflow("tried", func(ctx perdure.WorkflowCtx, _ perdure.Void) (int, error) {
		return perdure.Do(ctx, "pay", func(context.Context) (int, error) { blowUp(); return 0, nil }, perdure.Constant(0, time.Hour))
	})
	job := perdure.NewActivity("job", func(context.Context, perdure.Void) (int, error) { blowUp(); return 0, nil }, perdure.OnQueue("q"), perdure.Constant(1, 0))
	app, err := embedded.Open(t.Context(), url, ended, tried, job)
	if err != nil {
		t.Fatal(err)
	}
	c := app.With(t.Context())
	if _, err := ended.Run(c, perdure.Void{}, perdure.RawKey("k")); err == nil {
		t.Fatal("no panic")
	}
	x, err := tried.Start(c, perdure.Void{}, perdure.RawKey("k"))
	if err != nil {
		t.Fatal(err)
	}
	task, err := job.Submit(c, perdure.Void{}, perdure.RawKey("k"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := task.Result(c); err == nil {
		t.Fatal("no panic")
	}
	for {
		info, err := app.Executions().Describe(t.Context(), x)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info.Reason, "retries step pay") {
			break
		}
		time.Sleep(time.Millisecond) // until its worker has said so
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}

	run := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := cli.Main(t.Context(), append(args, "--store", url), cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}); code != 0 {
			t.Fatalf("perdure %s: %d %s", strings.Join(args, " "), code, errs.String())
		}
		return out.String()
	}
	const stack = "cli_test.blowUp"
	dead := run("dlq", "list", "-o", "json")
	_, dead, _ = strings.Cut(dead, `"dead_`)
	dead, _, _ = strings.Cut(dead, `"`)
	for _, args := range [][]string{
		{"workflow", "describe", "ended/k"},
		{"workflow", "show", "ended/k"},
		{"workflow", "describe", "tried/k"},
		{"workflow", "show", "tried/k"},
		{"task", "show", "job/k"},
		{"dlq", "show", "dead_" + dead},
	} {
		text := run(args...)
		if !strings.Contains(text, "panic: first line second line") || strings.Contains(text, stack) {
			t.Errorf("perdure %s shows no message on one line, or a stack:\n%s", strings.Join(args, " "), text)
		}
		if text := run(append(args, "--stack")...); !strings.Contains(text, stack) {
			t.Errorf("perdure %s --stack shows none:\n%s", strings.Join(args, " "), text)
		}
	}
	if text := run("workflow", "describe", "ended/k", "-o", "json"); !strings.Contains(text, stack) {
		t.Errorf("programs do not get the stack:\n%s", text)
	}
}
