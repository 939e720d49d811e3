// Package store is the port to durable storage.
//
// Three adapters implement the port (memory, sqlite, postgres), and all of them pass one
// conformance suite (storetest). Package faultstore wraps any of them and injects faults. In an
// adapter, each method that writes is one transaction, so a fault can happen before or after it,
// but not inside. There are two exceptions: Sweep may use several transactions, and an epoch may be
// drawn in a transaction of its own. Package partitioned makes one store of several stores, and its
// methods are not always one transaction.
//
// Promises of every adapter:
//
//   - Commit applies a batch completely or not at all. It applies a batch only if the fence of its
//     lane has the expected epoch and the number of the previous batch. A fenced lane commits
//     nothing.
//   - Every guarded write checks the number of rows it touched. A mismatch refuses the whole batch.
//   - A committed batch is durable, except in the memory adapter.
//   - Reads return committed data, and never come from a replica.
//
// The port deals with rows and transactions. It knows nothing about workflows: the packages core
// and engine decide what to write.
package store

import (
	"context"
	"math"
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
	Workers
	Audit
	Reports
}

// Info describes an open store.
type Info struct {
	// Shards is the number of all shards. The number of shards of the default group is fixed when
	// the store is created.
	Shards int
	// Groups are the shard groups in addition to the default one. Only a store that several nodes
	// can share has groups.
	Groups []model.Group
	// Databases are the other databases, each with some of the groups, if the shards are divided
	// between several databases.
	Databases []Database
	// Cluster is a random id of the store's contents.
	Cluster string
	// Shared reports whether several processes may open the store at the same time.
	Shared bool
	// URL names the store in messages for people. It has no credentials.
	URL string
	// Version is the version of the schema.
	Version int
}

// Layout returns the layout of the store: the shards of each group, and the shard of each address.
func (i Info) Layout() model.Layout { return model.NewLayout(i.Shards, i.Groups) }

// Logged is a store with a write-ahead log that grows while a reader holds an old snapshot. Only
// some adapters implement it.
type Logged interface {
	// LogSize returns the size of the log on disk, and the largest size that the log reaches in
	// normal operation.
	LogSize() (bytes, normal int64, err error)
}

// Inspected is a store that can ask its database server about a connection. Only some adapters
// implement it.
type Inspected interface {
	// Inspect asks the server about one connection of the store.
	Inspect(ctx context.Context) (Inspection, error)
}

// Inspection is what a database server says about a connection.
type Inspection struct {
	// Role is the role that the store uses in the database.
	Role string
	// Superuser is true if the role may do everything in the whole database server.
	Superuser bool
	// Standby is true if the server only reads: a replica.
	Standby bool
	// Pooler is "session" if a pooler in session mode is between the store and the server. It is
	// "transaction" if the store does not prepare statements, which a pooler in transaction mode
	// needs. Otherwise it is empty.
	Pooler string
}

