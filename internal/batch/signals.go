package batch

import (
	"context"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// Signals is the method Signals of api.Client, which asks about the unread signals of an execution.
type Signals func(ctx context.Context, r api.SignalsRequest) (model.Calls, error)

// DropSignals drops the unread signals of the name in r.ID, oldest first, in pages of one commit
// each, and passes each dropped signal to tell. Signals that arrive after the first page may stay:
// otherwise DropSignals might never end. If it returns an error, only the signals that it has
// passed to tell are dropped.
func DropSignals(ctx context.Context, ask Signals, r api.SignalsRequest, tell func(*model.Call)) error {
	r.Do = model.MailboxDropNamed
	for first, left := true, 0; first || left > 0; first = false {
		page, err := ask(ctx, r)
		if err != nil {
			return err
		}
		for i := range page.Calls {
			tell(&page.Calls[i])
		}

		if first {
			left = page.Total
		} else {
			left -= max(len(page.Calls), 1)
		}
		left = min(left, page.Total)
	}

	return nil
}
