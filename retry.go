package perdure

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// RetryPolicy says when another attempt follows a failed attempt. It is an option of an activity,
// of one call, of a workflow and of one start. The policy of a call or a start replaces the policy
// of its activity or workflow. The zero value never gives up: the first pause is 1 s, each pause is
// twice as long as the previous pause, and no pause is longer than 1 min. The comments of the
// fields have the default of a zero field in parentheses.
//
//	charge.Run(ctx, order, perdure.RetryPolicy{MaxAttempts: 5, Initial: 100 * time.Millisecond})
type RetryPolicy struct {
	// MaxAttempts is how many attempts there may be, including the first attempt. 0 means no limit.
	MaxAttempts int
	// Initial is the pause after the first attempt (1 s). Max is the longest pause (1 min).
	Initial, Max time.Duration
	// Coefficient multiplies the pause after each attempt (2). Jitter, from 0 to 1, is the share of
	// a pause by which the pause may be longer or shorter (0).
	Coefficient, Jitter float64
	// Except selects errors after which no attempt follows, as if they were Permanent.
	Except []ErrorKind
	// If decides whether another attempt follows an error that Except does not select. With a nil
	// function, another attempt always follows. A function works only in a policy that is given
	// together with code: to NewActivity, NewWorkflow or an inline call.
	If func(error) bool
}

func (p RetryPolicy) applyActivity(o *stepOptions) { o.retry = &p }

func (p RetryPolicy) applyCall(o *stepOptions) { o.retry = &p }

func (p RetryPolicy) applyStart(o *startOptions) { o.retry = &p }

func (p RetryPolicy) applyWorkflow(o *workflowOptions) { o.retry = &p }

// Exponential pauses 1 s, doubles the pause up to 60 s, and makes at most n attempts.
func Exponential(n int) RetryPolicy {
	return RetryPolicy{MaxAttempts: n, Initial: time.Second, Max: time.Minute, Coefficient: 2}
}

// Constant pauses d each time and makes at most n attempts. With d = 0 there is no pause.
func Constant(n int, d time.Duration) RetryPolicy {
	if d == 0 {
		d = 1 // zero would be the default
	}
	return RetryPolicy{MaxAttempts: n, Initial: d, Max: d, Coefficient: 1}
}

// Permanent marks an error after which no policy makes another attempt.
func Permanent(err error) error { return replay.Permanent(err) }

// RetryAfter makes the next attempt, if there is one, wait for d. For an inline step, d replaces
// the pause of the policy. For a task, and for a run of a workflow, the longer of d and that pause
// applies. A negative d means 0. A d of more than a hundred years fails the step or task with
// ErrInvalid.
func RetryAfter(err error, d time.Duration) error {
	if err != nil && d > maxTaskTime {
		return replay.Permanent(fault.New(fault.Invalid, "RetryAfter of %s, which is more than a hundred years: %w", d, err))
	}
	return replay.RetryAfter(err, d)
}

func (p RetryPolicy) policy() *replay.Policy {
	return &replay.Policy{
		MaxAttempts: p.MaxAttempts, Initial: p.Initial, Max: p.Max, Coefficient: p.Coefficient, Jitter: p.Jitter, If: p.worth(),
	}
}