// Ownership decides which node may write which rows. It consists of nodes with leases, shards and
// fences. The store judges leases by its own clock, never by the clock of a node.
type Ownership interface {
	// Register adds a node with a lease of ttl. It takes a new epoch from the counter of the
	// cluster and creates one fence per lane, with that epoch and batch 0. A sole node
	// (NodeInfo.Sole) removes all other nodes and their fences in the same transaction, so it does
	// not have to wait for their leases.
	Register(ctx context.Context, n NodeInfo, lanes int, ttl time.Duration) (Registration, error)

	// Renew extends the lease, stores what the node serves, and returns the view of the cluster,
	// all in one round trip. It fails with ErrFenced if no node is registered with this id and
	// epoch. A node may renew an expired lease as long as no other node has fenced it.
	Renew(ctx context.Context, r RenewRequest) (View, error)

	// FenceNode removes a node whose lease has expired by the clock of the store, or that is gone
	// for another reason (see FenceRequest). It locks the lease, checks it again, and removes it
	// together with the fences of the node. A commit that is in flight on that node either finishes
	// before FenceNode or fails after it.
	//
	// FenceNode returns false if the lease is alive and no other reason holds, if the node has
	// renewed since the caller saw its lease, or if the lease belongs to another epoch. It returns
	// true for a node that is already gone.
	FenceNode(ctx context.Context, r FenceRequest) (bool, error)

	// Acquire makes the node the owner of each given shard that is free, already belongs to the
	// node, or belongs to a fenced owner. It returns the acquired shards with the state that moves
	// with a shard. It fails with ErrFenced if the node itself is fenced.
	Acquire(ctx context.Context, node model.NodeID, epoch int64, shards []model.ShardID) ([]AcquiredShard, error)

	// SetDrained stores or withdraws the order of an operator that a node must hand its shards
	// over. The views show the order as NodeInfo.Drained. It returns false if there is no such
	// node. A store that several nodes cannot share refuses the order, because no other node could
	// take the shards.
	SetDrained(ctx context.Context, node model.NodeID, drained bool) (bool, error)

	// Unregister removes a node and its fences. The node should have freed its shards before.
	// Shards that it still owns become free.
	Unregister(ctx context.Context, node model.NodeID, epoch int64) error

	// Refence is how a lane recovers from a commit with an unknown result. It moves the fence of
	// the lane to a new epoch with an exclusive write. The lane may have left behind a transaction
	// of the old epoch that still runs. The write waits for that transaction, or makes it fail
	// later. Refence returns the new epoch and the last batch that was applied. It fails with
	// ErrFenced if the fence of the lane does not have the given epoch, because another node has
	// fenced the node of the lane.
	Refence(ctx context.Context, l LaneRef) (epoch, landed int64, err error)
}

// Writer has the one method that the engine calls all the time.
type Writer interface {
	// Commit applies a batch. If it returns an error, nothing was applied, unless the class of the
	// error is Unknown. The store may use the batch only during the call, because the lane reuses
	// the memory of the batch afterwards. The lane does not reuse the values that the rows point
	// to.
	Commit(ctx context.Context, b *Batch) (Committed, error)
}

