package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// TransactionInbox returns SQL with which ordinary code puts a request into the inbox, in its own
// transaction in this database. The request takes effect when that transaction commits, which may
// be much later. The engine finds the request even if it has already read newer requests, because
// readers of the inbox use no cursor.
//
// The first result, here, is an SQL expression that is true if a database has our tables and the
// role may use them. It reads only the catalog, so it never fails. The second result, put, is an
// SQL statement with the parameters shard, id, tenant, workflow, key, request id, body and cluster.
// It writes nothing if the tables belong to another store. It also writes nothing if the shard
// groups have changed since this process opened the store, because the shard may be wrong.
func (s *Store) TransactionInbox() (here, put string) {
	const table = `exists (select from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = '{name}' and c.relname = '{table}' and has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, '{right}'))`
	of := func(name, right string) string {
		return strings.NewReplacer("{name}", s.cfg.Schema, "{table}", name, "{right}", right).Replace(table)
	}
	put = s.sql(`insert into {schema}.inbox (shard, id, not_before, tenant, workflow, key, request, body)
select $1::smallint, $2::text::uuid, 0, $3::text, $4::text, $5::text, $6::text, $7::bytea from {schema}.meta m
where m.cluster = $8::text::uuid and coalesce(to_jsonb(m) ->> 'groups', '') = '` + model.FormatGroups(s.info.Groups) + `'
on conflict (shard, id) do nothing`)
	return of("inbox", "insert") + " and " + of("meta", "select"), put
}

// never is model.MaxTime as it appears in the indexes of the inbox: the time of a dead letter.
const never = "253402300799000000"

const loadDeadLetters = `select shard, id, body from {schema}.inbox where not_before = ` + never + ` and id > $1 order by id limit $2`

// LoadDeadLetters returns requests that the engine refused and kept, in the order of their ids.
func (s *Store) LoadDeadLetters(ctx context.Context, after model.RunID, limit int) (out []store.InboxRow, err error) {
	err = s.read(ctx, "load dead letters", func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		rows, err := c.Query(ctx, s.sql(loadDeadLetters), runArg(after), limit)
		if err != nil {
			return err
		}
		r := store.InboxRow{NotBefore: model.MaxTime}
		var id pgtype.UUID
		var body pgtype.DriverBytes
		_, err = pgx.ForEachRow(rows, []any{&r.Shard, &id, &body}, func() error {
			r.ID = id.Bytes
			r.Message, r.Damaged = readMessage(body, "dead letter %s in the inbox of shard %d", r.ID, r.Shard)
			out = append(out, r)
			return nil
		})
		return err
	})

	return out, err
}
