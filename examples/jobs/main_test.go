package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// log is what the program printed; tasks print from other goroutines.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func TestJobs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url := "file:" + filepath.Join(t.TempDir(), "jobs.db")
	var first, second log
	if err := run(ctx, url, &first); err != nil {
		t.Fatalf("%v\n%s", err, &first.text)
	}
	for _, line := range []string{
		"sent to ann@example.com (attempt 1)", "2 dead: the server does not answer", `1 dead: "bob" is no address`, "sent to bob@example.com (attempt 1)",
		"requeued eve@mail.test", "sent to eve@mail.test", "All mails are sent",
	} {
		if n := strings.Count(first.text.String(), line); n != 1 {
			t.Errorf("%q is there %d times:\n%s", line, n, &first.text)
		}
	}
	// Once more: nothing is sent twice.
	if err := run(ctx, url, &second); err != nil {
		t.Fatalf("%v\n%s", err, &second.text)
	}
	if strings.Contains(second.text.String(), "sent to") {
		t.Errorf("the second run sends again:\n%s", &second.text)
	}
}