// Recovery reads what an owner needs to continue the runs of its shards. No method takes locks.
//
// The methods that take several shards return pages, and an unreadable row does not fail its page.
// An unreadable message is returned with its raw content (see [model.Damaged]). A row without a
// valid id is skipped. In that case the method returns the page together with an error for which
// [Whole] returns true.
type Recovery interface {
	// LoadRunnable returns the open runs that are not parked, in the given shards, ordered by
	// (shard, run). It starts after the run with the key after, and returns at most limit runs.
	LoadRunnable(ctx context.Context, shards []model.ShardID, after RunKey, limit int) ([]RunHead, error)

	// LoadExpired returns closed runs that may be removed, in the shards of r. A run either has its
	// own time of removal (Outcome.Leaves) or follows the common rule. LoadExpired returns runs
	// whose own time is before Now, and other runs that were closed before ClosedBefore. For a run
	// that was imported as closed, the time of the import is the closing time.
	//
	// Runs without their own removal time have no index entry, so they cost nothing while they
	// exist. LoadExpired finds them by a walk over runs in the order of their key. Each store
	// chooses that order, but the runs of one shard are always ordered by id. One call looks at a
	// bounded number of runs, and only at ids that are older than ClosedBefore (see OldestID),
	// because a run that was closed before that time also started before that time. The walk skips
	// open runs and other runs that stay. Every call finds runs with their own removal time through
	// an index.
	LoadExpired(ctx context.Context, r ExpiredRequest) (Expired, error)

	// LoadExecution returns the current run of an address, or the given run if run is set. It
	// returns nil if there is none.
	LoadExecution(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID) (*Execution, error)

	// LoadEvents returns the stored events of a run with a position above after, in order. It
	// returns at most limit events and about maxBytes of bodies, but at least one event if there is
	// one. Event 0 and the events that the start carries are not stored as events and are not
	// returned. A row that cannot be decoded is an error of kind fault.Corrupt, which names the run
	// and the position.
	LoadEvents(ctx context.Context, key RunKey, after int64, limit, maxBytes int) ([]model.Event, error)

	// LoadRun returns what the engine needs to continue a run: the row, as LoadExecution returns
	// it, and for an open run also its first events, as LoadEvents returns them, and its timers.
	// The engine calls it to wake up a run that is not in memory. A remote store answers in one
	// round trip. If LoadRun fails, it returns what it has read so far together with the error.
	LoadRun(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID, limit, maxBytes int) (Run, error)

	// LoadRuns returns what LoadRun returns, for the current runs of several addresses, in few
	// round trips. It returns the runs of the first keys, in the order of the keys. The page ends
	// when the bodies of the rows reach maxBytes, but it has at least one run. Each run has at most
	// limit events. If a row cannot be decoded, LoadRuns returns an error of kind fault.Corrupt and
	// no page.
	LoadRuns(ctx context.Context, keys []AddressKey, limit, maxBytes int) ([]Run, error)

	// LoadTimers returns timers of the shards with after < (Due, Run, ID) and Due <= until, ordered
	// by (Due, Run, ID), at most limit.
	LoadTimers(ctx context.Context, shards []model.ShardID, after TimerMark, until model.Time, limit int) ([]Timer, error)

	// LoadRunTimers returns the open timers of one run.
	LoadRunTimers(ctx context.Context, key RunKey) ([]Timer, error)

	// LoadMessages returns messages to the shards that the shards have not consumed yet, at most
	// limit in total. These are the messages with positions above the cursors. The messages of each
	// (to, from) pair are in order and without a gap. The page ends when the bodies of its rows
	// reach maxBytes. So it has at least one row if there is one, and its size is at most maxBytes
	// plus one row. If more is true, there may be further rows. A row that cannot be decoded has
	// Damaged set. It counts against the bounds like any other row.
	LoadMessages(ctx context.Context, shards []model.ShardID, limit, maxBytes int) (rows []MessageRow, more bool, err error)

	// LoadInbox returns the requests of other processes to the shards that may be served at now,
	// ordered by id. It does not return dead letters, which are requests deferred until
	// model.MaxTime. The bounds limit and maxBytes and the result more are as in LoadMessages. A
	// row whose request id is already remembered has Seen set. A row that cannot be decoded has
	// Damaged set.
	LoadInbox(ctx context.Context, shards []model.ShardID, now model.Time, limit, maxBytes int) (rows []InboxRow, more bool, err error)
}

// Mailroom lets a process that does not own a shard send requests to its owner through the store.
type Mailroom interface {
	// PutInbox stores requests. Putting a request again with the same id has no effect while the
	// request waits or its answer is remembered. The store ignores a row whose refusal it remembers
	// (model.RefusedIDs). Otherwise a late copy of the request could take effect after the sender
	// has seen the refusal.
	PutInbox(ctx context.Context, rows []InboxRow) error
	// LoadReplies returns the remembered answers for the request keys. It omits unknown keys. An
	// answer that cannot be read has Damaged set.
	LoadReplies(ctx context.Context, keys []RequestKey) ([]Reply, error)
	// LoadAnswers returns what callers of a process wait for, in one read. It leaves out what the
	// store does not have yet. The ended runs are at least as recent as the replies.
	LoadAnswers(ctx context.Context, a Awaited) (Answers, error)
}

