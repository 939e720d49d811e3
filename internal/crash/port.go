package crash

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
)

// port is the store as the engine of one process sees it. It records most calls for the report of a
// failure. It tells a dead process that it is fenced, so that the remaining goroutines of the
// process end immediately instead of retrying forever.
type port struct {
	*faultstore.Store
	trace   *Trace
	process int
	shared  bool
}

var _ store.Store = (*port)(nil)

// end records a call and fences a dead process.
func (p *port) end(m faultstore.Method, detail string, err error) error {
	p.trace.note(Call{Process: p.process, Method: m, Detail: detail, Err: err})
	if errors.Is(err, faultstore.ErrCrashed) {
		return &store.Error{Class: store.Fenced, Op: m.String(), Err: faultstore.ErrCrashed}
	}
	return err
}

func (p *port) Info() store.Info {
	i := p.Store.Info()
	i.Shared = p.shared
	return i
}

func (p *port) Register(ctx context.Context, n store.NodeInfo, lanes int, ttl time.Duration) (store.Registration, error) {
	r, err := p.Store.Register(ctx, n, lanes, ttl)
	return r, p.end(faultstore.Register, "", err)
}

func (p *port) Renew(ctx context.Context, r store.RenewRequest) (store.View, error) {
	v, err := p.Store.Renew(ctx, r)
	return v, p.end(faultstore.Renew, "", err)
}

func (p *port) FenceNode(ctx context.Context, r store.FenceRequest) (bool, error) {
	ok, err := p.Store.FenceNode(ctx, r)
	return ok, p.end(faultstore.FenceNode, "", err)
}

func (p *port) Acquire(ctx context.Context, node model.NodeID, epoch int64, shards []model.ShardID) ([]store.AcquiredShard, error) {
	got, err := p.Store.Acquire(ctx, node, epoch, shards)
	return got, p.end(faultstore.Acquire, fmt.Sprintf(" %d of %d", len(got), len(shards)), err)
}

func (p *port) SetDrained(ctx context.Context, node model.NodeID, drained bool) (bool, error) {
	found, err := p.Store.SetDrained(ctx, node, drained)
	return found, p.end(faultstore.SetDrained, "", err)
}

func (p *port) Unregister(ctx context.Context, node model.NodeID, epoch int64) error {
	return p.end(faultstore.Unregister, "", p.Store.Unregister(ctx, node, epoch))
}

func (p *port) Refence(ctx context.Context, l store.LaneRef) (epoch, landed int64, err error) {
	epoch, landed, err = p.Store.Refence(ctx, l)
	return epoch, landed, p.end(faultstore.Refence, fmt.Sprintf(" lane %d: %d landed", l.Lane, landed), err)
}

func (p *port) Commit(ctx context.Context, b *store.Batch) (store.Committed, error) {
	detail := " " + Describe(b)
	c, err := p.Store.Commit(ctx, b)
	return c, p.end(faultstore.Commit, detail, err)
}

func (p *port) LoadRunnable(ctx context.Context, shards []model.ShardID, after store.RunKey, limit int) ([]store.RunHead, error) {
	rows, err := p.Store.LoadRunnable(ctx, shards, after, limit)
	return rows, p.end(faultstore.LoadRunnable, fmt.Sprintf(": %d", len(rows)), err)
}

func (p *port) LoadExpired(ctx context.Context, r store.ExpiredRequest) (store.Expired, error) {
	x, err := p.Store.LoadExpired(ctx, r)
	return x, p.end(faultstore.LoadExpired, fmt.Sprintf(": %d of %d", len(x.Runs), x.Walked), err)
}

