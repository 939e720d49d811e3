package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/node"
	"github.com/perdure/perdure/internal/remote"
)

// act opens the store for commands that change something. If a program has a file open, act
// connects to the socket of the program. If that program has no socket, act fails, because only one
// process at a time can open a file. If the store is a database, nodes may be running on it.
func (o *options) act(ctx context.Context) (session, error) { return o.actIn(ctx, o.own()) }

// actIn is like act, for a command that names a tenant but does not act in it.
func (o *options) actIn(ctx context.Context, in scope) (session, error) {
	if !remote.IsURL(o.store) {
		n, err := o.lookIn(ctx, in) // a mistyped name must not create a new file
		if err != nil {
			return nil, err
		}
		if err := n.Close(); err != nil {
			return nil, err
		}
	}
	return o.connect(ctx, node.Config{URL: o.store, Schema: o.schema, Databases: o.databaseURLs(), Guest: true, Log: o.log(), Version: Version()}, in)
}

// alone reports whether this command is the only process that has the store open: the store is a
// file, and no program listens on the socket next to it.
func (o *options) alone() bool {
	return strings.HasPrefix(o.store, "file:") && (o.tenant != model.DefaultTenant || !programListens(context.Background(), o.store))
}

// patience adds the flag for how long the command waits for an answer.
func patience(cmd *cobra.Command, d *time.Duration) {
	cmd.Flags().Var(span(d, 30*time.Second), "timeout", "how long to wait for the owner of the execution")
}

// entityPatience is like patience, for a command that waits for the owner of an entity.
func entityPatience(cmd *cobra.Command, d *time.Duration) {
	patience(cmd, d)
	cmd.Flags().Lookup("timeout").Usage = "how long to wait for the owner of the entity"
}

// openLimit is the longest time for which a command tries to open its store.
const openLimit = 30 * time.Second

// open opens the store within openLimit. It gives the store a context without a deadline. With a
// deadline, the store would try until the deadline to reach a server that refuses connections.
// Without a deadline, the store gives up after a few seconds.
func (o *options) open(ctx context.Context) (session, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := time.AfterFunc(openLimit, func() { cancel(context.DeadlineExceeded) })
	defer limit.Stop()

	return o.act(ctx)
}

// within opens the store and calls do with a deadline. The time starts when the store is open, so a
// slow connection does not use it up.
func (o *options) within(ctx context.Context, d time.Duration, do func(ctx context.Context, b api.Backend) error) (err error) {
	n, err := o.open(ctx)
	if err != nil {
		return err
	}

	defer func() {
		if closed := n.Close(); err == nil {
			err = closed
		}
	}()

	asked, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return o.hintAtNodes(ctx, n, late(asked, do(asked, n.Backend())))
}

// input reads JSON from the value of a flag: the value itself, @file, or - for standard input. It
// checks the JSON before the command sends anything.
func (o *options) input(flag, text string) (model.Payload, error) {
	data := []byte(text)
	var err error
	switch {
	case text == "":
		data = []byte("null")
	case text == "-":
		data, err = io.ReadAll(o.In)
	case strings.HasPrefix(text, "@"):
		data, err = os.ReadFile(text[1:])
	}

	if err != nil {
		return model.Payload{}, fault.New(fault.Invalid, "%s: %w", flag, err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return model.Payload{}, fault.New(fault.Invalid, "the value of %s is not JSON: %w", flag, err)
	}
	if err := api.CheckText(data); err != nil {
		return model.Payload{}, fault.New(fault.Invalid, "the value of %s is not JSON: %w", flag, err)
	}

	return model.Payload{Data: compact.Bytes()}, nil
}

type startFlags struct {
	key, hashKey, input, requestID string
	reuse                          string
	labels                         []string
	wait                           bool
	timeout                        time.Duration
}

// add adds the flags. The parameter what names the thing to start, and start is the verb. Both
// appear in the help.
func (f *startFlags) add(cmd *cobra.Command, what, start string) {
	cmd.Flags().StringVar(&f.key, "key", "", "key of the "+what)
	cmd.Flags().StringVar(&f.hashKey, "hash-key", "", "JSON value whose hash becomes the key")
	cmd.MarkFlagsMutuallyExclusive("key", "hash-key")
	f.addTerms(cmd, start)
}

// addTerms adds the flags of a start, except the flags for its key.
func (f *startFlags) addTerms(cmd *cobra.Command, start string) {
	cmd.Flags().StringVar(&f.input, "input", "", "input as JSON, @file, or - for standard input (null)")
	cmd.Flags().StringArrayVar(&f.labels, "label", nil, "label as name=value; may be repeated")
	cmd.Flags().StringVar(&f.reuse, "reuse", "never", start+" again if the key was used: never, failed or always")
	cmd.Flags().StringVar(&f.requestID, "request-id", "", "id that makes the request safe to repeat")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "wait for the result and print it")
	patience(cmd, &f.timeout)
	cmd.Flags().Lookup("timeout").Usage += ", and with --wait for its end"
}

