package main

import (
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

func TestBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out printed.Text
		// Shorter documents take longer, so the counts do not end in the order of the documents.
		l := library{&out, func(d document) time.Duration { return time.Minute / time.Duration(len(d.Text)) }}
		if err := run(t.Context(), "memory:", l); err != nil {
			t.Fatal(err)
		}

		// The program cancels the third mirror while the third mirror still uploads the result.
		got, gaveUp := out.String(), "mirror slow gives up: canceled\n"
		if n := strings.Count(got, gaveUp); n != 1 {
			t.Errorf("the slow mirror gives up %d times", n)
		}

		if diff := printed.Diff(
			strings.Replace(got, gaveUp, "", 1),
			"counted pangram: 9 words", "counted proverb: 6 words", "counted motto: 4 words", "counted greeting: 2 words",
			"mirror ann has it", "mirror bob has it",
			"21 words, on ann and bob. Start over with: rm batch.db*",
		); diff != "" {
			t.Error(diff)
		}
	})
}

// A second process on the same store gets the stored result, and repeats nothing.
func TestTheNextProcessRepeatsNothing(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "batch.db")
	none := func(document) time.Duration { return 0 }
	var first, second printed.Text
	for _, out := range []*printed.Text{&first, &second} {
		if err := run(t.Context(), url, library{out, none}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(first.String(), "counted"); n != 4 {
		t.Errorf("the first process counted %d documents, want 4", n)
	}
	if diff := printed.Diff(second.String(), "21 words, on ann and bob. Start over with: rm batch.db*"); diff != "" {
		t.Errorf("the second process: %s", diff)
	}
}
