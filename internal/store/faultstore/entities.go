package faultstore

import (
	"context"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// LoadEntity loads an entity.
func (f *Store) LoadEntity(ctx context.Context, key store.EntityKey, limit, maxBytes int) (store.LoadedEntity, error) {
	return call(ctx, f, LoadEntity, nil, func() (store.LoadedEntity, error) { return f.inner.LoadEntity(ctx, key, limit, maxBytes) })
}

// LoadMailbox loads items of the mailbox of an entity.
func (f *Store) LoadMailbox(ctx context.Context, key store.EntityKey, after int64, limit, maxBytes int) ([]model.MailboxItem, error) {
	return call(ctx, f, LoadMailbox, nil, func() ([]model.MailboxItem, error) { return f.inner.LoadMailbox(ctx, key, after, limit, maxBytes) })
}

// LoadMailboxes loads the entities whose mailbox is not empty.
func (f *Store) LoadMailboxes(ctx context.Context, shards []model.ShardID, after store.EntityKey, limit int) ([]store.EntityKey, error) {
	return call(ctx, f, LoadMailboxes, nil, func() ([]store.EntityKey, error) { return f.inner.LoadMailboxes(ctx, shards, after, limit) })
}

// ListEntities lists entities.
func (f *Store) ListEntities(ctx context.Context, q store.EntityQuery) (store.EntityPage, error) {
	return call(ctx, f, ListEntities, nil, func() (store.EntityPage, error) { return f.inner.ListEntities(ctx, q) })
}
