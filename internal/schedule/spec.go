// Package schedule starts executions at the times of a cadence. A schedule is itself an execution
// of the workflow Type, with the name of the schedule as key. So it fires exactly once across
// processes, survives crashes and has a history, as all executions do.
//
// The pure function Decide makes all decisions. The schedule records each decision as the outcome
// of a step before it acts on the decision, so that a replay with another time zone database or
// another build gives the same history. An execution that a schedule starts has a key made of the
// schedule's name and the tick, so that a tick can never start twice.
//
// The job of a schedule is data: it says what to start, with which stored input. So any process
// with this package can serve any schedule. The process needs neither the code of the job nor the
// keys that encrypt its input.
package schedule

import (
	"encoding/json"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/cadence"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Reserved is the prefix of the names of built-in workflows.
const Reserved = model.ReservedPrefix

// Names in the store.
const (
	Type      = model.ScheduleType    // the workflow
	LabelName = Reserved + "schedule" // label of a started execution: the name of the schedule
	LabelTick = Reserved + "tick"     // label of a started execution: its tick
	LabelApp  = Reserved + "app"      // label of a schedule: the app that has applied it
)

// Bounds.
const (
	MaxName = 200
	// MaxInput bounds the bytes of the stored input of a job, which is part of the state of the
	// schedule.
	MaxInput       = 256 << 10
	MaxLabels      = model.MaxLabels - 2
	MaxBackfill    = 1000 // ticks of one backfill
	MaxBackfills   = 10   // backfills that have not ended
	MinCatchUp     = 10 * time.Second
	DefaultCatchUp = 24 * time.Hour
	MaxJitter      = 24 * time.Hour
	maxText        = 500 // bytes of a reason
	maxFinal       = 512 // bytes of a kind of failure
)

// Overlap says what happens to a tick when an earlier execution is still open.
type Overlap string

// Policies of Overlap.
const (
	Skip  Overlap = "skip"  // the tick is skipped
	Queue Overlap = "queue" // one tick waits, further ones are skipped
	Allow Overlap = "allow" // the tick begins anyway
	// Cancel: the schedule cancels the open execution, and the newest tick begins when that
	// execution has ended.
	Cancel Overlap = "cancel"
)

// Duration is a time.Duration that reads and writes as 1h30m.
type Duration time.Duration

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads a duration with time.ParseDuration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fault.New(fault.Invalid, "%q is not a duration: write one such as 1h30m", text)
	}
	*d = Duration(v)
	return nil
}

// Spec is the definition of a schedule.
type Spec struct {
	Cron    string    `json:"cron,omitempty"`
	Zone    string    `json:"zone,omitempty"`
	Every   Duration  `json:"every,omitempty"`
	Phase   Duration  `json:"phase,omitempty"`
	Job     Job       `json:"job"`
	Overlap Overlap   `json:"overlap"`
	CatchUp Duration  `json:"catch_up"`
	Jitter  Duration  `json:"jitter,omitempty"`
	StartAt time.Time `json:"start_at,omitzero"`
	EndAt   time.Time `json:"end_at,omitzero"`
	App     string    `json:"app,omitempty"` // the app that has applied it
}

// Kinds of jobs: an execution of a workflow, or a task of an activity.
const (
	KindWorkflow = "workflow"
	KindTask     = "task"
)

// Job is what a schedule starts.
type Job struct {
	Kind   string            `json:"kind"`
	Name   string            `json:"name"` // the name of the workflow or the activity
	Input  Payload           `json:"input,omitzero"`
	Labels map[string]string `json:"labels,omitempty"`
	// Task says how a task is executed.
	Task *model.TaskSpec `json:"task,omitempty"`
	// Called has the names that the caller uses for the settings of the task, for example the names
	// of flags. Errors use these names.
	Called model.SettingNames `json:"-"`
}

// Type returns the type in the addresses of the executions that the job starts.
func (j *Job) Type() string {
	if j.Kind == KindTask {
		return model.TaskPrefix + j.Name
	}
	return j.Name
}

