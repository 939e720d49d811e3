package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func newBatch(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "batch", Short: "Jobs on the server that change all executions that a query selects",
		Long: `Jobs on the server that change all executions that a query selects.

A batch is itself an execution: it continues after a crash of the server, and acts on each execution once. It goes from the newest execution to the oldest, and does
not touch executions that start while it runs. On a file without a running program, the command runs the batch itself and waits for its end.`,
	}
	cmd.AddCommand(newBatchStart(o), newBatchList(o), newBatchShow(o), newBatchCancel(o))
	return cmd
}

// batchFlags say what a batch does.
type batchFlags struct {
	r          api.BatchRequest
	input, to  string
	yes, watch bool
	answer     time.Duration
}

func newBatchStart(o *options) *cobra.Command {
	var f batchFlags
	cmd := &cobra.Command{
		Use: "start verb --query q", Short: "Apply a verb to all executions that a query selects: " + strings.Join(api.BatchVerbs(), ", "),
		Example: `  perdure batch start cancel --query 'workflow = "order" and started < -24h' --dry-run
  perdure batch start cancel --query 'workflow = "order" and started < -24h' --reason 'it moves' --yes --watch
  perdure batch start signal --query 'reason = "signal" and workflow = "order"' --signal approved --input true --id approve-1 --yes
  perdure batch start reset --query 'workflow = "order" and status = "failed"' --to charge --yes`,
		Args: cobra.ExactArgs(1), ValidArgs: api.BatchVerbs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.request(o, args[0])
			if err != nil {
				return err
			}
			return o.startBatch(cmd.Context(), &f, r)
		},
	}

	cmd.Flags().StringVarP(&f.r.Query, "query", "q", "", "the executions to change; see perdure workflow list")
	cmd.Flags().StringVar(&f.r.ID, "id", "", "id of the batch: the same command with the same id starts one batch")
	cmd.Flags().StringVar(&f.r.Reason, "reason", "", "reason that the executions show")
	cmd.Flags().StringVar(&f.r.Signal, "signal", "", "name of the signal, for the verb signal")
	cmd.Flags().StringVar(&f.input, "input", "", "value of the signal as JSON, @file, or - for standard input (null)")
	cmd.Flags().StringVar(&f.to, "to", "", "for the verb reset: keep the events before this step, or up to this position")
	cmd.Flags().BoolVar(&f.r.DryRun, "dry-run", false, "count the executions, and change nothing")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "confirm the change")
	watchFlag(cmd, &f.watch, "print the progress until the batch ends")
	patience(cmd, &f.answer)
	_ = cmd.MarkFlagRequired("query") // an error means that the flag does not exist
	return cmd
}

// request returns the request that the flags make.
func (f *batchFlags) request(o *options, verb string) (r api.BatchRequest, err error) {
	r = f.r
	r.Tenant, r.Verb = o.tenant, verb
	if !slices.Contains(api.BatchVerbs(), verb) {
		return r, fault.New(fault.Invalid, "there is no verb %.40q: it is %s", verb, strings.Join(api.BatchVerbs(), ", "))
	}
	if verb == api.BatchSignal {
		if r.Input, err = o.input("--input", f.input); err != nil {
			return r, err
		}
	} else if f.input != "" {
		return r, fault.New(fault.Invalid, "--input is the value of a signal, and the verb is %s", verb)
	}
	if verb == api.BatchReset && f.to == "" {
		return r, fault.New(fault.Invalid, "the verb reset needs --to: a step, or a position")
	}
	var at api.PastRequest
	err = place(&at, f.to)
	r.Before, r.After, r.Placed = at.Before, at.After, at.Placed
	return r, err
}

// startBatch starts a batch, or counts what it would change.
func (o *options) startBatch(ctx context.Context, f *batchFlags, r api.BatchRequest) error {
	if !r.DryRun && !f.yes {
		r.DryRun = true
		var b api.Batch
		err := o.within(ctx, f.answer, func(ctx context.Context, c api.Backend) (err error) {
			b, err = c.StartBatch(ctx, r)
			return err
		})
		if err != nil {
			return err
		}
		return fault.New(fault.Invalid, "the query selects %d executions: add --yes to change them, or --dry-run to only count them", b.Progress.Matched)
	}

	return o.withBatchCode(ctx, func(c api.Backend, alone bool) error {
		asked, cancel := context.WithTimeout(ctx, f.answer)
		defer cancel()
		b, err := c.StartBatch(asked, r)
		switch {
		case err != nil:
			return late(asked, err)
		case r.DryRun && o.structured():
			return o.json(batchLineOf(&b))
		case r.DryRun:
			_, err := fmt.Fprintf(o.Out, "%s of %d executions; nothing changed: %s\n", b.Verb, b.Progress.Matched, b.Selects)
			return err
		case f.watch || alone:
			return o.watchBatch(ctx, c, b.ID)
		case o.structured():
			return o.json(batchLineOf(&b))
		}
		_, err = fmt.Fprintf(o.Out, "batch %s started: %s of %d executions\n", b.ID, b.Verb, b.Progress.Matched)
		return err
	})
}

