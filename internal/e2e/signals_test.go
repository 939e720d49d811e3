package e2e_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// An operator lists the signals that an execution has not received, moves one to the end of the
// line of its name, and drops two. After a restart the owner still has the operator's changes. On
// PostgreSQL the operator is another process.
func TestOperatorManagesSignals(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		words, start, noise := perdure.NewSignal[string]("word"), perdure.NewSignal[int]("start"), perdure.NewSignal[string]("noise")
		began, goOn := make(chan struct{}, 10), make(chan struct{})
		reads := perdure.NewWorkflow("reads", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
			n, err := start.Receive(ctx)
			if err != nil {
				return "", err
			}

			text := ""
			for range n {
				word, err := words.Receive(ctx)
				if err != nil {
					return "", err
				}
				if _, err := perdure.Do(ctx, "say", func(context.Context) (int, error) {
					began <- struct{}{}
					<-goOn
					return 0, nil
				}, perdure.StepKey(word)); err != nil {
					return "", err
				}
				text += word + " "
			}

			return strings.TrimSpace(text), nil
		})
		app := s.open(reads)
		operator := app
		if s.kind == "postgres" {
			operator = s.open()
		}
		c, ctx := caller(t, app), t.Context()
		x := mustStart(t, c, reads, "")
		say := func(word string) {
			t.Helper()
			if err := words.Send(c, x, word, perdure.RequestID("r-"+word)); err != nil {
				t.Fatal(err)
			}
		}
		unread := func() (ids map[string]string, order []string) {
			t.Helper()
			all, err := operator.Signals().List(ctx, x)
			if err != nil {
				t.Fatal(err)
			}
			ids = map[string]string{}
			for i, one := range all {
				word := strings.TrimPrefix(one.RequestID, "r-")
				if one.Position != i+1 || one.Bytes == 0 || one.Since.IsZero() || one.Value != nil {
					t.Errorf("%+v", one)
				}
				ids[word], order = one.ID, append(order, word)
			}
			return ids, order
		}
		for _, word := range []string{"a", "b", "c", "d"} {
			say(word)
		}
		if err := noise.Send(c, x, "!", perdure.RequestID("r-noise")); err != nil {
			t.Fatal(err)
		}

		ids, _ := unread()
		if shown, err := operator.Signals().Describe(ctx, x, ids["b"]); err != nil || string(shown.Value) != `"b"` || shown.Name != "word" || shown.Position != 2 {
			t.Errorf("%+v, %v", shown, err)
		}
		if err := operator.Signals().Drop(ctx, x, ids["b"], "sent twice"); err != nil {
			t.Fatal(err)
		}
		skipped, err := operator.Signals().Skip(ctx, x, ids["a"], "")
		if err != nil || skipped.ID == ids["a"] || skipped.Name != "word" {
			t.Errorf("%+v, %v", skipped, err)
		}
		for _, word := range []string{"a", "b"} {
			if err := operator.Signals().Drop(ctx, x, ids[word], ""); !errors.Is(err, perdure.ErrNotFound) {
				t.Errorf("drop of what is not there: %v", err)
			}
		}
		if _, order := unread(); !slices.Equal(order, []string{"c", "d", "noise", "a"}) {
			t.Errorf("%q are left", order)
		}
		if _, err := operator.Signals().List(ctx, perdure.Ref{Workflow: "reads", Key: "none"}); !errors.Is(err, perdure.ErrNotFound) {
			t.Errorf("signals of nothing: %v", err)
		}

		// The code takes signal c and runs a step. The history shows that only after the step has
		// ended.
		if err := start.Send(c, x, 2); err != nil {
			t.Fatal(err)
		}
		<-began
		soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if err := operator.Signals().Drop(soon, x, ids["c"], ""); err == nil {
			t.Error("a signal was dropped that the code had taken")
		}
		if err := operator.Executions().Pause(ctx, x, "look"); err != nil {
			t.Fatal(err)
		}
		close(goOn)
		if err := operator.Signals().Drop(ctx, x, ids["d"], "wrong"); err != nil {
			t.Fatalf("drop during a pause: %v", err)
		}
		if err := operator.Executions().Resume(ctx, x); err != nil {
			t.Fatal(err)
		}
		if got, err := x.Result(c); got != "c a" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if _, order := unread(); !slices.Equal(order, []string{"noise"}) {
			t.Errorf("%q are left", order)
		}
		if err := operator.Signals().Drop(ctx, x, ids["noise"], ""); !errors.Is(err, perdure.ErrConflict) {
			t.Errorf("of a closed execution: %v", err)
		}
		if n := len(slices.DeleteFunc(kindsOf(t, app, x), func(k string) bool { return k != "signal_dropped" })); n != 3 {
			t.Errorf("the history has %d drops", n)
		}
	})
}

// If an operator drops a signal while no process has the code, the code never sees the signal, not
// even in a select.
func TestDroppedSignalBeforeTheCodeRuns(t *testing.T) {
	t.Parallel()
	onStores(t, []string{"sqlite"}, func(t *testing.T, s *site) {
		bad, good := perdure.NewSignal[string]("bad"), perdure.NewSignal[string]("good")
		picks := perdure.NewWorkflow("picks", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
			b, g := bad.Next(ctx), good.Next(ctx)
			switch first, err := perdure.Select(ctx, b, g); first {
			case b:
				return "bad", err
			default:
				return "good", err
			}
		})
		idle := perdure.NewWorkflow("idle", func(perdure.WorkflowCtx, string) (string, error) { return "", nil })
		ctx := t.Context()
		app := s.open(picks)
		x := mustStart(t, caller(t, app), picks, "")
		if err := app.Executions().Pause(ctx, x, "deploy"); err != nil {
			t.Fatal(err)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		app = s.open(idle)
		c := caller(t, app)
		if err := errors.Join(bad.Send(c, x, "b"), good.Send(c, x, "g"), app.Executions().Resume(ctx, x)); err != nil {
			t.Fatal(err)
		}
		all, err := app.Signals().List(ctx, x)
		if err != nil || len(all) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		if err := app.Signals().Drop(ctx, x, all[0].ID, ""); err != nil {
			t.Fatal(err)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}

		app = s.open(picks)
		if got, err := x.Result(caller(t, app)); got != "good" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	})
}
