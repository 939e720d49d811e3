package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/schedule"
)

// scheduleFile is the content of a schedule file.
type scheduleFile struct {
	App       string          `yaml:"app"`
	Schedules []scheduleEntry `yaml:"schedules"`
}

type scheduleEntry struct {
	Name     string            `yaml:"name"`
	Cron     string            `yaml:"cron"`
	Zone     string            `yaml:"zone"`
	Every    time.Duration     `yaml:"every"`
	Offset   time.Duration     `yaml:"offset"`
	Workflow string            `yaml:"workflow"`
	Activity string            `yaml:"activity"` // set instead of Workflow, to start a task that belongs to no workflow
	Task     scheduledTask     `yaml:",inline"`
	Input    any               `yaml:"input"`
	Labels   map[string]string `yaml:"labels"`
	Overlap  string            `yaml:"overlap"`
	CatchUp  time.Duration     `yaml:"catch_up"`
	Jitter   time.Duration     `yaml:"jitter"`
	StartAt  time.Time         `yaml:"start_at"`
	EndAt    time.Time         `yaml:"end_at"`
	Paused   string            `yaml:"paused_at_first"` // the reason, if the schedule starts paused
}

// readSchedules reads the file and reports all of its errors.
func (o *options) readSchedules(name string) (scheduleFile, map[string]schedule.Command, error) {
	var f scheduleFile
	data, err := os.ReadFile(name)
	if name == "-" {
		data, err = io.ReadAll(o.In)
	}
	if err != nil {
		return f, nil, fault.New(fault.Invalid, "--file: %w", err)
	}

	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return f, nil, fault.New(fault.Invalid, "%s: %w", name, err)
	}

	commands, problems := map[string]schedule.Command{}, []string{}
	for i := range f.Schedules {
		e := &f.Schedules[i]
		if _, twice := commands[e.Name]; twice {
			problems = append(problems, fmt.Sprintf("schedule %s is defined twice", e.Name))
		}
		c, err := e.command(f.App)
		if err != nil {
			problems = append(problems, err.Error())
		}
		commands[e.Name] = c
	}

	if len(problems) > 0 {
		return f, nil, fault.New(fault.Invalid, "%s: %s", name, strings.Join(problems, "\n"))
	}
	return f, commands, nil
}

// job returns what the entry starts: an execution of a workflow, or a task.
func (e *scheduleEntry) job(in []byte) schedule.Job {
	j := schedule.Job{Kind: schedule.KindWorkflow, Name: e.Workflow, Labels: e.Labels, Input: schedule.Payload{Payload: model.Payload{Data: in}}}
	if e.Activity != "" {
		j.Kind, j.Name, j.Task, j.Called = schedule.KindTask, e.Activity, e.Task.spec(e.Activity), fieldNames
	}
	return j
}

func (e *scheduleEntry) command(app string) (schedule.Command, error) {
	in, err := json.Marshal(e.Input)
	if err != nil {
		return schedule.Command{}, fault.New(fault.Invalid, "schedule %s: the input is not JSON: %w", e.Name, err)
	}
	if e.Activity != "" && e.Workflow != "" {
		return schedule.Command{}, fault.New(fault.Invalid, "schedule %s: must have either workflow or activity", e.Name)
	}

	if given := e.Task.names(); e.Activity == "" && len(given) > 0 {
		return schedule.Command{}, fault.New(fault.Invalid, "schedule %s: %s: only allowed with activity", e.Name, strings.Join(given, ", "))
	}

	spec := &schedule.Spec{
		Cron: e.Cron, Zone: e.Zone, Every: schedule.Duration(e.Every), Phase: schedule.Duration(e.Offset), Overlap: schedule.Overlap(e.Overlap),
		CatchUp: schedule.Duration(e.CatchUp), Jitter: schedule.Duration(e.Jitter), StartAt: e.StartAt, EndAt: e.EndAt, App: app,
		Job: e.job(in),
	}

	return schedule.Command{Spec: spec, Paused: e.Paused != "", Why: e.Paused}, spec.Define(e.Name)
}

// applied is the result for one schedule.
type applied struct {
	Schedule string `json:"schedule"`
	Change   string `json:"change"`
}

