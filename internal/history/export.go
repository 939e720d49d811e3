package history

import (
	"context"
	"io"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// Export writes the history of a run as it is committed, page by page. An open run is written as far as it has come.
func Export(ctx context.Context, b api.Client, t api.Target, w io.Writer) error {
	d, err := b.Describe(ctx, t)
	if err != nil {
		return err
	}
	out, err := NewWriter(w, &d.Start)
	if err != nil {
		return err
	}
	req := api.HistoryRequest{Target: api.Target{Address: t.Address, Run: d.Start.Run}, After: 0}
	end := model.Outcome{Status: model.Running}
	for more := true; more; {
		page, err := b.History(ctx, req)
		if err != nil {
			return err
		}
		for i := range page.Events {
			e := &page.Events[i]
			req.After = e.Seq
			if e.Kind == model.EventClosed {
				end = model.Outcome{Status: e.Status, Output: e.Output, Failure: e.Failure, At: e.At, Seen: e.Ref, Next: e.Run}
			} else if err := out.Event(e); err != nil {
				return err
			}
		}
		more = page.More && len(page.Events) > 0
	}
	// A run that was deleted meanwhile has lost events: what was written would be a piece of it.
	if _, err := b.Describe(ctx, req.Target); err != nil {
		return err
	}
	return out.End(&end)
}
