package perdure

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/replay"
)

// ErrorKind tells errors apart, for RetryPolicy.Except. Make one with ErrorType, ErrorIs or ErrorNamed.
type ErrorKind struct {
	text    string // for people
	matches func(error) bool
	names   []string // of kinds and types of failures that are all that is meant; empty when no name says it
	err     error    // what is wrong with it
}

// String names the errors that are meant.
func (k ErrorKind) String() string { return k.text }

// ErrorType is every error that is an E, or wraps one, as errors.As finds it: ErrorType[*stripe.CardError]().
func ErrorType[E error]() ErrorKind {
	return ErrorKind{text: "type " + reflect.TypeFor[E]().String(), matches: func(err error) bool {
		_, ok := errors.AsType[E](err)
		return ok
	}}
}

// ErrorIs is every error that is target, or wraps it, as errors.Is finds it: ErrorIs(sql.ErrNoRows). An error of this package, such as ErrTimeout,
// also stands for what will be recorded as one, such as an attempt that took too long.
func ErrorIs(target error) ErrorKind {
	if target == nil {
		return ErrorKind{err: errors.New("ErrorIs of nil")}
	}
	var names []string
	for kind, sentinel := range kinds {
		if sentinel == target { //nolint:errorlint // the very sentinel
			names = append(names, kind.String())
		}
	}
	slices.Sort(names)
	return ErrorKind{text: fmt.Sprintf("%q", target), names: names, matches: func(err error) bool {
		return errors.Is(err, target) || (&RemoteError{Kind: replay.FailureOf(err).Kind}).Is(target)
	}}
}

// ErrorNamed is every error whose RemoteError would have that Kind or Type, to the letter: ErrorNamed("panic"), ErrorNamed("*http.MaxBytesError"). It
// is for names that are read from somewhere; ErrorType and ErrorIs cannot be misspelt.
func ErrorNamed(name string) ErrorKind {
	if name == "" {
		return ErrorKind{err: errors.New("ErrorNamed without a name")}
	}
	return ErrorKind{text: name, names: []string{name}, matches: func(err error) bool {
		f := replay.FailureOf(err)
		return f.Kind == name || f.Type == name
	}}
}

// worth decides whether an error is worth another attempt, by Except and If; nil when every one is.
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

// check says what is wrong with the options of a step: all of it.
func (o *stepOptions) check() error {
	if o.retry == nil && o.timeout == 0 && o.task == nil {
		return nil
	}
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fault.New(fault.Invalid, format, args...))
	}
	checkTimes(wrong, namedTime{"AttemptTimeout", o.timeout})
	if p := o.retry; p != nil {
		p.check(wrong)
	}
	if t := o.task; t != nil {
		t.check(wrong)
	}
	return errors.Join(problems...)
}

// namedTime is a duration that somebody has given.
type namedTime struct {
	name  string
	value time.Duration
}

// checkTimes refuses what is less than nothing, or so long that sums with it could overflow.
func checkTimes(wrong func(format string, args ...any), times ...namedTime) {
	for _, d := range times {
		switch {
		case d.value < 0:
			wrong("%s is %s, which is less than nothing", d.name, d.value)
		case d.value > maxTaskTime:
			wrong("%s is %s, which is more than a hundred years", d.name, d.value)
		}
	}
}

func (p *RetryPolicy) check(wrong func(format string, args ...any)) {
	if p.MaxAttempts < 0 {
		wrong("RetryPolicy.MaxAttempts is %d: it counts all attempts, and 0 is no limit", p.MaxAttempts)
	}
	checkTimes(wrong, namedTime{"RetryPolicy.Initial", p.Initial}, namedTime{"RetryPolicy.Max", p.Max})
	if p.Max > 0 && p.Initial > p.Max {
		wrong("RetryPolicy.Initial is %s, longer than its Max of %s", p.Initial, p.Max)
	}
	if c := p.Coefficient; c != 0 && !(c >= 1 && c <= maxCoefficient) { // also when it is not a number
		wrong("RetryPolicy.Coefficient is %v: pauses do not get shorter, so it is at least 1 (0 stands for 2), and %d at most", c, int(maxCoefficient))
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
