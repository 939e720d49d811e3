package cli

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// tailFlags select which output of a task a command reads.
type tailFlags struct {
	run, step string
	follow    bool
}

func (f *tailFlags) add(cmd *cobra.Command, follows bool) {
	cmd.Flags().StringVar(&f.run, "run", "", "id of a run; the current run by default")
	cmd.Flags().StringVar(&f.step, "step", "", "step of a workflow that scheduled the task; the argument is workflow/key then")
	if follows {
		cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "follow the output until the task ends")
	}
}

// tail opens the store to read the output of the named task. With --follow it connects to the nodes
// of a database, or to the program that has a file open, because they report new output.
func (o *options) tail(ctx context.Context, f *tailFlags, arg string, do func(b api.Backend, t api.TaskTarget) error) error {
	read := o.taskTarget
	if f.step != "" {
		read = o.target
	}
	named, err := read(arg, f.run)
	if err != nil {
		return err
	}

	return o.with(ctx, o.alone() || !f.follow, func(b api.Backend) error {
		t, err := named.find(ctx, b)
		if err != nil {
			return err
		}
		step := f.step
		if step == "all" { // no step has the id "all", because ids of steps start with a slash
			step = ""
		}
		return do(b, api.TaskTarget{Target: t, Step: step})
	})
}

func newTaskLogs(o *options) *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use: "logs activity/key", Short: "Print the log of a task",
		Example: `  perdure task logs mail/0193f2c1
  perdure task logs mail/0193f2c1 --follow
  perdure task logs order/42 --step all -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.tail(cmd.Context(), &f, args[0], func(b api.Backend, t api.TaskTarget) error { return o.printLogs(cmd.Context(), b, t, &f) })
		},
	}
	f.add(cmd, true)
	cmd.Flags().Lookup("step").Usage += "; all for all of them, without --follow"
	return cmd
}

// logLine is a log line in JSON.
type logLine struct {
	Step  string `json:"step,omitempty"`
	Time  string `json:"time"`
	Level string `json:"level"`
	Text  string `json:"text"`
}

func (o *options) printLogs(ctx context.Context, b api.Backend, t api.TaskTarget, f *tailFlags) error {
	all := []logLine{}
	for r := (api.TaskLogsRequest{TaskTarget: t, Wait: f.follow, Limit: 500}); ; {
		page, err := b.TaskLogs(ctx, r)
		if err != nil {
			return err
		}

		for _, l := range page.Lines {
			line := logLine{Time: l.At.String(), Level: slog.Level(l.Level).String(), Text: l.Text}
			if l.Step != model.TaskStep {
				line.Step = l.Step
			}
			switch {
			case !o.structured():
				_, err = fmt.Fprintf(o.Out, "%s  %-5s  %s\n", stamp(l.At), line.Level, l.Text)
			case f.follow:
				err = o.jsonLine(line)
			default:
				all = append(all, line)
			}
			if err != nil {
				return err
			}
		}

		if page.Ended || len(page.Lines) == 0 {
			break
		}
		r.Run, r.After = page.Run, page.Cursor
	}

	if o.structured() && !f.follow {
		return o.json(all)
	}
	return nil
}

func newTaskStream(o *options) *cobra.Command {
	var f tailFlags
	var after int64
	cmd := &cobra.Command{
		Use: "stream activity/key", Short: "Print the stored stream items of a task",
		Example: `  perdure task stream chat/0193f2c1 --follow
  perdure task stream chat/0193f2c1 --after 120 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.tail(cmd.Context(), &f, args[0], func(b api.Backend, t api.TaskTarget) error {
				return o.printStream(cmd.Context(), b, api.TaskStreamRequest{TaskTarget: t, After: after, Wait: f.follow, Limit: 500})
			})
		},
	}

	f.add(cmd, true)
	cmd.Flags().Int64Var(&after, "after", 0, "print only items after this position")
	return cmd
}

// streamLine is a streamed item in JSON.
type streamLine struct {
	Position int64  `json:"position"`
	Time     string `json:"time"`
	Kind     string `json:"kind"`
	Value    any    `json:"value"`
}

func (o *options) printStream(ctx context.Context, b api.Backend, r api.TaskStreamRequest) error {
	all := []streamLine{}
	for {
		page, err := b.TaskStream(ctx, r)
		if err != nil {
			return err
		}

		for i := range page.Items {
			it := &page.Items[i]
			line := streamLine{it.Position, it.At.String(), it.Kind.String(), raw(it.Value)}
			switch {
			case !o.structured():
				_, err = fmt.Fprintf(o.Out, "%d\t%s\t%-8s\t%s\n", it.Position, stamp(it.At), line.Kind, o.text(it.Value))
			case r.Wait:
				err = o.jsonLine(line)
			default:
				all = append(all, line)
			}
			if err != nil {
				return err
			}
			r.After = it.Position
		}

		if page.Ended || len(page.Items) == 0 {
			break
		}
		r.Run = page.Run
	}

	if o.structured() && !r.Wait {
		return o.json(all)
	}
	return nil
}

func newTaskState(o *options) *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use: "state activity/key [name]", Short: "Print all states that a task keeps between attempts, or one of them",
		Example: `  perdure task state copy/0193f2c1
  perdure task state copy/0193f2c1 cursor`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.tail(cmd.Context(), &f, args[0], func(b api.Backend, t api.TaskTarget) error { return o.printStates(cmd.Context(), b, t, args[1:]) })
		},
	}
	f.add(cmd, false)
	return cmd
}

func (o *options) printStates(ctx context.Context, b api.Backend, t api.TaskTarget, names []string) error {
	reply, err := b.TaskStates(ctx, t)
	if err != nil {
		return err
	}

	if len(names) == 1 {
		for _, s := range reply.States {
			if s.Name == names[0] {
				return o.value(s.Value)
			}
		}
		return fault.New(fault.NotFound, "task %s/%s has no state %s", strings.TrimPrefix(t.Address.Type, model.TaskPrefix), t.Address.Key, names[0])
	}

	if o.structured() {
		states := make(map[string]any, len(reply.States))
		for _, s := range reply.States {
			states[s.Name] = raw(s.Value)
		}
		return o.json(states)
	}

	rows := make([][]string, len(reply.States))
	for i, s := range reply.States {
		rows[i] = []string{s.Name, o.text(s.Value)}
	}
	return o.table("STATE\tVALUE", rows)
}
