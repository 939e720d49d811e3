package engine_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
	"github.com/perdure/perdure/internal/store/memory"
)

// The log says that a fence has moved only after it has really moved, and not after a failed
// attempt.
func TestFenceMovedIsLoggedWhenItHas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log loglines
		armed := false // under the lock of the wrapper
		plan := faultstore.PlanFunc(func(c faultstore.Call) faultstore.Fault {
			switch {
			case c.Method == faultstore.Commit && c.Batch != nil && len(c.Batch.Starts) > 0 && !armed:
				armed = true
				// The lane does not know whether the commit has landed.
				return faultstore.Fault{Kind: faultstore.FailAfter}
			case c.Method == faultstore.Refence && c.OfMethod == 1:
				return faultstore.Fault{Kind: faultstore.FailBefore, Class: store.Away}
			}
			return faultstore.Fault{}
		})
		e := engine.New(engine.Config{
			Store: faultstore.Wrap(memory.New(memory.Options{}), faultstore.Config{Plan: plan}),
			Log:   slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		if err := e.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Send(t.Context(), start("a")); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}

		var said []string
		for _, line := range log.with("fence ") {
			switch {
			case strings.Contains(line, `msg="fence moved after`):
				said = append(said, "moved")
			case strings.Contains(line, `msg="fence could not be moved`) && strings.Contains(line, "error="):
				said = append(said, "not")
			}
		}
		if !slices.Equal(said, []string{"not", "moved"}) {
			t.Errorf("the log says %q of an attempt that failed and one that did not:\n%s", said, strings.Join(log.with("fence "), ""))
		}
	})
}
