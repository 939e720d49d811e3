package restapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/schedule"
)

// addSetSchedule adds the operation that defines a schedule.
func (s *Server) addSetSchedule() {
	add(s, operation{id: "set-schedule", method: http.MethodPut, path: "/schedules/{name}", tag: schedulesTag, summary: "Create or change a schedule"}, s.setSchedule)
}

// scheduleDefinition is the definition of a schedule.
type scheduleDefinition struct {
	Cron     string            `json:"cron,omitempty" example:"0 3 * * *" doc:"When the schedule starts something, as a cron line; give either cron or every"`
	Zone     string            `json:"zone,omitempty" doc:"The time zone of cron; the default is UTC"`
	Every    string            `json:"every,omitempty" doc:"The interval, such as 90m; give either cron or every"`
	Offset   string            `json:"offset,omitempty" doc:"How long after each multiple of every the schedule starts something"`
	Workflow string            `json:"workflow,omitempty" example:"report" doc:"The workflow to start; give either workflow or activity"`
	Activity string            `json:"activity,omitempty" doc:"The activity to run as a task without a workflow; give either workflow or activity"`
	Task     *TaskSettings     `json:"task,omitempty" doc:"How the task is executed; only with activity"`
	Input    json.RawMessage   `json:"input,omitempty" doc:"Any JSON"`
	Labels   map[string]string `json:"labels,omitempty"`
	Overlap  string            `json:"overlap,omitempty" doc:"What happens while an earlier execution is open: skip, queue, allow or cancel; see docs/schedules.md"`
	CatchUp  string            `json:"catch_up,omitempty" doc:"How long after its time a start may still happen, such as 10m"`
	Jitter   string            `json:"jitter,omitempty" doc:"The maximum random delay of each start"`
	StartAt  time.Time         `json:"start_at,omitzero"`
	EndAt    time.Time         `json:"end_at,omitzero"`
	App      string            `json:"app,omitempty" doc:"The app that the schedule belongs to"`
	Paused   string            `json:"paused_at_first,omitempty" doc:"Create the schedule paused, with this reason"`
}

type setScheduleInput struct {
	NamePath

	DryRun bool `query:"dry_run" doc:"Only say what would change"`
	Body   scheduleDefinition
}

// scheduleSet says what has changed.
type scheduleSet struct {
	Change string `json:"change" enum:"created,changed,unchanged"`
}

func (s *Server) setSchedule(ctx context.Context, who *authn.Identity, in *setScheduleInput) (*reply[scheduleSet], error) {
	// The caller has the right to update executions, which is enough to change a schedule. It also
	// needs the right to start executions, because this call may start a new schedule.
	if err := s.config.Authorizer.Authorize(who, "execution:start"); err != nil {
		return nil, err
	}
	spec, err := in.Body.spec()
	if err != nil {
		return nil, err
	}
	change, err := schedule.In(s.config.Backend, who.Tenant).Apply(ctx, in.Name, schedule.Command{Spec: spec, Paused: in.Body.Paused != "", Why: in.Body.Paused}, in.DryRun)
	if err != nil {
		return nil, err
	}
	return ok(scheduleSet{change})
}

// spec returns the definition as it is stored.
func (d *scheduleDefinition) spec() (*schedule.Spec, error) {
	s := &schedule.Spec{Cron: d.Cron, Zone: d.Zone, Overlap: schedule.Overlap(d.Overlap), StartAt: d.StartAt, EndAt: d.EndAt, App: d.App}
	s.Job = schedule.Job{Kind: schedule.KindWorkflow, Name: d.Workflow, Labels: d.Labels, Input: schedule.Payload{Payload: payload(d.Input)}}
	switch {
	case d.Workflow != "" && d.Activity != "":
		return nil, fault.New(fault.Invalid, "a schedule starts either a workflow or an activity, and both are given")
	case d.Activity == "" && d.Task != nil:
		return nil, fault.New(fault.Invalid, "task is set, so activity must be set too")
	case d.Activity != "":
		settings := d.Task
		if settings == nil {
			settings = &TaskSettings{}
		}
		task, err := settings.spec(d.Activity)
		if err != nil {
			return nil, err
		}
		s.Job.Kind, s.Job.Name, s.Job.Task, s.Job.Called = schedule.KindTask, d.Activity, task, taskFields
	}

	for _, one := range []struct {
		name, text string
		to         *schedule.Duration
	}{{"every", d.Every, &s.Every}, {"offset", d.Offset, &s.Phase}, {"catch_up", d.CatchUp, &s.CatchUp}, {"jitter", d.Jitter, &s.Jitter}} {
		v, err := readDuration(one.name, one.text)
		if err != nil {
			return nil, err
		}
		*one.to = schedule.Duration(v)
	}
	return s, nil
}

// taskFields are the JSON names of the settings of a task, for errors about a schedule definition.
var taskFields = model.SettingNames{
	schedule.NamedQueue: "queue", schedule.NamedFair: "fair_key", schedule.NamedBreaker: "breaker", schedule.NamedLimit: "limits:",
	model.SettingPriority: "priority", model.SettingWeight: "fair_weight", model.SettingToStart: "schedule_to_start", model.SettingToClose: "attempt_timeout",
	model.SettingSilence: "heartbeat_timeout", model.SettingTotal: "schedule_to_close", model.SettingDelay: "delay", model.SettingAttempts: "attempts",
	model.SettingLimits: "number of limits",
}
