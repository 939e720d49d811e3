package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// TaskPrefix begins the type of the address of a task that stands alone. Workflows may not have
// such names.
const TaskPrefix = "task:"

// ReservedPrefix begins the names of workflows that are ours: every app has their code.
const ReservedPrefix = "perdure."

// DefaultQueue is where a task waits that names no queue.
const DefaultQueue = "default"

// TaskStep is the step that a run of its own has its task under.
const TaskStep = "task"

// TaskSpec is how a task is to be carried out. It is stored with what schedules it, and never
// changes.
type TaskSpec struct {
	Kind  string `cbor:"1,keyasint"` // the activity; what workers offer
	Queue string `cbor:"2,keyasint"`
	// Priority: larger ones first.
	Priority int `cbor:"3,keyasint,omitempty"`
	// Fair is the key that shares the queue evenly with the other keys of its tenant; empty is a
	// key like any other. Weight is its share, 1 when 0.
	Fair   string `cbor:"4,keyasint,omitempty"`
	Weight int    `cbor:"5,keyasint,omitempty"`
	Retry  Retry  `cbor:"6,keyasint,omitzero"`
	// Timeouts; zero for none. ToStart counts from the moment at which the current attempt may
	// begin, ToClose from the claim, Total from the scheduling, over all attempts; Silence between
	// two heartbeats.
	ToStart time.Duration `cbor:"7,keyasint,omitempty"`
	ToClose time.Duration `cbor:"8,keyasint,omitempty"`
	Silence time.Duration `cbor:"9,keyasint,omitempty"`
	Total   time.Duration `cbor:"10,keyasint,omitempty"`
	// Delay is how long after the scheduling the first attempt may begin.
	Delay time.Duration `cbor:"11,keyasint,omitempty"`
	// Breaker names the circuit breaker that its outcomes count for; empty for none.
	Breaker string `cbor:"12,keyasint,omitempty"`
	// Limits are names of resources of which it holds one permit each while it is claimed, sorted,
	// without duplicates.
	Limits []string `cbor:"13,keyasint,omitempty"`
	// Trace is the trace context (W3C traceparent) of whoever scheduled it, when it is another than
	// that of its run.
	Trace string `cbor:"14,keyasint,omitempty"`
	// Same is the task whose idempotency key it has, when it was requeued with the input that it
	// had; nil when it has its own.
	Same *TaskOrigin `cbor:"15,keyasint,omitempty"`
	// Fences are the tokens of the entities that were locked where it was scheduled.
	Fences []Fence `cbor:"16,keyasint,omitempty"`
}

// Bounds of a TaskSpec.
const (
	MaxTaskTime    = 100 * 365 * 24 * time.Hour // so that sums with it do not overflow
	MinSilence     = 100 * time.Millisecond     // workers beat at a third of it
	MaxPriority    = 1_000_000
	MaxWeight      = 1_000_000
	MaxTaskLimits  = 8
	MaxFinal       = 64
	MaxCoefficient = 1_000_000_000 // in thousandths
)

// What the settings of a task are called in complaints.
const (
	SettingPriority    = "priority"
	SettingWeight      = "weight"
	SettingToStart     = "schedule-to-start time-out"
	SettingToClose     = "attempt time-out"
	SettingSilence     = "heartbeat time-out"
	SettingTotal       = "schedule-to-close time-out"
	SettingDelay       = "delay"
	SettingAttempts    = "number of attempts"
	SettingInitial     = "first pause of the retry policy"
	SettingMax         = "longest pause of the retry policy"
	SettingCoefficient = "coefficient of the retry policy"
	SettingJitter      = "jitter of the retry policy"
	SettingLimits      = "number of limits"
	SettingFinal       = "number of final failures"
)

// SettingNames are what settings of a task are called by whoever has written them, by what we call
// them. Those that are missing have our names.
type SettingNames map[string]string

// Of is what a setting is called.
func (n SettingNames) Of(setting string) string {
	if name, ok := n[setting]; ok {
		return name
	}
	return setting
}

// Check says what is wrong with a spec, all of it, but for names: what is out of bounds, and what
// makes no sense.
func (t *TaskSpec) Check(called SettingNames) error {
	problems := t.bounds(called)
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if t.Silence > 0 && t.Silence < MinSilence {
		wrong("its %s is %s: workers beat at a third of it, so it is at least %s", called.Of(SettingSilence), t.Silence, MinSilence)
	}
	if t.Total > 0 && t.Delay >= t.Total {
		wrong("its %s is %s, and its %s is %s: it would be over before it may begin", called.Of(SettingDelay), t.Delay, called.Of(SettingTotal), t.Total)
	}
	if r := &t.Retry; r.Max > 0 && r.Initial > r.Max {
		wrong("its %s is %s, and its %s is %s, which is shorter", called.Of(SettingInitial), r.Initial, called.Of(SettingMax), r.Max)
	}

	for i := 1; i < len(t.Limits); i++ {
		if t.Limits[i-1] >= t.Limits[i] {
			wrong("limit %s is there twice, or out of order", t.Limits[i])
		}
	}

	return errors.Join(problems...)
}

