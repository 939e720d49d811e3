package perdure_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// A call with a mistake returns ErrInvalid. The SDK does not silently change or ignore the wrong
// part.
func TestMistakesOfCallsAreRefused(t *testing.T) {
	t.Parallel()
	for _, n := range []int{-1, 5000} {
		app, err := embedded.Config{Shards: n}.Open(t.Context(), "memory:")
		if err == nil {
			_ = app.Close() // the test has failed already
		}
		if !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), "at most 4096") {
			t.Errorf("%d shards: %v", n, err)
		}
	}

	const bad = "a\xffb"
	wait := perdure.NewSignal[perdure.Void]("wait")
	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, _ string) (int, error) { _, err := wait.Receive(ctx); return 0, err })
	accounts := perdure.NewEntity[int]("account")
	deposit := perdure.NewOperation(accounts, "deposit", func(perdure.EntityCtx, *int, int) (int, error) { return 0, errors.New("no") })

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		x, err := flow.Start(c, "", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}

		for what, call := range map[string]func() error{
			"two keys":       func() error { _, err := flow.Start(c, "", perdure.RawKey("a"), perdure.RawKey("b")); return err },
			"two kinds":      func() error { _, err := flow.Start(c, "", perdure.RawKey("a"), perdure.HashKey("b")); return err },
			"key":            func() error { _, err := flow.Start(c, "", perdure.RawKey(bad)); return err },
			"hashed key":     func() error { _, err := flow.Start(c, "", perdure.HashKey(bad)); return err },
			"hashed input":   func() error { _, err := flow.Start(c, bad); return err },
			"input":          func() error { _, err := flow.Start(c, bad, perdure.RawKey("input")); return err },
			"value":          func() error { return perdure.NewSignal[string]("text").Send(c, x, bad) },
			"label":          func() error { _, err := flow.Start(c, "", perdure.Labels(map[string]string{"l": bad})); return err },
			"name of label":  func() error { _, err := flow.Start(c, "", perdure.Labels(map[string]string{bad: "v"})); return err },
			"request id":     func() error { _, err := flow.Start(c, "", perdure.RequestID(bad)); return err },
			"signal":         func() error { return perdure.NewSignal[int](bad).Send(c, x, 1) },
			"promise":        func() error { return perdure.NewPromise[int](bad).Resolve(c, x, 1) },
			"update":         func() error { _, err := perdure.NewUpdate[int, int](bad).Call(c, x, 1); return err },
			"key of entity":  func() error { _, err := deposit.Call(c, bad, 1); return err },
			"cancel":         func() error { return x.Cancel(c, bad) },
			"terminate":      func() error { return app.Executions().Terminate(t.Context(), x, bad) },
			"pause":          func() error { return app.Executions().Pause(t.Context(), x, bad) },
			"name of a flow": func() error { _, err := perdure.DeclareWorkflow[string, int](bad).Start(c, ""); return err },
		} {
			if err := call(); !errors.Is(err, perdure.ErrInvalid) {
				t.Errorf("%s: %v, want an ErrInvalid", what, err)
			}
		}

		// The replacement character itself is valid text.
		if _, err := flow.Start(c, "\ufffd \\ufffd"); err != nil {
			t.Error(err)
		}
	}, flow, accounts)
}

// Errors name executions and entities as users write them.
func TestErrorsNameAddressesAsUsersDo(t *testing.T) {
	t.Parallel()
	accounts := perdure.NewEntity[int]("account", perdure.MailboxSize(1), perdure.OperationTimeout(time.Hour))
	hold := make(chan struct{})
	deposit := perdure.NewOperation(accounts, "deposit", func(perdure.EntityCtx, *int, int) (int, error) { <-hold; return 0, nil })
	note := perdure.NewSignal[int]("note")

	with(t, func(t *testing.T, c perdure.Client, _ *perdure.App) {
		defer close(hold)
		var full error
		for range 10 {
			if err := deposit.Send(c, "a", 1); err != nil {
				full = err
			}
		}
		if full == nil || !strings.Contains(full.Error(), `account "a"`) || strings.Contains(full.Error(), "entity:") || strings.Contains(full.Error(), "default/") {
			t.Errorf("a full mailbox: %v", full)
		}
		err := note.Send(c, perdure.Ref{Workflow: "order", Key: "o-1"}, 1)
		if err == nil || !strings.Contains(err.Error(), "execution order/o-1 does not exist") {
			t.Errorf("a signal to a missing execution: %v", err)
		}
	}, accounts)
}
