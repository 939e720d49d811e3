package request

import (
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Compose validates a request and returns its message.
func (l Limits) Compose(r api.Request) (model.Message, error) {
	var m *model.Message
	var err error
	switch r := r.(type) {
	case *api.StartRequest:
		m, err = l.Start(r)
	case *api.SignalRequest:
		m, err = l.Signal(r)
	case *api.SettleRequest:
		m, err = l.Settle(r)
	case *api.CancelRequest:
		m, err = l.Order(model.MessageCancel, r)
	case *api.CallRequest:
		m, err = l.Call(r)
	default:
		err = fault.New(fault.Internal, "a request of type %T has no message", r)
	}

	if err != nil {
		return model.Message{}, err
	}
	return *m, nil
}

// Start validates a request to start an execution and returns its message.
func (l Limits) Start(r *api.StartRequest) (*model.Message, error) {
	m := &model.Message{Kind: model.MessageStart, To: r.Address, Input: r.Input, Reuse: r.Reuse, RequestID: r.RequestID, Labels: r.Labels, Task: r.Task, Terms: r.Terms}
	v := l.Check("start " + r.Address.Type)
	v.Address(r.Address)
	v.NoBatch(r.Address)
	v.Startable(r)
	v.Task(r)
	v.Payload("input", r.Input)
	v.RequestID(r.RequestID)
	v.Labels(r.Labels)
	v.Terms(r)
	if r.Reuse > model.ReuseAlways {
		v.Wrong("there is no policy %d for keys that were used before", r.Reuse)
	}

	for _, w := range r.With {
		v.Name("signal", w.Name)
		v.Payload("signal "+w.Name, w.Input)
		m.With = append(m.With, model.Event{Kind: model.EventSignalReceived, Name: w.Name, Input: w.Input})
	}

	return m, v.Err()
}

// Signal validates a signal and returns its message.
func (l Limits) Signal(r *api.SignalRequest) (*model.Message, error) {
	v := l.Check("signal " + r.Name)
	v.Workflow(r.Target.Address, "signals")
	v.Name("signal", r.Name)
	v.Payload("value", r.Input)
	v.RequestID(r.RequestID)
	return &model.Message{
		Kind: model.MessageSignal, To: r.Target.Address, ToRun: r.Target.Run, Name: r.Name, Input: r.Input, RequestID: r.RequestID,
	}, v.Err()
}

// Settle validates the outcome of a promise and returns its message.
func (l Limits) Settle(r *api.SettleRequest) (*model.Message, error) {
	v := l.Check("settle promise " + r.Name)
	v.Workflow(r.Target.Address, "promises")
	v.Name("promise", r.Name)
	v.Payload("value", r.Value)
	if f := r.Failure; f != nil {
		v.Size("failure", len(f.Kind)+len(f.Type)+len(f.Message)+len(f.Stack))
	}
	v.RequestID(r.RequestID)
	return &model.Message{
		Kind: model.MessageSettle, To: r.Target.Address, ToRun: r.Target.Run, Name: r.Name, Input: r.Value, Failure: r.Failure, RequestID: r.RequestID,
	}, v.Err()
}

// Order validates an order, such as a cancel or pause request, to an execution and returns its
// message.
func (l Limits) Order(kind model.MessageKind, r *api.CancelRequest) (*model.Message, error) {
	v := l.Check(kind.String())
	v.Address(r.Target.Address)
	v.Reason(r.Reason)
	v.RequestID(r.RequestID)
	m := &model.Message{Kind: kind, To: r.Target.Address, ToRun: r.Target.Run, RequestID: r.RequestID, Failure: &model.Failure{Message: r.Reason}}
	if kind == model.MessageCancel {
		m.Failure.Kind = model.FailureCanceled
	}
	return m, v.Err()
}

// Call validates a call and returns its message.
func (l Limits) Call(r *api.CallRequest) (*model.Message, error) {
	v := l.Check("call " + r.Name)
	v.Entity(r.Address)
	v.Name("operation", r.Name)
	v.Payload("input", r.Input)
	v.RequestID(r.RequestID)
	m := &model.Message{Kind: model.MessageCall, To: r.Address, Name: r.Name, Input: r.Input, OneWay: r.OneWay, Brief: r.Brief}
	switch {
	case r.RequestID == "":
	case r.Brief:
		v.Wrong("a call that is kept in memory only takes no request id, because the engine does not remember it")
	default:
		m.RequestID = model.CallIDs + r.RequestID
	}
	return m, v.Err()
}
