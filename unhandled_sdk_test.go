package perdure_test

import (
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
)

// If an execution waits and has accepted an update for which its code has no handler, its
// description names the update.
func TestDescribeNamesUpdatesWithoutAHandler(t *testing.T) {
	t.Parallel()
	next, raise := perdure.NewSignal[int]("next"), perdure.NewUpdate[int, int]("raise")
	wf := perdure.NewWorkflow("waits", func(ctx perdure.WorkflowCtx, _ int) (int, error) { return next.Receive(ctx) })
	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		x, err := wf.Start(c, 20)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { _, err := raise.Call(c, x, 1); done <- err }()
		const text = "waits for signal next; has update raise, which its code does not handle yet"
		synctest.Wait() // for the update
		info, err := app.Executions().Describe(t.Context(), x)
		if err != nil || info.Reason != text {
			t.Errorf("the description says %q, %v", info.Reason, err)
		}
		for info, err := range app.Executions().List(t.Context(), `workflow = "waits"`) {
			if err != nil || info.Reason != text {
				t.Errorf("the list says %q, %v", info.Reason, err)
			}
		}

		if err := next.Send(c, x, 1); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err == nil {
			t.Error("the update has an answer")
		}
	}, wf)
}
