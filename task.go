package perdure

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/pool"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/payload"
)

// DefaultQueue carries what is submitted without a queue.
const DefaultQueue = model.DefaultQueue

// TaskOption says how a queued activity is carried out. It belongs to the activity, to a call of it, or to a submission; the last one that says something counts.
type TaskOption interface {
	ActivityOption
	CallOption
	StartOption
}

// taskSettings are what task options have said.
type taskSettings struct {
	queue                          string
	silence, toStart, total, delay time.Duration
	priority                       int
	fair                           string
	weight                         int
	breaker                        string
	limits                         []string

	queued bool
	given  []string // the options, for people
}

// taskOption is one of them.
type taskOption struct {
	name string
	set  func(*taskSettings)
}

func (t taskOption) applyActivity(o *stepOptions) {
	var s taskSettings // a copy: handles are shared
	if o.task != nil {
		s = *o.task
	}
	t.set(&s)
	s.given = append(slices.Clip(s.given), t.name)
	o.task = &s
}

func (t taskOption) applyCall(o *stepOptions) { t.applyActivity(o) }

func (t taskOption) applyStart(o *startOptions) { o.task = append(o.task, submitOption{t.name, t}) }

// submitOption is an option of a submission that is not one of other starts.
type submitOption struct {
	name string
	ActivityOption
}

// OnQueue has an activity carried out by whoever serves the queue, instead of by the process that runs the workflow: it becomes a task.
func OnQueue(name string) TaskOption {
	return taskOption{"OnQueue", func(s *taskSettings) { s.queue, s.queued = name, true }}
}

// HeartbeatTimeout has an attempt fail when nothing is heard of its worker for d. Workers beat by themselves, at a third of it: it tells that a process is gone, not
// that an activity hangs, which AttemptTimeout does.
func HeartbeatTimeout(d time.Duration) TaskOption {
	return taskOption{"HeartbeatTimeout", func(s *taskSettings) { s.silence = d }}
}

// ScheduleToStart has a task fail when no worker begins it within d of the moment at which it, or its next attempt, may begin. It is not repeated then.
func ScheduleToStart(d time.Duration) TaskOption {
	return taskOption{"ScheduleToStart", func(s *taskSettings) { s.toStart = d }}
}

// ScheduleToClose limits all attempts of a task together, with the pauses and the waits between them.
func ScheduleToClose(d time.Duration) TaskOption {
	return taskOption{"ScheduleToClose", func(s *taskSettings) { s.total = d }}
}

// Priority has tasks of a queue begun before those of smaller priority; 0 by default. It may be negative.
func Priority(n int) TaskOption {
	return taskOption{"Priority", func(s *taskSettings) { s.priority = n }}
}

// FairKey shares a queue out among keys, such as customers: one that schedules thousands does not make the others wait. Among tasks of one priority each key gets its
// turn, in proportion to its weight; 0 is 1.
func FairKey(key string, weight int) TaskOption {
	return taskOption{"FairKey", func(s *taskSettings) { s.fair, s.weight = key, weight }}
}

// Breaker has the outcomes of a task count for a circuit breaker of that name: while it is open, no attempt begins in any process, and none is consumed.
func Breaker(name string) TaskOption {
	return taskOption{"Breaker", func(s *taskSettings) { s.breaker = name }}
}

// Limit has a task hold a permit of each of the named limits while it is executed, such as connections to a service. A limit is one for all
// processes of a store; [App.SetLimit] says how much of it there is.
func Limit(names ...string) TaskOption {
	return taskOption{"Limit", func(s *taskSettings) {
		s.limits = slices.Clone(names)
		slices.Sort(s.limits)
		s.limits = slices.Compact(s.limits)
	}}
}

// Delay is how long after it was scheduled a task may begin.
func Delay(d time.Duration) TaskOption {
	return taskOption{"Delay", func(s *taskSettings) { s.delay = d }}
}

// Bounds of what options say. Those of tasks are the engine's.
const (
	maxTaskTime    = model.MaxTaskTime
	maxCoefficient = model.MaxCoefficient / 1000
)

