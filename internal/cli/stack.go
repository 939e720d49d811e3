package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// stackFlag adds the flag that prints the stacks of panics.
func stackFlag(cmd *cobra.Command, stack *bool) {
	cmd.Flags().BoolVar(stack, "stack", false, "also print the stacks of panics")
}

// errorLine returns the message of a failure on one line. It mentions --stack if the failure has a
// stack.
func errorLine(f *model.Failure) string {
	line := oneLine(f.Message)
	if f.Stack != "" {
		line += " (--stack prints the stack)"
	}
	return line
}

// printStack prints the stack of a failure, if it has one.
func (o *options) printStack(of string, f *model.Failure) {
	if f != nil && f.Stack != "" {
		fmt.Fprintf(o.Out, "\nStack of %s:\n%s\n", of, strings.TrimRight(f.Stack, "\n"))
	}
}

// printStacks prints the panic that ended an execution, or the panics of steps that the engine
// still retries.
func (o *options) printStacks(ctx context.Context, b api.Backend, t api.Target) error {
	d, err := b.Describe(ctx, t)
	if err != nil {
		return err
	}

	if d.Outcome.Status.Closed() {
		o.printStack("the execution", d.Outcome.Failure)
		return nil
	}

	t.Run = d.Start.Run
	events, err := wholeHistory(ctx, b, t)
	if err != nil {
		return err
	}
	for _, e := range openFailures(events) {
		o.printStack(fmt.Sprintf("%s, attempt %d", e.Name, e.Attempt), e.Failure)
	}

	return nil
}

// openFailures returns the last failed attempt of each step and task that has not ended, in order.
func openFailures(events []model.Event) (open []*model.Event) {
	last := map[string]int{}
	name := map[string]string{}
	for i := range events {
		e := &events[i]
		if e.Name != "" && e.ID != "" {
			name[e.ID] = e.Name
		}
		switch e.Kind {
		case model.EventAttemptFailed:
			last[e.ID] = i
		case model.EventStepCompleted, model.EventStepFailed, model.EventWithdrawn:
			delete(last, e.ID)
		default:
		}
	}

	for i := range events {
		e := events[i]
		if at, ok := last[e.ID]; ok && at == i {
			e.Name = name[e.ID]
			open = append(open, &e)
		}
	}

	return open
}

// wholeHistory reads all pages of the history of a run.
func wholeHistory(ctx context.Context, b api.Backend, t api.Target) (events []model.Event, err error) {
	req := api.HistoryRequest{Target: t, After: -1}
	for {
		page, err := b.History(ctx, req)
		if err != nil {
			return nil, err
		}
		events = append(events, page.Events...)
		if !page.More || len(page.Events) == 0 {
			return events, nil
		}
		req.After, req.Target.Run = page.Events[len(page.Events)-1].Seq, page.Run
	}
}

// stackOf returns the stack of a failure, or an empty string.
func stackOf(f *model.Failure) string {
	if f == nil {
		return ""
	}
	return f.Stack
}
