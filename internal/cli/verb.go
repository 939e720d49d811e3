package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/query"
)

// verb is a command that changes one execution, or all executions that a query selects.
type verb struct {
	use, short, example string
	// args are the names of the arguments after the execution.
	args []string
	// done is printed before the name of an execution when the change is done.
	done string
	// of restricts a query to the executions that the verb applies to.
	of string
	// prepare checks the arguments before the command opens anything, and returns the function that
	// changes one execution.
	prepare func(args []string) (func(ctx context.Context, b api.Backend, t api.Target) error, error)
}

type verbFlags struct {
	run, query string
	dryRun, ok bool
	timeout    time.Duration
}

// actionResult is the result for one execution in JSON.
type actionResult struct {
	Execution string `json:"execution"`
	Run       string `json:"run,omitempty"`
	Error     string `json:"error,omitempty"`
}

// printResults prints the results for executions.
func (o *options) printResults(all []actionResult, done string) error {
	if o.structured() {
		return o.json(all)
	}
	for _, t := range all {
		fmt.Fprintf(o.Out, "%s %s\n", done, t.Execution)
	}
	return nil
}

// withExecution finds the named execution and calls do with it.
func (o *options) withExecution(
	ctx context.Context, timeout time.Duration, named subject, do func(ctx context.Context, b api.Backend, t api.Target) error,
) error {
	return o.within(ctx, timeout, func(ctx context.Context, b api.Backend) error {
		t, err := named.find(ctx, b)
		if err != nil {
			return err
		}
		return do(ctx, b, t)
	})
}

// actOn changes one execution and prints that it is done.
func (o *options) actOn(
	ctx context.Context, timeout time.Duration, named subject, done string, do func(ctx context.Context, b api.Backend, t api.Target) error,
) error {
	var t api.Target
	err := o.withExecution(ctx, timeout, named, func(ctx context.Context, b api.Backend, found api.Target) error {
		t = found
		return do(ctx, b, t)
	})
	if err != nil {
		return err
	}

	line := actionResult{Execution: t.Address.Type + "/" + t.Address.Key}
	if !t.Run.IsZero() {
		line.Run = t.Run.String()
	}
	return o.printResults([]actionResult{line}, done)
}

func (o *options) verb(v verb) *cobra.Command {
	var f verbFlags
	takes := strings.Join(append([]string{"workflow/key"}, v.args...), " ")
	instead := strings.Join(append([]string{"--query q"}, v.args...), " ")

	cmd := &cobra.Command{
		Use: v.use + " " + takes + " | " + instead, Short: v.short, Example: v.example,
		Args: func(cmd *cobra.Command, args []string) error {
			want := len(v.args)
			if f.query == "" {
				want++
			}
			if len(args) == want {
				return nil
			}
			err := fault.New(fault.Invalid, "%s needs either %s, or %s", v.use, takes, instead)
			if len(args) > want && cmd.Flags().Lookup("input") != nil {
				return fault.WithHint(err, "give the value with --input")
			}
			return err
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			do, err := v.prepare(args[len(args)-len(v.args):])
			if err != nil {
				return err
			}
			if f.query != "" {
				return o.all(cmd.Context(), &v, &f, do)
			}
			named, err := o.target(args[0], f.run)
			if err != nil {
				return err
			}
			if f.dryRun {
				return fault.New(fault.Invalid, "--dry-run needs --query")
			}
			return o.actOn(cmd.Context(), f.timeout, named, v.done, do)
		},
	}

	cmd.Flags().StringVar(&f.run, "run", "", "id of a run; the current run by default")
	cmd.Flags().StringVarP(&f.query, "query", "q", "", "all executions that this query selects; see perdure workflow list")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "with --query: list the executions, and change nothing")
	cmd.Flags().BoolVar(&f.ok, "yes", false, "with --query: confirm the change")
	cmd.MarkFlagsMutuallyExclusive("run", "query")
	patience(cmd, &f.timeout)

	return cmd
}