// check says what is wrong with the settings.
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
		wrong("HeartbeatTimeout is %s: workers beat at a third of it, so it is at least %s", s.silence, model.MinSilence)
	}
	if s.total > 0 && s.delay >= s.total {
		wrong("Delay is %s, and ScheduleToClose is %s: the task would be over before it may begin", s.delay, s.total)
	}
	if s.priority < -model.MaxPriority || s.priority > model.MaxPriority {
		wrong("Priority is %d: it lies between -%d and %d", s.priority, model.MaxPriority, model.MaxPriority)
	}
	if s.weight < 0 || s.weight > model.MaxWeight {
		wrong("FairKey %q has weight %d: it lies between 1 and %d (0 stands for 1)", s.fair, s.weight, model.MaxWeight)
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

// spec is how a task is carried out.
func (o *stepOptions) spec(kind string) *model.TaskSpec {
	t := o.task
	s := &model.TaskSpec{
		Kind: kind, Queue: t.queue, Priority: t.priority, Fair: t.fair, Weight: t.weight, ToStart: t.toStart, ToClose: o.timeout, Silence: t.silence, Total: t.total,
		Delay: t.delay, Breaker: t.breaker, Limits: t.limits,
	}
	if o.retry != nil {
		s.Retry = o.retry.stored()
	}
	return s
}

// stored is the policy as the engine knows it. What it cannot know (If, and errors by type) is decided by the worker.
func (p *RetryPolicy) stored() model.Retry {
	r := model.NewRetry(p.MaxAttempts, p.Initial, p.Max, p.Coefficient, p.Jitter)
	for _, k := range p.Except {
		for _, name := range k.names {
			if !slices.Contains(r.Final, name) {
				r.Final = append(r.Final, name)
			}
		}
	}
	return r
}

// checkQueued says why a policy that was given with a call cannot be that of a task: a function does not reach the worker.
func (p *RetryPolicy) checkQueued() error {
	if p.If != nil {
		return fault.New(fault.Invalid, "RetryPolicy.If does not reach the worker that serves the queue: give the policy to the activity itself")
	}
	for _, k := range p.Except {
		if len(k.names) == 0 {
			return fault.New(fault.Invalid, "RetryPolicy.Except: %s does not reach the worker that serves the queue: "+
				"give the policy to the activity itself, or use ErrorNamed", k.text)
		}
	}
	return nil
}

// queued reports whether the activity has a queue.
func (a *Activity[I, O]) queued() bool { return a.opts.task != nil && a.opts.task.queued }

// ---- what an activity on a queue may do

// Bounds of unreadableAfter.
const (
	minUnreadable = 10 * time.Second
	maxUnreadable = 10 * time.Minute
)

// unreadableAfter is how long a task waits whose payloads cannot be read here: a key or a store is missing, which another worker may have. It grows with the age of the
// task: every try is in the history, and a workflow that waits for a thousand such tasks would fill it within minutes, and fail for good.
func unreadableAfter(c *model.Claim) time.Duration {
	return min(max(c.Claimed.Sub(c.Scheduled)/2, minUnreadable), maxUnreadable)
}

// openProgress undoes the sealing of what the last attempt reported, while the task can still be given back: an activity that took a store which is away for no
// progress would do again what was done. What is damaged or gone does not come back; LastProgress tells of that.
func (h *host) openProgress(ctx context.Context, c *model.Claim) error {
	if c.Progress.Size() == 0 || c.Progress.Encoding == model.JSON {
		return nil
	}
	p, err := h.open(ctx, brief, "progress of activity", c.Spec.Kind, c.Progress)
	switch {
	case err == nil:
		c.Progress = p
	case errors.Is(err, payload.ErrDamaged), errors.Is(err, payload.ErrNotFound):
		return nil
	}
	return err
}

// handler is the code of the activity as a worker executes it.
func (a *Activity[I, O]) handler(fn func(context.Context, I) (O, error)) func(*host) pool.Handler {
	var worth func(error) bool
	if a.opts.retry != nil {
		worth = a.opts.retry.worth()
	}
	return func(h *host) pool.Handler {
		return pool.Handler{Worth: worth, Owner: h, Run: func(ctx context.Context, t *pool.Task) (model.Payload, error) {
			in, err := decode[I](callReader{h, ctx}, "input of activity", a.name, t.Claim().Input)
			if err == nil {
				err = h.openProgress(ctx, t.Claim())
			}
			switch {
			case fault.Is(err, fault.Blocked) || fault.Is(err, fault.Unavailable):
				return model.Payload{}, &pool.GiveBack{After: unreadableAfter(t.Claim()), Err: err}
			case err != nil:
				return model.Payload{}, Permanent(public(err)) // another attempt would read the same
			}
			out, err := fn(ctx, in)
			if err != nil {
				return model.Payload{}, err
			}
			return result(ctx, h, "output of activity", a.name, out)
		}}
	}
}

// Heartbeat reports how far an activity on a queue has come, and returns an error once it should end: ErrCanceled when somebody cancelled it, ErrTimeout when
// its attempt has taken too long, ErrConflict when the task is another worker's by now or its workflow does not wait for it any more, ErrUnavailable when this process shuts down. What was
// reported last is LastProgress for the next attempt, and is shown to people. It may be called often: only the last value of a second leaves the
// process. An activity that runs inline has nobody to report to; there it only tells whether ctx has ended.
func Heartbeat[T any](ctx context.Context, progress T) error {
	if ctx.Err() != nil {
		return public(context.Cause(ctx))
	}
	t := pool.From(ctx)
	if t == nil {
		return nil
	}
	h := t.Owner().(*host)
	kind := t.Claim().Spec.Kind
	p, err := encode(h, "progress of activity", kind, progress)
	if err == nil {
		err = h.limit("progress of activity", kind, p)
	}
	if err == nil {
		err = t.Progress(p)
	}
	return public(err)
}

// LastProgress is what the last attempt of the task that reported anything reported last; false when there is nothing, or nothing that a T can hold.
func LastProgress[T any](ctx context.Context) (progress T, ok bool) {
	t := pool.From(ctx)
	if t == nil || t.Claim().Progress.Size() == 0 {
		return progress, false
	}
	h := t.Owner().(*host)
	kind := t.Claim().Spec.Kind
	progress, err := decode[T](callReader{h, ctx}, "progress of activity", kind, t.Claim().Progress)
	if err != nil {
		h.logger.Warn("the progress of a task cannot be read; it begins anew", "activity", kind, "error", err)
		return *new(T), false
	}
	return progress, true
}

// Snooze is returned by an activity on a queue that cannot go on now: the task is given back and may begin again after d. That consumes no attempt. Inline, where there is
// nothing to give back, the step fails. A time in the past is now; one of more than a hundred years is a mistake, and the task fails with it.
func Snooze(d time.Duration) error {
	if d > maxTaskTime {
		return replay.Permanent(fault.New(fault.Invalid, "Snooze of %s, which is more than a hundred years", d))
	}
	return replay.Permanent(&pool.GiveBack{After: max(d, 0)})
}

// ---- settings

// TaskConfig is how a process executes tasks. The zero value is right for most programs.
type TaskConfig struct {
	// Slots is how many tasks run at once; 100. A negative number has this process execute none, although it has their code.
	Slots int
	// Prefetch is how many more are claimed before there is a slot for them. With tasks of milliseconds it spares them the way; with longer ones it makes them
	// wait here while other processes are free. None by default.
	Prefetch int
	// Queues are served beside those that the activities name, and beside DefaultQueue: those that calls and submissions name.
	Queues []string
	// HighLoad and LowLoad are shares of Slots and Prefetch together. Once so many are taken, no more are claimed until it has come down to the low one. It is no
	// bound: tasks that come at the same moment may take all slots. By default there are no such marks: a full process claims no more anyway.
	HighLoad, LowLoad float64
	// HighMemory and LowMemory are shares of the memory that the process may have (GOMEMLIMIT): 0.9 and 0.8; the low one is eight ninths of the high one when only that is
	// given. Without such a limit they mean nothing.
	HighMemory, LowMemory float64
	// DrainTimeout is how long Close waits for tasks that run. Then their contexts end, and they are given back without consuming an attempt. As that of steps by default.
	DrainTimeout time.Duration
}

// check says what is wrong with the settings: all of it.
func (c *TaskConfig) check() error {
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fault.New(fault.Invalid, "tasks: "+format, args...))
	}
	if c.Slots > maxSlots || c.Prefetch > maxSlots {
		wrong("%d slots and %d more are too many, at most %d each are allowed", c.Slots, c.Prefetch, maxSlots)
	}
	if c.Prefetch < 0 {
		wrong("Prefetch is %d, which is less than nothing", c.Prefetch)
	}
	if c.DrainTimeout < 0 {
		wrong("DrainTimeout is %s, which is less than nothing", c.DrainTimeout)
	}
	for _, name := range c.Queues {
		if err := checkText("the name of queue", name, maxName); err != nil {
			wrong("%w", err)
		}
	}
	for _, m := range []struct {
		name      string
		high, low float64
	}{{"Load", c.HighLoad, c.LowLoad}, {"Memory", c.HighMemory, c.LowMemory}} {
		if m.high == 0 && m.low == 0 {
			continue
		}
		if !(m.low >= 0 && m.low < m.high && m.high <= 1) { // also when one is not a number
			wrong("High%s is %v and Low%s is %v: they are shares from 0 to 1, and the low one is smaller", m.name, m.high, m.name, m.low)
		}
	}
	return public(errors.Join(problems...))
}

const maxSlots = 100_000
