package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

func newTask(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "task", Short: "Tasks without a workflow",
		Long: `Submit, list, show and change tasks. Name a task by its activity and its key, as in mail/42. A task is also an execution with the workflow name
"task:" and its activity, so the commands of perdure workflow accept it. perdure workflow describe shows the tasks of a workflow.`,
		Example: `  perdure task submit mail --queue mails --input '"ann@example.com"' --wait
  perdure task list --activity mail --status open
  perdure task show mail/0193f2c1
  perdure task logs mail/0193f2c1 --follow`,
	}

	cmd.AddCommand(newTaskSubmit(o), newTaskList(o), newTaskShow(o), newTaskLogs(o), newTaskState(o), newTaskStream(o))
	cmd.AddCommand(
		o.taskOrder("cancel", "Cancel a task: ask it to end", "cancel requested:", func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Cancel(ctx, r) }),
		o.taskOrder("terminate", "Terminate a task at once", "terminated:", func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Terminate(ctx, r) }),
		o.taskOrder("pause", "Pause a task: it does not start until you resume it", "paused:", func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Pause(ctx, r) }),
		o.taskOrder("resume", "Resume a paused task", "resumed:", func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Resume(ctx, r) }),
		o.taskOrder("retry", "Schedule a failed or canceled task again", "scheduled again:", func(ctx context.Context, b api.Backend, r api.CancelRequest) error {
			_, err := b.Retry(ctx, api.PastRequest{Source: r.Target})
			return err
		}),
	)

	return cmd
}

// taskTarget parses activity/key.
func (o *options) taskTarget(arg, run string) (subject, error) {
	if !strings.HasPrefix(arg, model.TaskPrefix) {
		arg = model.TaskPrefix + arg
	}
	if activity, key, _ := strings.Cut(arg, "/"); activity == model.TaskPrefix || key == "" {
		return subject{}, fault.New(fault.Invalid, "%q is not the name of a task: write activity/key", strings.TrimPrefix(arg, model.TaskPrefix))
	}
	return o.target(arg, run)
}

func (o *options) taskOrder(use, short, done string, do func(ctx context.Context, b api.Backend, r api.CancelRequest) error) *cobra.Command {
	var reason string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: use + " activity/key", Short: short, Example: "  perdure task " + use + " mail/0193f2c1", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := o.taskTarget(args[0], "")
			if err != nil {
				return err
			}
			return o.actOn(cmd.Context(), timeout, named, done, func(ctx context.Context, b api.Backend, t api.Target) error {
				return do(ctx, b, api.CancelRequest{Target: t, Reason: reason})
			})
		},
	}

	if use != "retry" && use != "resume" {
		cmd.Flags().StringVar(&reason, "reason", "", "reason for the history of the task")
	}
	patience(cmd, &timeout)
	return cmd
}

func newTaskSubmit(o *options) *cobra.Command {
	var f startFlags
	var spec model.TaskSpec
	cmd := &cobra.Command{
		Use: "submit activity", Short: "Submit a task",
		Long: `Submit a task. Without a key, every submission is a new task. With a key, the command attaches to the task that has it.

The flags set the options of the task: queue, attempts, limits, breaker and timeouts. The command does not know the options in the code of the activity. Rules
that select tasks by queue or activity apply too.`,
		Example: `  perdure task submit mail --queue mails --input '"ann@example.com"' --attempts 5
  perdure task submit report --key 2026-11 --input @report.json --priority 10 --wait --timeout 5m`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.key == "" && f.hashKey == "" {
				f.key = uuid.Must(uuid.NewV7()).String()
				if f.requestID != "" {
					f.key = f.requestID
				}
			}
			r, err := o.startRequest(model.TaskPrefix+args[0], &f)
			if err != nil {
				return err
			}
			spec.Kind = args[0]
			spec.Limits = set(spec.Limits)
			r.Task = &spec
			return o.within(cmd.Context(), f.timeout, func(ctx context.Context, b api.Backend) error { return o.start(ctx, b, r, f.wait) })
		},
	}
	f.add(cmd, "task", "submit")
	cmd.Flags().StringVar(&spec.Queue, "queue", perdure.DefaultQueue, "queue of the task")
	cmd.Flags().IntVar(&spec.Priority, "priority", 0, "tasks with a larger priority start first")
	cmd.Flags().StringVar(&spec.Fair, "fair-key", "", "key that gets a fair share of the queue")
	cmd.Flags().IntVar(&spec.Weight, "fair-weight", 0, "weight of the fair key (1)")
	cmd.Flags().DurationVar(&spec.Delay, "delay", 0, "time before the task may start")
	cmd.Flags().IntVar(&spec.Retry.MaxAttempts, "attempts", 0, "most attempts; 0 for no limit")
	cmd.Flags().StringSliceVar(&spec.Limits, "limit", nil, "limit that applies to the task, as perdure.Limit; may be repeated")
	cmd.Flags().StringVar(&spec.Breaker, "breaker", "", "circuit breaker of the task")
	cmd.Flags().DurationVar(&spec.ToStart, "schedule-to-start", 0, "longest wait for a worker; 0 for no limit")
	cmd.Flags().DurationVar(&spec.ToClose, "attempt-timeout", 0, "longest time of one attempt; 0 for no limit")
	cmd.Flags().DurationVar(&spec.Silence, "heartbeat-timeout", 0, "longest time between two heartbeats; 0 for no limit")
	cmd.Flags().DurationVar(&spec.Total, "schedule-to-close", 0, "longest time of all attempts and the pauses between them; 0 for no limit")
	return cmd
}

