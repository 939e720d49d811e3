package memory

import (
	"bytes"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

func compareAudit(a store.AuditRow, id model.RunID) int { return a.ID.Compare(id) }

// PutAudit stores entries of the log of administrative actions.
func (s *Store) PutAudit(ctx context.Context, rows []store.AuditRow) error {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "put audit"); err != nil {
		return err
	}
	for _, r := range rows {
		r.Body, r.Damaged = bytes.Clone(r.Body), nil
		i, found := slices.BinarySearchFunc(s.audit, r.ID, compareAudit)
		switch {
		case !found:
			s.audit = slices.Insert(s.audit, i, r)
		case !s.audit[i].Final:
			s.audit[i] = r
		}
	}
	return nil
}

// ListAudit returns entries, newest first.
func (s *Store) ListAudit(ctx context.Context, q store.AuditQuery) (out []store.AuditRow, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "list audit"); err != nil {
		return nil, err
	}
	end, _ := slices.BinarySearchFunc(s.audit, q.End(), compareAudit)
	size := 0
	for i := end - 1; i >= 0 && len(out) < q.Limit && s.audit[i].ID.Compare(q.From) >= 0; i-- {
		r := s.audit[i]
		if !q.All && r.Tenant != q.Tenant {
			continue
		}
		if size += len(r.Body); size > q.MaxBytes && len(out) > 0 {
			break
		}
		r.Body = bytes.Clone(r.Body)
		out = append(out, r)
	}
	return out, nil
}

// sweepAudit removes old entries, at most left of them, and returns how many more rows the sweep
// may remove.
func (s *Store) sweepAudit(before model.Time, left int) int {
	if before == 0 {
		return left
	}
	old, _ := slices.BinarySearchFunc(s.audit, store.OldestID(before), compareAudit)
	old = min(old, left)
	s.audit = slices.Delete(s.audit, 0, old)
	return left - old
}