// withBatchCode opens the store for a command that starts or watches a batch. If the store is a
// file, no other process runs batches, so the command runs them itself, and alone is true.
func (o *options) withBatchCode(ctx context.Context, do func(c api.Backend, alone bool) error) (err error) {
	n, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if closed := n.Close(); err == nil {
			err = closed
		}
	}()

	own, alone := n.(opened)
	if alone = alone && o.alone(); alone {
		stop, err := own.ServeBatches(ctx, o.log())
		if err != nil {
			return err
		}
		defer stop()
	}
	return o.hintAtNodes(ctx, n, do(n.Backend(), alone))
}

// batchLine is a batch in JSON.
type batchLine struct {
	ID      string           `json:"id"`
	Verb    string           `json:"verb"`
	Query   string           `json:"query"`
	Selects string           `json:"selects"`
	Reason  string           `json:"reason,omitempty"`
	Signal  string           `json:"signal,omitempty"`
	By      string           `json:"by,omitempty"`
	Status  string           `json:"status,omitempty"`
	Started string           `json:"started,omitempty"`
	Ended   string           `json:"ended,omitempty"`
	Waits   string           `json:"waits,omitempty"`
	Error   string           `json:"error,omitempty"`
	Matched int64            `json:"matched"`
	Done    int64            `json:"done"`
	Skipped int64            `json:"skipped"`
	Failed  int64            `json:"failed"`
	Errors  []batchErrorLine `json:"errors,omitempty"`
}

// batchErrorLine is the error of one execution in JSON.
type batchErrorLine struct {
	Execution string `json:"execution"`
	Run       string `json:"run"`
	Error     string `json:"error"`
}

func batchLineOf(b *api.Batch) batchLine {
	p := &b.Progress
	l := batchLine{
		ID: b.ID, Verb: b.Verb, Query: b.Query, Selects: b.Selects, Reason: b.Reason, Signal: b.Signal, By: b.By, Started: when(b.Started), Ended: when(b.Ended),
		Matched: p.Matched, Done: p.Done, Skipped: p.Skipped, Failed: p.Failed,
	}
	if b.Status != 0 {
		l.Status = b.Status.String()
	}
	if len(b.Reasons) > 0 {
		l.Waits = b.Reasons[0].String()
	}
	if b.Failure != nil {
		l.Error = b.Failure.Message
	}
	for _, e := range p.Errors {
		l.Errors = append(l.Errors, batchErrorLine{e.Workflow + "/" + e.Key, e.Run.String(), e.Text})
	}
	return l
}

// progressText describes the progress of a batch.
func (l *batchLine) progressText() string {
	return fmt.Sprintf("%d of %d: %d done, %d skipped, %d failed", l.Done+l.Skipped+l.Failed, l.Matched, l.Done, l.Skipped, l.Failed)
}

// batchEvery is how often a command reads the progress of a batch.
const batchEvery = 200 * time.Millisecond

// watchBatch prints the progress of a batch until it ends. It returns an error if the batch did not
// complete, or failed for an execution.
func (o *options) watchBatch(ctx context.Context, c api.Backend, id string) error {
	shown := o.newProgress()
	defer shown.clear()
	for {
		b, err := c.Batch(ctx, api.BatchTarget{Tenant: o.tenant, ID: id})
		if err != nil {
			return err
		}
		l := batchLineOf(&b)
		text := l.progressText()
		if b.Status.Closed() {
			shown.clear()
			return o.endBatch(&l)
		}
		shown.tell(l.Done+l.Skipped+l.Failed, l.Matched, text)
		if !wait(ctx, batchEvery) {
			return fault.New(fault.Canceled, "batch %s is still running (%s): see perdure batch show %s", id, text, id)
		}
	}
}

// endBatch prints how a batch has ended.
func (o *options) endBatch(l *batchLine) error {
	if o.structured() {
		if err := o.json(l); err != nil {
			return err
		}
	} else {
		for _, e := range l.Errors {
			fmt.Fprintf(o.Err, "%s: %s\n", e.Execution, e.Error)
		}
		fmt.Fprintf(o.Out, "batch %s %s: %s\n", l.ID, l.Status, l.progressText())
	}
	switch {
	case l.Error != "":
		return fault.New(fault.Unclassified, "batch %s %s: %s", l.ID, l.Status, l.Error)
	case l.Failed > 0:
		return fault.New(fault.Unclassified, "batch %s failed for %d executions", l.ID, l.Failed)
	}
	return nil
}

func newBatchList(o *options) *cobra.Command {
	var open bool
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List batches, newest first", Args: cobra.NoArgs, Example: "  perdure batch list\n  perdure batch list --open -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.with(cmd.Context(), true, func(b api.Backend) error { return o.listBatches(cmd.Context(), b, open, limit) })
		},
	}
	cmd.Flags().BoolVar(&open, "open", false, "list only batches that have not ended")
	cmd.Flags().Var(count(&limit, 50), "limit", "most entries to list; 0 lists all")
	return cmd
}

