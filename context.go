package perdure

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// WorkflowCtx is what workflow code may do. It is deliberately not a context.Context, so that nobody hands it to something that has effects.
type WorkflowCtx struct{ x replay.Ctx }

func (ctx WorkflowCtx) sender() outlet { return ctx }
func (ctx WorkflowCtx) caller() inlet  { return ctx }

// Self is the address of this execution.
func (ctx WorkflowCtx) Self() Ref {
	a, run := ctx.x.Self()
	return Ref{Workflow: a.Type, Key: a.Key, Run: run.String()}
}

// Sleep parks until d has passed or the scope ends.
func (ctx WorkflowCtx) Sleep(d time.Duration) error { return remote(ctx.x.Sleep(d)) }

// Timer is a durable timer as future.
func (ctx WorkflowCtx) Timer(d time.Duration) *Future[time.Time] {
	f := &Future[time.Time]{f: ctx.x.Timer(d)}
	f.value = func(_ WorkflowCtx, f *replay.Future) (time.Time, error) { return f.At().Std(), nil }
	return f
}

// Attempt counts runs with the same input, one after another because the one before failed (RetryPolicy), from 1.
func (ctx WorkflowCtx) Attempt() int { return ctx.x.Attempt() }

// Now is the time of the history position, equal on replay.
func (ctx WorkflowCtx) Now() time.Time { return ctx.x.Now() }

// Rand is seeded by the execution, equal on replay.
func (ctx WorkflowCtx) Rand() *rand.Rand { return ctx.x.Rand() }

// UUID is equal on replay.
func (ctx WorkflowCtx) UUID() string { return ctx.x.UUID() }

// Log is silent on replay.
func (ctx WorkflowCtx) Log() *slog.Logger {
	if !ctx.x.Live() {
		return silent
	}
	a, run := ctx.x.Self()
	return ctx.host().logger.With("workflow", a.Type, "key", a.Key, "run_id", run.String())
}

var silent = slog.New(slog.DiscardHandler)

// WithTimeout limits every wait under the returned scope: they end with ErrTimeout once d has passed.
func (ctx WorkflowCtx) WithTimeout(d time.Duration) WorkflowCtx {
	return WorkflowCtx{ctx.x.WithTimeout(d)}
}

// Detached survives cancellation of the execution and deadlines around it, for clean-up.
func (ctx WorkflowCtx) Detached() WorkflowCtx { return WorkflowCtx{ctx.x.Detached()} }

// Err is ErrCanceled or ErrTimeout once the scope has ended.
func (ctx WorkflowCtx) Err() error { return ctx.x.Err() }

// OnInterrupt has fn run when the execution is cancelled, with the reason, beside the code that the cancellation ends: to tell somebody, or
// to stop something that goes on outside. Its steps are durable and are not cancelled, and the execution does not end before fn has.
func (ctx WorkflowCtx) OnInterrupt(fn func(ctx WorkflowCtx, reason string) error) {
	if fn == nil {
		panic(fault.New(fault.Invalid, "the function that OnInterrupt is given is nil"))
	}
	ctx.x.OnInterrupt(func(x replay.Ctx, reason string) error { return fn(WorkflowCtx{x}, reason) })
}

// WaitUpdates waits until every update that has begun is answered, those that come meanwhile included. When the workflow function returns or
// continues as new, an update whose handler still runs is refused. It is for the workflow function: two handlers that call it wait for each other
// for ever.
func (ctx WorkflowCtx) WaitUpdates() error { return remote(ctx.x.WaitUpdates()) }

// OnFailure adds a compensation; compensations run in reverse when the workflow fails or is cancelled. Their steps are durable.
func (ctx WorkflowCtx) OnFailure(undo func(WorkflowCtx) error) {
	ctx.x.Cleanup(true, func(x replay.Ctx) error { return undo(WorkflowCtx{x}) })
}

