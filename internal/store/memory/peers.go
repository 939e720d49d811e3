package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

func comparePeerMail(a, b store.PeerMail) int {
	return cmp.Or(bytes.Compare(a.To[:], b.To[:]), a.ID.Compare(b.ID))
}

// firstNote returns the index of the first note for a node.
func (s *Store) firstNote(node model.NodeID) (i int, found bool) {
	i, _ = slices.BinarySearchFunc(s.peerMail, store.PeerMail{To: node}, comparePeerMail)
	return i, i < len(s.peerMail) && s.peerMail[i].To == node
}

// PutPeerMail stores notes for other nodes.
func (s *Store) PutPeerMail(ctx context.Context, rows []store.PeerMail) error {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "put peer mail"); err != nil {
		return err
	}
	for _, r := range rows {
		if i, found := slices.BinarySearchFunc(s.peerMail, r, comparePeerMail); !found {
			r.Body = slices.Clone(r.Body)
			s.peerMail = slices.Insert(s.peerMail, i, r)
		}
	}
	return nil
}

// TakePeerMail removes the oldest notes for a node and returns them.
func (s *Store) TakePeerMail(ctx context.Context, node model.NodeID, limit, maxBytes int) ([]store.PeerMail, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "take peer mail"); err != nil {
		return nil, err
	}
	i, _ := s.firstNote(node)
	end, size := i, 0
	for ; end < len(s.peerMail) && s.peerMail[end].To == node && end-i < limit; end++ {
		if size += len(s.peerMail[end].Body); size > maxBytes && end > i {
			break
		}
	}
	out := slices.Clone(s.peerMail[i:end])
	s.peerMail = slices.Delete(s.peerMail, i, end)
	return out, nil
}

// sweepPeerMail removes notes that were written before a time, and returns how many more rows the
// sweep may remove.
func (s *Store) sweepPeerMail(before model.Time, left int) int {
	if before == 0 {
		return left
	}
	oldest := store.OldestID(before)
	s.peerMail = slices.DeleteFunc(s.peerMail, func(r store.PeerMail) bool {
		old := left > 0 && r.ID.Compare(oldest) < 0
		if old {
			left--
		}
		return old
	})
	return left
}