// Reader has the reads for the API and for the upkeep of a node, and Sweep.
type Reader interface {
	// List returns executions, newest start first.
	List(ctx context.Context, q Query) (Page, error)
	// Count counts the matching executions. It ignores the paging fields of q.
	Count(ctx context.Context, q Query) (int64, error)
	// Tally counts the matching executions in groups, newest start first, and stops after q.Limit
	// executions. It returns one group for each combination of the properties in by, in no order,
	// and ignores q.After.
	Tally(ctx context.Context, q Query, by TallyBy) ([]TallyGroup, error)
	// Tenants returns the tenants that have executions, sorted. It jumps from one tenant to the
	// next in an index, so it may be called often.
	Tenants(ctx context.Context) ([]string, error)
	// LoadEventsOf returns the stored events of a run that have the kind and a position below
	// before, newest first, at most limit.
	LoadEventsOf(ctx context.Context, key RunKey, kind model.EventKind, before int64, limit int) ([]model.Event, error)
	// LastEvent returns the highest position of the stored events of a run, and 0 if it has none.
	// It reads no event.
	LastEvent(ctx context.Context, key RunKey) (int64, error)
	// LoadLabels returns the present labels of the runs, ordered by shard, run and name. It omits
	// unknown runs.
	LoadLabels(ctx context.Context, keys []RunKey) ([]LabelRow, error)
	// LoadDetails returns what a description of a run shows, in one read: the current run of an
	// address, or the given run if run is set. RunDetails.Execution is nil if there is none.
	LoadDetails(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID) (RunDetails, error)
	// LoadDeadLetters returns requests and messages that the engine refused and kept. It reads all
	// shards, and returns at most limit rows with ids above after, in the order of their ids. A row
	// that cannot be decoded has Damaged set.
	LoadDeadLetters(ctx context.Context, after model.RunID, limit int) ([]InboxRow, error)
	// ReadRaw calls each with rows as they are stored. It decodes nothing, so it can read damaged
	// rows. For runs it first returns the rows of the runs, in the order of their ids, and then
	// everything else that a removal deletes. If run is zero, ReadRaw scans all runs of the shard
	// for runs with the address. For an entity it returns the row and the mailbox.
	ReadRaw(ctx context.Context, shard model.ShardID, address model.Address, run model.RunID, each func(RawRow) error) error
	// Members returns the nodes and the owners of the shards.
	Members(ctx context.Context) (View, error)
	// Sweep deletes data that is no longer needed, and returns the number of deleted rows. The
	// request bounds that number. Sweep deletes:
	//
	//   - messages that their cursor has passed
	//   - remembered requests that are older than the bound or that the request names
	//   - dead letters whose id is older than the bound
	//   - events of deleted runs, and the data and log lines of their tasks
	//   - old log lines, old tombstones of settings, and old mail between nodes
	//   - old entries of the log of administrative actions, and old replay reports
	Sweep(ctx context.Context, s SweepRequest) (int, error)
}

// LoadRunByParts implements LoadRun with three reads, for stores where three reads cost hardly more
// than one.
//
//arch:parameters these are the parameters of LoadRun
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

// LoadDetailsByParts implements LoadDetails with several reads, for stores where a read is cheap.
func LoadDetailsByParts(ctx context.Context, s Store, shard model.ShardID, address model.Address, run model.RunID) (d RunDetails, err error) {
	if d.Execution, err = s.LoadExecution(ctx, shard, address, run); err != nil || d.Execution == nil {
		return d, err
	}
	key := d.Key()
	labels, err := s.LoadLabels(ctx, []RunKey{key})
	if err != nil {
		return d, err
	}
	for i := range labels {
		d.Labels = append(d.Labels, labels[i].Label)
	}

	if d.Last, err = s.LastEvent(ctx, key); err != nil || d.Execution.Outcome.Status.Closed() {
		return d, err
	}
	if d.Timers, err = s.LoadRunTimers(ctx, key); err != nil {
		return d, err
	}
	scheduled, err := s.LoadEventsOf(ctx, key, model.EventTaskScheduled, math.MaxInt64, 1)
	d.Tasks = len(scheduled) > 0
	return d, err
}

// LoadRunsByParts implements LoadRuns with LoadRun, for stores where a read is cheap.
//
//arch:parameters these are the parameters of LoadRuns
func LoadRunsByParts(ctx context.Context, s Store, keys []AddressKey, limit, maxBytes int) (runs []Run, err error) {
	for _, k := range keys {
		if maxBytes <= 0 && len(runs) > 0 {
			break
		}
		r, err := s.LoadRun(ctx, k.Shard, k.Address, model.RunID{}, limit, maxBytes)
		if err == nil && r.More {
			var next []model.Event
			key := RunKey{Shard: r.Execution.Shard, Run: r.Execution.Start.Run}
			next, err = s.LoadEvents(ctx, key, r.Events[len(r.Events)-1].Seq, 1, 1)
			r.More = len(next) > 0
		}
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
		maxBytes -= r.Size()
	}
	return runs, nil
}
