package store

import (
	"cmp"
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Entities reads the stored state of entities and services. Batches write that state.
type Entities interface {
	// LoadEntity returns the row of an entity and the first items of its mailbox, in order. It
	// returns at most limit items with about maxBytes in total, but at least one item if the
	// mailbox is not empty. If the row cannot be decoded, LoadEntity returns an error of kind
	// fault.Corrupt that names the entity. An item that cannot be decoded has Damaged set.
	LoadEntity(ctx context.Context, key EntityKey, limit, maxBytes int) (LoadedEntity, error)

	// LoadMailbox returns the items of a mailbox after a position. The bounds limit and maxBytes
	// are as in LoadEntity.
	LoadMailbox(ctx context.Context, key EntityKey, after int64, limit, maxBytes int) ([]model.MailboxItem, error)

	// LoadMailboxes returns the keys of entities in the shards, but only of entities that have
	// items in their mailboxes. It returns the first keys after the given key, in order, at most
	// limit.
	LoadMailboxes(ctx context.Context, shards []model.ShardID, after EntityKey, limit int) ([]EntityKey, error)

	// ListEntities returns entities, ordered by type and key. Of a row that cannot be decoded, it
	// returns only the values of the columns.
	ListEntities(ctx context.Context, q EntityQuery) (EntityPage, error)
}

// EntityKey names an entity or a service. Keys are ordered by shard, and then by tenant, type and
// key, each by its bytes.
type EntityKey struct {
	Shard   model.ShardID
	Address model.Address
}

// Compare orders keys.
func (k EntityKey) Compare(o EntityKey) int {
	return cmp.Or(cmp.Compare(k.Shard, o.Shard), cmp.Compare(k.Address.Tenant, o.Address.Tenant), cmp.Compare(k.Address.Type, o.Address.Type),
		cmp.Compare(k.Address.Key, o.Address.Key))
}

// EntityRow changes the row of an entity.
type EntityRow struct {
	Shard  model.ShardID
	Entity model.Entity
	// Prev is the version of the row that this row replaces. The write is guarded: the stored row
	// must have this version. Zero means that there is no row yet.
	Prev int64
	// Gone means that the batch removes the row.
	Gone bool
}

// Key names the entity.
func (r *EntityRow) Key() EntityKey { return EntityKey{Shard: r.Shard, Address: r.Entity.Address} }

// MailboxRow is a message in the mailbox of an entity or a service.
type MailboxRow struct {
	EntityKey
	Item model.MailboxItem
}

// Key names the item.
func (r *MailboxRow) Key() MailboxKey { return MailboxKey{EntityKey: r.EntityKey, Seq: r.Item.Seq} }

// MailboxKey names an item of a mailbox.
type MailboxKey struct {
	EntityKey
	Seq int64
}

// Compare orders items by entity and position.
func (k MailboxKey) Compare(o MailboxKey) int {
	return cmp.Or(k.EntityKey.Compare(o.EntityKey), cmp.Compare(k.Seq, o.Seq))
}

// LoadedEntity is the stored state of an entity.
type LoadedEntity struct {
	Entity  *model.Entity // nil if the entity has no row
	Mailbox []model.MailboxItem
	// More means that there may be more items. LoadMailbox returns further items.
	More bool
}

// EntityQuery selects entities.
type EntityQuery struct {
	Tenant    string
	Type      string // with its prefix, such as entity:account; empty for all
	Key       string // exact; empty for all
	KeyPrefix string // empty for all
	Locked    bool   // only entities that a section has locked
	Limit     int
	// After is the type and key of the last row of the previous page. The page starts after that
	// row.
	After model.Address
}

// EntityPage is one page of a listing.
type EntityPage struct {
	Entities []model.Entity
	// More is set if there are further rows.
	More bool
}
