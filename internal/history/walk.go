package history

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Window selects events of a run by their positions. Positions begin at 0 and have no gaps.
type Window struct {
	// After and Before exclude their own positions. If Before is 0, the window has no end.
	After, Before int64
	// Limit is the largest number of events to read. If Last is set, they are the last events of
	// the window, otherwise the first.
	Limit int64
	Last  bool
}

// Walker reads the events of a window.
type Walker struct {
	// Run is the run, and Total how many events it had when the walk began.
	Run   model.RunID
	Total int64

	client   api.Client
	target   api.Target
	from, to int64 // the first position, and the position after the last
}

// Walk prepares to read events of a run, and fails if there is no such run.
func Walk(ctx context.Context, b api.Client, t api.Target, w Window) (*Walker, error) {
	if w.Limit <= 0 || w.After < -1 || w.Before < 0 {
		return nil, fault.New(fault.Invalid, "events after %d and before %d, at most %d: must not be negative", w.After, w.Before, w.Limit)
	}
	d, err := b.Describe(ctx, t)
	if err != nil {
		return nil, err
	}

	k := &Walker{Run: d.Start.Run, Total: d.Events, client: b, target: api.Target{Address: t.Address, Run: d.Start.Run}, from: w.After + 1, to: d.Events}
	if w.Before > 0 {
		k.to = min(k.to, w.Before)
	}
	switch {
	case k.to-k.from <= w.Limit:
	case w.Last:
		k.from = k.to - w.Limit
	default:
		k.to = k.from + w.Limit
	}
	return k, nil
}

// Each passes the events to a function, page by page. Events that were added after Walk are left
// out. The function must not keep its argument.
func (k *Walker) Each(ctx context.Context, each func(*model.Event) error) error {
	for next := k.from; next < k.to; {
		page, err := k.client.History(ctx, api.HistoryRequest{Target: k.target, After: next - 1, Limit: int(min(k.to-next, 1000))})
		if err != nil {
			return err
		}
		if len(page.Events) == 0 {
			return fault.New(fault.NotFound, "run %s has no event %d: it was deleted while it was read", k.Run, next)
		}
		for i := range page.Events {
			e := &page.Events[i]
			if e.Seq >= k.to {
				return nil
			}
			if err := each(e); err != nil {
				return err
			}
			next = e.Seq + 1
		}
	}
	return nil
}

// At returns one event of a run.
func At(ctx context.Context, b api.Client, t api.Target, position int64) (*model.Event, error) {
	if position < 0 {
		return nil, fault.New(fault.Invalid, "the position is %d, must not be negative", position)
	}
	page, err := b.History(ctx, api.HistoryRequest{Target: t, After: position - 1, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(page.Events) == 0 || page.Events[0].Seq != position {
		return nil, fault.New(fault.NotFound, "run %s has no event %d", page.Run, position)
	}
	return &page.Events[0], nil
}
