// Package store is the port to durable storage.
//
// Its methods are whole transactions, so that a fault can be put before or after each of them and
// nowhere in between. Three adapters implement it (memory, sqlite, postgres) and pass one
// conformance suite (storetest); faultstore wraps any of them.
//
// Promises of every adapter:
//
//   - Commit applies a batch whole or not at all, and only when the fence of its lane stands
//     exactly one batch before it under the expected epoch. A fenced lane commits nothing.
//   - Every guarded write checks the number of rows it touched; a mismatch refuses the whole batch.
//   - Committed means durable (memory excepted).
//   - Reads return committed data. What the engine acts upon is never read from a replica.
//
// The port knows rows and transactions. It knows nothing of workflows: what to write is decided by
// core and engine.
package store

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
)

// Store is durable storage. All methods are safe for concurrent use.
type Store interface {
	// Info describes the store as it was opened.
	Info() Info
	// Close releases all resources. Calls in flight end with an error.
	Close() error

	Ownership
	Writer
	Recovery
	Mailroom
	Reader
	Entities
	Tasks
	Settings
	Peers
}

// Info describes an open store.
type Info struct {
	// Shards is the number of shards, fixed when the store was created.
	Shards int
	// Cluster is a random id of the store's contents.
	Cluster string
	// Shared tells whether several processes may open the store at the same time.
	Shared bool
	// URL names the store for people, without credentials.
	URL string
	// Version is the version of the schema.
	Version int
}

// Logged is a store whose log readers can make grow. Not every adapter is one.
type Logged interface {
	// LogSize is the size of the log on disk, and the largest one that it has in normal operation.
	LogSize() (bytes, normal int64, err error)
}

// Ownership is who may write what: nodes with leases, shards, fences.
// Time is the store's own clock wherever a lease is judged.
type Ownership interface {
	// Register adds a node with a lease of ttl, draws a fresh epoch from the cluster-wide counter,
	// and creates one fence per lane at that epoch and batch 0. A sole node (NodeInfo.Sole) removes
	// all other nodes and their fences in the same transaction, so that it need not wait for any
	// lease.
	Register(ctx context.Context, n NodeInfo, lanes int, ttl time.Duration) (Registration, error)

	// Renew extends the lease, notes what the node serves, and returns the view of the cluster, all
	// in one round trip. It fails with ErrFenced when the node is gone or its epoch was raised; an
	// expired lease that nobody took over yet may be renewed.
	Renew(ctx context.Context, r RenewRequest) (View, error)

	// FenceNode ends a node whose lease has expired by the store's clock, or whose death the caller
	// has proven (proven): it locks the lease and fences, re-checks, raises the epoch of every
	// fence of the node and removes its lease row. In-flight commits of the node finish before it
	// or fail after it. It reports false when the lease is alive (and not proven dead) or is held
	// by another epoch; a node that is gone already reports true.
	FenceNode(ctx context.Context, node model.NodeID, epoch int64, proven bool) (bool, error)

	// Acquire takes those of the shards that are free, that the node holds already, or whose
	// recorded owner has been fenced, for the node, and returns them with the state that travels
	// with a shard. It fails with ErrFenced when the node itself is fenced.
	Acquire(ctx context.Context, node model.NodeID, epoch int64, shards []model.ShardID) ([]AcquiredShard, error)

	// Unregister removes a node that has freed its shards, with its fences. Shards it still holds
	// become free.
	Unregister(ctx context.Context, node model.NodeID, epoch int64) error

	// Refence is the answer to an unknown commit: it moves the lane's fence to a fresh epoch by an
	// exclusive write, which waits for an orphaned transaction or excludes it, and returns the new
	// epoch and the last batch that landed. ErrFenced when the lane's fence does not stand at the
	// epoch (somebody else fenced the node).
	Refence(ctx context.Context, l LaneRef) (epoch, landed int64, err error)
}

// Writer is the hot path.
type Writer interface {
	// Commit applies a batch. On error nothing was applied, unless the error is of class Unknown.
	// The batch belongs to the store only during the call: its memory is used again afterwards
	// (what its rows point to is not).
	Commit(ctx context.Context, b *Batch) (Committed, error)
}