// Payload is a stored payload inside JSON.
type Payload = model.JSONPayload

// Cadence returns the cadence of the definition.
func (s *Spec) Cadence() (cadence.Cadence, error) {
	switch {
	case s.Cron != "" && s.Every != 0:
		return cadence.Cadence{}, fault.New(fault.Invalid, "a schedule has a cron line or an interval, not both")
	case s.Every != 0 || s.Phase != 0:
		return cadence.Every(time.Duration(s.Every), time.Duration(s.Phase))
	default:
		return cadence.Cron(s.Cron, s.Zone)
	}
}

// same reports whether two definitions mean the same.
func (s *Spec) same(o *Spec) bool {
	a, b := *s, *o
	if !a.Job.Input.Equal(b.Job.Input.Payload) || !a.StartAt.Equal(b.StartAt) || !a.EndAt.Equal(b.EndAt) {
		return false
	}
	a.Job.Input, b.Job.Input, a.StartAt, b.StartAt, a.EndAt, b.EndAt = Payload{}, Payload{}, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	left, _ := json.Marshal(a) // cannot fail
	right, _ := json.Marshal(b)
	return string(left) == string(right)
}

// sameTicks reports whether two definitions are due at the same times.
func (s *Spec) sameTicks(o *Spec) bool {
	return s.Cron == o.Cron && s.Zone == o.Zone && s.Every == o.Every && s.Phase == o.Phase && s.StartAt.Equal(o.StartAt) && s.EndAt.Equal(o.EndAt)
}

