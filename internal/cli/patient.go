package cli

import (
	"context"
	"errors"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// patient is a backend that limits how long each change of an execution or a dead task waits for
// its owner. Without the limit, a change would wait forever if no node is running. The limit does
// not include the time that the user takes to answer a question.
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

func (p patient) Signals(ctx context.Context, r api.SignalsRequest) (model.Calls, error) {
	return within(ctx, p.most, r, p.Backend.Signals)
}

// membersLimit is how long a command looks for the reason of a missing answer.
const membersLimit = 5 * time.Second

// within calls ask with a deadline.
func within[Q, A any](ctx context.Context, d time.Duration, q Q, ask func(context.Context, Q) (A, error)) (A, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	a, err := ask(ctx, q)
	return a, late(ctx, err)
}

// If the command could not read the store before its deadline, late turns the error of the store
// into a timeout. In that case the store was reachable, but the command had no time left to read
// it.
func late(ctx context.Context, err error) error {
	if fault.Is(err, fault.Unavailable) && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fault.New(fault.Timeout, "%w", err)
	}
	return err
}

// hintAtNodes adds a hint to a timeout: which nodes are running and could have answered.
func (o *options) hintAtNodes(ctx context.Context, n session, err error) error {
	const further = "see `perdure doctor`, or wait longer with --timeout"
	if !fault.Is(err, fault.Timeout) {
		return err
	}
	if n.Store() == nil { // the command has asked a program or a server, which did not answer
		return fault.WithHint(err, "%s", further)
	}
	if o.alone() {
		return fault.WithHint(err, "no program can answer while this command has the file open: %s", further)
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), membersLimit)
	defer cancel()
	view, failed := n.Store().Members(ctx)
	live := liveNodes(view)
	switch {
	case failed != nil:
		return fault.WithHint(err, "%s", further)
	case live == 0:
		return fault.WithHint(err, "no node is running: %s", further)
	case live == 1:
		return fault.WithHint(err, "one node is running and has not answered: %s", further)
	}
	return fault.WithHint(err, "%d nodes are running and have not answered: %s", live, further)
}
