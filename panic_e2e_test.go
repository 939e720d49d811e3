package perdure_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// explode panics. The stack in an error must show the name explode.
func explode() { panic("first line\nsecond line") }

// The error of a panic has the message and the stack of the panic. Describe and the history show
// the message and the stack too.
func TestPanicsHaveStacks(t *testing.T) {
	t.Parallel()
	inline := perdure.NewActivity("inline", func(context.Context, perdure.Void) (int, error) { explode(); return 0, nil }, perdure.Constant(1, 0))
	queued := perdure.NewActivity("queued", func(context.Context, perdure.Void) (int, error) { explode(); return 0, nil }, perdure.Constant(1, 0), perdure.OnQueue("q"))
	bombs := perdure.NewEntity[int]("bomb")
	operate := perdure.NewOperation(bombs, "touch", func(perdure.EntityCtx, *int, perdure.Void) (int, error) { explode(); return 0, nil })
	view := perdure.NewView(bombs, "look", func(int, perdure.Void) (int, error) { explode(); return 0, nil })
	services := perdure.NewService("fuse")
	rpc := perdure.NewRPC(services, "light", func(perdure.EntityCtx, perdure.Void) (int, error) { explode(); return 0, nil })
	update := perdure.NewUpdate[perdure.Void, int]("update")
	query := perdure.NewQuery[perdure.Void, int]("query")
	end := perdure.NewSignal[perdure.Void]("end")

	flow := perdure.NewWorkflow("flow", func(ctx perdure.WorkflowCtx, what string) (int, error) {
		switch what {
		case "workflow":
			explode()
		case "coroutine":
			return perdure.Go(ctx, func(perdure.WorkflowCtx) (int, error) { explode(); return 0, nil }).Get(ctx)
		case "inline":
			return inline.Run(ctx, perdure.Void{})
		case "queued":
			return queued.Run(ctx, perdure.Void{})
		case "step":
			return perdure.Do(ctx, "step", func(context.Context) (int, error) { explode(); return 0, nil }, perdure.Constant(1, 0))
		case "operation":
			return operate.Call(ctx, "k", perdure.Void{})
		case "rpc":
			return rpc.Call(ctx, "k", perdure.Void{})
		}

		update.Handle(ctx, func(perdure.WorkflowCtx, perdure.Void) (int, error) { explode(); return 0, nil })
		query.Handle(ctx, func(perdure.Void) (int, error) { explode(); return 0, nil })
		_, err := end.Receive(ctx)
		return 0, err
	})

	with(t, func(t *testing.T, c perdure.Client, app *perdure.App) {
		check := func(what string, err error) {
			t.Helper()
			var re *perdure.RemoteError
			if !errors.As(err, &re) || re.Kind != "panic" || re.Message != "panic: first line\nsecond line" || !strings.Contains(re.Stack(), "perdure_test.explode") {
				t.Errorf("%s: %#v, stack %.200q", what, err, stackOf(err))
			}
		}
		for _, what := range []string{"workflow", "coroutine", "inline", "queued", "step", "operation", "rpc"} {
			x, err := flow.Start(c, what)
			if err != nil {
				t.Fatal(err)
			}
			_, err = x.Result(c)
			check(what, err)
			info, err := app.Executions().Describe(t.Context(), x)
			if err != nil {
				t.Fatal(err)
			}

			check(what+" described", info.Err)
			var last error
			for e, err := range app.Histories().Events(t.Context(), x) {
				if err != nil {
					t.Fatal(err)
				}
				if e.Err != nil {
					last = e.Err
				}
			}

			check(what+" in the history", last)
		}

		task, err := queued.Submit(c, perdure.Void{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = task.Result(c)
		check("task", err)
		_, err = operate.Call(c, "k", perdure.Void{})
		check("operation of a client", err)
		_, err = view.Call(c, "k", perdure.Void{})
		check("view", err)
		_, err = rpc.Call(c, "k", perdure.Void{})
		check("rpc of a client", err)
		x, err := flow.Start(c, "talk")
		if err != nil {
			t.Fatal(err)
		}

		_, err = update.Call(c, x, perdure.Void{})
		check("update", err)
		_, err = query.Ask(c, x, perdure.Void{})
		check("query", err)
	}, flow, inline, queued, bombs, services)
}

func stackOf(err error) string {
	if re, ok := errors.AsType[*perdure.RemoteError](err); ok {
		return re.Stack()
	}
	return ""
}
