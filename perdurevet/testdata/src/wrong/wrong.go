// Package wrong has mistakes that the compiler accepts and that Open cannot refuse. The checks must
// report them. The names, such as v1, are the ids of the same mistakes in internal/wrong.
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

// A step uses the context of its workflow.
func v1(ctx perdure.WorkflowCtx, _ in) (out, error) {
	return perdure.Do(ctx, "x", func(context.Context) (out, error) { return out{}, ctx.Sleep(time.Hour) }) // want `durable call ctx\.Sleep inside a step`
}

// A workflow uses a client.
func v2(ctx perdure.WorkflowCtx, i in) (out, error) {
	c := app.With(nil)     // want `App app used in workflow code`
	return child.Run(c, i) // want `Client c used in workflow code`
}

// A workflow has a go statement.
func v3(ctx perdure.WorkflowCtx, i in) (out, error) {
	go func() { _, _ = act.Run(ctx, i) }() // want `a go statement in workflow code`
	return out{}, nil
}

// A loop calls Do without a StepKey.
func v4(ctx perdure.WorkflowCtx, i in) (o out, err error) {
	for range i.A {
		o, err = perdure.Do(ctx, "x", func(context.Context) (out, error) { return out{}, nil }) // want `needs perdure\.StepKey`
	}
	return o, err
}

// A workflow drops the error of ContinueAsNew.
func v5(ctx perdure.WorkflowCtx, i in) (out, error) {
	self.ContinueAsNew(i) // want `self\.ContinueAsNew does nothing by itself`
	return out{}, nil
}

// A workflow calls ContinueAsNew of another workflow.
var v6 = self.Bind(func(ctx perdure.WorkflowCtx, i in) (out, error) {
	return out{}, wrong.ContinueAsNew(i) // want `this is the code of workflow self, which cannot continue as wrong`
})

// A workflow calls the function of another workflow directly.
func v7(ctx perdure.WorkflowCtx, i in) (out, error) {
	return code(ctx, i) // want `direct call of code, the code of workflow child`
}

// A package variable holds a future.
var v10 *perdure.Future[out] // want `Future kept in package variable v10`

// A struct holds the context of a workflow.
type v11 struct {
	ctx perdure.WorkflowCtx // want `WorkflowCtx kept in a field`
}
