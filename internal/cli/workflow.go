package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/schedule"
)

func newWorkflow(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "workflow", Short: "Executions of workflows",
		Long: `List, show and change executions.

Commands that change an execution send a request to its owner. On PostgreSQL the owner is one of the running nodes, and the command owns nothing. The owner
of a file is the program that has it open. If no program has the file open, the command opens the file and makes the change itself.`,
		Example: `  perdure workflow list --query 'status = "open" and started < -24h'
  perdure workflow start greet --key hello-2 --input '"World"' --label region=eu
  perdure workflow signal order/42 approved --input '{"by": "me"}'
  perdure workflow resolve order/42 answer --input 42
  perdure workflow cancel --query 'workflow = "order" and label.region = "eu"' --dry-run`,
	}
	cmd.AddCommand(newWorkflowList(o), newWorkflowCount(o), newWorkflowDescribe(o), newWorkflowShow(o), newWorkflowSteps(o), newWorkflowExplain(o))
	cmd.AddCommand(newWorkflowStart(o), newWorkflowExecute(o), newWorkflowResult(o), newWorkflowSignal(o), newWorkflowSignalWithStart(o), newWorkflowResolve(o), newWorkflowReject(o), newWorkflowCancel(o))
	cmd.AddCommand(newWorkflowTerminate(o), newWorkflowPause(o), newWorkflowResume(o), newWorkflowUpdate(o), newWorkflowQuery(o), newWorkflowState(o))
	cmd.AddCommand(newWorkflowStranded(o), newWorkflowSignals(o))
	cmd.AddCommand(
		newWorkflowExport(o), newWorkflowImport(o), newWorkflowFork(o), newWorkflowRetry(o), newWorkflowReset(o), newWorkflowDelete(o),
	)
	return cmd
}

// target parses workflow/key and the --run flag.
func (o *options) target(arg, run string) (subject, error) {
	name, key, ok := strings.Cut(arg, "/")
	if strings.HasPrefix(name, model.FlovynPrefix) {
		// In flovyn:queue/id, the name of the queue may contain slashes, but the id does not.
		end := strings.LastIndexByte(arg, '/')
		name, key = arg[:max(end, 0)], arg[end+1:]
	}
	if !ok || name == "" || key == "" {
		return subject{}, fault.New(fault.Invalid, "%q is not the name of an execution: write workflow/key", arg)
	}
	t := subject{Target: api.Target{Address: model.Address{Tenant: o.tenant, Type: name, Key: key}}}
	if t.Address.IsEntity() {
		return t, fault.New(fault.Invalid, "%q is an entity, not an execution: see `perdure entity show %s`", arg, nameOf(t.Address))
	}
	if run == "" {
		return t, nil
	}

	id, err := model.ParseRunID(run)
	if rest, ok := strings.CutPrefix(run, "run_"); err != nil && ok && len(rest) >= shortestHash {
		t.run = run
		return t, nil
	}
	if err != nil {
		return t, fault.New(fault.Invalid, "--run: %w", err)
	}
	t.Target.Run = id
	return t, nil
}

// summary is an execution in a listing.
type summary struct {
	Workflow string `json:"workflow"`
	Key      string `json:"key"`
	Run      string `json:"run"`
	Status   string `json:"status"`
	Reason   string `json:"reason,omitempty"`
	Started  string `json:"started"`
	Closed   string `json:"closed,omitempty"`

	Labels map[string]string `json:"labels,omitempty"`

	Begins  string `json:"begins,omitempty"`
	Expires string `json:"expires,omitempty"`
	Attempt int    `json:"attempt,omitempty"`

	at model.Time // when the execution was started
}

func summarise(d *api.Description) summary {
	s := summary{
		Workflow: d.Start.Address.Type, Key: d.Start.Address.Key, Run: d.Start.Run.String(), Status: d.Outcome.Status.String(),
		Started: d.Start.At.String(), at: d.Start.At,
	}

	s.Reason = model.Summary(d.Reasons)
	if f := d.Outcome.Failure; f != nil {
		s.Reason = f.Message
	}
	if d.Outcome.Status.Closed() {
		s.Closed = d.Outcome.At.String()
	}
	if !d.Start.Begins.IsZero() {
		s.Begins = d.Start.Begins.String()
	}
	if !d.Start.Expires.IsZero() {
		s.Expires = d.Start.Expires.String()
	}
	s.Attempt = d.Start.Attempt

	for _, l := range d.Labels {
		if s.Labels == nil {
			s.Labels = make(map[string]string, len(d.Labels))
		}
		s.Labels[l.Name] = l.Value
	}

	return s
}

