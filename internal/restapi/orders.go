package restapi

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/authn"
	"github.com/perdure/perdure/internal/model"
)

// none is a reply without a body.
type none struct{}

func done(err error) (*none, error) {
	if err != nil {
		return nil, err
	}
	return nil, nil //nolint:nilnil // the library sends the status alone
}

// addOrders adds the operations that send something to executions or stop them.
func (s *Server) addOrders() {
	const one = "/executions/{workflow}/{key}"
	b := s.config.Backend
	add(s, operation{id: "signal-execution", method: http.MethodPost, path: one + "/signal", tag: executionsTag, summary: "Send a signal", status: http.StatusNoContent}, s.signal)
	add(s, operation{id: "signal-with-start", method: http.MethodPost, path: one + "/signal-with-start", tag: executionsTag, summary: "Send a signal, and start the execution if there is none", status: http.StatusCreated, also: http.StatusOK}, s.signalWithStart)
	add(s, operation{id: "update-execution", method: http.MethodPost, path: one + "/update", tag: executionsTag, summary: "Ask the code of an execution to change something, and wait for its answer", waits: true}, s.update)
	add(s, operation{id: "resolve-promise", method: http.MethodPost, path: one + "/promises/{name}/resolve", tag: executionsTag, summary: "Resolve a promise", status: http.StatusNoContent}, s.resolve)
	add(s, operation{id: "reject-promise", method: http.MethodPost, path: one + "/promises/{name}/reject", tag: executionsTag, summary: "Reject a promise", status: http.StatusNoContent}, s.reject)
	s.addOrder("cancel-execution", one+"/cancel", "Ask an execution to end", b.Cancel)
	s.addOrder("terminate-execution", one+"/terminate", "End an execution immediately, without running its code", b.Terminate)
	s.addOrder("pause-execution", one+"/pause", "Pause an execution", b.Pause)
	s.addOrder("resume-execution", one+"/resume", "Resume a paused execution", b.Resume)
}

type signalInput struct {
	TargetPath
	RequestHeader

	Body namedValue
}

func (s *Server) signal(ctx context.Context, who *authn.Identity, in *signalInput) (*none, error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	return done(s.config.Backend.Signal(ctx, api.SignalRequest{Target: t, Name: in.Body.Name, Input: payload(in.Body.Input), RequestID: in.RequestID}))
}

type signalStartBody struct {
	Signal namedValue        `json:"signal"`
	Input  json.RawMessage   `json:"input,omitempty" doc:"The input of the execution, if it starts"`
	Labels map[string]string `json:"labels,omitempty"`
	Reuse  string            `json:"reuse,omitempty" enum:"never,if_failed,always"`
}

type signalStartInput struct {
	RequestHeader

	Workflow string `path:"workflow" example:"order"`
	Key      string `path:"key" example:"42"`
	Body     signalStartBody
}

func (s *Server) signalWithStart(ctx context.Context, who *authn.Identity, in *signalStartInput) (*startOutput, error) {
	b := &in.Body
	r, err := startRequest(who.Tenant, &startBody{
		Workflow: in.Workflow, Key: in.Key, Input: b.Input, Labels: b.Labels, Reuse: b.Reuse, Signals: []namedValue{b.Signal},
	}, in.RequestID)
	if err != nil {
		return nil, err
	}
	return s.begin(ctx, r)
}

func (s *Server) update(ctx context.Context, who *authn.Identity, in *signalInput) (*reply[valueBody], error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	p, err := s.config.Backend.Update(ctx, api.UpdateRequest{Target: t, Name: in.Body.Name, Input: payload(in.Body.Input), RequestID: in.RequestID})
	if err != nil {
		return nil, err
	}
	return ok(valueBody{value(p)})
}

type resolveInput struct {
	TargetPath
	RequestHeader

	Name string `path:"name" example:"approval"`
	Body struct {
		Value json.RawMessage `json:"value,omitempty"`
	}
}

func (s *Server) resolve(ctx context.Context, who *authn.Identity, in *resolveInput) (*none, error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	return done(s.config.Backend.Settle(ctx, api.SettleRequest{Target: t, Name: in.Name, Value: payload(in.Body.Value), RequestID: in.RequestID}))
}

type rejectInput struct {
	TargetPath
	RequestHeader

	Name string `path:"name" example:"approval"`
	Body struct {
		Message string `json:"message" minLength:"1" example:"the bank has declined"`
		Type    string `json:"type,omitempty" doc:"The type of the error, by which the code can recognize it"`
	}
}

func (s *Server) reject(ctx context.Context, who *authn.Identity, in *rejectInput) (*none, error) {
	t, err := in.target(who)
	if err != nil {
		return nil, err
	}
	f := &model.Failure{Message: in.Body.Message, Type: in.Body.Type}
	return done(s.config.Backend.Settle(ctx, api.SettleRequest{Target: t, Name: in.Name, Failure: f, RequestID: in.RequestID}))
}

// reasonBody says why a person does something.
type reasonBody struct {
	Reason string `json:"reason,omitempty"`
}

type orderInput struct {
	TargetPath
	RequestHeader

	Body *reasonBody `required:"false"`
}

// addOrder adds an operation that only takes a reason.
func (s *Server) addOrder(id, path, summary string, call func(context.Context, api.CancelRequest) error) {
	o := operation{id: id, method: http.MethodPost, path: path, tag: executionsTag, summary: summary, status: http.StatusNoContent}
	add(s, o, func(ctx context.Context, who *authn.Identity, in *orderInput) (*none, error) {
		t, err := in.target(who)
		if err != nil {
			return nil, err
		}
		r := api.CancelRequest{Target: t, RequestID: in.RequestID}
		if in.Body != nil {
			r.Reason = in.Body.Reason
		}
		return done(call(ctx, r))
	})
}
