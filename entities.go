package perdure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"time"

	"github.com/perdure/perdure/internal/api"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// Entities lists, describes, edits and removes entities. Programs read the state of one entity with
// [Entity.Get].
type Entities struct{ app *App }

// Entities operates the entities of the store.
func (a *App) Entities() Entities { return Entities{a} }

// List returns the entities of one type whose keys begin with prefix, sorted by key. entity is the
// name of the type. If it is empty, List returns the entities of all types, sorted by type and key.
func (e Entities) List(ctx context.Context, entity, prefix string) iter.Seq2[EntityInfo, error] {
	return e.app.listEntities(ctx, entity, api.EntityListRequest{KeyPrefix: prefix})
}

// EntityFilter selects entities. All conditions must hold; a zero field sets no condition.
type EntityFilter struct {
	Type, Prefix string // name of the entity, and the beginning of its key
	Locked       bool   // only entities that a workflow has locked
	// Waiting selects only entities for which stored calls wait, including entities without a
	// state. Find returns them in no particular order.
	Waiting bool
	// Expired selects only entities whose state has expired but is not removed yet. Without
	// Expired, Find leaves these entities out.
	Expired bool
	// ChangedFrom and ChangedTo select entities whose last change was at ChangedFrom or later, and
	// before ChangedTo.
	ChangedFrom, ChangedTo time.Time
	// MinVersion and MaxVersion select entities that have changed at least MinVersion times and at
	// most MaxVersion times.
	MinVersion, MaxVersion int64
}

// Find returns the entities that a filter selects, sorted by type and key unless the filter has
// Waiting. Find reads the entities in pages, so it may leave out an entity that changes during the
// loop.
func (e Entities) Find(ctx context.Context, f EntityFilter) iter.Seq2[EntityInfo, error] {
	r := api.EntityListRequest{
		KeyPrefix: f.Prefix, Locked: f.Locked, Waiting: f.Waiting, Expired: f.Expired, MinVersion: f.MinVersion, MaxVersion: f.MaxVersion,
	}
	if !f.ChangedFrom.IsZero() {
		r.ChangedFrom = model.TimeOf(f.ChangedFrom)
	}
	if !f.ChangedTo.IsZero() {
		r.ChangedTo = model.TimeOf(f.ChangedTo)
	}
	return e.app.listEntities(ctx, f.Type, r)
}

// Describe returns the committed state of an entity, its lock and its waiting calls. It does not
// wait for operations or locks. For an entity that does not exist, it returns an EntityInfo without
// a state, and no error.
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
	for i := range found.Entity.Log {
		info.Log = append(info.Log, e.app.recordOf(ctx, &found.Entity.Log[i]))
	}
	return info, nil
}

// Edit replaces the state of an entity with a JSON value and returns the new version. The entity
// must still have the given version. Take version from EntityInfo.Version; "0" means that the
// entity has neither a state nor a lock. The process that owns the entity applies the edit like an
// operation, in one commit, but runs no code of the entity.
//
// Edit returns ErrConflict and changes nothing if the version has changed, if an operation of the
// entity runs, or if a workflow holds its lock.
func (e Entities) Edit(ctx context.Context, ref EntityRef, version string, state []byte) (now string, err error) {
	defer publish(&err)
	to, err := ref.address(e.app.host.tenant)
	if err != nil {
		return "", err
	}
	want, ok := model.ParseEntityVersion(version)
	if !ok {
		return "", fault.New(fault.Invalid, "edit %s/%s: %.80q is not a version: take it from EntityInfo.Version", ref.Type, ref.Key, version)
	}

	r := api.EditRequest{Address: to, Version: want}
	if r.State, err = e.app.host.encodeState(ctx, ref, state); err != nil {
		return "", err
	}
	made, err := e.app.host.backend.EditEntity(ctx, r)
	if err != nil {
		return "", err
	}

	return made.String(), nil
}

