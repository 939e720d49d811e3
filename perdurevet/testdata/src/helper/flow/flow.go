// Package flow has workflow code that others use.
package flow

import (
	"context"

	"github.com/perdure/perdure"
)

var (
	// Child is a workflow.
	Child = perdure.NewWorkflow("child", Run)
	// Send is an activity.
	Send = perdure.NewActivity("send", Mail)
)

// Run is the code of Child.
func Run(ctx perdure.WorkflowCtx, n int) (int, error) { return n, ctx.Sleep(1) }

// Mail is the code of Send.
func Mail(_ context.Context, to string) (int, error) { return len(to), nil }

// Plain is bound elsewhere.
func Plain(_ context.Context, n int) (int, error) { return n, nil }

// Count makes a step without a key.
func Count(ctx perdure.WorkflowCtx) (int, error) {
	return perdure.Do(ctx, "count", func(context.Context) (int, error) { return 1, nil })
}
