package model

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// TaskPrefix begins the type in the address of a task that stands alone, which means that no
// workflow scheduled it. The name of a workflow may not begin like this.
const TaskPrefix = "task:"

// ReservedPrefix begins the names of built-in workflows and entities. Every app has their code.
const ReservedPrefix = "perdure."

// IsBuiltIn reports whether the type of an address is a workflow or an entity of Perdure itself.
func IsBuiltIn(typ string) bool {
	return strings.HasPrefix(strings.TrimPrefix(typ, EntityPrefix), ReservedPrefix)
}

// BatchType is the workflow of batch jobs. A batch job acts with the rights of the caller that
// asked for it. So only the request for a batch job may start one, and no code of users may.
const BatchType = ReservedPrefix + "batch"

// Clients start these built-in workflows by themselves: schedules, and calls that are made later.
const (
	ScheduleType = ReservedPrefix + "schedule"
	SendType     = ReservedPrefix + "send"
)

// FlovynPrefix begins the type of executions whose workers speak the Flovyn protocol. The name of
// their queue follows.
const FlovynPrefix = "flovyn:"

// ReadsLog reports whether workers read the history of an execution as the event log of another
// protocol. These workers number the events, so no event that they have seen may disappear.
func (a Address) ReadsLog() bool { return strings.HasPrefix(a.Type, FlovynPrefix) }

// DefaultQueue is the queue of a task that names none.
const DefaultQueue = "default"

// TaskStep is the step id of a task that stands alone.
const TaskStep = "task"

// TaskSpec says how a task is executed. It is stored when the task is scheduled, and never changes.
type TaskSpec struct {
	Kind  string `cbor:"1,keyasint"` // the name of the activity, which workers offer
	Queue string `cbor:"2,keyasint"`
	// Priority is the rank of the task in its queue. Tasks with a larger number go first.
	Priority int `cbor:"3,keyasint,omitempty"`
	// Fair is the fairness key. The keys of a tenant, including the empty key, share the queue
	// according to their weights. Weight is the weight of this key; 0 means 1.
	Fair   string `cbor:"4,keyasint,omitempty"`
	Weight int    `cbor:"5,keyasint,omitempty"`
	Retry  Retry  `cbor:"6,keyasint,omitzero"`
	// Timeouts; zero for none. ToStart counts from the time when the current attempt may begin, and
	// ToClose from its claim. Total counts from the time when the task was scheduled, over all
	// attempts. Silence is the longest time between two heartbeats.
	ToStart time.Duration `cbor:"7,keyasint,omitempty"`
	ToClose time.Duration `cbor:"8,keyasint,omitempty"`
	Silence time.Duration `cbor:"9,keyasint,omitempty"`
	Total   time.Duration `cbor:"10,keyasint,omitempty"`
	// Delay is the shortest time between the scheduling of the task and its first attempt.
	Delay time.Duration `cbor:"11,keyasint,omitempty"`
	// Breaker names the circuit breaker that counts the outcomes of the task; empty for none.
	Breaker string `cbor:"12,keyasint,omitempty"`
	// Limits are names of limits. The task holds one permit of each while it is claimed. The names
	// are sorted and without duplicates.
	Limits []string `cbor:"13,keyasint,omitempty"`
	// Trace is the trace context (W3C traceparent) of the caller that scheduled the task, if that
	// differs from the trace of the task's run.
	Trace string `cbor:"14,keyasint,omitempty"`
	// Same is set if the task was requeued with its original input. It names the task whose
	// idempotency key this task keeps. It is nil when the task has its own key.
	Same *TaskOrigin `cbor:"15,keyasint,omitempty"`
	// Fences are the fencing tokens of the entities that were locked when the task was scheduled.
	Fences []Fence `cbor:"16,keyasint,omitempty"`
}

// Bounds of a TaskSpec.
const (
	MaxTaskTime    = 100 * 365 * 24 * time.Hour // a time plus this does not overflow
	MinSilence     = 100 * time.Millisecond     // workers send three heartbeats in each Silence
	MaxPriority    = 1_000_000
	MaxWeight      = 1_000_000
	MaxTaskLimits  = 8
	MaxFinal       = 64
	MaxCoefficient = 1_000_000_000 // in thousandths
)