func (p *port) LoadExecution(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (*store.Execution, error) {
	x, err := p.Store.LoadExecution(ctx, shard, a, run)
	return x, p.end(faultstore.LoadExecution, " "+a.Type+"/"+a.Key, err)
}

func (p *port) LoadEvents(ctx context.Context, key store.RunKey, after int64, limit, maxBytes int) ([]model.Event, error) {
	es, err := p.Store.LoadEvents(ctx, key, after, limit, maxBytes)
	return es, p.end(faultstore.LoadEvents, fmt.Sprintf(": %d", len(es)), err)
}

func (p *port) LoadTimers(ctx context.Context, shards []model.ShardID, after store.TimerMark, until model.Time, limit int) ([]store.Timer, error) {
	ts, err := p.Store.LoadTimers(ctx, shards, after, until, limit)
	return ts, p.end(faultstore.LoadTimers, fmt.Sprintf(": %d", len(ts)), err)
}

//arch:parameters the signature is part of the store port
func (p *port) LoadRun(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID, limit, maxBytes int) (store.Run, error) {
	x, err := p.Store.LoadRun(ctx, shard, a, run, limit, maxBytes)
	return x, p.end(faultstore.LoadRun, fmt.Sprintf(" %s/%s: %d", a.Type, a.Key, len(x.Events)), err)
}

func (p *port) LoadRuns(ctx context.Context, keys []store.AddressKey, limit, maxBytes int) ([]store.Run, error) {
	x, err := p.Store.LoadRuns(ctx, keys, limit, maxBytes)
	return x, p.end(faultstore.LoadRuns, fmt.Sprintf(": %d of %d", len(x), len(keys)), err)
}

func (p *port) LoadRunTimers(ctx context.Context, key store.RunKey) ([]store.Timer, error) {
	ts, err := p.Store.LoadRunTimers(ctx, key)
	return ts, p.end(faultstore.LoadRunTimers, fmt.Sprintf(": %d", len(ts)), err)
}

func (p *port) LoadMessages(ctx context.Context, shards []model.ShardID, limit, maxBytes int) ([]store.MessageRow, bool, error) {
	ms, more, err := p.Store.LoadMessages(ctx, shards, limit, maxBytes)
	return ms, more, p.end(faultstore.LoadMessages, fmt.Sprintf(": %d", len(ms)), err)
}

func (p *port) LoadInbox(ctx context.Context, shards []model.ShardID, now model.Time, limit, maxBytes int) ([]store.InboxRow, bool, error) {
	rows, more, err := p.Store.LoadInbox(ctx, shards, now, limit, maxBytes)
	return rows, more, p.end(faultstore.LoadInbox, fmt.Sprintf(": %d", len(rows)), err)
}

func (p *port) Tenants(ctx context.Context) ([]string, error) {
	all, err := p.Store.Tenants(ctx)
	return all, p.end(faultstore.Tenants, "", err)
}

func (p *port) LoadDeadLetters(ctx context.Context, after model.RunID, limit int) ([]store.InboxRow, error) {
	rows, err := p.Store.LoadDeadLetters(ctx, after, limit)
	return rows, p.end(faultstore.LoadDeadLetters, fmt.Sprintf(": %d", len(rows)), err)
}

func (p *port) PutInbox(ctx context.Context, rows []store.InboxRow) error {
	return p.end(faultstore.PutInbox, "", p.Store.PutInbox(ctx, rows))
}

func (p *port) LoadReplies(ctx context.Context, keys []store.RequestKey) ([]store.Reply, error) {
	rs, err := p.Store.LoadReplies(ctx, keys)
	return rs, p.end(faultstore.LoadReplies, fmt.Sprintf(": %d of %d", len(rs), len(keys)), err)
}

func (p *port) LoadAnswers(ctx context.Context, a store.Awaited) (store.Answers, error) {
	found, err := p.Store.LoadAnswers(ctx, a)
	return found, p.end(faultstore.LoadAnswers, fmt.Sprintf(": %d replies, %d ended runs", len(found.Replies), len(found.Ended)), err)
}

func (p *port) List(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := p.Store.List(ctx, q)
	return page, p.end(faultstore.List, "", err)
}

func (p *port) Count(ctx context.Context, q store.Query) (int64, error) {
	n, err := p.Store.Count(ctx, q)
	return n, p.end(faultstore.Count, "", err)
}

func (p *port) Tally(ctx context.Context, q store.Query, by store.TallyBy) ([]store.TallyGroup, error) {
	groups, err := p.Store.Tally(ctx, q, by)
	return groups, p.end(faultstore.Tally, "", err)
}

func (p *port) LoadLabels(ctx context.Context, keys []store.RunKey) ([]store.LabelRow, error) {
	rows, err := p.Store.LoadLabels(ctx, keys)
	return rows, p.end(faultstore.LoadLabels, fmt.Sprintf(": %d of %d runs", len(rows), len(keys)), err)
}

func (p *port) LoadDetails(ctx context.Context, shard model.ShardID, a model.Address, run model.RunID) (store.RunDetails, error) {
	d, err := p.Store.LoadDetails(ctx, shard, a, run)
	return d, p.end(faultstore.LoadDetails, fmt.Sprintf(" %s/%s", a.Type, a.Key), err)
}

func (p *port) LoadEntity(ctx context.Context, key store.EntityKey, limit, maxBytes int) (store.LoadedEntity, error) {
	n, err := p.Store.LoadEntity(ctx, key, limit, maxBytes)
	return n, p.end(faultstore.LoadEntity, fmt.Sprintf(" %s/%s: %d wait", key.Address.Type, key.Address.Key, len(n.Mailbox)), err)
}

func (p *port) LoadMailbox(ctx context.Context, key store.EntityKey, after int64, limit, maxBytes int) ([]model.MailboxItem, error) {
	items, err := p.Store.LoadMailbox(ctx, key, after, limit, maxBytes)
	return items, p.end(faultstore.LoadMailbox, fmt.Sprintf(" %s/%s: %d", key.Address.Type, key.Address.Key, len(items)), err)
}

func (p *port) LoadMailboxes(ctx context.Context, shards []model.ShardID, after store.EntityKey, limit int) ([]store.EntityKey, error) {
	keys, err := p.Store.LoadMailboxes(ctx, shards, after, limit)
	return keys, p.end(faultstore.LoadMailboxes, fmt.Sprintf(": %d", len(keys)), err)
}

func (p *port) ListEntities(ctx context.Context, q store.EntityQuery) (store.EntityPage, error) {
	page, err := p.Store.ListEntities(ctx, q)
	return page, p.end(faultstore.ListEntities, "", err)
}

func (p *port) Members(ctx context.Context) (store.View, error) {
	v, err := p.Store.Members(ctx)
	return v, p.end(faultstore.Members, "", err)
}

func (p *port) Sweep(ctx context.Context, r store.SweepRequest) (int, error) {
	n, err := p.Store.Sweep(ctx, r)
	return n, p.end(faultstore.Sweep, "", err)
}
