package memory

import (
	"bytes"
	"context"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

func compareReport(r store.ReportRow, id model.ReportID) int { return r.ID.Compare(id) }

// headOf returns a report without its body.
func headOf(r store.ReportRow) store.ReportRow {
	r.Head, r.Body = bytes.Clone(r.Head), nil
	return r
}

// AddReport stores a replay report, unless the tenant already has a report of the same request. It
// removes the oldest reports of the tenant until the bounds hold.
func (s *Store) AddReport(ctx context.Context, row store.ReportRow, keep store.ReportBounds) (store.ReportRow, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "add report"); err != nil {
		return store.ReportRow{}, err
	}
	for i := range s.reports {
		if r := &s.reports[i]; r.Tenant == row.Tenant && r.Request == row.Request {
			return headOf(*r), nil
		}
	}

	at, found := slices.BinarySearchFunc(s.reports, row.ID, compareReport)
	if found {
		return store.ReportRow{}, store.Errorf(store.Refused, "add report", "%s exists", row.ID)
	}
	row.Head, row.Body, row.Damaged = bytes.Clone(row.Head), bytes.Clone(row.Body), nil
	s.reports = slices.Insert(s.reports, at, row)
	s.trimReports(&row, keep)
	return headOf(row), nil
}

// trimReports removes the oldest reports of a tenant until the bounds hold. It never removes the
// report that was just added.
func (s *Store) trimReports(added *store.ReportRow, keep store.ReportBounds) {
	rows, size := 1, added.Size()
	gone := map[model.ReportID]bool{}
	for i := len(s.reports) - 1; i >= 0; i-- {
		r := &s.reports[i]
		if r.Tenant != added.Tenant || r.ID == added.ID {
			continue
		}
		rows++
		size += r.Size()
		if rows > keep.Rows || size > keep.Bytes {
			gone[r.ID] = true
		}
	}
	s.reports = slices.DeleteFunc(s.reports, func(r store.ReportRow) bool { return gone[r.ID] })
}

// LoadReport returns a replay report with its body.
func (s *Store) LoadReport(ctx context.Context, tenant string, id model.ReportID) (*store.ReportRow, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load report"); err != nil {
		return nil, err
	}
	i, found := slices.BinarySearchFunc(s.reports, id, compareReport)
	if !found || s.reports[i].Tenant != tenant {
		return nil, nil
	}
	r := s.reports[i]
	r.Head, r.Body = bytes.Clone(r.Head), bytes.Clone(r.Body)
	return &r, nil
}

// ListReports returns replay reports without their bodies, newest first.
func (s *Store) ListReports(ctx context.Context, q store.ReportQuery) (out []store.ReportRow, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "list reports"); err != nil {
		return nil, err
	}
	end, _ := slices.BinarySearchFunc(s.reports, q.End(), compareReport)
	size := 0
	for i := end - 1; i >= 0 && len(out) < q.Limit; i-- {
		r := s.reports[i]
		if r.Tenant != q.Tenant {
			continue
		}
		if size += len(r.Head); size > q.MaxBytes && len(out) > 0 {
			break
		}
		out = append(out, headOf(r))
	}
	return out, nil
}

// sweepReports removes old reports, at most left of them, and returns how many more rows the sweep
// may remove.
func (s *Store) sweepReports(before model.Time, left int) int {
	if before == 0 {
		return left
	}
	old, _ := slices.BinarySearchFunc(s.reports, model.ReportID(store.OldestID(before)), compareReport)
	old = min(old, left)
	s.reports = slices.Delete(s.reports, 0, old)
	return left - old
}
