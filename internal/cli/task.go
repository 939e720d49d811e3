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
		Use: "task", Short: "Tasks that belong to no workflow",
		Long: `Submit tasks, look at them, and act on them. A task is named by its activity and its key. It is an execution like that of a workflow, under the name
"task:" and its activity: the commands of perdure workflow know it too. Tasks that are steps of a workflow are shown with it.`,
		Example: `  perdure task submit mail --queue mails --input '"ann@example.com"' --wait
  perdure task list --activity mail --status open
  perdure task show mail/0193f2c1
  perdure task logs mail/0193f2c1 --follow`,
	}

	cmd.AddCommand(newTaskSubmit(o), newTaskList(o), newTaskShow(o), newTaskLogs(o), newTaskState(o), newTaskStream(o))
	cmd.AddCommand(
		o.taskOrder("cancel", "Ask a task to end", "cancel requested:", func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Cancel(ctx, r) }),
		o.taskOrder("terminate", "End a task, whatever its worker does", "terminated:", func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Terminate(ctx, r) }),
		o.taskOrder("pause", "Have nobody begin a task until it is resumed", "paused:", func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Pause(ctx, r) }),
		o.taskOrder("resume", "Undo pause", "resumed:", func(ctx context.Context, b api.Backend, r api.CancelRequest) error { return b.Resume(ctx, r) }),
		o.taskOrder("retry", "Schedule a task anew that failed or was cancelled", "scheduled anew:", func(ctx context.Context, b api.Backend, r api.CancelRequest) error {
			_, err := b.Retry(ctx, api.PastRequest{Source: r.Target})
			return err
		}),
	)

	return cmd
}

// taskTarget reads activity/key.
func taskTarget(arg, run string) (subject, error) {
	if !strings.HasPrefix(arg, model.TaskPrefix) {
		arg = model.TaskPrefix + arg
	}
	if activity, key, _ := strings.Cut(arg, "/"); activity == model.TaskPrefix || key == "" {
		return subject{}, fault.New(fault.Invalid, "%q does not name a task: write activity/key", strings.TrimPrefix(arg, model.TaskPrefix))
	}
	return target(arg, run)
}

func (o *options) taskOrder(use, short, done string, do func(ctx context.Context, b api.Backend, r api.CancelRequest) error) *cobra.Command {
	var reason string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: use + " activity/key", Short: short, Example: "  perdure task " + use + " mail/0193f2c1", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := taskTarget(args[0], "")
			if err != nil {
				return err
			}
			return o.acting(cmd.Context(), timeout, named, done, func(ctx context.Context, b api.Backend, t api.Target) error {
				return do(ctx, b, api.CancelRequest{Target: t, Reason: reason})
			})
		},
	}

	if use != "retry" && use != "resume" {
		cmd.Flags().StringVar(&reason, "reason", "", "why")
	}
	patience(cmd, &timeout)
	return cmd
}

