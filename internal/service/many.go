package service

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Bounds of one call that starts many executions.
const (
	MaxMany      = 100_000
	MaxManyBytes = 64 << 20
)

// checkMany refuses a call that would hold too much in memory.
func checkMany(rs []api.StartRequest) error {
	if len(rs) > MaxMany {
		return fault.New(fault.Exhausted, "start %d executions in one call: at most %d are allowed", len(rs), MaxMany)
	}
	size := 0
	for i := range rs {
		size += rs[i].Input.Size()
		for j := range rs[i].With {
			size += rs[i].With[j].Input.Size()
		}
	}
	if size > MaxManyBytes {
		return fault.New(fault.Exhausted, "start %d executions in one call: their inputs have %d bytes, at most %d are allowed", len(rs), size, MaxManyBytes)
	}
	return nil
}

// StartMany starts many executions.
func (s *Service) StartMany(ctx context.Context, rs []api.StartRequest) ([]api.StartedReply, error) {
	if s.engine == nil {
		return nil, fault.New(fault.Denied, "start %d executions: the store is open for reading only", len(rs))
	}
	if err := checkMany(rs); err != nil {
		return nil, err
	}
	replies := make([]api.StartedReply, len(rs))
	messages := make([]*model.Message, 0, len(rs))

	places := make([]int, 0, len(rs))
	admitted := make([]func(bool), 0, len(rs))
	for i := range rs {
		m, err := s.limits.Start(&rs[i])
		if err != nil {
			replies[i].Err = err
			continue
		}
		done, err := s.admit(ctx, m)
		if err != nil {
			replies[i].Err = err
			continue
		}
		messages, places, admitted = append(messages, m), append(places, i), append(admitted, done)
	}

	ctx, span := s.tracer.SendAll(ctx, messages)
	defer span.End("")
	late := s.lateMany(ctx)
	for n, sent := range s.engine.SendMany(ctx, messages) {
		a := sent.Answer
		admitted[n](sent.Err != nil || !a.Existing)
		replies[places[n]] = api.StartedReply{
			StartReply: api.StartReply{Run: a.Run, Existing: a.Existing, Status: a.Status}, Err: late(messages[n].To, sent.Err),
		}
	}

	return replies, nil
}
