// Package across reaches into other packages.
package across

import (
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/perdurevet/testdata/src/helper"
	"github.com/perdure/perdure/perdurevet/testdata/src/helper/flow"
)

func wrongFunction(ctx perdure.WorkflowCtx, _ int) (string, error) {
	return helper.Stamp(), nil // want `helper\.Stamp reaches time\.Now \(helper\.go:\d+\) in workflow code: it differs on replay; use ctx\.Now\(\)`
}

func wrongTwice(ctx perdure.WorkflowCtx, _ int) (string, error) {
	return helper.Label(), nil // want `helper\.Label reaches time\.Now`
}

func wrongMethod(ctx perdure.WorkflowCtx, c *helper.Config) (string, error) {
	return c.Load("x"), nil // want `helper\.Config\.Load reaches os\.ReadFile`
}

func local() string { return helper.Stamp() }

func wrongLocal(ctx perdure.WorkflowCtx, _ int) (string, error) {
	return local(), nil // want `local reaches time\.Now \(helper\.go:\d+\) in workflow code`
}

func wrongVariable(ctx perdure.WorkflowCtx, _ int) (int, error) {
	return helper.Level, nil // want `package variable Level in workflow code: it changes \(helper\.go:\d+\)`
}

func wrongLoop(ctx perdure.WorkflowCtx, n int) (int, error) {
	for range n {
		if _, err := flow.Count(ctx); err != nil { // want `flow\.Count makes step "count" without a key \(flow\.go:\d+\) and is called in a loop`
			return 0, err
		}
	}
	return 0, nil
}

func wrongDirect(ctx perdure.WorkflowCtx, n int) (int, error) {
	return flow.Run(ctx, n) // want `direct call of flow\.Run, the code of workflow child.*write flow\.Child\.Run`
}

func wrongDirectActivity(ctx perdure.WorkflowCtx, to string) (int, error) {
	return flow.Mail(nil, to) // want `direct call of flow\.Mail, the code of activity send`
}

var mine = perdure.NewWorkflow("mine", func(ctx perdure.WorkflowCtx, n int) (int, error) {
	return 0, flow.Child.ContinueAsNew(n) // want `this is the code of workflow mine, which cannot continue as child`
})

var plain = perdure.NewActivity("plain", flow.Plain)

func wrongForeign(ctx perdure.WorkflowCtx, n int) (int, error) {
	return flow.Plain(nil, n) // want `direct call of flow\.Plain, the code of activity plain: .* write plain\.Run`
}

type shop struct{ c *helper.Counter }

func (s *shop) wrongCounter(ctx perdure.WorkflowCtx, n int) (int, error) {
	return s.c.Next(), nil // want `s\.c\.Next changes its receiver`
}

// ---- right

func rightCounter(ctx perdure.WorkflowCtx, n int) (int, error) {
	var c helper.Counter
	return c.Next(), nil
}

func right(ctx perdure.WorkflowCtx, n int) (string, error) {
	if _, err := flow.Child.Run(ctx, n); err != nil {
		return "", err
	}
	return helper.Pure("X"), nil
}