// Defer runs fn when the execution really ends, in reverse order, never when it is merely unloaded. Its steps are durable. Plain defers run
// on every unload: use them for nothing that has an effect.
func (ctx WorkflowCtx) Defer(fn func(WorkflowCtx) error) {
	ctx.x.Cleanup(false, func(x replay.Ctx) error { return fn(WorkflowCtx{x}) })
}

// Version is the version of a change to the code that this execution follows: the one that it has followed from this point on, if it has
// passed it; min if it was past it before the change was made; else max, which is recorded. Branch on it, and raise min (then remove the
// branch) when no execution follows an older version any more; an execution that does is blocked with a reason, not broken.
func (ctx WorkflowCtx) Version(change string, min, max int) int {
	return ctx.x.Version(change, min, max)
}

// HistoryLength is how many events the history of this run has up to this point, with its start. It is equal on replay.
func (ctx WorkflowCtx) HistoryLength() int64 { return ctx.x.HistoryLength() }

// HistoryBytes is roughly how many bytes the history of this run takes up to this point. It is equal on replay by the same build; another
// one may count differently, so branch on ShouldContinueAsNew.
func (ctx WorkflowCtx) HistoryBytes() int { return ctx.x.HistoryBytes() }

// ShouldContinueAsNew reports whether the history has come half the way to its limit of events or of bytes (embedded.Config.MaxHistory). A run
// that reaches a limit cannot go on: whoever waits for it gets an ErrExhausted. So a workflow that lives long asks between two pieces of its work,
// and returns [Workflow.ContinueAsNew] when it is told so. It is equal on replay, whatever the limits are then.
func (ctx WorkflowCtx) ShouldContinueAsNew() bool { return ctx.x.ShouldContinue() }

// SetLabel sets a label that this execution can be found by, or removes it when the value is empty; see Labels. The change is part of the commit
// that the calls around it belong to.
func (ctx WorkflowCtx) SetLabel(name, value string) error { return public(ctx.x.SetLabel(name, value)) }

// ---- as Caller: every call is journaled

