package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure"
)

// pulls runs three steps and then ends as its input says. Its query returns its state in memory.
type pulls struct {
	ran   atomic.Int64
	total *perdure.Query[int, string]
	stage *perdure.State[string]
	work  *perdure.Workflow[string, int]
}

func newPulls(steps int) *pulls {
	p := &pulls{total: perdure.NewQuery[int, string]("total"), stage: perdure.NewState[string]("stage"), work: perdure.DeclareWorkflow[string, int]("pull")}
	p.work = perdure.NewWorkflow("pull", func(ctx perdure.WorkflowCtx, how string) (int, error) {
		n := 0
		p.total.Handle(ctx, func(times int) (string, error) {
			if times < 0 {
				return "", errors.New("below zero")
			}
			return fmt.Sprint(how, " ", n*times), nil
		})

		for n < steps {
			if _, err := perdure.Do(ctx, "one", func(context.Context) (int64, error) { return p.ran.Add(1), nil }, perdure.StepKey(fmt.Sprint(n))); err != nil {
				return n, err
			}
			n++
		}

		if err := p.stage.Set(ctx, "pulled"); err != nil {
			return n, err
		}

		switch how {
		case "ends":
			return n, nil
		case "fails":
			return n, errors.New("no more")
		case "continues":
			return n, p.work.ContinueAsNew("ends")
		}

		return n, ctx.Sleep(time.Hour)
	})

	return p
}

// The code of a closed execution answers queries from the history, no matter how the execution
// ended and which process asks. The query runs no step and writes nothing. If no process has the
// code, or the code does not fit the history, the error says so. Reading a state needs no code.
func TestQueryOfClosedRuns(t *testing.T) {
	t.Parallel()
	onStores(t, kinds, func(t *testing.T, s *site) {
		p := newPulls(3)
		app := s.open(p.work)
		c := caller(t, app)
		first := map[string]perdure.Execution[int]{}
		for _, how := range []string{"ends", "fails", "continues", "terminated", "canceled"} {
			x := mustStart(t, c, p.work, how, perdure.RawKey(how))
			first[how] = x
			var err error
			switch how {
			case "terminated":
				reason(t, app, x, "timer")
				err = app.Executions().Terminate(t.Context(), x, "test")
			case "canceled":
				reason(t, app, x, "timer")
				err = x.Cancel(c, "test")
			}
			if err != nil {
				t.Fatal(err)
			}
			_, _ = x.Result(c)
		}

		ran := p.ran.Load()
		ask := func(c perdure.Client) {
			t.Helper()
			for how, want := range map[string]string{"ends": "ends 6", "fails": "fails 6", "continues": "ends 6", "terminated": "terminated 6", "canceled": "canceled 6"} {
				got, err := p.total.Ask(c, p.work.Execution(perdure.RawKey(how)), 2)
				equal(t, how, got, err, want)
			}
			if _, err := p.total.Ask(c, first["ends"], -1); err == nil || err.Error() != "below zero" {
				t.Errorf("the caller got %v for the handler's error", err)
			}
			_, err := perdure.NewQuery[int, int]("other").Ask(c, first["ends"], 1)
			wantError(t, "a query that the code does not handle", err, perdure.ErrNotFound, "other", "total")
		}
		ask(c)
		if s.kind == "postgres" { // another process without the code asks the owner
			other := s.open()
			ask(caller(t, other))
			// If the other process stayed open, it would own the execution after the first process
			// has left.
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if n := p.ran.Load(); n != ran {
			t.Errorf("queries have executed %d steps", n-ran)
		}
		if s.kind == "memory" {
			return
		}

		ended := p.work.Execution(perdure.RawKey("ends"))
		app = s.reopen(app)
		_, err := p.total.Ask(caller(t, app), ended, 2)
		wantError(t, "a query without the code", err, perdure.ErrUnavailable, "pull")
		got, _, err := p.stage.Read(caller(t, app), ended)
		equal(t, "state without the code", got, err, "pulled")

		if s.kind == "postgres" { // the process with the code does not own all executions
			p := newPulls(3)
			app := s.open(p.work)
			ask(caller(t, app))
			if err := app.Close(); err != nil {
				t.Fatal(err)
			}
		}
		app = s.reopen(app, newPulls(4).work)
		_, err = p.total.Ask(caller(t, app), ended, 2)
		wantError(t, "a query with code that does not match", err, perdure.ErrBlocked)
	})
}
