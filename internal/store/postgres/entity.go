package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// writeEntities writes mailboxes and rows of entities. A batch without any sends nothing.
func (w *writer) writeEntities() {
	if rows := w.batch.Taken; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int { return rows[i].Compare(rows[j]) })
		w.use(stTaken)
		w.entityKeys(n, func(i int) store.EntityKey { return rows[o[i]].EntityKey })
		w.int8s(n, func(i int) int64 { return rows[o[i]].Seq })
		w.execute()
	}

	if rows := w.batch.Mailbox; len(rows) > 0 {
		n, o := len(rows), w.sortKeys(len(rows), func(i, j int) int { return rows[i].Key().Compare(rows[j].Key()) })
		w.use(stMailbox)
		w.entityKeys(n, func(i int) store.EntityKey { return rows[o[i]].EntityKey })
		w.int8s(n, func(i int) int64 { return rows[o[i]].Item.Seq })
		w.int8s(n, func(i int) int64 { return int64(rows[o[i]].Item.At) })
		w.bodies(n, func(dst []byte, i int) []byte {
			return model.AppendBody(dst, &rows[o[i]].Item.Message, rows[o[i]].Item.Damaged)
		})
		w.execute()
	}

	if len(w.batch.Entities) == 0 {
		return
	}

	var fresh, changed, gone []*store.EntityRow
	for i := range w.batch.Entities {
		switch r := &w.batch.Entities[i]; {
		case r.Gone:
			gone = append(gone, r)
		case r.Prev == 0:
			fresh = append(fresh, r)
		default:
			changed = append(changed, r)
		}
	}

	w.entityRows(stEntity, fresh)
	w.entityRows(stEntityChange, changed)
	w.entityRows(stEntityRemove, gone)
}

// entityRows writes rows of entities with one statement.
func (w *writer) entityRows(index int, rows []*store.EntityRow) {
	n := len(rows)
	if n == 0 {
		return
	}
	slices.SortFunc(rows, func(a, b *store.EntityRow) int { return a.Key().Compare(b.Key()) })
	w.use(index)
	w.entityKeys(n, func(i int) store.EntityKey { return rows[i].Key() })
	if index != stEntity {
		w.int8s(n, func(i int) int64 { return rows[i].Prev })
	}

	if index != stEntityRemove {
		w.int8s(n, func(i int) int64 { return rows[i].Entity.Version })
		w.int8s(n, func(i int) int64 { return int64(rows[i].Entity.Changed) })
		w.bools(n, func(i int) bool { return rows[i].Entity.Locked() })
		w.bodies(n, func(dst []byte, i int) []byte { return model.AppendEntity(dst, &rows[i].Entity) })
	}

	w.execute()
}

// entityKeys appends the columns of keys of entities, which come first in all of their statements.
func (e *encoder) entityKeys(n int, key func(i int) store.EntityKey) {
	e.shards(n, func(i int) model.ShardID { return key(i).Shard })
	e.texts(n, func(i int) string { return key(i).Address.Tenant })
	e.texts(n, func(i int) string { return key(i).Address.Type })
	e.texts(n, func(i int) string { return key(i).Address.Key })
}

const (
	entityColumns = `e.tenant, e.type, e.key, e.version, e.changed, e.locked, e.body`

	loadEntity = `select ` + entityColumns + ` from {schema}.entities e where e.shard = $1 and e.tenant = $2 and e.type = $3 and e.key = $4`

	// Read items until the page is full. PostgreSQL knows the length of a body without reading the
	// body.
	loadMailbox = `
select seq, at, body from (
  select m.seq, m.at, m.body, sum(octet_length(m.body)) over (order by m.seq) - octet_length(m.body) as before
  from {schema}.mailbox m where m.shard = $1 and m.tenant = $2 and m.type = $3 and m.key = $4 and m.seq > $5 order by m.seq limit $6) m
where before < $7 or before = 0 order by seq`

	// Jump from one entity to the next. This takes one look-up per entity, for any number of items.
	loadMailboxes = `
select t.shard, s.tenant, s.type, s.key
from unnest($1::smallint[]) with ordinality t (shard, nr)
cross join lateral (
  with recursive s as (
    (select m.tenant, m.type, m.key from {schema}.mailbox m
     where m.shard = t.shard and (m.tenant, m.type, m.key) >
       (case when t.shard > $2 then '' else $3 end, case when t.shard > $2 then '' else $4 end, case when t.shard > $2 then '' else $5 end)
     order by m.tenant, m.type, m.key limit 1)
    union all
    select n.tenant, n.type, n.key from s cross join lateral (
      select m.tenant, m.type, m.key from {schema}.mailbox m
      where m.shard = t.shard and (m.tenant, m.type, m.key) > (s.tenant, s.type, s.key) order by m.tenant, m.type, m.key limit 1) n
  )
  select s.tenant, s.type, s.key from s limit $6) s
order by t.nr, s.tenant, s.type, s.key limit $6`
)