func newScheduleApply(o *options) *cobra.Command {
	var file string
	var prune, dry bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "apply", Short: "Apply the schedules of a file", Args: cobra.NoArgs,
		Long: `Create the schedules of a file that do not exist, change the ones whose definition differs, and leave the others alone. --prune deletes schedules
that were applied under the same app name and are no longer in the file.

  app: ops
  schedules:
    - name: nightly
      cron: 0 2 * * *             # or every: 90m, offset: 5m
      zone: Europe/Berlin
      workflow: report            # or activity, see below
      input: {day: yesterday}     # stored as JSON
      labels: {team: ops}
      overlap: skip               # skip, queue, allow or cancel
      catch_up: 24h
      jitter: 30s
      start_at: 2026-11-15T00:00:00Z
      end_at: 2027-11-15T00:00:00Z
      paused_at_first: not before the migration   # the reason; the schedule starts paused
    - name: tidy
      every: 90m
      activity: clean             # a task of its own, with the settings below
      queue: low
      priority: 10
      fair_key: ann
      fair_weight: 2
      delay: 5s
      attempts: 5
      retry: {initial: 1s, max: 1m, coefficient: 2, jitter: 0.1, except: [panic]}
      limits: [disk]
      breaker: files
      schedule_to_start: 1h
      attempt_timeout: 10m
      heartbeat_timeout: 30s
      schedule_to_close: 2h`,
		Example: `  perdure schedule apply -f schedules.yaml --dry-run
  perdure schedule apply -f schedules.yaml --prune`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, commands, err := o.readSchedules(file)
			if err != nil {
				return err
			}
			if prune && f.App == "" {
				return fault.New(fault.Invalid, "--prune needs app in the file: only schedules of the same app are deleted")
			}

			do := func(ctx context.Context, b api.Backend) error {
				return o.applyAll(ctx, b, plan{&f, commands, prune, dry})
			}
			if !dry {
				return o.withScheduleCode(cmd.Context(), timeout, do)
			}
			n, err := o.look(cmd.Context())
			if err != nil {
				return err
			}

			defer n.Close()
			return do(cmd.Context(), n.Backend())
		},
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "file in YAML, or - for standard input")
	cmd.Flags().BoolVar(&prune, "prune", false, "delete schedules of the same app that are not in the file")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what the command would do, and change nothing")
	if err := cmd.MarkFlagRequired("file"); err != nil {
		panic(err) // an error means that the flag does not exist
	}
	patience(cmd, &timeout)
	return cmd
}

// plan has the input and the options of the command apply, which applies the schedules of a file.
type plan struct {
	file       *scheduleFile
	commands   map[string]schedule.Command // by the name of the schedule
	prune, dry bool
}

// applyAll applies the schedules of a file, and prints the change of each one.
func (o *options) applyAll(ctx context.Context, b api.Backend, p plan) error {
	all := []applied{}
	for _, e := range p.file.Schedules {
		change, err := schedule.In(b, o.tenant).Apply(ctx, e.Name, p.commands[e.Name], p.dry)
		if err != nil {
			return fmt.Errorf("apply schedule %s: %w", e.Name, err)
		}
		all = append(all, applied{e.Name, change})
	}

	if p.prune {
		for s, err := range schedule.In(b, o.tenant).List(ctx, p.file.App) {
			if err != nil {
				return err
			}
			if _, stays := p.commands[s.Name]; stays {
				continue
			}
			if !p.dry {
				if _, err := schedule.In(b, o.tenant).Ask(ctx, s.Name, &schedule.Command{Verb: schedule.VerbDelete}); err != nil && !fault.Is(err, fault.NotFound) {
					return fmt.Errorf("delete schedule %s: %w", s.Name, err)
				}
			}
			all = append(all, applied{s.Name, "deleted"})
		}
	}

	if o.structured() {
		return o.json(all)
	}
	for _, a := range all {
		fmt.Fprintf(o.Out, "%s: %s\n", a.Change, a.Schedule)
	}
	if p.dry {
		fmt.Fprintln(o.Err, "Nothing changed.")
	}

	return nil
}