func (o *options) list(ctx context.Context, f *listFlags) error {
	req, err := f.listRequest(o.tenant)
	if err != nil {
		return err
	}
	found := []summary{}

	err = o.with(ctx, true, func(b api.Backend) error {
		for {
			page, err := b.List(ctx, req)
			if err != nil {
				return err
			}
			for i := range page.Executions {
				found = append(found, summarise(&page.Executions[i]))
			}
			req.Cursor = page.Cursor
			if page.Cursor == "" || (f.limit > 0 && len(found) >= f.limit) {
				return nil
			}
		}
	})
	if err != nil {
		return err
	}

	more := req.Cursor != ""
	if f.limit > 0 && len(found) > f.limit {
		found, more = found[:f.limit], true
	}
	if err := o.printSummaries(found); err != nil {
		return err
	}

	o.more(more)
	return nil
}

// watchExecutions prints a listing, and then what changes in it.
func (o *options) watchExecutions(ctx context.Context, f *listFlags) error {
	req, err := f.listRequest(o.tenant)
	if err != nil {
		return err
	}
	return o.with(ctx, true, func(b api.Backend) error {
		return o.watchList(b, req, f.limit).follow(ctx, func(all []api.Description) error {
			found := make([]summary, len(all))
			for i := range all {
				found[i] = summarise(&all[i])
			}
			return o.printSummaries(found)
		})
	})
}

// printSummaries prints a listing.
func (o *options) printSummaries(found []summary) error {
	if o.structured() {
		return o.json(found)
	}
	rows := make([][]string, len(found))
	for i, s := range found {
		rows[i] = []string{s.Workflow + "/" + s.Key, s.Status, second(s.at), s.Reason}
	}
	return o.table("EXECUTION\tSTATUS\tSTARTED\tREASON", rows)
}

