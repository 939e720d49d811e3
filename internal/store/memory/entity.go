package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// entity is the row of an entity.
type entity struct {
	key store.EntityKey
	row model.Entity
}

// byAddress is the order of lists. The shard is compared last, because an address has only one
// shard.
func byAddress(a, b *entity) int {
	return cmp.Or(store.EntityKey{Address: a.key.Address}.Compare(store.EntityKey{Address: b.key.Address}), cmp.Compare(a.key.Shard, b.key.Shard))
}

// mailbox holds the items of one entity, sorted by position. The store keeps no empty mailboxes.
type mailbox struct {
	key   store.EntityKey
	items []model.MailboxItem
}

func byReceiver(a, b *mailbox) int { return a.key.Compare(b.key) }

// item returns the index of the item at a position.
func (m *mailbox) item(seq int64) (int, bool) {
	return slices.BinarySearchFunc(m.items, seq, func(i model.MailboxItem, seq int64) int { return cmp.Compare(i.Seq, seq) })
}

// mailbox returns the mailbox of an entity, or nil if it is empty.
func (s *Store) mailbox(key store.EntityKey) *mailbox {
	sh := s.peek(key.Shard)
	if sh == nil {
		return nil
	}
	m, _ := sh.mailboxes.get(&mailbox{key: key})
	return m
}

// addItem and dropItem change the mailboxes of a shard. For addItem the position must be free, for
// dropItem it must be taken.
func (s *shard) addItem(key store.EntityKey, item model.MailboxItem) {
	m, ok := s.mailboxes.get(&mailbox{key: key})
	if !ok {
		m = &mailbox{key: key}
		s.mailboxes.insert(m)
	}
	at, _ := m.item(item.Seq)
	m.items = slices.Insert(m.items, at, item)
}

func (s *shard) dropItem(key store.MailboxKey) model.MailboxItem {
	m, _ := s.mailboxes.get(&mailbox{key: key.EntityKey})
	at, _ := m.item(key.Seq)
	item := m.items[at]
	if m.items = slices.Delete(m.items, at, at+1); len(m.items) == 0 {
		s.mailboxes.remove(m)
	}
	return item
}

// hasItem reports whether a position of a mailbox is taken.
func (s *Store) hasItem(key store.MailboxKey) bool {
	m := s.mailbox(key.EntityKey)
	if m == nil {
		return false
	}
	_, taken := m.item(key.Seq)
	return taken
}

func (s *Store) applyTaken(b *store.Batch) error {
	for _, key := range b.Taken {
		if !s.hasItem(key) {
			return refuse("item %d does not wait for %s", key.Seq, key.Address)
		}
		sh := s.peek(key.Shard)
		item := sh.dropItem(key)
		s.addUndo(func() { sh.addItem(key.EntityKey, item) })
	}
	return nil
}

func (s *Store) applyMailbox(b *store.Batch) error {
	for i := range b.Mailbox {
		row := &b.Mailbox[i]
		sh, key := s.shard(row.Shard), row.Key()
		switch {
		case sh == nil:
			return refuse("there is no shard %d", row.Shard)
		case s.hasItem(key):
			return refuse("position %d of the mailbox of %s is taken", key.Seq, key.Address)
		}
		sh.addItem(row.EntityKey, cloneItem(row.Item))
		s.addUndo(func() { sh.dropItem(key) })
	}
	return nil
}

func (s *Store) applyEntities(b *store.Batch) error {
	for i := range b.Entities {
		row := &b.Entities[i]
		if int(row.Shard) >= len(s.shards) {
			return refuse("there is no shard %d", row.Shard)
		}
		fresh := &entity{row.Key(), cloneEntity(row.Entity)}
		old, found := s.entities.get(fresh)

		switch {
		case row.Prev == 0 && (found || row.Gone):
			return refuse("%s: its row cannot be the first one", row.Entity.Address)
		case row.Prev != 0 && (!found || old.row.Version != row.Prev):
			return refuse("%s has no row of version %d", row.Entity.Address, row.Prev)
		}

		if found {
			s.entities.remove(old)
			s.addUndo(func() { s.entities.insert(old) })
		}

		if !row.Gone {
			s.entities.insert(fresh)
			s.addUndo(func() { s.entities.remove(fresh) })
		}
	}

	return nil
}

