package e2e_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
)

// A change goes behind a version: executions that were past it keep to the old branch, others take the new one, over all deploys, until the
// branch and the call are removed.
func TestVersionsOverDeploys(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		var receipts atomic.Int64
		var versions sync.Map // by key
		wake := perdure.NewSignal[string]("wake")
		step := func(ctx perdure.WorkflowCtx, name string) error {
			_, err := perdure.Do(ctx, name, func(context.Context) (bool, error) {
				if name == "receipt" {
					receipts.Add(1)
				}
				return true, nil
			})
			return err
		}
		// reserve; (receipt, since the change); a word; charge; a word; ship
		code := func(change func(ctx perdure.WorkflowCtx) error) *perdure.Workflow[string, string] {
			return perdure.NewWorkflow("order", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
				if err := step(ctx, "reserve"); err != nil {
					return "", err
				}
				if err := change(ctx); err != nil {
					return "", err
				}
				for _, name := range []string{"charge", "ship"} {
					if _, err := wake.Receive(ctx); err != nil {
						return "", err
					}
					if err := step(ctx, name); err != nil {
						return "", err
					}
				}
				return "done", nil
			})
		}
		before := code(func(perdure.WorkflowCtx) error { return nil })
		since := code(func(ctx perdure.WorkflowCtx) error {
			v := ctx.Version("receipt", 0, 1)
			versions.Store(ctx.Self().Key, v)
			if v == 0 {
				return nil
			}
			return step(ctx, "receipt")
		})
		over := code(func(ctx perdure.WorkflowCtx) error { return step(ctx, "receipt") })

		app := s.open(before)
		c := caller(t, app)
		tell := func(key string) {
			t.Helper()
			if err := wake.Send(c, before.Execution(perdure.RawKey(key)), "go on"); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range []string{"past", "early"} {
			if _, err := before.Start(c, "", perdure.RawKey(key)); err != nil {
				t.Fatal(err)
			}
			reason(t, app, before.Execution(perdure.RawKey(key)), "signal wake")
		}
		tell("past")
		eventually(t, "the charge of the one that is past", func() bool {
			return strings.Contains(names(t, app, before.Execution(perdure.RawKey("past"))), "charge")
		})

		app = s.reopen(app, since)
		c = caller(t, app)
		tell("past")
		tell("early")
		if got, err := before.Execution(perdure.RawKey("past")).Result(c); err != nil || got != "done" {
			t.Fatalf("past = %q, %v", got, err)
		}
		eventually(t, "the charge of the other", func() bool {
			return strings.Contains(names(t, app, before.Execution(perdure.RawKey("early"))), "charge")
		})
		past, _ := versions.Load("past")
		early, _ := versions.Load("early")
		if past != 0 || early != 1 || receipts.Load() != 1 {
			t.Errorf("past follows %v, early %v, %d receipts", past, early, receipts.Load())
		}

		app = s.reopen(app, over)
		c = caller(t, app)
		tell("early")
		if got, err := before.Execution(perdure.RawKey("early")).Result(c); err != nil || got != "done" || receipts.Load() != 1 {
			t.Errorf("early = %q, %v, %d receipts", got, err, receipts.Load())
		}
	})
}

// names are the names of what stands in the history of an execution.
func names(t *testing.T, app *perdure.App, to perdure.Target) string {
	t.Helper()
	var all []string
	for e, err := range app.History(t.Context(), to) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}
