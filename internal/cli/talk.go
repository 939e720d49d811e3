package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// order makes the command of a verb that takes a reason.
func (o *options) order(v verb, do func(ctx context.Context, b api.Backend, r api.CancelRequest) error) *cobra.Command {
	var reason string
	v.fill = func(_ []string, r *api.BatchRequest) error {
		r.Reason = reason
		return nil
	}
	v.prepare = func([]string) (func(ctx context.Context, b api.Backend, t api.Target) error, error) {
		return func(ctx context.Context, b api.Backend, t api.Target) error {
			return do(ctx, b, api.CancelRequest{Target: t, Reason: reason})
		}, nil
	}
	cmd := o.verb(v)
	cmd.Flags().StringVar(&reason, "reason", "", "reason for the history of the execution")
	return cmd
}

func newWorkflowCancel(o *options) *cobra.Command {
	return o.order(verb{
		use: "cancel", short: "Cancel executions: ask them to end and run their clean-up", done: "cancel requested:",
		example: `  perdure workflow cancel order/42 --reason 'ordered twice'
  perdure workflow cancel --query 'workflow = "order" and label.region = "eu"' --dry-run
  perdure workflow cancel --query 'workflow = "order" and label.region = "eu"' --yes`,
	}, func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Cancel(ctx, r) })
}

func newWorkflowTerminate(o *options) *cobra.Command {
	return o.order(verb{
		use: "terminate", short: "Terminate executions: end them at once, without clean-up", done: "terminated:",
		example: `  perdure workflow terminate order/42 --reason 'its code never ends'
  perdure workflow terminate --query 'reason = "replay_mismatch"' --dry-run`,
	}, func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Terminate(ctx, r) })
}

func newWorkflowPause(o *options) *cobra.Command {
	return o.order(verb{
		use: "pause", short: "Pause executions", done: "paused:",
		example: `  perdure workflow pause order/42 --reason 'the warehouse is closed'
  perdure workflow pause --query 'workflow = "order"' --reason maintenance --yes`,
	}, func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Pause(ctx, r) })
}

func newWorkflowResume(o *options) *cobra.Command {
	return o.order(verb{
		use: "resume", short: "Resume paused executions", done: "resumed:",
		example: `  perdure workflow resume order/42
  perdure workflow resume --query 'reason = "paused"' --yes`,
	}, func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Resume(ctx, r) })
}

// ask makes a command that sends a request to one execution and prints the answer.
func (o *options) ask(use, short, example string, do func(ctx context.Context, b api.Backend, t api.Target, name string, in model.Payload) (model.Payload, error)) *cobra.Command {
	var run, text string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := o.target(args[0], run)
			if err != nil {
				return err
			}
			in, err := o.input("--input", text)
			if err != nil {
				return err
			}

			return o.withExecution(cmd.Context(), timeout, named, func(ctx context.Context, b api.Backend, t api.Target) error {
				out, err := do(ctx, b, t, args[1], in)
				if err != nil {
					return err
				}
				return o.value(out)
			})
		},
	}

	cmd.Flags().StringVar(&run, "run", "", "id of a run; the current run by default")
	cmd.Flags().StringVar(&text, "input", "", "input as JSON, @file, or - for standard input (null)")
	patience(cmd, &timeout)
	return cmd
}

// value prints one value. Of a value that is neither JSON nor text it prints the encoding and the
// size.
func (o *options) value(p model.Payload) error {
	if o.structured() || p.Encoding == model.JSON {
		return o.json(raw(p))
	}
	fmt.Fprintln(o.Out, payload(p, len(p.Data)))
	return nil
}

func newWorkflowUpdate(o *options) *cobra.Command {
	var requestID string
	cmd := o.ask("update workflow/key update", "Send an update to an execution and print the answer",
		`  perdure workflow update cart/7 add-item --input '{"SKU": "a", "N": 2}'`,
		func(ctx context.Context, b api.Backend, t api.Target, name string, in model.Payload) (model.Payload, error) {
			if err := o.checkCode(ctx, b, t); err != nil {
				return model.Payload{}, err
			}
			return b.Update(ctx, api.UpdateRequest{Target: t, Name: name, Input: in, RequestID: requestID})
		})
	cmd.Flags().StringVar(&requestID, "request-id", "", "id that makes the request safe to repeat: a repetition gets the same answer")
	return cmd
}

// checkCode refuses an update of an open execution if no program has the file open. The engine
// would store the update, and the code would apply it after the command has failed.
func (o *options) checkCode(ctx context.Context, b api.Backend, t api.Target) error {
	if !o.alone() {
		return nil
	}
	d, err := b.Describe(ctx, t)
	if err != nil || d.Outcome.Status.Closed() {
		return err // the engine refuses an update of a closed execution
	}
	return fault.WithHint(fault.New(fault.Unavailable, "no program that runs the code of workflow %s has the file open", t.Address.Type), "start the program")
}

func newWorkflowQuery(o *options) *cobra.Command {
	return o.ask("query workflow/key query", "Query the code of an open or closed execution and print the answer", `  perdure workflow query cart/7 contents --input '"a"'`,
		func(ctx context.Context, b api.Backend, t api.Target, name string, in model.Payload) (model.Payload, error) {
			return b.Query(ctx, api.QueryRequest{Target: t, Name: name, Input: in})
		})
}

func newWorkflowState(o *options) *cobra.Command {
	var run string
	cmd := &cobra.Command{
		Use: "state workflow/key state", Short: "Print a state that an execution publishes", Example: "  perdure workflow state import/7 progress", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := o.target(args[0], run)
			if err != nil {
				return err
			}
			return o.with(cmd.Context(), true, func(b api.Backend) error {
				t, err := named.find(cmd.Context(), b)
				if err != nil {
					return err
				}
				p, ok, err := b.State(cmd.Context(), t, args[1])
				if err != nil {
					return err
				}
				if !ok {
					return fault.New(fault.NotFound, "execution %s has no state %s", args[0], args[1])
				}
				return o.value(p)
			})
		},
	}

	cmd.Flags().StringVar(&run, "run", "", "id of a run; the current run by default")
	return cmd
}

func newWorkflowStranded(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "stranded", Short: "List open executions that no live worker can continue", Args: cobra.NoArgs,
		Long: `List open executions that no live worker can continue, because no worker has the code of their workflow, or the version that they are pinned to.
Run this command after a deploy. If no program is running, it lists all open executions.`,
		Example: "  perdure workflow stranded --store postgres://localhost/app",
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := o.look(cmd.Context())
			if err != nil {
				return err
			}
			defer n.Close()

			found := []summary{}
			for cursor := ""; ; {
				page, err := n.Backend().Stranded(cmd.Context(), o.tenant, cursor)
				if err != nil {
					return err
				}
				for i := range page.Executions {
					found = append(found, summarise(&page.Executions[i]))
				}
				if cursor = page.Cursor; cursor == "" {
					break
				}
			}

			return o.printSummaries(found)
		},
	}
}