// encodeState returns the stored form of a state that an operator wrote as JSON.
func (h *host) encodeState(ctx context.Context, ref EntityRef, state []byte) (p model.Payload, err error) {
	const kind = stateKind
	var v any
	dec := json.NewDecoder(bytes.NewReader(state))
	dec.UseNumber()
	err = dec.Decode(&v)
	if _, end := dec.Token(); err != nil || !errors.Is(end, io.EOF) {
		return p, fault.New(fault.Invalid, "the new %s %s is not a JSON value", kind, ref.Type)
	}
	if h.plain {
		return model.Payload{Data: state}, h.limit(kind, ref.Type, model.Payload{Data: state})
	}

	if p, err = encodeFor(h, kind, ref.Type, v); err != nil {
		return p, err
	}
	return h.seal(ctx, brief, kind, ref.Type, p)
}

// ForceDelete removes an entity whose row cannot be read or whose changes the store refuses. It
// first writes the row and the waiting calls to export, unchanged, as JSON lines (docs/operating.md
// has the format). It flushes export as Executions.ForceDelete does.
//
// Callers and workflows that wait for the entity get ErrNotFound. One-way calls become dead
// letters. The workflow that holds the lock gets ErrConflict for further calls. If the entity
// changes after ForceDelete has written its row, ForceDelete removes nothing and returns
// ErrConflict. In that case, try again with a new export.
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
	// Version identifies this state, for Entities.Edit. It is "0" if there is neither a state nor a
	// lock.
	Version string
	// Exists is true when the entity has a state. An entity without a state may be locked.
	Exists           bool
	Created, Changed time.Time
	// Expires is when the state is removed; zero for never.
	Expires time.Time
	// State is JSON, or nil when this app cannot decode it. StateIs says how it is stored.
	State   []byte
	StateIs string
	// StateVersion is the version of the type of the state; see the option StateVersion.
	StateVersion int
	// LockedBy is the run that holds the lock, and LockedAt is when it got the lock. Both are zero
	// when the entity is not locked. Epoch is the fencing token of the lock.
	LockedBy Ref
	LockedAt time.Time
	Epoch    int64

	// Only Entities.Describe fills the fields below; lists leave them out.

	// Waiting counts the stored calls and lock requests that wait, up to a hundred. Waiters are the
	// runs that wait for the lock, in the order in which they get it.
	Waiting int
	Waiters []Ref
	// Reason says why the waiting calls do not run.
	Reason string
	// Log is the last operations, oldest first, if the entity keeps an OperationLog.
	Log []OperationRecord
}

// OperationRecord is an operation in the log of an entity.
type OperationRecord struct {
	Operation string
	At        time.Time // when its result was stored
	// From is the caller if it was an execution. RequestID is the request id of a client.
	From      Ref
	RequestID string
	// Err is nil if the operation succeeded.
	Err   error
	Bytes int // of the input
	// Input is JSON, or nil when it is not kept or cannot be decoded; see LogInputs.
	Input []byte
}

func (a *App) recordOf(ctx context.Context, r *model.OperationRecord) OperationRecord {
	rec := OperationRecord{Operation: r.Name, At: r.At.Std(), RequestID: r.RequestID, Bytes: r.Bytes}
	if !r.From.Address.IsZero() {
		rec.From = linkRef(r.From)
	}
	if r.Failure != nil {
		rec.Err = remote(r.Failure)
	}
	if r.Input.Size() > 0 {
		rec.Input, _ = a.host.show(ctx, r.Input)
	}
	return rec
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
	info := EntityInfo{Ref: EntityRef{Type: n.Address.Type[len(model.EntityPrefix):], Key: n.Address.Key}, Version: n.VersionNow().String(), Exists: n.Exists, Changed: n.Changed.Std()}
	if n.Exists {
		info.Created = n.Created.Std()
		if n.Expires != 0 {
			info.Expires = n.Expires.Std()
		}
		info.State, info.StateIs = a.host.show(ctx, n.State)
		info.StateVersion = n.State.StateVersion()
	}
	if n.Locked() {
		info.LockedBy, info.LockedAt, info.Epoch = linkRef(n.Holder), n.Held.Std(), n.Epoch
	}
	return info
}

func linkRef(l model.Link) Ref {
	return Ref{Workflow: l.Address.Type, Key: l.Address.Key, Run: l.Run.String()}
}
