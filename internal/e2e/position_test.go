package e2e_test

import (
	"context"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// A poll is a step that the SDK runs for the user. A mismatch still names the line of the user's
// code.
func TestMismatchNamesTheLineOfAPoll(t *testing.T) {
	t.Parallel()
	s := newSite(t, "sqlite")
	begin := perdure.NewSignal[string]("go")
	other := perdure.NewWorkflow("other", func(ctx perdure.WorkflowCtx, _ string) (string, error) { return "done", nil })

	old := perdure.NewWorkflow("polls", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		if _, err := other.Execution(perdure.RawKey("o")).Poll(ctx); err != nil {
			return "", err
		}
		return begin.Receive(ctx)
	})

	app := s.open(old, other)
	c := caller(t, app)
	if _, err := other.Run(c, "x", perdure.RawKey("o")); err != nil {
		t.Fatal(err)
	}
	exec := mustStart(t, c, old, "x", perdure.RawKey("p"))
	reason(t, app, exec, "go")
	app = s.reopen(app, other, perdure.NewWorkflow("polls", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		return perdure.Do(ctx, "else", func(context.Context) (string, error) { return "", nil })
	}))
	_ = begin.Send(caller(t, app), exec, "x")
	info := reason(t, app, exec, "replay mismatch")
	if !strings.Contains(info.Reason, "position_test.go:20") {
		t.Errorf("reason %q does not name the line of the poll", info.Reason)
	}
}
