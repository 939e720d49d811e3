package perdure

import (
	"context"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

func (ctx WorkflowCtx) host() *host { return ctx.x.Host().(*host) }

// open reads a stored value for workflow code. A value that cannot be read blocks the execution.
// Once the value can be read, the execution continues where it was.
func (ctx WorkflowCtx) open(kind, name string, p model.Payload) (model.Payload, error) {
	out, err := ctx.host().open(ctx.x.Context(), patient, kind, name, p)
	if err != nil {
		ctx.x.Block(err.Error())
	}
	return out, nil
}

// sealOutput returns the stored form of the value that ends a run. A value that cannot be stored
// blocks the run.
func (ctx WorkflowCtx) sealOutput(kind, name string, p model.Payload) model.Payload {
	out, err := ctx.host().seal(ctx.x.Context(), patient, kind, name, p)
	if err != nil {
		ctx.x.Block(err.Error())
	}
	return out
}

func (ctx WorkflowCtx) child(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (replay.Child, error) {
	if len(o.with) > 0 {
		return replay.Child{}, Permanent(fault.New(fault.Invalid, "start of %s: a child cannot be started together with a signal: start the child, then send the signal", ref.Workflow))
	}
	h := ctx.host()
	if err := h.limit("input of workflow", ref.Workflow, in); err != nil {
		return replay.Child{}, Permanent(err)
	}

	c := replay.Child{
		Workflow: ref.Workflow, Key: ref.Key, Keyed: o.keyed, Input: in, Normalize: normalize, Policy: o.policy, Reuse: o.reuse,
		Labels: o.labels, Task: o.spec, Terms: o.storedTerms(),
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

func (ctx WorkflowCtx) send(r api.Request, o *stepOptions) error {
	m, err := messageOf(r)
	if err == nil && m.Kind == model.MessageCall {
		err = refuseRequestID(&m)
	}
	if err == nil {
		err = ctx.sendable(&m)
	}
	if err != nil {
		return Permanent(err)
	}
	_, err = ctx.x.Send(m, o.key, ctx.sealer(&m))
	return err
}

// messageOf turns a request into the message that a workflow records and sends. If the request is a
// call, the engine must store the call, because the journal refers to it.
func messageOf(r api.Request) (model.Message, error) {
	switch r := r.(type) {
	case *api.SignalRequest:
		return model.Message{
			Kind: model.MessageSignal, To: r.Target.Address, ToRun: r.Target.Run, Name: r.Name, Input: r.Input, RequestID: r.RequestID,
		}, nil
	case *api.SettleRequest:
		return model.Message{
			Kind: model.MessageSettle, To: r.Target.Address, ToRun: r.Target.Run, Name: r.Name, Input: r.Value, Failure: r.Failure,
		}, nil
	case *api.CancelRequest:
		return model.Message{
			Kind: model.MessageCancel, To: r.Target.Address, ToRun: r.Target.Run,
			Failure: &model.Failure{Kind: model.FailureCanceled, Message: r.Reason},
		}, nil
	case *api.CallRequest:
		return callMessage(r), nil
	default:
		return model.Message{}, fault.New(fault.Internal, "a workflow does not send %T", r)
	}
}

func callMessage(r *api.CallRequest) model.Message {
	return model.Message{Kind: model.MessageCall, To: r.Address, Name: r.Name, Input: r.Input, OneWay: r.OneWay, RequestID: r.RequestID}
}

func (ctx WorkflowCtx) update(r *api.UpdateRequest, o *stepOptions) (model.Payload, error) {
	m := updateMessage(r)
	if err := ctx.answerable(&m); err != nil {
		return model.Payload{}, Permanent(err)
	}
	return ctx.x.Send(m, o.key, ctx.sealer(&m))
}

func updateMessage(r *api.UpdateRequest) model.Message {
	return model.Message{
		Kind: model.MessageUpdate, To: r.Target.Address, ToRun: r.Target.Run, Name: r.Name, Input: r.Input, RequestID: r.RequestID,
	}
}

// answerable returns an error if something is wrong with a message whose answer the workflow waits
// for.
func (ctx WorkflowCtx) answerable(m *model.Message) error {
	if err := refuseRequestID(m); err != nil {
		return err
	}
	return ctx.sendable(m)
}

// refuseRequestID refuses a request id with a call or an update of a workflow.
func refuseRequestID(m *model.Message) error {
	if m.RequestID == "" {
		return nil
	}
	return fault.New(fault.Invalid,
		"%s %s of %s: a workflow passes no RequestID, because each of its steps takes effect once; use StepKey to distinguish equal steps", m.Kind, m.Name, m.To)
}

func (ctx WorkflowCtx) invoke(r *api.CallRequest, o *stepOptions) (model.Payload, error) {
	m := callMessage(r)
	if err := ctx.answerable(&m); err != nil {
		return model.Payload{}, Permanent(err)
	}
	return ctx.x.Send(m, o.key, ctx.sealer(&m))
}

func (ctx WorkflowCtx) ask(r *api.UpdateRequest) (model.Payload, error) {
	return ctx.x.Send(updateMessage(r), "", nil)
}

// sendable returns an error if something is wrong with a message. If the receiver could not store
// the message or find its target, all later messages would have to wait behind it.
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

// sealer returns a function that gives the value in a message its stored form. It returns nil if
// the value already has that form.
func (ctx WorkflowCtx) sealer(m *model.Message) replay.Seal {
	if m.Kind == model.MessageCancel || m.Failure != nil {
		return nil
	}
	return ctx.host().sealerOf(m)
}

// read reads a state value of another execution as a step, so that a replay gets the same value.
func (ctx WorkflowCtx) read(ref Ref, name string) (model.Payload, bool, error) {
	h := ctx.host()
	return readOnce(ctx, "read state "+name, ref.String(), func(c context.Context) (model.Payload, bool, error) { return h.stateOf(c, ref, name) })
}

// entity reads the state of an entity as a step, so that a replay gets the same state.
func (ctx WorkflowCtx) entity(a model.Address) (model.Payload, bool, error) {
	h := ctx.host()
	return readOnce(ctx, "read entity", a.Type+"/"+a.Key, func(c context.Context) (model.Payload, bool, error) { return h.entity(c, a) })
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

func (ctx WorkflowCtx) result(ref Ref, _ string) (model.Payload, error) {
	run, err := ref.run()
	to := ref.address(ctx.host())
	if err == nil {
		err = checkTarget(to)
	}
	if err != nil {
		return model.Payload{}, Permanent(err)
	}
	f := ctx.x.Outcome(to, run)
	if err := ctx.x.Get(f); err != nil {
		return model.Payload{}, err
	}
	return f.Payload(), nil
}

// poll reads the state of another execution as a step, so that a replay gets the same state.
func (ctx WorkflowCtx) poll(ref Ref, _ string) (state, error) {
	h := ctx.host()
	started := ref.Run == "" && ctx.x.HasChild(ref.address(ctx.host()))
	return Do(ctx, "poll", func(c context.Context) (state, error) {
		st, err := h.state(c, ref)
		if started && fault.Is(err, fault.NotFound) {
			return state{Status: string(Running), Reason: "is being started"}, nil
		}
		return st, err
	}, StepKey(ref.String()))
}
