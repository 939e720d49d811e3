// Package steps confuses what runs on replay with what does not.
package steps

import (
	"context"
	"time"

	"github.com/perdure/perdure"
)

var (
	charge = perdure.DeclareActivity[int, int]("charge")
	ship   = perdure.DeclareWorkflow[int, int]("ship")
	paid   = perdure.NewSignal[int]("paid")
)

func wrongSleep(ctx perdure.WorkflowCtx, _ int) (int, error) {
	return perdure.Do(ctx, "x", func(context.Context) (int, error) {
		return 0, ctx.Sleep(time.Second) // want `durable call ctx\.Sleep inside a step: the journal does not record it; make it in the workflow, before or after`
	})
}

func wrongActivity(ctx perdure.WorkflowCtx, n int) (int, error) {
	return perdure.Do(ctx, "x", func(context.Context) (int, error) {
		return charge.Run(ctx, n) // want `durable call charge\.Run inside a step`
	})
}

func wrongChild(ctx perdure.WorkflowCtx, n int) (int, error) {
	return perdure.Do(ctx, "x", func(context.Context) (int, error) {
		_, err := ship.Start(ctx.WithTimeout(1), n) // want `durable call ship\.Start inside a step`
		return 0, err
	})
}

func wrongSignal(ctx perdure.WorkflowCtx, n int) (int, error) {
	return perdure.Do(ctx, "x", func(context.Context) (int, error) {
		return paid.Receive(ctx) // want `durable call paid\.Receive inside a step`
	})
}

func wrongNested(ctx perdure.WorkflowCtx, n int) (int, error) {
	return perdure.Do(ctx, "outer", func(context.Context) (int, error) {
		return perdure.Do(ctx, "inner", func(context.Context) (int, error) { return 1, nil }) // want `durable call perdure\.Do inside a step`
	})
}

func wait(ctx perdure.WorkflowCtx) error { return ctx.Sleep(1) }

func wrongHelper(ctx perdure.WorkflowCtx, n int) (int, error) {
	return perdure.Do(ctx, "x", func(context.Context) (int, error) {
		return 0, wait(ctx) // want `durable call wait inside a step`
	})
}

func wrongClosure(ctx perdure.WorkflowCtx, n int) (int, error) {
	pause := func() error { return ctx.Sleep(1) }
	return perdure.Do(ctx, "x", func(context.Context) (int, error) {
		return 0, pause() // want `durable call ctx\.Sleep \(steps\.go:\d+\) inside a step, through pause`
	})
}

func wrongDraw(ctx perdure.WorkflowCtx, n int) (string, error) {
	return perdure.Do(ctx, "x", func(context.Context) (string, error) {
		return ctx.UUID(), nil // want `ctx\.UUID inside a step: a step does not run on replay, so later values would differ; call it before`
	})
}

func wrongCaptured(ctx perdure.WorkflowCtx, n int) (int, error) {
	total := 0
	_, err := perdure.Do(ctx, "x", func(context.Context) (perdure.Void, error) {
		total = n * 2 // want `step assigns to total of its workflow: on replay the step does not run and total keeps its old value; return the value from the step`
		return perdure.Void{}, nil
	})
	return total, err
}

func wrongCapturedElement(ctx perdure.WorkflowCtx, in []string) (map[string]int, error) {
	sizes := map[string]int{}
	for _, s := range in {
		_, err := perdure.Do(ctx, "x", func(context.Context) (perdure.Void, error) {
			sizes[s]++ // want `step assigns to sizes of its workflow`
			return perdure.Void{}, nil
		}, perdure.StepKey(s))
		if err != nil {
			return nil, err
		}
	}
	return sizes, nil
}

func wrongOuter(ctx perdure.WorkflowCtx, n int) (int, error) {
	return perdure.Go(ctx, func(inner perdure.WorkflowCtx) (int, error) {
		return charge.Run(ctx, n) // want `ctx belongs to the function around this one, which runs in another coroutine or scope; use the WorkflowCtx of this function`
	}).Get(ctx)
}

func wrongOuterUnnamed(ctx perdure.WorkflowCtx, n int) (int, error) {
	ctx.OnFailure(func(perdure.WorkflowCtx) error { return ctx.Sleep(1) }) // want `ctx belongs to the function around this one`
	return 0, nil
}

func wrongOuterScope(ctx perdure.WorkflowCtx, n int) (int, error) {
	short := ctx.WithTimeout(time.Second)
	return perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) {
		return charge.Run(short, n) // want `short belongs to the function around this one`
	}).Get(ctx)
}

// ---- right

func right(ctx perdure.WorkflowCtx, n int) (string, error) {
	id := ctx.UUID()
	return perdure.Do(ctx, "x", func(c context.Context) (string, error) {
		// accessors are fine in a step
		ctx.Log().Info("look", "self", ctx.Self().String(), "now", ctx.Now())
		local := 0
		local++
		return id, c.Err()
	})
}

func rightShadow(ctx perdure.WorkflowCtx, n int) (int, error) {
	self := ctx.Self()
	ctx.OnFailure(func(ctx perdure.WorkflowCtx) error { _, err := charge.Run(ctx.Detached(), n); return err })
	return perdure.Go(ctx, func(ctx perdure.WorkflowCtx) (int, error) {
		pause := func() error { return ctx.Sleep(1) }
		if err := pause(); err != nil {
			return 0, err
		}
		return charge.Run(ctx, len(self.Key))
	}).Get(ctx)
}

func rightAccessor(ctx perdure.WorkflowCtx, n int) (int, error) {
	return perdure.Go(ctx, func(inner perdure.WorkflowCtx) (int, error) {
		ctx.Log().Info("began")
		return charge.Run(inner, n)
	}).Get(ctx)
}

// An activity may be a client like any other program.
func rightClient(app *perdure.App) *perdure.Activity[int, int] {
	return perdure.NewActivity("outside", func(ctx context.Context, n int) (int, error) { return ship.Run(app.With(ctx), n) })
}