func newTaskList(o *options) *cobra.Command {
	var f listFlags
	var activity string
	var queues []string
	var watch bool

	cmd := &cobra.Command{
		Use: "list", Short: "List tasks, newest first",
		Example: `  perdure task list --activity mail --status open
  perdure task list --queue mails --watch
  perdure task list --queue mails --status failed -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if activity != "" {
				f.workflow = model.TaskPrefix + strings.TrimPrefix(activity, model.TaskPrefix)
			}
			if watch {
				return o.watchTasks(cmd.Context(), &f, queues)
			}
			return o.listTasks(cmd.Context(), &f, queues)
		},
	}

	watchFlag(cmd, &watch, "then print tasks as they change, one per line, until you interrupt the command")
	cmd.Flags().StringVar(&activity, "activity", "", "select only this activity")
	cmd.Flags().StringSliceVar(&queues, "queue", nil, "select only these queues")
	cmd.Flags().StringVar(&f.prefix, "key-prefix", "", "select only keys with this prefix")
	cmd.Flags().StringSliceVar(&f.statuses, "status", nil, "select only these statuses: open, closed, running, completed, failed, canceled, terminated")
	cmd.Flags().StringArrayVar(&f.labels, "label", nil, "select only tasks with this label, as name=value")
	cmd.Flags().StringVar(&f.since, "since", "", "submitted at or after this time (RFC 3339), or this long ago (1h)")
	cmd.Flags().StringVar(&f.until, "until", "", "submitted before this time, or this long ago")
	cmd.Flags().Var(count(&f.limit, 50), "limit", "most entries to list; 0 lists all")

	return cmd
}

// taskLine is a task in a listing.
type taskLine struct {
	summary
	Activity string `json:"activity"`
	Queue    string `json:"queue"`
}

// listTasks lists executions that are tasks. It filters by queue itself, because the store cannot.
func (o *options) listTasks(ctx context.Context, f *listFlags, queues []string) error {
	req, err := f.listRequest(o.tenant)
	if err != nil {
		return err
	}
	return o.with(ctx, true, func(b api.Backend) error {
		lines, more := []taskLine{}, false
		for !more {
			page, err := b.List(ctx, req)
			if err != nil {
				return err
			}

			for i := range page.Executions {
				d := &page.Executions[i]
				if d.Start.Task == nil || len(queues) > 0 && !slices.Contains(queues, d.Start.Task.Queue) {
					continue
				}
				if f.limit > 0 && len(lines) == f.limit {
					more = true
					break
				}
				lines = append(lines, taskLine{summarise(d), d.Start.Task.Kind, d.Start.Task.Queue})
			}

			if req.Cursor = page.Cursor; req.Cursor == "" {
				break
			}
		}

		if err := o.printTasks(lines); err != nil {
			return err
		}
		o.more(more)
		return nil
	})
}

// printTasks prints a listing of tasks.
func (o *options) printTasks(lines []taskLine) error {
	if o.structured() {
		return o.json(lines)
	}
	rows := make([][]string, len(lines))
	for i, l := range lines {
		rows[i] = []string{l.Activity + "/" + l.Key, l.Queue, l.Status, second(l.at), l.Reason}
	}
	return o.table("TASK\tQUEUE\tSTATUS\tSUBMITTED\tREASON", rows)
}

// watchTasks prints a listing of tasks, and then what changes in it.
func (o *options) watchTasks(ctx context.Context, f *listFlags, queues []string) error {
	req, err := f.listRequest(o.tenant)
	if err != nil {
		return err
	}
	return o.with(ctx, true, func(b api.Backend) error {
		w := o.watchList(b, req, f.limit)
		w.keep = func(d *api.Description) bool {
			return d.Start.Task != nil && (len(queues) == 0 || slices.Contains(queues, d.Start.Task.Queue))
		}
		line := func(d *api.Description) taskLine {
			l := taskLine{summary: summarise(d)}
			if t := d.Start.Task; t != nil {
				l.Activity, l.Queue = t.Kind, t.Queue
			}
			return l
		}
		w.shape = func(d *api.Description) any { return line(d) }
		return w.follow(ctx, func(all []api.Description) error {
			lines := make([]taskLine, len(all))
			for i := range all {
				lines[i] = line(&all[i])
			}
			return o.printTasks(lines)
		})
	})
}

func newTaskShow(o *options) *cobra.Command {
	var run string
	var stack bool
	cmd := &cobra.Command{
		Use: "show activity/key", Short: "Show a task: attempts, worker, next attempt, progress, why it waits",
		Example: "  perdure task show mail/0193f2c1", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := o.taskTarget(args[0], run)
			if err != nil {
				return err
			}
			return o.with(cmd.Context(), true, func(b api.Backend) error {
				t, err := named.find(cmd.Context(), b)
				if err != nil {
					return err
				}
				return o.describe(cmd.Context(), b, t, stack)
			})
		},
	}

	cmd.Flags().StringVar(&run, "run", "", "id of a run; the current run by default")
	stackFlag(cmd, &stack)
	return cmd
}

// openTask is an open task of a run in JSON.
type openTask struct {
	Step     string `json:"step"`
	Activity string `json:"activity"`
	Queue    string `json:"queue"`
	Attempt  int    `json:"attempt"`
	Worker   string `json:"worker,omitempty"`
	Since    string `json:"since,omitempty"`
	Next     string `json:"next,omitempty"`
	Failures int    `json:"failures,omitempty"`
	Error    string `json:"last_error,omitempty"`
	Progress any    `json:"progress,omitempty"`
}

func openTasks(d *api.Description) []openTask {
	var lines []openTask
	for i := range d.Tasks {
		t := &d.Tasks[i]
		l := openTask{Step: t.ID, Activity: t.Activity, Queue: t.Queue, Attempt: t.Attempt, Worker: t.Worker, Failures: t.Failures, Progress: raw(t.Progress)}
		if t.Worker != "" {
			l.Since = when(t.Since)
		} else {
			l.Next = when(t.Next)
		}
		if t.Last != nil {
			l.Error = t.Last.Message
		}
		lines = append(lines, l)
	}
	return lines
}

// deadOf returns the id of the dead task that belongs to a failed task, if the store still has it.
// The dead task has the attempts and can be requeued.
func deadOf(ctx context.Context, b api.Backend, d *api.Description) (string, error) {
	if d.Start.Task == nil || d.Outcome.Status != model.Failed {
		return "", nil
	}
	id := api.DeadID{Tenant: d.Start.Address.Tenant, Shard: d.Shard, Run: d.Start.Run, Task: model.TaskStep}
	if _, err := b.ShowDead(ctx, id); fault.Is(err, fault.NotFound) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return id.String(), nil
}

// taskRows describes the open tasks of a run.
func (o *options) taskRows(d *api.Description) [][]string {
	var rows [][]string
	if t := d.Start.Task; t != nil && d.Outcome.Status.Closed() {
		rows = append(rows, []string{"Task", fmt.Sprintf("%s on queue %s", t.Kind, t.Queue)})
	}

	for i := range d.Tasks {
		t := &d.Tasks[i]
		text := fmt.Sprintf("%s on queue %s: ", t.Activity, t.Queue)
		if t.Worker != "" {
			text += fmt.Sprintf("attempt %d, by %s since %s", t.Attempt, t.Worker, stamp(t.Since))
		} else {
			text += fmt.Sprintf("attempt %d may start at %s", t.Attempt+1, stamp(t.Next))
		}
		rows = append(rows, []string{"Task", text})
		if t.Last != nil {
			rows = append(rows, []string{"", strconv.Itoa(t.Failures) + " failed, the last with: " + t.Last.Message})
		}
		if t.Progress.Size() > 0 {
			rows = append(rows, []string{"", "progress " + o.text(t.Progress)})
		}
	}

	return rows
}