// CheckName returns what is wrong with the name of a schedule.
func CheckName(name string) error {
	switch {
	case name == "":
		return fault.New(fault.Invalid, "the name of a schedule is empty")
	case len(name) > MaxName:
		return fault.New(fault.Invalid, "the name of schedule %.40q… has %d bytes, at most %d are allowed", name, len(name), MaxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fault.New(fault.Invalid, "the name of schedule %q contains a character that cannot be shown", name)
	}
	return nil
}

// Define does the same as Complete, and also refuses a zone that does not exist beside an interval.
// Everything that takes definitions from people and programs uses Define.
func (s *Spec) Define(name string) error {
	err := s.Complete(name)
	if err == nil && s.Every != 0 {
		if err = cadence.CheckZone(s.Zone); err != nil {
			err = fault.New(fault.Invalid, "schedule %s: %w", name, err)
		}
	}
	return err
}

// Complete fills in defaults and returns everything that is wrong with a definition. The code of
// schedules uses it too, during replays, so it must not refuse what it has ever accepted.
func (s *Spec) Complete(name string) error {
	if s.Overlap == "" {
		s.Overlap = Skip
	}
	if s.CatchUp == 0 {
		s.CatchUp = Duration(DefaultCatchUp)
	}
	if s.Job.Kind == "" {
		s.Job.Kind = KindWorkflow
	}
	s.Cron = strings.Join(strings.Fields(s.Cron), " ")
	s.StartAt, s.EndAt = s.StartAt.UTC().Truncate(time.Millisecond), s.EndAt.UTC().Truncate(time.Millisecond)
	var wrong problems
	wrong.add(CheckName(name))
	_, err := s.Cadence()
	wrong.add(err)
	wrong.add(s.Job.check())

	switch s.Overlap {
	case Skip, Queue, Allow, Cancel:
	default:
		wrong.addf("overlap %q: it is skip, queue, allow or cancel", s.Overlap)
	}

	if d := time.Duration(s.CatchUp); d < MinCatchUp {
		wrong.addf("catch-up window %s: every tick is a little late, so it must be %s at least", d, MinCatchUp)
	} else if d > cadence.MaxEvery {
		wrong.addf("catch-up window %s: it must be %s at most", d, cadence.MaxEvery)
	}

	if d := time.Duration(s.Jitter); d < 0 || d > MaxJitter {
		wrong.addf("jitter %s: it must be between 0 and %s", d, MaxJitter)
	}
	if !s.StartAt.IsZero() {
		wrong.add(cadence.CheckInstant("start", s.StartAt))
	}

	if !s.EndAt.IsZero() {
		wrong.add(cadence.CheckInstant("end", s.EndAt))
		if !s.StartAt.IsZero() && !s.EndAt.After(s.StartAt) {
			wrong.addf("it ends at %s, which is not after its start at %s", stamp(s.EndAt), stamp(s.StartAt))
		}
	}

	if len(s.App) > MaxName || !utf8.ValidString(s.App) {
		wrong.addf("the name of the app %.40q has %d bytes: it may have %d of text", s.App, len(s.App), MaxName)
	}
	return wrong.err("schedule " + name)
}

// check returns everything that is wrong with a job.
func (j *Job) check() error {
	var wrong problems
	what := "workflow"
	switch {
	case j.Kind == KindTask:
		what = "activity"
		if j.Task == nil || j.Task.Kind != j.Name || j.Task.Queue == "" {
			wrong.addf("a task of activity %.40q needs a queue", j.Name)
		} else {
			wrong.add(j.Task.Check(j.Called))
			j.checkNames(&wrong)
		}
	case j.Kind != KindWorkflow || j.Task != nil:
		wrong.addf("a job of kind %q: it is %s or %s", j.Kind, KindWorkflow, KindTask)
	}

	if name := j.Type(); j.Name == "" || strings.Contains(name, "/") || !shows(name, MaxName) {
		wrong.addf("%s %.40q is not the name of one", what, j.Name)
	}
	if strings.HasPrefix(j.Name, Reserved) && j.Kind == KindWorkflow {
		wrong.addf("workflow %s is ours: a schedule cannot begin it", j.Name)
	}
	if n := j.Input.Size(); n > MaxInput {
		wrong.addf("the input of the job has %d bytes as it is stored, at most %d are allowed: let the job read what is larger", n, MaxInput)
	}
	if len(j.Labels) > MaxLabels {
		wrong.addf("the job has %d labels: it may have %d", len(j.Labels), MaxLabels)
	}

	for _, l := range model.Labels(j.Labels) {
		if err := model.CheckLabel(l.Name, l.Value); err != nil {
			wrong.add(err)
		} else if l.Value == "" || strings.HasPrefix(l.Name, Reserved) {
			wrong.addf("label %s=%q: it needs a value, and a name that does not begin with %s", l.Name, l.Value, Reserved)
		}
	}

	return wrong.err("")
}

// Kinds of names in a task. Errors call these things by the names in Job.Called, as they do for
// settings.
const (
	NamedQueue   = "queue"
	NamedFair    = "fairness key"
	NamedBreaker = "breaker"
	NamedLimit   = "limit"
	NamedFinal   = "final failure"
)

// checkNames adds the names of a task that are not valid.
func (j *Job) checkNames(wrong *problems) {
	check := func(what string, most int, names ...string) {
		for _, name := range names {
			if name == "" || !shows(name, most) {
				wrong.addf("its %s %.40q is not the name of one", j.Called.Of(what), name)
			}
		}
	}

	t := j.Task
	check(NamedQueue, MaxName, t.Queue)
	check(NamedLimit, MaxName, t.Limits...)
	check(NamedFinal, maxFinal, t.Retry.Final...)
	if t.Fair != "" {
		check(NamedFair, MaxName, t.Fair)
	}
	if t.Breaker != "" {
		check(NamedBreaker, MaxName, t.Breaker)
	}
}

// shows reports whether a name can be stored and printed.
func shows(name string, most int) bool {
	return len(name) <= most && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// problems collects mistakes.
type problems []string

func (p *problems) add(err error) {
	if err != nil {
		*p = append(*p, err.Error())
	}
}

func (p *problems) addf(format string, args ...any) { p.add(fault.New(fault.Invalid, format, args...)) }

func (p problems) err(what string) error {
	if len(p) == 0 {
		return nil
	}
	text := strings.Join(p, "; ")
	if what != "" {
		text = what + ": " + text
	}
	return fault.New(fault.Invalid, "%s", text)
}

// stamp formats an instant for keys and labels.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.999Z07:00") }
