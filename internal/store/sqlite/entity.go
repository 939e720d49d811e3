package sqlite

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

const (
	sqlTake    = `delete from perdure_mailbox where shard = ?1 and tenant = ?2 and type = ?3 and key = ?4 and seq = ?5`
	sqlMailbox = `insert into perdure_mailbox (shard, tenant, type, key, seq, at, body) values (?1, ?2, ?3, ?4, ?5, ?6, ?7)`

	sqlEntity       = `insert into perdure_entities (shard, tenant, type, key, version, changed, locked, body) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`
	sqlEntityChange = `update perdure_entities set version = ?5, changed = ?6, locked = ?7, body = ?8
		where shard = ?1 and tenant = ?2 and type = ?3 and key = ?4 and version = ?9`
	sqlEntityRemove = `delete from perdure_entities where shard = ?1 and tenant = ?2 and type = ?3 and key = ?4 and version = ?5`

	sqlEraseEntity  = `delete from perdure_entities where shard = ?1 and tenant = ?2 and type = ?3 and key = ?4`
	sqlEraseMailbox = `delete from perdure_mailbox where shard = ?1 and tenant = ?2 and type = ?3 and key = ?4`

	entityColumns  = `n.shard, n.tenant, n.type, n.key, n.version, n.changed, n.locked, n.body`
	sqlLoadEntity  = `select ` + entityColumns + ` from perdure_entities n where shard = ?1 and tenant = ?2 and type = ?3 and key = ?4`
	sqlLoadMailbox = `select seq, at, body from perdure_mailbox
		where shard = ?1 and tenant = ?2 and type = ?3 and key = ?4 and seq > ?5 order by seq limit ?6`
	sqlNextMailbox = `select tenant, type, key from perdure_mailbox
		where shard = ?1 and (tenant, type, key) > (?2, ?3, ?4) order by tenant, type, key limit 1`
	sqlNextEntityType = `select type from perdure_entities where tenant = ?1 and type > ?2 order by type limit 1`
)

// encodeEntities encodes mailbox items and rows of entities.
func (e *bodies) encodeEntities(b *store.Batch) error {
	for i := range b.Mailbox {
		r := &b.Mailbox[i]
		e.columns = itemSum(e.columns[:0], r.Key(), r.Item.At)
		if err := e.add(model.AppendBody(e.data, &r.Item.Message, r.Item.Damaged)); err != nil {
			return fmt.Errorf("item %d of the mailbox of %s: %w", r.Item.Seq, r.Address, err)
		}
	}

	for i := range b.Entities {
		r := &b.Entities[i]
		if r.Gone {
			continue
		}
		e.columns = entitySum(e.columns[:0], r.Key(), r.Entity.Version, r.Entity.Changed, r.Entity.Locked())
		if err := e.add(model.AppendEntity(e.data, &r.Entity)); err != nil {
			return fmt.Errorf("entity %s: %w", r.Entity.Address, err)
		}
	}

	return nil
}

// setEntity binds the key of an entity. In all statements, the key is the first four arguments.
func (q *stmt) setEntity(k store.EntityKey) {
	q.setInt(1, int64(k.Shard))
	q.setText(2, k.Address.Tenant)
	q.setText(3, k.Address.Type)
	q.setText(4, k.Address.Key)
}

// mailbox removes items from mailboxes and inserts others.
func (t *batchWriter) mailbox() error {
	// Remove items before inserting others, because a call that an operator skips leaves its
	// position and gets a new position in the same batch.
	q := t.w.take
	for i := range t.b.Taken {
		key := &t.b.Taken[i]
		q.setEntity(key.EntityKey)
		q.setInt(5, key.Seq)
		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("item %d taken from the mailbox of %s: %w", key.Seq, key.Address, err)
		} else if !ok {
			return refusedError("item %d does not wait for %s", key.Seq, key.Address)
		}
	}

	q = t.w.mailbox
	for i := range t.b.Mailbox {
		row := &t.b.Mailbox[i]
		q.setEntity(row.EntityKey)
		q.setInt(5, row.Item.Seq)
		q.setInt(6, int64(row.Item.At))
		q.setBlob(7, t.bodies.next())
		if err := q.run(); err != nil {
			return fmt.Errorf("item %d of the mailbox of %s: %w", row.Item.Seq, row.Address, err)
		}
	}

	return nil
}