// Recovery reads what an owner needs to take up its shards. Every method returns pages; no method
// locks.
//
// One row that cannot be read spoils no page. A message that cannot be read is returned in its
// place as it stands (see [model.Damaged]). A row without a valid id is passed over, and the page
// comes with an error that [Whole] knows.
type Recovery interface {
	// LoadRunnable returns open runs of the shards that are not parked, in order of (shard, run),
	// after the given one.
	LoadRunnable(ctx context.Context, shards []model.ShardID, after RunKey, limit int) ([]RunHead, error)

	// LoadExpired returns closed runs of the shards that may be removed: those without a time of
	// their own (Outcome.Leaves) that were closed before one time, and those whose own time is
	// before another. A run that was closed before it began here, because it was imported, counts
	// from its beginning.
	//
	// Nothing is written for the former to be found, so that they cost nothing while they live: the
	// call walks over runs in the order of their key, which is the store's own but has the runs of
	// a shard by id, a bounded number at a time, as far as ids go that are older than ClosedBefore
	// (see OldestID); a run that was closed before that also began before it. Open runs and others
	// that stay are passed over. The latter are found by their time, in every call.
	LoadExpired(ctx context.Context, r ExpiredRequest) (Expired, error)

	// LoadExecution returns the current run of an address, or the run itself when run is set.
	// It returns nil when there is none.
	LoadExecution(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID) (*Execution, error)

	// LoadEvents returns stored events of a run with a position above after, in order; at most
	// limit events and about maxBytes of bodies, but at least one if there is one. Events 0 and
	// those carried by the start are not stored and not returned. A row that cannot be decoded is
	// an error of kind fault.Corrupt that names run and position.
	LoadEvents(ctx context.Context, key RunKey, after int64, limit, maxBytes int) ([]model.Event, error)

	// LoadRun returns what it takes to continue a run: its row as LoadExecution returns it, and
	// while it is open its first events, as LoadEvents returns them, and its timers. The wake-up of
	// a run that is not in memory is made of this, so a store that is far away makes it one
	// question. What was read is returned with an error.
	LoadRun(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID, limit, maxBytes int) (Run, error)

	// LoadTimers returns timers of the shards with After < (Due, Run, ID) and Due <= until, ordered
	// by (Due, Run, ID), at most limit.
	LoadTimers(ctx context.Context, shards []model.ShardID, after TimerMark, until model.Time, limit int) ([]Timer, error)

	// LoadRunTimers returns the open timers of one run.
	LoadRunTimers(ctx context.Context, key RunKey) ([]Timer, error)

	// LoadMessages returns messages to the shards behind their cursors, for each (to, from) pair in
	// order without a gap, at most limit in total. The page ends when the bodies of its rows have
	// maxBytes, so it has at least one row if there is one, and at most maxBytes and one row. more
	// tells that there may be rows behind it. One that cannot be decoded has Damaged set, and
	// counts as well.
	LoadMessages(ctx context.Context, shards []model.ShardID, limit, maxBytes int) (rows []MessageRow, more bool, err error)

	// LoadInbox returns requests of other processes to the shards that may be served at now,
	// ordered by id; none that is put off until model.MaxTime, which is what a dead letter is.
	// limit, maxBytes and more are those of LoadMessages. Those whose request id is remembered
	// already have Seen set. One that cannot be decoded has Damaged set.
	LoadInbox(ctx context.Context, shards []model.ShardID, now model.Time, limit, maxBytes int) (rows []InboxRow, more bool, err error)
}

// Mailroom is how a process that does not own a shard asks something of its owner, by way of the
// store.
type Mailroom interface {
	// PutInbox stores requests. Repeating a request with the same id changes nothing while it is
	// unconsumed or remembered. The store does not take a row whose refusal it remembers
	// (model.RefusedIDs): a late copy would take effect after the sender has heard the refusal.
	PutInbox(ctx context.Context, rows []InboxRow) error
	// LoadReplies returns the remembered answers among the request keys; unknown ones are absent.
	// One that cannot be read has Damaged set.
	LoadReplies(ctx context.Context, keys []RequestKey) ([]Reply, error)
}

// Reader serves the API; it never takes part in a decision.
type Reader interface {
	// List returns executions, newest start first.
	List(ctx context.Context, q Query) (Page, error)
	// Count counts executions that match; the paging fields of q are ignored.
	Count(ctx context.Context, q Query) (int64, error)
	// LoadEventsOf returns stored events of a run that are of the kind and below the position
	// before, the newest first, at most limit.
	LoadEventsOf(ctx context.Context, key RunKey, kind model.EventKind, before int64, limit int) ([]model.Event, error)
	// LoadLabels returns the labels that the runs have now, ordered by shard, run and name; those
	// of unknown runs are absent.
	LoadLabels(ctx context.Context, keys []RunKey) ([]LabelRow, error)
	// LoadOutcomes returns the rows of those runs that are closed.
	LoadOutcomes(ctx context.Context, keys []RunKey) ([]Execution, error)
	// LoadDeadLetters returns requests and messages that were refused and kept, of all shards, in
	// the order of their ids, behind the given one, at most limit. One that cannot be decoded has
	// Damaged set.
	LoadDeadLetters(ctx context.Context, after model.RunID, limit int) ([]InboxRow, error)
	// ReadRaw hands out rows as they stand: nothing is decoded, so nothing can be unreadable. Of
	// runs it hands out first their own rows, in the order of their ids, then everything else that
	// a removal takes away. Without a run it reads all runs of the shard, to find those of the
	// address. Of an entity it hands out its row and what waits for it.
	ReadRaw(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID, each func(RawRow) error) error
	// Members returns the nodes and the owners of the shards.
	Members(ctx context.Context) (View, error)
	// Sweep deletes, in one bounded transaction, message rows behind their cursors, remembered
	// requests older than before, remembered requests that are named, cursors of drained pairs that
	// cannot come back, dead letters whose id is older than before, events of deleted runs with
	// what their tasks left, old log lines, old tombstones of settings and old letters between
	// nodes, and reports how many rows went.
	Sweep(ctx context.Context, s SweepRequest) (int, error)
}

// LoadRunByParts is LoadRun of a store for which three questions cost hardly more than one.
func LoadRunByParts(ctx context.Context, s Store, shard model.ShardID, address model.Address, run model.RunID, limit, maxBytes int) (r Run, err error) {
	if r.Execution, err = s.LoadExecution(ctx, shard, address, run); err != nil || r.Execution == nil || r.Execution.Outcome.Status.Closed() {
		return r, err
	}
	key := RunKey{Shard: r.Execution.Shard, Run: r.Execution.Start.Run}
	if r.Events, err = s.LoadEvents(ctx, key, 0, limit, maxBytes); err != nil {
		return r, err
	}
	r.More = len(r.Events) > 0
	r.Timers, err = s.LoadRunTimers(ctx, key)
	return r, err
}
