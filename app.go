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

// App connects a program with a store and runs the code of its definitions. It is safe for
// concurrent use. Package embedded opens an App with an engine in this process, and Dial opens an
// App that uses a server.
//
// Programs start and call executions through With and InTx. Operators use the groups: Executions,
// Histories, Signals, Entities, Locks, Mailboxes, Tasks, DeadTasks, Queues, Limits, Breakers,
// Schedules and Tenant.
type App struct {
	host   *host
	worker *replay.Worker
	tasks  *pool.Pool // nil if the app executes no tasks
	// entities is nil if the app has no code of entities or services.
	entities *entity.Worker
	cfg      attachment

	databases  []*userdb.Database // of transactional activities
	relays     []*relay
	hinter     hinter
	background sync.WaitGroup
	stop       context.CancelFunc // ends the goroutines in background

	singletons     sync.WaitGroup
	stopSingletons func() // ends the singletons and waits for them; nil before they run

	closing sync.Once
	closed  error
}

// With returns the Caller for ordinary code: the app together with ctx. A call ends when ctx ends,
// but an execution that the call has started continues.
func (a *App) With(ctx context.Context) Client { return Client{a, ctx} }

// Wait blocks until ctx ends, then closes the app.
func (a *App) Wait(ctx context.Context) error {
	<-ctx.Done()
	return a.Close()
}

// Close stops taking new work, waits for running steps and tasks, and releases everything. It waits
// for steps no longer than the DrainTimeout of embedded.Config or Dialer, and for tasks no longer
// than TaskConfig.DrainTimeout. Open executions continue when a process opens the store again.
//
// If no server of Dial answers, Close waits for one only while this process has something that a
// server would ask for: running steps, tasks or calls, or their outcomes. It waits no longer than
// the DrainTimeout. If the process has nothing of this kind, Close tries to connect once more, and
// then returns without an error.
//
// Close does not wait for a store that accepts no commits, for example because its disk is full. It
// tries a few more times within a second, and then returns an ErrUnavailable that says what is not
// stored. Close loses nothing that the engine has acknowledged: pending calls get an error with the
// reason, and a step whose outcome is not stored runs again.
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

// endSingletons tells the singletons that run here that the app closes. It waits until their code
// has returned and their leases are released. The workers must still serve at this point, because
// the code of a singleton may use them.
func (a *App) endSingletons() {
	if a.stopSingletons != nil {
		a.stopSingletons()
	}
}

// closeWorkers accepts no new work and waits for running work. It closes the entity worker last,
// because running steps and tasks may wait for entities.
func (a *App) closeWorkers() error {
	var tasks sync.WaitGroup // waits for closeTasks, which runs while a.worker closes
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
// the store refers to, such as blobs of deleted executions and blobs whose commit failed. It
// returns how many blobs it removed. Call it about once a day, from one process.
//
// The app writes a blob before the commit that refers to the blob. So age must be longer than any
// commit can take, outages of the store included. It must be at least an hour; a day is a good
// choice.
//
// Outboxes and the outcomes of transactional activities refer to blobs too, so call SweepPayloads
// from an app whose definitions include all outboxes and all transactional activities. A copy of a
// store has the id of the original: never sweep from a copy that shares the blobs of the original.
func (a *App) SweepPayloads(ctx context.Context, age time.Duration) (removed int, err error) {
	blobs := a.host.codec.Blobs()
	switch {
	case blobs == nil:
		return 0, fault.New(fault.Invalid, "sweep of payloads: the payload settings have no offload")
	case age < minSweepAge:
		return 0, fault.New(fault.Invalid, "sweep of payloads: age is %s, must be at least %s, because the commits of younger blobs may still run", age, minSweepAge)
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

// minSweepAge is the smallest age at which a sweep may remove a blob.
const minSweepAge = time.Hour

// findReferences calls found with every stored value that refers to a blob. It reads the databases
// of the user before the store. So it cannot miss a value that moves from such a database to the
// store during the search.
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
