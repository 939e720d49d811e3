package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

const devPoll = 500 * time.Millisecond

func newDev(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "dev [-- command …]", Short: "Run a program on a store and watch its executions",
		Long: `Run a program with $PERDURE_STORE set, restart it when it dies, and print changes of its executions. Kill the program to see
it resume. Without a program, the command only watches the store. It opens no port.`,
		Example: "  perdure dev -- go run ./examples/hello\n  perdure dev --store postgres://localhost/app",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithCancelCause(cmd.Context())
			defer cancel(nil)
			done := make(chan error, 1)
			if len(args) > 0 {
				go func() { done <- o.keepRunning(ctx, args) }()
			}
			watched := make(chan error, 1)
			go func() { watched <- o.watch(ctx) }()
			var err error

			select {
			case err = <-done:
				// Look once more: the program commits its last changes before it ends.
				cancel(errProgramEnded)
				err = errors.Join(err, <-watched)
			case err = <-watched:
				cancel(nil)
				if len(args) > 0 {
					err = errors.Join(err, <-done)
				}
			}

			return err
		},
	}
}

var errProgramEnded = errors.New("the program has ended")

// keepRunning runs the program until it exits with success. It restarts the program when it dies.
func (o *options) keepRunning(ctx context.Context, args []string) error {
	for {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 10 * time.Second
		cmd.Env = append(os.Environ(), "PERDURE_STORE="+o.store)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = o.In, o.Out, o.Err
		if err := cmd.Start(); err != nil {
			return fault.New(fault.Invalid, "start the program %s: %w", args[0], err)
		}

		fmt.Fprintf(o.Err, "· started %s (process %d)\n", args[0], cmd.Process.Pid)
		err := cmd.Wait()
		if err == nil || ctx.Err() != nil {
			return nil
		}
		fmt.Fprintf(o.Err, "· %s: %v; restarting it\n", args[0], err)

		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

// watch prints changes of executions until ctx ends.
func (o *options) watch(ctx context.Context) error {
	last := map[model.RunID]string{}
	for first := true; ; first = false {
		err := o.printChanges(context.WithoutCancel(ctx), last, first)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Unavailable) {
			fmt.Fprintf(o.Err, "· %v\n", err)
		}
		select {
		case <-time.After(devPoll):
		case <-ctx.Done():
		}
	}
}

// printChanges prints the differences from the last look. The first look only records which
// executions are closed.
func (o *options) printChanges(ctx context.Context, last map[model.RunID]string, first bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	n, err := o.look(ctx)
	if err != nil {
		return err
	}
	defer n.Close()
	page, err := n.Backend().List(ctx, api.ListRequest{Tenant: o.tenant, Limit: 100, AllRuns: true})
	if err != nil {
		return err
	}

	for i := len(page.Executions) - 1; i >= 0; i-- {
		d := &page.Executions[i]
		s := summarise(d)
		state := s.Status + " " + s.Reason
		if last[d.Start.Run] == state {
			continue
		}
		last[d.Start.Run] = state
		if first && d.Outcome.Status.Closed() {
			continue
		}
		fmt.Fprintf(o.Out, "%s  %-9s  %s/%s  %s\n", time.Now().UTC().Format("15:04:05.000Z"), s.Status, s.Workflow, s.Key, shorten(s.Reason, 80))
	}

	return nil
}