// toModel returns the policy in the form of the engine. The engine cannot call If or compare the
// types of errors, so the worker does both.
func (p *RetryPolicy) toModel() model.Retry {
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

// worth returns a function that decides by Except and If whether another attempt follows an error.
// It returns nil if the policy has neither.
func (p *RetryPolicy) worth() func(error) bool {
	if len(p.Except) == 0 {
		return p.If
	}
	except, also := p.Except, p.If
	return func(err error) bool {
		for _, k := range except {
			if k.matches(err) {
				return false
			}
		}
		return also == nil || also(err)
	}
}

func (p *RetryPolicy) check(wrong func(format string, args ...any)) {
	if p.MaxAttempts < 0 {
		wrong("RetryPolicy.MaxAttempts is %d, must be at least 1, or 0 for no limit", p.MaxAttempts)
	}
	checkTimes(wrong, namedTime{"RetryPolicy.Initial", p.Initial}, namedTime{"RetryPolicy.Max", p.Max})
	if p.Max > 0 && p.Initial > p.Max {
		wrong("RetryPolicy.Initial is %s, longer than its Max of %s", p.Initial, p.Max)
	}
	// The condition is written so that it also refuses NaN.
	if c := p.Coefficient; c != 0 && !(c >= 1 && c <= maxCoefficient) {
		wrong("RetryPolicy.Coefficient is %v, must be from 1 to %d, or 0 for the default of 2", c, int(maxCoefficient))
	}
	if j := p.Jitter; !(j >= 0 && j <= 1) {
		wrong("RetryPolicy.Jitter is %v: it is a share, from 0 to 1", j)
	}

	for i, k := range p.Except {
		switch {
		case k.err != nil:
			wrong("RetryPolicy.Except, number %d: %w", i+1, k.err)
		case k.matches == nil:
			wrong("RetryPolicy.Except, number %d is empty: make it with ErrorType, ErrorIs or ErrorNamed", i+1)
		}
	}
}

// checkQueued returns an error if the policy of a call cannot be the policy of a task. A policy
// with a function cannot, because a function cannot be sent to the worker.
func (p *RetryPolicy) checkQueued() error {
	if p.If != nil {
		return fault.New(fault.Invalid, "RetryPolicy.If cannot be sent to the worker that serves the queue: give the policy to the activity itself")
	}
	for _, k := range p.Except {
		if len(k.names) == 0 {
			return fault.New(fault.Invalid, "RetryPolicy.Except: %s cannot be sent to the worker that serves the queue: "+
				"give the policy to the activity itself, or use ErrorNamed", k.text)
		}
	}
	return nil
}

// checkStored returns an error if a policy cannot be stored with an execution. A policy with a
// function cannot, because a function cannot be sent to the process that runs the execution.
func (p *RetryPolicy) checkStored() error {
	if p.If != nil {
		return fault.New(fault.Invalid, "RetryPolicy.If cannot be stored with an execution: give the policy to NewWorkflow")
	}
	for _, k := range p.Except {
		if len(k.names) == 0 && k.err == nil {
			return fault.New(fault.Invalid, "RetryPolicy.Except: %s cannot be stored with an execution: give the policy to NewWorkflow, or use ErrorNamed", k.text)
		}
	}
	return nil
}

// ErrorKind selects errors, for RetryPolicy.Except. ErrorType, ErrorIs and ErrorNamed return an
// ErrorKind.
type ErrorKind struct {
	text    string // the result of String
	matches func(error) bool
	// names are the names of the kinds and types of failures that the ErrorKind selects. It is
	// empty if names cannot express the selection.
	names []string
	err   error // what is wrong with the ErrorKind
}

// String names the errors that the ErrorKind selects.
func (k ErrorKind) String() string { return k.text }

// ErrorType selects every error that is an E or wraps one, as errors.As finds it:
// ErrorType[*stripe.CardError]().
func ErrorType[E error]() ErrorKind {
	return ErrorKind{text: "type " + reflect.TypeFor[E]().String(), matches: func(err error) bool {
		_, ok := errors.AsType[E](err)
		return ok
	}}
}

// ErrorIs selects every error that is target or wraps it, as errors.Is finds it:
// ErrorIs(sql.ErrNoRows). If target is an error of this package, such as ErrTimeout, ErrorIs also
// selects failures that are recorded with its kind, such as the failure of an attempt that took too
// long.
func ErrorIs(target error) ErrorKind {
	if target == nil {
		return ErrorKind{err: errors.New("ErrorIs of nil")}
	}
	var names []string
	for kind, sentinel := range kinds {
		if sentinel == target { //nolint:errorlint // only the sentinel itself
			names = append(names, kind.String())
		}
	}
	slices.Sort(names)
	return ErrorKind{text: fmt.Sprintf("%q", target), names: names, matches: func(err error) bool {
		return errors.Is(err, target) || (&RemoteError{Kind: replay.FailureOf(err).Kind}).Is(target)
	}}
}

// ErrorNamed selects every error whose RemoteError has exactly that Kind or Type:
// ErrorNamed("panic"), ErrorNamed("*http.MaxBytesError"). Use it for names from a configuration.
// Prefer ErrorType and ErrorIs in code, because the compiler checks them.
func ErrorNamed(name string) ErrorKind {
	if name == "" {
		return ErrorKind{err: errors.New("ErrorNamed without a name")}
	}
	return ErrorKind{text: name, names: []string{name}, matches: func(err error) bool {
		f := replay.FailureOf(err)
		return f.Kind == name || f.Type == name
	}}
}
