package perdure

import (
	"context"
	"io"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/model"
)

// Entities lists, describes and removes entities. Programs read the state of one entity with
// [Entity.Get].
type Entities struct{ app *App }

// Entities operates the entities of the store.
func (a *App) Entities() Entities { return Entities{a} }

// List returns the entities of a type whose keys begin with prefix, by key. An empty type lists all
// types.
func (e Entities) List(ctx context.Context, entity, prefix string) iter.Seq2[EntityInfo, error] {
	return e.app.listEntities(ctx, entity, api.EntityListRequest{KeyPrefix: prefix})
}

// Describe returns the committed state of an entity, its lock and its waiting calls. It waits for
// nothing. An entity that does not exist is no error.
func (e Entities) Describe(ctx context.Context, ref EntityRef) (info EntityInfo, err error) {
	defer publish(&err)
	to, err := ref.address(e.app.host.tenant)
	if err != nil {
		return EntityInfo{}, err
	}
	found, err := e.app.host.backend.Entity(ctx, to)
	if err != nil {
		return EntityInfo{}, err
	}

	info = e.app.entityOf(ctx, &found.Entity)
	info.Waiting = len(found.Waiting)
	for i := range found.Waiting {
		if m := &found.Waiting[i].Message; m.Kind == model.MessageLock {
			info.Waiters = append(info.Waiters, linkRef(m.From))
		}
	}

	if len(found.Reasons) > 0 {
		info.Reason = found.Reasons[0].String()
	}
	return info, nil
}

// ForceDelete removes an entity whose row cannot be read or whose changes the store refuses. It
// writes the row and the waiting calls to export first, as they are, as JSON lines
// (docs/operating.md has the format), and flushes export as Executions.ForceDelete does.
//
// Callers and workflows that wait for the entity get ErrNotFound. One-way calls become dead
// letters. The workflow that holds the lock gets ErrConflict for further calls. When the entity
// changes after its row was written, ForceDelete removes nothing and returns ErrConflict; try again
// with a new export.
func (e Entities) ForceDelete(ctx context.Context, ref EntityRef, export io.Writer) error {
	to, err := ref.address(e.app.host.tenant)
	if err == nil {
		_, err = e.app.host.backend.Delete(ctx, api.DeleteRequest{Target: api.Target{Address: to}, Force: true, Export: export})
	}
	return public(err)
}

// EntityInfo describes an entity, its lock, and its waiting calls.
type EntityInfo struct {
	Ref EntityRef
	// Exists is true when the entity has a state. An entity without a state may be locked.
	Exists           bool
	Created, Changed time.Time
	// State is JSON, or nil when this app cannot decode it. StateIs says how it is stored.
	State   []byte
	StateIs string
	// LockedBy is the run that holds the lock since LockedAt; zero when the entity is not locked.
	// Epoch is the fencing token of the lock.
	LockedBy Ref
	LockedAt time.Time
	Epoch    int64

	// Only Entities.Describe fills the fields below; lists leave them out.

	// Waiting counts the stored calls and lock requests that wait, up to a hundred. Waiters are the
	// runs among them that wait for the lock, in the order in which they get it.
	Waiting int
	Waiters []Ref
	// Reason says why the waiting calls do not go on.
	Reason string
}

func (a *App) listEntities(ctx context.Context, entity string, r api.EntityListRequest) iter.Seq2[EntityInfo, error] {
	if entity != "" {
		r.Type = model.EntityPrefix + entity
	}
	r.Tenant = a.host.tenant
	show := func(n *model.Entity) EntityInfo { return a.entityOf(ctx, n) }
	return pages(show, func(cursor string) ([]model.Entity, string, error) {
		r.Cursor = cursor
		page, err := a.host.backend.ListEntities(ctx, r)
		return page.Entities, page.Cursor, err
	})
}

func (a *App) entityOf(ctx context.Context, n *model.Entity) EntityInfo {
	info := EntityInfo{Ref: EntityRef{Type: n.Address.Type[len(model.EntityPrefix):], Key: n.Address.Key}, Exists: n.Exists, Changed: n.Changed.Std()}
	if n.Exists {
		info.Created = n.Created.Std()
		info.State, info.StateIs = a.host.show(ctx, n.State)
	}
	if n.Locked() {
		info.LockedBy, info.LockedAt, info.Epoch = linkRef(n.Holder), n.Held.Std(), n.Epoch
	}
	return info
}

func linkRef(l model.Link) Ref {
	return Ref{Workflow: l.Address.Type, Key: l.Address.Key, Run: l.Run.String()}
}