// Names of the settings of a task in error messages.
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

// SettingNames maps our names of settings to the names that the user has written. For a setting
// that is not in the map, errors use our name.
type SettingNames map[string]string

// Of returns the name of a setting.
func (n SettingNames) Of(setting string) string {
	if name, ok := n[setting]; ok {
		return name
	}
	return setting
}

// Check returns an error that lists all numbers of a spec that are out of bounds, and all settings
// that contradict each other. It does not check names.
func (t *TaskSpec) Check(called SettingNames) error {
	problems := t.bounds(called)
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if t.Silence > 0 && t.Silence < MinSilence {
		wrong("its %s is %s: workers send heartbeats at a third of it, so it must be at least %s", called.Of(SettingSilence), t.Silence, MinSilence)
	}
	if t.Total > 0 && t.Delay >= t.Total {
		wrong("its %s is %s, and its %s is %s: it would time out before it may begin", called.Of(SettingDelay), t.Delay, called.Of(SettingTotal), t.Total)
	}
	if r := &t.Retry; r.Max > 0 && r.Initial > r.Max {
		wrong("its %s is %s, and its %s is %s, which is shorter", called.Of(SettingInitial), r.Initial, called.Of(SettingMax), r.Max)
	}

	for i := 1; i < len(t.Limits); i++ {
		if t.Limits[i-1] >= t.Limits[i] {
			wrong("limit %s occurs twice, or is not in order", t.Limits[i])
		}
	}

	return errors.Join(problems...)
}

// Bounds returns an error that names the numbers of a spec that are out of bounds. Code that
// computes with a spec relies on that check.
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
			wrong("its %s is %s: it must be between 0 and 100 years", called.Of(d.name), d.value)
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
			wrong("its %s is %d: it must be between %d and %d", called.Of(n.name), n.value, n.from, n.to)
		}
	}

	if j := r.Jitter; j < 0 || j > 1000 {
		wrong("its %s is %v: it must be between 0 and 1", called.Of(SettingJitter), float64(j)/1000)
	}
	if c := r.Coefficient; c != 0 && (c < 1000 || c > MaxCoefficient) {
		wrong("its %s is %v: pauses must not get shorter, so it must be between 1 and %d (0 means 2)", called.Of(SettingCoefficient), float64(c)/1000, MaxCoefficient/1000)
	}

	return problems
}

// TaskOrigin is what the idempotency key of a task is derived from.
type TaskOrigin struct {
	Run  RunID  `cbor:"1,keyasint,omitzero"`
	Step string `cbor:"2,keyasint,omitempty"`
}

// Retry says when a failed attempt is repeated. The zero value waits 1 s, then twice as long each
// time, at most 1 min, without a limit of attempts. See LongestPause.
type Retry struct {
	MaxAttempts int           `cbor:"1,keyasint,omitempty"` // including the first; 0 for no limit
	Initial     time.Duration `cbor:"2,keyasint,omitempty"`
	Max         time.Duration `cbor:"3,keyasint,omitempty"`
	// Coefficient multiplies the pause each time. Jitter makes the pause longer or shorter, at
	// random, by up to this share of the pause. Both are in thousandths.
	Coefficient int64 `cbor:"4,keyasint,omitempty"`
	Jitter      int64 `cbor:"5,keyasint,omitempty"`
	// Final are kinds and types of failures that end the retries.
	Final []string `cbor:"6,keyasint,omitempty"`
	// Given says that the policy comes from a call or a submission. It replaces the policy of the
	// activity.
	Given bool `cbor:"7,keyasint,omitempty"`
}

// NewRetry returns the policy for these numbers. If no maximum is given and the first pause is
// longer than the default maximum, NewRetry stores the first pause as the maximum. So other
// programs that read the policy need not know LongestPause.
//
//arch:parameters these are the five numbers of a retry policy, as users write them
func NewRetry(attempts int, initial, longest time.Duration, coefficient, jitter float64) Retry {
	if longest == 0 && initial > defaultLongest {
		longest = LongestPause(initial, longest)
	}
	return Retry{MaxAttempts: attempts, Initial: initial, Max: longest, Coefficient: thousandths(coefficient), Jitter: thousandths(jitter)}
}

