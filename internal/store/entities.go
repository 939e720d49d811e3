package store

import (
	"cmp"
	"context"

	"github.com/perdure/perdure/internal/model"
)

// Entities reads what is stored of entities and services; batches write it.
type Entities interface {
	// LoadEntity returns the row of an entity and the beginning of its mailbox, in order: at most
	// limit items and about maxBytes of them, but at least one if there is one. A row that cannot
	// be decoded is an error of kind fault.Corrupt that names the entity; an item that cannot has
	// Damaged set.
	LoadEntity(ctx context.Context, key EntityKey, limit, maxBytes int) (LoadedEntity, error)

	// LoadMailbox returns items of a mailbox behind the given one, bounded as LoadEntity is.
	LoadMailbox(ctx context.Context, key EntityKey, after int64, limit, maxBytes int) ([]model.MailboxItem, error)

	// LoadMailboxes returns the entities of the shards for which something waits, ordered by key,
	// after the given one.
	LoadMailboxes(ctx context.Context, shards []model.ShardID, after EntityKey, limit int) ([]EntityKey, error)

	// ListEntities returns rows of entities, ordered by type and key. One that cannot be decoded is
	// returned as far as its columns tell.
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
	// Prev is the version of the row that it replaces (guarded); zero when there is none yet.
	Prev int64
	// Gone removes the row.
	Gone bool
}

// Key names the entity.
func (r *EntityRow) Key() EntityKey { return EntityKey{Shard: r.Shard, Address: r.Entity.Address} }

// MailboxRow is a message that waits for an entity or a service.
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

// LoadedEntity is what is stored of an entity.
type LoadedEntity struct {
	Entity  *model.Entity // nil when it has no row
	Mailbox []model.MailboxItem
	// More tells that there may be more items: LoadMailbox has them.
	More bool
}

// EntityQuery selects entities.
type EntityQuery struct {
	Tenant    string
	Type      string // with its prefix; empty for all
	Key       string // exact; empty for all
	KeyPrefix string // empty for all
	Locked    bool   // only those that a section holds
	Limit     int
	// After continues behind the last row of the page before: its type and key.
	After model.Address
}

// EntityPage is one page of a listing.
type EntityPage struct {
	Entities []model.Entity
	// More is set when there are further rows behind the last one.
	More bool
}
