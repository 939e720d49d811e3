package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
	"github.com/perdure/perdure/internal/pgtest"
)

var measured = perdure.NewWorkflow("measured", func(_ perdure.WorkflowCtx, text string) (int, error) { return len(text), nil })

// Starts whose batch would take longer than a commit may, on a path to the store that is slow: all
// of them run to their end.
func TestSlowPath(t *testing.T) {
	t.Parallel()
	slowPath(t, 40, 128<<10, 1<<20, 3*time.Second)
}

// slowPath starts executions at the same time over a path that moves so many bytes per second, and
// waits for their results.
func slowPath(t *testing.T, executions, size, rate int, lease time.Duration) {
	t.Helper()
	proxy, through := proxied(t, pgtest.URL(t))
	book := newLogbook()
	cfg := embedded.Config{LeaseTTL: lease, AllowUnsafe: true, Logger: slog.New(book)}
	app, err := cfg.Open(t.Context(), through, measured)
	if err != nil {
		t.Fatal(err)
	}

	proxy.Throttle(rate)
	// Ten times as long as the bytes take at that rate, and time for a busy machine.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute+10*time.Duration(executions*size/rate)*time.Second)
	defer cancel()

	results := make(chan error, executions)
	for i := range executions {
		go func() {
			got, err := measured.Run(app.With(ctx), strings.Repeat("x", size), perdure.RawKey(fmt.Sprint("k", i)))
			if err == nil && got != size {
				err = fmt.Errorf("k%d returned %d, want %d", i, got, size)
			}
			results <- err
		}()
	}

	var failed error
	for range executions {
		failed = errors.Join(failed, <-results)
	}
	proxy.Throttle(0)
	if err := errors.Join(failed, app.Close()); err != nil {
		t.Fatalf("%v; the node logged:\n%s", err, book)
	}
}
