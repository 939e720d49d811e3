package perdure

import (
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// ---- Client as Caller: plain calls of the engine

func startRequest(ref Ref, in model.Payload, o *startOptions) api.StartRequest {
	r := api.StartRequest{Address: ref.address(), Input: in, Reuse: o.reuse, RequestID: o.requestID}
	for _, w := range o.with {
		r.With = append(r.With, api.Message{Name: w.name, Input: w.value})
	}
	return r
}

// start refers to the execution, not only to its current run.
func (c Client) start(ref Ref, in model.Payload, o *startOptions, _ func([]byte) ([]byte, error)) (Ref, error) {
	if _, err := c.app.host.backend.Start(c.ctx, startRequest(ref, in, o)); err != nil {
		return Ref{}, public(err)
	}
	return ref, nil
}

func (c Client) run(ref Ref, in model.Payload, o *startOptions, _ func([]byte) ([]byte, error)) (model.Payload, error) {
	r, err := c.app.host.backend.Run(c.ctx, startRequest(ref, in, o))
	if err != nil {
		return model.Payload{}, public(err)
	}
	return outcome(ref, r.Outcome)
}

func (c Client) result(ref Ref) (model.Payload, error) {
	t, err := ref.api()
	if err != nil {
		return model.Payload{}, public(err)
	}
	r, err := c.app.host.backend.Await(c.ctx, t)
	if err != nil {
		return model.Payload{}, public(err)
	}
	return outcome(ref, r.Outcome)
}

// outcome is the value or the error of a closed execution.
func outcome(ref Ref, o model.Outcome) (model.Payload, error) {
	switch {
	case o.Failure != nil:
		return model.Payload{}, o.Failure
	case o.Status != model.Completed:
		return model.Payload{}, &model.Failure{Kind: o.Status.String(), Message: "execution " + ref.String() + " ended as " + o.Status.String()}
	}
	return o.Output, nil
}

func (c Client) poll(ref Ref) (state, error) {
	st, err := c.app.host.state(c.ctx, ref)
	return st, public(err)
}

func (c Client) send(m model.Message, o *stepOptions) error {
	b := c.app.host.backend
	req, err := requestOf(&m, o)
	switch r := req.(type) {
	case api.SignalRequest:
		err = b.Signal(c.ctx, r)
	case api.SettleRequest:
		err = b.Settle(c.ctx, r)
	case api.CancelRequest:
		err = b.Cancel(c.ctx, r)
	}
	return public(err)
}

// requestOf is a message as a request of ordinary code.
func requestOf(m *model.Message, o *stepOptions) (api.Request, error) {
	t := api.Target{Address: m.To, Run: m.ToRun}
	switch m.Kind {
	case model.MessageSignal:
		return api.SignalRequest{Target: t, Name: m.Name, Input: m.Input, RequestID: o.requestID}, nil
	case model.MessageSettle:
		return api.SettleRequest{Target: t, Name: m.Name, Value: m.Input, Failure: m.Failure, RequestID: o.requestID}, nil
	case model.MessageCancel:
		return api.CancelRequest{Target: t, Reason: m.Failure.Message, RequestID: o.requestID}, nil
	default:
		return nil, fault.New(fault.Internal, "ordinary code does not send %s", m.Kind)
	}
}