// Bounds says which numbers of a spec are out of bounds. Whoever computes with them relies on that.
func (t *TaskSpec) Bounds() error { return errors.Join(t.bounds(nil)...) }

func (t *TaskSpec) bounds(called SettingNames) (problems []error) {
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	r := &t.Retry
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{SettingToStart, t.ToStart},
		{SettingToClose, t.ToClose},
		{SettingSilence, t.Silence},
		{SettingTotal, t.Total},
		{SettingDelay, t.Delay},
		{SettingInitial, r.Initial},
		{SettingMax, r.Max},
	} {
		if d.value < 0 || d.value > MaxTaskTime {
			wrong("its %s is %s: it lies between 0 and a hundred years", called.Of(d.name), d.value)
		}
	}

	for _, n := range []struct {
		name        string
		value, from int64
		to          int64
	}{
		{SettingPriority, int64(t.Priority), -MaxPriority, MaxPriority},
		{SettingWeight, int64(t.Weight), 0, MaxWeight},
		{SettingAttempts, int64(r.MaxAttempts), 0, math.MaxInt64},
		{SettingLimits, int64(len(t.Limits)), 0, MaxTaskLimits},
		{SettingFinal, int64(len(r.Final)), 0, MaxFinal},
	} {
		if n.value < n.from || n.value > n.to {
			wrong("its %s is %d: it lies between %d and %d", called.Of(n.name), n.value, n.from, n.to)
		}
	}

	if j := r.Jitter; j < 0 || j > 1000 {
		wrong("its %s is %v: it is a share, from 0 to 1", called.Of(SettingJitter), float64(j)/1000)
	}
	if c := r.Coefficient; c != 0 && (c < 1000 || c > MaxCoefficient) {
		wrong("its %s is %v: pauses do not get shorter, so it lies between 1 and %d (0 stands for 2)", called.Of(SettingCoefficient), float64(c)/1000, MaxCoefficient/1000)
	}

	return problems
}

// TaskOrigin is what the idempotency key of a task is made of.
type TaskOrigin struct {
	Run  RunID  `cbor:"1,keyasint,omitzero"`
	Step string `cbor:"2,keyasint,omitempty"`
}

// Retry is when a failed attempt of a task is repeated. Zero is 1 s, doubled, at most 1 min,
// without end.
type Retry struct {
	MaxAttempts int           `cbor:"1,keyasint,omitempty"` // all of them; 0 for no limit
	Initial     time.Duration `cbor:"2,keyasint,omitempty"`
	Max         time.Duration `cbor:"3,keyasint,omitempty"`
	// Coefficient multiplies the pause each time, and Jitter moves it by up to that share either
	// way; both in thousandths.
	Coefficient int64 `cbor:"4,keyasint,omitempty"`
	Jitter      int64 `cbor:"5,keyasint,omitempty"`
	// Final are kinds and types of failures that are not worth another attempt.
	Final []string `cbor:"6,keyasint,omitempty"`
	// Given tells that a call or a submission brought the policy along. The policy of the activity
	// has no say then.
	Given bool `cbor:"7,keyasint,omitempty"`
}

// NewRetry is the policy that people mean by these numbers: a first pause of more than the longest
// one that there is by default is the longest one.
func NewRetry(attempts int, initial, longest time.Duration, coefficient, jitter float64) Retry {
	if longest == 0 && initial > time.Minute {
		longest = initial
	}
	return Retry{MaxAttempts: attempts, Initial: initial, Max: longest, Coefficient: thousandths(coefficient), Jitter: thousandths(jitter)}
}

// thousandths saturates, so that what is out of bounds stays there. What is not a number is out of
// all bounds.
func thousandths(f float64) int64 {
	switch f = math.Round(f * 1000); {
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f > math.MinInt64:
		return int64(f)
	}
	return math.MinInt64
}

// IsZero reports whether nothing is said.
func (r *Retry) IsZero() bool {
	return r.MaxAttempts == 0 && r.Initial == 0 && r.Max == 0 && r.Coefficient == 0 && r.Jitter == 0 && len(r.Final) == 0 && !r.Given
}

// Pause is how long to wait after the given number of failed attempts. u, in [-1, 1), is the luck
// that jitter is made of. It never overflows.
func (r *Retry) Pause(failed int, u float64) time.Duration {
	initial, limit, coefficient := r.Initial, r.Max, r.Coefficient
	if initial <= 0 {
		initial = time.Second
	}
	if limit <= 0 {
		limit = time.Minute
	}
	if coefficient < 1000 {
		coefficient = 2000
	}
	d := float64(initial) * math.Pow(float64(coefficient)/1000, float64(max(failed, 1)-1))
	if !(d < float64(limit)) { // also when it is infinite
		d = float64(limit)
	}
	if r.Jitter > 0 {
		d = max(d*(1+u*float64(min(r.Jitter, 1000))/1000), 0)
	}
	if d >= math.MaxInt64 {
		return math.MaxInt64
	}

	return time.Duration(d)
}

