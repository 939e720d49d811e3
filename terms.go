package perdure

import (
	"errors"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// termOption says something about the times of an execution.
type termOption struct {
	name string
	set  func(*startOptions)
}

func (t termOption) applyStart(o *startOptions) {
	o.timed = append(o.timed, t.name)
	t.set(o)
}

// StartDelay has the code of a workflow begin d after the start. The execution exists at once: it has its key, takes signals and
// updates, is listed with the reason "start", and can be canceled. See docs/starting.md.
func StartDelay(d time.Duration) StartOption {
	return termOption{"StartDelay", func(o *startOptions) { o.terms.Delay = d }}
}

// StartAt is StartDelay until t. A time that has passed is now. As an option of a Schedule, it leaves out what is before t.
func StartAt(t time.Time) interface {
	StartOption
	ScheduleOption
} {
	return startAt(t)
}

type startAt time.Time

func (t startAt) applyStart(o *startOptions) {
	o.timed = append(o.timed, "StartAt")
	if y := time.Time(t).UTC().Year(); y < 1970 || y > 9999 {
		o.refuse("StartAt is in the year %d: it lies between 1970 and 9999", y)
		return
	}
	o.terms.NotBefore = model.TimeOf(time.Time(t))
}

func (t startAt) applySchedule(o *scheduleOptions) { o.spec.StartAt = time.Time(t) }

// ExecutionTimeout ends an execution that has not ended d after its beginning. It counts all runs together: those that continue as new,
// those that are repeated because they failed, and the pauses between them. The execution ends as failed, with an error that is
// ErrTimeout and has the Type "timeout.execution". Its code has no say in that: nothing of it runs any more, its locks are released, and
// its children are canceled unless they have AbandonChild.
func ExecutionTimeout(d time.Duration) StartOption {
	return termOption{"ExecutionTimeout", func(o *startOptions) { o.terms.Timeout = d }}
}

// checkTerms says what is wrong with the times of an execution, and with the policy that it is started with.
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

// checkStored says why a policy cannot be kept with an execution: a function does not reach the process that runs it.
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

// agreed is what the options say about the times of an execution; nil when that is nothing.
func (o *startOptions) agreed() *model.Terms {
	if len(o.timed) == 0 && (o.retry == nil || o.spec != nil) {
		return nil
	}
	t := o.terms
	if o.retry != nil && o.spec == nil {
		policy := o.retry.stored()
		policy.Given = true
		t.Retry = &policy
	}
	return &t
}