// scanEntities reads the columns entityColumns. For a row that cannot be decoded it fills in the
// columns and calls bad with the error.
func scanEntities(rows pgx.Rows, err error, bad func(err error)) (out []model.Entity, _ error) {
	if err != nil {
		return nil, err
	}
	var a model.Address
	var version int64
	var changed model.Time
	var locked bool
	var body pgtype.DriverBytes

	_, err = pgx.ForEachRow(rows, []any{&a.Tenant, &a.Type, &a.Key, &version, &changed, &locked, &body}, func() error {
		n, err := model.DecodeEntity(a, version, changed, body)
		if err == nil && n.Locked() != locked {
			err = fmt.Errorf("entity %s: its columns contradict its body", a)
		}
		if err != nil {
			bad(fault.New(fault.Corrupt, "%w", err))
			n = model.Entity{Address: a, Version: version, Changed: changed}
		}
		out = append(out, n)
		return nil
	})

	return out, err
}

// scanItems reads items of a mailbox: seq, at, body. It also returns the total size of the bodies.
func scanItems(rows pgx.Rows, err error, a model.Address) (out []model.MailboxItem, size int, _ error) {
	if err != nil {
		return nil, 0, err
	}
	var item model.MailboxItem
	var body pgtype.DriverBytes
	_, err = pgx.ForEachRow(rows, []any{&item.Seq, &item.At, &body}, func() error {
		item.Message, item.Damaged = readMessage(body, "item %d of the mailbox of %s", item.Seq, a)
		out, size = append(out, item), size+len(body)
		return nil
	})
	return out, size, err
}

// namedEntity returns the arguments that name an entity.
func namedEntity(k store.EntityKey) []any {
	return []any{int16(k.Shard), k.Address.Tenant, k.Address.Type, k.Address.Key}
}

// LoadEntity returns the row of an entity and the first items of its mailbox, in one round trip.
func (s *Store) LoadEntity(ctx context.Context, key store.EntityKey, limit, maxBytes int) (out store.LoadedEntity, err error) {
	if key.Shard >= model.MaxShards {
		return out, nil
	}
	limit = max(1, limit)
	args := namedEntity(key)

	err = s.read(ctx, "load entity", func(ctx context.Context, c *pgx.Conn) error {
		var batch pgx.Batch
		batch.Queue(keepPlans)
		batch.Queue(s.sql(loadEntity), args...)
		batch.Queue(s.sql(loadMailbox), append(slices.Clip(args), 0, limit, maxBytes)...)
		results := c.SendBatch(ctx, &batch)
		var err error
		out, err = readEntity(results, key.Address, limit, maxBytes)
		return cmp.Or(err, results.Close())
	})
	if err != nil {
		return store.LoadedEntity{}, err
	}

	return out, nil
}

// readEntity reads the row of an entity and items of its mailbox.
func readEntity(results pgx.BatchResults, a model.Address, limit, maxBytes int) (out store.LoadedEntity, err error) {
	if _, err := results.Exec(); err != nil {
		return out, err
	}
	var unreadable error
	rows, err := results.Query()
	found, err := scanEntities(rows, err, func(err error) { unreadable = err })
	if err = cmp.Or(err, unreadable); err != nil {
		return out, err
	}

	if len(found) > 0 {
		out.Entity = &found[0]
	}
	size := 0
	rows, err = results.Query()
	out.Mailbox, size, err = scanItems(rows, err, a)
	out.More = len(out.Mailbox) == limit || size >= maxBytes

	return out, err
}

