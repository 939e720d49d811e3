package perdure

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// CallOption configures one step, call or send: StepKey, RequestID, RetryPolicy or a TaskOption.
type CallOption interface{ applyCall(*stepOptions) }

// StepKey identifies a step explicitly. Without a StepKey, a step of Do is identified by its name
// and by how often the same coroutine has used that name before. So give a StepKey to each Do in a
// loop.
func StepKey(k string) CallOption { return stepKey(k) }

type stepKey string

func (k stepKey) applyCall(o *stepOptions) { o.key, o.keyed = string(k), true }

type stepOptions struct {
	retry     *RetryPolicy
	timeout   time.Duration
	key       string
	keyed     bool
	requestID string
	task      *taskSettings // nil unless a task option was given
}

// callOptions collects options. Most calls have none.
func callOptions(opts []CallOption) *stepOptions {
	if len(opts) == 0 {
		return &noOptions
	}
	o := new(stepOptions)
	for _, opt := range opts {
		opt.applyCall(o)
	}
	return o
}

var noOptions stepOptions // never changed

// check returns an error that names everything that is wrong with the options of a step.
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

// namedTime is the value of an option that is a duration, with the name of the option.
type namedTime struct {
	name  string
	value time.Duration
}

// checkTimes refuses durations that are negative, or so long that sums with them could overflow.
func checkTimes(wrong func(format string, args ...any), times ...namedTime) {
	for _, d := range times {
		switch {
		case d.value < 0:
			wrong("%s is %s, must be >= 0", d.name, d.value)
		case d.value > maxTaskTime:
			wrong("%s is %s, which is more than a hundred years", d.name, d.value)
		}
	}
}

func newStep(name string, o *stepOptions) *replay.Step {
	s := &replay.Step{Name: name, Key: o.key, Keyed: o.keyed, AttemptTimeout: o.timeout}
	if o.retry != nil {
		s.Policy = o.retry.policy()
	}
	return s
}

// Do runs fn as a step. The engine records its outcome, and on replay Do returns the recorded
// outcome without running fn. fn runs where the workflow runs, at least once. In a loop, give each
// step a StepKey.
//
//	id, err := perdure.Do(ctx, "reserve", func(ctx context.Context) (string, error) {
//		return reserve(ctx, order)
//	})
func Do[T any](ctx WorkflowCtx, name string, fn func(context.Context) (T, error), opts ...CallOption) (out T, err error) {
	o := callOptions(opts)
	if err = checkName("step", name); err != nil {
		return out, Permanent(err)
	}

	if err = o.check(); err == nil && o.task != nil {
		err = fault.New(fault.Invalid, "%s is for activities: the function of Do always runs in the process of its workflow", o.task.given[0])
	}
	if err != nil {
		return out, Permanent(fault.New(fault.Invalid, "step %s: %w", name, err))
	}

	s := newStep(name, o)
	s.Caller = ctx.x.Caller()
	h := ctx.host()
	s.Body = func(ctx context.Context) (model.Payload, error) {
		v, err := fn(ctx)
		if err != nil {
			return model.Payload{}, err
		}
		p, err := result(ctx, h, "result of step", s.Name, v)
		if err == nil {
			keep(h, s, v, p)
		}
		return p, err
	}

	p, err := ctx.x.Step(s)
	if err != nil {
		return out, remote(err)
	}
	if v, ok := kept[T](s, p); ok {
		return v, nil
	}
	return decodeRecorded[T](ctx, "result of step", name, p), nil
}

// IdempotencyKey returns a key that is the same for all attempts of the current step. It is empty
// outside a step. Pass it to services that support idempotency keys, so that they ignore the
// repetition of an attempt whose outcome was lost.
func IdempotencyKey(ctx context.Context) string {
	if s := replay.StepFrom(ctx); s != nil {
		return s.IdempotencyKey()
	}
	return ""
}

// Attempt returns the number of the current attempt of a step, from 1. It is 0 outside a step.
func Attempt(ctx context.Context) int {
	if s := replay.StepFrom(ctx); s != nil {
		return s.Attempt()
	}
	return 0
}