func (ctx WorkflowCtx) child(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (replay.Child, error) {
	if len(o.with) > 0 {
		return replay.Child{}, Permanent(fault.New(fault.Invalid, "start of %s: a child cannot be started with a signal: start it, then send", ref.Workflow))
	}
	h := ctx.host()
	if err := h.limit("input of workflow", ref.Workflow, in); err != nil {
		return replay.Child{}, Permanent(public(err))
	}
	c := replay.Child{
		Workflow: ref.Workflow, Key: ref.Key, Keyed: o.keyed, Input: in, Normalize: normalize, Policy: o.policy, Reuse: o.reuse,
		Labels: o.labels, Task: o.spec, Terms: o.agreed(),
	}
	if !h.plain {
		c.Identity, c.Seal = h.codec.Identity(in), func(ctx context.Context, to model.Address, p model.Payload) (model.Payload, error) {
			return h.sealStart(ctx, patient, to, p)
		}
	}
	return c, nil
}

func (ctx WorkflowCtx) start(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (Ref, error) {
	c, err := ctx.child(ref, in, o, normalize)
	if err != nil {
		return Ref{}, err
	}
	a, err := ctx.x.StartChild(c)
	return Ref{Workflow: a.Type, Key: a.Key}, err
}

func (ctx WorkflowCtx) run(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (model.Payload, error) {
	c, err := ctx.child(ref, in, o, normalize)
	if err != nil {
		return model.Payload{}, err
	}
	return ctx.x.RunChild(c)
}

func (ctx WorkflowCtx) send(m model.Message, o *stepOptions) error {
	err := ctx.sendable(&m)
	if err == nil && m.Kind == model.MessageCall {
		m, err = ctx.callable(m, o)
	}
	if err != nil {
		return Permanent(public(err))
	}
	_, err = ctx.x.Send(m, o.key, ctx.sealer(&m))
	return err
}

func (ctx WorkflowCtx) call(m model.Message, o *stepOptions) (model.Payload, error) {
	m, err := ctx.callable(m, o)
	if err != nil {
		return model.Payload{}, Permanent(public(err))
	}
	return ctx.x.Send(m, o.key, ctx.sealer(&m))
}

// callable is a message whose answer a workflow gets, as it is sent: nothing that a journal refers to is kept in memory only.
func (ctx WorkflowCtx) callable(m model.Message, o *stepOptions) (model.Message, error) {
	if o.requestID != "" {
		return m, fault.New(fault.Invalid,
			"%s %s of %s: a workflow gives it no RequestID, because its step is done once anyway; use StepKey to tell equal ones apart", m.Kind, m.Name, m.To)
	}
	m.Brief = false
	return m, ctx.sendable(&m)
}

func (ctx WorkflowCtx) invoke(m model.Message, _ bool, o *stepOptions) (model.Payload, error) {
	return ctx.call(m, o)
}

func (ctx WorkflowCtx) ask(m model.Message) (model.Payload, error) { return ctx.x.Send(m, "", nil) }

// sendable says what is wrong with a message. One that cannot be stored or looked up where it arrives would hold up all that come behind it.
func (ctx WorkflowCtx) sendable(m *model.Message) error {
	if err := checkTarget(m.To); err != nil {
		return err
	}
	if f := m.Failure; m.Kind == model.MessageCancel && f != nil && !utf8.ValidString(f.Message) {
		return fault.New(fault.Invalid, "the reason %.80q is not valid UTF-8", f.Message)
	}
	if m.RequestID != "" && !textFits(m.RequestID, maxName) {
		return checkText("the request id", m.RequestID, maxName)
	}
	return ctx.host().limit(m.Kind.String(), m.Name, m.Input)
}

// sealer gives what a message carries its stored form; nil when it has it.
func (ctx WorkflowCtx) sealer(m *model.Message) replay.Seal {
	if m.Kind == model.MessageCancel || m.Failure != nil {
		return nil
	}
	return ctx.host().sealerOf(m)
}

// read looks at the state of another execution as a step, so that replay sees the same.
func (ctx WorkflowCtx) read(ref Ref, name string) (model.Payload, bool, error) {
	h := ctx.host()
	return readOnce(ctx, "read state "+name, ref.String(), func(c context.Context) (model.Payload, bool, error) { return h.stateOf(c, ref, name) })
}

// readOnce reads a value as a step.
func readOnce(ctx WorkflowCtx, step, key string, read func(context.Context) (model.Payload, bool, error)) (model.Payload, bool, error) {
	type value struct {
		Payload model.Payload
		OK      bool
	}
	v, err := Do(ctx, step, func(c context.Context) (v value, err error) {
		v.Payload, v.OK, err = read(c)
		return v, err
	}, StepKey(key))
	return v.Payload, v.OK, err
}

// entity looks at the state of an entity as a step, so that replay sees the same.
func (ctx WorkflowCtx) entity(a model.Address) (model.Payload, bool, error) {
	h := ctx.host()
	return readOnce(ctx, "read entity", a.Type+"/"+a.Key, func(c context.Context) (model.Payload, bool, error) { return h.entity(c, a) })
}

func (ctx WorkflowCtx) result(ref Ref) (model.Payload, error) {
	run, err := ref.run()
	if err == nil {
		err = checkTarget(ref.address())
	}
	if err != nil {
		return model.Payload{}, Permanent(err)
	}
	f := ctx.x.Outcome(ref.address(), run)
	if err := ctx.x.Get(f); err != nil {
		return model.Payload{}, err
	}
	return f.Payload(), nil
}

// poll looks at another execution as a step, so that replay sees the same.
func (ctx WorkflowCtx) poll(ref Ref) (state, error) {
	h := ctx.host()
	started := ref.Run == "" && ctx.x.Started(ref.address())
	return Do(ctx, "poll", func(c context.Context) (state, error) {
		st, err := h.state(c, ref)
		if started && fault.Is(err, fault.NotFound) {
			return state{Status: string(Running), Reason: "is being started"}, nil
		}
		return st, err
	}, StepKey(ref.String()))
}
