package grpcapi

import (
	"bytes"
	"context"
	"math"

	pb "github.com/perdure/perdure/api/perdure/v1"
	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/wire"
)

// Deliver delivers a message that the client has composed itself, for example for its outbox.
func (c *client) Deliver(ctx context.Context, m *pb.DeliverRequest) (*pb.Done, error) {
	message, err := model.DecodeMessage(m.GetMessage())
	if err != nil {
		return nil, fault.New(fault.Invalid, "%w", err)
	}
	if message.To.Tenant != tenantOf(ctx) {
		return nil, fault.New(fault.Denied, "the message is for another tenant")
	}
	if err := c.recompose(&message); err != nil {
		return nil, err
	}
	return done(c.backend.Deliver(ctx, &message))
}

// recompose checks that a message is one that the service composes for a request of a client. A
// message has many fields that only the engine may set, and its bytes come from outside.
func (c *client) recompose(m *model.Message) error {
	r, err := requestOf(m)
	if err != nil {
		return err
	}
	composed, err := c.backend.Compose(r)
	if err != nil {
		return err
	}

	composed.Trace = m.Trace
	if m.RequestID == model.BareRequestID(m.RequestID) {
		composed.RequestID = m.RequestID // an outbox gives an id to a call that has none
	}
	if !bytes.Equal(model.AppendMessage(nil, &composed), model.AppendMessage(nil, m)) {
		return fault.New(fault.Invalid, "%s to %s is not a message that a client composes", m.Kind, m.To)
	}
	return nil
}

// requestOf returns the request from which a message was composed.
func requestOf(m *model.Message) (api.Request, error) {
	target, id := api.Target{Address: m.To, Run: m.ToRun}, model.BareRequestID(m.RequestID)
	switch m.Kind {
	case model.MessageStart:
		r := &api.StartRequest{Address: m.To, Input: m.Input, Reuse: m.Reuse, RequestID: id, Labels: m.Labels, Task: m.Task, Terms: m.Terms}
		for i := range m.With {
			r.With = append(r.With, api.Message{Name: m.With[i].Name, Input: m.With[i].Input})
		}
		return r, nil
	case model.MessageSignal:
		return &api.SignalRequest{Target: target, Name: m.Name, Input: m.Input, RequestID: id}, nil
	case model.MessageSettle:
		return &api.SettleRequest{Target: target, Name: m.Name, Value: m.Input, Failure: m.Failure, RequestID: id}, nil
	case model.MessageCancel:
		r := &api.CancelRequest{Target: target, RequestID: id}
		if m.Failure != nil {
			r.Reason = m.Failure.Message
		}
		return r, nil
	case model.MessageCall:
		return &api.CallRequest{Address: m.To, Name: m.Name, Input: m.Input, RequestID: id, OneWay: m.OneWay, Brief: m.Brief}, nil
	default:
		return nil, fault.New(fault.Invalid, "a client does not send %s", m.Kind)
	}
}

// DeadLetters returns messages of the tenant that were refused.
func (c *client) DeadLetters(ctx context.Context, m *pb.DeadLettersRequest) (*pb.DeadLetterList, error) {
	after, err := wire.ReadRun(m.GetAfter())
	if err != nil {
		return nil, err
	}
	letters, err := c.backend.DeadLetters(ctx, tenantOf(ctx), after, int(min(max(m.GetLimit(), 0), math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	return wire.DeadLetterList(letters), nil
}
