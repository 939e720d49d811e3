package service

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

var _ api.Mailer = (*Service)(nil)

// Cluster is the id of the store.
func (s *Service) Cluster() string { return s.store.Info().Cluster }

// Compose is the message of a request.
func (s *Service) Compose(r api.Request) (model.Message, error) {
	var m *model.Message
	var err error
	switch r := r.(type) {
	case api.StartRequest:
		m, err = s.start(&r)
	case api.SignalRequest:
		m, err = s.signal(&r)
	case api.SettleRequest:
		m, err = s.settle(&r)
	case api.CancelRequest:
		m, err = s.cancel(&r)
	}
	if err != nil {
		return model.Message{}, err
	}
	return *m, nil
}

// Deliver sends a composed message.
func (s *Service) Deliver(ctx context.Context, m *model.Message) error {
	switch m.Kind {
	case model.MessageStart, model.MessageSignal, model.MessageSettle, model.MessageCancel:
	default:
		return fault.New(fault.Invalid, "a client does not send %s", m.Kind)
	}
	_, err := s.send(ctx, m)
	return err
}

// Inbox is that of the store.
func (s *Service) Inbox() (api.Inbox, bool) { return api.Inbox{}, false }

// DeadLetters are those of the inbox.
func (s *Service) DeadLetters(ctx context.Context, after string, limit int) ([]api.DeadLetter, error) {
	return nil, nil
}