// LoadMailbox returns items of a mailbox.
func (s *Store) LoadMailbox(ctx context.Context, key store.EntityKey, after int64, limit, maxBytes int) (out []model.MailboxItem, err error) {
	if key.Shard >= model.MaxShards {
		return nil, nil
	}
	args := append(namedEntity(key), after, max(1, limit), maxBytes)
	err = s.read(ctx, "load mailbox", func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, s.sql(loadMailbox), args...)
		out, _, err = scanItems(rows, err, key.Address)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LoadMailboxes returns the entities whose mailbox is not empty.
func (s *Store) LoadMailboxes(ctx context.Context, shards []model.ShardID, after store.EntityKey, limit int) (out []store.EntityKey, err error) {
	const perQuery = 32 // shards; bounds how many rows the query reads and drops
	err = s.read(ctx, "load mailboxes", func(ctx context.Context, c *pgx.Conn) error {
		out = nil
		for some := range slices.Chunk(sortedShards(shards, after.Shard), perQuery) {
			if len(out) >= limit {
				break
			}
			a := &after.Address
			rows, err := c.Query(ctx, s.sql(loadMailboxes), some, int16(min(after.Shard, model.MaxShards)), a.Tenant, a.Type, a.Key, limit-len(out))
			if err != nil {
				return err
			}

			var k store.EntityKey
			_, err = pgx.ForEachRow(rows, []any{&k.Shard, &k.Address.Tenant, &k.Address.Type, &k.Address.Key}, func() error {
				out = append(out, k)
				return nil
			})
			if err != nil {
				return err
			}
		}

		return nil
	})

	return out, err
}

// entityListing returns the statement of one page. The last argument is the limit. Every secondary
// index has a condition, which must be repeated here. A query for a key in all types looks at one
// type after the other, because there are few types.
func entityListing(q *store.EntityQuery) (sql string, args []any) {
	l, which := &listing{}, "e.locked is not null"
	if q.Locked {
		which = "e.locked"
	}
	l.and("e.tenant = %s and "+which, q.Tenant)
	if q.Key != "" {
		l.and("e.key = %s", q.Key)
	}

	if q.KeyPrefix != "" {
		l.and("e.key >= %s", q.KeyPrefix)
		if end := prefixEnd(q.KeyPrefix); end != "" {
			l.and("e.key < %s", end)
		}
	}

	everyType := q.Type == "" && (q.Key != "" || q.KeyPrefix != "")
	switch after := q.After != (model.Address{}); {
	case everyType:
		// In this case, no entity that matches has an empty key, so '' means from the first one on.
		l.and("e.type = w.type and e.key > case when w.type = %s then %s else '' end", q.After.Type, q.After.Key)
	case after && q.After.Type == q.Type:
		l.and("e.key > %s", q.After.Key)
	case after:
		l.and("(e.type, e.key) > (%s, %s)", q.After.Type, q.After.Key)
	}

	if q.Type != "" {
		l.and("e.type = %s", q.Type)
	}
	limit := len(l.args) + 1
	sql = fmt.Sprintf("select %s from {schema}.entities e where %s order by e.type, e.key limit $%d", entityColumns, l.where.String(), limit)
	if !everyType {
		return sql, l.args
	}

	return fmt.Sprintf(`
with recursive w as (
  (select e.type from {schema}.entities e where e.tenant = $1 and %[1]s and e.type >= $%[2]d order by e.type limit 1)
  union all
  select n.type from w cross join lateral (
    select e.type from {schema}.entities e where e.tenant = $1 and %[1]s and e.type > w.type order by e.type limit 1) n
)
select %[3]s from w cross join lateral (%[4]s) e order by w.type, e.key limit $%[5]d`, which, limit-2, entityColumns, sql, limit), l.args
}

// prefixEnd returns the smallest text above all texts with the prefix, or empty if there is none.
// Texts are ordered by their characters as by their bytes. The end must consist of valid
// characters, because PostgreSQL does not accept other bytes as a text.
func prefixEnd(prefix string) string {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		if last == beforeSurrogates {
			return prefix + string(afterSurrogates)
		}
		if last < utf8.MaxRune {
			return prefix + string(last+1)
		}
	}
	return ""
}

// The numbers between these two characters are surrogates, which are not valid characters.
const (
	beforeSurrogates = '\ud7ff'
	afterSurrogates  = '\ue000'
)

// ListEntities returns rows of entities.
func (s *Store) ListEntities(ctx context.Context, q store.EntityQuery) (page store.EntityPage, err error) {
	sql, args := entityListing(&q)
	sql = expand(s.cfg.schema, sql)
	limit := max(0, q.Limit)
	err = s.read(ctx, "list entities", func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, sql, append(args, limit+1)...)
		page.Entities, err = scanEntities(rows, err, ignore)
		if page.More = len(page.Entities) > limit; page.More {
			page.Entities = page.Entities[:limit]
		}
		return err
	})
	if err != nil {
		return store.EntityPage{}, err
	}
	return page, nil
}
