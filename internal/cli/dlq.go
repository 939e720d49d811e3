package cli

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/batch"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func newDlq(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dlq", Short: "Dead tasks, which failed finally",
		Long: `Find tasks that used up their attempts, see why they failed, and requeue them.

Requeueing a submitted task starts a new run of its key. Requeueing a task of a workflow starts a separate task, because the workflow has already
received the failure. To continue the workflow itself, retry its execution with perdure workflow retry.`,
		Example: `  perdure dlq groups
  perdure dlq list --activity mail --fingerprint 4687430c57e24563
  perdure dlq requeue dead_7_06g5v0zkv0s00000000000000c --input '"ann@example.com"'
  perdure dlq requeue --activity mail --canary --rate 10 --yes
  perdure dlq purge --older 720h --dry-run`,
	}
	cmd.AddCommand(newDlqList(o), newDlqGroups(o), newDlqShow(o), newDlqRequeue(o), newDlqUndo(o), newDlqPurge(o))
	return cmd
}

// deadFlags select dead tasks.
type deadFlags struct {
	activities, queues []string
	fingerprint        string
	since, until       string
	requeued           string
}

func (f *deadFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.activities, "activity", nil, "select only these activities")
	cmd.Flags().StringSliceVar(&f.queues, "queue", nil, "select only these queues")
	cmd.Flags().StringVar(&f.fingerprint, "fingerprint", "", "select only this kind of failure; see perdure dlq groups")
	cmd.Flags().StringVar(&f.since, "since", "", "died at or after this time (RFC 3339), or this long ago (1h)")
	cmd.Flags().StringVar(&f.until, "until", "", "died before this time, or this long ago")
}

// isSet reports whether a flag other than --requeued sets a condition.
func (f *deadFlags) isSet() bool {
	return len(f.activities)+len(f.queues) > 0 || f.fingerprint != "" || f.since != "" || f.until != ""
}

func (f *deadFlags) request(tenant string) (api.DeadRequest, error) {
	r := api.DeadRequest{Tenant: tenant, Activities: f.activities, Queues: f.queues, Fingerprint: f.fingerprint}
	switch f.requeued {
	case "", "all":
	case "yes", "no":
		yes := f.requeued == "yes"
		r.Requeued = &yes
	default:
		return r, fault.New(fault.Invalid, "--requeued is %q, must be yes, no or all", f.requeued)
	}

	for _, b := range [...]struct {
		flag, value string
		to          *model.Time
	}{{"--since", f.since, &r.From}, {"--until", f.until, &r.To}} {
		if b.value == "" {
			continue
		}
		at, err := moment(b.flag, b.value)
		if err != nil {
			return r, err
		}
		*b.to = model.TimeOf(at)
	}

	return r, nil
}

// withSelection completes the fingerprint of a request, which may be abbreviated, and calls do with
// the open store.
func (o *options) withSelection(ctx context.Context, dry bool, r *api.DeadRequest, do func(b api.Backend) error) error {
	return o.with(ctx, dry, func(b api.Backend) error {
		if r.Fingerprint != "" {
			if err := findFingerprint(ctx, b, r); err != nil {
				return err
			}
		}
		return do(b)
	})
}

// deadLine is a dead task in JSON.
type deadLine struct {
	ID          string       `json:"id"`
	Activity    string       `json:"activity"`
	Queue       string       `json:"queue"`
	Execution   string       `json:"execution"`
	Run         string       `json:"run"`
	Step        string       `json:"step,omitempty"`
	Scheduled   string       `json:"scheduled"`
	Died        string       `json:"died"`
	Attempts    int          `json:"attempts"`
	Error       string       `json:"error"`
	Fingerprint string       `json:"fingerprint"`
	Requeued    int64        `json:"requeued"`
	RequeuedAs  string       `json:"requeued_as,omitempty"`
	Input       any          `json:"input,omitempty"`
	Failed      []failedLine `json:"failed,omitempty"`
	LeftOut     int          `json:"left_out,omitempty"`
}

type failedLine struct {
	Attempt int    `json:"attempt"`
	At      string `json:"at"`
	Worker  string `json:"worker,omitempty"`
	Error   string `json:"error"`
}