// mostCalls is the time limit of a command that makes many calls, each with its own timeout.
const mostCalls = 7 * 24 * time.Hour

func newWorkflowStart(o *options) *cobra.Command {
	var f startFlags
	var times termFlags
	var many, like string
	cmd := &cobra.Command{
		Use: "start [workflow]", Short: "Start an execution, or attach to the one with the same key",
		Long: `Start an execution, or attach to the one with the same key.

The key is --key, or the hash of the JSON value --hash-key as programs compute it. Without both, the key is the hash of the input.

With --many, each line of a file starts one execution. A line is JSON such as {"key": "k-1", "input": 5}. It may also have workflow, labels,
request_id, start_delay, start_at, execution_timeout and attempts. The flags apply to what a line omits. The command prints the lines that were
refused and starts the others. You can repeat the command, because a key starts only once.

With --like workflow/key it starts an execution with the workflow, the input, the labels, the timeout and the attempts of another one. The other flags override
them. The key is --key or --hash-key; without both the command draws one. A delay of the start is not repeated.`,
		Example: `  perdure workflow start greet --key hello-2 --input '"World"' --label region=eu
  perdure workflow start order --input @order.json --wait --timeout 5m -o json
  perdure workflow start report --key monday --start-at 2026-11-16T06:00:00Z --execution-timeout 2h --attempts 3
  perdure workflow start order --many orders.jsonl
  perdure workflow start --like order/42 --key 42-again --label region=us`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			workflow, err := startName(args, many, like)
			if err != nil {
				return err
			}
			req, err := o.startRequest(workflow, &f)
			if err != nil {
				return err
			}
			if req.Terms, err = times.terms(); err != nil {
				return err
			}

			if like != "" {
				return o.startLike(cmd, like, &f, req)
			}
			if many != "" {
				return o.within(cmd.Context(), mostCalls, func(ctx context.Context, b api.Backend) error {
					return o.startMany(ctx, b, manyOrder{many, workflow, req, f.timeout})
				})
			}

			return o.within(cmd.Context(), f.timeout, func(ctx context.Context, b api.Backend) error { return o.start(ctx, b, req, f.wait) })
		},
	}
	f.add(cmd, "execution", "start")
	times.add(cmd)
	cmd.Flags().StringVar(&many, "many", "", "start one execution per line of this file of JSON lines; - for standard input")
	cmd.Flags().StringVar(&like, "like", "", "start an execution like this one, workflow/key, under another key")
	for _, flag := range []string{"key", "hash-key", "input", "request-id", "wait", "like"} {
		cmd.MarkFlagsMutuallyExclusive("many", flag)
	}
	return cmd
}