// Worth reports whether a failure that ends the given attempt is worth another one.
func (r *Retry) Worth(attempt int, f *Failure) bool {
	if f.Permanent || (r.MaxAttempts > 0 && attempt >= r.MaxAttempts) {
		return false
	}
	for _, name := range r.Final {
		if name == f.Kind || name == f.Type {
			return false
		}
	}
	return true
}

// TaskRef names a task: a step of a run.
type TaskRef struct {
	Address Address `cbor:"1,keyasint,omitzero"`
	Run     RunID   `cbor:"2,keyasint,omitzero"`
	ID      string  `cbor:"3,keyasint,omitempty"`
}

// Compare orders tasks by their addresses, then by their runs.
func (r TaskRef) Compare(o TaskRef) int {
	return cmp.Or(
		strings.Compare(r.Address.Tenant, o.Address.Tenant), strings.Compare(r.Address.Type, o.Address.Type), strings.Compare(r.Address.Key, o.Address.Key),
		r.Run.Compare(o.Run), strings.Compare(r.ID, o.ID),
	)
}

// String names the task for people.
func (r TaskRef) String() string {
	if r.ID == TaskStep {
		return r.Address.String()
	}
	return fmt.Sprintf("%s, step %s", r.Address, r.ID)
}

// ClaimRef is the token of a claim: the position of the event that recorded it. Whoever has an
// older one is told so, and changes nothing.
type ClaimRef struct {
	TaskRef
	Claim int64 `cbor:"4,keyasint,omitempty"`
}

// RequestID is the id under which a report of the claim is sent: it takes effect once.
func (r ClaimRef) RequestID() string { return fmt.Sprintf("%s/%d/%s", r.Run, r.Claim, r.ID) }

// Claim is a task handed to a worker.
type Claim struct {
	Ref  ClaimRef  `cbor:"1,keyasint"`
	Spec *TaskSpec `cbor:"2,keyasint"`
	// Input is as it was given to whoever scheduled the task.
	Input Payload `cbor:"3,keyasint,omitzero"`
	// Attempt counts from 1.
	Attempt int `cbor:"4,keyasint"`
	// Scheduled is when the task came into being, Claimed when this attempt began, Deadline when it
	// ends at the latest; zero for never.
	Scheduled Time `cbor:"5,keyasint,omitempty"`
	Claimed   Time `cbor:"6,keyasint,omitempty"`
	Deadline  Time `cbor:"7,keyasint,omitempty"`
	// Visible is when the attempt could have begun.
	Visible Time `cbor:"12,keyasint,omitempty"`
	// Trace is the trace context that the attempt belongs to; empty when nobody traces.
	Trace string `cbor:"13,keyasint,omitempty"`
	// Identity is the run that idempotency keys are made of, and Step the step, when it is another
	// than that of the task.
	Identity RunID  `cbor:"8,keyasint,omitzero"`
	Step     string `cbor:"9,keyasint,omitempty"`
	// Progress is what the last attempt reported last.
	Progress Payload `cbor:"10,keyasint,omitzero"`
	// Canceled tells that the task was asked to end before it began here.
	Canceled bool `cbor:"11,keyasint,omitempty"`
}

// TaskReport is how a claim ended.
type TaskReport struct {
	Ref    ClaimRef `cbor:"1,keyasint"`
	Output Payload  `cbor:"2,keyasint,omitzero"`
	// Failure of the attempt; nil when it succeeded, unless the claim is returned.
	Failure *Failure `cbor:"3,keyasint,omitempty"`
	// RetryAfter is when the next attempt may begin at the earliest, if the error says so; 0 for
	// what the policy says.
	RetryAfter time.Duration `cbor:"4,keyasint,omitempty"`
	// Returned gives the claim back without consuming an attempt: the worker leaves, or the task
	// asked for a snooze of After.
	Returned bool          `cbor:"5,keyasint,omitempty"`
	After    time.Duration `cbor:"6,keyasint,omitempty"`
}

// TaskOffer says what a task worker can execute.
type TaskOffer struct {
	Name    string   // of the worker, unique as long as it lives; for people and in histories
	Tenants []string // whose tasks; none for the default one
	Queues  []string
	Kinds   []string
	Slots   int // how many claims it may hold
	Version string
	// Limits and Breakers are the names that the code of the activities gives. People are told of
	// them, and nothing depends on them.
	Limits, Breakers []string
}

// Kinds of timeouts, as the type of the failure: its kind is FailureTimeout.
const (
	TimeoutToStart = "timeout.schedule_to_start"
	TimeoutToClose = "timeout.start_to_close"
	TimeoutSilence = "timeout.heartbeat"
	TimeoutTotal   = "timeout.schedule_to_close"
)

// Types of failures of tasks that the engine itself writes.
const (
	FailureLost    = "worker_lost" // the worker went away with the claim
	FailurePoison  = "poison"      // workers keep going away with it
	FailureSpent   = "attempts_spent"
	FailureHistory = "history_limit" // there is no room for another attempt
)
