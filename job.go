package perdure

import (
	"reflect"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/schedule"
)

// Job is what a Schedule starts. Workflow.Job and Activity.Job return a Job. It is only data, so
// the process that serves the schedule does not need the code of the workflow or activity.
type Job struct {
	kind   string
	name   string
	encode func(*host) (model.Payload, error)
	labels map[string]string
	task   *model.TaskSpec
	in     reflect.Type // of the input
	err    error
}

// Job returns a start of the workflow with this input, for a Schedule. The key of each execution is
// the name of the schedule and its fire time, such as nightly@2026-11-15T01:00:00Z, so the same
// fire time cannot start twice. The only start option that Job accepts is Labels.
func (w *Workflow[I, O]) Job(in I, opts ...StartOption) Job {
	j := Job{kind: schedule.KindWorkflow, name: w.name, in: reflect.TypeFor[I](), encode: func(h *host) (model.Payload, error) {
		return encode(h, "input of workflow", w.name, in)
	}}
	j.apply(opts)
	return j
}

// Job returns a submission of the activity with this input, for a Schedule. Each fire time submits
// a new task, on the queue of the activity or of the option OnQueue. The task has a key as in
// Workflow.Job. Job accepts Labels and TaskOptions.
func (a *Activity[I, O]) Job(in I, opts ...StartOption) Job {
	j := Job{kind: schedule.KindTask, name: a.name, in: reflect.TypeFor[I](), encode: func(h *host) (model.Payload, error) {
		return encode(h, "input of activity", a.name, in)
	}}
	j.apply(opts)
	if b, err := a.submission(&host{}, opts, true); err != nil {
		j.err = err
	} else {
		j.task = b.o.spec
	}
	return j
}

func (j *Job) apply(opts []StartOption) {
	var o startOptions
	for _, opt := range opts {
		opt.applyStart(&o)
	}
	j.err = o.err
	if o.keyed || o.reuse != model.ReturnExisting || o.requestID != "" || len(o.with) > 0 || o.policy != model.CancelChild {
		allowed := "only Labels are allowed"
		if j.kind == schedule.KindTask {
			allowed = "only Labels and the options of tasks are allowed"
		}
		j.err = fault.New(fault.Invalid, "the job %s: a schedule gives each execution its own key; %s", j.name, allowed)
	}
	if j.kind == schedule.KindWorkflow && len(o.task) > 0 {
		j.err = fault.New(fault.Invalid, "the job %s: %s is for activities", j.name, o.task[0].name)
	}
	if j.kind == schedule.KindWorkflow && (len(o.timed) > 0 || o.retry != nil) {
		j.err = fault.New(fault.Invalid, "the job %s: a schedule decides when executions start; pass the retry policy to NewWorkflow", j.name)
	}

	for _, l := range o.labels {
		if j.labels == nil {
			j.labels = map[string]string{}
		}
		j.labels[l.Name] = l.Value
	}
}

// address returns the type of the addresses of the executions that the job starts.
func (j *Job) address() string {
	if j.kind == schedule.KindTask {
		return model.TaskPrefix + j.name
	}
	return j.name
}
