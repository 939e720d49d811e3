package service

import (
	"context"
	"sync"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

// manyAtOnce is how many starts of one call are on their way at a time: enough that their commits are shared.
const manyAtOnce = 256

// StartMany starts many executions.
func (s *Service) StartMany(ctx context.Context, rs []api.StartRequest) ([]api.StartedReply, error) {
	if s.engine == nil {
		return nil, fault.New(fault.Denied, "start %d executions: the store is open for reading only", len(rs))
	}
	replies := make([]api.StartedReply, len(rs))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(manyAtOnce, len(rs)) {
		workers.Go(func() {
			for i := range next {
				replies[i].StartReply, replies[i].Err = s.Start(ctx, rs[i])
			}
		})
	}
	for i := range rs {
		next <- i
	}
	close(next)
	workers.Wait()
	return replies, nil
}
