package history

import (
	"context"
	"errors"
	"io"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Export writes the committed history of a run, page by page. If the run is open, Export writes the
// events so far.
func Export(ctx context.Context, b api.Client, t api.Target, w io.Writer) error {
	d, err := b.Describe(ctx, t)
	if err != nil {
		return err
	}
	out, err := NewWriter(w, &d.Start)
	if err != nil {
		return err
	}
	end, err := read(ctx, b, &d.Start, out.Event)
	if err != nil {
		return err
	}
	return out.End(&end)
}

// ErrTooLarge says that a history has more bytes than Load may read.
var ErrTooLarge = errors.New("the history is too large")

// Load reads the history of a run into memory. It returns ErrTooLarge if the history has more than
// most bytes.
func Load(ctx context.Context, b api.Client, t api.Target, most int) (*model.History, error) {
	d, err := b.Describe(ctx, t)
	if err != nil {
		return nil, err
	}
	h := &model.History{Start: d.Start}
	size := 0

	h.Outcome, err = read(ctx, b, &d.Start, func(e *model.Event) error {
		if size += e.Size(); size > most {
			return fault.New(fault.Exhausted, "%s has more than %d bytes: %w", d.Start.Run, most, ErrTooLarge)
		}
		h.Events = append(h.Events, *e)
		return nil
	})
	if err != nil {
		return nil, err
	}

	return h, nil
}

// read passes every event of a run to each, page by page, and returns the outcome of the run.
func read(ctx context.Context, b api.Client, start *model.Start, each func(*model.Event) error) (model.Outcome, error) {
	req := api.HistoryRequest{Target: api.Target{Address: start.Address, Run: start.Run}, After: 0}
	end := model.Outcome{Status: model.Running}
	for more := true; more; {
		page, err := b.History(ctx, req)
		if err != nil {
			return end, err
		}
		for i := range page.Events {
			e := &page.Events[i]
			req.After = e.Seq
			if e.Kind == model.EventClosed {
				end = model.Outcome{Status: e.Status, Output: e.Output, Failure: e.Failure, At: e.At, Seen: e.Ref, Next: e.Run}
			} else if err := each(e); err != nil {
				return end, err
			}
		}
		more = page.More && len(page.Events) > 0
	}

	// If the run was deleted while it was read, events are missing. In that case Describe fails.
	_, err := b.Describe(ctx, req.Target)
	return end, err
}
