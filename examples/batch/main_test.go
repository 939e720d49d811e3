package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// log is what the program printed; steps print from other goroutines.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func TestBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out log
		// Shorter documents take longer, so that the order of results is not that of the documents.
		l := library{&out, func(d document) time.Duration { return time.Minute / time.Duration(len(d.Text)) }}
		if err := run(t.Context(), "memory:", l); err != nil {
			t.Fatal(err)
		}
		want := strings.Join([]string{
			"counted pangram: 9 words", "counted proverb: 6 words", "counted motto: 4 words", "counted greeting: 2 words",
			"mirror ann has it", "mirror bob has it",
			"21 words, on ann and bob. Start over with: rm batch.db*",
		}, "\n") + "\n"
		// The third mirror hears that it is not needed while the result is on its way.
		got, gaveUp := out.text.String(), "mirror slow gives up: canceled\n"
		if strings.Count(got, gaveUp) != 1 || strings.Replace(got, gaveUp, "", 1) != want {
			t.Errorf("it printed\n%swant\n%sand that the slow mirror gives up", got, want)
		}
	})
}

// A second process on the same store has the result, and does nothing again.
func TestTheNextProcessRepeatsNothing(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "batch.db")
	none := func(document) time.Duration { return 0 }
	var first, second log
	for _, out := range []*log{&first, &second} {
		if err := run(t.Context(), url, library{out, none}); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(first.text.String(), "counted"); n != 4 {
		t.Errorf("the first process counted %d documents, want 4", n)
	}
	if got := second.text.String(); got != "21 words, on ann and bob. Start over with: rm batch.db*\n" {
		t.Errorf("the second process printed\n%s", got)
	}
}
