package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/cadence"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/schedule"
)

func newSchedule(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use: "schedule", Short: "Schedules of workflows and tasks",
		Long: `List and show schedules, pause, resume and trigger them, and apply the schedules of a file.

On PostgreSQL the command asks the running nodes. On a file it asks the program that has the file open. If no program has the file open, the command runs the schedules itself,
and the jobs that it starts run when your program runs.`,
		Example: `  perdure schedule list
  perdure schedule next nightly -n 10
  perdure schedule pause nightly --reason 'month end'
  perdure schedule backfill nightly --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z
  perdure schedule apply -f schedules.yaml --prune --dry-run`,
	}
	cmd.AddCommand(newScheduleList(o), newScheduleShow(o), newScheduleNext(o), newSchedulePause(o), newScheduleResume(o))
	cmd.AddCommand(newScheduleTrigger(o), newScheduleBackfill(o), newScheduleDelete(o), newScheduleApply(o))
	return cmd
}

// withScheduleCode is like within, for commands that need an answer from the code of a schedule. If
// the store is a file that no program has open, no other process runs that code, so the command
// runs it.
func (o *options) withScheduleCode(ctx context.Context, d time.Duration, do func(ctx context.Context, b api.Backend) error) error {
	return o.within(ctx, d, func(ctx context.Context, b api.Backend) error {
		if o.alone() {
			stop, err := schedule.Serve(ctx, b, o.tenant, o.log())
			if err != nil {
				return err
			}
			defer stop()
		}
		return do(ctx, b)
	})
}

