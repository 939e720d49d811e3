package faultstore

import (
	"context"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// Info describes the wrapped store. It cannot fail.
func (f *Store) Info() store.Info { return f.inner.Info() }

// Close ends the process in an orderly way. Later calls fail. It closes the wrapped store unless
// KeepInner is set.
func (f *Store) Close() error {
	f.Kill()
	if f.config.KeepInner {
		return nil
	}
	return f.inner.Close()
}

// Register registers a node. Before that, it applies the late commits of the node that have begun.
func (f *Store) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	return call(ctx, f, Register, nil, func() (store.Registration, error) {
		f.orphans.finish(n.ID, -1)
		return f.inner.Register(ctx, n, lanes, ttl)
	})
}

// Renew renews a lease.
func (f *Store) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	return call(ctx, f, Renew, nil, func() (store.View, error) { return f.inner.Renew(ctx, r) })
}

// FenceNode fences a node. Before that, it applies the late commits of the node that have begun.
func (f *Store) FenceNode(ctx context.Context, r store.FenceRequest) (bool, error) {
	return call(ctx, f, FenceNode, nil, func() (bool, error) {
		f.orphans.finish(r.Node, -1)
		return f.inner.FenceNode(ctx, r)
	})
}

// Acquire acquires shards.
func (f *Store) Acquire(ctx context.Context, node model.NodeID, epoch int64, shards []model.ShardID) ([]store.AcquiredShard, error) {
	return call(ctx, f, Acquire, nil, func() ([]store.AcquiredShard, error) { return f.inner.Acquire(ctx, node, epoch, shards) })
}

// SetDrained stores or withdraws the order that a node must hand its shards over.
func (f *Store) SetDrained(ctx context.Context, node model.NodeID, drained bool) (bool, error) {
	return call(ctx, f, SetDrained, nil, func() (bool, error) { return f.inner.SetDrained(ctx, node, drained) })
}

// Unregister removes a node. Before that, it applies the late commits of the node that have begun.
func (f *Store) Unregister(ctx context.Context, node model.NodeID, epoch int64) error {
	_, err := call(ctx, f, Unregister, nil, func() (struct{}, error) {
		f.orphans.finish(node, -1)
		return struct{}{}, f.inner.Unregister(ctx, node, epoch)
	})
	return err
}

// Refence moves the fence of a lane. Before that, it applies the late commits of the lane that have
// begun.
func (f *Store) Refence(ctx context.Context, l store.LaneRef) (epoch, landed int64, err error) {
	type answer struct{ epoch, landed int64 }
	a, err := call(ctx, f, Refence, nil, func() (answer, error) {
		f.orphans.finish(l.Node, l.Lane)
		epoch, landed, err := f.inner.Refence(ctx, l)
		return answer{epoch, landed}, err
	})
	return a.epoch, a.landed, err
}

// Commit commits a batch. Before that, it applies the late commits of the lane that have begun.
func (f *Store) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	return call(ctx, f, Commit, b, func() (store.Committed, error) {
		f.orphans.finish(b.Lane.Node, b.Lane.Lane)
		return f.inner.Commit(ctx, b)
	})
}

// LoadExpired loads runs that may be removed.
func (f *Store) LoadExpired(ctx context.Context, r store.ExpiredRequest) (store.Expired, error) {
	return call(ctx, f, LoadExpired, nil, func() (store.Expired, error) { return f.inner.LoadExpired(ctx, r) })
}

// LoadRunnable loads runnable runs.
func (f *Store) LoadRunnable(ctx context.Context, shards []model.ShardID, after store.RunKey, limit int) ([]store.RunHead, error) {
	return call(ctx, f, LoadRunnable, nil, func() ([]store.RunHead, error) { return f.inner.LoadRunnable(ctx, shards, after, limit) })
}

