package perdure

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/entity"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/pool"
	"github.com/perdure/perdure/internal/replay"
	"github.com/perdure/perdure/internal/userdb"
	"github.com/perdure/perdure/payload"
)

// App is an open node and the worker in it that serves the definitions. It is safe for concurrent
// use. Package embedded makes one.
//
// Programs speak to executions through With and InTx. Operators use the groups: Executions,
// Histories, Entities, Locks, Mailboxes, Tasks, DeadTasks, Queues, Limits, Breakers and Schedules.
type App struct {
	host   *host
	worker *replay.Worker
	tasks  *pool.Pool // nil when it executes none
	// entities is nil when it has the code of none.
	entities *entity.Worker
	cfg      attachment

	databases  []*userdb.Database // in which transactional activities act
	relays     []*relay
	hinter     hinter
	background sync.WaitGroup
	stop       context.CancelFunc // of what runs in the background

	singletons     sync.WaitGroup
	stopSingletons func() // ends them and waits; nil before they run

	closing sync.Once
	closed  error
}

// With is the Caller of ordinary code: the app together with ctx. A call ends when ctx does; what
// the call started goes on.
func (a *App) With(ctx context.Context) Client { return Client{a, ctx} }

// Wait blocks until ctx ends, then closes the app.
func (a *App) Wait(ctx context.Context) error {
	<-ctx.Done()
	return a.Close()
}

// Close stops taking new work, waits for running steps (embedded.Config.DrainTimeout) and tasks
// (TaskConfig.DrainTimeout), and releases everything. Open executions go on when a process opens
// the store again.
//
// Close does not wait for a store that takes nothing, for example because its disk is full. It
// makes a few more attempts within a second. Then it returns an ErrUnavailable that says what
// is not stored. Nothing acknowledged is lost: pending calls have failed with the reason, and
// steps whose outcomes are not stored run again.
func (a *App) Close() error {
	a.closing.Do(func() {
		if a.cfg.OnClosing != nil {
			a.cfg.OnClosing()
		}
		a.endSingletons()
		a.stopBackground()
		err := a.closeWorkers()
		if a.cfg.OnClose != nil {
			err = errors.Join(err, a.cfg.OnClose())
		}
		a.closed = public(err)
	})
	return a.closed
}

// endSingletons tells the singletons that run here that the app closes, and waits until their code
// has returned and their leases are released. The workers must still serve, because the code may
// use them.
func (a *App) endSingletons() {
	if a.stopSingletons != nil {
		a.stopSingletons()
	}
}

// closeWorkers takes no new work and waits for running work. It serves entities until steps and
// tasks have ended, because they may wait for entities.
func (a *App) closeWorkers() error {
	var tasks sync.WaitGroup // are drained at the same time
	var left, closed error
	tasks.Go(func() { left = a.closeTasks() })
	if a.worker != nil {
		ctx, cancel := context.WithTimeout(context.Background(), a.cfg.DrainTimeout)
		closed = a.worker.Close(ctx)
		cancel()
	}
	tasks.Wait()
	return errors.Join(closed, left, a.closeEntities())
}

// SweepPayloads removes the blobs of payload.Offload that are older than age and that nothing in
// the store refers to, and returns how many it removed: blobs of deleted executions and blobs whose
// commit failed. Call it about once a day, from one process.
//
// The app writes a blob before the commit that refers to it. So age must be longer than any commit
// can take, outages of the store included. It must be at least an hour; a day is a good choice.
//
// Outboxes and outcomes of transactional activities refer to blobs too, so call it from an app that
// has all of them. A copy of a store has the id of the original: never sweep from a copy that
// shares the blobs of the original.
func (a *App) SweepPayloads(ctx context.Context, age time.Duration) (removed int, err error) {
	blobs := a.host.codec.Blobs()
	switch {
	case blobs == nil:
		return 0, fault.New(fault.Invalid, "sweep of payloads: the payload settings have no offload")
	case age < minSweepAge:
		return 0, fault.New(fault.Invalid, "sweep of payloads: age %s, at least %s: a commit may still be on its way", age, minSweepAge)
	}

	old := map[string]struct{}{}
	before := time.Now().Add(-age)
	for b, err := range blobs.List(ctx, a.cfg.Backend.Cluster()+"/") {
		if err != nil {
			return 0, fault.New(fault.Unavailable, "sweep of payloads: %w", &payload.StoreError{Op: "list", Key: a.cfg.Backend.Cluster() + "/", Err: err})
		}
		if b.Stored.Before(before) {
			old[b.Key] = struct{}{}
		}
	}

	if len(old) == 0 {
		return 0, nil
	}
	err = a.findReferences(ctx, func(value []byte) error {
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
			return removed, fault.New(fault.Unavailable, "sweep of payloads: %w", &payload.StoreError{Op: "delete", Key: key, Err: err})
		}
		removed++
	}
	return removed, nil
}

// minSweepAge is how old a blob must be at least before a sweep may remove it.
const minSweepAge = time.Hour

// findReferences finds everything that refers to blobs. It reads the databases of the user first: a
// value that moves from one of them to the store at the same time is then found in the store.
func (a *App) findReferences(ctx context.Context, found func(value []byte) error) error {
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
	return a.cfg.Backend.Search(ctx, mark, found)
}