func shorten(s string, most int) string {
	s = strings.ReplaceAll(s, "\n", " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// one makes a command that reads one execution.
func (o *options) one(use, short, example string, do func(ctx context.Context, b api.Backend, t api.Target) error) *cobra.Command {
	look := true
	return o.about(use, short, example, &look, do)
}

// about makes a command for one execution. If *dry is true after the flags are parsed, the command
// changes nothing.
//
//arch:parameters they are the texts of one command, and every caller names all of them
func (o *options) about(use, short, example string, dry *bool, do func(ctx context.Context, b api.Backend, t api.Target) error) *cobra.Command {
	var run string
	cmd := &cobra.Command{
		Use: use + " workflow/key", Short: short, Example: example, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := o.target(args[0], run)
			if err != nil {
				return err
			}
			return o.with(cmd.Context(), *dry, func(b api.Backend) error {
				t, err := named.find(cmd.Context(), b)
				if err != nil {
					return err
				}
				return do(cmd.Context(), b, t)
			})
		},
	}

	cmd.Flags().StringVar(&run, "run", "", "id of a run; the current run by default")
	return cmd
}

func newWorkflowDescribe(o *options) *cobra.Command {
	var stack, watch bool
	cmd := o.one("describe", "Describe an execution: status, input, output, what it waits for", "  perdure workflow describe greet/hello-1\n  perdure workflow describe greet/hello-1 --watch",
		func(ctx context.Context, b api.Backend, t api.Target) error {
			if watch {
				return o.watchDescription(ctx, b, t, stack)
			}
			return o.describe(ctx, b, t, stack)
		})
	stackFlag(cmd, &stack)
	watchFlag(cmd, &watch, "print it again when it changes, until it ends")
	return cmd
}

// describe prints an execution, with the stacks of its panics if stack is set.
func (o *options) describe(ctx context.Context, b api.Backend, t api.Target, stack bool) error {
	d, err := b.Describe(ctx, t)
	if err != nil {
		return err
	}
	s := summarise(&d)
	dead, err := deadOf(ctx, b, &d)
	if err != nil {
		return err
	}
	if o.structured() {
		return o.json(struct {
			summary
			Shard  int      `json:"shard"`
			Owner  string   `json:"owner,omitempty"`
			Events int64    `json:"events"`
			Input  any      `json:"input"`
			Output any      `json:"output,omitempty"`
			Waits  []string `json:"waits,omitempty"`
			Past   *past    `json:"began_with,omitempty"`

			Tasks []openTask `json:"tasks,omitempty"`
			Dead  string     `json:"dead_task,omitempty"`
			Stack string     `json:"stack,omitempty"`
		}{s, int(d.Shard), owner(&d), d.Events, raw(d.Start.Input), raw(d.Outcome.Output), reasons(d.Reasons), pastOf(&d.Start), openTasks(&d), dead, stackOf(d.Outcome.Failure)})
	}
	shard := strconv.Itoa(int(d.Shard))
	if !d.Outcome.Status.Closed() {
		shard += ", owned by " + cmp.Or(owner(&d), "no node")
	}
	rows := [][]string{
		{"Execution", s.Workflow + "/" + s.Key},
		{"Run", s.Run},
		{"Status", s.Status},
		{"Started", stamp(d.Start.At)},
		{"Closed", stamp(d.Outcome.At)},
		{"Took", took(d.Start.At, d.Outcome.At)},
		{"Events", strconv.FormatInt(d.Events, 10)},
		{"Shard", shard},
		{"Input", o.text(d.Start.Input)},
	}
	rows = append(rows, termRows(&d)...)
	for i, l := range d.Labels {
		head := ""
		if i == 0 {
			head = "Labels"
		}
		rows = append(rows, []string{head, l.Name + "=" + l.Value})
	}
	if d.Start.Parent.ID != "" {
		rows = append(rows, []string{"Parent", d.Start.Parent.Address.Type + "/" + d.Start.Parent.Address.Key})
	}
	if p := pastOf(&d.Start); p != nil {
		rows = append(rows, []string{"Began with", fmt.Sprintf("%d events of %s/%s, %s", p.Events, p.Workflow, p.Key, p.Run)})
	}
	if d.Outcome.Status.Closed() {
		rows = append(rows, []string{"Output", o.text(d.Outcome.Output)})
	}
	if f := d.Outcome.Failure; f != nil {
		rows = append(rows, []string{"Error", errorLine(f)})
	}
	for i, r := range reasons(d.Reasons) {
		label := ""
		if i == 0 {
			label = "Waits"
		}
		rows = append(rows, []string{label, oneLine(r)})
	}
	rows = append(rows, o.taskRows(&d)...)
	if dead != "" {
		rows = append(rows, []string{"Dead task", dead + ": see `perdure dlq show`"})
	}
	if err := o.table("", rows); err != nil || !stack {
		return err
	}
	return o.printStacks(ctx, b, t)
}

func owner(d *api.Description) string {
	if d.Owner.IsZero() {
		return ""
	}
	return d.Owner.String()
}

func reasons(rs []model.Reason) []string {
	texts := make([]string, len(rs))
	for i, r := range rs {
		texts[i] = r.String()
	}
	return texts
}

func newWorkflowExplain(o *options) *cobra.Command {
	return o.one("explain", "Explain why an execution does not progress", "  perdure workflow explain greet/hello-1", func(ctx context.Context, b api.Backend, t api.Target) error {
		d, err := b.Describe(ctx, t)
		if err != nil {
			return err
		}
		failure := ""
		if f := d.Outcome.Failure; f != nil {
			failure = f.Message
		}

		if o.structured() {
			return o.json(struct {
				Status  string       `json:"status"`
				Error   string       `json:"error,omitempty"`
				Reasons []reasonLine `json:"reasons"`
				Because []string     `json:"because,omitempty"`
				Alive   []string     `json:"alive,omitempty"`
			}{d.Outcome.Status.String(), failure, reasonLines(d.Reasons), links(&d), d.Alive})
		}

		if d.Outcome.Status.Closed() {
			o.say(o.Out, strings.TrimSuffix(fmt.Sprintf("It is closed: %s at %s: %s", d.Outcome.Status, stamp(d.Outcome.At), failure), ": "))
			return nil
		}

		for _, r := range d.Reasons {
			o.say(o.Out, fmt.Sprintf("It %s.", r))
		}
		for _, text := range slices.Concat(links(&d), d.Alive) {
			o.say(o.Out, "  "+text)
		}
		if err := o.explainSchedule(ctx, b, t); err != nil {
			return err
		}

		if e := d.Start.Expires; !e.IsZero() {
			fmt.Fprintf(o.Out, "  it times out at %s\n", stamp(e))
		}
		for _, tm := range d.Timers {
			fmt.Fprintf(o.Out, "  a timer is due at %s\n", stamp(tm.Due))
		}

		return nil
	})
}

// explainSchedule prints why a schedule does not start its job, if the execution is a schedule.
func (o *options) explainSchedule(ctx context.Context, b api.Backend, t api.Target) error {
	if t.Address.Type != schedule.Type {
		return nil
	}
	seen, err := schedule.In(b, o.tenant).Look(ctx, t.Address.Key)
	if fault.Is(err, fault.NotFound) {
		return nil // the schedule has not been applied yet
	}
	if err != nil {
		return err
	}
	lines, err := seen.Why(ctx, b)
	for _, text := range lines {
		fmt.Fprintf(o.Out, "  %s\n", text)
	}
	return err
}

// links describes the chain from the main reason to its cause.
func links(d *api.Description) (texts []string) {
	for _, l := range d.Chain {
		texts = append(texts, l.String())
	}
	return texts
}

func newWorkflowShow(o *options) *cobra.Command {
	var stack, watch bool
	cmd := o.one("show", "Show the history of an execution", "  perdure workflow show greet/hello-1 -o json\n  perdure workflow show greet/hello-1 --watch",
		func(ctx context.Context, b api.Backend, t api.Target) error {
			if watch {
				return o.watchHistory(ctx, b, t)
			}
			events, err := wholeHistory(ctx, b, t)
			if err == nil {
				err = o.printHistory(events)
			}
			if err != nil || !stack || o.structured() {
				return err
			}
			for i := range events {
				e := &events[i]
				o.printStack(strings.TrimSpace(fmt.Sprintf("event %d, %s %s", e.Seq, e.Kind, e.Name)), e.Failure)
			}
			return nil
		})

	stackFlag(cmd, &stack)
	watchFlag(cmd, &watch, "then print events as they are recorded, until the run ends")
	cmd.MarkFlagsMutuallyExclusive("watch", "stack")
	return cmd
}

// eventLine is an event in JSON.
type eventLine struct {
	Seq     int64        `json:"seq"`
	At      string       `json:"at"`
	Kind    string       `json:"kind"`
	Name    string       `json:"name,omitempty"`
	ID      string       `json:"id,omitempty"`
	Attempt int          `json:"attempt,omitempty"`
	Input   any          `json:"input,omitempty"`
	Output  any          `json:"output,omitempty"`
	Failure *failureLine `json:"failure,omitempty"`
	Due     string       `json:"due,omitempty"`
	Target  string       `json:"target,omitempty"`
	Locks   []string     `json:"locks,omitempty"`
	Section string       `json:"section,omitempty"`
	Epoch   int64        `json:"epoch,omitempty"`
}

func eventLineOf(e *model.Event) eventLine {
	l := eventLine{
		Seq: e.Seq, At: e.At.String(), Kind: e.Kind.String(), Name: e.Name, ID: e.ID, Attempt: e.Attempt,
		Input: raw(e.Input), Output: raw(e.Output), Failure: failureLineOf(e.Failure), Due: when(e.Due),
		Locks: locksOf(e), Section: e.Section, Epoch: epochOf(e),
	}
	if !e.Target.IsZero() {
		l.Target = nameOf(e.Target)
	}
	return l
}

func (o *options) printHistory(events []model.Event) error {
	if o.structured() {
		lines := make([]eventLine, len(events))
		for i := range events {
			lines[i] = eventLineOf(&events[i])
		}
		return o.json(lines)
	}

	rows := make([][]string, len(events))
	for i := range events {
		rows[i] = o.eventRow(&events[i])
	}
	return o.table("#\tTIME\tEVENT\tNAME\tDETAIL", rows)
}

func (o *options) eventRow(e *model.Event) []string {
	return []string{strconv.FormatInt(e.Seq, 10), stamp(e.At), e.Kind.String(), e.Name, o.detail(e)}
}

// detail describes an event on one line.
func (o *options) detail(e *model.Event) string {
	var parts []string
	if in := o.text(e.Input); in != "" {
		parts = append(parts, "in "+in)
	}
	if out := o.text(e.Output); out != "" {
		parts = append(parts, "out "+out)
	}
	if e.Failure != nil {
		parts = append(parts, "error "+e.Failure.Message)
	}
	if e.Attempt > 0 {
		parts = append(parts, "attempt "+strconv.Itoa(e.Attempt))
	}
	if !e.Due.IsZero() {
		parts = append(parts, "due "+stamp(e.Due))
	}
	if !e.Target.IsZero() {
		parts = append(parts, nameOf(e.Target))
	}
	parts = append(parts, locksOf(e)...)
	if epoch := epochOf(e); epoch != 0 {
		parts = append(parts, "epoch "+strconv.FormatInt(epoch, 10))
	}
	if e.Section != "" {
		parts = append(parts, "section "+e.Section)
	}
	if e.Kind == model.EventClosed {
		parts = append(parts, e.Status.String())
	}
	if e.Blank() {
		parts = append(parts, "left out of the past that the run started with")
	}

	return strings.Join(parts, ", ")
}

// locksOf returns the entities that a section locks.
func locksOf(e *model.Event) (names []string) {
	for _, a := range e.Locks {
		names = append(names, nameOf(a))
	}
	return names
}

// epochOf returns the fencing token of a lock that was granted.
func epochOf(e *model.Event) int64 {
	if e.Kind != model.EventLockGranted {
		return 0
	}
	return e.Ref
}
