package sqlite

import (
	"context"
	"errors"
	"slices"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlPutAudit = `insert into perdure_audit (id, tenant, final, body) values (?1, ?2, ?3, ?4)
		on conflict (id) do update set tenant = excluded.tenant, final = excluded.final, body = excluded.body where final = 0`
	sqlListAudit   = `select id, tenant, final, body from perdure_audit where id >= ?1 and id < ?2 order by id desc limit ?3`
	sqlListAuditOf = `select id, tenant, final, body from perdure_audit where tenant = ?4 and id >= ?1 and id < ?2 order by id desc limit ?3`
	sqlSweepAudit  = `delete from perdure_audit where id in (select id from perdure_audit where id < ?1 order by id limit ?2)`
)

// errEnough stops a query when the page is full, although the query has more rows.
var errEnough = errors.New("the page is full")

// PutAudit stores entries of the log of administrative actions.
func (s *Store) PutAudit(ctx context.Context, rows []store.AuditRow) error {
	const op = "put audit"
	for i := range rows {
		if n := len(rows[i].Body); n > maxBody {
			return store.Errorf(store.Refused, op, "%d bytes are too large, the limit is %d", n, maxBody)
		}
	}

	return s.write(ctx, op, func(w *writer) error {
		for i := range rows {
			r := &rows[i]
			body := seal(slices.Clone(r.Body), 0, auditSum(nil, r))
			if _, err := w.exec(sqlPutAudit, r.ID[:], r.Tenant, flag(r.Final), body); err != nil {
				return err
			}
		}
		return nil
	})
}

// ListAudit returns entries, newest first.
func (s *Store) ListAudit(ctx context.Context, q store.AuditQuery) (out []store.AuditRow, err error) {
	end := q.End()
	sql, args := sqlListAudit, []any{q.From[:], end[:], max(q.Limit, 0)}
	if !q.All {
		sql, args = sqlListAuditOf, append(args, q.Tenant)
	}

	err = s.read(ctx, "list audit", func(c *conn) error {
		out = nil
		size := 0
		err := c.query(sql, func(q2 *stmt) error {
			r := scanAudit(q2)
			if size += len(r.Body); size > q.MaxBytes && len(out) > 0 {
				return errEnough
			}
			out = append(out, r)
			return nil
		}, args...)
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

// scanAudit reads an entry.
func scanAudit(q *stmt) store.AuditRow {
	r := store.AuditRow{Tenant: q.text(1), Final: q.int(2) != 0}
	copy(r.ID[:], q.raw(0))
	sealed := q.raw(3)
	body, err := unseal(auditSum(nil, &r), sealed)
	if err != nil {
		r.Body, r.Damaged = []byte{}, model.Damage(sealed, corrupt(err, "audit, entry %s", r.ID))
		return r
	}
	r.Body = slices.Clone(body)
	return r
}

// sweepAudit deletes old entries.
func sweepAudit(c *conn, before model.Time, limit int) (int, error) {
	if limit <= 0 || before == 0 {
		return 0, nil
	}
	oldest := store.OldestID(before)
	n, err := c.exec(sqlSweepAudit, oldest[:], limit)
	return int(n), err
}