func deadLineOf(d *api.DeadTask) deadLine {
	b := &d.Body
	l := deadLine{
		ID: d.ID.String(), Activity: b.Spec.Kind, Queue: b.Spec.Queue, Execution: b.Address.Type + "/" + b.Address.Key, Run: d.ID.Run.String(),
		Scheduled: b.Scheduled.String(), Died: b.At.String(), Attempts: b.Attempts, Fingerprint: b.Fingerprint, Requeued: d.Requeued,
		Input: raw(b.Input), LeftOut: b.LeftOut,
	}

	if d.ID.Task != model.TaskStep {
		l.Step = d.ID.Task
	}
	if b.Failure != nil {
		l.Error = b.Failure.Message
	}
	if q := b.Requeued; !q.IsZero() {
		l.RequeuedAs = q.Address.Type + "/" + q.Address.Key
	}

	for i := range b.Failed {
		f := &b.Failed[i]
		l.Failed = append(l.Failed, failedLine{f.Attempt, f.At.String(), f.Worker, f.Failure.Message})
	}

	return l
}

func newDlqList(o *options) *cobra.Command {
	var f deadFlags
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List dead tasks, newest first", Args: cobra.NoArgs,
		Example: `  perdure dlq list --activity mail --since 24h
  perdure dlq list --requeued no -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.request(o.tenant)
			if err != nil {
				return err
			}
			return o.withSelection(cmd.Context(), true, &r, func(b api.Backend) error { return o.listDead(cmd.Context(), b, r, limit) })
		},
	}

	f.add(cmd)
	cmd.Flags().StringVar(&f.requeued, "requeued", "all", "requeued tasks: yes (only these), no (skip these) or all")
	cmd.Flags().Var(count(&limit, 50), "limit", "most entries to list; 0 lists all")
	return cmd
}

func (o *options) listDead(ctx context.Context, b api.Backend, r api.DeadRequest, limit int) error {
	lines, rows, more := []deadLine{}, [][]string{}, false
	for r.Limit = 500; !more; {
		page, err := b.ListDead(ctx, r)
		if err != nil {
			return err
		}

		for i := range page.Tasks {
			if limit > 0 && len(lines) == limit {
				more = true
				break
			}
			d := &page.Tasks[i]
			l := deadLineOf(d)
			lines = append(lines, l)
			state := ""
			if l.RequeuedAs != "" {
				state = "requeued"
			}
			rows = append(rows, []string{l.ID, l.Activity, l.Queue, second(d.Body.At), strconv.Itoa(l.Attempts), dash(state), l.Error})
		}

		if r.Cursor = page.Cursor; r.Cursor == "" {
			break
		}
	}

	if o.structured() {
		return o.json(lines)
	}
	if err := o.table("ID\tACTIVITY\tQUEUE?\tDIED\tATTEMPTS?\tSTATE\tERROR", rows); err != nil {
		return err
	}
	o.more(more)

	return nil
}

func newDlqGroups(o *options) *cobra.Command {
	var f deadFlags
	cmd := &cobra.Command{
		Use: "groups", Short: "Group dead tasks by activity and kind of error, the largest groups first", Args: cobra.NoArgs,
		Example: "  perdure dlq groups --since 24h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := f.request(o.tenant)
			if err != nil {
				return err
			}
			r.Limit = 1000
			return o.withSelection(cmd.Context(), true, &r, func(b api.Backend) error {
				groups, err := b.GroupDead(cmd.Context(), r)
				if err != nil {
					return err
				}
				return o.deadGroups(groups)
			})
		},
	}

	f.add(cmd)
	cmd.Flags().StringVar(&f.requeued, "requeued", "all", "requeued tasks: yes (only these), no (skip these) or all")
	return cmd
}

func (o *options) deadGroups(groups []api.DeadGroup) error {
	if o.structured() {
		type line struct {
			Activity    string `json:"activity"`
			Fingerprint string `json:"fingerprint"`
			Count       int64  `json:"count"`
			First       string `json:"first"`
			Last        string `json:"last"`
			Message     string `json:"message"`
		}
		lines := make([]line, len(groups))
		for i, g := range groups {
			lines[i] = line{g.Activity, g.Fingerprint, g.Count, g.First.String(), g.Last.String(), g.Message}
		}
		return o.json(lines)
	}

	rows := make([][]string, len(groups))
	for i, g := range groups {
		rows[i] = []string{strconv.FormatInt(g.Count, 10), g.Activity, g.Fingerprint, second(g.Last), g.Message}
	}
	return o.table("COUNT\tACTIVITY\tFINGERPRINT\tLAST\tMESSAGE OF THE LAST", rows)
}

func newDlqShow(o *options) *cobra.Command {
	var stack bool
	cmd := &cobra.Command{
		Use: "show id", Short: "Show a dead task with its input and every attempt", Args: cobra.ExactArgs(1),
		Example: "  perdure dlq show dead_7_06g5v0zkv0s00000000000000c",
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := o.deadNamed(args[0])
			if err != nil {
				return err
			}
			return o.with(cmd.Context(), true, func(b api.Backend) error {
				id, err := named.find(cmd.Context(), b)
				if err != nil {
					return err
				}
				d, err := b.ShowDead(cmd.Context(), id)
				if err != nil {
					return err
				}
				return o.showDead(&d, stack)
			})
		},
	}

	stackFlag(cmd, &stack)
	return cmd
}

func (o *options) showDead(d *api.DeadTask, stack bool) error {
	l := deadLineOf(d)
	if o.structured() {
		return o.json(l)
	}

	rows := [][]string{
		{"Dead task", l.ID},
		{"Activity", l.Activity + ", queue " + l.Queue},
		{"Of", l.Execution + ", " + l.Run},
		{"Scheduled", stamp(d.Body.Scheduled)},
		{"Died", stamp(d.Body.At)},
		{"Error", oneLine(l.Error)},
		{"Group", l.Fingerprint},
		{"Input", o.text(d.Body.Input)},
	}

	if l.RequeuedAs != "" {
		rows = append(rows, []string{"Requeued", fmt.Sprintf("at %s, as %s", stamp(d.Body.Requeued.At), l.RequeuedAs)})
	}

	for i := range d.Body.Failed {
		f := &d.Body.Failed[i]
		rows = append(rows, []string{fmt.Sprintf("Attempt %d", f.Attempt), fmt.Sprintf("%s  %s  %s", stamp(f.At), dash(f.Worker), f.Failure.Message)})
	}

	if l.LeftOut > 0 {
		rows = append(rows, []string{"", fmt.Sprintf("%d attempts in the middle are not kept", l.LeftOut)})
	}
	if err := o.table("", rows); err != nil || !stack {
		return err
	}
	o.printStack("the last attempt", d.Body.Failure)

	return nil
}

func newDlqRequeue(o *options) *cobra.Command {
	var (
		f        deadFlags
		how      batch.Requeue
		one      api.RequeueRequest
		text     string
		all, yes bool
		timeout  time.Duration
	)

	cmd := &cobra.Command{
		Use: "requeue [id]", Short: "Requeue dead tasks",
		Example: `  perdure dlq requeue dead_7_06g5v0zkv0s00000000000000c
  perdure dlq requeue --fingerprint 4687430c57e24563 --dry-run
  perdure dlq requeue --activity mail --canary --rate 10 --yes`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || (len(args) == 1) == (f.isSet() || all) {
				return fault.New(fault.Invalid, "requeue needs either the id of a dead task, or conditions such as --activity, or --all")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				if text != "" || one.Again {
					return fault.New(fault.Invalid, "--input and --again need the id of one dead task")
				}
				return o.requeueAll(cmd.Context(), &f, how, yes, timeout)
			}

			named, err := o.deadNamed(args[0])
			if err != nil {
				return err
			}

			if text != "" {
				p, err := o.input("--input", text)
				if err != nil {
					return err
				}
				one.Input = &p
			}

			one.DryRun = how.DryRun
			do := func(ctx context.Context, b api.Backend) error {
				var err error
				if one.ID, err = named.find(ctx, b); err != nil {
					return err
				}
				reply, err := b.Requeue(ctx, one)
				if err != nil {
					return err
				}
				return o.printRequeue(one.ID.String(), &reply, one.DryRun)
			}

			if one.DryRun {
				return o.with(cmd.Context(), true, func(b api.Backend) error { return do(cmd.Context(), b) })
			}
			return o.within(cmd.Context(), timeout, do)
		},
	}

	f.add(cmd)
	cmd.Flags().StringVar(&text, "input", "", "new input as JSON, @file, or - for standard input")
	cmd.Flags().BoolVar(&one.Again, "again", false, "requeue the task even if it was requeued before and that task has ended")
	cmd.Flags().StringVar(&one.RequestID, "request-id", "", "id that makes the request safe to repeat")
	cmd.Flags().BoolVar(&all, "all", false, "requeue all dead tasks that were not requeued before")
	cmd.Flags().BoolVar(&how.Canary, "canary", false, "with conditions: requeue one task, wait without a time limit until it completes, then requeue the others")
	cmd.Flags().Float64Var(&how.Rate, "rate", 0, "with conditions: most tasks to requeue per second")
	cmd.Flags().BoolVar(&how.DryRun, "dry-run", false, "print what the command would do, and change nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "with conditions: confirm the change")
	patience(cmd, &timeout)

	return cmd
}

func (o *options) printRequeue(id string, r *api.RequeueReply, dry bool) error {
	name := r.Address.Type + "/" + r.Address.Key
	if o.structured() {
		line := map[string]any{"id": id, "execution": name, "existing": r.Existing, "dry_run": dry}
		if !r.Run.IsZero() {
			line["run"] = r.Run.String()
		}
		return o.json(line)
	}

	verb := "requeued as"
	switch {
	case r.Existing:
		verb = "was requeued before, as"
	case dry:
		verb = "would be requeued as"
	}

	_, err := fmt.Fprintf(o.Out, "%s %s %s\n", id, verb, name)
	return err
}

// requeueAll requeues all dead tasks that the flags select, and prints each one.
func (o *options) requeueAll(ctx context.Context, f *deadFlags, how batch.Requeue, yes bool, timeout time.Duration) error {
	if err := how.Check(); err != nil {
		return fault.New(fault.Invalid, "--rate: %w", err)
	}

	switch {
	case how.Canary && !how.DryRun && o.alone():
		return fault.New(fault.Invalid, "--canary waits for a task to end, but no program that executes tasks has the file open: start it, or requeue one task by its id, let the program run, then requeue the others")
	}

	f.requeued = "no"
	r, err := f.request(o.tenant)
	if err != nil {
		return err
	}

	if !how.DryRun && !yes {
		return o.withSelection(ctx, true, &r, func(b api.Backend) error {
			n, err := b.CountDead(ctx, r)
			if err == nil {
				err = fault.New(fault.Invalid, "the conditions select %d dead tasks: add --yes to requeue them, or --dry-run to list them", n)
			}
			return err
		})
	}

	return o.withSelection(ctx, how.DryRun, &r, func(b api.Backend) error {
		verb := "requeued:"
		if how.DryRun {
			verb = "would be requeued:"
		}
		total, err := b.CountDead(ctx, r)
		if err != nil {
			return err
		}
		return o.tellDead(deadWork{verb, how.DryRun, total}, batch.RequeueAll(ctx, patient{b, timeout}, r, how))
	})
}

// deadWork is work on many dead tasks.
type deadWork struct {
	verb  string // printed before each task
	dry   bool
	total int64
}

// tellDead prints the result for each of many dead tasks.
func (o *options) tellDead(w deadWork, all iter.Seq[batch.Requeued]) error {
	type line struct {
		ID        string `json:"id"`
		Execution string `json:"execution,omitempty"`
		Error     string `json:"error,omitempty"`
	}

	lines, done, failed, first := []line{}, 0, 0, error(nil)
	var ended error
	shown := o.newProgress()
	defer shown.clear()
	for r := range all {
		if r.Task == nil {
			ended = r.Err
			break
		}

		l := line{ID: r.Task.ID.String()}
		if to := r.Reply.Address; !to.IsZero() {
			l.Execution = to.Type + "/" + to.Key
		}
		done++

		switch {
		case r.Err != nil:
			if failed++; first == nil {
				first = r.Err
			}
			l.Error = r.Err.Error()
			shown.clear()
			fmt.Fprintf(o.Err, "%s: %s\n", l.ID, l.Error)
		case !o.structured() && l.Execution != "":
			fmt.Fprintf(o.Out, "%s %s as %s\n", w.verb, l.ID, l.Execution)
		case !o.structured():
			fmt.Fprintf(o.Out, "%s %s\n", w.verb, l.ID)
		}

		if o.structured() {
			lines = append(lines, l)
			shown.tell(int64(done), w.total, fmt.Sprintf("%d of %d: %d failed", done, w.total, failed))
		}

		if fault.Is(r.Err, fault.Timeout) { // the next task would time out too
			ended = fault.New(fault.Timeout, "stopped after %d: %w", done, r.Err)
			break
		}
	}

	shown.clear()
	if o.structured() {
		if err := o.json(lines); err != nil {
			return err
		}
	}

	switch {
	case ended != nil:
		return ended
	case failed > 0:
		return fault.New(fault.KindOf(first), "%d of %d failed; the first error: %w", failed, done, first)
	case w.dry:
		fmt.Fprintf(o.Err, "%d selected; nothing changed.\n", done)
	default:
		fmt.Fprintf(o.Err, "%d done.\n", done)
	}

	return nil
}

func newDlqUndo(o *options) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "undo id", Short: "Undo a requeue whose task has not started", Args: cobra.ExactArgs(1),
		Example: "  perdure dlq undo dead_7_06g5v0zkv0s00000000000000c",
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := o.deadNamed(args[0])
			if err != nil {
				return err
			}
			var id api.DeadID
			if err := o.within(cmd.Context(), timeout, func(ctx context.Context, b api.Backend) (err error) {
				if id, err = named.find(ctx, b); err != nil {
					return err
				}
				return b.UndoRequeue(ctx, api.UndoRequest{ID: id})
			}); err != nil {
				return err
			}

			if o.structured() {
				return o.json(map[string]any{"id": id.String(), "undone": true})
			}
			_, err = fmt.Fprintf(o.Out, "undid the requeue of %s\n", id)
			return err
		},
	}

	patience(cmd, &timeout)
	return cmd
}

func newDlqPurge(o *options) *cobra.Command {
	var f deadFlags
	var older, timeout time.Duration
	var dry, yes, all bool

	cmd := &cobra.Command{
		Use: "purge [id]", Short: "Delete dead tasks",
		Long: `Delete dead tasks. The command keeps a dead task whose requeued task is still open.`,
		Example: `  perdure dlq purge --older 720h --dry-run
  perdure dlq purge --fingerprint 4687430c57e24563 --yes
  perdure dlq purge dead_7_06g5v0zkv0s00000000000000c`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || (len(args) == 1) == (f.isSet() || older > 0 || all) {
				return fault.New(fault.Invalid, "purge needs either the id of a dead task, or conditions such as --older, or --all")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if len(args) == 1 {
				named, err := o.deadNamed(args[0])
				if err != nil {
					return err
				}
				return o.with(ctx, dry, func(b api.Backend) error {
					id, err := named.find(ctx, b)
					if err != nil {
						return err
					}
					d, err := b.ShowDead(ctx, id)
					if err != nil {
						return err
					}
					res := batch.Requeued{Task: &d}
					if !dry {
						res.Err = patient{b, timeout}.PurgeDead(ctx, id)
					}
					return o.tellDead(deadWork{purgeVerb(dry), dry, 1}, func(yield func(batch.Requeued) bool) { yield(res) })
				})
			}

			r, err := f.request(o.tenant)
			if err != nil {
				return err
			}

			if older > 0 {
				if r.To != 0 {
					return fault.New(fault.Invalid, "--older and --until set the same condition: use one of them")
				}
				r.To = model.TimeOf(time.Now().Add(-older))
			}

			if !dry && !yes {
				return o.withSelection(ctx, true, &r, func(b api.Backend) error {
					n, err := b.CountDead(ctx, r)
					if err == nil {
						err = fault.New(fault.Invalid, "the conditions select %d dead tasks: add --yes to delete them, or --dry-run to list them", n)
					}
					return err
				})
			}

			return o.withSelection(ctx, dry, &r, func(b api.Backend) error {
				total, err := b.CountDead(ctx, r)
				if err != nil {
					return err
				}
				return o.tellDead(deadWork{purgeVerb(dry), dry, total}, batch.PurgeAll(ctx, patient{b, timeout}, r, dry))
			})
		},
	}

	f.add(cmd)
	cmd.Flags().StringVar(&f.requeued, "requeued", "all", "requeued tasks: yes (only these), no (skip these) or all")
	cmd.Flags().Var(span(&older, 0), "older", "select only tasks that died longer ago than this")
	cmd.Flags().BoolVar(&all, "all", false, "delete all dead tasks")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "list the selected dead tasks, and change nothing")
	cmd.Flags().BoolVar(&yes, "yes", false, "with conditions: confirm the change")
	patience(cmd, &timeout)

	return cmd
}

func purgeVerb(dry bool) string {
	if dry {
		return "would be purged:"
	}
	return "purged:"
}