func (o *options) listBatches(ctx context.Context, b api.Backend, open bool, limit int) error {
	lines, rows := []batchLine{}, [][]string{}
	r := api.BatchListRequest{Tenant: o.tenant, Open: open}
	for {
		if limit > 0 {
			r.Limit = min(limit-len(lines), 100)
		}
		page, err := b.ListBatches(ctx, r)
		if err != nil {
			return err
		}
		for i := range page.Batches {
			l := batchLineOf(&page.Batches[i])
			lines = append(lines, l)
			rows = append(rows, []string{
				l.ID, l.Verb, l.Status, strconv.FormatInt(l.Matched, 10), strconv.FormatInt(l.Done, 10), strconv.FormatInt(l.Skipped, 10), strconv.FormatInt(l.Failed, 10),
				second(page.Batches[i].Started), l.Query,
			})
		}
		if r.Cursor = page.Cursor; r.Cursor == "" || limit > 0 && len(lines) >= limit {
			break
		}
	}

	if o.structured() {
		return o.json(lines)
	}
	return o.table("BATCH\tVERB\tSTATUS\tMATCHED\tDONE\tSKIPPED\tFAILED\tSTARTED\tQUERY", rows)
}

func newBatchShow(o *options) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use: "show batch", Short: "Show a batch and its progress", Args: cobra.ExactArgs(1), Example: "  perdure batch show approve-1\n  perdure batch show approve-1 --watch",
		ValidArgsFunction: o.batchIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if watch {
				return o.withBatchCode(ctx, func(c api.Backend, _ bool) error {
					id, err := o.findBatch(ctx, c, args[0])
					if err != nil {
						return err
					}
					return o.watchBatch(ctx, c, id)
				})
			}

			return o.with(ctx, true, func(c api.Backend) error {
				id, err := o.findBatch(ctx, c, args[0])
				if err != nil {
					return err
				}
				b, err := c.Batch(ctx, api.BatchTarget{Tenant: o.tenant, ID: id})
				if err != nil {
					return err
				}
				return o.printBatch(&b)
			})
		},
	}
	watchFlag(cmd, &watch, "print the progress until the batch ends")
	return cmd
}

// findBatch completes the id of a batch. The user may type the id in the shortened form of a table.
func (o *options) findBatch(ctx context.Context, c api.Backend, id string) (string, error) {
	return findKey(ctx, c, model.Address{Tenant: o.tenant, Type: model.BatchType, Key: id})
}

func (o *options) printBatch(b *api.Batch) error {
	l := batchLineOf(b)
	if o.structured() {
		return o.json(l)
	}
	rows := [][]string{
		{"Batch", l.ID},
		{"Verb", strings.TrimSpace(l.Verb + " " + l.Signal)},
		{"Query", l.Query},
		{"Selects", l.Selects},
		{"Status", l.Status},
		{"Progress", l.progressText()},
		{"Reason", dash(l.Reason)},
		{"Started by", dash(l.By)},
		{"Started", second(b.Started)},
		{"Ended", second(b.Ended)},
	}

	if l.Waits != "" {
		rows = append(rows, []string{"Waits", l.Waits})
	}
	if l.Error != "" {
		rows = append(rows, []string{"Error", l.Error})
	}
	head := "Last errors"
	for _, e := range l.Errors {
		rows = append(rows, []string{head, e.Execution + ": " + e.Error})
		head = ""
	}
	return o.table("", rows)
}

// batchIDs completes the ids of batches, also of batches that have ended.
func (o *options) batchIDs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	// Without a store there is nothing to complete.
	_ = o.with(cmd.Context(), true, func(b api.Backend) error {
		page, err := b.ListBatches(cmd.Context(), api.BatchListRequest{Tenant: o.tenant})
		for i := range page.Batches {
			ids = append(ids, page.Batches[i].ID)
		}
		return err
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}

func newBatchCancel(o *options) *cobra.Command {
	var reason string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "cancel batch", Short: "End a batch after the page that it works on; what it has done stays done", Args: cobra.ExactArgs(1),
		Example: "  perdure batch cancel approve-1 --reason 'wrong query'", ValidArgsFunction: o.batchIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.within(cmd.Context(), timeout, func(ctx context.Context, b api.Backend) error {
				id, err := o.findBatch(ctx, b, args[0])
				if err != nil {
					return err
				}
				if err := b.CancelBatch(ctx, api.BatchTarget{Tenant: o.tenant, ID: id, Reason: reason}); err != nil {
					return err
				}
				if o.structured() {
					return o.json(map[string]string{"batch": id})
				}
				_, err = fmt.Fprintf(o.Out, "cancel requested: %s\n", id)
				return err
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason that the batch shows")
	patience(cmd, &timeout)
	return cmd
}