// writeEntities inserts, changes and removes entities.
func (t *batchWriter) writeEntities() error {
	for i := range t.b.Entities {
		row := &t.b.Entities[i]
		// An insert, a change and a removal are different statements. The change and the removal
		// have the old version in their condition. So if another owner has changed the entity, the
		// store refuses the batch.
		q := t.w.entity
		switch n := &row.Entity; {
		case row.Gone:
			q = t.w.entityRemove
			q.setInt(5, row.Prev)
		default:
			if row.Prev != 0 {
				q = t.w.entityChange
				q.setInt(9, row.Prev)
			}
			q.setInt(5, n.Version)
			q.setInt(6, int64(n.Changed))
			q.setInt(7, flag(n.Locked()))
			q.setBlob(8, t.bodies.next())
		}

		q.setEntity(row.Key())
		if ok, err := t.one(q); err != nil {
			return fmt.Errorf("entity %s: %w", row.Entity.Address, err)
		} else if !ok {
			return refusedError("entity %s has no row of version %d", row.Entity.Address, row.Prev)
		}
	}

	return nil
}

func flag(v bool) int64 {
	if v {
		return 1
	}
	return 0
}

// scanEntity reads the columns entityColumns. If the body cannot be decoded, it returns an error
// and an entity with only the values of the columns.
func scanEntity(q *stmt) (n model.Entity, err error) {
	key := store.EntityKey{Shard: model.ShardID(q.int(0)), Address: model.Address{Tenant: q.text(1), Type: q.text(2), Key: q.text(3)}}
	version, changed, locked := q.int(4), model.Time(q.int(5)), q.int(6) != 0
	body, err := unseal(entitySum(make([]byte, 0, 256), key, version, changed, locked), q.raw(7))
	if err == nil {
		n, err = model.DecodeEntity(key.Address, version, changed, body)
	}
	if err != nil {
		return model.Entity{Address: key.Address, Version: version, Changed: changed}, corrupt(err, "entities, %s", key.Address)
	}
	return n, nil
}

// loadItems reads a page of a mailbox: at least one item, if there is one. It reports whether the
// mailbox has further items.
func loadItems(c *conn, after store.MailboxKey, limit, maxBytes int) (out []model.MailboxItem, more bool, err error) {
	key, size := after.EntityKey, 0
	a := &key.Address
	limit = max(1, limit)
	err = c.query(sqlLoadMailbox, func(q *stmt) error {
		// Return the first item however large it is. Otherwise its entity could never continue.
		if size += len(q.raw(2)); len(out) == limit || size > maxBytes && len(out) > 0 {
			more = true
			return errStop
		}
		item := model.MailboxItem{Seq: q.int(0), At: model.Time(q.int(1))}
		sum := itemSum(make([]byte, 0, 256), store.MailboxKey{EntityKey: key, Seq: item.Seq}, item.At)
		item.Message, item.Damaged = readMessage(sum, q.raw(2), "mailbox, %s, item %d", key.Address, item.Seq)
		out = append(out, item)
		return nil
	}, int(key.Shard), a.Tenant, a.Type, a.Key, after.Seq, limit+1)
	return out, more, err
}

// LoadEntity returns the row of an entity and the first items of its mailbox.
func (s *Store) LoadEntity(ctx context.Context, key store.EntityKey, limit, maxBytes int) (out store.LoadedEntity, err error) {
	a := &key.Address
	err = s.read(ctx, "load entity", func(c *conn) error {
		err := c.query(sqlLoadEntity, func(q *stmt) error {
			n, err := scanEntity(q)
			out.Entity = &n
			return err
		}, int(key.Shard), a.Tenant, a.Type, a.Key)
		if err == nil {
			out.Mailbox, out.More, err = loadItems(c, store.MailboxKey{EntityKey: key}, limit, maxBytes)
		}
		return err
	})
	if err != nil {
		return store.LoadedEntity{}, err
	}

	return out, nil
}