// scheduleNames completes the names of schedules.
func (o *options) scheduleNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	n, err := o.look(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer n.Close()
	var names []string
	for s, err := range schedule.In(n.Backend(), o.tenant).List(cmd.Context(), "") {
		if err == nil {
			names = append(names, s.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// scheduleLine is a schedule in JSON.
type scheduleLine struct {
	Name    string          `json:"name"`
	When    string          `json:"when"`
	Spec    specLine        `json:"spec"`
	Status  schedule.Status `json:"status"`
	Next    []time.Time     `json:"next"`
	Trouble string          `json:"trouble,omitempty"`
}

// specLine is a definition in JSON. Its task has the field names of a schedule file instead of the
// stored names.
type specLine struct {
	schedule.Spec

	Job jobLine `json:"job"`
}

type jobLine struct {
	schedule.Job

	Input any            `json:"input,omitempty"`
	Task  map[string]any `json:"task,omitempty"`
}

func lineOf(s *schedule.Seen, n int) scheduleLine {
	spec := specLine{Spec: s.Spec, Job: jobLine{Job: s.Spec.Job, Input: raw(s.Spec.Job.Input.Payload)}}
	if t := s.Spec.Job.Task; t != nil {
		spec.Job.Task = taskToFile(t).fields()
	}
	l := scheduleLine{Name: s.Name, Spec: spec, Status: s.Status, Next: append([]time.Time{}, s.Next(n)...), Trouble: s.Trouble}
	if c, err := s.Spec.Cadence(); err == nil {
		l.When = c.String()
	}
	return l
}

// stateText returns the status of a schedule for people, with the most important fact first.
func (l *scheduleLine) stateText() string {
	switch {
	case l.Trouble != "":
		return l.Trouble
	case l.Status.Paused && l.Status.Why != "":
		return "paused: " + l.Status.Why
	case l.Status.Paused:
		return "paused"
	case len(l.Next) == 0:
		return "ended"
	}
	return "active"
}

func instantText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func newScheduleList(o *options) *cobra.Command {
	var app string
	cmd := &cobra.Command{
		Use: "list", Short: "List schedules", Example: "  perdure schedule list\n  perdure schedule list --app billing -o json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := o.look(cmd.Context())
			if err != nil {
				return err
			}
			defer n.Close()

			all := []scheduleLine{}
			for s, err := range schedule.In(n.Backend(), o.tenant).List(cmd.Context(), app) {
				if err != nil {
					return err
				}
				all = append(all, lineOf(&s, 1))
			}

			if o.structured() {
				return o.json(all)
			}

			rows := make([][]string, len(all))
			for i := range all {
				l, next, last := &all[i], "-", "-"
				if len(l.Next) > 0 {
					next = instantText(l.Next[0])
				}
				if len(l.Status.Recent) > 0 {
					last = instantText(l.Status.Recent[0].Tick)
				}
				rows[i] = []string{l.Name, l.When, l.Spec.Job.Type(), next, last, l.stateText()}
			}

			return o.table("SCHEDULE\tWHEN\tBEGINS\tNEXT\tLAST?\tSTATUS", rows)
		},
	}

	cmd.Flags().StringVar(&app, "app", "", "list only schedules that this app applied")
	return cmd
}

// jobText describes for people what a job starts.
func jobText(j *schedule.Job) string {
	if j.Task != nil {
		return fmt.Sprintf("task %s on queue %s", j.Name, j.Task.Queue)
	}
	return "workflow " + j.Name
}

// readCommand makes a command that reads one schedule.
func (o *options) readCommand(use, short, example string, show func(s *schedule.Seen) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " schedule", Short: short, Example: example, Args: cobra.ExactArgs(1), ValidArgsFunction: o.scheduleNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := o.schedule(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return show(&s)
		},
	}
}

// schedule reads one schedule.
func (o *options) schedule(ctx context.Context, name string) (s schedule.Seen, err error) {
	err = o.with(ctx, true, func(b api.Backend) error {
		s, err = schedule.In(b, o.tenant).Look(ctx, name)
		return err
	})
	return s, err
}

func newScheduleShow(o *options) *cobra.Command {
	return o.readCommand("show", "Show a schedule: its definition, its last runs and its next times", "  perdure schedule show nightly\n  perdure schedule show nightly -o json", func(s *schedule.Seen) error {
		l := lineOf(s, 5)
		if o.structured() {
			return o.json(l)
		}
		st, c := &s.Status, &s.Status.Counts

		rows := [][]string{
			{"Schedule", s.Name},
			{"Status", l.stateText()},
			{"When", l.When},
			{"Begins", jobText(&s.Spec.Job)},
			{"Input", o.text(s.Spec.Job.Input.Payload)},
			{"Overlap", string(s.Spec.Overlap)},
			{"Catch-up", time.Duration(s.Spec.CatchUp).String()},
			{"Applied by", dash(s.Spec.App)},
			{"Created", instantText(st.Created)},
			{"Changed", instantText(st.Changed)},
			{"Fired", fmt.Sprintf("%d, including %d triggered and %d backfilled", c.Fired, c.Triggered, c.Backfilled)},
			{"Left out", fmt.Sprintf("%d skipped, %d missed", c.Skipped, c.Missed)},
			{"Failed", strconv.FormatInt(c.Failed, 10)},
		}

		if t := s.Spec.Job.Task; t != nil {
			rows = append(rows, settingRows(t)...)
		}
		if j := time.Duration(s.Spec.Jitter); j > 0 {
			rows = append(rows, []string{"Jitter", j.String()})
		}
		if !s.Spec.StartAt.IsZero() || !s.Spec.EndAt.IsZero() {
			rows = append(rows, []string{"Between", instantText(s.Spec.StartAt) + " and " + instantText(s.Spec.EndAt)})
		}
		if st.LastError != "" {
			rows = append(rows, []string{"Last error", st.LastError})
		}
		if st.Waiting != nil {
			rows = append(rows, []string{"Waiting", st.Waiting.Key})
		}
		for _, r := range st.Backfills {
			rows = append(rows, []string{"Backfill", "after " + instantText(r.After) + " until " + instantText(r.Until)})
		}

		list := func(head string, n int, text func(i int) string) {
			for i := range n {
				rows = append(rows, []string{head, text(i)})
				head = ""
			}
		}

		list("Next", len(l.Next), func(i int) string { return instantText(l.Next[i]) })
		list("Open", len(st.Open), func(i int) string { return st.Open[i].Workflow + "/" + st.Open[i].Key })
		list("Last", len(st.Recent), func(i int) string {
			f := &st.Recent[i]
			return fmt.Sprintf("%s/%s (%s, started %s)", f.Workflow, f.Key, f.Kind, instantText(f.At))
		})

		return o.table("", rows)
	})
}

func newScheduleNext(o *options) *cobra.Command {
	var count int
	var cron, zone, after string
	var every time.Duration

	cmd := &cobra.Command{
		Use: "next [schedule]", Short: "Show the next times of a schedule or of a cron line",
		Example: `  perdure schedule next nightly -n 10
  perdure schedule next --cron '30 2 * * *' --zone Europe/Berlin --after 2026-03-28T00:00:00Z
  perdure schedule next --every 90m`,
		ValidArgsFunction: o.scheduleNames,
		Args: func(_ *cobra.Command, args []string) error {
			if given := cron != "" || every != 0; given == (len(args) == 1) || len(args) > 1 {
				return fault.New(fault.Invalid, "next needs either the name of a schedule, or --cron, or --every")
			}
			if count < 1 || count > 1000 {
				return fault.New(fault.Invalid, "-n is %d, must be from 1 to 1000", count)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := time.Now(), error(nil)
			if after != "" {
				if from, err = pointInTime("--after", after); err != nil {
					return err
				}
			}

			spec := schedule.Spec{Cron: cron, Zone: zone, Every: schedule.Duration(every)}
			if len(args) == 1 {
				s, err := o.schedule(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if s.Status.Paused && !o.structured() {
					fmt.Fprintf(o.Err, "The schedule is paused: %s\n", dash(s.Status.Why))
				}
				spec = s.Spec
			}

			times, err := spec.Next(from, count)
			if err != nil {
				return err
			}
			if o.structured() {
				return o.json(times)
			}

			loc, err := time.LoadLocation(spec.Zone)
			if err != nil {
				return fault.New(fault.Invalid, "zone %q: %w", spec.Zone, err)
			}
			rows := make([][]string, len(times))
			for i, t := range times {
				rows[i] = []string{instantText(t), t.In(loc).Format("Mon 2006-01-02 15:04:05 MST")}
			}

			return o.table("TIME\tON THE WALL", rows)
		},
	}

	cmd.Flags().IntVarP(&count, "number", "n", 5, "number of times to show")
	cmd.Flags().StringVar(&cron, "cron", "", "use this cron line instead of a schedule")
	cmd.Flags().StringVar(&zone, "zone", "", "IANA name of the time zone of the cron line (UTC)")
	cmd.Flags().DurationVar(&every, "every", 0, "use this interval instead of a schedule")
	cmd.Flags().StringVar(&after, "after", "", "show times after this time (RFC 3339) instead of now")

	return cmd
}

// pointInTime parses a time.
func pointInTime(flag, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fault.New(fault.Invalid, "%s is %q, must be a time such as 2026-11-15T08:00:00Z", flag, text)
	}
	return t, cadence.CheckInstant(flag, t)
}

// sendCommand makes a command that sends a command to one schedule.
//
//arch:parameters they are the texts of one command, and every caller names all of them
func (o *options) sendCommand(use, short, example string, make func() (schedule.Command, error), done func(name string, a *schedule.Answer) string) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: use + " schedule", Short: short, Example: example, Args: cobra.ExactArgs(1), ValidArgsFunction: o.scheduleNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := make()
			if err != nil {
				return err
			}
			return o.withScheduleCode(cmd.Context(), timeout, func(ctx context.Context, b api.Backend) error {
				a, err := schedule.In(b, o.tenant).Ask(ctx, args[0], &c)
				if err != nil {
					return err
				}
				if o.structured() {
					return o.json(struct {
						Schedule string `json:"schedule"`
						Key      string `json:"key,omitempty"`
						Ticks    int    `json:"ticks,omitempty"`
					}{args[0], a.Key, a.Ticks})
				}
				_, err = fmt.Fprintln(o.Out, done(args[0], &a))
				return err
			})
		},
	}

	patience(cmd, &timeout)
	return cmd
}

