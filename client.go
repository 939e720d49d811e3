package perdure

import (
	"bytes"
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/schedule"
)

// Client is an App together with the context of the call: the Caller of ordinary code.
type Client struct {
	app *App
	ctx context.Context //nolint:containedctx // a Client is one call's view of the App
}

func (c Client) sender() outlet { return c }

func (c Client) caller() inlet { return c }

func (c Client) host() *host { return c.app.host }

func (c Client) open(kind, name string, p model.Payload) (model.Payload, error) {
	return callReader{c.host(), c.ctx}.open(kind, name, p)
}

func (c Client) startRequest(ref Ref, in model.Payload, o *startOptions) (api.StartRequest, error) {
	return c.host().startRequest(c.ctx, brief, ref, in, o)
}

// attaches reports whether a start that was refused because of another input attaches after all: the input of the execution is the same, but was stored in
// another way, before the payload settings were changed. The engine cannot tell, because it cannot read what is stored.
func (c Client) attaches(refused error, req *api.StartRequest, in model.Payload, normalize replay.Normalize) bool {
	if !fault.Is(refused, fault.Conflict) || len(req.With) > 0 {
		return false
	}
	h := c.host()
	d, err := h.backend.Describe(c.ctx, api.Target{Address: req.Address})
	if first := d.Start.First; err == nil && !first.IsZero() {
		d, err = h.backend.Describe(c.ctx, api.Target{Address: req.Address, Run: first})
	}
	if err != nil || d.Start.Input.Form() == req.Input.Form() {
		return false
	}
	was, err := normalize(h, d.Start.Input)
	return err == nil && bytes.Equal(was, h.codec.Identity(in))
}

// start refers to the execution, not only to its current run.
func (c Client) start(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (Ref, error) {
	req, err := c.startRequest(ref, in, o)
	if err == nil {
		_, err = c.host().backend.Start(c.ctx, req)
	}
	if err != nil && !c.attaches(err, &req, in, normalize) {
		return Ref{}, public(err)
	}
	return ref, nil
}

func (c Client) run(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (model.Payload, error) {
	req, err := c.startRequest(ref, in, o)
	if err != nil {
		return model.Payload{}, public(err)
	}
	r, err := c.host().backend.Run(c.ctx, req)
	if err != nil && c.attaches(err, &req, in, normalize) {
		return c.result(ref)
	}
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
	if err := c.seal(&m, o); err != nil {
		return public(err)
	}
	b := c.host().backend
	req, err := requestOf(&m, o)
	switch r := req.(type) {
	case api.SignalRequest:
		err = b.Signal(c.ctx, r)
	case api.SettleRequest:
		err = b.Settle(c.ctx, r)
	case api.CancelRequest:
		err = b.Cancel(c.ctx, r)
	case api.CallRequest:
		_, err = b.Call(c.ctx, r)
	}
	return public(err)
}

// seal gives what a message carries its stored form.
func (c Client) seal(m *model.Message, o *stepOptions) error {
	return c.host().sealMessage(c.ctx, brief, m, o)
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
	case model.MessageCall:
		return api.CallRequest{Address: m.To, Name: m.Name, Input: m.Input, RequestID: o.requestID, OneWay: m.OneWay, Brief: m.Brief}, nil
	default:
		return nil, fault.New(fault.Internal, "ordinary code does not send %s", m.Kind)
	}
}

// call asks the code of an execution.
func (c Client) call(m model.Message, o *stepOptions) (model.Payload, error) {
	in, err := c.host().sealSent(c.ctx, brief, &m, o.requestID)
	if err != nil {
		return in, public(err)
	}
	p, err := c.host().backend.Update(c.ctx, api.UpdateRequest{
		Target: api.Target{Address: m.To, Run: m.ToRun}, Name: m.Name, Input: in, RequestID: o.requestID,
	})
	return p, public(err)
}

func (c Client) invoke(m model.Message, view bool, o *stepOptions) (model.Payload, error) {
	if err := c.seal(&m, o); err != nil {
		return model.Payload{}, public(err)
	}
	p, err := c.host().backend.Call(c.ctx, api.CallRequest{Address: m.To, Name: m.Name, Input: m.Input, RequestID: o.requestID, Brief: m.Brief, View: view})
	return p, public(err)
}

func (c Client) entity(a model.Address) (model.Payload, bool, error) {
	p, ok, err := c.host().entity(c.ctx, a)
	return p, ok, public(err)
}

// ask is for schedules.
func (c Client) ask(m model.Message) (model.Payload, error) {
	b := c.host().backend
	p, err := b.Update(c.ctx, api.UpdateRequest{Target: api.Target{Address: m.To}, Name: m.Name, Input: m.Input})
	if err != nil {
		return p, public(schedule.Explain(c.ctx, b, m.To.Key, err))
	}
	return p, nil
}

func (c Client) read(ref Ref, name string) (model.Payload, bool, error) {
	p, ok, err := c.app.host.stateOf(c.ctx, ref, name)
	return p, ok, public(err)
}