// thousandths converts a number to thousandths. A number that is too large becomes the largest
// int64, so that it stays out of bounds. NaN becomes a number that is out of all bounds.
func thousandths(f float64) int64 {
	switch f = math.Round(f * 1000); {
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f > math.MinInt64:
		return int64(f)
	}
	return math.MinInt64
}

// IsZero reports whether no field is set.
func (r *Retry) IsZero() bool {
	return r.MaxAttempts == 0 && r.Initial == 0 && r.Max == 0 && r.Coefficient == 0 && r.Jitter == 0 && len(r.Final) == 0 && !r.Given
}

// defaultLongest is the longest pause of a policy that sets no maximum. If the first pause of the
// policy is longer, that pause is the maximum instead.
const defaultLongest = time.Minute

// LongestPause returns the maximum of the pauses of a policy, from its first pause and the maximum
// that it sets. If it sets none, the maximum is 1 min, or the first pause if that is longer.
func LongestPause(initial, limit time.Duration) time.Duration {
	if limit > 0 {
		return limit
	}
	return max(defaultLongest, initial)
}

// Pause returns how long to wait after the given number of failed attempts. u, in [-1, 1), is the
// random number for the jitter. Pause never overflows.
func (r *Retry) Pause(failed int, u float64) time.Duration {
	initial, limit, coefficient := r.Initial, r.Max, r.Coefficient
	if initial <= 0 {
		initial = time.Second
	}
	limit = LongestPause(initial, limit)
	if coefficient < 1000 {
		coefficient = 2000
	}
	d := float64(initial) * math.Pow(float64(coefficient)/1000, float64(max(failed, 1)-1))
	if !(d < float64(limit)) { // also true if d is infinite
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

// Worth reports whether another attempt may follow the given attempt, which ended with the failure.
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

// Compare orders tasks by their addresses, then by their runs, then by their ids.
func (r TaskRef) Compare(o TaskRef) int {
	return cmp.Or(
		strings.Compare(r.Address.Tenant, o.Address.Tenant), strings.Compare(r.Address.Type, o.Address.Type), strings.Compare(r.Address.Key, o.Address.Key),
		r.Run.Compare(o.Run), strings.Compare(r.ID, o.ID),
	)
}

// String names the task in errors.
func (r TaskRef) String() string {
	step, attempt, _ := strings.Cut(r.ID, AttemptMark)
	text := r.Address.String()
	if step != TaskStep {
		text += ", step " + step
	}
	if strings.HasPrefix(attempt, lingeringMark) {
		text += " (ended, but its code still runs)"
	}
	return text
}

// lingeringMark marks the name of a claim whose code still runs after its end.
const lingeringMark = "ended-"

// Lingering returns the name under which a claim that has ended holds permits of limits, because
// its code still runs.
func (r ClaimRef) Lingering() TaskRef {
	r.TaskRef.ID += AttemptMark + lingeringMark + strconv.FormatInt(r.Claim, 10)
	return r.TaskRef
}

// ClaimRef is the token of a claim: the position of the event that recorded it. A worker with an
// older token gets an error and changes nothing.
type ClaimRef struct {
	TaskRef
	Claim int64 `cbor:"4,keyasint,omitempty"`
}

// RequestID returns the request id of a report of the claim. With it, a repeated report takes
// effect only once.
func (r ClaimRef) RequestID() string { return fmt.Sprintf("%s/%d/%s", r.Run, r.Claim, r.ID) }

// Claim is a task handed to a worker.
type Claim struct {
	Ref  ClaimRef  `cbor:"1,keyasint"`
	Spec *TaskSpec `cbor:"2,keyasint"`
	// Input is the input with which the task was scheduled.
	Input Payload `cbor:"3,keyasint,omitzero"`
	// Attempt is the number of the attempt, from 1.
	Attempt int `cbor:"4,keyasint"`
	// Scheduled is when the task was scheduled, Claimed when this attempt began, Deadline when it
	// must have ended; zero for never.
	Scheduled Time `cbor:"5,keyasint,omitempty"`
	Claimed   Time `cbor:"6,keyasint,omitempty"`
	Deadline  Time `cbor:"7,keyasint,omitempty"`
	// Visible is the earliest time at which a worker could have claimed the attempt.
	Visible Time `cbor:"12,keyasint,omitempty"`
	// Trace is the trace context of the attempt; empty when it is not traced.
	Trace string `cbor:"13,keyasint,omitempty"`
	// Identity and Step are the run and the step from which the idempotency key is derived, if they
	// differ from the run and the step of the task.
	Identity RunID  `cbor:"8,keyasint,omitzero"`
	Step     string `cbor:"9,keyasint,omitempty"`
	// Progress is the last progress that an earlier attempt reported.
	Progress Payload `cbor:"10,keyasint,omitzero"`
	// Canceled says that the task was asked to stop before it began here.
	Canceled bool `cbor:"11,keyasint,omitempty"`
	// Parent is the step that started the run of the task and gets its outcome; zero when a client
	// started it.
	Parent Link `cbor:"14,keyasint,omitzero"`
}

// TaskReport is how a claim ended.
type TaskReport struct {
	Ref    ClaimRef `cbor:"1,keyasint"`
	Output Payload  `cbor:"2,keyasint,omitzero"`
	// Failure is the failure of the attempt. It is nil when the attempt succeeded, or when the
	// worker returns the claim.
	Failure *Failure `cbor:"3,keyasint,omitempty"`
	// RetryAfter is the shortest pause before the next attempt, if the error demands one; 0 for the
	// pause of the policy.
	RetryAfter time.Duration `cbor:"4,keyasint,omitempty"`
	// Returned says that the worker gives the task back without using up an attempt, because the
	// worker shuts down, or because the task asked for a snooze of After.
	Returned bool          `cbor:"5,keyasint,omitempty"`
	After    time.Duration `cbor:"6,keyasint,omitempty"`
	// By is the name of the remote worker that reports. Its session sets it. It is empty if the
	// node itself reports for one of its own workers: see SpeaksFor.
	By string `cbor:"7,keyasint,omitempty"`
}

// AnyKind in the kinds of an offer says that the worker executes tasks of every kind on its queues.
const AnyKind = "*"

// TaskOffer says what a task worker can execute.
type TaskOffer struct {
	Name    string   // name of the worker, unique while it lives; operators and histories see it
	Tenants []string // the tenants whose tasks it executes
	Queues  []string
	Kinds   []string // kinds of tasks, or AnyKind
	Slots   int      // how many claims it may hold
	Version string
	// Limits and Breakers are the names that the code of the activities uses. Operators see them;
	// nothing else depends on them.
	Limits, Breakers []string
	// Held are the claims that the worker still holds. It got them from an owner that has lost the
	// connection to the worker.
	Held []ClaimRef
	// TellsEnd says that the worker tells the engine when the code of a lost claim has ended. Until
	// then the claim keeps its permits. The permits of other workers' claims become free as soon as
	// the worker is told that the claim is lost.
	TellsEnd bool
}

// Executes reports whether a worker that offers these kinds executes tasks of a kind.
func Executes(kinds []string, kind string) bool {
	return slices.Contains(kinds, kind) || slices.Contains(kinds, AnyKind)
}

// Kinds of timeouts. The failure of a timeout has one of them as its Type, and FailureTimeout as
// its Kind.
const (
	TimeoutToStart = "timeout.schedule_to_start"
	TimeoutToClose = "timeout.start_to_close"
	TimeoutSilence = "timeout.heartbeat"
	TimeoutTotal   = "timeout.schedule_to_close"
)

// Types of failures of tasks that the engine itself writes.
const (
	FailureLost    = "worker_lost" // the worker disappeared with the claim
	FailurePoison  = "poison"      // several workers in a row disappeared with the task
	FailureSpent   = "attempts_spent"
	FailureHistory = "history_limit" // there is no room for another attempt
)
