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
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/query"
)

// verb is a command that changes one execution, or all executions that a query selects.
type verb struct {
	use, short, example string
	// args are the names of the arguments after the execution.
	args []string
	// The command prints done before the name of an execution when it has changed the execution.
	done string
	// fill completes the batch that --query starts, from the flags and the arguments after the
	// execution. The name of the command is the verb of the batch.
	fill func(args []string, r *api.BatchRequest) error
	// prepare checks the arguments before the command opens anything, and returns the function that
	// changes one execution.
	prepare func(args []string) (func(ctx context.Context, b api.Backend, t api.Target) error, error)
}

type verbFlags struct {
	run, query         string
	dryRun, ok, detach bool
	timeout            time.Duration
}

// addQuery adds the flags of a query that selects many executions.
func (f *verbFlags) addQuery(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.query, "query", "q", "", "all executions that this query selects, as a batch; see perdure workflow list")
	cmd.Flags().BoolVar(&f.detach, "detach", false, "with --query: do not wait for the end of the batch")
	cmd.MarkFlagsMutuallyExclusive("run", "query")
}

// actionResult is the result for one execution in JSON.
type actionResult struct {
	Execution string `json:"execution"`
	Run       string `json:"run,omitempty"`
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

// actOn changes one execution and prints that the change is done.
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
			rest := args[len(args)-len(v.args):]
			if f.query != "" {
				return o.all(cmd.Context(), &v, &f, rest)
			}
			do, err := v.prepare(rest)
			if err != nil {
				return err
			}
			named, err := o.target(args[0], f.run)
			if err != nil {
				return err
			}
			if f.dryRun || f.detach {
				return fault.New(fault.Invalid, "--dry-run and --detach need --query")
			}
			return o.actOn(cmd.Context(), f.timeout, named, v.done, do)
		},
	}

	cmd.Flags().StringVar(&f.run, "run", "", "id of a run; the current run by default")
	f.addQuery(cmd)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "with --query: list the executions, and change nothing")
	cmd.Flags().BoolVar(&f.ok, "yes", false, "with --query: confirm the change")
	patience(cmd, &f.timeout)

	return cmd
}

// all starts a batch that changes every execution that the query selects. The batch runs on a node,
// and continues if this command ends. On a file that no program has open, the command runs the
// batch itself. If that command ends early, the batch continues when another process opens the
// file.
func (o *options) all(ctx context.Context, v *verb, f *verbFlags, args []string) error {
	r := api.BatchRequest{Tenant: o.tenant, Verb: v.use, Query: f.query, DryRun: f.dryRun}
	if v.fill != nil {
		if err := v.fill(args, &r); err != nil {
			return err
		}
	}
	if f.dryRun {
		return o.rehearse(ctx, r)
	}
	return o.startBatch(ctx, &batchFlags{yes: f.ok, watch: !f.detach, answer: f.timeout}, r)
}

// rehearse lists the executions that a batch would change, and changes nothing.
func (o *options) rehearse(ctx context.Context, r api.BatchRequest) error {
	n, err := o.look(ctx)
	if err != nil {
		return err
	}
	defer n.Close()

	// The dry run of the batch reports mistakes, and returns the selection.
	b, err := n.Backend().StartBatch(ctx, r)
	if err != nil {
		return err
	}
	q, err := query.Parse(b.Selects, time.Now())
	if err != nil {
		return err
	}
	list := []actionResult{}
	for found := range batch.Run(ctx, n.Backend(), q.Request(o.tenant), nil) {
		if found.Err != nil {
			return found.Err
		}
		// Batches leave executions of Perdure itself alone.
		if s := &found.Execution.Start; !model.IsBuiltIn(s.Address.Type) {
			list = append(list, actionResult{Execution: nameOf(s.Address), Run: s.Run.String()})
		}
	}

	if err := o.printResults(list, "selected:"); err != nil {
		return err
	}
	fmt.Fprintf(o.Err, "%d selected; nothing changed.\n", len(list))
	return nil
}

// orAll extends a command for one execution to all executions that a query selects.
func (o *options) orAll(cmd *cobra.Command, v verb) *cobra.Command {
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
		if f.query == "" && f.detach {
			return fault.New(fault.Invalid, "--detach needs --query")
		}
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
		return o.all(cmd.Context(), &v, &f, nil)
	}

	f.addQuery(cmd)
	if cmd.Flags().Lookup("yes") == nil {
		cmd.Flags().Bool("yes", false, "with --query: confirm the change")
	}

	return cmd
}

func newWorkflowSignal(o *options) *cobra.Command {
	var text, requestID string
	cmd := o.verb(verb{
		use: "signal", args: []string{"name"}, short: "Send a signal to executions", done: "signal sent:",
		example: `  perdure workflow signal order/42 approved --input '{"by": "me"}'
  perdure workflow signal --query 'reason = "signal" and workflow = "order"' approved --input true --request-id mass-1 --yes`,
		fill: func(args []string, r *api.BatchRequest) (err error) {
			r.Signal, r.RequestID = args[0], requestID
			r.Input, err = o.input("--input", text)
			return err
		},
		prepare: func(args []string) (func(ctx context.Context, b api.Backend, t api.Target) error, error) {
			value, err := o.input("--input", text)
			return func(ctx context.Context, b api.Backend, t api.Target) error {
				return b.Signal(ctx, api.SignalRequest{Target: t, Name: args[0], Input: value, RequestID: requestID})
			}, err
		},
	})
	cmd.Flags().StringVar(&text, "input", "", "value as JSON, @file, or - for standard input (null)")
	cmd.Flags().StringVar(&requestID, "request-id", "", "id that makes the request safe to repeat; with --query: the same command starts one batch")
	return cmd
}
