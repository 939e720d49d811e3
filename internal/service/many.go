package service

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// StartMany starts many executions.
func (s *Service) StartMany(ctx context.Context, rs []api.StartRequest) ([]api.StartedReply, error) {
	if s.engine == nil {
		return nil, fault.New(fault.Denied, "start %d executions: the store is open for reading only", len(rs))
	}
	replies := make([]api.StartedReply, len(rs))
	messages := make([]*model.Message, 0, len(rs))
	places := make([]int, 0, len(rs))
	for i := range rs {
		m, err := s.start(&rs[i])
		if err != nil {
			replies[i].Err = err
			continue
		}
		messages, places = append(messages, m), append(places, i)
	}
	ctx, span := s.tracer.SendAll(ctx, messages)
	defer span.End("")
	for n, sent := range s.engine.SendMany(ctx, messages) {
		a := sent.Answer
		replies[places[n]] = api.StartedReply{StartReply: api.StartReply{Run: a.Run, Existing: a.Existing, Status: a.Status}, Err: sent.Err}
	}
	return replies, nil
}
