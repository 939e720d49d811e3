package cli

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
)

// patient waits so long for the owner of each execution or dead task that it asks, and no longer: nobody may be running. What people are asked in between takes as long as it takes.
type patient struct {
	api.Backend
	most time.Duration
}

func (p patient) Requeue(ctx context.Context, r api.RequeueRequest) (api.RequeueReply, error) {
	return within(ctx, p.most, r, p.Backend.Requeue)
}

func (p patient) PurgeDead(ctx context.Context, id api.DeadID) error {
	_, err := within(ctx, p.most, id, func(ctx context.Context, id api.DeadID) (struct{}, error) {
		return struct{}{}, p.Backend.PurgeDead(ctx, id)
	})
	return err
}

func (p patient) Fork(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	return within(ctx, p.most, r, p.Backend.Fork)
}

func (p patient) Retry(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	return within(ctx, p.most, r, p.Backend.Retry)
}

func (p patient) Reset(ctx context.Context, r api.PastRequest) (api.PastReply, error) {
	return within(ctx, p.most, r, p.Backend.Reset)
}

func (p patient) Import(ctx context.Context, r api.ImportRequest) (api.PastReply, error) {
	return within(ctx, p.most, r, p.Backend.Import)
}

func (p patient) Delete(ctx context.Context, r api.DeleteRequest) (api.DeleteReply, error) {
	return within(ctx, p.most, r, p.Backend.Delete)
}

// within asks for something that needs an answer within the time.
func within[Q, A any](ctx context.Context, d time.Duration, q Q, ask func(context.Context, Q) (A, error)) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	a, err := ask(ctx, q)
	return a, unanswered(err)
}

// unanswered tells people what it may mean that nobody has answered in time.
func unanswered(err error) error {
	if fault.Is(err, fault.Timeout) {
		return fault.WithHint(err, "no node may be running: see `perdure doctor`; --timeout waits longer")
	}
	return err
}
