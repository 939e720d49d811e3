package perdure_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// The SDK refuses a durable call from a goroutine that workflow code has started, in production and
// in tests. If the refused function returns no error, the next durable call of the workflow returns
// the error. The process continues to run.
func TestForeignGoroutines(t *testing.T) {
	t.Parallel()
	calls := map[string]func(perdure.WorkflowCtx) error{
		"Do": func(ctx perdure.WorkflowCtx) error {
			_, err := perdure.Do(ctx, "stray", func(context.Context) (int, error) { return 1, nil })
			return err
		},
		"Sleep": func(ctx perdure.WorkflowCtx) error { return ctx.Sleep(1) },
		"UUID":  func(ctx perdure.WorkflowCtx) error { ctx.UUID(); return nil },
		"Now":   func(ctx perdure.WorkflowCtx) error { ctx.Now(); return nil },
		"Rand":  func(ctx perdure.WorkflowCtx) error { ctx.Rand().Int(); return nil },
		"Log":   func(ctx perdure.WorkflowCtx) error { ctx.Log().Info("hello"); return nil },
	}

	undone := make(chan string, len(calls))
	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, what string) (string, error) {
		ctx.OnFailure(func(ctx perdure.WorkflowCtx) error {
			_, err := perdure.Do(ctx, "undo", func(context.Context) (int, error) { undone <- what; return 1, nil })
			return err
		})
		done := make(chan error, 1)
		go func() { //perdure:allow goroutine it is the mistake that the test makes
			err := errors.New("ended")
			defer func() { done <- err }() //perdure:allow channel the mistake has its own end
			err = calls[what](ctx)
		}()
		if err := <-done; err != nil && err.Error() != "ended" { //perdure:allow channel the mistake has its own end
			return "", err
		}
		_, err := perdure.Do(ctx, "next", func(context.Context) (int, error) { return 1, nil })
		return "fine", err
	})

	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		for what := range calls {
			got, err := flow.Run(c, what)
			if what == "Log" {
				want(t, got, err, "fine")
				continue
			}
			if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), "durable call ") ||
				!strings.Contains(err.Error(), "from a goroutine that is not a coroutine of this execution: begin it with perdure.Go") {
				t.Errorf("%s: %q, %v", what, got, err)
			}
		}
		if len(undone) != len(calls)-1 {
			t.Errorf("%d of %d were undone", len(undone), len(calls)-1)
		}
	}, flow)
}