func newTaskSubmit(o *options) *cobra.Command {
	var f startFlags
	var spec model.TaskSpec
	cmd := &cobra.Command{
		Use: "submit activity", Short: "Submit a task",
		Long: `Submit a task. Without a key every submission is a new task; with one, it attaches to the task that has it.

How it is carried out is what the flags say: what the code of the activity has as its options (queue, attempts, limits, breaker, time-outs) is known to programs that submit it, not to this command. Rules that select
tasks by queue or activity count for it in any case.`,
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
	cmd.Flags().StringVar(&spec.Queue, "queue", perdure.DefaultQueue, "queue that it waits in")
	cmd.Flags().IntVar(&spec.Priority, "priority", 0, "larger ones first")
	cmd.Flags().StringVar(&spec.Fair, "fair-key", "", "key that shares the queue with others")
	cmd.Flags().IntVar(&spec.Weight, "fair-weight", 0, "share of the key (1)")
	cmd.Flags().DurationVar(&spec.Delay, "delay", 0, "how long it waits before it may begin")
	cmd.Flags().IntVar(&spec.Retry.MaxAttempts, "attempts", 0, "at most so many; 0 for no limit")
	cmd.Flags().StringSliceVar(&spec.Limits, "limit", nil, "limits that it takes a permit of, as perdure.Limit; may be repeated")
	cmd.Flags().StringVar(&spec.Breaker, "breaker", "", "circuit breaker that its outcomes count for")
	cmd.Flags().DurationVar(&spec.ToStart, "schedule-to-start", 0, "how long it may wait for a worker; 0 for any time")
	cmd.Flags().DurationVar(&spec.ToClose, "attempt-timeout", 0, "of one attempt; 0 for none")
	cmd.Flags().DurationVar(&spec.Silence, "heartbeat-timeout", 0, "how long nothing may be heard of its worker; 0 for any time")
	cmd.Flags().DurationVar(&spec.Total, "schedule-to-close", 0, "for all attempts and the pauses between them; 0 for any time")
	return cmd
}

func newTaskList(o *options) *cobra.Command {
	var f listFlags
	var activity string
	var queues []string

	cmd := &cobra.Command{
		Use: "list", Short: "List tasks, newest first",
		Example: `  perdure task list --activity mail --status open
  perdure task list --queue mails --status failed -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if activity != "" {
				f.workflow = model.TaskPrefix + strings.TrimPrefix(activity, model.TaskPrefix)
			}
			return o.listTasks(cmd.Context(), &f, queues)
		},
	}

	cmd.Flags().StringVar(&activity, "activity", "", "only this activity")
	cmd.Flags().StringSliceVar(&queues, "queue", nil, "only these queues")
	cmd.Flags().StringVar(&f.prefix, "key-prefix", "", "only keys that begin so")
	cmd.Flags().StringSliceVar(&f.statuses, "status", nil, "only these: open, closed, running, completed, failed, canceled, terminated")
	cmd.Flags().StringArrayVar(&f.labels, "label", nil, "only with this label, as name=value")
	cmd.Flags().StringVar(&f.since, "since", "", "submitted at or after: a time (RFC 3339) or a distance (1h)")
	cmd.Flags().StringVar(&f.until, "until", "", "submitted before: a time or a distance")
	cmd.Flags().Var(count(&f.limit, 50), "limit", "at most so many; 0 for all")

	return cmd
}

// taskLine is a task in a listing.
type taskLine struct {
	summary
	Activity string `json:"activity"`
	Queue    string `json:"queue"`
}

// listTasks lists executions that are tasks; the store does not know their queues, so those are
// looked at here.
func (o *options) listTasks(ctx context.Context, f *listFlags, queues []string) error {
	req, err := f.listing()
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

		if o.output == "json" {
			return o.json(lines)
		}
		rows := make([][]string, len(lines))
		for i, l := range lines {
			rows[i] = []string{l.Activity + "/" + l.Key, l.Queue, l.Status, second(l.at), l.Reason}
		}
		if err := o.table("TASK\tQUEUE\tSTATUS\tSUBMITTED\tREASON", rows); err != nil {
			return err
		}

		o.more(more)
		return nil
	})
}

func newTaskShow(o *options) *cobra.Command {
	var run string
	var stack bool
	cmd := &cobra.Command{
		Use: "show activity/key", Short: "Tell how a task stands: attempts, worker, next attempt, progress, why it waits",
		Example: "  perdure task show mail/0193f2c1", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := taskTarget(args[0], run)
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

	cmd.Flags().StringVar(&run, "run", "", "a certain run instead of the current one")
	stackFlag(cmd, &stack)
	return cmd
}

// openTask is an open task of a run for programs.
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

// deadOf is the dead task that a task has become, as long as it is kept: there its attempts are
// found, and it is what can be requeued.
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

// taskRows tell how the open tasks of a run stand.
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
			text += fmt.Sprintf("attempt %d may begin at %s", t.Attempt+1, stamp(t.Next))
		}
		rows = append(rows, []string{"Task", text})
		if t.Last != nil {
			rows = append(rows, []string{"", strconv.Itoa(t.Failures) + " failed, the last one: " + t.Last.Message})
		}
		if t.Progress.Size() > 0 {
			rows = append(rows, []string{"", "progress " + o.text(t.Progress)})
		}
	}

	return rows
}
