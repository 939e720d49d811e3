package perdure

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Activity is the typed name of an activity: a function with side effects that workflows call as a
// step. It runs in the process of the workflow or, with OnQueue, on any worker of a queue. The
// engine runs an attempt again if its outcome was lost. So if a service accepts idempotency keys,
// pass it IdempotencyKey.
type Activity[I, O any] struct {
	name  string
	fn    func(context.Context, I) (O, error)
	tx    *txCode[I, O] // replaces fn in a transactional activity
	bound bool          // defined together with its code, not declared
	key   func(I) string
	opts  stepOptions
	spec  *model.TaskSpec // made from opts; nil without a queue

	taskKey func(I) Key // returns the key of a submitted task; see KeyedBy
	wrong   error       // what is wrong with opts
	at      string
}

// NewActivity defines an activity together with its code.
func NewActivity[I, O any](name string, fn func(context.Context, I) (O, error), opts ...ActivityOption) *Activity[I, O] {
	a := &Activity[I, O]{name: name, fn: fn, bound: true, at: callerPosition()}
	a.apply(opts)
	return a
}

// DeclareActivity names an activity whose code is bound later (Bind), or runs in other processes on
// a queue.
func DeclareActivity[I, O any](name string, opts ...ActivityOption) *Activity[I, O] {
	a := &Activity[I, O]{name: name, at: callerPosition()}
	a.apply(opts)
	return a
}

func (a *Activity[I, O]) apply(opts []ActivityOption) {
	for _, o := range opts {
		o.applyActivity(&a.opts)
	}
	if a.wrong = a.opts.check(); a.wrong == nil && a.hasQueue() {
		a.spec = a.opts.spec(a.name)
	}
}

// Bind joins a declared activity with its code.
func (a *Activity[I, O]) Bind(fn func(context.Context, I) (O, error)) Binding {
	return Binding{a.definition(fn, nil, true, callerPosition())}
}

// StepKeyedBy returns a copy of the activity that identifies each step by key(in). Without
// StepKeyedBy, a step is identified by its input and by how many earlier steps of this activity, in
// the same coroutine, had an equal input.
func (a *Activity[I, O]) StepKeyedBy(key func(I) string) *Activity[I, O] {
	c := *a
	c.key = key
	return &c
}

// KeyedBy returns a copy of the activity that derives the key of a submitted task from the input.
// Two submissions whose inputs give the same key are one task.
func (a *Activity[I, O]) KeyedBy(key func(I) Key) *Activity[I, O] {
	c := *a
	c.taskKey = key
	return &c
}

// Run executes the activity as a step and waits for its outcome.
func (a *Activity[I, O]) Run(ctx WorkflowCtx, in I, opts ...CallOption) (out O, err error) {
	s, err := a.step(ctx, in, opts)
	if err != nil {
		return out, err
	}
	s.Caller = ctx.x.Caller()
	p, err := ctx.x.Step(s)
	if err != nil {
		return out, remote(err)
	}
	if v, ok := kept[O](s, p); ok {
		return v, nil
	}
	return decodeRecorded[O](ctx, "output of activity", a.name, p), nil
}

// Go starts the activity as a step and returns a future of its outcome.
func (a *Activity[I, O]) Go(ctx WorkflowCtx, in I, opts ...CallOption) *Future[O] {
	s, err := a.step(ctx, in, opts)
	if err != nil {
		return failedFuture[O](err)
	}
	s.Caller = ctx.x.Caller()
	return stepFuture[O]("output of activity", a.name, ctx.x.StepFuture(s))
}

// Execution refers to the submitted task with this key. It does not read the store.
func (a *Activity[I, O]) Execution(key Key) Execution[O] {
	return Execution[O]{Ref: Ref{Workflow: model.TaskPrefix + a.name, Key: key.id}}
}

// ActivityOption configures an activity definition.
type ActivityOption interface{ applyActivity(*stepOptions) }

// AttemptTimeout limits one attempt: after d, the context of the attempt ends and the attempt
// fails. The time of a task's attempt starts when a worker claims the task. The default is no
// limit.
func AttemptTimeout(d time.Duration) TaskOption { return timeoutOption(d) }

type timeoutOption time.Duration

func (t timeoutOption) applyActivity(o *stepOptions) { o.timeout = time.Duration(t) }

func (t timeoutOption) applyCall(o *stepOptions) { o.timeout = time.Duration(t) }

func (t timeoutOption) applyStart(o *startOptions) {
	o.task = append(o.task, submitOption{"AttemptTimeout", t})
}

// hasQueue reports whether the activity has a queue.
func (a *Activity[I, O]) hasQueue() bool { return a.opts.task != nil && a.opts.task.queued }

