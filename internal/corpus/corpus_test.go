package corpus_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/history"
	"github.com/perdure/perdure/internal/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recordedHistories returns all histories that were ever recorded.
func recordedHistories(t *testing.T) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "v*", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded histories: %v", err)
	}
	all := map[string][]byte{}
	for _, f := range files {
		if all[f], err = os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// Today's code fits every history that was ever recorded.
func TestRecordedHistoriesReplay(t *testing.T) {
	t.Parallel()
	for path, data := range recordedHistories(t) {
		t.Run(strings.TrimSuffix(path, ".jsonl"), func(t *testing.T) {
			t.Parallel()
			if err := perdure.Replay(t.Context(), bytes.NewReader(data), definitions()); err != nil {
				t.Error(err)
			}
		})
	}
}

// At least one recorded history has each kind of event. A kind that is not recorded could break
// without any test failing. The kind noted is exempt, because workflows of this SDK do not write
// notes; a golden test of package model has the encoding of a note.
func TestEveryKindIsRecorded(t *testing.T) {
	t.Parallel()
	seen := map[model.EventKind]bool{model.EventStarted: true, model.EventClosed: true, model.EventNoted: true}
	for path, data := range recordedHistories(t) {
		h, err := history.Read(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		for i := range h.Events {
			seen[h.Events[i].Kind] = true
		}
	}

	for k := model.EventStarted; k <= model.LastEventKind; k++ {
		if k.Known() && !seen[k] {
			t.Errorf("no recorded history has an event of kind %s: see doc.go", k)
		}
	}
}

// Recorded histories do not change.
func TestRecordedHistoriesStay(t *testing.T) {
	t.Parallel()
	generations, err := filepath.Glob(filepath.Join("testdata", "*.sums"))
	if err != nil || len(generations) == 0 {
		t.Fatalf("no sums: %v", err)
	}
	for _, path := range generations {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := sums(t, strings.TrimSuffix(filepath.Base(path), ".sums")); !bytes.Equal(got, want) {
			t.Errorf("the histories of %s were changed; they stand for what users have in their stores\nis %s\nwas %s", path, got, want)
		}
	}
}

// The replay fails if a change of the code or of a history breaks recorded runs.
func TestReplayNoticesChanges(t *testing.T) {
	t.Parallel()
	all := recordedHistories(t)
	for name, c := range map[string]struct {
		file   string
		change func(string) string
		want   string
	}{
		"another name of a step": {"steps", func(s string) string { return strings.ReplaceAll(s, `hopeless`, `hopeful_`) }, "hopeful_"},
		"another seed":           {"steps", func(s string) string { return strings.Replace(s, `"run":"run_0`, `"run":"run_1`, 1) }, "record"},
		"another time":           {"steps", func(s string) string { return strings.Replace(s, `"started":"2026`, `"started":"2025`, 1) }, "record"},
		"another result": {"versions", func(s string) string {
			return strings.ReplaceAll(s, `"status":"completed","at"`, `"status":"failed","at"`)
		}, "ended as failed"},
		"an end that came early": {"canceled", func(s string) string { return without(s, "cancel_requested") }, ""},
		"a result too many":      {"versions", func(s string) string { return without(s, "step_completed") }, "ended as completed"},
	} {
		text := c.change(string(all[filepath.Join("testdata", "v1", c.file+".jsonl")]))
		err := perdure.Replay(t.Context(), strings.NewReader(text), definitions())
		if !errors.Is(err, perdure.ErrBlocked) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}

	err := perdure.Replay(t.Context(), bytes.NewReader(all[filepath.Join("testdata", "v1", "steps.jsonl")]), timers)
	if !errors.Is(err, perdure.ErrNotFound) {
		t.Errorf("without the code: %v", err)
	}
}

// without returns a history without the events of a kind. It renumbers later events.
func without(text, kind string) string {
	h, err := history.Read(strings.NewReader(text))
	if err != nil {
		panic(err)
	}

	var kept []model.Event
	for _, e := range h.Events {
		if e.Kind.String() == kind {
			continue
		}
		e.Seq = int64(len(kept) + 1)
		kept = append(kept, e)
	}

	h.Events, h.Outcome.Seen = kept, 0
	var b bytes.Buffer
	if err := history.Write(&b, h); err != nil {
		panic(err)
	}

	return b.String()
}
