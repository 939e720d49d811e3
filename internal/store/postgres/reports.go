package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const reportHead = `select id, tenant, request, head`

// sweepReports removes old reports. The ids of reports grow with time, so the primary key has the
// reports in the order of their age.
const sweepReports = `
delete from {schema}.replay_reports where id = any (array(select r.id from {schema}.replay_reports r where r.id < $1 order by r.id limit $2))`

// AddReport stores a replay report and removes the oldest reports of the tenant.
func (s *Store) AddReport(ctx context.Context, row store.ReportRow, keep store.ReportBounds) (out store.ReportRow, err error) {
	const (
		add = `
insert into {schema}.replay_reports (id, tenant, request, head, body) values ($1, $2, $3, $4, $5)
on conflict (tenant, request) do nothing`
		ofRequest = reportHead + ` from {schema}.replay_reports where tenant = $1 and request = $2`

		// The statement does not count or delete the new report, which must stay. PostgreSQL knows
		// the size of a body without reading the body. Another call may be deleting the same
		// reports at the same time. The statement does not wait for that call, so the two cannot
		// block each other.
		trim = `
delete from {schema}.replay_reports where id = any (array(
  select o.id from {schema}.replay_reports o
  where o.id = any (array(
    select s.id
    from (
      select r.id, row_number() over w as rows, sum(octet_length(r.head) + octet_length(r.body)) over w as bytes
      from {schema}.replay_reports r where r.tenant = $1 and r.id <> $2
      window w as (order by r.id desc)
    ) s
    where s.rows > $3 or s.bytes > $4))
  for update skip locked))`
	)

	err = s.work(ctx, "add report", true, func(ctx context.Context, c *pgx.Conn) error {
		return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, s.sql(add), reportArg(row.ID), row.Tenant, row.Request, bytesArg(row.Head), bytesArg(row.Body))
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				out, err = scanReport(tx.QueryRow(ctx, s.sql(ofRequest), row.Tenant, row.Request))
				if errors.Is(err, pgx.ErrNoRows) { // the report that the insert found is gone
					return store.Errorf(store.Retryable, "add report", "the report of request %.200s was removed during the call", row.Request)
				}
				return err
			}

			out = row
			out.Body, out.Damaged = nil, nil
			_, err = tx.Exec(ctx, s.sql(trim), row.Tenant, reportArg(row.ID), keep.Rows-1, keep.Bytes-row.Size())
			return err
		})
	})
	if err != nil {
		return store.ReportRow{}, err
	}
	return out, nil
}

func reportArg(id model.ReportID) pgtype.UUID { return runArg(model.RunID(id)) }

// bytesArg returns bytes for a column that is never null.
func bytesArg(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// scanReport reads a report: reportHead, and further columns.
func scanReport(row pgx.Row, further ...any) (r store.ReportRow, err error) {
	var id pgtype.UUID
	err = row.Scan(append([]any{&id, &r.Tenant, &r.Request, &r.Head}, further...)...)
	r.ID = id.Bytes
	return r, err
}

// LoadReport returns a replay report with its body.
func (s *Store) LoadReport(ctx context.Context, tenant string, id model.ReportID) (out *store.ReportRow, err error) {
	const load = reportHead + `, body from {schema}.replay_reports where tenant = $1 and id = $2`

	err = s.read(ctx, "load report", func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		rows, err := c.Query(ctx, s.sql(load), tenant, reportArg(id))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var body []byte
			r, err := scanReport(rows, &body)
			if err != nil {
				return err
			}
			r.Body, out = body, &r
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// ListReports returns replay reports without their bodies, newest first.
func (s *Store) ListReports(ctx context.Context, q store.ReportQuery) (out []store.ReportRow, err error) {
	const list = reportHead + ` from {schema}.replay_reports where tenant = $1 and id < $2 order by tenant desc, id desc limit $3`

	err = s.read(ctx, "list reports", func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		rows, err := c.Query(ctx, s.sql(list), q.Tenant, reportArg(q.End()), max(q.Limit, 0))
		if err != nil {
			return err
		}
		defer rows.Close()
		for size := 0; rows.Next(); {
			r, err := scanReport(rows)
			if err != nil {
				return err
			}
			if size += len(r.Head); size > q.MaxBytes && len(out) > 0 {
				break
			}
			out = append(out, r)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
