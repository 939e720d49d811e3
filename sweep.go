package perdure

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/userdb"
	"github.com/perdure/perdure/payload"
)

// minSweepAge is how old a blob must be at least before a sweep may remove it.
const minSweepAge = time.Hour

// SweepPayloads removes the blobs of payload.Offload that nothing in the store refers to and that are older than age, and tells how many: those
// of executions that were deleted, and those whose commit never came. Call it now and then, once a day or so, from one process.
//
// A blob is put before the commit that refers to it, so age must be longer than any commit can take, outages of the store included; it is
// at least an hour, and a day is a good choice. References are looked for in everything that is stored, as of one moment after the blobs were listed;
// what goes from one execution to another does so within commits, so no reference is overlooked. Outboxes and outcomes of transactional activities
// refer to blobs as well: call it from an app that has all of them.
//
// Every store has blobs of its own, by its id. A copy of a store has the same id: never sweep from a copy that shares the blobs of the original.
func (a *App) SweepPayloads(ctx context.Context, age time.Duration) (removed int, err error) {
	blobs := a.host.codec.Blobs()
	switch {
	case blobs == nil:
		return 0, public(fault.New(fault.Invalid, "sweep of payloads: the payload settings have no offload"))
	case a.cfg.Search == nil || a.cfg.Cluster == "":
		return 0, public(fault.New(fault.Invalid, "sweep of payloads: it is done by an app that has the store open"))
	case age < minSweepAge:
		return 0, public(fault.New(fault.Invalid, "sweep of payloads: age %s, at least %s: a commit may still be on its way", age, minSweepAge))
	}
	old := map[string]struct{}{}
	before := time.Now().Add(-age)
	for b, err := range blobs.List(ctx, a.cfg.Cluster+"/") {
		if err != nil {
			return 0, public(fault.New(fault.Unavailable, "sweep of payloads: %w", &payload.StoreError{Op: "list", Key: a.cfg.Cluster + "/", Err: err}))
		}
		if b.Stored.Before(before) {
			old[b.Key] = struct{}{}
		}
	}
	if len(old) == 0 {
		return 0, nil
	}
	err = a.references(ctx, func(value []byte) error {
		for _, key := range payload.References(value) {
			delete(old, key)
		}
		return nil
	})
	if err != nil {
		return 0, public(err)
	}
	for key := range old {
		if err := blobs.Delete(ctx, key); err != nil {
			return removed, public(fault.New(fault.Unavailable, "sweep of payloads: %w", &payload.StoreError{Op: "delete", Key: key, Err: err}))
		}
		removed++
	}
	return removed, nil
}

// references finds everything that refers to blobs. Databases of the user come first: what leaves one for the store meanwhile is found there.
func (a *App) references(ctx context.Context, found func(value []byte) error) error {
	mark := payload.ReferenceMark()
	for _, r := range a.relays {
		if err := r.db.Search(ctx, userdb.Outbox, mark, found); err != nil {
			return fault.New(fault.Unavailable, "sweep of payloads: look into an outbox: %w", err)
		}
	}
	for _, db := range a.databases {
		if err := db.Search(ctx, userdb.Outcomes, mark, found); err != nil {
			return fault.New(fault.Unavailable, "sweep of payloads: look at the outcomes of transactional activities: %w", err)
		}
	}
	return a.cfg.Search(ctx, mark, found)
}