// newWorkflowExecute makes the command that starts an execution and waits for it.
func newWorkflowExecute(o *options) *cobra.Command {
	var f startFlags
	var times termFlags
	cmd := &cobra.Command{
		Use: "execute workflow", Short: "Start an execution, wait for its end, and print its result", Args: cobra.ExactArgs(1),
		Long: "Start an execution, or attach to the one with the same key, wait for its end, and print its result. It is start with --wait.",
		Example: `  perdure workflow execute greet --key hello-2 --input '"World"'
  perdure workflow execute order --input @order.json --timeout 5m -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			req, err := o.startRequest(args[0], &f)
			if err != nil {
				return err
			}
			if req.Terms, err = times.terms(); err != nil {
				return err
			}
			return o.within(cmd.Context(), f.timeout, func(ctx context.Context, b api.Backend) error { return o.start(ctx, b, req, true) })
		},
	}
	f.add(cmd, "execution", "start")
	times.add(cmd)
	cmd.Flags().Lookup("timeout").Usage = "how long to wait for the end of the execution"
	if err := cmd.Flags().MarkHidden("wait"); err != nil {
		panic(err) // an error means that the flag does not exist
	}
	return cmd
}

// newWorkflowResult makes the command that waits for an execution.
func newWorkflowResult(o *options) *cobra.Command {
	var run string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "result workflow/key", Short: "Wait for the end of an execution and print its result", Args: cobra.ExactArgs(1),
		Long:    "Wait for the end of an execution and print its result. The exit code is 1 if the execution has not completed, and 6 if it has not ended within --timeout.",
		Example: "  perdure workflow result order/42 --timeout 5m",
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := o.target(args[0], run)
			if err != nil {
				return err
			}
			return o.withExecution(cmd.Context(), timeout, named, func(ctx context.Context, b api.Backend, t api.Target) error {
				end, err := b.Await(ctx, t)
				return o.printEnd(started{Workflow: t.Address.Type, Key: t.Address.Key, Existing: true}, end, err)
			})
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "id of a run; the current run by default")
	patience(cmd, &timeout)
	cmd.Flags().Lookup("timeout").Usage = "how long to wait for the end of the execution"
	return cmd
}

// newPromise makes the commands of promises. resolve and reject do the same as the commands of
// perdure workflow with these names.
func newPromise(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "promise", Short: "Promises that executions wait for",
		Long:    "List and settle promises that executions wait for.",
		Example: "  perdure promise list\n  perdure promise resolve order/42 answer --input 42",
	}
	cmd.AddCommand(newPromiseList(o), newWorkflowResolve(o), newWorkflowReject(o))
	return cmd
}

func (o *options) startRequest(workflow string, f *startFlags) (r api.StartRequest, err error) {
	if r.Input, err = o.input("--input", f.input); err != nil {
		return r, err
	}
	if r.Labels, err = readLabels(f.labels); err != nil {
		return r, err
	}
	policies := map[string]model.ReusePolicy{"never": model.ReturnExisting, "failed": model.ReuseIfFailed, "always": model.ReuseAlways}
	reuse, ok := policies[f.reuse]
	if !ok {
		return r, fault.New(fault.Invalid, "--reuse is %q, must be never, failed or always", f.reuse)
	}

	r.Reuse, r.RequestID = reuse, f.requestID
	key := f.key
	if key == "" {
		hashed := r.Input
		if f.hashKey != "" {
			if hashed, err = o.input("--hash-key", f.hashKey); err != nil {
				return r, err
			}
		}
		key = perdure.HashKey(json.RawMessage(hashed.Data)).String()
	}

	r.Address = model.Address{Tenant: o.tenant, Type: workflow, Key: key}
	if strings.HasPrefix(workflow, model.TaskPrefix) {
		return r, nil // the request gets the spec of a task, or is refused
	}
	return r, api.CheckWorkflowName(workflow)
}

func (o *options) start(ctx context.Context, b api.Backend, r api.StartRequest, wait bool) error {
	reply, err := b.Start(ctx, r)
	if err != nil {
		return err
	}
	name := r.Address.Type + "/" + r.Address.Key
	out := started{
		Workflow: r.Address.Type, Key: r.Address.Key, Run: reply.Run.String(), Existing: reply.Existing, Status: reply.Status.String(),
	}

	if !wait {
		if o.structured() {
			return o.json(out)
		}
		verb := "started"
		if reply.Existing {
			verb = "exists already (" + out.Status + ")"
		}
		_, err = fmt.Fprintf(o.Out, "%s %s, run %s\n", name, verb, out.Run)
		return err
	}

	// Another start of the key may follow, so wait for the run of this one.
	end, err := api.FollowRuns(ctx, api.ClientRuns(b), api.Target{Address: r.Address, Run: reply.Run})
	return o.printEnd(out, end, err)
}

// printEnd prints how an execution has ended, or returns the error of the wait for the end.
func (o *options) printEnd(out started, end api.Result, err error) error {
	name := out.Workflow + "/" + out.Key
	switch {
	case fault.Is(err, fault.NotFound):
		return err
	case err != nil:
		return fault.WithHint(err, "%s is still running: see `perdure workflow explain %s`", name, name)
	}
	out.Run, out.Status, out.Output = end.Run.String(), end.Outcome.Status.String(), raw(end.Outcome.Output)
	failure := end.Outcome.Failure
	if failure != nil {
		out.Error = failure.Message
	}

	completed := end.Outcome.Status == model.Completed
	if o.structured() {
		err = o.json(out)
	} else if completed {
		_, err = fmt.Fprintln(o.Out, payload(end.Outcome.Output, len(end.Outcome.Output.Data)))
	}

	switch {
	case failure != nil:
		return fault.New(fault.Unclassified, "%s %s: %s", name, out.Status, failure.Message)
	case !completed:
		return fault.New(fault.Unclassified, "%s %s", name, out.Status)
	}
	return err
}

// started is the result of a start in JSON.
type started struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Existing bool   `json:"existing"`
	Status   string `json:"status"`
	Output   any    `json:"output,omitempty"`
	Error    string `json:"error,omitempty"`
}

// newWorkflowResolve and newWorkflowReject make the commands that settle a promise.
func newWorkflowResolve(o *options) *cobra.Command {
	var text string
	cmd := o.settle("resolve", "Resolve a promise of an execution", "  perdure workflow resolve order/42 answer --input 42",
		func(r *api.SettleRequest) (err error) {
			r.Value, err = o.input("--input", text)
			return err
		})
	cmd.Flags().StringVar(&text, "input", "", "value as JSON, @file, or - for standard input (null)")
	return cmd
}

func newWorkflowReject(o *options) *cobra.Command {
	var message string
	cmd := o.settle("reject", "Reject a promise of an execution", "  perdure workflow reject order/42 answer --message 'unknown'",
		func(r *api.SettleRequest) error {
			r.Failure = &model.Failure{Message: message}
			return nil
		})
	cmd.Flags().StringVar(&message, "message", "", "message of the error that the code gets")
	if err := cmd.MarkFlagRequired("message"); err != nil {
		panic(err) // an error means that the flag does not exist
	}
	return cmd
}

func (o *options) settle(use, short, example string, fill func(*api.SettleRequest) error) *cobra.Command {
	var run string
	var r api.SettleRequest
	var timeout time.Duration

	cmd := &cobra.Command{
		Use: use + " workflow/key promise", Short: short, Example: example, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := o.target(args[0], run)
			if err != nil {
				return err
			}
			if err := fill(&r); err != nil {
				return err
			}
			r.Name = args[1]
			return o.actOn(cmd.Context(), timeout, named, "settled promise "+r.Name+" of", func(ctx context.Context, b api.Backend, t api.Target) error {
				r.Target = t
				return b.Settle(ctx, r)
			})
		},
	}

	cmd.Flags().StringVar(&run, "run", "", "id of a run; the current run by default")
	cmd.Flags().StringVar(&r.RequestID, "request-id", "", "id that makes the request safe to repeat")
	patience(cmd, &timeout)
	return cmd
}
