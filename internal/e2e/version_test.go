package e2e_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
)

// Code guards a change with a version. Executions that had already passed the place of the change
// keep the old branch, and other executions take the new branch. This stays so in all deploys,
// until the old branch and the version call are removed.
func TestVersionsOverDeploys(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		var receipts atomic.Int64
		var versions sync.Map // by the key of the execution
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
		// The steps of the workflow: reserve, receipt (new in the change), a signal, charge, a
		// signal, ship.
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

// names returns the names of the events in the history of an execution.
func names(t *testing.T, app *perdure.App, to perdure.Target) string {
	t.Helper()
	var all []string
	for e, err := range app.Histories().Events(t.Context(), to) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

// After a deploy, the list of stranded executions immediately shows which executions the deploy
// leaves behind: executions of a workflow that no process has, and executions pinned to a version
// that no process runs. They continue with a build that can run them.
func TestStranded(t *testing.T) {
	t.Parallel()
	onStores(t, durable, func(t *testing.T, s *site) {
		ping := perdure.NewSignal[string]("ping")
		code := func(version string) func(perdure.WorkflowCtx, string) (string, error) {
			return func(ctx perdure.WorkflowCtx, _ string) (string, error) {
				v, err := ping.Receive(ctx)
				return v + " on " + version, err
			}
		}
		stranded := func(app *perdure.App) string {
			var all []string
			for info, err := range app.Executions().Stranded(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, info.Ref.Workflow+" "+info.Reason)
			}
			return strings.Join(sorted(all), "; ")
		}
		build := func(version string) []perdure.Definition {
			return []perdure.Definition{
				perdure.NewWorkflow("pinned", code(version), perdure.Pinned()), perdure.NewWorkflow("loose", code(version)),
			}
		}
		pinned := perdure.DeclareWorkflow[string, string]("pinned")
		loose := perdure.DeclareWorkflow[string, string]("loose")
		gone := perdure.DeclareWorkflow[string, string]("gone")
		s.cfg.Version = "v1"
		app := s.open(append(build("v1"), gone.Bind(code("v1")))...)
		for _, w := range []*perdure.Workflow[string, string]{pinned, loose, gone} {
			exec := mustStart(t, caller(t, app), w, "x", perdure.RawKey("k"))
			reason(t, app, exec, "ping")
		}
		eventually(t, "nothing is stranded", func() bool { return stranded(app) == "" })

		s.cfg.Version = "v2"
		app = s.reopen(app, build("v2")...)
		want := "gone waits for a worker that offers workflow gone: no live process has its code; " +
			"pinned waits for a worker that offers version v1 of workflow pinned: no live process has its code"
		eventually(t, "two are stranded", func() bool { return stranded(app) == want })
		c := caller(t, app)
		for _, w := range []*perdure.Workflow[string, string]{pinned, loose} {
			if err := ping.Send(c, w.Execution(perdure.RawKey("k")), "hello"); err != nil {
				t.Fatal(err)
			}
		}
		got, err := loose.Execution(perdure.RawKey("k")).Result(c)
		equal(t, "one that is not pinned", got, err, "hello on v2")
		reason(t, app, pinned.Execution(perdure.RawKey("k")), "version v1")
		fresh := mustStart(t, c, pinned, "x", perdure.RawKey("fresh"))
		reason(t, app, fresh, "ping")

		s.cfg.Version = "v1"
		app = s.reopen(app, build("v1")...)
		c = caller(t, app)
		got, err = pinned.Execution(perdure.RawKey("k")).Result(c)
		equal(t, "a pinned one on its version", got, err, "hello on v1")

		s.cfg.Version = ""
		app = s.reopen(app, pinned.Bind(code("v3"))) // not pinned, so it continues all executions
		c = caller(t, app)
		if err := ping.Send(c, fresh, "bye"); err != nil {
			t.Fatal(err)
		}
		got, err = fresh.Result(c)
		equal(t, "one that was pinned before", got, err, "bye on v3")
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = s.cfg.Open(t.Context(), s.url, build("")...)
		wantError(t, "a pinned workflow without a version", err, perdure.ErrInvalid, "pinned", "Version")
	})
}
