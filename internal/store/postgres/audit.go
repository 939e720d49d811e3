package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/store"
)

// sweepAudit removes old entries. The ids of entries grow with time, so the primary key has the
// entries in the order of their age.
const sweepAudit = `
delete from {schema}.audit where id = any (array(select a.id from {schema}.audit a where a.id < $1 order by a.id limit $2))`

// PutAudit stores entries of the log of administrative actions.
func (s *Store) PutAudit(ctx context.Context, rows []store.AuditRow) error {
	const put = `
insert into {schema}.audit as a (id, tenant, final, body)
select * from unnest($1::uuid[], $2::text[], $3::boolean[], $4::bytea[])
on conflict (id) do update set tenant = excluded.tenant, final = excluded.final, body = excluded.body where not a.final`

	if len(rows) == 0 {
		return nil
	}
	n := len(rows)
	ids, tenants, finals, bodies := make([]pgtype.UUID, n), make([]string, n), make([]bool, n), make([][]byte, n)
	for i := range rows {
		r := &rows[i]
		ids[i], tenants[i], finals[i], bodies[i] = runArg(r.ID), r.Tenant, r.Final, r.Body
		if r.Body == nil {
			bodies[i] = []byte{}
		}
	}
	return s.work(ctx, "put audit", true, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, s.sql(put), ids, tenants, finals, bodies)
		return err
	})
}

// ListAudit returns entries, newest first.
func (s *Store) ListAudit(ctx context.Context, q store.AuditQuery) (out []store.AuditRow, err error) {
	const (
		columns = `select id, tenant, final, body from {schema}.audit where id >= $1 and id < $2`
		sorted  = ` order by id desc limit $3`
		ofOne   = ` and tenant = $4 order by tenant desc, id desc limit $3`
	)
	sql, args := columns+sorted, []any{runArg(q.From), runArg(q.End()), max(q.Limit, 0)}
	if !q.All {
		sql, args = columns+ofOne, append(args, q.Tenant)
	}

	err = s.read(ctx, "list audit", func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		rows, err := c.Query(ctx, s.sql(sql), args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for size := 0; rows.Next(); {
			var id pgtype.UUID
			var r store.AuditRow
			if err := rows.Scan(&id, &r.Tenant, &r.Final, &r.Body); err != nil {
				return err
			}
			if size += len(r.Body); size > q.MaxBytes && len(out) > 0 {
				break
			}
			r.ID = id.Bytes
			out = append(out, r)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
