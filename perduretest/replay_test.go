package perduretest_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perduretest"
)

// exported is the history of a workflow that runs two steps.
func exported(t *testing.T, steps ...string) (history string) {
	t.Helper()
	perduretest.Run(t, stepper(steps...), func(t *testing.T, env *perduretest.Env) {
		if _, err := stepper(steps...).Run(env.With(), 1, perdure.RawKey("k")); err != nil {
			t.Fatal(err)
		}
		var file strings.Builder
		if err := env.App().Export(env.Context(), perdure.Ref{Workflow: "stepper", Key: "k"}, &file); err != nil {
			t.Fatal(err)
		}
		history = file.String()
	})
	return history
}

func stepper(steps ...string) *perdure.Workflow[int, int] {
	return perdure.NewWorkflow("stepper", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		for _, name := range steps {
			m, err := perdure.Do(ctx, name, func(context.Context) (int, error) { return n * 2, nil }, perdure.StepKey(name))
			if err != nil {
				return 0, err
			}
			n = m
		}
		return n, nil
	})
}

func TestReplay(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"testdata/a.jsonl": {Data: []byte(exported(t, "one", "two"))}, "testdata/notes.txt": {Data: []byte("none")}}
	perduretest.Replay(t, files, "testdata/*.jsonl", stepper("one", "two"))
	for name, code := range map[string]*perdure.Workflow[int, int]{
		"a step that is gone": stepper("one"), "a step that is new": stepper("one", "two", "three"), "another order": stepper("two", "one"),
	} {
		f, err := files.Open("testdata/a.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		if err := perdure.Replay(t.Context(), f, code); err == nil {
			t.Errorf("%s: accepted", name)
		}
		_ = f.Close()
	}
	if err := perdure.Replay(t.Context(), io.LimitReader(strings.NewReader("none"), 4), stepper("one")); err == nil {
		t.Error("a file that is no history was accepted")
	}
}
