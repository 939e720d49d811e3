// Package wrong has the programs of the design that compile, that Open cannot refuse, and that must
// be reported.
package wrong

import (
	"context"
	"time"

	"github.com/perdure/perdure"
)

type (
	in  struct{ A int }
	out struct{ B int }
)

var (
	app   *perdure.App
	act   = perdure.DeclareActivity[in, out]("act")
	child = perdure.NewWorkflow("child", code)
	self  = perdure.DeclareWorkflow[in, out]("self")
	wrong = perdure.DeclareWorkflow[in, out]("wrong")
)

func code(ctx perdure.WorkflowCtx, _ in) (out, error) { return out{}, ctx.Sleep(1) }

// V1: captured workflow context in a step.
func v1(ctx perdure.WorkflowCtx, _ in) (out, error) {
	return perdure.Do(ctx, "x", func(context.Context) (out, error) { return out{}, ctx.Sleep(time.Hour) }) // want `durable call ctx\.Sleep inside a step`
}

// V2: client used in a workflow.
func v2(ctx perdure.WorkflowCtx, i in) (out, error) {
	c := app.With(nil)     // want `App app used in workflow code`
	return child.Run(c, i) // want `Client c used in workflow code`
}

// V3: go statement in a workflow.
func v3(ctx perdure.WorkflowCtx, i in) (out, error) {
	go func() { _, _ = act.Run(ctx, i) }() // want `a go statement in workflow code`
	return out{}, nil
}

// V4: Do in a loop without StepKey.
func v4(ctx perdure.WorkflowCtx, i in) (o out, err error) {
	for range i.A {
		o, err = perdure.Do(ctx, "x", func(context.Context) (out, error) { return out{}, nil }) // want `needs perdure\.StepKey`
	}
	return o, err
}

// V5: error of ContinueAsNew dropped.
func v5(ctx perdure.WorkflowCtx, i in) (out, error) {
	self.ContinueAsNew(i) // want `self\.ContinueAsNew does nothing by itself`
	return out{}, nil
}

// V6: ContinueAsNew of another workflow.
var v6 = self.Bind(func(ctx perdure.WorkflowCtx, i in) (out, error) {
	return out{}, wrong.ContinueAsNew(i) // want `this is the code of workflow self, which cannot continue as wrong`
})

// V7: direct call of a workflow function.
func v7(ctx perdure.WorkflowCtx, i in) (out, error) {
	return code(ctx, i) // want `direct call of code, the code of workflow child`
}

// V10: a future stored globally.
var v10 *perdure.Future[out] // want `Future kept in package variable v10`

// V11: workflow context stored in a struct.
type v11 struct {
	ctx perdure.WorkflowCtx // want `WorkflowCtx kept in a field`
}
