package perdure

import (
	"errors"
	"reflect"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// StartOption configures one start or submission: Key, Reuse, ParentClose, Labels, RequestID,
// StartDelay, StartAt, ExecutionTimeout, RetryPolicy, Signal.With and, for submissions, a
// TaskOption.
type StartOption interface{ applyStart(*startOptions) }

type startOptions struct {
	key       Key
	keyed     bool
	reuse     model.ReusePolicy
	policy    model.ParentClosePolicy
	requestID string
	with      []signalWith
	labels    []model.Label
	retry     *RetryPolicy
	terms     model.Terms
	timed     []string        // names of the options that have set terms
	task      []submitOption  // options that only submissions accept
	spec      *model.TaskSpec // of a task
	in        reflect.Type    // of the input
	err       error
}

// refuse records a mistake in the options. The start fails with the first mistake.
func (o *startOptions) refuse(format string, args ...any) {
	if o.err == nil {
		o.err = Permanent(fault.New(fault.Invalid, format, args...))
	}
}

// Reuse says what a start does if the execution of its key is closed. If the execution is open, a
// start attaches to that execution, or returns ErrConflict if the inputs differ. The default is
// ReturnExisting.
type Reuse int

// Policies of Reuse.
const (
	ReturnExisting Reuse = iota // attaches to the closed execution
	ReuseIfFailed               // starts a new run unless the last run completed
	ReuseAlways                 // starts a new run
)

func (r Reuse) applyStart(o *startOptions) {
	switch r {
	case ReturnExisting:
		o.reuse = model.ReturnExisting
	case ReuseIfFailed:
		o.reuse = model.ReuseIfFailed
	case ReuseAlways:
		o.reuse = model.ReuseAlways
	default:
		o.refuse("there is no Reuse %d", int(r))
	}
}

// ParentClose says what happens to a child when its parent ends. The default is CancelChild.
type ParentClose int

// Policies of ParentClose.
const (
	CancelChild  ParentClose = iota // the engine cancels the child
	AbandonChild                    // the child continues
)

func (p ParentClose) applyStart(o *startOptions) {
	switch p {
	case CancelChild:
		o.policy = model.CancelChild
	case AbandonChild:
		o.policy = model.AbandonChild
	default:
		o.refuse("there is no ParentClose %d", int(p))
	}
}

// StartDelay starts the code of a workflow d after the start of the execution. The execution exists
// immediately: it has its key, accepts signals and updates, is listed with the reason "start", and
// can be cancelled. The default is no delay. See docs/starting.md.
func StartDelay(d time.Duration) StartOption {
	return termOption{"StartDelay", func(o *startOptions) { o.terms.Delay = d }}
}

// StartAt starts the code of a workflow at t, like a StartDelay that ends at t. With a time in the
// past, the code starts immediately. As an option of a Schedule, StartAt skips all fire times
// before t.
func StartAt(t time.Time) interface {
	StartOption
	ScheduleOption
} {
	return startAt(t)
}

// ExecutionTimeout ends an execution d after its start or, with StartDelay or StartAt, d after the
// time at which its code may start. The limit is for all runs of the execution together: continued
// runs, attempts that a RetryPolicy adds, and the pauses between them. The default is no limit.
//
// The execution ends as failed. errors.Is matches its error with ErrTimeout, and the Type of the
// error is "timeout.execution". The code does not run again, so no clean-up runs. The engine
// releases the locks of the execution, and cancels its children unless they have AbandonChild.
func ExecutionTimeout(d time.Duration) StartOption {
	return termOption{"ExecutionTimeout", func(o *startOptions) { o.terms.Timeout = d }}
}

// termOption sets one of the times of an execution.
type termOption struct {
	name string
	set  func(*startOptions)
}

func (t termOption) applyStart(o *startOptions) {
	o.timed = append(o.timed, t.name)
	t.set(o)
}

type startAt time.Time

func (t startAt) applyStart(o *startOptions) {
	o.timed = append(o.timed, "StartAt")
	if y := time.Time(t).UTC().Year(); y < 1970 || y > 9999 {
		o.refuse("StartAt is in the year %d, must be from 1970 to 9999", y)
		return
	}
	o.terms.NotBefore = model.TimeOf(time.Time(t))
}

func (t startAt) applySchedule(o *scheduleOptions) { o.spec.StartAt = time.Time(t) }

// checkTerms returns an error that says what is wrong with the times of an execution, or with the
// retry policy of its start.
func (o *startOptions) checkTerms(what string) error {
	if len(o.timed) == 0 && o.retry == nil {
		return nil
	}
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fault.New(fault.Invalid, what+": "+format, args...))
	}
	checkTimes(wrong, namedTime{"StartDelay", o.terms.Delay}, namedTime{"ExecutionTimeout", o.terms.Timeout})
	if o.terms.Delay != 0 && o.terms.NotBefore != 0 {
		wrong("it has StartDelay and StartAt: give one of them")
	}

	if p := o.retry; p != nil {
		p.check(wrong)
		if err := p.checkStored(); err != nil {
			wrong("%w", err)
		}
	}

	return errors.Join(problems...)
}

// storedTerms returns the times of an execution that the options set, or nil if they set none.
func (o *startOptions) storedTerms() *model.Terms {
	if len(o.timed) == 0 && (o.retry == nil || o.spec != nil) {
		return nil
	}
	t := o.terms
	if o.retry != nil && o.spec == nil {
		policy := o.retry.toModel()
		policy.Given = true
		t.Retry = &policy
	}
	return &t
}

// Labels are name-value pairs by which List finds the execution: `label.region = "eu"`. A name has
// 1 to 64 characters: letters, digits, _ . and -. A value has up to 256 bytes. An execution has at
// most 32 labels. The labels stay after ContinueAsNew, and workflow code changes them with
// SetLabel. A start that attaches to an execution does not change its labels.
func Labels(kv map[string]string) StartOption { return labelsOption(kv) }

type labelsOption map[string]string

func (l labelsOption) applyStart(o *startOptions) {
	for _, one := range model.Labels(l) {
		if err := model.CheckLabel(one.Name, one.Value); err != nil {
			o.refuse("%w", err)
		}
		if one.Value == "" {
			o.refuse("label %s has no value", one.Name)
		}
		o.labels = model.SetLabel(o.labels, one.Name, one.Value)
	}
	if n := len(o.labels); n > model.MaxLabels {
		o.refuse("an execution has %d labels, at most %d are allowed", n, model.MaxLabels)
	}
}