// all changes every execution that the query selects, and prints each one.
func (o *options) all(ctx context.Context, v *verb, f *verbFlags, do func(ctx context.Context, b api.Backend, t api.Target) error) error {
	q, err := query.Parse(f.query+v.of, time.Now())
	if err != nil {
		return err
	}
	if f.dryRun || !f.ok {
		return o.rehearse(ctx, f, &q)
	}

	n, err := o.act(ctx)
	if err != nil {
		return err
	}
	defer n.Close()
	b := n.Backend()

	one := func(ctx context.Context, e *api.Description) error {
		ctx, cancel := context.WithTimeout(ctx, f.timeout)
		defer cancel()
		return late(ctx, do(ctx, b, api.Target{Address: e.Start.Address, Run: e.Start.Run}))
	}

	list, done, failed, first := []actionResult{}, 0, 0, error(nil)
	var ended error
	told := time.Now()
	for r := range batch.Run(ctx, b, q.Request(o.tenant), one) {
		if r.Execution == nil {
			return r.Err
		}
		t := actionResult{Execution: r.Execution.Start.Address.Type + "/" + r.Execution.Start.Address.Key, Run: r.Execution.Start.Run.String()}

		switch {
		case r.Err != nil:
			if failed++; first == nil {
				first = r.Err
			}
			t.Error = r.Err.Error()
			fmt.Fprintf(o.Err, "%s: %s\n", t.Execution, t.Error)
		case !o.structured():
			fmt.Fprintf(o.Out, "%s %s\n", v.done, t.Execution)
		}

		if done++; o.structured() {
			list = append(list, t)
			told = o.progress(told, done, failed)
		}

		if fault.Is(r.Err, fault.Timeout) { // the next one would time out too
			ended = fault.New(fault.Timeout, "stopped after %d: %w", done, r.Err)
			break
		}
	}

	if o.structured() {
		if err := o.json(list); err != nil {
			return err
		}
	}

	if ended != nil {
		return o.hintAtNodes(ctx, n, ended)
	}
	if failed > 0 {
		return fault.New(fault.KindOf(first), "%d of %d failed; the first error: %w", failed, done, first)
	}
	fmt.Fprintf(o.Err, "%d done.\n", done)

	return nil
}

// rehearse lists the executions that a query selects and changes nothing. Without --dry-run it asks
// the user to add --yes.
func (o *options) rehearse(ctx context.Context, f *verbFlags, q *query.Query) error {
	n, err := o.look(ctx)
	if err != nil {
		return err
	}
	defer n.Close()

	if !f.dryRun {
		count, err := n.Backend().Count(ctx, q.Request(o.tenant))
		if err != nil {
			return err
		}
		return fault.New(fault.Invalid, "the query selects %d executions: add --yes to change them, or --dry-run to list them", count)
	}

	list := []actionResult{}
	for r := range batch.Run(ctx, n.Backend(), q.Request(o.tenant), nil) {
		if r.Err != nil {
			return r.Err
		}
		list = append(list, actionResult{Execution: r.Execution.Start.Address.Type + "/" + r.Execution.Start.Address.Key, Run: r.Execution.Start.Run.String()})
	}

	if err := o.printResults(list, "selected:"); err != nil {
		return err
	}
	fmt.Fprintf(o.Err, "%d selected; nothing changed.\n", len(list))
	return nil
}

// orAll extends a command for one execution to all executions that a query selects.
func (o *options) orAll(cmd *cobra.Command, v verb, do func(ctx context.Context, b api.Backend, t api.Target) error) *cobra.Command {
	var f verbFlags
	one := cmd.RunE
	cmd.Use = v.use + " workflow/key | --query q"
	cmd.Example = v.example

	cmd.Args = func(_ *cobra.Command, args []string) error {
		if (f.query == "") != (len(args) == 1) {
			return fault.New(fault.Invalid, "%s needs either workflow/key, or --query q", v.use)
		}
		return nil
	}

	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if f.query == "" {
			return one(cmd, args)
		}
		if f.dryRun, err = cmd.Flags().GetBool("dry-run"); err != nil {
			return err
		}
		if f.ok, err = cmd.Flags().GetBool("yes"); err != nil {
			return err
		}
		if f.timeout, err = cmd.Flags().GetDuration("timeout"); err != nil {
			return err
		}
		return o.all(cmd.Context(), &v, &f, do)
	}

	cmd.Flags().StringVarP(&f.query, "query", "q", "", "all executions that this query selects; see perdure workflow list")
	if cmd.Flags().Lookup("yes") == nil {
		cmd.Flags().Bool("yes", false, "with --query: confirm the change")
	}
	cmd.MarkFlagsMutuallyExclusive("run", "query")

	return cmd
}

// open restricts a query to executions that can be signalled and canceled.
const open = ` and status = "open"`

func newWorkflowSignal(o *options) *cobra.Command {
	var text, requestID string
	cmd := o.verb(verb{
		use: "signal", args: []string{"name"}, short: "Send a signal to executions", done: "signal sent:", of: open,
		example: `  perdure workflow signal order/42 approved --input '{"by": "me"}'
  perdure workflow signal --query 'reason = "signal" and workflow = "order"' approved --input true --request-id mass-1 --yes`,
		prepare: func(args []string) (func(ctx context.Context, b api.Backend, t api.Target) error, error) {
			value, err := o.input("--input", text)
			return func(ctx context.Context, b api.Backend, t api.Target) error {
				return b.Signal(ctx, api.SignalRequest{Target: t, Name: args[0], Input: value, RequestID: requestID})
			}, err
		},
	})
	cmd.Flags().StringVar(&text, "input", "", "value as JSON, @file, or - for standard input (null)")
	cmd.Flags().StringVar(&requestID, "request-id", "", "id that makes the request safe to repeat, for each execution")
	return cmd
}