func newSchedulePause(o *options) *cobra.Command {
	var why string
	cmd := o.sendCommand("pause", "Pause a schedule", "  perdure schedule pause nightly --reason 'month end'",
		func() (schedule.Command, error) { return schedule.Command{Verb: schedule.VerbPause, Why: why}, nil },
		func(name string, _ *schedule.Answer) string { return "paused: " + name })
	cmd.Flags().StringVar(&why, "reason", "", "reason that the status shows")
	return cmd
}

func newScheduleResume(o *options) *cobra.Command {
	return o.sendCommand("resume", "Resume a paused schedule", "  perdure schedule resume nightly",
		func() (schedule.Command, error) { return schedule.Command{Verb: schedule.VerbResume}, nil },
		func(name string, _ *schedule.Answer) string { return "resumed: " + name })
}

func newScheduleTrigger(o *options) *cobra.Command {
	return o.sendCommand("trigger", "Fire a schedule now", "  perdure schedule trigger nightly",
		func() (schedule.Command, error) { return schedule.Command{Verb: schedule.VerbTrigger}, nil },
		func(name string, a *schedule.Answer) string {
			if a.Key == "" {
				return "waits for the previous run: " + name
			}
			return "triggered: " + a.Key
		})
}

func newScheduleBackfill(o *options) *cobra.Command {
	var from, to string
	cmd := o.sendCommand("backfill", "Start the runs that a schedule missed, or that failed, in a past period", "  perdure schedule backfill nightly --from 2026-11-01T00:00:00Z --to 2026-11-08T00:00:00Z",
		func() (schedule.Command, error) {
			c := schedule.Command{Verb: schedule.VerbBackfill}
			var err error
			if c.From, err = pointInTime("--from", from); err != nil {
				return c, err
			}
			c.To, err = pointInTime("--to", to)
			return c, err
		},
		func(name string, a *schedule.Answer) string { return fmt.Sprintf("backfill of %d: %s", a.Ticks, name) })

	cmd.Flags().StringVar(&from, "from", "", "start of the period (RFC 3339)")
	cmd.Flags().StringVar(&to, "to", "", "end of the period, exclusive")
	for _, flag := range []string{"from", "to"} {
		if err := cmd.MarkFlagRequired(flag); err != nil {
			panic(err) // an error means that the flag does not exist
		}
	}

	return cmd
}

func newScheduleDelete(o *options) *cobra.Command {
	return o.sendCommand("delete", "Delete a schedule; its open runs continue", "  perdure schedule delete nightly",
		func() (schedule.Command, error) { return schedule.Command{Verb: schedule.VerbDelete}, nil },
		func(name string, _ *schedule.Answer) string { return "deleted: " + name })
}
