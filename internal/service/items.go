package service

import (
	"context"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// maxStreamID bounds the ids of streams, in bytes.
const maxStreamID = 64

// stream checks the entity and the id that name a stream.
func (v validator) stream(entity model.Address, id string) {
	v.Entity(entity)
	v.Text("the id of the stream", id, maxStreamID)
}

// TakeItems serves the caller of a stream.
func (s *Service) TakeItems(ctx context.Context, r model.ItemsTake) (page model.ItemsPage, err error) {
	v := s.check("take items")
	v.stream(r.Entity, r.ID)
	if r.Do < model.TakeOpen || r.Do > model.TakeLeave {
		v.Wrong("there is no verb %d", r.Do)
	}
	if r.After < 0 {
		v.Wrong("item %d is before the first", r.After)
	}
	if err := v.Err(); err != nil {
		return page, err
	}
	if s.engine == nil {
		return page, noStreams(r.Entity)
	}
	return s.engine.TakeItems(ctx, &r)
}

// SendItems takes items from the worker that runs the code of a stream.
func (s *Service) SendItems(ctx context.Context, r model.ItemsSend) (last int64, err error) {
	v := s.check("send items")
	v.stream(r.Entity, r.ID)
	if r.First < 1 {
		v.Wrong("item %d is before the first", r.First)
	}
	if n := len(r.Items); n > model.MaxItemsAhead {
		v.Wrong("it has %d items, at most %d are allowed", n, model.MaxItemsAhead)
	}
	for i := range r.Items {
		if n := r.Items[i].Size(); n > model.MaxReplyItem+sealed {
			v.Wrong("item %d has %d bytes, at most %d are allowed", r.First+int64(i), n, model.MaxReplyItem+sealed)
		}
	}
	if r.Failure != nil && !r.Ended {
		v.Wrong("it has a failure, and does not end the stream")
	}

	if err := v.Err(); err != nil {
		return 0, err
	}
	if s.engine == nil {
		return 0, noStreams(r.Entity)
	}
	r.Failure = r.Failure.Bounded()
	return s.engine.SendItems(ctx, &r)
}

func noStreams(entity model.Address) error {
	return fault.New(fault.Denied, "stream of %s: the store is open for reading only", entity)
}
