package sqlite

import (
	"context"
	"errors"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlAddReport = `insert into perdure_replay_reports (id, tenant, request, head, body) values (?1, ?2, ?3, ?4, ?5)
		on conflict (tenant, request) do nothing`
	reportHead         = `select id, tenant, request, head`
	sqlReportOfRequest = reportHead + ` from perdure_replay_reports where tenant = ?1 and request = ?2`
	sqlLoadReport      = reportHead + `, body from perdure_replay_reports where tenant = ?1 and id = ?2`
	sqlListReports     = reportHead + ` from perdure_replay_reports where tenant = ?1 and id < ?2 order by id desc limit ?3`
	sqlReportSizes     = `select id, length(head) + length(body) from perdure_replay_reports where tenant = ?1 and id <> ?2 order by id desc`
	sqlDeleteReport    = `delete from perdure_replay_reports where id = ?1`
	sqlSweepReports    = `delete from perdure_replay_reports where id in (select id from perdure_replay_reports where id < ?1 order by id limit ?2)`
)

// AddReport stores a replay report, unless the tenant has a report of the same request. It removes
// the oldest reports of the tenant until the bounds hold.
func (s *Store) AddReport(ctx context.Context, row store.ReportRow, keep store.ReportBounds) (out store.ReportRow, err error) {
	const op = "add report"
	if n := row.Size(); n > maxBody {
		return out, store.Errorf(store.Refused, op, "%d bytes are too large, the limit is %d", n, maxBody)
	}
	head, body := seal(slices.Clone(row.Head), 0, reportSum(nil, 'h', &row)), seal(slices.Clone(row.Body), 0, reportSum(nil, 'b', &row))

	err = s.write(ctx, op, func(w *writer) error {
		n, err := w.exec(sqlAddReport, row.ID[:], row.Tenant, row.Request, head, body)
		if err != nil {
			return err
		}
		if n == 1 {
			out = row
			out.Body, out.Damaged = nil, nil
			return trimReports(w.conn, &row, keep)
		}
		return w.query(sqlReportOfRequest, func(q *stmt) error {
			out = scanReport(q)
			return nil
		}, row.Tenant, row.Request)
	})
	if err != nil {
		return store.ReportRow{}, err
	}
	return out, nil
}

// trimReports deletes the oldest reports of a tenant until the bounds hold. It never deletes the
// report that was just added.
func trimReports(c *conn, added *store.ReportRow, keep store.ReportBounds) error {
	var gone []model.ReportID
	rows, size := 1, added.Size()
	err := c.query(sqlReportSizes, func(q *stmt) error {
		rows++
		size += q.int(1) - 2*sumSize
		if rows > keep.Rows || size > keep.Bytes {
			var id model.ReportID
			copy(id[:], q.raw(0))
			gone = append(gone, id)
		}
		return nil
	}, added.Tenant, added.ID[:])
	if err != nil {
		return err
	}

	for _, id := range gone {
		if _, err := c.exec(sqlDeleteReport, id[:]); err != nil {
			return err
		}
	}
	return nil
}

// LoadReport returns a replay report with its body.
func (s *Store) LoadReport(ctx context.Context, tenant string, id model.ReportID) (out *store.ReportRow, err error) {
	err = s.read(ctx, "load report", func(c *conn) error {
		out = nil
		return c.query(sqlLoadReport, func(q *stmt) error {
			r := scanReport(q)
			sealed := q.raw(4)
			body, err := unseal(reportSum(nil, 'b', &r), sealed)
			switch {
			case r.Damaged != nil:
			case err != nil:
				r.Head, r.Damaged = []byte{}, model.Damage(sealed, corrupt(err, "replay_reports, report %s", r.ID))
			default:
				r.Body = slices.Clone(body)
			}
			out = &r
			return nil
		}, tenant, id[:])
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ListReports returns replay reports without their bodies, newest first.
func (s *Store) ListReports(ctx context.Context, q store.ReportQuery) (out []store.ReportRow, err error) {
	end := q.End()
	err = s.read(ctx, "list reports", func(c *conn) error {
		out = nil
		size := 0
		err := c.query(sqlListReports, func(row *stmt) error {
			r := scanReport(row)
			if size += len(r.Head); size > q.MaxBytes && len(out) > 0 {
				return errEnough
			}
			out = append(out, r)
			return nil
		}, q.Tenant, end[:], max(q.Limit, 0))
		if errors.Is(err, errEnough) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// scanReport reads the columns reportHead: a report without its body.
func scanReport(q *stmt) store.ReportRow {
	r := store.ReportRow{Tenant: q.text(1), Request: q.text(2)}
	copy(r.ID[:], q.raw(0))
	sealed := q.raw(3)
	head, err := unseal(reportSum(nil, 'h', &r), sealed)
	if err != nil {
		r.Head, r.Damaged = []byte{}, model.Damage(sealed, corrupt(err, "replay_reports, report %s", r.ID))
		return r
	}
	r.Head = slices.Clone(head)
	return r
}

// sweepReports deletes old reports.
func sweepReports(c *conn, before model.Time, limit int) (int, error) {
	if limit <= 0 || before == 0 {
		return 0, nil
	}
	oldest := store.OldestID(before)
	n, err := c.exec(sqlSweepReports, oldest[:], limit)
	return int(n), err
}
