package perduretest_test

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/attach"
	"github.com/perdure/perdure/payload"
	"github.com/perdure/perdure/perduretest"
)

// exportHistory returns the exported history of a workflow that runs the given steps.
func exportHistory(t *testing.T, cfg perduretest.Config, steps ...string) (history string) {
	t.Helper()
	cfg.Run(t, stepper(steps...), func(t *testing.T, env *perduretest.Env) {
		if _, err := stepper(steps...).Run(env.With(), 1, perdure.RawKey("k")); err != nil {
			t.Fatal(err)
		}
		var file strings.Builder
		if err := env.App().Histories().Export(env.Context(), perdure.Ref{Workflow: "stepper", Key: "k"}, &file); err != nil {
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
	files := fstest.MapFS{"testdata/a.jsonl": {Data: []byte(exportHistory(t, perduretest.Config{}, "one", "two"))}, "testdata/notes.txt": {Data: []byte("none")}}
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

func TestReplayOfSealedHistories(t *testing.T) {
	t.Parallel()
	keys, err := payload.NewKeys("k1", map[string][]byte{"k1": bytes.Repeat([]byte{1}, 32)}, bytes.Repeat([]byte{2}, 32))
	if err != nil {
		t.Fatal(err)
	}
	blobs := t.TempDir()
	cfg := perduretest.Config{Payloads: payload.Codec{Chain: []payload.Transform{payload.Encrypt(keys), payload.Offload(payload.Dir(blobs), 1)}}}
	history := exportHistory(t, cfg, "one", "two")
	stored := blobsIn(t, blobs)
	if stored == 0 {
		t.Fatal("nothing was offloaded")
	}

	files := fstest.MapFS{"a.jsonl": {Data: []byte(history)}}
	cfg.Replay(t, files, "*.jsonl", stepper("one", "two"))
	replay := func(p payload.Codec, code *perdure.Workflow[int, int]) error {
		return attach.Replay(t.Context(), attach.Config{Payloads: p}, strings.NewReader(history), code)
	}
	if err := replay(cfg.Payloads, stepper("one")); err == nil || !strings.Contains(err.Error(), "two") {
		t.Errorf("code without a recorded step: %v", err)
	}

	other := perdure.NewWorkflow("stepper", func(ctx perdure.WorkflowCtx, n int) (int, error) {
		for _, name := range []string{"one", "two"} {
			if _, err := perdure.Do(ctx, name, func(context.Context) (int, error) { return 0, nil }, perdure.StepKey(name)); err != nil {
				return 0, err
			}
		}
		return n + 1, nil
	})
	if err := replay(cfg.Payloads, other); err == nil || !strings.Contains(err.Error(), "result") {
		t.Errorf("code with another result: %v", err)
	}
	if err := replay(payload.Codec{}, stepper("one", "two")); err == nil {
		t.Error("sealed payloads were read without keys")
	}
	if n := blobsIn(t, blobs); n != stored {
		t.Errorf("the replays put %d blobs", n-stored)
	}
}

// blobsIn counts the files of a folder.
func blobsIn(t *testing.T, folder string) (n int) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(folder), ".", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
