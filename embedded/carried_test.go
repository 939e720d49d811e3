package embedded_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// A run can continue as new with as many unread signals as a run may hold, and the next run gets
// all of them. In an earlier version, such a run was blocked.
func TestContinueAsNewWithManySignals(t *testing.T) {
	t.Parallel()
	text := perdure.NewSignal[string]("text")
	next := perdure.NewPromise[int]("next")
	flow := perdure.NewWorkflow[int, int]("flow", nil)

	body := func(ctx perdure.WorkflowCtx, round int) (int, error) {
		if round == 0 {
			sent, err := next.Await(ctx)
			if err != nil {
				return 0, err
			}
			return 0, flow.ContinueAsNew(sent)
		}
		for range round {
			if _, err := text.Receive(ctx); err != nil {
				return 0, err
			}
		}
		return round, nil
	}

	app := open(t, embedded.Config{}, "file:"+filepath.Join(t.TempDir(), "perdure.db"), flow.Bind(body))
	x, err := flow.Start(app.With(t.Context()), 0, perdure.RawKey("one"))
	if err != nil {
		t.Fatal(err)
	}

	chunk, sent := strings.Repeat("x", 2<<20-1<<10), 0
	for range 40 {
		err := text.Send(app.With(t.Context()), x, chunk)
		if errors.Is(err, perdure.ErrExhausted) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		sent++
	}

	if sent == 0 || sent == 40 {
		t.Fatalf("%d signals were accepted", sent)
	}
	if err := next.Resolve(app.With(t.Context()), x, sent); err != nil {
		t.Fatal(err)
	}
	if got, err := x.Result(app.With(t.Context())); err != nil || got != sent {
		t.Errorf("the next run got %d signals of %d: %v", got, sent, err)
	}
}
