package perdure

import (
	"bytes"
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/replay"
)

// Client is an App together with the context of a call: the Caller of ordinary code. App.With makes
// one.
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

// canAttach reports whether a start may attach to an execution although the engine refused the
// start because of a different input. The start may attach if the inputs are equal and only their
// stored forms differ, because the payload settings have changed. The engine cannot know this,
// because it cannot read stored payloads.
func (c Client) canAttach(refused error, req *api.StartRequest, in model.Payload, normalize replay.Normalize) bool {
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

// start returns a Ref to the execution of the key. If the start has a request id, the Ref names the
// run that the id stands for.
func (c Client) start(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (Ref, error) {
	req, err := c.startRequest(ref, in, o)
	var reply api.StartReply
	if err == nil {
		reply, err = c.host().backend.Start(c.ctx, req)
	}
	if err != nil && !c.canAttach(err, &req, in, normalize) {
		return Ref{}, err
	}
	return ref.startedBy(o.requestID, &reply), nil
}

// startedBy returns the Ref with the run that a start with a request id has begun or found. The
// other starts are not about one run.
func (r Ref) startedBy(requestID string, reply *api.StartReply) Ref {
	if requestID != "" && !reply.Run.IsZero() {
		r.Run = reply.Run.String()
	}
	return r
}

func (c Client) run(ref Ref, in model.Payload, o *startOptions, normalize replay.Normalize) (model.Payload, error) {
	req, err := c.startRequest(ref, in, o)
	if err != nil {
		return model.Payload{}, err
	}
	r, err := c.host().backend.Run(c.ctx, req)
	if err != nil && c.canAttach(err, &req, in, normalize) {
		return c.result(ref, "")
	}
	if err != nil {
		return model.Payload{}, err
	}
	return outcome(ref, r.Outcome)
}

func (c Client) result(ref Ref, started string) (model.Payload, error) {
	b := c.app.host.backend
	t, follows, err := c.target(ref, started)
	if err != nil {
		return model.Payload{}, err
	}
	var r api.Result
	if follows {
		r, err = api.FollowRuns(c.ctx, api.ClientRuns(b), t)
	} else {
		r, err = b.Await(c.ctx, t)
	}
	if err != nil {
		return model.Payload{}, err
	}
	return outcome(ref, r.Outcome)
}

// outcome returns the value or the error of a closed execution.
func outcome(ref Ref, o model.Outcome) (model.Payload, error) {
	switch {
	case o.Failure != nil:
		return model.Payload{}, o.Failure
	case o.Status != model.Completed:
		return model.Payload{}, &model.Failure{Kind: o.Status.String(), Message: "execution " + ref.String() + " ended as " + o.Status.String()}
	}
	return o.Output, nil
}

// target returns what a Ref names. If it names no run, target returns the run that was started, and
// that the caller follows that run.
func (c Client) target(ref Ref, started string) (_ api.Target, follows bool, err error) {
	follows = ref.Run == "" && started != ""
	if follows {
		ref.Run = started
	}
	t, err := ref.api(c.app.host)
	return t, follows, err
}

func (c Client) poll(ref Ref, started string) (state, error) {
	t, follows, err := c.target(ref, started)
	if err != nil {
		return state{}, err
	}
	if follows {
		last, err := api.LastRun(c.ctx, api.ClientRuns(c.app.host.backend), t)
		if err != nil {
			return state{}, err
		}
		ref.Run = last.String()
	}
	return c.app.host.state(c.ctx, ref)
}

func (c Client) send(r api.Request, _ *stepOptions) error {
	if err := c.host().sealRequest(c.ctx, brief, r); err != nil {
		return err
	}

	b := c.host().backend
	switch r := r.(type) {
	case *api.SignalRequest:
		return b.Signal(c.ctx, *r)
	case *api.SettleRequest:
		return b.Settle(c.ctx, *r)
	case *api.CancelRequest:
		return b.Cancel(c.ctx, *r)
	case *api.CallRequest:
		_, err := b.Call(c.ctx, *r)
		return err
	default:
		return fault.New(fault.Internal, "a client does not send %T", r)
	}
}

func (c Client) update(r *api.UpdateRequest, _ *stepOptions) (p model.Payload, err error) {
	of := parcel{model.MessageUpdate.String(), r.Name, r.Target.Address, r.RequestID}
	if r.Input, err = c.host().sealParcel(c.ctx, brief, of, r.Input); err != nil {
		return p, err
	}
	return c.host().backend.Update(c.ctx, *r)
}

func (c Client) invoke(r *api.CallRequest, _ *stepOptions) (model.Payload, error) {
	if err := c.host().sealRequest(c.ctx, brief, r); err != nil {
		return model.Payload{}, err
	}
	return c.host().backend.Call(c.ctx, *r)
}

func (c Client) entity(a model.Address) (model.Payload, bool, error) {
	return c.host().entity(c.ctx, a)
}

func (c Client) ask(r *api.UpdateRequest) (model.Payload, error) {
	b := c.host().backend
	p, err := b.Update(c.ctx, *r)
	if err != nil {
		return p, c.host().schedules().Explain(c.ctx, r.Target.Address.Key, err)
	}
	return p, nil
}

func (c Client) read(ref Ref, name string) (model.Payload, bool, error) {
	return c.app.host.stateOf(c.ctx, ref, name)
}