func (s *Store) applyEntityRemoves(b *store.Batch) {
	for _, key := range b.EntityRemoves {
		if old, found := s.entities.get(&entity{key: key}); found {
			s.entities.remove(old)
			s.addUndo(func() { s.entities.insert(old) })
		}
		if m := s.mailbox(key); m != nil {
			sh := s.peek(key.Shard)
			sh.mailboxes.remove(m)
			s.addUndo(func() { sh.mailboxes.insert(m) })
		}
	}
}

// LoadEntity returns the row of an entity and the first items of its mailbox.
func (s *Store) LoadEntity(ctx context.Context, key store.EntityKey, limit, maxBytes int) (out store.LoadedEntity, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load entity"); err != nil {
		return out, err
	}
	if found, ok := s.entities.get(&entity{key: key}); ok {
		row := cloneEntity(found.row)
		out.Entity = &row
	}
	if m := s.mailbox(key); m != nil {
		out.Mailbox = m.page(0, limit, maxBytes)
		out.More = len(out.Mailbox) < len(m.items)
	}
	return out, nil
}

// LoadMailbox returns items of a mailbox.
func (s *Store) LoadMailbox(ctx context.Context, key store.EntityKey, after int64, limit, maxBytes int) ([]model.MailboxItem, error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load mailbox"); err != nil {
		return nil, err
	}
	m := s.mailbox(key)
	if m == nil {
		return nil, nil
	}
	from, found := m.item(after)
	if found {
		from++
	}
	return m.page(from, limit, maxBytes), nil
}

// page returns a part of a mailbox: at least one item, if there is one.
func (m *mailbox) page(from, limit, maxBytes int) (out []model.MailboxItem) {
	size := 0
	for i := from; i < len(m.items) && len(out) < max(1, limit); i++ {
		if size += itemSize(&m.items[i]); size > maxBytes && len(out) > 0 {
			break
		}
		out = append(out, cloneItem(m.items[i]))
	}
	return out
}

func itemSize(i *model.MailboxItem) int { return messageSize(&i.Message, i.Damaged) }

// LoadMailboxes returns the entities whose mailbox is not empty.
func (s *Store) LoadMailboxes(ctx context.Context, shards []model.ShardID, after store.EntityKey, limit int) (out []store.EntityKey, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "load mailboxes"); err != nil {
		return nil, err
	}

	for _, sh := range s.some(shards) {
		if sh.id < after.Shard {
			continue
		}
		p := sh.mailboxes.after(&mailbox{key: after})
		for ; len(out) < limit; p.next() {
			m, ok := p.at()
			if !ok {
				break
			}
			out = append(out, m.key)
		}
	}

	return out, nil
}

// ListEntities returns rows of entities.
func (s *Store) ListEntities(ctx context.Context, q store.EntityQuery) (out store.EntityPage, err error) {
	defer s.mu.Unlock()
	if err := s.begin(ctx, "list entities"); err != nil {
		return out, err
	}

	// MaxShards is greater than the number of every shard. So the list starts behind the row of
	// this address. If the address is empty, the list starts with the first row of the tenant.
	mark := &entity{key: store.EntityKey{Shard: model.MaxShards, Address: model.Address{Tenant: q.Tenant, Type: q.After.Type, Key: q.After.Key}}}
	for p := s.entities.after(mark); ; p.next() {
		n, ok := p.at()
		if !ok || n.key.Address.Tenant != q.Tenant {
			return out, nil
		}
		a := &n.key.Address
		switch {
		case q.Type != "" && a.Type != q.Type, q.Key != "" && a.Key != q.Key, !strings.HasPrefix(a.Key, q.KeyPrefix), q.Locked && !n.row.Locked():
			continue
		case len(out.Entities) >= q.Limit:
			out.More = true
			return out, nil
		}
		out.Entities = append(out.Entities, cloneEntity(n.row))
	}
}

// searchEntities calls look with the body of every entity and mailbox item.
func (s *Store) searchEntities(look func(body []byte) error) error {
	for _, chunk := range s.entities.chunks {
		for _, n := range chunk {
			if err := look(model.AppendEntity(nil, &n.row)); err != nil {
				return err
			}
		}
	}

	for _, sh := range s.shards {
		if sh == nil {
			continue
		}
		for _, chunk := range sh.mailboxes.chunks {
			for _, m := range chunk {
				for i := range m.items {
					if err := look(model.AppendBody(nil, &m.items[i].Message, m.items[i].Damaged)); err != nil {
						return err
					}
				}
			}
		}
	}

	return nil
}
