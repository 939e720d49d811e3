package main

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/examples/internal/printed"
	_ "github.com/perdure/perdure/internal/dialtest" // may put a server between the program and its engine
)

func TestJobs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url := "file:" + filepath.Join(t.TempDir(), "jobs.db")
	var first, second printed.Text
	if err := run(ctx, url, &first); err != nil {
		t.Fatalf("%v\n%s", err, &first)
	}

	for _, line := range []string{
		"sent to ann@example.com (attempt 1)", "2 dead: the server does not answer", `1 dead: "bob" is not an address`, "sent to bob@example.com (attempt 1)",
		"requeued eve@mail.test", "sent to eve@mail.test", "All mails are sent",
	} {
		if n := strings.Count(first.String(), line); n != 1 {
			t.Errorf("%q is there %d times:\n%s", line, n, &first)
		}
	}

	// The second run does not send any mail again.
	if err := run(ctx, url, &second); err != nil {
		t.Fatalf("%v\n%s", err, &second)
	}
	if strings.Contains(second.String(), "sent to") {
		t.Errorf("the second run sends again:\n%s", &second)
	}
}
