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

// List lists the entities of a type whose keys begin with prefix, by key; those of all types when the type is empty.
func (e Entities) List(ctx context.Context, entity, prefix string) iter.Seq2[EntityInfo, error] {
	return e.app.listEntities(ctx, entity, api.EntityListRequest{KeyPrefix: prefix})
}

// Describe tells how an entity stands, as far as that is committed; it waits for nobody. One that does not exist is no error.
func (e Entities) Describe(ctx context.Context, ref EntityRef) (info EntityInfo, err error) {
	defer publish(&err)
	to, err := ref.address()
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

// ForceDelete removes an entity whose row cannot be read, or whose changes the store refuses, whatever state it is in. Its row and the calls that wait for it are written to
// export first, as they stand, as JSON lines (docs/operating.md has the format). Callers and sections that wait for its lock get ErrNotFound. Calls that nobody waits for become
// dead letters. The section that holds its lock finds its further calls of the entity refused with ErrConflict.
// An entity that changes after its row was written to export is not removed: the error is ErrConflict, and the
// caller may try again with a new export.
// As with ForceDelete, an export with a method Flush() error is flushed first.
func (e Entities) ForceDelete(ctx context.Context, ref EntityRef, export io.Writer) error {
	to, err := ref.address()
	if err == nil {
		_, err = e.app.host.backend.Delete(ctx, api.DeleteRequest{Target: api.Target{Address: to}, Force: true, Export: export})
	}
	return public(err)
}

// EntityInfo describes an entity, who has locked it, and what waits for it.
type EntityInfo struct {
	Ref EntityRef
	// Exists tells that it has a state. One that does not exist may be locked all the same.
	Exists           bool
	Created, Changed time.Time
	// State is JSON, or nil when this app cannot decode it; StateIs tells how it is stored.
	State   []byte
	StateIs string
	// LockedBy is the run whose section holds the lock, since LockedAt; zero when it is not locked. Epoch is the fencing token of that lock.
	LockedBy Ref
	LockedAt time.Time
	Epoch    int64

	// What follows is of Entities.Describe only; lists leave it out.

	// Waiting is how many calls and requests of the lock wait for it and are stored, at most a hundred; Waiters are the runs among them that wait for the lock, in the order in which they get it.
	Waiting int
	Waiters []Ref
	// Reason is why what waits does not move.
	Reason string
}

func (a *App) listEntities(ctx context.Context, entity string, r api.EntityListRequest) iter.Seq2[EntityInfo, error] {
	if entity != "" {
		r.Type = model.EntityPrefix + entity
	}
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
