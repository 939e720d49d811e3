package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
)

// newWorkflowSignalWithStart makes the command that sends a signal, and starts the execution if it
// does not exist.
func newWorkflowSignalWithStart(o *options) *cobra.Command {
	var f startFlags
	var value string
	cmd := &cobra.Command{
		Use: "signal-with-start workflow/key signal", Short: "Send a signal, and start the execution if there is none", Args: cobra.ExactArgs(2),
		Long: `Send a signal to the execution with the key. If there is none, start it with --input and --label; the signal arrives in the same commit. An execution
that was started with another input gets nothing, and the command fails. With --reuse, a closed execution of the key is followed by a new one.`,
		Example: `  perdure workflow signal-with-start cart/42 add --signal-input '"book"'
  perdure workflow signal-with-start order/42 paid --signal-input '{"amount": 5}' --input @order.json --request-id payment-7`,
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := o.target(args[0], "")
			if err != nil {
				return err
			}
			f.key = named.Address.Key
			r, err := o.startRequest(named.Address.Type, &f)
			if err != nil {
				return err
			}
			signal := api.Message{Name: args[1]}
			if signal.Input, err = o.input("--signal-input", value); err != nil {
				return err
			}
			r.With = []api.Message{signal}
			return o.within(cmd.Context(), f.timeout, func(ctx context.Context, b api.Backend) error { return o.start(ctx, b, r, f.wait) })
		},
	}

	cmd.Flags().StringVar(&value, "signal-input", "", "value of the signal as JSON, @file, or - for standard input (null)")
	f.addTerms(cmd, "start")
	return cmd
}
