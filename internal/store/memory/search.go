package memory

import (
	"bytes"
	"context"
	"errors"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

var _ store.Searcher = (*Store)(nil)

// Search encodes everything that can have a payload, as other stores do, and searches the bytes.
func (s *Store) Search(ctx context.Context, text string, found func(value []byte) error) error {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "search"); err != nil {
		return err
	}

	look := func(body []byte) error {
		if bytes.Contains(body, []byte(text)) {
			return found(body)
		}
		return nil
	}
	for _, sh := range s.shards {
		if sh == nil {
			continue
		}

		for _, r := range sh.runs { // the order does not matter to the caller
			if err := r.search(look); err != nil {
				return err
			}
		}

		for _, r := range sh.dead {
			if err := look(model.AppendDeadTask(nil, &r.Body)); err != nil {
				return err
			}
		}

		for _, w := range sh.in {
			for i := range w.rows {
				if err := look(model.AppendBody(nil, &w.rows[i].Message, w.rows[i].Damaged)); err != nil {
					return err
				}
			}
		}

		for _, chunk := range sh.inbox.chunks {
			for _, r := range chunk {
				if err := look(model.AppendBody(nil, &r.Message, r.Damaged)); err != nil {
					return err
				}
			}
		}
	}

	if err := s.searchEntities(look); err != nil {
		return err
	}

	for i := range s.audit {
		if err := look(s.audit[i].Body); err != nil {
			return err
		}
	}

	for i := range s.reports {
		if err := errors.Join(look(s.reports[i].Head), look(s.reports[i].Body)); err != nil {
			return err
		}
	}

	for _, chunk := range s.settings.rows.chunks {
		for _, row := range chunk {
			if err := look(row.Body); err != nil {
				return err
			}
		}
	}

	return nil
}

func (r *run) search(look func(body []byte) error) error {
	if r.started {
		if err := look(model.AppendStart(nil, &r.row.Start)); err != nil {
			return err
		}
		if err := look(model.AppendOutcome(nil, &r.row.Outcome)); err != nil {
			return err
		}
	}

	for i := range r.events {
		if err := look(model.AppendEvent(nil, &r.events[i])); err != nil {
			return err
		}
	}

	for i := range r.data {
		if err := look(model.AppendPayload(nil, &r.data[i].Value)); err != nil {
			return err
		}
	}

	for _, l := range r.logs {
		if err := look([]byte(l.Text)); err != nil {
			return err
		}
	}

	return nil
}