// LoadMailbox returns items of a mailbox.
func (s *Store) LoadMailbox(ctx context.Context, key store.EntityKey, after int64, limit, maxBytes int) (out []model.MailboxItem, err error) {
	err = s.read(ctx, "load mailbox", func(c *conn) error {
		out, _, err = loadItems(c, store.MailboxKey{EntityKey: key, Seq: after}, limit, maxBytes)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LoadMailboxes returns the entities whose mailbox is not empty. It jumps from one entity to the
// next, however many items their mailboxes have.
func (s *Store) LoadMailboxes(ctx context.Context, shards []model.ShardID, after store.EntityKey, limit int) (out []store.EntityKey, err error) {
	err = s.read(ctx, "load mailboxes", func(c *conn) error {
		for _, shard := range distinct(shards) {
			if shard < after.Shard {
				continue
			}
			last := store.EntityKey{Shard: shard}
			if shard == after.Shard {
				last = after
			}

			// Each query jumps to the next entity, so a mailbox with many items costs as much as a
			// mailbox with a single item.
			for found := true; found && len(out) < limit; {
				found = false
				err := c.query(sqlNextMailbox, func(q *stmt) error {
					found = true
					last.Address = model.Address{Tenant: q.text(0), Type: q.text(1), Key: q.text(2)}
					out = append(out, last)
					return nil
				}, int(shard), last.Address.Tenant, last.Address.Type, last.Address.Key)
				if err != nil {
					return err
				}
			}
		}

		return nil
	})
	if err != nil {
		return nil, err
	}

	return out, nil
}

// ListEntities returns rows of entities. A query for a key in all types looks at one type after the
// other, because there are few types.
func (s *Store) ListEntities(ctx context.Context, q store.EntityQuery) (page store.EntityPage, err error) {
	err = s.read(ctx, "list entities", func(c *conn) error {
		if q.Type != "" || q.Key == "" && q.KeyPrefix == "" {
			return listEntities(c, &q, &page)
		}
		// The key of the table starts with the type. A search for a key in all types would scan the
		// table, so search each type separately.
		of := q
		of.Type = q.After.Type

		for !page.More {
			if of.Type != "" {
				if err := listEntities(c, &of, &page); err != nil {
					return err
				}
			}
			found := false
			err := c.query(sqlNextEntityType, func(row *stmt) error {
				found, of.Type = true, row.text(0)
				return nil
			}, q.Tenant, of.Type)
			if err != nil || !found {
				return err
			}
		}

		return nil
	})
	if err != nil {
		return store.EntityPage{}, err
	}

	return page, nil
}

// listEntities adds rows to a page.
func listEntities(c *conn, q *store.EntityQuery, page *store.EntityPage) error {
	l := entityListing(q)
	return c.queryOnce(l.entityPage(q), func(row *stmt) error {
		if len(page.Entities) >= q.Limit {
			page.More = true
			return errStop
		}
		n, err := scanEntity(row)
		if fault.Is(err, fault.Corrupt) {
			err = nil // the list shows it with the values of its columns
		}
		page.Entities = append(page.Entities, n)
		return err
	}, l.args...)
}

// entityListing returns the statement for all pages of a query: along the key of the table, or
// along the index of locked entities.
func entityListing(q *store.EntityQuery) *listing {
	l := &listing{from: "perdure_entities n"}
	l.and("n.tenant = ?", q.Tenant)
	if q.Locked {
		l.from += " indexed by perdure_entities_locked"
		l.and("n.locked = 1")
	}

	if q.Type != "" {
		l.and("n.type = ?", q.Type)
	}
	if q.Key != "" {
		l.and("n.key = ?", q.Key)
	}

	if q.KeyPrefix != "" {
		l.and("n.key >= ?", q.KeyPrefix)
		if end := prefixEnd(q.KeyPrefix); end != "" {
			l.and("n.key < ?", end)
		}
	}

	return l
}

// entityPage returns the statement of one page.
func (l *listing) entityPage(q *store.EntityQuery) string {
	switch {
	case q.After == (model.Address{}):
	case q.After.Type == q.Type:
		l.and("n.key > ?", q.After.Key)
	default:
		l.and("(n.type, n.key) > (?, ?)", q.After.Type, q.After.Key)
	}
	l.args = append(l.args, max(q.Limit, 0)+1)
	return "select " + entityColumns + " from " + l.from + l.where.String() + " order by n.type, n.key limit ?"
}
