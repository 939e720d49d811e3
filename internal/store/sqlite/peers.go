package sqlite

import (
	"context"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// PutPeerMail refuses notes: only one process opens the file, so there are no other nodes.
func (s *Store) PutPeerMail(ctx context.Context, _ []store.PeerMail) error {
	const op = "put peer mail"
	if err := s.read(ctx, op, func(*conn) error { return nil }); err != nil {
		return err
	}
	return store.Errorf(store.Refused, op, "one process at a time opens this store: it has no peers")
}

// TakePeerMail returns no notes.
func (s *Store) TakePeerMail(ctx context.Context, _ model.NodeID, _, _ int) ([]store.PeerMail, error) {
	return nil, s.read(ctx, "take peer mail", func(*conn) error { return nil })
}