func (a *Activity[I, O]) define(r *registry) { r.activity(a.definition(a.fn, a.tx, a.bound, a.at)) }

func (a *Activity[I, O]) definition(fn func(context.Context, I) (O, error), tx *txCode[I, O], bound bool, at string) activityDefinition {
	d := activityDefinition{name: a.name, bound: bound, at: at, input: inputOf[I]("input of activity", a.name), types: []typeOf{
		typeFor[I]("input of activity " + a.name), typeFor[O]("output of activity " + a.name),
	}}
	if a.hasQueue() {
		d.queue = a.opts.task.queue
	}
	if t := a.opts.task; t != nil { // inline activities have limits and breakers too
		d.limits, d.breaker = t.limits, t.breaker
	}
	switch {
	case fn != nil:
		d.fn, d.handler = fn, a.handler(fn)
	case tx != nil && tx.fn != nil:
		d.fn, d.db, d.transactional = tx, tx.db, true
	}
	d.wrong = a.wrong
	return d
}

// step builds the step of one call of the activity.
func (a *Activity[I, O]) step(ctx WorkflowCtx, in I, opts []CallOption) (*replay.Step, error) {
	o := a.opts
	for _, opt := range opts {
		opt.applyCall(&o)
	}

	if a.key != nil && !o.keyed {
		o.key, o.keyed = a.key(in), true
	}
	h := ctx.host()
	p, err := encodeFor(h, "input of activity", a.name, in)
	if err == nil {
		err = checkName("activity", a.name)
	}
	if err == nil {
		err = a.wrong
		if len(opts) > 0 {
			err = o.check()
		}
		if err != nil {
			err = fault.New(fault.Invalid, "activity %s: %w", a.name, err)
		}
	}
	if err != nil {
		return nil, Permanent(err)
	}

	s := newStep(a.name, &o)
	s.Input = &replay.StepInput{Payload: p, Normalize: normalize[I]}
	if !h.plain {
		s.Input.Identity, s.Input.Stored = h.codec.Identity(p), new(atomic.Pointer[model.Payload])
	}

	if o.task != nil && o.task.queued {
		return s, a.queue(h, s, &o, len(opts) > 0)
	}
	if o.task != nil {
		s.Pass = o.spec(a.name)
	}

	fn, tx := a.fn, a.tx
	if d, ok := h.activities[a.name]; ok && d.fn != nil {
		fn, _ = d.fn.(func(context.Context, I) (O, error))
		if tx, _ = d.fn.(*txCode[I, O]); fn == nil && tx == nil {
			return nil, Permanent(fault.New(fault.Invalid,
				"activity %s is bound at %s with code of other types than it is called with", a.name, d.at))
		}
	} else if tx != nil {
		return nil, Permanent(fault.New(fault.Invalid,
			"transactional activity %s (%s) must be given to Open, which prepares its database", a.name, a.at))
	}

	if tx != nil {
		bindTx(h, s, tx, in)
	} else if fn != nil {
		s.Body = func(ctx context.Context) (model.Payload, error) {
			if err := h.storeInput(ctx, s); err != nil {
				return model.Payload{}, err
			}
			out, err := fn(ctx, in)
			if err != nil {
				return model.Payload{}, err
			}
			p, err := result(ctx, h, "output of activity", a.name, out)
			if err == nil {
				keep(h, s, out, p)
			}
			return p, err
		}
	}
	return s, nil
}

// queue makes the workers of a queue execute a step.
func (a *Activity[I, O]) queue(h *host, s *replay.Step, o *stepOptions, own bool) error {
	wrong := func(format string, args ...any) error {
		return Permanent(fault.New(fault.Invalid, "activity %s: "+format, append([]any{a.name}, args...)...))
	}
	if h.activities[a.name].transactional || a.tx != nil {
		return wrong("%s", txQueued)
	}

	if o.retry != nil && o.retry != a.opts.retry {
		if err := o.retry.checkQueued(); err != nil {
			return wrong("%w", err)
		}
	}

	s.Task = a.spec
	if own || s.Task == nil {
		s.Task = o.spec(a.name)
		s.Task.Retry.Given = o.retry != nil && o.retry != a.opts.retry
	}

	s.Policy, s.AttemptTimeout = nil, 0
	s.Input.Stored, s.Input.Seal = nil, h.sealer("input of activity", a.name)
	return nil
}

// txQueued is the error text for a transactional activity that has a queue.
const txQueued = "it is transactional and has a queue: its transaction happens exactly once only in the process of its workflow, so remove the queue, " +
	"or let a workflow in the other process call it"
