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

// On a slow connection to the store, the batch of these starts would take longer than the time-out
// of a commit. All executions complete.
func TestSlowPath(t *testing.T) {
	t.Parallel()
	slowPath(t, 40, 128<<10, 1<<20, 3*time.Second)
}

// slowPath starts executions at the same time over a connection with the given number of bytes per
// second, and waits for their results.
func slowPath(t *testing.T, executions, size, rate int, lease time.Duration) {
	t.Helper()
	proxy, through := startProxy(t, pgtest.URL(t))
	book := newLogbook()
	cfg := embedded.Config{LeaseTTL: lease, AllowUnsafe: true, Logger: slog.New(book)}
	app, err := cfg.Open(t.Context(), through, measured)
	if err != nil {
		t.Fatal(err)
	}

	proxy.Throttle(rate)
	// Allow ten times as long as the transfer takes, because the machine may be busy.
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
