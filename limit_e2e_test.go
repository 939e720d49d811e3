package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// ShouldContinueAsNew tells a workflow in time that it should continue as new. A replay gets the
// same answer, even if the limits have changed.
func TestContinueAsNewIsSuggested(t *testing.T) {
	t.Parallel()
	type batch struct{ Run, Done int }
	var self *perdure.Workflow[batch, string]
	tick := perdure.NewSignal[int]("tick")

	self = perdure.NewWorkflow("feeder", func(ctx perdure.WorkflowCtx, b batch) (string, error) {
		var seen []string
		for !ctx.ShouldContinueAsNew() {
			n, before := ctx.HistoryLength(), ctx.HistoryBytes()
			if _, err := perdure.Do(ctx, "load", func(context.Context) (string, error) { return strings.Repeat("x", 10_000), nil }, perdure.StepKey(fmt.Sprint(b.Done))); err != nil {
				return "", err
			}
			b.Done++
			if ctx.HistoryLength() <= n || ctx.HistoryBytes() < before+10_000 {
				return "", fmt.Errorf("a history of %d events and %d bytes has %d and %d one step later", n, before, ctx.HistoryLength(), ctx.HistoryBytes())
			}

			seen = append(seen, fmt.Sprint(ctx.HistoryLength(), ctx.HistoryBytes()))
			if b.Done%7 == 0 { // the run is unloaded and replayed
				if _, err := tick.Receive(ctx); err != nil {
					return "", err
				}
			}

			if len(seen) > 60 {
				return "", errors.New("nobody has suggested to continue")
			}
		}

		if b.Run == 2 {
			return fmt.Sprint(len(seen) > 10 && len(seen) < 60, ctx.HistoryBytes() > 256<<10), nil
		}
		return "", self.ContinueAsNew(batch{b.Run + 1, b.Done})
	})

	synctest.Test(t, func(t *testing.T) {
		app, err := embedded.Config{MaxHistory: 512 << 10}.Open(t.Context(), "memory:", self)
		if err != nil {
			t.Fatal(err)
		}
		defer app.Close()
		c := app.With(t.Context())
		x, err := self.Start(c, batch{}, perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}

		for {
			if got, err := x.Poll(c); err != nil || !got.Status.Open() {
				break
			}
			time.Sleep(time.Minute) // in virtual time; the run leaves memory
			_ = tick.Send(c, x, 1)  // it may have ended
		}

		got, err := x.Result(c)
		want(t, got, err, "true true")
		// Each run has at most one event that records the suggestion, and its history matches the
		// code.
		for run := range app.Executions().List(t.Context(), "") {
			marks := 0
			for e := range app.Histories().Events(t.Context(), run.Ref) {
				if e.Kind == "version_marked" {
					marks++
				}
			}

			if marks != 1 {
				t.Errorf("%s has %d marks, want one", run.Ref, marks)
			}
			var file strings.Builder
			if err := app.Histories().Export(t.Context(), run.Ref, &file); err != nil {
				t.Error(err)
			}
			if err := perdure.Replay(t.Context(), strings.NewReader(file.String()), self); err != nil {
				t.Errorf("%s: %v", run.Ref, err)
			}
		}
	})
}

// When a run has reached the limit of its history, its waiting callers get an error.
func TestWaitersOfAFullHistoryFail(t *testing.T) {
	t.Parallel()
	poke := perdure.NewUpdate[perdure.Void, int]("poke")
	ask := perdure.NewQuery[perdure.Void, int]("ask")
	note := perdure.NewSignal[string]("note")

	flow := perdure.NewWorkflow("hoarder", func(ctx perdure.WorkflowCtx, _ string) (int, error) {
		ask.Handle(ctx, func(perdure.Void) (int, error) { return 1, nil })
		poke.Handle(ctx, func(ctx perdure.WorkflowCtx, _ perdure.Void) (int, error) {
			_, err := perdure.NewSignal[int]("never").Receive(ctx)
			return 0, err
		})
		if _, err := note.Receive(ctx); err != nil {
			return 0, err
		}
		for i := 0; ; i++ {
			if _, err := perdure.Do(ctx, "load", func(context.Context) (string, error) { return strings.Repeat("x", 30_000), nil }, perdure.StepKey(fmt.Sprint(i))); err != nil {
				return 0, err
			}
		}
	})

	synctest.Test(t, func(t *testing.T) {
		app, err := embedded.Config{MaxHistory: 100_000}.Open(t.Context(), "memory:", flow)
		if err != nil {
			t.Fatal(err)
		}
		defer app.Close()
		c := app.With(t.Context())
		x, err := flow.Start(c, "", perdure.RawKey("k"))
		if err != nil {
			t.Fatal(err)
		}

		early := make(chan error, 3)
		go func() { _, err := x.Result(c); early <- err }()
		go func() { _, err := flow.Run(c, "", perdure.RawKey("k")); early <- err }()
		go func() { _, err := poke.Call(c, x, perdure.Void{}); early <- err }()
		synctest.Wait()
		if err := note.Send(c, x, "go"); err != nil {
			t.Fatal(err)
		}

		full := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, perdure.ErrExhausted) || !strings.Contains(err.Error(), "limit of its history") || !strings.Contains(err.Error(), "reset it") {
				t.Errorf("%s: %v", what, err)
			}
		}
		for range 3 {
			full("who waited", <-early)
		}
		_, err = x.Result(c)
		full("result", err)
		_, err = flow.Run(c, "", perdure.RawKey("k"))
		full("run", err)
		_, err = poke.Call(c, x, perdure.Void{})
		full("update", err)
		_, err = ask.Ask(c, x, perdure.Void{})
		full("query", err)
		full("signal", note.Send(c, x, "more"))
		info, err := app.Executions().Describe(t.Context(), x)
		if err != nil || !info.Status.Open() || !strings.Contains(info.Reason, "has reached the limit of its history") {
			t.Errorf("described as %+v, %v", info, err)
		}
		if err := app.Executions().Terminate(t.Context(), x, "full"); err != nil {
			t.Error(err)
		}
	})
}

// Lower limits do not change answers that the code has already received.
func TestSuggestionIsNotMadeInThePast(t *testing.T) {
	t.Parallel()
	url := "file:" + filepath.Join(t.TempDir(), "l.db")
	tick := perdure.NewSignal[int]("tick")

	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, _ string) (string, error) {
		told := ""
		for i, size := range []int{40_000, 10, 10} {
			if _, err := perdure.Do(ctx, "load", func(context.Context) (string, error) { return strings.Repeat("x", size), nil }, perdure.StepKey(fmt.Sprint(i))); err != nil {
				return "", err
			}
			told += fmt.Sprint(ctx.ShouldContinueAsNew(), " ")
			if i == 1 {
				if _, err := tick.Receive(ctx); err != nil {
					return "", err
				}
			}
		}
		return told, nil
	})

	app, err := embedded.Open(t.Context(), url, flow)
	if err != nil {
		t.Fatal(err)
	}
	x, err := flow.Start(app.With(t.Context()), "")
	if err != nil {
		t.Fatal(err)
	}

	checkSays(t, app, x, "waits for signal tick")
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	app, err = embedded.Config{MaxHistory: 60_000}.Open(t.Context(), url, flow)
	if err != nil {
		t.Fatal(err)
	}

	defer app.Close()
	c := app.With(t.Context())
	if err := tick.Send(c, x, 1); err != nil {
		t.Fatal(err)
	}
	got, err := x.Result(c)
	want(t, got, err, "false true true ")
}
