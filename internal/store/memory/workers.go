package memory

import (
	"bytes"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// NameWorkers stores and removes names of remote workers.
func (s *Store) NameWorkers(ctx context.Context, w store.WorkerNames) error {
	const op = "name workers"
	defer s.mu.Unlock()
	if err := s.begin(ctx, op); err != nil {
		return err
	}
	if err := w.Check(op); err != nil {
		return err
	}

	if s.workers == nil {
		s.workers = map[string]model.NodeID{}
	}
	for _, n := range w.Add {
		if _, known := s.workers[n.Name]; !known {
			s.workers[n.Name] = n.Home
		}
	}
	for _, name := range w.Remove {
		delete(s.workers, name)
	}
	for name, home := range s.workers {
		if slices.Contains(w.Drop, home) {
			delete(s.workers, name)
		}
	}
	return nil
}

// WorkerHomes returns the homes of all remote workers.
func (s *Store) WorkerHomes(ctx context.Context) ([]model.NodeID, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "worker homes"); err != nil {
		return nil, err
	}
	var homes []model.NodeID
	for _, home := range s.workers {
		homes = append(homes, home)
	}
	slices.SortFunc(homes, func(a, b model.NodeID) int { return bytes.Compare(a[:], b[:]) })
	return slices.Compact(homes), nil
}