// LoadExecution loads a run.
func (f *Store) LoadExecution(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (*store.Execution, error) {
	return call(ctx, f, LoadExecution, nil, func() (*store.Execution, error) { return f.inner.LoadExecution(ctx, shard, a, run) })
}

// LoadEvents loads events of a run.
func (f *Store) LoadEvents(ctx context.Context, key store.RunKey, after int64, limit, maxBytes int) ([]model.Event, error) {
	return call(ctx, f, LoadEvents, nil, func() ([]model.Event, error) { return f.inner.LoadEvents(ctx, key, after, limit, maxBytes) })
}

// LoadTimers loads timers of shards.
func (f *Store) LoadTimers(ctx context.Context, shards []model.ShardID, after store.TimerMark, until model.Time, limit int) ([]store.Timer, error) {
	return call(ctx, f, LoadTimers, nil, func() ([]store.Timer, error) { return f.inner.LoadTimers(ctx, shards, after, until, limit) })
}

// LoadRun loads what the engine needs to continue a run.
//
//arch:parameters the signature is part of the store port
func (f *Store) LoadRun(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID, limit, maxBytes int) (store.Run, error) {
	return call(ctx, f, LoadRun, nil, func() (store.Run, error) { return f.inner.LoadRun(ctx, shard, a, run, limit, maxBytes) })
}

// LoadRuns loads what the engine needs to continue several runs.
func (f *Store) LoadRuns(ctx context.Context, keys []store.AddressKey, limit, maxBytes int) ([]store.Run, error) {
	return call(ctx, f, LoadRuns, nil, func() ([]store.Run, error) { return f.inner.LoadRuns(ctx, keys, limit, maxBytes) })
}

// LoadRunTimers loads timers of a run.
func (f *Store) LoadRunTimers(ctx context.Context, key store.RunKey) ([]store.Timer, error) {
	return call(ctx, f, LoadRunTimers, nil, func() ([]store.Timer, error) { return f.inner.LoadRunTimers(ctx, key) })
}

// LoadMessages loads messages.
func (f *Store) LoadMessages(ctx context.Context, shards []model.ShardID, limit, maxBytes int) ([]store.MessageRow, bool, error) {
	p, err := call(ctx, f, LoadMessages, nil, func() (p page[store.MessageRow], err error) {
		p.rows, p.more, err = f.inner.LoadMessages(ctx, shards, limit, maxBytes)
		return p, err
	})
	return p.rows, p.more, err
}

// page is the result of a method that reads a page of messages or requests.
type page[T any] struct {
	rows []T
	more bool
}

// LoadInbox loads requests.
func (f *Store) LoadInbox(ctx context.Context, shards []model.ShardID, now model.Time, limit, maxBytes int) ([]store.InboxRow, bool, error) {
	p, err := call(ctx, f, LoadInbox, nil, func() (p page[store.InboxRow], err error) {
		p.rows, p.more, err = f.inner.LoadInbox(ctx, shards, now, limit, maxBytes)
		return p, err
	})
	return p.rows, p.more, err
}

// Tenants loads the tenants that have executions.
func (f *Store) Tenants(ctx context.Context) ([]string, error) {
	return call(ctx, f, Tenants, nil, func() ([]string, error) { return f.inner.Tenants(ctx) })
}

// LoadDeadLetters loads refused requests.
func (f *Store) LoadDeadLetters(ctx context.Context, after model.RunID, limit int) ([]store.InboxRow, error) {
	return call(ctx, f, LoadDeadLetters, nil, func() ([]store.InboxRow, error) { return f.inner.LoadDeadLetters(ctx, after, limit) })
}

// PutInbox stores requests.
func (f *Store) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	_, err := call(ctx, f, PutInbox, nil, func() (struct{}, error) { return struct{}{}, f.inner.PutInbox(ctx, rows) })
	return err
}

// LoadReplies loads remembered answers.
func (f *Store) LoadReplies(ctx context.Context, keys []store.RequestKey) ([]store.Reply, error) {
	return call(ctx, f, LoadReplies, nil, func() ([]store.Reply, error) { return f.inner.LoadReplies(ctx, keys) })
}

// LoadAnswers loads what callers wait for.
func (f *Store) LoadAnswers(ctx context.Context, a store.Awaited) (store.Answers, error) {
	return call(ctx, f, LoadAnswers, nil, func() (store.Answers, error) { return f.inner.LoadAnswers(ctx, a) })
}

// List lists executions.
func (f *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	return call(ctx, f, List, nil, func() (store.Page, error) { return f.inner.List(ctx, q) })
}

// Count counts executions.
func (f *Store) Count(ctx context.Context, q store.Query) (int64, error) {
	return call(ctx, f, Count, nil, func() (int64, error) { return f.inner.Count(ctx, q) })
}

// Tally counts executions in groups.
func (f *Store) Tally(ctx context.Context, q store.Query, by store.TallyBy) ([]store.TallyGroup, error) {
	return call(ctx, f, Tally, nil, func() ([]store.TallyGroup, error) { return f.inner.Tally(ctx, q, by) })
}

// LastEvent returns the highest position of the events of a run.
func (f *Store) LastEvent(ctx context.Context, key store.RunKey) (int64, error) {
	return call(ctx, f, LastEvent, nil, func() (int64, error) { return f.inner.LastEvent(ctx, key) })
}

// LoadEventsOf loads events of a run that are of one kind.
func (f *Store) LoadEventsOf(ctx context.Context, key store.RunKey, kind model.EventKind, before int64, limit int) ([]model.Event, error) {
	return call(ctx, f, LoadEventsOf, nil, func() ([]model.Event, error) { return f.inner.LoadEventsOf(ctx, key, kind, before, limit) })
}

// LoadLabels loads labels.
func (f *Store) LoadLabels(ctx context.Context, keys []store.RunKey) ([]store.LabelRow, error) {
	return call(ctx, f, LoadLabels, nil, func() ([]store.LabelRow, error) { return f.inner.LoadLabels(ctx, keys) })
}

// LoadDetails loads what a description of a run shows.
func (f *Store) LoadDetails(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (store.RunDetails, error) {
	return call(ctx, f, LoadDetails, nil, func() (store.RunDetails, error) { return f.inner.LoadDetails(ctx, shard, a, run) })
}

// Members returns the view of the cluster.
func (f *Store) Members(ctx context.Context) (store.View, error) {
	return call(ctx, f, Members, nil, func() (store.View, error) { return f.inner.Members(ctx) })
}

// Sweep deletes data that is no longer needed.
func (f *Store) Sweep(ctx context.Context, r store.SweepRequest) (int, error) {
	return call(ctx, f, Sweep, nil, func() (int, error) { return f.inner.Sweep(ctx, r) })
}
