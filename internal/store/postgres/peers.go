package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// sweepPeerMail removes old notes that their node has not taken. Most of the time the table is
// empty.
const sweepPeerMail = `
delete from {schema}.peer_mail where ctid = any (array(select p.ctid from {schema}.peer_mail p where p.id < $1 limit $2))`

// PutPeerMail stores notes for other nodes. The table is unlogged, so this does not wait for a
// disk.
func (s *Store) PutPeerMail(ctx context.Context, rows []store.PeerMail) error {
	const put = `
insert into {schema}.peer_mail (node, id, re, sender, body)
select * from unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::bytea[])
on conflict (node, id) do nothing`

	if len(rows) == 0 {
		return nil
	}
	n := len(rows)

	nodes, ids, res, senders, bodies := make([]pgtype.UUID, n), make([]pgtype.UUID, n), make([]pgtype.UUID, n), make([]pgtype.UUID, n), make([][]byte, n)
	for i := range rows {
		r := &rows[i]
		nodes[i], ids[i], res[i], senders[i], bodies[i] = nodeArg(r.To), runArg(r.ID), runArg(r.Re), nodeArg(r.From), r.Body
		if r.Body == nil {
			bodies[i] = []byte{}
		}
	}

	return s.work(ctx, "put peer mail", true, func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, s.sql(put), nodes, ids, res, senders, bodies)
		return err
	})
}

// TakePeerMail removes the oldest notes for a node and returns them. Only that node takes its
// notes, so the statement need not lock them.
func (s *Store) TakePeerMail(ctx context.Context, node model.NodeID, limit, maxBytes int) (out []store.PeerMail, err error) {
	const take = `
with page as (
  select p.id, row_number() over w as nr, sum(octet_length(p.body)) over w as size
  from (select q.id, q.body from {schema}.peer_mail q where q.node = $1 order by q.id limit $2) p window w as (order by p.id)
), gone as (
  delete from {schema}.peer_mail p where p.node = $1 and p.id = any (array(select id from page where nr = 1 or size <= $3)) returning p.id, p.re, p.sender, p.body
)
select id, re, sender, body from gone order by id`

	err = s.work(ctx, "take peer mail", true, func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		rows, err := c.Query(ctx, s.sql(take), nodeArg(node), limit, maxBytes)
		if err != nil {
			return err
		}
		var id, re, sender pgtype.UUID
		var body []byte
		_, err = pgx.ForEachRow(rows, []any{&id, &re, &sender, &body}, func() error {
			out = append(out, store.PeerMail{To: node, From: sender.Bytes, ID: id.Bytes, Re: re.Bytes, Body: body})
			body = nil
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}
