package perdure

import (
	"slices"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// TaskOption says how a queued activity is executed. It is an option of the activity, of one call,
// or of one submission. An option of a call or a submission overrides the same option of the
// activity.
type TaskOption interface {
	ActivityOption
	CallOption
	StartOption
}

// HeartbeatTimeout fails an attempt if the engine receives no heartbeat from its worker for d.
// Workers send heartbeats automatically, three times in each period of d. So HeartbeatTimeout
// detects a process that is gone, but not an activity that hangs. AttemptTimeout ends an attempt
// that hangs. d is at least 100 ms. The default is no limit.
func HeartbeatTimeout(d time.Duration) TaskOption {
	return taskOption{"HeartbeatTimeout", func(s *taskSettings) { s.silence = d }}
}

// ScheduleToStart fails a task if no worker starts it within d, counted from the moment at which
// the task may start. The limit applies to each attempt. A task that fails in this way gets no
// further attempt. The default is no limit.
func ScheduleToStart(d time.Duration) TaskOption {
	return taskOption{"ScheduleToStart", func(s *taskSettings) { s.toStart = d }}
}

// ScheduleToClose limits the time of all attempts of a task together, including the pauses and
// waits between them. The default is no limit.
func ScheduleToClose(d time.Duration) TaskOption {
	return taskOption{"ScheduleToClose", func(s *taskSettings) { s.total = d }}
}

// Priority makes a queue start a task before tasks with lower numbers. The default is 0. Negative
// numbers are allowed.
func Priority(n int) TaskOption {
	return taskOption{"Priority", func(s *taskSettings) { s.priority = n }}
}

// FairKey shares a queue between keys, such as customers, so that one customer with thousands of
// tasks does not make the other customers wait. Among tasks of one priority, each key gets its
// turn, in proportion to its weight. A weight of 0 means 1.
func FairKey(key string, weight int) TaskOption {
	return taskOption{"FairKey", func(s *taskSettings) { s.fair, s.weight = key, weight }}
}

// Delay is how long a task waits after it was scheduled before it may start. The default is 0.
func Delay(d time.Duration) TaskOption {
	return taskOption{"Delay", func(s *taskSettings) { s.delay = d }}
}

// taskOption implements TaskOption.
type taskOption struct {
	name string
	set  func(*taskSettings)
}

func (t taskOption) applyActivity(o *stepOptions) {
	var s taskSettings // a copy, because handles are shared
	if o.task != nil {
		s = *o.task
	}
	t.set(&s)
	s.given = append(slices.Clip(s.given), t.name)
	o.task = &s
}

func (t taskOption) applyCall(o *stepOptions) { t.applyActivity(o) }

func (t taskOption) applyStart(o *startOptions) { o.task = append(o.task, submitOption{t.name, t}) }

// submitOption is an option that submissions accept and other starts do not.
type submitOption struct {
	name string
	ActivityOption
}

// taskSettings are the values that task options have set.
type taskSettings struct {
	queue                          string
	silence, toStart, total, delay time.Duration
	priority                       int
	fair                           string
	weight                         int
	breaker                        string
	limits                         []string

	queued bool
	given  []string // the options, for error texts
}

// Bounds of option values. Package model defines the bounds for tasks.
const (
	maxTaskTime    = model.MaxTaskTime
	maxCoefficient = model.MaxCoefficient / 1000
)

// check passes everything that is wrong with the settings to wrong.
func (s *taskSettings) check(wrong func(format string, args ...any)) {
	if !s.queued {
		for _, name := range s.given {
			if name != "Limit" && name != "Breaker" {
				wrong("%s is for an activity that has a queue: give it OnQueue too", name)
				break
			}
		}
	} else if err := checkText("the name of queue", s.queue, maxName); err != nil {
		wrong("%w", err)
	}

	checkTimes(wrong, namedTime{"HeartbeatTimeout", s.silence}, namedTime{"ScheduleToStart", s.toStart}, namedTime{"ScheduleToClose", s.total}, namedTime{"Delay", s.delay})
	if s.silence > 0 && s.silence < model.MinSilence {
		wrong("HeartbeatTimeout is %s, must be at least %s", s.silence, model.MinSilence)
	}

	if s.total > 0 && s.delay >= s.total {
		wrong("Delay is %s, and ScheduleToClose is %s: the task would time out before it may start", s.delay, s.total)
	}
	if s.priority < -model.MaxPriority || s.priority > model.MaxPriority {
		wrong("Priority is %d, must be from -%d to %d", s.priority, model.MaxPriority, model.MaxPriority)
	}

	if s.weight < 0 || s.weight > model.MaxWeight {
		wrong("FairKey %q has weight %d, must be from 1 to %d, or 0 for the default of 1", s.fair, s.weight, model.MaxWeight)
	}
	if s.fair != "" {
		if err := checkText("FairKey", s.fair, maxName); err != nil {
			wrong("%w", err)
		}
	}

	if slices.Contains(s.given, "Breaker") {
		if err := checkText("the name of breaker", s.breaker, maxName); err != nil {
			wrong("%w", err)
		}
	}

	if len(s.limits) > model.MaxTaskLimits {
		wrong("Limit names %d limits, at most %d are allowed", len(s.limits), model.MaxTaskLimits)
	}
	for _, name := range s.limits {
		if err := checkText("the name of limit", name, maxName); err != nil {
			wrong("%w", err)
		}
	}
}

// spec returns the settings of a task in the form of the engine.
func (o *stepOptions) spec(kind string) *model.TaskSpec {
	t := o.task
	s := &model.TaskSpec{
		Kind: kind, Queue: t.queue, Priority: t.priority, Fair: t.fair, Weight: t.weight, ToStart: t.toStart, ToClose: o.timeout, Silence: t.silence, Total: t.total,
		Delay: t.delay, Breaker: t.breaker, Limits: t.limits,
	}
	if o.retry != nil {
		s.Retry = o.retry.toModel()
	}
	return s
}
